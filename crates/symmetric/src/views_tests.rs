//! Nodes that die, stand still and come back, whose clocks drift, over a network that loses, doubles and delays what is said; and views that are begun again from what was kept.

use rand::{RngExt, SeedableRng, rngs::Xoshiro256PlusPlus};

use super::*;
use crate::{Heard, Holder, HolderConfig};

const NODES: [NodeId; 3] = [NodeId(1), NodeId(2), NodeId(3)];
const LEASE: Span = Span::from_s(1);
/// Far more than clocks drift apart, so that what does not heed it is found.
const DRIFT: Drift = Drift { ppm: 100_000 };

fn config(mutant: Option<ViewsMutant>) -> ViewsConfig {
    ViewsConfig { nodes: NODES.into(), lease: LEASE, drift: DRIFT, last_copy_waits: Span::from_s(3), mutant }
}

/// A clock that is as fast as its bound allows, or as slow.
#[derive(Clone, Copy)]
struct Clock {
    offset: u64,
    per_million: u64,
}

impl Clock {
    fn drawn(rng: &mut Xoshiro256PlusPlus) -> Self {
        let drift = u64::from(DRIFT.ppm);
        let per_million = [1_000_000 - drift, 1_000_000, 1_000_000 + drift][rng.random_range(0..3)];
        Self { offset: rng.random_range(0..10_000_000_000), per_million }
    }

    fn at(self, time_ms: u64) -> Moment {
        Moment::from_ns(self.offset + time_ms * self.per_million)
    }
}

/// A life of a node.
struct Process {
    node: NodeId,
    life: Incarnation,
    clock: Clock,
    holder: Holder,
    has: Has,
    /// The last view in which it had its shard, while another was home of it.
    had_shard_in: Epoch,
    /// It does nothing until then.
    stands_still_until_ms: u64,
    /// The last view that was given out in which it is not, after one in which it was; until it has heard of a later one.
    left_out_in: Option<Epoch>,
}

enum Event {
    ToViews(NodeId, Here),
    /// To a life, which may be over.
    ToProcess(Incarnation, Told),
    Kept(Epoch),
    Look,
    Fault,
}

struct World {
    rng: Xoshiro256PlusPlus,
    now_ms: u64,
    events: BTreeMap<(u64, u64), Event>,
    next_event: u64,
    mutant: Option<ViewsMutant>,
    views: Views,
    views_clock: Clock,
    disk: Option<Given>,
    /// On its way there.
    to_disk: Option<Given>,
    processes: Vec<Process>,
    last_life: u64,
    has_faults: bool,
    /// What was told, by epoch; and whether it ever was another view.
    told: BTreeMap<Epoch, View>,
    twice_told: bool,
    /// Somebody was left out, came back, and took himself for who he was.
    goes_on_left_out: bool,
    /// A shard is said to be what it was, and its home has not had it in the view before.
    is_lost_untold: bool,
    /// Shards that came back to their nodes, with all.
    came_back: usize,
    /// Views that were given out, and beginnings among them.
    given: usize,
    begun: usize,
}

impl World {
    fn new(seed: u64, mutant: Option<ViewsMutant>) -> Self {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let views_clock = Clock::drawn(&mut rng);
        let views = Views::new(views_clock.at(0), config(mutant), None).unwrap();
        let mut world = Self {
            rng,
            now_ms: 0,
            events: BTreeMap::new(),
            next_event: 0,
            mutant,
            views,
            views_clock,
            disk: None,
            to_disk: None,
            processes: Vec::new(),
            last_life: 0,
            has_faults: true,
            told: BTreeMap::new(),
            twice_told: false,
            goes_on_left_out: false,
            is_lost_untold: false,
            came_back: 0,
            given: 0,
            begun: 0,
        };
        NODES.into_iter().for_each(|node| world.begin(node));
        world.after(0, Event::Look);
        world.after(2_000, Event::Fault);
        world
    }

    fn begin(&mut self, node: NodeId) {
        self.last_life += 1;
        let life = Incarnation(self.last_life);
        let (clock, holder) =
            (Clock::drawn(&mut self.rng), Holder::new(HolderConfig { me: node, life, lease: LEASE, drift: DRIFT }));
        let (has, left_out_in) = (Has::Nothing, None);
        let had_shard_in = Epoch::default();
        self.processes.push(Process {
            node,
            life,
            clock,
            holder,
            has,
            had_shard_in,
            stands_still_until_ms: 0,
            left_out_in,
        });
    }

    fn after(&mut self, ms: u64, event: Event) {
        self.next_event += 1;
        self.events.insert((self.now_ms + ms, self.next_event), event);
    }

    /// A message: lost, or once or twice on its way, for a while.
    fn send(&mut self, event: impl Fn() -> Event) {
        let times = match self.rng.random_range(0..100) {
            0..15 if self.has_faults => 0,
            15..20 => 2,
            _ => 1,
        };
        for _ in 0..times {
            let late = self.has_faults && self.rng.random_range(0..10) == 0;
            let ms = if late { self.rng.random_range(0..1_500) } else { self.rng.random_range(0..50) };
            self.after(ms, event());
        }
    }

    fn step(&mut self, happened: ViewsHappened) {
        let mut out = ViewsOutbox::default();
        let before = self.views.given.clone();
        self.views.step(self.views_clock.at(self.now_ms), happened, &mut out);
        let given = &self.views.given;
        if given.view.epoch != before.view.epoch {
            assert!(given.view.epoch > before.view.epoch);
            self.given += 1;
            self.begun += usize::from(given.began == given.view.epoch);
            let is_in = |given: &Given, process: &Process| given.lives.get(&process.node) == Some(&process.life);
            for process in &mut self.processes {
                if is_in(&before, process) && !is_in(given, process) {
                    process.left_out_in = Some(given.view.epoch);
                }
            }
        }
        let given = self.views.given.clone();
        self.look_at_shards(&before, &given);
        if let Some(keep) = out.keep {
            let (epoch, ms) = (keep.view.epoch, self.rng.random_range(0..200));
            self.to_disk = Some(keep);
            self.after(ms, Event::Kept(epoch));
        }
        for (_, told) in out.sends {
            self.told.entry(told.view.epoch).or_insert_with(|| told.view.clone());
            self.twice_told |= self.told[&told.view.epoch] != told.view;
            self.send(|| Event::ToProcess(told.life, told.clone()));
        }
    }

    /// Who comes to be home of a shard of which nothing is said to be lost has had all of it in the view before.
    fn look_at_shards(&mut self, before: &Given, given: &Given) {
        let homes = given.view.homes.iter().enumerate();
        let has_moved = |(at, home): &(usize, &NodeId)| {
            before.view.homes.get(*at).is_some_and(|before| before != *home)
                && before.kept_since.get(*at) == given.kept_since.get(*at)
        };
        for (_, home) in homes.filter(has_moved) {
            self.came_back += 1;
            let is_it = |process: &&Process| given.lives.get(home) == Some(&process.life);
            // Of who is gone nobody knows.
            let process = self.processes.iter().find(is_it);
            self.is_lost_untold |= process.is_some_and(|process| process.had_shard_in != before.view.epoch);
        }
    }

    /// All that happens until then.
    fn run(&mut self, until_ms: u64) -> Result<(), String> {
        while let Some(((at, _), event)) = self.events.pop_first() {
            if at > until_ms {
                self.after(at - self.now_ms, event);
                self.now_ms = until_ms;
                return Ok(());
            }
            self.now_ms = at;
            match event {
                Event::ToViews(node, here) => self.step(ViewsHappened::Here(node, here)),
                Event::Kept(epoch) => {
                    self.disk = self.to_disk.take();
                    self.step(ViewsHappened::Kept(epoch));
                }
                Event::ToProcess(life, told) => self.hear(life, told),
                Event::Look => self.look(),
                Event::Fault => self.fault(),
            }
            self.check()?;
        }
        Ok(())
    }

    fn hear(&mut self, life: Incarnation, told: Told) {
        let Some(process) = self.processes.iter_mut().find(|process| process.life == life) else { return };
        if self.now_ms < process.stands_still_until_ms {
            // It waits in the socket.
            let ms = process.stands_still_until_ms - self.now_ms;
            self.after(ms, Event::ToProcess(life, told));
            return;
        }
        let Some(heard) = process.holder.heed(told) else { return };
        assert!(process.holder.view().members.contains_key(&process.node));
        let was_left_out = process.left_out_in.take_if(|left_out| *left_out < process.holder.view().epoch).is_some();
        self.goes_on_left_out |= was_left_out && heard == Heard::GoesOn;
        let own = process.holder.own_shard().and_then(|own| process.holder.view().homes.get(own).copied());
        match heard {
            // Its home may change it in this view.
            Heard::GoesOn if own != Some(process.node) => process.has = process.has.min(Has::HotKeys),
            Heard::GoesOn => {}
            Heard::Joins => process.has = Has::Nothing,
            Heard::Begins => process.has = Has::Shard,
        }
    }

    /// Everybody looks at the clock.
    fn look(&mut self) {
        self.step(ViewsHappened::Tick);
        let mut said = Vec::new();
        let whole = self.processes.iter().filter(|process| process.has >= Has::HotKeys);
        let whole: BTreeSet<Epoch> = whole.map(|process| process.holder.view().epoch).collect();
        for process in &mut self.processes {
            if self.now_ms < process.stands_still_until_ms {
                continue;
            }
            // It comes to have what it lacks, from who is whole, step by step.
            let epoch = process.holder.view().epoch;
            if whole.contains(&epoch) && self.rng.random_range(0..50) == 0 {
                process.has = if process.has == Has::Nothing { Has::HotKeys } else { Has::Shard };
            }
            if process.has == Has::Shard {
                process.had_shard_in = epoch;
            }
            let here = process.holder.ask(process.clock.at(self.now_ms), process.has);
            said.extend(here.map(|here| (process.node, here)));
        }
        said.into_iter().for_each(|(node, here)| self.send(|| Event::ToViews(node, here)));
        self.after(10, Event::Look);
    }

    fn fault(&mut self) {
        if !self.has_faults {
            return;
        }
        let at = self.rng.random_range(0..self.processes.len());
        let node = self.processes[at].node;
        match self.rng.random_range(0..5) {
            // Killed, and started again.
            0 | 1 => {
                self.processes.remove(at);
                self.begin(node);
            }
            2 => self.processes[at].stands_still_until_ms = self.now_ms + self.rng.random_range(100..4_000),
            // Another one of the same node is started beside it, and it is killed some faults later.
            3 => {
                if self.processes.iter().filter(|process| process.node == node).count() == 1 {
                    self.begin(node);
                } else {
                    self.processes.remove(at);
                }
            }
            // Whoever gives out views is killed, and knows what was kept.
            _ => {
                self.views_clock = Clock::drawn(&mut self.rng);
                // What was on its way to the disk came there, or not.
                let kept = self.to_disk.take().filter(|_| self.rng.random_range(0..2) == 0);
                self.disk = kept.or(self.disk.take());
                let now = self.views_clock.at(self.now_ms);
                self.views = Views::new(now, config(self.mutant), self.disk.clone()).unwrap();
                self.events.retain(|_, event| !matches!(event, Event::Kept(_)));
            }
        }
        let ms = self.rng.random_range(100..2_500);
        self.after(ms, Event::Fault);
    }

    fn serves(&self, process: &Process) -> bool {
        process.clock.at(self.now_ms) < process.holder.serves_until()
    }

    /// Who has a lease is a member of the last view that was given out, and a shard has one home among them.
    fn check(&self) -> Result<(), String> {
        let given = &self.views.given;
        let mut homes = [None; NODES.len()];
        for process in self.processes.iter().filter(|process| self.serves(process)) {
            let epoch = given.view.epoch.0;
            if given.lives.get(&process.node) != Some(&process.life) {
                return Err(format!("{:?} serves, and is no member of view {epoch}", process.life));
            }
            for (at, home) in homes.iter_mut().enumerate().filter(|(at, _)| process.holder.is_home_of(*at)) {
                if let Some(other) = home.replace(process.life) {
                    return Err(format!("{:?} and {other:?} serve shard {at} in view {epoch}", process.life));
                }
            }
        }
        let writers: BTreeSet<&Writer> = given.view.members.values().collect();
        let are_members = given.view.homes.iter().all(|home| given.lives.contains_key(home));
        if writers.len() != given.view.members.len() || !are_members {
            return Err(format!("{given:?}"));
        }
        if self.twice_told {
            return Err("two views of one epoch were told".into());
        }
        if self.goes_on_left_out {
            return Err("somebody goes on who was left out".into());
        }
        if self.is_lost_untold {
            return Err("a shard is lost, and said to be what it was".into());
        }
        Ok(())
    }

    /// All of them serve in one view, each its own shard.
    fn is_well(&self) -> bool {
        let serves = |process: &Process| {
            let own = NODES.iter().position(|node| *node == process.node);
            let is_latest = process.holder.view() == self.views.view() && self.serves(process);
            is_latest && own.is_some_and(|own| process.holder.is_home_of(own))
        };
        self.processes.len() == NODES.len() && self.processes.iter().all(serves)
    }
}

/// What came of a run.
fn run(seed: u64, mutant: Option<ViewsMutant>) -> Result<World, String> {
    let mut world = World::new(seed, mutant);
    world.run(40_000)?;
    world.has_faults = false;
    // Of two processes of a node the one that was started first is killed.
    let latest: BTreeMap<NodeId, Incarnation> =
        world.processes.iter().map(|process| (process.node, process.life)).collect();
    world.processes.retain(|process| latest[&process.node] == process.life);
    world.run(60_000)?;
    Ok(world)
}

#[test]
fn who_has_a_lease_is_a_member_and_in_the_end_all_are() {
    let (mut given, mut begun, mut came_back) = (0, 0, 0);
    for seed in 0..200 {
        let world = run(seed, None).unwrap_or_else(|found| panic!("seed {seed}: {found}"));
        assert!(world.is_well(), "seed {seed}: {:?} {:?}", world.views.given, world.views.known);
        (given, begun, came_back) = (given + world.given, begun + world.begun, came_back + world.came_back);
    }
    // Else nothing was tried.
    assert!(given > 200 * 10 && begun > 200 && came_back > 200, "{given} views, {begun} beginnings, {came_back}");
}

#[test]
fn faults_that_are_put_in_are_found() {
    for mutant in ViewsMutant::ALL {
        assert!((0..2_000).any(|seed| run(seed, Some(mutant)).is_err()), "{mutant:?}");
    }
}

fn at(ms: u64) -> Moment {
    Moment::from_ns(ms * 1_000_000)
}

/// What is told to who says that he is there, at that time.
fn told(views: &mut Views, ms: u64, node: NodeId, life: u64, epoch: u64) -> Option<Told> {
    let has = if epoch == 0 { Has::Nothing } else { Has::Shard };
    let writer = views.view().members.get(&node).copied().filter(|_| epoch > 0);
    let here = Here { life: Incarnation(life), writer, epoch: Epoch(epoch), asked: at(ms), has };
    let mut out = ViewsOutbox::default();
    views.step(at(ms), ViewsHappened::Here(node, here), &mut out);
    let told = out.sends.iter().find(|(to, told)| *to == node && told.asked == at(ms)).map(|(_, told)| told.clone());
    keep(views, ms, out);
    told
}

fn keep(views: &mut Views, ms: u64, out: ViewsOutbox) {
    if let Some(keep) = out.keep {
        views.step(at(ms), ViewsHappened::Kept(keep.view.epoch), &mut ViewsOutbox::default());
    }
}

fn tick(views: &mut Views, ms: u64) {
    let mut out = ViewsOutbox::default();
    views.step(at(ms), ViewsHappened::Tick, &mut out);
    keep(views, ms, out);
}

/// A first view is given out once nobody can have a lease of who gave them before.
const FIRST_MS: u64 = 1_101;

#[test]
fn who_was_there_when_everything_began_is_told_so_however_late_he_hears_of_it() {
    let mut views = Views::new(at(0), config(None), None).unwrap();
    for node in NODES {
        assert_eq!(told(&mut views, 10, node, 1, 0), None, "there is no view yet");
    }
    tick(&mut views, FIRST_MS);
    assert_eq!((views.view().epoch, &views.view().homes[..]), (Epoch(1), &NODES[..]));
    // The second falls silent, and the third hears of the first view when there is another one already.
    for ms in (FIRST_MS..2_500).step_by(100) {
        told(&mut views, ms, NODES[0], 1, 1);
        told(&mut views, ms, NODES[2], 1, u64::from(ms > 1_600));
    }
    tick(&mut views, 2_500);
    assert_eq!((views.view().epoch, &views.view().homes[..]), (Epoch(2), &[NODES[0], NODES[2], NODES[2]][..]));
    let last = told(&mut views, 2_500, NODES[2], 1, 0).unwrap();
    let config = HolderConfig { me: NODES[2], life: Incarnation(1), lease: LEASE, drift: DRIFT };
    let mut holder = Holder::new(config);
    assert_eq!(holder.heed(last.clone()), Some(Heard::Begins));
    assert_eq!(holder.heed(last), None);
    // One that has come since has to be told what there is.
    assert_eq!(told(&mut views, 2_500, NODES[1], 2, 0), None);
    let joined = told(&mut views, 2_510, NODES[1], 2, 0).unwrap();
    assert_eq!((joined.began, joined.view.epoch, joined.grants), (None, Epoch(3), true));
    assert_eq!(
        Holder::new(HolderConfig { me: NODES[1], life: Incarnation(2), ..config }).heed(joined),
        Some(Heard::Joins)
    );
}

#[test]
fn who_is_told_and_hears_nothing_is_left_out() {
    let mut views = Views::new(at(0), config(None), None).unwrap();
    NODES.into_iter().for_each(|node| _ = told(&mut views, 10, node, 1, 0));
    tick(&mut views, FIRST_MS);
    for ms in (FIRST_MS..6_000).step_by(100) {
        let epoch = views.view().epoch.0;
        told(&mut views, ms, NODES[0], 1, epoch);
        let deaf = told(&mut views, ms, NODES[2], 1, 0);
        assert!(ms < 2_500 || deaf.is_none_or(|told| !told.grants || told.view.epoch > Epoch(1)), "{ms}");
    }
    assert!(views.view().epoch > Epoch(1));
    assert_eq!(views.view().homes[0], NODES[0]);
}

#[test]
fn numbers_of_lives_come_again_but_not_while_one_has_them() {
    let members = [(NODES[0], Writer(u16::MAX)), (NODES[1], Writer(1))].into();
    let view = View { members, ..View::default() };
    assert_eq!(next_writer(&view, u16::MAX - 1), 2);
    assert_eq!(next_writer(&view, 7), 8);
}

#[test]
fn what_was_kept_of_other_nodes_is_refused_and_what_was_lost_is_passed() {
    let kept = Given { nodes: NODES[1..].into(), ..Given::default() };
    let refused = Views::new(at(0), config(None), Some(kept)).err();
    assert_eq!(refused, Some(ViewsError::OtherNodes(NODES[1..].into())));
    let twice = ViewsConfig { nodes: vec![NODES[0], NODES[0]], ..config(None) };
    assert_eq!(Views::new(at(0), twice, None).err(), Some(ViewsError::Nodes(2)));

    // Nodes are in an epoch of which nothing is known.
    let mut views = Views::new(at(0), config(None), None).unwrap();
    told(&mut views, 10, NODES[0], 1, 77);
    tick(&mut views, FIRST_MS);
    assert_eq!(views.view().epoch, Epoch(78));
}

#[test]
fn a_lease_is_counted_from_before_it_was_asked_for_and_ends_with_its_view() {
    let mut holder = Holder::new(HolderConfig { me: NODES[0], life: Incarnation(7), lease: LEASE, drift: DRIFT });
    let here = holder.ask(at(100), Has::Nothing).unwrap();
    assert_eq!((holder.ask(at(349), Has::Nothing), holder.wake_at()), (None, at(350)));
    assert!(holder.ask(at(349), Has::HotKeys).is_some(), "it has more now");
    let view = |epoch| View { epoch: Epoch(epoch), ..View::default() };
    let told = |epoch, grants| Told {
        life: here.life,
        asked: here.asked,
        view: view(epoch),
        began: None,
        grants,
        lease: LEASE,
        is_settled: false,
        own_shard: 0,
        kept_since: Vec::new(),
    };
    assert!(holder.heed(told(1, true)).is_some());
    // A tenth less, and a little.
    assert_eq!(holder.serves_until(), Moment::from_ns(at(1_000).ns() - 1));
    let of_another = Told { life: Incarnation(6), asked: at(900), ..told(9, true) };
    assert_eq!(holder.heed(of_another), None);
    assert!(holder.heed(told(2, false)).is_some());
    assert_eq!(holder.serves_until(), Moment::default());
    assert_eq!(holder.heed(Told { asked: at(900), ..told(1, true) }), None, "of an epoch before");
    assert_eq!(holder.serves_until(), Moment::default());
}
