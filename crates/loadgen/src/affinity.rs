//! Cores: which there are, and keeping a thread on one.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::error::LoadError;

/// The cores this process may use, ascending.
pub fn cores() -> Vec<usize> {
    match sched_getaffinity(None) {
        Ok(set) => (0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect(),
        Err(_) => vec![0],
    }
}

/// Keeps the calling thread on `core` until its guard is dropped.
pub fn pin(core: usize) -> Result<Pinned, LoadError> {
    let failed = |source: rustix::io::Errno| LoadError::Network {
        doing: "keeping the generator on its core",
        source: source.into(),
    };
    let before = sched_getaffinity(None).map_err(failed)?;
    let mut only = CpuSet::new();
    if core >= CpuSet::MAX_CPU {
        return Err(LoadError::Setting(format!("there is no core {core}")));
    }
    only.set(core);
    sched_setaffinity(None, &only).map_err(failed)?;
    Ok(Pinned { before })
}

/// Gives the thread its former cores back when dropped. It belongs to the thread that made it.
pub struct Pinned {
    before: CpuSet,
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let _ = sched_setaffinity(None, &self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_thread_has_one_core_and_gets_the_others_back() {
        let before = cores();
        assert!(!before.is_empty());
        let guard = pin(before[0]).expect("the first core is ours");
        assert_eq!(cores(), [before[0]]);
        drop(guard);
        assert_eq!(cores(), before);
    }

    #[test]
    fn a_core_that_is_not_there_is_refused() {
        assert!(pin(100_000).is_err());
    }
}
