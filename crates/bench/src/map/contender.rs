//! Who is compared, and how each is made. A new map of ours is a file that implements `ConcurrentMap` and a line here; what
//! one experiment alone compares is in a table of its own, beside the experiment.

use super::{
    BenchError, associativity,
    bench::MapBench,
    concurrent_map::ConcurrentMap,
    cxx::CxxProgram,
    factors, global_lock, hashers,
    peers::{
        dashmap::DashMap,
        guira_map::{GuiraElided, GuiraMap, GuiraOnSmallPages},
        locked::{MutexLocked, ReadWriteLocked},
        no_map::NoMap,
        papaya::PapayaMap,
        scc::SccMap,
    },
    process::Process,
    stripes,
    subject::{Opening, Subject, here},
};

/// Bytes of the values that maps are measured with: powers of two, few enough to keep the binary small.
const VALUE_BYTES: [usize; 5] = [8, 16, 64, 256, 1024];

/// A map of this process, if there are values of so many bytes.
type Make = fn(&Opening<'_>) -> Option<Box<dyn Subject>>;

/// A map of this process with values of eight bytes.
type MakeOwn = fn(Option<usize>) -> Box<dyn Subject>;

/// How many threads may use a map at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Users {
    Many,
    One,
}

/// Where a map's code is.
#[derive(Clone, Copy)]
enum Home {
    Rust(Make),
    /// Values of eight bytes alone.
    Own(MakeOwn),
    Cxx,
}

/// A contender.
#[derive(Clone, Copy)]
pub(super) struct Contender {
    pub name: &'static str,
    /// What it is.
    pub is: &'static str,
    pub users: Users,
    /// Sizes of values that it is there for.
    pub value_bytes: &'static [usize],
    /// Whether its batches are more than loops.
    pub has_batches: bool,
    home: Home,
}

/// A contender of this process: name, what it is, its type of map, words of the values that it is compiled for.
macro_rules! rust {
    ($name:literal, $is:literal, $map:ident) => { rust!($name, $is, $map, [1, 2, 8, 32, 128]) };
    ($name:literal, $is:literal, $map:ident, [$($words:literal),*]) => {
        Contender {
            name: $name,
            is: $is,
            users: Users::Many,
            value_bytes: &[$($words * size_of::<u64>()),*],
            has_batches: <$map<[u64; 1]> as ConcurrentMap<[u64; 1]>>::HAS_BATCHES,
            home: Home::Rust(|opening| match opening.value_bytes / size_of::<u64>() {
                $($words => Some(here::<[u64; $words], $map<[u64; $words]>>(opening.room)),)*
                _ => None,
            }),
        }
    };
}

pub(super) const fn cxx(name: &'static str, is: &'static str, users: Users) -> Contender {
    Contender { name, is, users, value_bytes: &VALUE_BYTES, has_batches: false, home: Home::Cxx }
}

/// All of them.
pub(super) const CONTENDERS: [Contender; 12] = [
    rust!("guira", "guira-cuckoo's CuckooMap on huge pages", GuiraMap),
    rust!("guira-small-pages", "the same on pages of 4 KiB", GuiraOnSmallPages, [1]),
    rust!("guira-elided", "guira with writes as the processor's transactions, locks behind them", GuiraElided, [1]),
    rust!("dashmap", "crate dashmap 6.2", DashMap),
    rust!("scc", "crate scc 3.8, HashMap", SccMap),
    rust!("papaya", "crate papaya 0.2, a guard for 64 operations", PapayaMap),
    rust!("rwlock", "crate hashbrown 0.17 behind std's RwLock", ReadWriteLocked),
    rust!("mutex", "crate hashbrown 0.17 behind std's Mutex", MutexLocked, [1]),
    cxx("tbb", "oneTBB's concurrent_hash_map", Users::Many),
    cxx("hopscotch", "tsl::hopscotch_map behind std::shared_mutex", Users::Many),
    cxx("hopscotch-alone", "tsl::hopscotch_map without a lock, for one thread", Users::One),
    rust!("no-map", "no map: how fast keys are made", NoMap, [1]),
];

/// The name of [`GuiraMap`].
pub(super) const GUIRA: &str = "guira";

/// The name of [`GuiraElided`].
pub(super) const ELIDED: &str = "guira-elided";

/// How the names of maps end that need the processor's transactions.
pub(super) const ELIDED_SUFFIX: &str = "-elided";

/// The name of [`NoMap`].
pub(super) const NO_MAP: &str = "no-map";

/// What an experiment compares that does not compare all of [`CONTENDERS`]. One that has a name from there is the same map.
pub(super) const OF_EXPERIMENTS: [(&str, &[Contender]); 5] = [
    (hashers::NAME, &hashers::CONTENDERS),
    (global_lock::NAME, &global_lock::CONTENDERS),
    (factors::NAME, &factors::CONTENDERS),
    (associativity::NAME, &associativity::CONTENDERS),
    (stripes::NAME, &stripes::CONTENDERS),
];

impl Contender {
    /// One of an experiment's own, for values of eight bytes.
    pub const fn own(name: &'static str, is: &'static str, make: MakeOwn) -> Self {
        Self {
            name,
            is,
            users: Users::Many,
            value_bytes: &[size_of::<u64>()],
            has_batches: false,
            home: Home::Own(make),
        }
    }

    /// The same, of a map whose batches are more than loops.
    pub const fn with_batches(self) -> Self {
        Self { has_batches: true, ..self }
    }

    /// The one called `name`.
    pub fn called(name: &str) -> Option<Self> {
        let own = OF_EXPERIMENTS.into_iter().flat_map(|(_, contenders)| contenders.iter().copied());
        CONTENDERS.into_iter().chain(own).find(|known| known.name == name)
    }

    /// What the flag that chooses among [`CONTENDERS`] says of itself.
    pub fn help() -> String {
        let names: Vec<&str> = CONTENDERS.iter().map(|contender| contender.name).collect();
        format!("Maps to compare where all are: {} [default: all]", names.join(", "))
    }

    /// Whether it needs the C++ program.
    pub fn is_cxx(&self) -> bool {
        matches!(self.home, Home::Cxx)
    }

    /// Its map in this process.
    ///
    /// # Errors
    /// [`BenchError::Setting`]: it has none here, or none of such values.
    pub fn here(&self, opening: &Opening<'_>) -> Result<Box<dyn Subject>, BenchError> {
        let made = match self.home {
            _ if !self.value_bytes.contains(&opening.value_bytes) => None,
            Home::Rust(make) => make(opening),
            Home::Own(make) => Some(make(opening.room)),
            Home::Cxx => None,
        };
        made.ok_or_else(|| BenchError::Setting(format!("'{opening}' names no map of this process")))
    }

    /// Its map, empty.
    ///
    /// # Errors
    /// [`BenchError`]: its process does not start or answer.
    pub fn open(
        &self,
        bench: &MapBench,
        room: Option<usize>,
        value_bytes: usize,
    ) -> Result<Box<dyn Subject>, BenchError> {
        let opening = Opening { contender: self.name, value_bytes, room };
        let command = match (self.home, &bench.program) {
            (Home::Rust(_) | Home::Own(_), None) => return self.here(&opening),
            (Home::Rust(_) | Home::Own(_), Some(program)) => {
                let mut command = std::process::Command::new(program);
                command.args(["bench", "map-contender"]);
                command
            }
            (Home::Cxx, _) => bench.cxx.as_ref().map(CxxProgram::command).ok_or_else(|| {
                BenchError::Setting(format!("{} needs g++, libtbb-dev and libtsl-hopscotch-map-dev", self.name))
            })?,
        };
        Ok(Box::new(Process::start(command, &opening, bench.huge_pages)?))
    }
}
