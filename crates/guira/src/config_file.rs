//! The options that hold: command line and environment over the file over the defaults.

use toml::{Table, Value};

use crate::options::{Flags, Options};

/// Reads the file, if there is one, and puts the layers on top of each other.
pub(crate) fn resolve(flags: &Flags) -> Result<Options, String> {
    let Some(path) = &flags.config else { return layered(flags, "") };
    let text = std::fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    layered(flags, &text).map_err(|line| format!("{}: {line}", path.display()))
}

/// `flags` over `text`, a file's, over the defaults.
pub(crate) fn layered(flags: &Flags, text: &str) -> Result<Options, String> {
    let mut table = text.parse::<Table>().map_err(|error| one_line(&error.to_string()))?;
    let mut flags = flags.clone();
    // clap counts from 0: not given at all.
    flags.verbose = flags.verbose.filter(|count| *count > 0);
    let said = Value::try_from(&flags).map_err(|error| one_line(&error.to_string()))?;
    if let Value::Table(said) = said {
        table.extend(said);
    }
    Value::Table(table).try_into().map_err(|error| one_line(&error.to_string()))
}

/// The options as a file that would give them again.
pub(crate) fn print(options: &Options) -> Result<String, String> {
    toml::to_string(options).map_err(|error| one_line(&error.to_string()))
}

fn one_line(text: &str) -> String {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_beats_the_file_beats_the_default() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("guira.toml");
        std::fs::write(&path, "port = 1\nmemory-limit = 100\nenable-shutdown = true\nverbose = 2\n").expect("written");
        let mut flags = Flags { config: Some(path.clone()), port: Some(2), verbose: Some(0), ..Flags::default() };
        let options = resolve(&flags).expect("sound");
        assert_eq!((options.port, options.memory_limit, options.threads), (2, 100, 4));
        assert_eq!((options.enable_shutdown, options.verbose), (true, 2));
        flags.enable_shutdown = Some(false);
        assert!(!resolve(&flags).expect("sound").enable_shutdown);
        std::fs::write(&path, "prot = 1\n").expect("written");
        let error = resolve(&flags).expect_err("a misspelt name");
        assert!(error.contains("prot") && error.lines().count() == 1, "{error}");
    }

    #[test]
    fn what_is_printed_can_be_read_again() {
        let options = Options { port: 5, metrics: Some("a:1".into()), ..Options::default() };
        let text = print(&options).expect("printable");
        assert_eq!(toml::from_str::<Options>(&text).expect("readable"), options);
    }
}
