//! Which of several switches have the rules of keys (SwitchKV, section 3.4), as it is written in files and on command lines.

use std::{fmt, str::FromStr};

/// Which of several switches have the rules of keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RulesOfKeys {
    /// All have all: the first that a get comes to decides, and it goes the shortest way, whatever is cached.
    #[default]
    Replicated,
    /// Each has those of backends at its own ports, to which gets of theirs come behind others: so there may be more than one has room for.
    Parted,
}

impl RulesOfKeys {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Replicated, Self::Parted];

    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Self::Replicated => "replicated",
            Self::Parted => "parted",
        }
    }
}

impl fmt::Display for RulesOfKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What says neither.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoRulesOfKeys;

impl fmt::Display for NoRulesOfKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [all, each] = RulesOfKeys::ALL;
        write!(f, "rules of keys are {all} (all switches have all) or {each} (each has those of its own backends)")
    }
}

impl std::error::Error for NoRulesOfKeys {}

impl FromStr for RulesOfKeys {
    type Err = NoRulesOfKeys;

    fn from_str(text: &str) -> Result<Self, NoRulesOfKeys> {
        Self::ALL.into_iter().find(|rules| rules.name() == text).ok_or(NoRulesOfKeys)
    }
}
