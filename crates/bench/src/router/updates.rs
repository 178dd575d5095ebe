//! How fast rules are made and taken back: in Open vSwitch, by our controller and by Open vSwitch's own tool; and in the program in the kernel, by its map
//! alone, and by our controller over OpenFlow.

use std::path::Path;
use std::time::{Duration, Instant};

use guira_loadgen::progress::Progress;
use guira_openflow::Lookups;
use guira_xdp::{Action, Router};

use super::bench::Bench;
use super::controller::Controller;
use super::packets::make;
use super::rule_set::RuleSet;
use super::site::{OvsSite, Site, XdpSite, goes_by};
use super::wire::Wire;
use crate::error::BenchError;
use crate::metric;
use crate::report::{Aim, ExperimentReport};

pub(super) const NAME: &str = "updates";

/// What is told rules.
const OPEN_VSWITCH: &str = "Open vSwitch";
const XDP: &str = "XDP";

/// Without anybody between.
const MAP: &str = "guira, map alone";

const AIMS: [Aim; 2] = [
    Aim { peer: "guira", variant: Some(OPEN_VSWITCH), metric: metric::UPDATES, bound: 5_000.0 },
    Aim { peer: MAP, variant: Some(XDP), metric: metric::UPDATES, bound: 100_000.0 },
];

/// How long it took to make rules, and to take them back.
struct Took {
    making: Duration,
    taking_back: Duration,
}

impl Took {
    fn record(&self, report: &mut ExperimentReport, variant: &str, peer: &str, rules: &RuleSet) {
        let per_s = |rules: u64, took: Duration| rules as f64 / took.as_secs_f64();
        report.record(variant, peer, metric::UPDATES, per_s(2 * rules.len(), self.making + self.taking_back));
        report.record(variant, peer, metric::MADE, per_s(rules.len(), self.making));
        report.record(variant, peer, metric::TAKEN_BACK, per_s(rules.len(), self.taking_back));
    }
}

/// Something that is told rules.
type Way<'w> = (&'static str, &'static str, Box<dyn FnMut() -> Result<Took, BenchError> + 'w>);

pub(super) fn run(bench: &Bench) -> Result<ExperimentReport, BenchError> {
    let rules = &bench.cached();
    let words = format!(
        "rules of {} hashes are made, and then taken back: until the switch has answered the barrier behind the last one, or the map's call is back; after each it is \
         looked at how many there are; ovs-ofctl is told the same in a file, one flow after the other or as a bundle",
        rules.len()
    );
    let mut report = ExperimentReport::new(NAME, "Updates of rules", words);
    let (mut site, by_tool) = (OvsSite::start(bench, "updates-controller")?, OvsSite::start(bench, "updates-tool")?);
    let (mut xdp_site, wire) = (XdpSite::new(bench)?, Wire::new()?);
    let mut map = wire.router(2 * rules.len(), Action::Route, None)?;
    make(&mut map, RuleSet::base())?;
    let (controller, xdp_controller) = (controller(&mut site)?, controller(&mut xdp_site)?);
    let files = Files::write(bench, rules)?;
    let mut ways: [Way<'_>; 5] = [
        (OPEN_VSWITCH, "guira", Box::new(|| by_controller(&site, &controller, rules))),
        (OPEN_VSWITCH, "ovs-ofctl", Box::new(|| by_ofctl(&by_tool, &files, &[], rules))),
        (OPEN_VSWITCH, "ovs-ofctl --bundle", Box::new(|| by_ofctl(&by_tool, &files, &["--bundle"], rules))),
        (XDP, "guira", Box::new(|| by_controller(&xdp_site, &xdp_controller, rules))),
        (XDP, MAP, Box::new(|| by_map(&mut map, rules))),
    ];
    let progress = Progress::new(NAME, bench.rounds as u64);
    for round in 0..bench.rounds {
        progress.at(round as u64);
        // None of them is always the first.
        let len = ways.len();
        for at in 0..len {
            let (variant, peer, way) = &mut ways[(at + round) % len];
            way()?.record(&mut report, variant, peer, rules);
        }
    }
    AIMS.iter().for_each(|aim| report.aim(aim));
    Ok(report)
}

/// A controller, once the switch has called it and has what there always is.
fn controller(site: &mut impl Site) -> Result<Controller, BenchError> {
    let controller = Controller::listen(site.listener()?, RuleSet::base())?;
    site.call()?;
    controller.settled()?;
    Ok(controller)
}

fn expect_len(site: &impl Site, expected: u64) -> Result<(), BenchError> {
    let len = site.rules_len()?;
    if len == expected {
        return Ok(());
    }
    Err(BenchError::Invalid(format!("the switch has {len} rules of hashes, and is to have {expected}")))
}

fn by_controller(site: &impl Site, controller: &Controller, rules: &RuleSet) -> Result<Took, BenchError> {
    let none = RuleSet::of(0..0);
    let told = |from: &RuleSet, to: &RuleSet| {
        let changes = from.changes_to(to);
        let began = Instant::now();
        controller.update(changes)?;
        let took = controller.settled()?.at - began;
        expect_len(site, to.len())?;
        Ok::<_, BenchError>(took)
    };
    Ok(Took { making: told(&none, rules)?, taking_back: told(rules, &none)? })
}

/// What the tool is told.
struct Files {
    make: String,
    take_back: String,
}

impl Files {
    fn write(bench: &Bench, rules: &RuleSet) -> Result<Self, BenchError> {
        let place = |name| bench.clusters.workplace.place(name);
        Ok(Self {
            make: write(&place("make.flows"), &rules.lines())?,
            take_back: write(&place("take-back.flows"), &rules.lines_to_delete())?,
        })
    }
}

/// Writes a file for the tool, whose name it returns.
pub(super) fn write(path: &Path, lines: &str) -> Result<String, BenchError> {
    std::fs::write(path, lines).map_err(|source| BenchError::Output { path: path.to_owned(), source })?;
    Ok(path.display().to_string())
}

fn by_ofctl(site: &OvsSite, files: &Files, words: &[&str], rules: &RuleSet) -> Result<Took, BenchError> {
    let told = |file: &str, expected| {
        let words = [&[file], words].concat();
        let began = Instant::now();
        site.tool("add-flows", &words)?;
        let took = began.elapsed();
        expect_len(site, expected)?;
        Ok::<_, BenchError>(took)
    };
    Ok(Took { making: told(&files.make, rules.len())?, taking_back: told(&files.take_back, 0)? })
}

fn by_map(router: &mut Router, rules: &RuleSet) -> Result<Took, BenchError> {
    let none = RuleSet::of(0..0);
    let checked = |router: &Router, wanted, before| goes_by(router, wanted, before).map_err(BenchError::Invalid);
    let flows: Vec<_> = rules.of_hashes().collect();
    let began = Instant::now();
    make(router, flows.iter().copied())?;
    let making = began.elapsed();
    checked(router, rules, &none)?;
    let began = Instant::now();
    flows.iter().for_each(|(key, _)| router.take_back(key));
    let taking_back = began.elapsed();
    checked(router, &none, rules)?;
    Ok(Took { making, taking_back })
}
