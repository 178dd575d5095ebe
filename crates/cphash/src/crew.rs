//! The server threads: each serves the stations that are assigned to it, and sleeps when there is nothing to serve (CPHASH,
//! section 3.2; the assignment changes with the load, which the paper leaves open in section 8.1).
//!
//! Always true: a station is served by whoever has its lock, so that a new assignment needs no agreement: the old thread and the
//! new one may both try for a while. A thread that sleeps has looked at all its bells after it said so.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering, fence},
    },
    thread::{self, JoinHandle, Thread},
    time::{Duration, Instant},
};

use crossbeam_utils::CachePadded;
use rustix::thread::{CpuSet, sched_setaffinity};

/// Rounds without work between two looks at the clock.
const ROUNDS_PER_LOOK: u32 = 64;

/// How long a thread looks for work before it sleeps: some times what the system takes to wake it.
const PATIENCE: Duration = Duration::from_micros(100);

/// A server thread, seen from the others.
#[derive(Default)]
struct Member {
    is_asleep: AtomicBool,
    thread: OnceLock<Thread>,
}

/// All server threads, and which of them serve.
pub(crate) struct Crew {
    members: Box<[CachePadded<Member>]>,
    stations: usize,
    /// The first so many members have stations.
    active: AtomicUsize,
    stop: AtomicBool,
}

impl std::fmt::Debug for Crew {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Crew")
            .field("members", &self.members.len())
            .field("active", &self.active)
            .finish_non_exhaustive()
    }
}

impl Crew {
    /// A crew of so many for so many stations; nobody works yet.
    pub fn new(members: usize, stations: usize) -> Self {
        Self {
            members: (0..members).map(|_| CachePadded::default()).collect(),
            stations,
            active: AtomicUsize::new(members),
            stop: AtomicBool::new(false),
        }
    }

    /// Which member a station is assigned to; `None` in a crew of nobody.
    #[inline]
    pub fn owner(&self, station: usize) -> Option<usize> {
        let active = self.active.load(Ordering::Relaxed);
        (active > 0).then(|| station * active / self.stations)
    }

    /// Whether nobody looks after a station now.
    #[inline]
    pub fn is_asleep(&self, station: usize) -> bool {
        // The caller has rung the bell before: either the member sees that, or this sees that it sleeps.
        self.owner(station).is_none_or(|member| self.members[member].is_asleep.load(Ordering::Relaxed))
    }

    /// Wakes the member to which a station is assigned.
    pub fn wake(&self, station: usize) {
        if let Some(member) = self.owner(station).map(|owner| &self.members[owner])
            && let Some(thread) = member.thread.get()
        {
            member.is_asleep.store(false, Ordering::Relaxed);
            thread.unpark();
        }
    }

    /// Starts a thread for each member, on `cores` in turn if there are any; `serve` serves a station, and says whether there was
    /// something to serve.
    pub fn start<F>(self: &Arc<Self>, cores: &[usize], serve: F) -> std::io::Result<Vec<JoinHandle<()>>>
    where
        F: Fn(usize) -> bool + Clone + Send + 'static,
    {
        let start = |number: usize| {
            let (crew, serve) = (Arc::clone(self), serve.clone());
            let core = cores.get(number % cores.len().max(1)).copied();
            thread::Builder::new().name(format!("cphash {number}")).spawn(move || {
                keep_to(core);
                crew.work(number, serve);
            })
        };
        let mut threads = Vec::with_capacity(self.members.len());
        for number in 0..self.members.len() {
            match start(number) {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    // Those that have started would keep what they serve alive.
                    self.stop();
                    return Err(error);
                }
            }
        }
        Ok(threads)
    }

    fn work(&self, number: usize, serve: impl Fn(usize) -> bool) {
        let member = &self.members[number];
        member.thread.set(thread::current()).expect("a member has one thread");
        let mine = || (0..self.stations).filter(|station| self.owner(*station) == Some(number));
        let mut idle_rounds = 0u32;
        let mut idle_since = Instant::now();
        while !self.stop.load(Ordering::Relaxed) {
            let mut found = false;
            for station in mine() {
                found |= serve(station);
            }
            if found {
                idle_rounds = 0;
                continue;
            }
            if idle_rounds == 0 {
                idle_since = Instant::now();
            }
            idle_rounds += 1;
            std::hint::spin_loop();
            if idle_rounds.is_multiple_of(ROUNDS_PER_LOOK) {
                if idle_since.elapsed() < PATIENCE {
                    // Somebody else may have something to do here.
                    thread::yield_now();
                    continue;
                }
                member.is_asleep.store(true, Ordering::Relaxed);
                // SeqCst: pairs with the fence of whoever rings a bell; one of the two sees what the other has stored.
                fence(Ordering::SeqCst);
                let is_needed = mine().any(&serve);
                while !is_needed && member.is_asleep.load(Ordering::Relaxed) && !self.stop.load(Ordering::Relaxed) {
                    thread::park();
                }
                member.is_asleep.store(false, Ordering::Relaxed);
                idle_rounds = 0;
            }
        }
    }

    /// Has all threads end.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.members.iter().filter_map(|member| member.thread.get()).for_each(Thread::unpark);
    }
}

/// Keeps the calling thread on a core, if the system lets it: it serves as well elsewhere, only slower.
fn keep_to(core: Option<usize>) {
    if let Some(core) = core.filter(|core| *core < CpuSet::MAX_CPU) {
        let mut only = CpuSet::new();
        only.set(core);
        let _ = sched_setaffinity(None, &only);
    }
}
