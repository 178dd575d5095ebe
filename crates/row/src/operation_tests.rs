//! The protocol on a row under a network that loses, delays and repeats, with owners that follow each other while what the earlier ones
//! have sent is still on its way, or while they go on, and that have nothing of it any more and begin anew: what clients see must be linearizable, what is
//! told of the row must be what a read shows, and with any rule taken away either must be seen not to be.

use guira_history::{Event, Model, check};

use super::*;

/// A dice.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }
}

/// What a client did, with what it was told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Act {
    Put(Option<u64>),
    /// Put the second if the first was there; whether it was.
    Swap(u64, u64, Option<bool>),
    Read(Option<u64>),
}

struct Register;

impl Model for Register {
    type State = Option<u64>;
    type Act = Act;

    fn first(&self) -> Option<u64> {
        None
    }

    fn step(&self, state: &Option<u64>, act: &Act) -> Option<Option<u64>> {
        match *act {
            Act::Put(value) => Some(value),
            Act::Swap(from, to, told) => {
                let fits = *state == Some(from);
                told.is_none_or(|told| told == fits).then_some(if fits { Some(to) } else { *state })
            }
            Act::Read(seen) => (*state == seen).then_some(*state),
        }
    }
}

/// The row, and what is on its way to it.
#[derive(Default)]
struct World {
    row: Option<Row<u64>>,
    /// Writes that nobody waits for any more, and that may arrive yet.
    late: Vec<(Option<Stamp>, Row<u64>)>,
}

impl World {
    fn carry_out(&mut self, expected: Option<Stamp>, row: Row<u64>) -> Heard<u64> {
        if self.row.as_ref().map(|row| row.stamp) != expected {
            return Heard::NotApplied;
        }
        self.row = Some(row);
        Heard::Applied
    }

    fn hear(&mut self, ask: Ask<u64>, dice: &mut Dice) -> Heard<u64> {
        match (ask, dice.below(8)) {
            (Ask::Read, 0) => Heard::Lost,
            (Ask::Read, _) => Heard::Row(self.row.clone()),
            (Ask::Write { .. }, 0) => Heard::Refused,
            (Ask::Write { expected, row }, 1) => {
                self.carry_out(expected, row);
                Heard::Lost
            }
            (Ask::Write { expected, row }, 2..4) => {
                self.late.push((expected, row));
                Heard::Lost
            }
            (Ask::Write { expected, row }, 4) => {
                // Repeated on its way.
                self.late.push((expected, row.clone()));
                self.carry_out(expected, row)
            }
            (Ask::Write { expected, row }, _) => self.carry_out(expected, row),
        }
    }

    /// Something that was on its way arrives, or has to be waited for no longer.
    fn stir(&mut self, dice: &mut Dice) {
        if !self.late.is_empty() && dice.below(3) == 0 {
            let at = dice.below(self.late.len() as u64) as usize;
            let (expected, row) = self.late.swap_remove(at);
            self.carry_out(expected, row);
        }
    }
}

/// What an owner knows of the row, and does.
struct Owner {
    epoch: Epoch,
    remembered: Remembered,
    /// Operations that it still begins.
    left: u64,
    under_way: Option<UnderWay>,
    /// What the row has for whoever was told of it since it was scanned.
    copy: Option<Option<u64>>,
}

/// An operation of an owner.
struct UnderWay {
    operation: Operation<u64>,
    act: Act,
    invoked: u64,
    /// Messages until it is given up.
    patience: u64,
}

impl Owner {
    fn is_done(&self) -> bool {
        self.left == 0 && self.under_way.is_none()
    }
}

/// How owners follow each other.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Succession {
    /// The next begins when the one before does nothing more.
    After,
    /// The one before goes on meanwhile, as one that slept.
    Amid,
}

struct Run {
    rules: Rules,
    dice: Dice,
    world: World,
    clock: u64,
    serial: i64,
    value: u64,
    /// Each with the owner's epoch.
    history: Vec<(Epoch, Event<Act>)>,
    /// Below it the row has no content.
    floor: Option<Stamp>,
    /// Reads that showed something else than was told.
    untold: usize,
    restamped: usize,
    settled: usize,
    fenced: usize,
    fences: usize,
    told: usize,
}

impl Run {
    fn new(rules: Rules, seed: u64) -> Self {
        Self {
            rules,
            dice: Dice(seed),
            world: World::default(),
            clock: 0,
            serial: 0,
            value: 0,
            history: Vec::new(),
            floor: None,
            untold: 0,
            restamped: 0,
            settled: 0,
            fenced: 0,
            fences: 0,
            told: 0,
        }
    }

    /// Nothing of the row is wanted any more, and it begins anew: what a scan shows is removed, and what may come is fenced off.
    fn fence(&mut self, owner: &mut Owner) {
        if self.shown(owner).is_some() {
            return;
        }
        self.serial += 1;
        self.clock += 2;
        let floor = Stamp { epoch: owner.epoch, serial: self.serial };
        (self.floor, owner.remembered.floor) = (Some(floor), Some(floor));
        // Whatever comes of it counts for nothing.
        owner.remembered.doubt = None;
        self.fences += 1;
        let clock = self.clock;
        self.settle(owner.epoch);
        let event = Event { invoked: clock - 1, returned: Some(clock), is_certain: true, act: Act::Put(None) };
        self.history.push((owner.epoch, event));
    }

    /// What this owner, and those before, had in doubt is there, or never will be.
    fn settle(&mut self, by: Epoch) {
        let clock = self.clock;
        let earlier = self.history.iter_mut().filter(|(epoch, _)| *epoch <= by);
        earlier.for_each(|(_, event)| event.returned = event.returned.or(Some(clock)));
    }

    /// What a scan of an owner's shows.
    fn shown(&self, owner: &Owner) -> Option<u64> {
        let counts = |row: &&Row<u64>| owner.remembered.floor.is_none_or(|floor| row.stamp >= floor);
        self.world.row.as_ref().filter(counts).and_then(|row| row.content)
    }

    /// Something that an owner may do.
    fn begin(&mut self, owner: &Owner) -> UnderWay {
        self.value += 1;
        let value = self.value;
        let (act, goal) = match self.dice.below(6) {
            0..3 => (Act::Read(None), Goal::Read),
            3 => (Act::Put(None), Goal::Change { content: None, fits: None }),
            4 if value > 1 => {
                let from = 1 + self.dice.below(value - 1);
                let fits: Fits<u64> = Box::new(move |content| content == Some(&from));
                (Act::Swap(from, value, None), Goal::Change { content: Some(value), fits: Some(fits) })
            }
            _ => (Act::Put(Some(value)), Goal::Change { content: Some(value), fits: None }),
        };
        self.clock += 1;
        let operation = Operation::new(owner.epoch, self.rules, goal, owner.remembered);
        UnderWay { operation, act, invoked: self.clock, patience: 1 + self.dice.below(8) }
    }

    /// An owner begins something, or sends a message and hears what comes of it.
    fn turn(&mut self, owner: &mut Owner, is_alone: bool) {
        let Some(mut under_way) = owner.under_way.take() else {
            match self.dice.below(12) {
                0 if is_alone => self.fence(owner),
                // Somebody scans the row, and is told of it from then on.
                1..4 => owner.copy = Some(self.shown(owner)),
                _ => {
                    owner.left -= 1;
                    owner.under_way = Some(self.begin(owner));
                }
            }
            return;
        };
        self.serial += 1;
        let ask = under_way.operation.ask(self.serial);
        let is_read = matches!(under_way.act, Act::Read(_));
        self.restamped += usize::from(is_read && matches!(ask, Ask::Write { .. }));
        let heard = self.world.hear(ask, &mut self.dice);
        let end = under_way.operation.on(heard);
        under_way.patience -= 1;
        if end.is_none() && under_way.patience > 0 {
            owner.under_way = Some(under_way);
        } else {
            self.conclude(owner, under_way, end);
        }
    }

    fn conclude(&mut self, owner: &mut Owner, under_way: UnderWay, end: Option<End<u64>>) {
        let UnderWay { operation, act, invoked, .. } = under_way;
        self.clock += 1;
        let (clock, had_doubt) = (self.clock, owner.remembered.doubt.is_some());
        owner.remembered.stamp = operation.stamp_left();
        owner.remembered.doubt = operation.doubt_left();
        self.settled += usize::from(had_doubt && owner.remembered.doubt.is_none());
        if matches!(end, Some(End::Read { .. } | End::Changed | End::NotFitting)) {
            // Somebody has been served.
            self.settle(owner.epoch);
        }
        self.tell(owner, &operation, act, end.as_ref());
        let certain = |act| Some(Event { invoked, returned: Some(clock), is_certain: true, act });
        let event = match (end, act) {
            (Some(End::Read { content: seen, .. }), _) => certain(Act::Read(seen)),
            (Some(End::Changed), Act::Swap(from, to, _)) => certain(Act::Swap(from, to, Some(true))),
            (Some(End::Changed), act) => certain(act),
            (Some(End::NotFitting), Act::Swap(from, to, _)) => certain(Act::Swap(from, to, Some(false))),
            (Some(End::Fenced { unknown }), act) => {
                self.fenced += 1;
                owner.left = 0;
                unknown.then_some(Event { invoked, returned: None, is_certain: false, act })
            }
            // Told that it did not happen.
            (Some(End::NotFitting), _) | (None, Act::Read(_)) => None,
            (None, _) if !operation.may_have_changed() => None,
            (None, act) => Some(Event { invoked, returned: None, is_certain: false, act }),
        };
        self.history.extend(event.map(|event| (owner.epoch, event)));
    }

    /// Whoever has scanned the row is told of what has changed, of what may have, after which it is to be scanned again, and of news.
    fn tell(&mut self, owner: &mut Owner, operation: &Operation<u64>, act: Act, end: Option<&End<u64>>) {
        let Some(copy) = &mut owner.copy else { return };
        match (end, act) {
            (Some(End::Read { content, is_news }), _) => {
                self.told += usize::from(*is_news && *copy != *content);
                if *is_news {
                    *copy = *content;
                }
                self.untold += usize::from(*copy != *content);
            }
            (Some(End::Changed), Act::Put(content)) => *copy = content,
            (Some(End::Changed), Act::Swap(_, content, _)) => *copy = Some(content),
            (None, _) if operation.may_have_changed() => owner.copy = None,
            _ => {}
        }
    }

    fn history(&self) -> Vec<Event<Act>> {
        self.history.iter().map(|(_, event)| event.clone()).collect()
    }
}

/// Three owners of the row; each carries out operations, and gives some up.
fn run(rules: Rules, succession: Succession, seed: u64) -> Run {
    let mut run = Run::new(rules, seed);
    let mut owners: Vec<Owner> = Vec::new();
    loop {
        let are_done = owners.iter().all(Owner::is_done);
        let comes = match succession {
            Succession::After => are_done,
            Succession::Amid => are_done || run.dice.below(12) == 0,
        };
        if comes && owners.len() < 3 {
            let (epoch, left) = (Epoch(1 + owners.len() as i64), 2 + run.dice.below(6));
            let remembered = Remembered { floor: run.floor, ..Remembered::default() };
            owners.push(Owner { epoch, remembered, left, under_way: None, copy: None });
        } else if are_done {
            return run;
        }
        let busy: Vec<usize> = (0..owners.len()).filter(|at| !owners[*at].is_done()).collect();
        let at = busy[run.dice.below(busy.len() as u64) as usize];
        // Who was followed puts no floors, and does not know of those that others put: its lease has to hold it (`Floors`).
        let is_alone = owners.len() == at + 1 && owners[..at].iter().all(Owner::is_done);
        run.turn(&mut owners[at], is_alone);
        run.world.stir(&mut run.dice);
    }
}

const RUNS: u64 = 20_000;

fn seed(at: u64) -> u64 {
    (at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn violations(rules: Rules, succession: Succession) -> Vec<u64> {
    let is_violation = |at: &u64| check(&Register, &run(rules, succession, seed(*at)).history(), 100_000).is_err();
    (0..RUNS).filter(is_violation).collect()
}

#[test]
fn whatever_is_lost_late_or_repeated_nothing_old_is_read_and_nothing_new_is_lost() {
    for succession in [Succession::After, Succession::Amid] {
        assert_eq!(violations(Rules::ALL, succession), [0; 0]);
        let runs: Vec<Run> = (0..RUNS).map(|at| run(Rules::ALL, succession, seed(at))).collect();
        let count = |of: fn(&Run) -> usize| runs.iter().map(of).sum::<usize>();
        assert_eq!(count(|run| run.untold), 0, "what a read has shown was not told");
        assert!(count(|run| run.restamped) > 1_000 && count(|run| run.settled) > 1_000, "little has happened");
        assert!(count(|run| run.fences) > 1_000 && count(|run| run.told) > 100, "little has happened");
        assert_eq!(count(|run| run.fenced) > 1_000, succession == Succession::Amid);
    }
}

#[test]
fn an_owner_that_serves_rows_of_an_earlier_one_as_they_are_is_found_out() {
    assert!(!violations(Rules { stamps_what_it_serves: false, ..Rules::ALL }, Succession::After).is_empty());
}

#[test]
fn an_owner_that_settles_a_doubt_by_a_read_is_found_out() {
    assert!(!violations(Rules { settles_by_writing: false, ..Rules::ALL }, Succession::After).is_empty());
}

#[test]
fn an_owner_that_serves_what_came_below_the_floor_is_found_out() {
    assert!(!violations(Rules { heeds_floors: false, ..Rules::ALL }, Succession::After).is_empty());
}

#[test]
fn an_owner_that_forgets_that_something_was_in_doubt_is_found_out() {
    let rules = Rules { keeps_news: false, ..Rules::ALL };
    assert_ne!((0..RUNS).map(|at| run(rules, Succession::After, seed(at)).untold).sum::<usize>(), 0);
}

fn stamp(epoch: i64, serial: i64) -> Stamp {
    Stamp { epoch: Epoch(epoch), serial }
}

fn known(stamp: Stamp) -> Remembered {
    Remembered { stamp: Some(stamp), ..Remembered::default() }
}

fn put(value: u64) -> Goal<u64> {
    Goal::Change { content: Some(value), fits: None }
}

#[test]
fn a_known_stamp_saves_the_read() {
    let mut operation = Operation::new(Epoch(2), Rules::ALL, put(7), known(stamp(2, 5)));
    let row = Row { stamp: stamp(2, 9), content: Some(7) };
    assert_eq!(operation.ask(9), Ask::Write { expected: Some(stamp(2, 5)), row });
    assert_eq!(operation.on(Heard::Applied), Some(End::Changed));
    assert_eq!(operation.stamp_left(), Some(stamp(2, 9)));
}

#[test]
fn a_row_of_its_own_below_the_floor_is_stamped_anew_without_content() {
    let remembered = Remembered { floor: Some(stamp(2, 8)), ..Remembered::default() };
    let mut read = Operation::new(Epoch(2), Rules::ALL, Goal::<u64>::Read, remembered);
    assert_eq!(read.ask(9), Ask::Read);
    assert_eq!(read.on(Heard::Row(Some(Row { stamp: stamp(2, 7), content: Some(1) }))), None);
    let row = Row { stamp: stamp(2, 10), content: None };
    assert_eq!(read.ask(10), Ask::Write { expected: Some(stamp(2, 7)), row });
    assert_eq!(read.on(Heard::Applied), Some(End::Read { content: None, is_news: true }));
    // At the floor it counts.
    let mut read = Operation::new(Epoch(2), Rules::ALL, Goal::<u64>::Read, remembered);
    assert_eq!(read.ask(11), Ask::Read);
    let end = read.on(Heard::Row(Some(Row { stamp: stamp(2, 8), content: Some(1) })));
    assert_eq!(end, Some(End::Read { content: Some(1), is_news: false }));
}

#[test]
fn a_later_owner_ends_whatever_is_on_its_way() {
    let row = || Some(Row { stamp: stamp(3, 1), content: Some(1) });
    let mut read = Operation::new(Epoch(2), Rules::ALL, Goal::<u64>::Read, Remembered::default());
    assert_eq!(read.ask(1), Ask::Read);
    assert_eq!(read.on(Heard::Row(row())), Some(End::Fenced { unknown: false }));
    let mut change = Operation::new(Epoch(2), Rules::ALL, put(7), known(stamp(2, 5)));
    assert!(matches!(change.ask(1), Ask::Write { .. }));
    assert_eq!(change.on(Heard::NotApplied), None);
    assert_eq!(change.ask(2), Ask::Read);
    assert_eq!(change.on(Heard::Row(row())), Some(End::Fenced { unknown: false }));
    // What was lost may have been there before the other came.
    let mut change = Operation::new(Epoch(2), Rules::ALL, put(7), known(stamp(2, 5)));
    assert!(matches!(change.ask(1), Ask::Write { .. }));
    assert_eq!(change.on(Heard::Lost), None);
    assert!(matches!(change.ask(2), Ask::Write { .. }));
    assert_eq!(change.on(Heard::NotApplied), None);
    assert_eq!(change.ask(3), Ask::Read);
    assert_eq!(change.on(Heard::Row(row())), Some(End::Fenced { unknown: true }));
}
