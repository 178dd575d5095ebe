//! `guira plan`: what a cluster would do, by the papers' models.

use guira_plan::{Consistency, Deployment, MessageLens, Skew};
use serde_json::{Value, json};

/// What is planned.
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand, Debug)]
enum What {
    /// A symmetric cluster, of which the network between its nodes is what there is least of (ccKVS, EuroSys 2018, section 8.7)
    Symmetric(Symmetric),
}

#[derive(clap::Args, Debug)]
struct Symmetric {
    /// Nodes; several with commas between
    #[arg(long, default_value = "9", value_delimiter = ',')]
    nodes: Vec<u32>,
    /// Groups of nodes, each with keys and a cache of its own
    #[arg(long, default_value_t = 1)]
    groups: u32,
    /// Keys, of all groups together
    #[arg(long, default_value_t = 250_000_000)]
    keys: u64,
    /// The hottest keys, of all groups together, of which each node of their group has a copy [default: a thousandth of all]
    #[arg(long)]
    cached: Option<u64>,
    /// Zipf's exponent, by which some keys are asked for more often than others
    #[arg(long, default_value_t = 0.99)]
    skew: f64,
    /// The share of requests for keys that are cached, 0 to 1 [default: what keys, cached and skew give]
    #[arg(long, conflicts_with_all = ["keys", "cached", "skew"])]
    hits: Option<f64>,
    /// The share of requests that are writes, 0 to 1
    #[arg(long, default_value_t = 0.01)]
    writes: f64,
    /// What the network carries out of each node, in 10^9 bits a second
    #[arg(long, default_value_t = 21.5)]
    gigabits_per_s: f64,
    /// Whose messages, of keys of 8 bytes and values of 40 over InfiniBand
    #[arg(long, value_enum, default_value_t = Messages::Paper)]
    messages: Messages,
    /// Bytes of a request for another node's key and of its answer, together, with all headers [default: of --messages]
    #[arg(long)]
    remote_bytes: Option<f64>,
    /// Bytes of an update to another node, and of what acknowledges it (SC) [default: of --messages]
    #[arg(long)]
    update_bytes: Option<f64>,
    /// Bytes of an invalidation, its acknowledgement and what ends the write, together (Lin) [default: of --messages]
    #[arg(long)]
    lin_bytes: Option<f64>,
    /// As JSON, in bytes and requests a second
    #[arg(long)]
    json: bool,
}

/// Whose messages.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Messages {
    /// ccKVS's own.
    Paper,
    /// Guira's, as the simulator has counted them.
    Guira,
}

/// Prints what is to be expected.
pub(crate) fn run(arguments: &Arguments) -> Result<(), String> {
    let What::Symmetric(symmetric) = &arguments.what;
    let planned = symmetric.plan()?;
    if symmetric.json {
        println!("{}", Value::from(planned.iter().map(Planned::json).collect::<Vec<_>>()));
        return Ok(());
    }
    println!(
        "                      | 10^6 requests a second | bytes a request, between nodes   | break-even writes, %"
    );
    println!("nodes groups     hits | no cache     SC    Lin | no cache  misses      SC     Lin |     SC    Lin");
    planned.iter().for_each(|planned| println!("{}", planned.line()));
    let gigabits_per_s = symmetric.gigabits_per_s;
    let MessageLens { remote, update, lin_write } = symmetric.lens();
    println!(
        "by ccKVS's equations, of which nothing was measured here: {gigabits_per_s} Gbit/s out of each node; messages of {remote} bytes (a request and its answer), {update} (SC's update), {lin_write} (Lin's three)"
    );
    println!(
        "without a cache all keys, and of several groups all groups, are taken to be asked for as often as each other"
    );
    Ok(())
}

/// One deployment.
struct Planned {
    nodes: u32,
    groups: u32,
    hits: f64,
    deployment: Deployment,
}

impl Symmetric {
    fn hits(&self) -> Result<f64, String> {
        if let Some(hits) = self.hits {
            return Ok(hits);
        }
        let skew = Skew::new(self.keys, self.skew).map_err(|error| error.to_string())?;
        let cached = self.cached.unwrap_or(self.keys / 1_000);
        if cached > self.keys {
            return Err(format!("cached {cached}: of {} keys", self.keys));
        }
        Ok(skew.share_of_hottest(cached))
    }

    fn lens(&self) -> MessageLens {
        let of = match self.messages {
            Messages::Paper => MessageLens::OF_THE_PAPER,
            Messages::Guira => MessageLens::OF_GUIRA,
        };
        MessageLens {
            remote: self.remote_bytes.unwrap_or(of.remote),
            update: self.update_bytes.unwrap_or(of.update),
            lin_write: self.lin_bytes.unwrap_or(of.lin_write),
        }
    }

    fn plan(&self) -> Result<Vec<Planned>, String> {
        let (hits, groups) = (self.hits()?, self.groups);
        let lens = self.lens();
        let bytes_per_s = self.gigabits_per_s * 1e9 / 8.0;
        let planned = |nodes: u32| {
            let deployment = Deployment::new(nodes, groups, bytes_per_s, hits, self.writes, lens);
            let deployment = deployment.map_err(|error| error.to_string())?;
            Ok(Planned { nodes, groups, hits, deployment })
        };
        self.nodes.iter().map(|nodes| planned(*nodes)).collect()
    }
}

impl Planned {
    fn line(&self) -> String {
        let Self { nodes, groups, hits, deployment } = self;
        let or = |text: &str, number: Option<f64>, decimals: usize| {
            number.map_or_else(|| text.to_owned(), |number| format!("{number:.decimals$}"))
        };
        let [sc, lin] = Consistency::ALL.map(|consistency| {
            let requests = deployment.requests_per_s(consistency).map(|requests| requests / 1e6);
            let even = deployment.break_even_write_share(consistency).map(|share| 100.0 * share);
            (or("any", requests, 1), deployment.bytes_of_consistency(consistency), or("none", even, 2))
        });
        let (misses, without) = (deployment.bytes_of_misses(), deployment.bytes_without_cache());
        let of_nodes = format!("{nodes:5} {groups:6} {:6.2} %", 100.0 * hits);
        let without_cache = deployment.requests_per_s_without_cache() / 1e6;
        let requests = format!("{without_cache:8.1} {:>6} {:>6}", sc.0, lin.0);
        let bytes = format!("{without:8.1} {misses:7.1} {:7.2} {:7.2}", sc.1, lin.1);
        format!("{of_nodes} | {requests} | {bytes} | {:>6} {:>6}", sc.2, lin.2)
    }

    fn json(&self) -> Value {
        let Self { nodes, groups, hits, deployment } = self;
        let of = |consistency| {
            json!({
                "bytes_of_consistency": deployment.bytes_of_consistency(consistency),
                "requests_per_s": deployment.requests_per_s(consistency),
                "break_even_write_share": deployment.break_even_write_share(consistency),
            })
        };
        json!({
            "nodes": nodes,
            "groups": groups,
            "hit_share": hits,
            "bytes_of_misses": deployment.bytes_of_misses(),
            "sc": of(Consistency::Sc),
            "lin": of(Consistency::Lin),
            "without_cache": {
                "bytes": deployment.bytes_without_cache(),
                "requests_per_s": deployment.requests_per_s_without_cache(),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn plan(words: &str) -> Result<Vec<Planned>, String> {
        let words = ["plan", "symmetric"].into_iter().chain(words.split_whitespace());
        let Arguments { what: What::Symmetric(symmetric) } = Line::try_parse_from(words).unwrap().arguments;
        symmetric.plan()
    }

    #[test]
    fn a_line_and_an_object_say_the_same_of_each_number_of_nodes() {
        let planned = plan("--nodes 9,40 --hits 0.66").unwrap();
        let [nine, forty] = &planned[..] else { panic!("{} of them", planned.len()) };
        // The paper's throughput of nine nodes: 628 and 554 million requests a second.
        assert_eq!(
            nine.line(),
            "    9      1  66.00 % |    240.8  627.7  552.1 |    100.4    34.2    4.38    9.66 |  15.13   6.86"
        );
        let object = forty.json();
        assert_eq!((&object["nodes"], &object["hit_share"]), (&json!(40), &json!(0.66)));
        assert!((object["lin"]["break_even_write_share"].as_f64().unwrap() - 0.0154).abs() < 5e-5);
    }

    #[test]
    fn of_hits_that_are_not_told_skew_decides() {
        let hits = |words| plan(words).map(|planned| planned[0].hits);
        assert!((hits("").unwrap() - 0.630).abs() < 0.001);
        assert!((hits("--cached 250000000").unwrap() - 1.0).abs() < 1e-12);
        assert!(hits("--keys 0").unwrap_err().contains("at least one"));
        assert!(hits("--nodes 1").unwrap_err().contains("two at least"));
        assert!(hits("--keys 9 --cached 10").unwrap_err().contains("of 9 keys"));
        assert_eq!(hits("--hits 65").unwrap_err(), "hits 65: a share, from 0 to 1");
        assert!(Line::try_parse_from(["plan", "symmetric", "--hits", "0.5", "--skew", "1"]).is_err());
        let lens = |words| plan(words).map(|planned| planned[0].deployment.bytes_without_cache());
        let ours = lens("--messages guira").unwrap();
        assert!((ours - MessageLens::OF_GUIRA.remote * 8.0 / 9.0).abs() < 1e-9);
        assert!((lens("--messages guira --remote-bytes 90").unwrap() - 80.0).abs() < 1e-9);
        let idle = plan("--hits 1 --writes 0 --remote-bytes 9999").unwrap();
        assert!(idle[0].line().contains(" any ") && idle[0].line().ends_with("none   none"));
    }
}
