//! A gateway whose backend falls silent: what it is asked is refused at once after a while, and carried out again once it is heard of.

use guira_cluster::Incarnation;
use guira_item::{Answer, Failure, Get, Operation, Span, Time};
use guira_switched::{AskId, StaticFile, gateway::Happened};

use crate::asking::{BACKENDS, SET, Setting};

const REFUSED: Option<&Answer> = Some(&Answer::Failed(Failure::Away));
const STORED: Option<&Answer> = Some(&Answer::Stored { cas: 1 });
const UNKNOWN: Option<&Answer> = Some(&Answer::Failed(Failure::Unknown));

/// A setting in which somebody waits for so long.
fn waiting(answer_within_ms: u64) -> Setting {
    Setting::new(StaticFile { answer_within_ms, ..StaticFile::default() })
}

fn away(setting: &Setting) -> u64 {
    setting.gateway.counts().away
}

/// A setting whose first backend answered, and then was silent for as long as it takes.
fn one_is_away() -> Setting {
    let mut setting = waiting(5_000);
    setting.reads(BACKENDS[0]);
    setting.reads(BACKENDS[1]);
    assert_eq!(setting.answers.len(), 2);
    (setting.alive, setting.answering) = (vec![BACKENDS[1]], vec![BACKENDS[1]]);
    let (read, write) = (setting.reads(BACKENDS[0]), setting.ask(BACKENDS[0], SET));
    setting.pass(Span::from_ms(4_999));
    let late = setting.reads(BACKENDS[0]);
    assert_eq!((setting.answer(read), setting.answer(write), setting.answer(late)), (None, None, None));
    setting.pass(Span::from_ms(1));
    assert_eq!((setting.answer(read), setting.answer(write)), (REFUSED, UNKNOWN));
    assert_eq!(away(&setting), 0, "these have waited");
    setting.pass(Span::from_ms(4_999));
    assert_eq!(setting.answer(late), REFUSED);
    setting
}

#[test]
fn a_backend_that_is_away_has_its_requests_refused_at_once_and_no_other_has() {
    let mut setting = one_is_away();
    let before = setting.told;
    for operation in [Operation::Get(Get::PLAIN), SET] {
        let id = setting.ask(BACKENDS[0], operation);
        assert_eq!(setting.answer(id), REFUSED);
    }
    assert_eq!((away(&setting), setting.told, setting.gateway.pending()), (2, before, 0), "nobody was asked");
    let other = setting.ask(BACKENDS[1], SET);
    assert_eq!(setting.answer(other), STORED);
}

#[test]
fn what_is_asked_once_a_backend_is_heard_of_is_carried_out() {
    let mut setting = one_is_away();
    setting.pass(Span::from_s(60));
    let id = setting.reads(BACKENDS[0]);
    assert_eq!(setting.answer(id), REFUSED, "however long it takes");
    (setting.alive, setting.answering) = (BACKENDS.to_vec(), BACKENDS.to_vec());
    // A probe finds it.
    setting.pass(Span::from_ms(5_000 / 16 + 1));
    let id = setting.ask(BACKENDS[0], SET);
    assert_eq!(setting.answer(id), STORED);
    let before = setting.told;
    setting.pass(Span::from_s(60));
    assert_eq!(setting.told, before, "and it is probed no more");
}

#[test]
fn a_backend_that_is_slow_is_not_away() {
    let mut setting = waiting(5_000);
    setting.answering = vec![];
    for _ in 0..3 {
        let id = setting.reads(BACKENDS[0]);
        assert_eq!(setting.answer(id), None);
        setting.pass(Span::from_s(5));
        assert_eq!(setting.answer(id), REFUSED);
    }
    assert_eq!(away(&setting), 0);
}

#[test]
fn a_backend_is_not_away_for_one_lost_answer_however_short_a_time_anybody_waits() {
    let mut setting = waiting(100);
    (setting.alive, setting.answering) = (vec![], vec![]);
    let id = setting.reads(BACKENDS[0]);
    setting.pass(Span::from_ms(100));
    assert_eq!(setting.answer(id), REFUSED);
    // Nobody asks it anything meanwhile.
    setting.pass(Span::from_ms(1_500));
    setting.alive = BACKENDS.to_vec();
    setting.pass(Span::from_s(1));
    let id = setting.reads(BACKENDS[0]);
    assert_eq!((setting.answer(id), away(&setting)), (None, 0));
}

#[test]
fn of_a_key_that_is_cached_only_the_cache_node_is_asked_and_where_it_says_nothing_that_is_an_end() {
    let mut setting = one_is_away();
    setting.is_given_a_rule(BACKENDS[0]);
    let before = away(&setting);
    let id = setting.reads(BACKENDS[0]);
    assert_eq!(setting.answer(id), None, "the cache node may have it");
    setting.pass(Span::from_ms(500));
    assert_eq!((setting.answer(id), away(&setting)), (REFUSED, before + 1));
}

#[test]
fn a_cache_node_that_has_not_got_it_is_not_to_pass_it_on() {
    let mut setting = one_is_away();
    setting.is_given_a_rule(BACKENDS[0]);
    setting.has_cache = true;
    let before = away(&setting);
    let id = setting.reads(BACKENDS[0]);
    assert_eq!((setting.answer(id), away(&setting)), (REFUSED, before + 1));
}

#[test]
fn a_gateway_that_has_never_met_its_backend_waits_once() {
    let mut setting = waiting(5_000);
    (setting.alive, setting.answering) = (vec![], vec![]);
    setting.is_given_a_rule(BACKENDS[0]);
    let id = setting.reads(BACKENDS[0]);
    setting.pass(Span::from_s(5));
    assert_eq!(setting.answer(id), REFUSED);
    let id = setting.reads(BACKENDS[0]);
    assert_eq!((setting.answer(id), away(&setting)), (REFUSED, 1));
}

#[test]
fn what_is_asked_of_the_next_life_of_a_backend_is_not_sent_to_the_one_before() {
    let mut setting = one_is_away();
    setting.incarnation = Incarnation(10);
    (setting.alive, setting.answering) = (BACKENDS.to_vec(), BACKENDS.to_vec());
    setting.pass(Span::from_ms(5_000 / 16 + 1));
    let id = setting.ask(BACKENDS[0], SET);
    assert_eq!(setting.answer(id), STORED);
}

#[test]
fn a_flush_is_refused_before_anybody_is_asked_if_one_is_away() {
    let mut setting = one_is_away();
    let before = setting.told;
    setting.step(Happened::Flush(AskId(100), Time::default()));
    assert_eq!((setting.answer(AskId(100)), setting.told, away(&setting)), (REFUSED, before, 1));
}

#[test]
fn a_gateway_that_has_slept_does_not_take_that_for_silence() {
    let mut setting = waiting(5_000);
    setting.answering = vec![];
    setting.reads(BACKENDS[0]);
    setting.now = setting.now + Span::from_s(60);
    let id = setting.reads(BACKENDS[0]);
    assert_eq!((setting.answer(id), away(&setting)), (None, 0));
}

#[test]
fn one_that_is_back_is_found_soon_however_long_anybody_waits() {
    let mut setting = waiting(600_000);
    (setting.alive, setting.answering) = (vec![], vec![]);
    setting.reads(BACKENDS[0]);
    setting.pass(Span::from_s(600));
    let id = setting.reads(BACKENDS[0]);
    assert_eq!((setting.answer(id), away(&setting)), (REFUSED, 1));
    (setting.alive, setting.answering) = (BACKENDS.to_vec(), BACKENDS.to_vec());
    setting.pass(Span::from_ms(500));
    let id = setting.ask(BACKENDS[0], SET);
    assert_eq!(setting.answer(id), STORED);
}
