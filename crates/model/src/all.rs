//! The models of both topologies, as one list.
//!
//! Always true: no two models have one name, and no two faults.

use std::fmt::Display;

use crate::{Bounds, Report, switched, symmetric};

/// A cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Topology {
    /// SwitchKV's.
    Switched,
    /// ccKVS's.
    Symmetric,
}

impl Topology {
    /// All of them, with their names.
    pub const ALL: [(&str, Self); 2] = [("switched", Self::Switched), ("symmetric", Self::Symmetric)];
}

/// A fault of either protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mutant {
    /// Of the switched cluster's.
    Switched(guira_switched::Mutant),
    /// Of the symmetric cluster's.
    Symmetric(guira_consistency::Mutant),
}

impl Mutant {
    /// The names of all.
    pub fn names() -> Vec<&'static str> {
        let switched = guira_switched::Mutant::ALL.map(guira_switched::Mutant::name);
        switched.into_iter().chain(guira_consistency::Mutant::ALL.map(guira_consistency::Mutant::name)).collect()
    }

    /// The one of a name.
    pub fn named(name: &str) -> Option<Self> {
        let switched = guira_switched::Mutant::named(name).map(Self::Switched);
        switched.or_else(|| guira_consistency::Mutant::named(name).map(Self::Symmetric))
    }

    /// Whose it is.
    pub fn topology(self) -> Topology {
        match self {
            Self::Switched(_) => Topology::Switched,
            Self::Symmetric(_) => Topology::Symmetric,
        }
    }
}

/// A model that can be gone through; it tells its bounds in one line.
pub trait Checked: Display {
    /// Its name.
    fn name(&self) -> &'static str;
    /// What it is about.
    fn about(&self) -> &'static str;
    /// Goes through it, with so many threads.
    fn check(&self, threads: usize) -> Report;
}

macro_rules! checked {
    ($($topology:ident),*) => {
        $(impl Checked for $topology::Scenario {
            fn name(&self) -> &'static str {
                self.name
            }

            fn about(&self) -> &'static str {
                self.about
            }

            fn check(&self, threads: usize) -> Report {
                $topology::check(self, threads)
            }
        })*
    };
}

checked! { switched, symmetric }

/// The names of all models.
pub fn names() -> Vec<&'static str> {
    switched::MODELS.into_iter().chain(symmetric::MODELS).collect()
}

/// The models of a topology; with a fault, if it is of its protocol.
pub fn models(topology: Topology, bounds: Bounds, mutant: Option<Mutant>) -> Vec<Box<dyn Checked>> {
    fn boxed<S: Checked + 'static>(scenarios: impl Iterator<Item = S>) -> Vec<Box<dyn Checked>> {
        scenarios.map(|scenario| Box::new(scenario) as Box<dyn Checked>).collect()
    }
    match topology {
        Topology::Switched => {
            let mutant = if let Some(Mutant::Switched(mutant)) = mutant { Some(mutant) } else { None };
            boxed(switched::models(bounds).into_iter().map(|scenario| switched::Scenario { mutant, ..scenario }))
        }
        Topology::Symmetric => {
            let mutant = if let Some(Mutant::Symmetric(mutant)) = mutant { Some(mutant) } else { None };
            boxed(symmetric::models(bounds).into_iter().map(|scenario| symmetric::Scenario { mutant, ..scenario }))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_one_models_or_one_faults() {
        for names in [names(), Mutant::names()] {
            assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
        }
        assert!(Mutant::names().into_iter().all(|name| Mutant::named(name).is_some()));
    }
}
