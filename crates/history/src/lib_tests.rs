//! Histories that can have been, and ones that cannot.

use rand::{RngExt, SeedableRng, rngs::SmallRng};

use super::*;

/// A number that is written and read.
struct Register;

#[derive(Clone, Copy, PartialEq, Debug)]
enum Act {
    Write(u32),
    Read(u32),
    /// Sees what was there before.
    Add(u32, Option<u32>),
}

impl Model for Register {
    type State = u32;
    type Act = Act;

    fn first(&self) -> u32 {
        0
    }

    fn step(&self, state: &u32, act: &Act) -> Option<u32> {
        match act {
            Act::Write(number) => Some(*number),
            Act::Read(seen) => (seen == state).then_some(*state),
            Act::Add(number, seen) => seen.is_none_or(|seen| seen == *state).then_some(state + number),
        }
    }
}

fn event(invoked: u64, returned: u64, act: Act) -> Event<Act> {
    Event { invoked, returned: Some(returned), is_certain: true, act }
}

fn verdict(history: &[Event<Act>]) -> Result<(), Violation> {
    check(&Register, history, 1_000_000)
}

#[test]
fn what_can_have_happened_is_linearizable() {
    use Act::{Add, Read, Write};
    assert_eq!(verdict(&[]), Ok(()));
    assert_eq!(verdict(&[event(0, 1, Write(1)), event(2, 3, Read(1))]), Ok(()));
    // Both orders, while it is written.
    assert_eq!(verdict(&[event(0, 9, Write(1)), event(1, 2, Read(0)), event(3, 4, Read(1))]), Ok(()));
    // The return of one and the invocation of another at one moment: they may have overlapped.
    assert_eq!(verdict(&[event(0, 5, Write(1)), event(5, 6, Read(0))]), Ok(()));
    // Nobody knows whether it happened.
    assert_eq!(verdict(&[lost(0, Add(5, None)), event(1, 2, Read(0)), event(7, 8, Read(5))]), Ok(()));
    assert_eq!(verdict(&[lost(0, Add(5, None)), event(1, 2, Read(0))]), Ok(()));
    // Nor whether this did, but by 5 it had or never would.
    let killed = Event { invoked: 0, returned: Some(5), is_certain: false, act: Add(5, None) };
    assert_eq!(verdict(&[killed.clone(), event(1, 2, Read(0)), event(7, 8, Read(5))]), Ok(()));
    assert_eq!(verdict(&[killed, event(1, 2, Read(0)), event(7, 8, Read(0))]), Ok(()));
}

#[test]
fn what_cannot_have_happened_is_not() {
    use Act::{Add, Read, Write};
    let violated = |history: &[Event<Act>]| assert!(matches!(verdict(history), Err(Violation::Impossible { .. })));
    // Older than what was acknowledged.
    violated(&[event(0, 1, Write(1)), event(2, 3, Read(0))]);
    // New, then old again.
    violated(&[event(0, 9, Write(1)), event(1, 2, Read(1)), event(3, 4, Read(0))]);
    // From nowhere.
    violated(&[event(0, 1, Read(7))]);
    // Two took the same number.
    violated(&[event(0, 9, Add(1, Some(0))), event(0, 9, Add(1, Some(0)))]);
    // Lost, seen, and gone.
    violated(&[lost(0, Add(5, None)), event(1, 2, Read(5)), event(3, 4, Read(0))]);
    // Not there when it was over, and there later.
    let killed = Event { invoked: 0, returned: Some(5), is_certain: false, act: Add(5, None) };
    violated(&[killed.clone(), event(6, 7, Read(0)), event(8, 9, Read(5))]);
    violated(&[killed, event(6, 7, Read(5)), event(8, 9, Read(0))]);
}

#[test]
fn a_search_that_is_cut_short_has_not_succeeded() {
    let history: Vec<_> = (0..20).map(|number| event(0, 9, Act::Write(number))).collect();
    assert_eq!(check(&Register, &history, 5), Err(Violation::OutOfSteps));
}

/// Writes of numbers that grow.
struct Growing;

impl Model for Growing {
    type State = u32;
    type Act = Act;

    fn first(&self) -> u32 {
        0
    }

    fn step(&self, state: &u32, act: &Act) -> Option<u32> {
        Register.step(state, act).filter(|after| after > state || matches!(act, Act::Read(_)))
    }

    fn rank(&self, act: &Act) -> Option<u64> {
        match act {
            Act::Write(number) => Some(2 * u64::from(*number)),
            Act::Read(number) => Some(2 * u64::from(*number) + 1),
            Act::Add(..) => None,
        }
    }
}

#[test]
fn ranks_save_looking_at_what_cannot_be() {
    // All at once, and a read of the first one at their end: without ranks every subset would be looked at.
    let writes = (1..=40).map(|number| event(u64::from(number), 1_000 + u64::from(number), Act::Write(number)));
    let reads = [event(900, 901, Act::Read(1)), event(902, 903, Act::Read(1))];
    let history: Vec<_> = writes.chain(reads).collect();
    assert_eq!(check(&Growing, &history, 10_000), Ok(()));
    let late = [event(2_000, 2_001, Act::Read(39))];
    let history: Vec<_> = history.into_iter().chain(late).collect();
    assert!(matches!(check(&Growing, &history, 10_000), Err(Violation::Impossible { .. })));
}

/// The same, which says what cannot be read any more.
struct Floored;

impl Model for Floored {
    type State = u32;
    type Act = Act;

    fn first(&self) -> u32 {
        Growing.first()
    }

    fn step(&self, state: &u32, act: &Act) -> Option<u32> {
        Growing.step(state, act)
    }

    fn rank(&self, act: &Act) -> Option<u64> {
        Growing.rank(act)
    }

    fn floor(&self, state: &u32) -> u64 {
        2 * u64::from(*state)
    }
}

#[test]
fn floors_save_looking_at_what_spoils_the_rest() {
    // Many that may have happened, in any order, while the same is read over and over; then one of them is.
    let many = (0..40).map(|number| lost(10 + number, Act::Add(1_000 + number as u32, None)));
    let reads = (0..40).map(|number| event(100 + 10 * number, 105 + 10 * number, Act::Read(1)));
    let seen = |number| event(1_000, 1_001, Act::Read(number));
    let history: Vec<_> = [event(0, 1, Act::Write(1))].into_iter().chain(many).chain(reads).collect();
    let then = |number| history.iter().cloned().chain([seen(number)]).collect::<Vec<_>>();
    assert_eq!(check(&Floored, &then(1_021), 1_000), Ok(()));
    assert!(matches!(check(&Floored, &then(900), 10_000), Err(Violation::Impossible { .. })));
    assert_eq!(check(&Growing, &then(900), 10_000), Err(Violation::OutOfSteps));
}

/// An act of which nobody was told anything.
fn lost(invoked: u64, act: Act) -> Event<Act> {
    Event { invoked, returned: None, is_certain: false, act }
}

#[test]
fn what_may_not_have_happened_is_tried_last() {
    // In any order, or not at all: not at all it is, as who adds after them sees.
    let many = (0..60).map(|number| lost(10 + number, Act::Add(1 << (number % 30), None)));
    let seen = [event(100, 101, Act::Add(1, Some(7))), event(102, 103, Act::Read(8))];
    let history: Vec<_> = [event(0, 1, Act::Write(7))].into_iter().chain(many).chain(seen).collect();
    assert_eq!(check(&Register, &history, 1_000), Ok(()));
}

#[test]
fn what_is_lost_and_written_over_is_as_good_as_what_never_was() {
    // Each may have been there in between, and none of them was, to those who look.
    let many = (0..100).map(|number| lost(10 + number, Act::Write(1_000 + number as u32)));
    let history: Vec<_> =
        [event(0, 1, Act::Write(7))].into_iter().chain(many).chain([event(200, 201, Act::Read(8))]).collect();
    let state = "7".to_owned();
    assert_eq!(check(&Register, &history, 20_000), Err(Violation::Impossible { at: 101, longest: 1, state }));
}

#[test]
fn two_in_the_wrong_order_do_not_make_it_try_all_that_was_lost() {
    let many = (0..40).map(|number| lost(0, Act::Add(1 << (number % 30), None)));
    for (first, then) in [(7, 8), (8, 7)] {
        let writes = [event(1, 10, Act::Write(first)), event(1, 10, Act::Write(then))];
        let history: Vec<_> = many.clone().chain(writes).chain([event(20, 21, Act::Read(7))]).collect();
        assert_eq!(check(&Register, &history, 10_000), Ok(()));
    }
}

#[test]
fn what_does_the_same_is_the_same() {
    // Thirty of sixty, and it does not matter which.
    let many = (0..60).map(|number| lost(10 + number, Act::Add(1, None)));
    let seen = |number| [event(100, 101, Act::Read(30)), event(102, 103, Act::Read(number))];
    let then = |number| many.clone().chain(seen(number)).collect::<Vec<_>>();
    assert_eq!(check(&Register, &then(60), 1_000), Ok(()));
    assert!(matches!(check(&Register, &then(61), 1_000), Err(Violation::Impossible { .. })));
    assert!(matches!(check(&Register, &then(29), 1_000), Err(Violation::Impossible { .. })));
    // But the second is one that is over before the first.
    let over = Event { invoked: 2, returned: Some(3), is_certain: false, act: Act::Add(1, None) };
    let history = [lost(0, Act::Add(1, None)), over, event(4, 5, Act::Read(1)), event(6, 7, Act::Read(2))];
    assert_eq!(check(&Register, &history, 1_000), Ok(()));
    let one = |number: u64| Event {
        invoked: number,
        returned: (number % 2 == 1).then_some(50),
        is_certain: false,
        act: Act::Add(1, None),
    };
    let then = |number| (0..30).map(one).chain([event(100, 101, Act::Read(number))]).collect::<Vec<_>>();
    assert_eq!(check(&Register, &then(30), 10_000), Ok(()));
    assert!(matches!(check(&Register, &then(31), 10_000), Err(Violation::Impossible { .. })));
}

/// Whether there is an order, by looking at all of them.
fn has_an_order<M>(model: &M, history: &[Event<Act>], done: &mut Vec<usize>, state: u32) -> bool
where
    M: Model<State = u32, Act = Act>,
{
    let is_left = |at: &usize| !done.contains(at);
    let must = |event: &Event<Act>| event.is_certain && event.returned.is_some();
    let left: Vec<usize> = (0..history.len()).filter(is_left).collect();
    if left.iter().all(|at| !must(&history[*at])) {
        return true;
    }
    left.iter().any(|&at| {
        // Nothing that is left and has happened was over before, nor did anything that is done begin later than this one was over.
        let Event { invoked, returned, act, .. } = &history[at];
        let is_early = left.iter().all(|other| !must(&history[*other]) || history[*other].returned >= Some(*invoked));
        let is_late = done.iter().any(|other| returned.is_some_and(|returned| history[*other].invoked > returned));
        let Some(after) = model.step(&state, act).filter(|_| is_early && !is_late) else { return false };
        done.push(at);
        let has = has_an_order(model, history, done, after);
        done.pop();
        has
    })
}

#[test]
fn what_is_found_is_what_looking_at_all_orders_finds() {
    let mut random = SmallRng::seed_from_u64(3);
    let mut found = [0; 2];
    for _ in 0..20_000 {
        let history: Vec<_> = (0..random.random_range(1..8))
            .map(|_| {
                let invoked = random.random_range(0..12);
                let act = match random.random_range(0..4) {
                    0 => Act::Write(random.random_range(0..3)),
                    1 => Act::Add(1, random.random_bool(0.5).then(|| random.random_range(0..3))),
                    _ => Act::Read(random.random_range(0..4)),
                };
                let returned = random.random_bool(0.8).then(|| invoked + random.random_range(0..6));
                Event { invoked, returned, is_certain: random.random_bool(0.6), act }
            })
            .collect();
        let has = has_an_order(&Register, &history, &mut Vec::new(), 0);
        found[usize::from(has)] += 1;
        assert_eq!(verdict(&history).is_ok(), has, "{history:#?}");
        let has = has_an_order(&Floored, &history, &mut Vec::new(), 0);
        assert_eq!(check(&Floored, &history, 1_000_000).is_ok(), has, "{history:#?}");
    }
    assert!(found.iter().all(|found| *found > 2_000), "{found:?}");
}

/// Acts of several clients on a register that is right, or forgets every so often.
fn random_history(random: &mut SmallRng, len: u64, forgets: bool) -> Vec<Event<Act>> {
    let (mut state, mut history) = (0, Vec::new());
    // Each takes place at 10, 20, 30... and is open for a while before and after.
    for number in 1..=len {
        let (before, after) = (random.random_range(1..35), random.random_range(1..35));
        let act = match random.random_range(0..3) {
            0 => Act::Write(number as u32),
            1 => Act::Read(state),
            _ => Act::Add(1_000, Some(state)),
        };
        let is_forgotten = forgets && number % 40 == 0 && !matches!(act, Act::Read(_));
        if !is_forgotten {
            state = Register.step(&state, &act).expect("seen as it is");
        }
        history.push(event(1_000 + 10 * number - before, 1_000 + 10 * number + after, act));
    }
    history
}

#[test]
fn long_histories_of_many_clients_are_judged_rightly() {
    let mut random = SmallRng::seed_from_u64(7);
    let mut found = 0;
    for _ in 0..100 {
        assert_eq!(verdict(&random_history(&mut random, 400, false)), Ok(()));
        found += u32::from(verdict(&random_history(&mut random, 400, true)).is_err());
    }
    // Some that are forgotten may have been written over at once.
    assert!(found > 80, "{found} of 100 histories with lost writes were found out");
}
