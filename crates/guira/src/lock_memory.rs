//! `-k`: keeps memory out of the swap.
//!
//! Always true: with a lock on what will come in force, no limit on locked memory can refuse it. Under a limit only what is there
//! once `-m` is reserved is locked, or nothing, and a line says so.

use rustix::mm::{MlockAllFlags, mlockall};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::system::sysinfo;

/// Memory that a process has beside `-m` at least: the program, its threads, buffers.
const BESIDE_LEN: u64 = 16 << 20;

/// What is locked.
pub(crate) enum Locking {
    /// What is there and what will come.
    All,
    /// What is there when `finish` is called.
    Present,
    /// Nothing, for this reason.
    Nothing(std::io::Error),
}

impl Locking {
    /// Before `-m` is reserved.
    ///
    /// # Errors
    /// The machine has not so much memory: the kernel would end a process of its choice.
    pub(crate) fn begin(memory_limit: usize) -> Result<Self, String> {
        let wanted = memory_limit as u64 + BESIDE_LEN;
        let system = sysinfo();
        let total = system.totalram * u64::from(system.mem_unit.max(1));
        if wanted > total {
            let (limit, total) = (memory_limit >> 20, total >> 20);
            return Err(format!("-k: -m {limit} MB leaves nothing of this machine's memory ({total} MB): lower -m"));
        }
        // Root may have any limit, and takes it along to the user it becomes; others may go up to theirs.
        if setrlimit(Resource::Memlock, Rlimit { current: None, maximum: None }).is_err() {
            let maximum = getrlimit(Resource::Memlock).maximum;
            let _ = setrlimit(Resource::Memlock, Rlimit { current: maximum, maximum });
        }
        Ok(match getrlimit(Resource::Memlock).current {
            Some(_) => Self::Present,
            None => match mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE) {
                Ok(()) => Self::All,
                Err(error) => Self::Nothing(error.into()),
            },
        })
    }

    /// Once `-m` is reserved; returns a line for the operator if nothing is locked, with which memcached goes on too.
    pub(crate) fn finish(self) -> Option<String> {
        let why = match self {
            Self::All => return None,
            Self::Present => mlockall(MlockAllFlags::CURRENT).err()?.into(),
            Self::Nothing(why) => why,
        };
        Some(format!("-k: memory is not locked ({why}): raise `ulimit -l` or start as root"))
    }
}
