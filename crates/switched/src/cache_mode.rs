//! How a gateway uses cache nodes for what is only read.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// Who is asked first (SwitchKV, section 2.2). Changes are always asked of the backend, and whatever is cached is told of them: the modes differ in
/// what they cost, not in what is answered.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CacheMode {
    /// The cache node, if a rule names the key's hash, or else the backend.
    #[default]
    Switched,
    /// The cache node of the key's backend, which says that it has nothing, and then the backend.
    LookAside,
    /// The cache node of the key's backend, which asks that for what it has not.
    LookThrough,
    /// The backend.
    None,
}

impl CacheMode {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Switched, Self::LookAside, Self::LookThrough, Self::None];

    /// Its name, as flags and files have it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Switched => "switched",
            Self::LookAside => "look-aside",
            Self::LookThrough => "look-through",
            Self::None => "none",
        }
    }
}

impl fmt::Display for CacheMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for CacheMode {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|mode| mode.name() == name);
        known.ok_or_else(|| format!("write {}", Self::ALL.map(Self::name).join(", ")))
    }
}
