//! How long a batch keeps a partition.

use guira_engine_suite::caller::{Answers, NOW, Reply, store};
use guira_item::{Get, Key, StoreMode};

use super::*;
use crate::{Config, Cphash};

const VALUE_LEN: usize = 4 << 10;
const VALUE: &[u8] = &[7; VALUE_LEN];

/// Values of which a turn writes no more.
const PER_TURN: usize = HELD_LEN_MAX / VALUE_LEN;

/// Two turns and a half.
const COUNT: usize = PER_TURN * 5 / 2;

/// How each turn of such a batch ends, and how many requests are left then.
fn turns(engine: &Cphash, operation: Operation<'_>) -> Vec<(bool, usize)> {
    let shards = engine.shared();
    let is_first = |key: &String| engine.partition(key.as_bytes()) == 0;
    let names: Vec<String> = (0..).map(|i| format!("key{i}")).filter(is_first).take(COUNT).collect();
    let requests: Vec<Request<'_>> =
        names.iter().map(|name| Request { key: Key::new(name.as_bytes()).expect("a key"), operation }).collect();
    let mut batch = Batch::new(0, 2);
    batch.sort(&**shards, &requests);
    let mut window = Window { batch: &mut batch, shards, now: NOW, answered: 0 };
    let mut turn = window.batch.turn(0);
    let mut turns = Vec::new();
    while turns.last().is_none_or(|(is_done, _)| !is_done) {
        let ended = window.try_turn(&requests, &mut turn).expect("nobody has the partition");
        turns.push((matches!(ended, Ended::Done), turn.range.len()));
    }
    let mut answers = Answers::default();
    window.answer(&requests, 0, &mut answers);
    assert_eq!(answers.list.len(), COUNT);
    assert!(answers.list.iter().all(|reply| *reply != Reply::Other(Answer::OutOfMemory)));
    turns
}

#[test]
fn a_turn_ends_when_enough_has_been_written() {
    let engine = Cphash::new(Config { partitions: Some(2), server_threads: Some(0), ..Config::new(16 << 20) });
    let engine = engine.expect("memory");
    let left = |turns: usize| COUNT - turns * PER_TURN;
    let cut_short = vec![(false, left(1)), (false, left(2)), (true, 0)];
    assert_eq!(turns(&engine, store(StoreMode::Set, VALUE)), cut_short);
    assert_eq!(turns(&engine, store(StoreMode::Set, VALUE)), cut_short, "in the place of others");
    assert_eq!(turns(&engine, store(StoreMode::Append, b"!")), cut_short, "what is there is copied");
    assert_eq!(turns(&engine, store(StoreMode::Add, VALUE)), [(true, 0)], "nothing is written");
    assert_eq!(turns(&engine, Operation::Get(Get::PLAIN)), [(true, 0)]);
}
