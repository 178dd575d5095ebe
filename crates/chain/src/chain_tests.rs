//! Operations of one key, as they wait for each other.

use guira_item::{Arithmetic, ArithmeticMode, Delete, Failure, store::StoreErrorKind};

use super::*;

const NOW: Time = Time(100);

/// A chain with what it takes to drive it, whose replies go to numbers.
struct Driver {
    chain: Chain<u32>,
    now: Time,
    generation: Generation,
    last_version: u64,
    buries: bool,
}

impl Driver {
    fn new() -> Self {
        Self { chain: Chain::default(), now: NOW, generation: Generation(0), last_version: 0, buries: false }
    }

    fn ask(&mut self, number: u32, operation: Operation<'_>) {
        self.chain.push(Owned::of(&operation), self.now, number);
    }

    fn advance(&mut self) -> (Next, Vec<(u32, Reply)>) {
        let mut out = Vec::new();
        let mut setting = Setting {
            now: self.now,
            generation: self.generation,
            key_len: 1,
            len_max: 100,
            last_version: &mut self.last_version,
            next_version: |last| last + 1,
            versions_shown: true,
            buries: self.buries,
        };
        (self.chain.advance(&mut setting, &mut out), out)
    }

    fn written(&mut self, outcome: Result<(), &StoreError>) -> Vec<u32> {
        let mut out = Vec::new();
        self.chain.on_written(outcome, &mut out);
        out.into_iter().map(|(number, _)| number).collect()
    }
}

fn item(value: &[u8]) -> Item {
    Item {
        flags: 0,
        version: 9,
        expiry: Expiry::NEVER,
        generation: Generation(0),
        stale: false,
        win_sent: false,
        fetched: false,
        idle_s: 5,
        value: value.into(),
    }
}

fn store(mode: StoreMode, value: &[u8]) -> Operation<'_> {
    Operation::Store(Store { mode, flags: 0, expiry: Expiry::NEVER, cas: None, vivify: None, value })
}

const GET: Operation<'static> = Operation::Get(Get::PLAIN);
const DELETE: Operation<'static> = Operation::Delete(Delete { cas: None, invalidate: None });
const INCREMENT: Operation<'static> = Operation::Arithmetic(Arithmetic {
    mode: ArithmeticMode::Increment,
    delta: 1,
    cas: None,
    touch: None,
    create: None,
});

fn value_written(chain: &Chain<u32>) -> Option<&[u8]> {
    match chain.written() {
        Base::Present(item) => Some(&item.value),
        _ => None,
    }
}

#[test]
fn what_is_the_same_whatever_is_there_needs_no_read() {
    let mut driver = Driver::new();
    driver.ask(1, store(StoreMode::Set, b"a"));
    driver.ask(2, store(StoreMode::Append, b"b"));
    driver.ask(3, GET);
    assert_eq!(driver.advance().0, Next::Write);
    assert_eq!(value_written(&driver.chain), Some(&b"ab"[..]));
    assert_eq!(driver.written(Ok(())), [1, 2, 3]);
    assert_eq!(driver.advance().0, Next::Rest);
    for operation in [store(StoreMode::Add, b"a"), GET, DELETE, INCREMENT] {
        let mut driver = Driver::new();
        driver.ask(1, operation);
        assert_eq!(driver.advance().0, Next::Read, "{operation:?}");
    }
}

#[test]
fn only_what_has_come_of_all_is_written() {
    let mut driver = Driver::new();
    driver.ask(0, DELETE);
    (1..=50).for_each(|number| driver.ask(number, INCREMENT));
    driver.ask(51, store(StoreMode::Add, b"7"));
    driver.ask(52, INCREMENT);
    assert_eq!(driver.advance().0, Next::Read);
    driver.chain.on_read(Base::Present(item(b"3")));
    assert_eq!(driver.advance().0, Next::Write);
    assert_eq!(value_written(&driver.chain), Some(&b"8"[..]));
    // None is answered before it is written.
    assert_eq!(driver.written(Ok(())), (0..=52).collect::<Vec<_>>());
}

#[test]
fn a_read_that_changes_nothing_writes_nothing_and_counts_as_a_use() {
    let mut driver = Driver::new();
    driver.ask(1, GET);
    assert_eq!(driver.advance().0, Next::Read);
    driver.chain.on_read(Base::Present(item(b"x")));
    let (next, out) = driver.advance();
    assert_eq!(next, Next::Rest);
    let [(1, Reply::Hit(hit, Some(value)))] = &out[..] else { panic!("{out:?}") };
    // As it was before.
    assert_eq!((hit.fetched, hit.idle_s, &value[..]), (false, 5, &b"x"[..]));
    assert!(driver.chain.is_used());
    assert!(matches!(driver.chain.base(), Base::Present(Item { fetched: true, idle_s: 0, .. })));
}

#[test]
fn what_is_flushed_or_over_is_not_there() {
    let dead = [
        (Item { expiry: Expiry::at(NOW), ..item(b"x") }, Death::Expired),
        (Item { generation: Generation(0), ..item(b"x") }, Death::Flushed),
    ];
    for (item, wanted) in dead {
        let mut driver = Driver::new();
        driver.generation = Generation(u32::from(wanted == Death::Flushed));
        driver.ask(1, GET);
        assert_eq!(driver.advance().0, Next::Read);
        driver.chain.on_read(Base::Present(item));
        let (_, out) = driver.advance();
        assert!(matches!(out[..], [(1, Reply::Answer(Answer::Miss, Some(death)))] if death == wanted), "{out:?}");
    }
}

#[test]
fn who_only_reads_is_asked_again_after_a_failure_and_in_order() {
    for unknown in [false, true] {
        let mut driver = Driver::new();
        driver.ask(1, GET);
        driver.ask(2, store(StoreMode::Set, b"new"));
        driver.ask(3, GET);
        assert_eq!(driver.advance().0, Next::Read);
        driver.chain.on_read(Base::Present(item(b"old")));
        assert_eq!(driver.advance().0, Next::Write);
        driver.ask(4, DELETE);
        let error = StoreError { unknown, ..StoreError::refused(StoreErrorKind::Unavailable, "a fault") };
        assert_eq!(driver.written(Err(&error)), [2]);
        if unknown {
            assert_eq!(driver.advance().0, Next::Read, "nobody knows what is there");
            driver.chain.on_read(Base::Present(item(b"old")));
        }
        assert_eq!(driver.advance().0, Next::Write);
        assert_eq!(driver.chain.written(), &Base::Absent(None));
        assert_eq!(driver.written(Ok(())), [1, 3, 4]);
    }
}

#[test]
fn what_would_be_too_large_changes_nothing() {
    let mut driver = Driver::new();
    let large = [b'x'; 60];
    driver.ask(1, store(StoreMode::Set, &large));
    driver.ask(2, store(StoreMode::Append, &large));
    driver.ask(3, GET);
    assert_eq!(driver.advance().0, Next::Write);
    assert_eq!(value_written(&driver.chain).map(<[u8]>::len), Some(60));
    let mut out = Vec::new();
    driver.chain.on_written(Ok(()), &mut out);
    assert!(matches!(out[1], (2, Reply::Answer(Answer::TooLarge, None))), "{:?}", out[1]);
}

#[test]
fn that_an_item_is_over_is_written_before_it_is_told_where_it_has_to_be() {
    let over = Item { expiry: Expiry::at(Time(50)), ..item(b"x") };
    let refused = StoreError::refused(StoreErrorKind::Busy, "not now");
    for (outcome, told) in [(Ok(()), Answer::Miss), (Err(&refused), Answer::Failed(Failure::Busy))] {
        let mut driver = Driver { buries: true, ..Driver::new() };
        driver.ask(1, GET);
        assert_eq!(driver.advance().0, Next::Read);
        driver.chain.on_read(Base::Present(over.clone()));
        let (next, out) = driver.advance();
        assert!(next == Next::Write && out.is_empty(), "nobody is told yet");
        assert_eq!(driver.chain.written(), &Base::Absent(None));
        let mut out = Vec::new();
        driver.chain.on_written(outcome, &mut out);
        // Nor asked again for ever, if it cannot be written.
        assert!(matches!(out[..], [(1, Reply::Answer(answer, _))] if answer == told), "{out:?}");
        assert_eq!(driver.advance().0, Next::Rest);
    }
    // Where the clock says it each time nothing is written.
    let mut driver = Driver::new();
    driver.ask(1, GET);
    assert_eq!(driver.advance().0, Next::Read);
    driver.chain.on_read(Base::Present(over));
    assert_eq!(driver.advance().0, Next::Rest);
}
