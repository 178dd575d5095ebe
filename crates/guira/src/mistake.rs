//! A user's mistake in one line that says what to do, about the option under the name that the user wrote: a flag, a variable
//! of the environment, or a key of the file.

use std::any::TypeId;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZero;
use std::path::Path;

use clap::builder::{Resettable, ValueParser};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command};

/// Names of options whose value does not come from the command line.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Origins {
    options: Vec<Origin>,
    /// Values that could be taken for flags: they are told as they are.
    values: Vec<String>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Origin {
    /// `memory-limit`: the key in the file.
    key: String,
    /// `-m`, `--memory-limit`: what lines call it.
    flags: Vec<String>,
    /// The variable, or the file and the key.
    name: Option<String>,
    /// Its value is text.
    is_text: bool,
}

impl Origins {
    /// The options of `command`, of which those in `matches` may come from the environment.
    pub(crate) fn of(command: &Command, matches: &ArgMatches) -> Self {
        let options = command.get_arguments().map(|arg| {
            let id = arg.get_id().as_str();
            let is_variable = matches.value_source(id) == Some(ValueSource::EnvVariable);
            let variable = arg.get_env().filter(|_| is_variable).map(|name| name.to_string_lossy().into_owned());
            let is_text = matches.get_raw(id).into_iter().flatten().all(|value| value.to_str().is_some());
            Origin { key: id.replace('_', "-"), flags: flags(arg), name: variable, is_text }
        });
        Self { options: options.collect(), values: Vec::new() }
    }

    /// These keys hold as the file at `path` has them.
    pub(crate) fn add_file<'k>(&mut self, path: &Path, keys: impl Iterator<Item = &'k String>) {
        for key in keys {
            if let Some(origin) = self.options.iter_mut().find(|origin| origin.key == *key) {
                origin.name = Some(format!("{}: {key}", path.display()));
            }
        }
    }

    /// A line may quote `value` of an option, all of it, or a part of a list.
    pub(crate) fn add_value(&mut self, value: &str) {
        let parts = value.split(',').map(str::trim).filter(|part| *part != value);
        for value in std::iter::once(value).chain(parts).filter(|value| value.contains(" -")) {
            // Some lines quote it as Rust writes it.
            self.values.extend([value.to_owned(), value.escape_debug().to_string()]);
        }
        // The longest first: it may contain others.
        self.values.sort_by_key(|value| std::cmp::Reverse(value.len()));
    }

    /// What an option is called whose value is not text.
    pub(crate) fn unreadable(&self) -> Option<&str> {
        let origin = self.options.iter().find(|origin| !origin.is_text)?;
        origin.name.as_ref().or(origin.flags.first()).map(String::as_str)
    }

    /// `line` with the flags in it called what the user knows them as, but for those that are part of a value.
    pub(crate) fn rename(&self, line: &str) -> String {
        let quoted = self.values.iter().find_map(|value| line.split_once(value.as_str()).map(|parts| (value, parts)));
        match quoted {
            Some((value, (before, after))) => self.rename(before) + value + &self.rename(after),
            None => self.rename_words(line),
        }
    }

    fn rename_words(&self, line: &str) -> String {
        let name = |word: &str| {
            let origin = self.options.iter().find(|origin| origin.flags.iter().any(|flag| flag == word));
            origin.and_then(|origin| origin.name.clone())
        };
        let words = line.split(' ').map(|word| {
            let bare = word.trim_end_matches([':', ',', ';', ')']);
            name(bare).map_or_else(|| word.to_owned(), |name| name + &word[bare.len()..])
        });
        words.collect::<Vec<_>>().join(" ")
    }
}

fn is_unreadable(variable: impl AsRef<std::ffi::OsStr>) -> bool {
    std::env::var_os(variable).is_some_and(|value| value.to_str().is_none())
}

/// About a flag or a variable whose value is not text.
pub(crate) fn not_text(name: &str) -> String {
    format!("{name}: its value is not UTF-8; write it in UTF-8")
}

/// `line` with what would break it, or steer a terminal, spelt out.
pub(crate) fn one_line(line: &str) -> String {
    let mut told = String::with_capacity(line.len());
    for character in line.chars() {
        if character.is_control() { told.extend(character.escape_default()) } else { told.push(character) }
    }
    told
}

fn flags(arg: &Arg) -> Vec<String> {
    let short = arg.get_short().map(|short| format!("-{short}"));
    let long = arg.get_long().map(|long| format!("--{long}"));
    short.into_iter().chain(long).collect()
}

/// What clap found wrong with `arguments`, which name the flags of `command`; `parse` tries them on a changed command.
pub(crate) fn explain(
    error: &clap::Error,
    command: &Command,
    parse: impl FnOnce(Command) -> Result<(), clap::Error>,
) -> String {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let (said, value) = (text(ContextKind::InvalidArg), text(ContextKind::InvalidValue));
    // `--port <PORT>`, `--daemon[=<DAEMON>]`, `--verbose...`
    let flag = said.and_then(|said| said.split([' ', '[', '.']).next()).unwrap_or_default();
    let arg = command.get_arguments().find(|arg| flags(arg).iter().any(|own| own == flag));
    let mut variables = command.get_arguments().filter_map(|arg| arg.get_env()?.to_str());
    let unreadable = variables.find(|variable| is_unreadable(variable));
    match (error.kind(), arg, said) {
        (ErrorKind::ValueValidation | ErrorKind::InvalidValue, Some(arg), _)
            if error.get(ContextKind::ValidValue).is_none() || value.is_none_or(str::is_empty) =>
        {
            let name = name(arg, error, command, parse);
            let wanted = told(error).unwrap_or_else(|| wanted(arg.get_value_parser()).to_owned());
            match value.filter(|value| !value.is_empty()) {
                Some(value) => format!("{name} {value}: write {wanted}"),
                None => format!("{name} needs a value: write {wanted}"),
            }
        }
        (ErrorKind::InvalidUtf8, ..) if unreadable.is_some() => not_text(unreadable.unwrap_or_default()),
        (ErrorKind::TooManyValues, Some(arg), _) => format!("{}: takes no value", flags(arg).join(", ")),
        (ErrorKind::UnknownArgument, _, Some(said)) if said.starts_with('-') => {
            format!("{said}: no such flag; -h lists the flags")
        }
        (ErrorKind::UnknownArgument, _, Some(said)) => format!("{said}: no flag stands before it; -h lists the flags"),
        (ErrorKind::InvalidSubcommand, ..) => {
            let said = text(ContextKind::InvalidSubcommand).unwrap_or_default();
            format!("{said}: no such command; --help lists them")
        }
        (ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand, ..) => "what to do is missing; --help lists it".into(),
        _ => format!("{}; -h lists the flags", first_line(error)),
    }
}

/// The variable if the value is wrong only as long as there is one; the flag otherwise.
fn name(
    arg: &Arg,
    error: &clap::Error,
    command: &Command,
    parse: impl FnOnce(Command) -> Result<(), clap::Error>,
) -> String {
    let without = command.clone().mut_arg(arg.get_id(), |arg| arg.env(Resettable::Reset));
    let is_same = |other: clap::Error| other.render().to_string() == error.render().to_string();
    match arg.get_env() {
        Some(variable) if std::env::var_os(variable).is_some() && !parse(without).is_err_and(is_same) => {
            variable.to_string_lossy().into_owned()
        }
        _ => flags(arg).swap_remove(0),
    }
}

/// What a value would have had to be, as its parser says: `write one of these`, or clap, of a number: `0 is not in 1..=65535`.
fn told(error: &clap::Error) -> Option<String> {
    let told = std::error::Error::source(error)?.to_string();
    if let Some(wanted) = told.strip_prefix("write ") {
        return Some(wanted.to_owned());
    }
    let (least, most) = told.split_once(" is not in ")?.1.split_once("..=")?;
    Some(format!("a whole number from {least} to {most}"))
}

/// What a value has to look like.
fn wanted(parser: &ValueParser) -> &'static str {
    let kinds = [
        (TypeId::of::<bool>(), "true or false"),
        (TypeId::of::<char>(), "one character, such as :"),
        (TypeId::of::<f64>(), "a number, such as 1.25"),
        (TypeId::of::<i32>(), "a port, a number up to 65535 (0: off)"),
        (TypeId::of::<u8>(), "a number, such as 1"),
        (TypeId::of::<u16>(), "a whole number"),
        (TypeId::of::<u32>(), "a whole number up to 4294967295"),
        (TypeId::of::<u64>(), "a whole number"),
        (TypeId::of::<usize>(), "a whole number"),
        (TypeId::of::<NonZero<u32>>(), "a whole number from 1 to 4294967295"),
        (TypeId::of::<NonZero<usize>>(), "a whole number from 1 on"),
        (TypeId::of::<IpAddr>(), "an address without a port, such as 127.0.0.1"),
        (TypeId::of::<SocketAddr>(), "an address and a port, such as 127.0.0.1:8080"),
    ];
    kinds.iter().find(|(kind, _)| parser.type_id() == *kind).map_or("it behind the flag", |(_, wanted)| wanted)
}

/// clap's explanation without its tips and usage.
fn first_line(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let line = lines.next().unwrap_or("bad command line").trim_start_matches("error: ").to_owned();
    match lines.next() {
        Some(next) if line.ends_with(':') => {
            let more = lines.take_while(|line| line.starts_with(['-', '<']));
            let named: Vec<&str> = std::iter::once(next).chain(more).collect();
            format!("{line} {}", named.join(", "))
        }
        _ => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_renamed_but_not_the_words_of_a_value() {
        let port =
            Origin { key: "port".into(), flags: vec!["-p".into()], name: Some("GUIRA_PORT".into()), is_text: true };
        let mut origins = Origins { options: vec![port], values: Vec::new() };
        assert_eq!(origins.rename("-p 70000: lower -p"), "GUIRA_PORT 70000: lower GUIRA_PORT");
        origins.add_value("/a -p b");
        assert_eq!(origins.rename("-Y /a -p b: no file; -p"), "-Y /a -p b: no file; GUIRA_PORT");
        assert_eq!(origins.rename("the host \"/a -p b\"; -p"), "the host \"/a -p b\"; GUIRA_PORT");
        origins.add_value("modern,x -p y");
        assert_eq!(origins.rename("-o x -p y: no such option"), "-o x -p y: no such option");
    }

    #[test]
    fn what_would_break_a_line_is_spelt_out() {
        assert_eq!(one_line("-Y a\nb\u{1b}[0m: \u{e9}"), "-Y a\\nb\\u{1b}[0m: \u{e9}");
    }
}
