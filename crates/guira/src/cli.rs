//! The command line: which command, and the one line that says what was wrong with it.

use std::ffi::OsString;
use std::path::Path;

use clap::builder::{Resettable, ValueParser};
use clap::error::ErrorKind;
use clap::{ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::mistake::{self, Origins};
use crate::options::Flags;
use crate::{bench, cluster, health, help, model, node, plan, sim, store_tools};

/// Guira, a memcached-compatible key-value store.
#[derive(Parser, Debug)]
#[command(name = "guira", version, about, infer_long_args = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// What to do.
#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Serve memcached's protocols (`guira serve -h` lists memcached's flags)
    #[command(disable_help_flag = true, args_override_self = true)]
    Serve(Box<Flags>),
    /// Ask a server whether it is well: exit status 0 if it answers
    Health(health::Arguments),
    /// Look at the store of a server, copy it, fill it
    Store(store_tools::Arguments),
    /// A whole cluster on this machine: start it, look at it, take it down; and who is in one that etcd keeps
    Cluster(cluster::Arguments),
    /// One member of a cluster
    Node(Box<node::Arguments>),
    /// Simulate a cluster under faults, and check every answer
    Sim(sim::Arguments),
    /// Check a cluster in every order of what can happen, within bounds
    Model(model::Arguments),
    /// What a cluster would do, by the papers' models
    Plan(plan::Arguments),
    /// Measure Guira and its peers
    Bench(Box<bench::Arguments>),
}

/// memcached's flags, without a command before them.
#[derive(Args, Debug)]
struct Direct {
    #[command(flatten)]
    flags: Flags,
}

/// What a command line asks for.
#[derive(Debug)]
pub(crate) enum Call {
    /// Print this and be done.
    Say(String),
    /// Run this.
    Run(Command),
}

/// The version line.
pub(crate) fn version() -> String {
    format!("guira {} (speaks memcached {})\n", env!("CARGO_PKG_VERSION"), guira_server::MEMCACHED_VERSION)
}

/// The version line for those who call memcached, some of which are scripts that look for its second word.
fn memcached_version() -> String {
    format!("memcached {}\n", guira_server::MEMCACHED_VERSION)
}

/// Reads a command line.
pub(crate) fn parse(arguments: impl Iterator<Item = OsString>) -> Result<Call, String> {
    let arguments: Vec<OsString> = arguments.collect();
    let name = arguments.first().and_then(|name| Path::new(name).file_stem()).unwrap_or_default();
    if name == "memcached" {
        return parse_direct(&arguments);
    }
    if arguments.len() == 1 {
        return Ok(Call::Say(Cli::command().render_help().to_string()));
    }
    if arguments.len() == 2 && (arguments[1] == "-V" || arguments[1] == "--version") {
        return Ok(Call::Say(version()));
    }
    let command = Cli::command().mut_subcommand(SERVE, with_numbers);
    let parsed = command.clone().try_get_matches_from(&arguments).and_then(|matches| {
        let mut cli = Cli::from_arg_matches(&matches)?;
        if let (Command::Serve(flags), Some((_, matches))) = (&mut cli.command, matches.subcommand()) {
            flags.origins = serve(&command).map(|serve| Origins::of(serve, matches)).unwrap_or_default();
        }
        Ok(cli.command)
    });
    match parsed {
        Ok(Command::Serve(flags)) => Ok(serve_or_say(flags, &version())),
        Ok(command) => Ok(Call::Run(command)),
        Err(error) => {
            let lenient = Cli::command().mut_subcommand(SERVE, lenient).ignore_errors(true);
            let matches = lenient.try_get_matches_from(&arguments).ok();
            let asked = matches.as_ref().and_then(|matches| matches.subcommand_matches(SERVE));
            if let Some(text) = asked.and_then(|matches| text_asked_for(matches, &version())) {
                return Ok(Call::Say(text));
            }
            let words = arguments.iter().skip(1).map_while(|word| word.to_str());
            let flags = words.scan(&command, |command, word| {
                *command = command.find_subcommand(word)?;
                Some(*command)
            });
            let flags = flags.last().unwrap_or(&command).clone();
            let parse = |flags: clap::Command| {
                let name = flags.get_name().to_owned();
                let command = command.mut_subcommand(&name, |_| flags);
                command.try_get_matches_from(&arguments).map(drop)
            };
            refuse(&error, &flags, parse)
        }
    }
}

/// Reads memcached's own command line.
fn parse_direct(arguments: &[OsString]) -> Result<Call, String> {
    let command = with_numbers(Direct::augment_args(clap::Command::new("memcached")))
        .args_override_self(true)
        .disable_help_flag(true)
        .disable_version_flag(true)
        .infer_long_args(true);
    let parsed = command.clone().try_get_matches_from(arguments).and_then(|matches| {
        let mut flags = Direct::from_arg_matches(&matches)?.flags;
        flags.origins = Origins::of(&command, &matches);
        Ok(flags)
    });
    match parsed {
        Ok(flags) => Ok(serve_or_say(Box::new(flags), &memcached_version())),
        Err(error) => {
            let matches = lenient(command.clone()).try_get_matches_from(arguments).ok();
            if let Some(text) = matches.and_then(|matches| text_asked_for(&matches, &memcached_version())) {
                return Ok(Call::Say(text));
            }
            refuse(&error, &command, |command| command.try_get_matches_from(arguments).map(drop))
        }
    }
}

const SERVE: &str = "serve";

fn serve(command: &clap::Command) -> Option<&clap::Command> {
    command.find_subcommand(SERVE)
}

/// What looks like a negative number is a value, to be refused as one, and no flag.
fn with_numbers(command: clap::Command) -> clap::Command {
    command.mut_args(|arg| if arg.get_action().takes_values() { arg.allow_negative_numbers(true) } else { arg })
}

/// What takes any value, for those who ask for help because a value is wrong.
fn lenient(command: clap::Command) -> clap::Command {
    let any = |arg: clap::Arg| {
        let arg = arg.env(Resettable::Reset);
        if arg.get_action().takes_values() { arg.value_parser(ValueParser::os_string()) } else { arg }
    };
    command.mut_args(any).ignore_errors(true)
}

/// The text that `-h`, `-V` or `-i` asks for.
fn text_asked_for(flags: &ArgMatches, version: &str) -> Option<String> {
    let asked = |flag| flags.try_get_one(flag).ok().flatten() == Some(&true);
    text(asked("help"), asked("show_version"), asked("license"), version)
}

fn text(help: bool, show_version: bool, license: bool, version: &str) -> Option<String> {
    match (help, show_version, license) {
        (true, ..) => Some(help::text(version)),
        (_, true, _) => Some(version.to_owned()),
        (.., true) => Some(help::LICENSE.into()),
        _ => None,
    }
}

fn serve_or_say(flags: Box<Flags>, version: &str) -> Call {
    match text(flags.help, flags.show_version, flags.license, version) {
        Some(text) => Call::Say(text),
        None => Call::Run(Command::Serve(flags)),
    }
}

fn refuse(
    error: &clap::Error,
    flags: &clap::Command,
    parse: impl FnOnce(clap::Command) -> Result<(), clap::Error>,
) -> Result<Call, String> {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Ok(Call::Say(error.render().to_string())),
        _ => Err(mistake::explain(error, flags, parse)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(line: &str) -> Flags {
        match parse(line.split(' ').map(OsString::from)) {
            Ok(Call::Run(Command::Serve(flags))) => *flags,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn memcacheds_flags_mean_the_same_both_ways() {
        for program in ["guira serve", "/usr/local/bin/memcached"] {
            let flags =
                flags(&format!("{program} -vvm 100 -p11311 -Ac 50 -l a,b -l c -o modern,idle_timeout=5 --thr 3 -M"));
            assert_eq!((flags.verbose, flags.memory_limit, flags.port), (Some(2), Some(100), Some(11311)));
            assert_eq!((flags.enable_shutdown, flags.disable_evictions), (Some(true), Some(true)));
            assert_eq!((flags.conn_limit, flags.threads), (Some(50), Some(3)));
            assert_eq!(flags.listen, Some(vec!["a,b".to_owned(), "c".to_owned()]));
            assert_eq!(flags.disable_cas, None);
        }
        assert_eq!(flags("memcached --enable-shutdown=false -p -1").enable_shutdown, Some(false));
    }

    #[test]
    fn a_mistake_is_one_line() {
        for (line, told) in [
            ("memcached --nonsense", "--nonsense: no such flag; -h lists the flags"),
            ("guira serve -p x", "-p x: write a port, a number up to 65535 (0: off)"),
            ("memcached -m -5", "-m -5: write a whole number"),
            ("guira serve -m", "-m needs a value: write a whole number"),
            ("guira serve --metrics", "--metrics needs a value: write it behind the flag"),
            ("guira serve -A=perhaps", "-A perhaps: write true or false"),
            ("guira serve --print-config=x", "--print-config: takes no value"),
            ("guira nonsense", "nonsense: no such command; --help lists them"),
            ("guira serve nonsense", "nonsense: no flag stands before it; -h lists the flags"),
            ("guira bench", "what to do is missing; --help lists it"),
            ("guira store", "what to do is missing; --help lists it"),
            ("guira cluster up --port 0", "-p 0: write a whole number from 1 to 65535"),
            ("guira cluster up --backends x", "--backends x: write a whole number"),
            (
                "guira cluster up -l 127.0.0.1:11300",
                "-l 127.0.0.1:11300: write an address without a port, such as 127.0.0.1",
            ),
            ("guira cluster up --request-limit 0", "--request-limit 0: write a whole number from 1 to 4294967295"),
            ("guira sim --threads 0", "--threads 0: write a whole number from 1 on"),
            ("guira cluster up --backends", "--backends needs a value: write a whole number"),
            ("guira cluster", "what to do is missing; --help lists it"),
            ("guira health --timeout-ms x", "--timeout-ms x: write a whole number"),
        ] {
            let error = parse(line.split(' ').map(OsString::from)).expect_err(line);
            assert_eq!(error, told, "{line}");
        }
    }

    #[test]
    fn help_version_and_licence_need_nothing_else() {
        let said = |line: &str| match parse(line.split(' ').map(OsString::from)) {
            Ok(Call::Say(text)) => text,
            other => panic!("{line}: {other:?}"),
        };
        assert!(said("memcached -h").contains("-p, --port=<num>"));
        assert!(said("guira serve --help").contains("--eviction=<name>"));
        assert_eq!(said("memcached -V"), "memcached 1.6.18\n");
        assert!(said("memcached -h").starts_with("memcached 1.6.18\n-p, "));
        assert!(said("guira -V").contains("(speaks memcached 1.6.18)"));
        assert_eq!(said("guira -V"), said("guira serve --version"));
        assert!(said("memcached -i").contains("Apache"));
        for wrong in ["-t x -V", "-V -t x", "-V --nonsense", "-V nonsense", "-A=perhaps -V", "-V -m", "-m -V"] {
            assert_eq!(said(&format!("memcached {wrong}")), said("memcached -V"), "{wrong}");
            assert_eq!(said(&format!("guira serve {wrong}")), said("guira -V"), "{wrong}");
        }
    }
}
