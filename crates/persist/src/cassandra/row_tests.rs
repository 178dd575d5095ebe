//! The protocol on a row under a network that loses, delays and repeats, with owners that follow each other while what the earlier ones
//! have sent is still on its way: what clients see must be linearizable, and with either rule taken away it must be seen not to be.

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

/// What an owner knows of the row.
struct Owner {
    epoch: Epoch,
    stamp: Option<Stamp>,
    doubt: Option<Doubt>,
}

struct Run {
    history: Vec<Event<Act>>,
    restamped: usize,
    settled: usize,
}

/// Owners of the row follow each other; each carries out operations, and gives some up.
fn run(rules: Rules, seed: u64) -> Run {
    let (mut dice, mut world) = (Dice(seed), World::default());
    let (mut clock, mut serial, mut value) = (0, 0, 0);
    let mut run = Run { history: Vec::new(), restamped: 0, settled: 0 };
    for epoch in 1..=3 {
        let mut owner = Owner { epoch: Epoch(epoch), stamp: None, doubt: None };
        for _ in 0..2 + dice.below(6) {
            value += 1;
            let (act, goal) = match dice.below(6) {
                0..3 => (Act::Read(None), Goal::Read),
                3 => (Act::Put(None), Goal::Change { content: None, fits: None }),
                4 if value > 1 => {
                    let from = 1 + dice.below(value - 1);
                    let fits: Fits<u64> = Box::new(move |content| content == Some(&from));
                    (Act::Swap(from, value, None), Goal::Change { content: Some(value), fits: Some(fits) })
                }
                _ => (Act::Put(Some(value)), Goal::Change { content: Some(value), fits: None }),
            };
            let is_read = matches!(goal, Goal::Read);
            let had_doubt = owner.doubt.is_some();
            let mut operation = Operation::new(owner.epoch, rules, goal, owner.stamp, owner.doubt);
            clock += 1;
            let invoked = clock;
            let patience = 1 + dice.below(8);
            let mut end = None;
            for _ in 0..patience {
                serial += 1;
                let ask = operation.ask(serial);
                run.restamped += usize::from(is_read && matches!(ask, Ask::Write { .. }));
                let heard = world.hear(ask, &mut dice);
                end = operation.on(heard);
                world.stir(&mut dice);
                if end.is_some() {
                    break;
                }
            }
            clock += 1;
            (owner.stamp, owner.doubt) = match &end {
                Some(_) => (operation.stamp_left(), None),
                None => (None, operation.doubt_left()),
            };
            run.settled += usize::from(had_doubt && owner.doubt.is_none());
            if end.is_some() {
                // Whatever was in doubt is settled once somebody has been served: it is there, or never will be.
                run.history.iter_mut().for_each(|event| event.returned = event.returned.or(Some(clock)));
            }
            let certain = |act| Some(Event { invoked, returned: Some(clock), is_certain: true, act });
            let event = match (end, act) {
                (Some(End::Read(seen)), _) => certain(Act::Read(seen)),
                (Some(End::Changed), Act::Swap(from, to, _)) => certain(Act::Swap(from, to, Some(true))),
                (Some(End::Changed), act) => certain(act),
                (Some(End::NotFitting), Act::Swap(from, to, _)) => certain(Act::Swap(from, to, Some(false))),
                // Told that it did not happen.
                (Some(End::NotFitting), _) | (None, Act::Read(_)) => None,
                (Some(End::Fenced { .. }), _) => unreachable!("owners follow each other"),
                (None, _) if !operation.may_have_changed() => None,
                (None, act) => Some(Event { invoked, returned: None, is_certain: false, act }),
            };
            run.history.extend(event);
            for _ in 0..dice.below(3) {
                world.stir(&mut dice);
            }
        }
    }
    run
}

const RUNS: u64 = 20_000;

fn seed(at: u64) -> u64 {
    (at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn violations(rules: Rules) -> Vec<u64> {
    (0..RUNS).filter(|at| check(&Register, &run(rules, seed(*at)).history, 100_000).is_err()).collect()
}

#[test]
fn whatever_is_lost_late_or_repeated_nothing_old_is_read_and_nothing_new_is_lost() {
    assert_eq!(violations(Rules::ALL), [0; 0]);
    let runs: Vec<Run> = (0..RUNS).map(|at| run(Rules::ALL, seed(at))).collect();
    let count = |of: fn(&Run) -> usize| runs.iter().map(of).sum::<usize>();
    assert!(count(|run| run.restamped) > 1_000 && count(|run| run.settled) > 1_000, "little has happened");
}

#[test]
fn an_owner_that_serves_rows_of_an_earlier_one_as_they_are_is_found_out() {
    assert!(!violations(Rules { stamps_what_it_serves: false, ..Rules::ALL }).is_empty());
}

#[test]
fn an_owner_that_settles_a_doubt_by_a_read_is_found_out() {
    assert!(!violations(Rules { settles_by_writing: false, ..Rules::ALL }).is_empty());
}

fn stamp(epoch: i64, serial: i64) -> Stamp {
    Stamp { epoch: Epoch(epoch), serial }
}

fn put(value: u64) -> Goal<u64> {
    Goal::Change { content: Some(value), fits: None }
}

#[test]
fn a_known_stamp_saves_the_read() {
    let mut operation = Operation::new(Epoch(2), Rules::ALL, put(7), Some(stamp(2, 5)), None);
    let row = Row { stamp: stamp(2, 9), content: Some(7) };
    assert_eq!(operation.ask(9), Ask::Write { expected: Some(stamp(2, 5)), row });
    assert_eq!(operation.on(Heard::Applied), Some(End::Changed));
    assert_eq!(operation.stamp_left(), Some(stamp(2, 9)));
}

#[test]
fn a_later_owner_ends_whatever_is_on_its_way() {
    let row = || Some(Row { stamp: stamp(3, 1), content: Some(1) });
    let mut read = Operation::new(Epoch(2), Rules::ALL, Goal::<u64>::Read, None, None);
    assert_eq!(read.ask(1), Ask::Read);
    assert_eq!(read.on(Heard::Row(row())), Some(End::Fenced { unknown: false }));
    let mut change = Operation::new(Epoch(2), Rules::ALL, put(7), Some(stamp(2, 5)), None);
    assert!(matches!(change.ask(1), Ask::Write { .. }));
    assert_eq!(change.on(Heard::NotApplied), None);
    assert_eq!(change.ask(2), Ask::Read);
    assert_eq!(change.on(Heard::Row(row())), Some(End::Fenced { unknown: false }));
    // What was lost may have been there before the other came.
    let mut change = Operation::new(Epoch(2), Rules::ALL, put(7), Some(stamp(2, 5)), None);
    assert!(matches!(change.ask(1), Ask::Write { .. }));
    assert_eq!(change.on(Heard::Lost), None);
    assert!(matches!(change.ask(2), Ask::Write { .. }));
    assert_eq!(change.on(Heard::NotApplied), None);
    assert_eq!(change.ask(3), Ask::Read);
    assert_eq!(change.on(Heard::Row(row())), Some(End::Fenced { unknown: true }));
}
