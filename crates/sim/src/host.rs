//! What a node runs on: clocks of its own, and when it stands still or begins another life.
//!
//! Always true: a life's number is above those before it, as a life file has it, whatever the wall clock shows.

use std::time::Duration;

use guira_cluster::{CLOCK, Drift, Incarnation, LIVES_APART, NodeClock};
use guira_item::{Moment, Span, Time};
use rand::{RngExt, rngs::Xoshiro256PlusPlus};

use crate::clock::Clock;

/// The first moment of a run, Unix time.
pub(crate) const BEGINS: Duration = Duration::from_secs(1_800_000_000);

/// The cluster's time, by a clock that is right.
pub(crate) fn cluster_time(now: Moment) -> Time {
    let unix_s = BEGINS.as_secs() + now.ns() / 1_000_000_000;
    Time((unix_s - CLOCK.to_unix_s(Time(0))) as u32)
}

/// A driver is not woken more often than this.
const WAKES_APART: Span = Span::from_us(50);

/// What one node runs on.
#[derive(Debug)]
pub(crate) struct Host {
    clock: Clock,
    /// How far its wall clock is behind.
    wall_behind: Span,
    /// Counts its lives: what was meant for an earlier one does not reach it.
    life: u64,
    /// As others know the last life that has begun; of who takes another's place it begins before it is started.
    incarnation: Incarnation,
    paused_until: Moment,
    /// It stops for so long in the middle of its next step: what it has decided leaves only then.
    stops_for: Option<Span>,
    wakes_at: Option<Moment>,
}

impl Host {
    pub(crate) fn new(now: Moment, rng: &mut Xoshiro256PlusPlus) -> Self {
        let mut host = Self {
            clock: Clock::new(now, Moment::from_ns(rng.random_range(0..1 << 50)), 1_000_000),
            wall_behind: Span::default(),
            life: 0,
            incarnation: Incarnation::default(),
            paused_until: Moment::default(),
            stops_for: None,
            wakes_at: None,
        };
        host.set_clock_rate(now, rng);
        host
    }

    /// What its clock shows.
    pub(crate) fn local(&self, now: Moment) -> Moment {
        self.clock.local(now)
    }

    /// Ties what its clock shows to the cluster's seconds, by its wall clock.
    pub(crate) fn node_clock(&self, now: Moment) -> NodeClock {
        NodeClock::set(self.local(now), self.wall_clock(now))
    }

    /// What its wall clock shows.
    fn wall_clock(&self, now: Moment) -> Duration {
        BEGINS + Duration::from_nanos(now.ns()) - Duration::from_nanos(self.wall_behind.ns())
    }

    /// Its clock runs at another rate: within what two of them may drift apart.
    pub(crate) fn set_clock_rate(&mut self, now: Moment, rng: &mut Xoshiro256PlusPlus) {
        let bound = u64::from(Drift::default().ppm) * 49 / 100;
        let rate = 1_000_000 - bound + rng.random_range(0..=2 * bound);
        self.clock.set_rate(now, rate);
    }

    /// Its clock begins again somewhere, and its wall clock may be behind from now on, by less than so much.
    pub(crate) fn lose_clock(&mut self, now: Moment, behind_max: Span, rng: &mut Xoshiro256PlusPlus) {
        self.clock = Clock::new(now, Moment::from_ns(rng.random_range(0..1 << 40)), 1_000_000);
        let behind = Span::from_ns(rng.random_range(0..behind_max.ns().max(1)));
        self.wall_behind = if rng.random_bool(0.5) { behind } else { Span::default() };
    }

    pub(crate) fn life(&self) -> u64 {
        self.life
    }

    pub(crate) fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// A life has begun, for others: under a number above all before.
    pub(crate) fn begin_incarnation(&mut self, now: Moment) {
        let unix_ns = self.wall_clock(now).as_nanos() as u64;
        self.incarnation = Incarnation(self.incarnation.0 + LIVES_APART).max(Incarnation(unix_ns));
    }

    /// It is started.
    pub(crate) fn begin_life(&mut self) {
        self.life += 1;
        self.wakes_at = None;
    }

    /// It goes on, if it is paused; also who is down does not come back paused.
    pub(crate) fn go_on(&mut self, now: Moment) {
        self.stops_for = None;
        self.paused_until = self.paused_until.min(now);
    }

    /// It stops for a while: at once, or in the middle of its next step.
    pub(crate) fn pause(&mut self, now: Moment, pause: Span, in_a_step: bool) {
        if in_a_step {
            self.stops_for = Some(pause);
        } else {
            self.paused_until = self.paused_until.max(now + pause);
        }
    }

    /// For how long it is paused from now on, if it is.
    pub(crate) fn pauses_for(&self, now: Moment) -> Option<Span> {
        (self.paused_until > now).then(|| self.paused_until.since(now))
    }

    /// For how long it stops in the middle of the step that it takes now.
    pub(crate) fn stop_in_a_step(&mut self, now: Moment) -> Span {
        let Some(pause) = self.stops_for.take() else { return Span::default() };
        self.paused_until = self.paused_until.max(now + pause);
        pause
    }

    /// After how long it is to be woken to be awake when its clock shows `wake_at`, unless it is before that.
    pub(crate) fn wakes_after(&mut self, now: Moment, wake_at: Moment) -> Option<Span> {
        let at = self.clock.virtual_at(wake_at).max(now + WAKES_APART);
        let is_next = self.wakes_at.is_none_or(|earlier| earlier <= now || at < earlier);
        is_next.then(|| {
            self.wakes_at = Some(at);
            at.since(now)
        })
    }

    /// It was to be woken now, perhaps.
    pub(crate) fn wake(&mut self, now: Moment) -> Woken {
        if self.wakes_at != Some(now) {
            return Woken::No;
        }
        let pause = self.pauses_for(now);
        self.wakes_at = pause.map(|pause| now + pause);
        pause.map_or(Woken::Yes, Woken::After)
    }
}

/// Whether a node wakes up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Woken {
    Yes,
    /// It is paused, and does so after that.
    After(Span),
    /// It has said otherwise since.
    No,
}
