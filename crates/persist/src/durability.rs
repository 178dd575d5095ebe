//! When a write counts as done.

use std::{fmt, str::FromStr, time::Duration};

/// What an acknowledged write has behind it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Durability {
    /// It is on disk.
    #[default]
    Always,
    /// The system has it, and will have been told to put it on disk after so long.
    Interval(Duration),
    /// The system has it.
    Os,
}

/// The longest interval: a minute, beyond which the system itself writes what it has.
const INTERVAL_MS_MAX: u64 = 60_000;

impl FromStr for Durability {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("--durability {text}: write always, interval:MS (1 to {INTERVAL_MS_MAX}) or os");
        match (text, text.strip_prefix("interval:")) {
            ("always", _) => Ok(Self::Always),
            ("os", _) => Ok(Self::Os),
            (_, Some(ms)) => match ms.parse() {
                Ok(ms @ 1..=INTERVAL_MS_MAX) => Ok(Self::Interval(Duration::from_millis(ms))),
                _ => Err(wrong()),
            },
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Always => f.write_str("always"),
            Self::Interval(every) => write!(f, "interval:{}", every.as_millis()),
            Self::Os => f.write_str("os"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durabilities_are_read_as_they_are_written() {
        for text in ["always", "interval:1", "interval:60000", "os"] {
            assert_eq!(text.parse::<Durability>().expect(text).to_string(), text);
        }
        for text in ["", "never", "interval", "interval:", "interval:0", "interval:60001", "interval:1s", "OS"] {
            assert!(text.parse::<Durability>().expect_err(text).contains("write always, interval:MS"));
        }
    }
}
