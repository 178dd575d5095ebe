//! The command line: which command, and the one line that says what was wrong with it.

use std::ffi::OsString;
use std::path::Path;

use clap::error::ErrorKind;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::options::Flags;
use crate::{bench, health, help};

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

/// Reads a command line.
pub(crate) fn parse(arguments: impl Iterator<Item = OsString>) -> Result<Call, String> {
    let arguments: Vec<OsString> = arguments.collect();
    let name = arguments.first().and_then(|name| Path::new(name).file_stem()).unwrap_or_default();
    let command = if name == "memcached" {
        let command = Direct::augment_args(clap::Command::new("memcached"))
            .args_override_self(true)
            .disable_help_flag(true)
            .disable_version_flag(true)
            .infer_long_args(true);
        let matches = command.try_get_matches_from(arguments);
        matches
            .and_then(|matches| Direct::from_arg_matches(&matches))
            .map(|direct| Command::Serve(Box::new(direct.flags)))
    } else if arguments.len() == 1 {
        return Ok(Call::Say(Cli::command().render_help().to_string()));
    } else if arguments.len() == 2 && (arguments[1] == "-V" || arguments[1] == "--version") {
        return Ok(Call::Say(version()));
    } else {
        Cli::try_parse_from(arguments).map(|cli| cli.command)
    };
    match command {
        Ok(Command::Serve(flags)) if flags.help => Ok(Call::Say(help::text())),
        Ok(Command::Serve(flags)) if flags.show_version => Ok(Call::Say(version())),
        Ok(Command::Serve(flags)) if flags.license => Ok(Call::Say(help::LICENSE.into())),
        Ok(command) => Ok(Call::Run(command)),
        Err(error) => match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Ok(Call::Say(error.render().to_string())),
            _ => Err(one_line(&error)),
        },
    }
}

/// clap's explanation without its tips and usage.
fn one_line(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let mut line = lines.next().unwrap_or("bad command line").trim_start_matches("error: ").to_owned();
    if line.ends_with(':')
        && let Some(next) = lines.next()
    {
        line = format!("{line} {next}");
    }
    format!("{line}; -h lists the flags")
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
        for line in ["memcached --nonsense", "guira serve -p x", "guira nonsense", "guira serve -m"] {
            let error = parse(line.split(' ').map(OsString::from)).expect_err(line);
            assert_eq!(error.lines().count(), 1, "{error}");
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
        assert!(said("memcached -V").contains("(speaks memcached 1.6.18)"));
        assert_eq!(said("guira -V"), said("guira serve --version"));
        assert!(said("memcached -i").contains("Apache"));
    }
}
