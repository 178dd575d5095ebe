//! How far models go.

/// How far a model goes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Bounds {
    /// Seconds: each fault is found.
    Small,
    /// Some minutes of two cores, all models together.
    Ci,
    /// As far as memory goes.
    Long,
}

impl Bounds {
    /// All of them, with their names.
    pub const ALL: [(&str, Self); 3] = [("small", Self::Small), ("ci", Self::Ci), ("long", Self::Long)];

    pub(crate) fn of<T>(self, small: T, ci: T, long: T) -> T {
        match self {
            Self::Small => small,
            Self::Ci => ci,
            Self::Long => long,
        }
    }
}
