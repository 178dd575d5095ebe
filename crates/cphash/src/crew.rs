//! The server threads: each serves the stations that are assigned to it, and sleeps when there is nothing to serve (CPHASH,
//! section 3.2). How many of them serve follows the load, which the paper leaves open in section 8.1: every ten milliseconds the
//! time that they spent serving is compared with the time there was, and one that the system takes off its core, because clients
//! are busy on all of them, leaves the serving to those.
//!
//! Always true: a station is served by whoever has its lock, so that a new assignment needs no agreement: the old thread and the
//! new one may both try for a while. A thread that sleeps has looked at all its bells after it said so; whom a message has reached
//! that nobody looks after any more is its sender, who serves it.

use std::{
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use crossbeam_utils::CachePadded;
use guira_sync::{
    atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence},
    cycles,
    thread::{self, JoinHandle, Thread},
};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::{config::ConfigError, modelled};

/// Rounds between two looks at the clock.
const ROUNDS_PER_LOOK: u32 = modelled(64, 2) as u32;

/// How long a thread looks for work before it sleeps: some times what the system takes to wake it.
const PATIENCE: Duration = Duration::from_micros(100);

/// Time between two looks at how many threads are needed, in nanoseconds: a hundred times what it takes to fall asleep.
/// A model decides by itself who serves.
const REVIEW_NS: u64 = modelled(10_000_000, usize::MAX) as u64;

/// A thread more serves if those that do are busy for so many percent of the time, and one less if the others would be busy for no
/// more than so many: far enough from each other that a steady load does not make it change.
const BUSY_PERCENT_MAX: u64 = 85;
const BUSY_PERCENT_MIN: u64 = 60;

/// Times between two reviews that a thread is taken off its core where there are not enough of them: the system lets each of those
/// that want one run for three milliseconds or so.
const PREEMPTIONS_MAX: u64 = 2;

/// How long clients are left to serve by themselves when they need the cores, at first and at most, in nanoseconds: it is doubled
/// each time that cores prove to be short again, so that trying costs next to nothing.
const RETREAT_NS_MIN: u64 = 100_000_000;
const RETREAT_NS_MAX: u64 = 10_000_000_000;

/// What came of a look at a station.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Look {
    /// There is nothing to serve.
    Nothing,
    /// There is, and a client is at it.
    Taken,
    Served,
}

/// A server thread, seen from the others.
#[derive(Default)]
pub(crate) struct Member {
    pub is_asleep: AtomicBool,
    thread: OnceLock<Thread>,
    /// Cycles that it has served since the last review.
    busy: AtomicU64,
}

impl Member {
    fn is_awake(&self) -> bool {
        !self.is_asleep.load(Ordering::Relaxed)
    }
}

/// The rounds that a member makes of its stations.
struct Rounds {
    /// When the last one ended, or a pause after it, in cycles.
    end: u64,
    /// Cycles of those that served something, of which nobody has been told.
    busy: u64,
    /// Rounds so far.
    count: u32,
    /// Those since something was served.
    idle: u32,
}

impl Rounds {
    fn begin(now: u64) -> Self {
        Self { end: now, busy: 0, count: 0, idle: 0 }
    }

    /// A round has ended, which has served something or not; true now and then, when it is time to look at the clock.
    fn count(&mut self, has_served: bool, now: u64) -> bool {
        if has_served {
            // Another core's clock may be behind by a little.
            self.busy += now.saturating_sub(self.end);
            self.idle = 0;
        } else {
            self.idle = self.idle.wrapping_add(1);
        }
        self.end = now;
        self.count = self.count.wrapping_add(1);
        self.count.is_multiple_of(ROUNDS_PER_LOOK)
    }

    /// The next round begins now, after a pause.
    fn resume(&mut self, now: u64) {
        (self.end, self.idle) = (now, 0);
    }

    /// Cycles that were served and that nobody has been told of.
    fn take_busy(&mut self) -> u64 {
        std::mem::take(&mut self.busy)
    }
}

/// How often a thread had been taken off its core at some time.
#[derive(Clone, Copy)]
struct Preemptions {
    count: u64,
    /// Nanoseconds since the crew started.
    at_ns: u64,
}

/// All server threads, and which of them serve.
pub(crate) struct Crew {
    members: Box<[CachePadded<Member>]>,
    stations: usize,
    /// The first so many members have stations.
    active: AtomicUsize,
    is_fixed: bool,
    started: Instant,
    /// How long a member looks for work before it sleeps.
    pub patience: Duration,
    /// When the load was last looked at, in nanoseconds since `started`, and in cycles.
    reviewed_ns: AtomicU64,
    reviewed_cycles: AtomicU64,
    /// No thread is added before this, in nanoseconds since `started`.
    retreat_end_ns: AtomicU64,
    /// How long the next retreat is.
    retreat_ns: AtomicU64,
    /// How often the calling thread has been taken off its core.
    preemptions: fn() -> u64,
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
    /// A crew of so many for so many stations, of whom as many serve as the load needs, or all; nobody works yet.
    pub fn new(members: usize, stations: usize, is_fixed: bool) -> Self {
        Self {
            members: (0..members).map(|_| CachePadded::default()).collect(),
            stations,
            active: AtomicUsize::new(if is_fixed { members } else { members.min(1) }),
            is_fixed,
            started: Instant::now(),
            patience: PATIENCE,
            reviewed_ns: AtomicU64::new(0),
            reviewed_cycles: AtomicU64::new(cycles()),
            retreat_end_ns: AtomicU64::new(0),
            retreat_ns: AtomicU64::new(RETREAT_NS_MIN),
            preemptions: thread_preemptions,
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
        self.owner(station).is_none_or(|member| !self.members[member].is_awake())
    }

    /// Whether members look for messages now; in a fixed crew they are woken for each.
    #[inline]
    pub fn is_looking(&self) -> bool {
        self.is_fixed || self.members[..self.active()].iter().any(|member| member.is_awake())
    }

    /// How many members there are.
    pub fn members(&self) -> usize {
        self.members.len()
    }

    /// How many members look for messages now.
    pub fn awake(&self) -> usize {
        self.awake_of(self.active())
    }

    /// How many of the first so many members would.
    pub fn awake_of(&self, members: usize) -> usize {
        self.members[..members].iter().filter(|member| member.is_awake()).count()
    }

    /// Wakes all members that serve, or the first one if clients serve by themselves and there may be a core.
    pub fn wake_all(&self) {
        self.wake(0);
        (1..self.active()).for_each(|member| self.wake_member(member));
    }

    /// Wakes the member to which a station is assigned; where clients serve by themselves, the first one if there may be a core.
    pub fn wake(&self, station: usize) {
        if self.active() == 0
            && !self.members.is_empty()
            && self.now_ns() >= self.retreat_end_ns.load(Ordering::Relaxed)
        {
            self.active.store(1, Ordering::Relaxed);
        }
        if let Some(member) = self.owner(station) {
            self.wake_member(member);
        }
    }

    fn preemptions_now(&self) -> Preemptions {
        Preemptions { count: (self.preemptions)(), at_ns: self.now_ns() }
    }

    fn now_ns(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }

    fn wake_member(&self, number: usize) {
        let member = &self.members[number];
        if let Some(thread) = member.thread.get() {
            member.is_asleep.store(false, Ordering::Relaxed);
            thread.unpark();
        }
    }

    /// How many members have stations.
    pub fn active(&self) -> usize {
        self.active.load(Ordering::Relaxed)
    }

    /// Counts what a member has served, and has more or fewer of them serve if it is time to look and the load has changed.
    fn review(&self, number: usize, busy: u64, preemptions: &mut Preemptions) {
        self.members[number].busy.fetch_add(busy, Ordering::Relaxed);
        let (last, now) = (self.reviewed_ns.load(Ordering::Relaxed), self.now_ns());
        // One of them does it.
        let is_due = !self.is_fixed
            && now.saturating_sub(last) >= REVIEW_NS
            && self.reviewed_ns.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if !is_due {
            return;
        }
        let busy: u64 = self.members.iter().map(|member| member.busy.swap(0, Ordering::Relaxed)).sum();
        let ended = cycles();
        let elapsed = ended.saturating_sub(self.reviewed_cycles.swap(ended, Ordering::Relaxed)).max(1);
        let active = self.active();
        let before = std::mem::replace(preemptions, self.preemptions_now());
        let is_preempted = (preemptions.count - before.count) * REVIEW_NS
            >= PREEMPTIONS_MAX * preemptions.at_ns.saturating_sub(before.at_ns).max(REVIEW_NS);
        let (retreat_ns, retreat_end_ns) =
            (self.retreat_ns.load(Ordering::Relaxed), self.retreat_end_ns.load(Ordering::Relaxed));
        let wanted = if is_preempted {
            // Of several that step down one after the other only the first begins a retreat.
            if now >= retreat_end_ns {
                self.retreat_end_ns.store(now + retreat_ns, Ordering::Relaxed);
                self.retreat_ns.store((2 * retreat_ns).min(RETREAT_NS_MAX), Ordering::Relaxed);
            }
            active.saturating_sub(1)
        } else {
            // Cores have been there for as long as they were said not to be.
            if now >= retreat_end_ns + retreat_ns {
                self.retreat_ns.store(RETREAT_NS_MIN, Ordering::Relaxed);
            }
            let most = if now >= retreat_end_ns { self.members.len() } else { active };
            wanted(active, most, 100 * busy / elapsed)
        };
        if wanted != active {
            self.assign(wanted);
        }
    }

    /// Has so many members serve, and each of those look at its stations.
    pub fn assign(&self, members: usize) {
        self.active.store(members, Ordering::Relaxed);
        // Stations with something to serve may have come to one that sleeps.
        (0..members).for_each(|member| self.wake_member(member));
    }

    /// Starts a thread for each member, on `cores` in turn if there are any; `serve` serves a station.
    pub fn start<F>(self: &Arc<Self>, cores: &[usize], serve: F) -> std::io::Result<Vec<JoinHandle<()>>>
    where
        F: Fn(usize) -> Look + Clone + Send + 'static,
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

    /// The calling thread is a member from now on.
    pub fn begin(&self, number: usize) -> &Member {
        let member = &self.members[number];
        assert!(member.thread.set(thread::current()).is_ok(), "a member has one thread");
        member
    }

    /// A member's life.
    pub fn work(&self, number: usize, serve: impl Fn(usize) -> Look) {
        let member = self.begin(number);
        let mine = || (0..self.stations).filter(|station| self.owner(*station) == Some(number));
        let mut rounds = Rounds::begin(cycles());
        // When it was first seen that there is nothing to do.
        let mut idle_since = Instant::now();
        let mut preemptions = self.preemptions_now();
        while !self.is_stopped() {
            let mut found = false;
            for station in mine() {
                found |= serve(station) == Look::Served;
            }
            let is_look = rounds.count(found, cycles());
            if is_look && rounds.busy > 0 {
                self.review(number, rounds.take_busy(), &mut preemptions);
            }
            if found {
                continue;
            }
            std::hint::spin_loop();
            if !rounds.idle.is_multiple_of(ROUNDS_PER_LOOK) {
                continue;
            }
            if rounds.idle == ROUNDS_PER_LOOK {
                idle_since = Instant::now();
            }
            if idle_since.elapsed() < self.patience {
                // Somebody else may have something to do here.
                thread::yield_now();
                rounds.end = cycles();
                continue;
            }
            member.is_asleep.store(true, Ordering::Relaxed);
            // SeqCst: pairs with the fence of whoever rings a bell; one of the two sees what the other has stored.
            fence(Ordering::SeqCst);
            let needed = mine().map(&serve).find(|look| *look != Look::Nothing);
            while needed.is_none() && !member.is_awake() && !self.is_stopped() {
                thread::park();
            }
            member.is_asleep.store(false, Ordering::Relaxed);
            if needed == Some(Look::Taken) {
                // Whoever has the station may need this core.
                thread::yield_now();
            }
            rounds.resume(cycles());
        }
    }

    /// Whether all threads are to end.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Has all threads end.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.members.iter().filter_map(|member| member.thread.get()).for_each(Thread::unpark);
    }
}

/// How often the system has taken the calling thread off its core so far while it could have gone on, or has found somebody else to
/// run there when it let go of it with nothing to serve: in both cases others want the core.
fn thread_preemptions() -> u64 {
    // SAFETY: all zeros are a value of this plain structure.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the structure is this function's own.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    usage.ru_nivcsw as u64
}

/// How many of `members` threads are to serve where `active` did and were busy for `percent` of one thread's time together.
fn wanted(active: usize, members: usize, percent: u64) -> usize {
    let threads = active as u64;
    if percent > BUSY_PERCENT_MAX * threads && active < members {
        active + 1
    } else if active > 1 && percent < BUSY_PERCENT_MIN * (threads - 1) {
        active - 1
    } else {
        active
    }
}

/// Whether this process may run on all of `cores`.
///
/// # Errors
/// [`ConfigError::NoCore`] with the first one on which it may not.
pub(crate) fn check_cores(cores: &[usize]) -> Result<(), ConfigError> {
    // A system that does not say lets a thread keep to any core, or to none.
    let Ok(allowed) = sched_getaffinity(None) else { return Ok(()) };
    let refused = cores.iter().find(|core| **core >= CpuSet::MAX_CPU || !allowed.is_set(**core));
    refused.map_or(Ok(()), |core| Err(ConfigError::NoCore(*core)))
}

/// Keeps the calling thread on a core, if the system lets it: it serves as well elsewhere, only slower.
fn keep_to(core: Option<usize>) {
    if let Some(core) = core.filter(|core| *core < CpuSet::MAX_CPU) {
        let mut only = CpuSet::new();
        only.set(core);
        let _ = sched_setaffinity(None, &only);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64};

    use super::*;

    #[test]
    fn threads_come_and_go_with_the_load() {
        assert_eq!(wanted(1, 4, 84), 1);
        assert_eq!(wanted(1, 4, 95), 2, "one is not enough");
        assert_eq!(wanted(4, 4, 400), 4, "there are no more");
        assert_eq!(wanted(2, 4, 95), 2, "nor is it soon too much");
        assert_eq!(wanted(3, 4, 110), 2, "two can do it");
        assert_eq!(wanted(1, 4, 0), 1);
        let settle = |mut active: usize, percent: u64| {
            (0..10).for_each(|_| active = wanted(active, 8, percent.min(100 * active as u64)));
            active
        };
        for percent in (0..800).step_by(7) {
            let (up, down) = (settle(1, percent), settle(8, percent));
            assert!(up as u64 * 100 >= percent, "{percent} % on {up}");
            assert!(down >= up && wanted(up, 8, percent) == up && wanted(down, 8, percent) == down, "{percent} %");
        }
    }

    #[test]
    fn only_rounds_that_served_count_as_busy() {
        let mut rounds = Rounds::begin(1_000);
        assert!(!rounds.count(false, 1_700), "it has served nothing");
        assert_eq!(rounds.take_busy(), 0);
        for turn in 0..10 {
            rounds.count(true, 1_705 + 7 * turn);
            rounds.count(false, 1_707 + 7 * turn);
        }
        assert_eq!((rounds.take_busy(), rounds.idle), (50, 1), "but for what it was idle between");
        rounds.count(true, 1_780);
        rounds.resume(9_000);
        rounds.count(true, 9_001);
        rounds.count(true, 8_990);
        assert_eq!(rounds.take_busy(), 11, "but for a pause, and for a clock that is behind");
        let looks = (0..5 * ROUNDS_PER_LOOK).filter(|_| rounds.count(true, 9_001)).count();
        assert_eq!(looks, 5);
    }

    /// Threads serve as they are needed, each station is looked at by one of them, and all end when they are told to.
    #[test]
    fn a_crew_that_is_busy_grows_and_one_that_is_not_sleeps() {
        const STATIONS: usize = 8;
        let crew = Arc::new(Crew { preemptions: || 0, ..Crew::new(3, STATIONS, false) });
        let (load, looked) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicU64::new(0)));
        let serve = {
            let (load, looked) = (Arc::clone(&load), Arc::clone(&looked));
            move |station: usize| {
                looked.fetch_or(1 << station, Ordering::Relaxed);
                if load.load(Ordering::Relaxed) { Look::Served } else { Look::Nothing }
            }
        };
        let threads = crew.start(&[], serve).expect("threads");
        while crew.active() < 3 || looked.load(Ordering::Relaxed) != (1 << STATIONS) - 1 {
            thread::yield_now();
        }
        assert_eq!((crew.owner(0), crew.owner(STATIONS - 1)), (Some(0), Some(2)));
        load.store(false, Ordering::Relaxed);
        while (0..3).any(|member| !crew.members[member].is_asleep.load(Ordering::Relaxed)) {
            thread::yield_now();
        }
        load.store(true, Ordering::Relaxed);
        crew.wake(STATIONS - 1);
        let member = crew.owner(STATIONS - 1).expect("a member");
        while crew.members[member].is_asleep.load(Ordering::Relaxed) {
            thread::yield_now();
        }
        crew.stop();
        threads.into_iter().for_each(|thread| thread.join().expect("ends"));
    }

    /// A server thread that does not get its core leaves the serving to the clients, and comes back when it has been away for a while.
    #[test]
    fn a_thread_without_a_core_retreats_and_tries_again() {
        static TAKEN: AtomicU64 = AtomicU64::new(0);
        static PER_LOOK: AtomicU64 = AtomicU64::new(1_000);
        let preemptions = || {
            let more = PER_LOOK.load(Ordering::Relaxed);
            TAKEN.fetch_add(more, Ordering::Relaxed) + more
        };
        let crew = Arc::new(Crew { preemptions, ..Crew::new(1, 4, false) });
        let threads = crew.start(&[], |_| Look::Served).expect("threads");
        while crew.active() > 0 || !crew.members[0].is_asleep.load(Ordering::Relaxed) {
            thread::yield_now();
        }
        assert_eq!(crew.owner(3), None, "clients serve");
        PER_LOOK.store(0, Ordering::Relaxed);
        while crew.active() == 0 {
            thread::yield_now();
            crew.wake(3);
        }
        assert!(crew.now_ns() >= RETREAT_NS_MIN);
        assert_eq!(crew.owner(3), Some(0));
        while crew.retreat_ns.load(Ordering::Relaxed) != RETREAT_NS_MIN {
            thread::yield_now();
        }
        crew.stop();
        threads.into_iter().for_each(|thread| thread.join().expect("ends"));
    }
}
