//! The options that hold: command line and environment over the file over the defaults.

use std::path::Path;

use toml::{Table, Value};

use crate::mistake::{self, Origins};
use crate::options::{Flags, Options};

/// Reads the file, if there is one, and puts the layers on top of each other.
pub(crate) fn resolve(flags: &mut Flags) -> Result<Options, String> {
    if let Some(path) = &flags.config {
        flags.origins.add_value(&path.display().to_string());
    }
    let text = match &flags.config {
        Some(path) => std::fs::read_to_string(path).map_err(|error| {
            format!("--config {}: cannot be read ({error}): give the path of a TOML file", path.display())
        })?,
        None => String::new(),
    };
    layered(flags, &text)
}

/// `flags` over `text`, a file's, over the defaults.
pub(crate) fn layered(flags: &mut Flags, text: &str) -> Result<Options, String> {
    let mut table = text.parse::<Table>().map_err(|error| about(flags.config.as_deref(), Some(text), &error))?;
    // clap counts from 0: not given at all.
    flags.verbose = flags.verbose.filter(|count| *count > 0);
    let said = Value::try_from(&*flags)
        .map_err(|error| flags.origins.unreadable().map_or_else(|| error.to_string(), mistake::not_text))?;
    if let Value::Table(said) = said {
        if let Some(path) = &flags.config {
            flags.origins.add_file(path, table.keys().filter(|key| !said.contains_key(*key)));
        }
        table.extend(said);
    }
    table.values().for_each(|value| add_values(&mut flags.origins, value));
    Value::Table(table).try_into().map_err(|error| about(flags.config.as_deref(), None, &error))
}

/// Tells `origins` of the texts in a value.
fn add_values(origins: &mut Origins, value: &Value) {
    match value {
        Value::String(text) => origins.add_value(text),
        Value::Array(values) => values.iter().for_each(|value| add_values(origins, value)),
        _ => {}
    }
}

/// The options as a file that would give them again.
pub(crate) fn print(options: &Options) -> Result<String, String> {
    let text = toml::to_string(options).map_err(|error| one_line(&error.to_string()))?;
    let left_open: String = options.left_open().iter().map(|name| format!("# {name}: left open\n")).collect();
    Ok(text + &left_open)
}

/// What is wrong with a file, and where to see how it should look.
fn about(path: Option<&Path>, text: Option<&str>, error: &toml::de::Error) -> String {
    let Some(path) = path else { return one_line(&error.to_string()) };
    let start = text.and_then(|text| text.get(..error.span()?.start));
    let line = start.map_or_else(String::new, |start| format!(", line {}", start.matches('\n').count() + 1));
    // Without the text it is an option's value that is wrong, and the option is told behind the message.
    let message = one_line(&if text.is_some() { error.message().to_owned() } else { error.to_string() });
    // An unknown name is told with all that there are.
    let message = message.split(", expected one of").next().unwrap_or_default();
    format!("{}{line}: {message}; `guira serve --print-config` prints a file that is right", path.display())
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
        let options = resolve(&mut flags).expect("sound");
        assert_eq!((options.port, options.memory_limit, options.threads), (2, 100, 4));
        assert_eq!((options.enable_shutdown, options.verbose), (true, 2));
        flags.enable_shutdown = Some(false);
        assert!(!resolve(&mut flags).expect("sound").enable_shutdown);
        std::fs::write(&path, "prot = 1\n").expect("written");
        let error = resolve(&mut flags).expect_err("a misspelt name");
        assert!(error.contains("`prot`; `guira serve --print-config`") && error.lines().count() == 1, "{error}");
        std::fs::write(&path, "verbose = 1\nport = = 1\n").expect("written");
        assert!(resolve(&mut flags).expect_err("no TOML").contains("guira.toml, line 2: "));
    }

    #[test]
    fn what_is_printed_can_be_read_again() {
        let options = Options { port: 5, metrics: Some("a:1".into()), ..Options::default() };
        let text = print(&options).expect("printable");
        assert_eq!(toml::from_str::<Options>(&text).expect("readable"), options);
        assert!(text.contains("\n# server-threads: left open\n") && !text.contains("# metrics"), "{text}");
    }
}
