//! A gateway that does not wait for a cache node alone: what only reads is asked of the backend as well, now and then.

use guira_item::{Answer, Get, Operation, Span};
use guira_switched::{StaticFile, gateway::Happened};

use crate::asking::{BACKENDS, CACHE, SET, Setting};

const HEDGE_AFTER: Span = Span::from_ms(2);

/// Reads that cache nodes are asked for one that is hedged.
const OF_READS: u64 = 20;

/// As long as a cache node is waited for at first.
const AT_FIRST: Span = Span::from_ms(20);

/// Longer than that.
const A_WHILE: Span = Span::from_ms(100);

/// One whose cache node has answered enough for so many hedges, and answers nothing any more.
fn with_hedges(hedges: u64) -> Setting {
    let mut setting = Setting::new(StaticFile { hedge_after_ms: 2, ..StaticFile::default() });
    let warm = setting.reads(BACKENDS[0]);
    assert_eq!(setting.answer(warm), Some(&Answer::Miss), "there is a session now");
    setting.is_given_a_rule(BACKENDS[0]);
    setting.answering.push(CACHE);
    for _ in 0..hedges * OF_READS {
        let id = setting.reads(BACKENDS[0]);
        assert_eq!(setting.answer(id), Some(&Answer::Miss));
    }
    setting.pass(A_WHILE);
    assert_eq!((setting.gateway.counts().to_caches, hedged(&setting)), (hedges * OF_READS, 0));
    setting.answering.retain(|member| *member != CACHE);
    setting
}

fn hedged(setting: &Setting) -> u64 {
    setting.gateway.counts().hedged
}

#[test]
fn a_read_that_a_cache_node_does_not_answer_in_time_is_answered_by_its_backend() {
    let mut setting = with_hedges(1);
    let id = setting.reads(BACKENDS[0]);
    setting.pass(HEDGE_AFTER - Span::from_ns(1));
    assert_eq!((setting.answer(id), hedged(&setting)), (None, 0));
    setting.pass(Span::from_ns(1));
    assert_eq!((setting.answer(id), hedged(&setting)), (Some(&Answer::Miss), 1));
    setting.pass(A_WHILE);
    assert_eq!((setting.answers_of(id), setting.gateway.counts().resent), (1, 0), "and that is all");
}

#[test]
fn of_twenty_reads_one_is_hedged_and_the_others_wait() {
    let mut setting = with_hedges(1);
    setting.reads(BACKENDS[0]);
    setting.pass(HEDGE_AFTER);
    let id = setting.reads(BACKENDS[0]);
    setting.pass(HEDGE_AFTER);
    assert_eq!((setting.answer(id), hedged(&setting)), (None, 1));
    setting.pass(A_WHILE);
    assert_eq!((setting.answer(id), hedged(&setting)), (Some(&Answer::Miss), 1));
    assert_eq!(setting.gateway.counts().resent, 1);
}

#[test]
fn whoever_answers_first_is_believed_and_the_other_is_ignored() {
    let mut setting = with_hedges(1);
    setting.answering.clear();
    let id = setting.reads(BACKENDS[0]);
    setting.pass(HEDGE_AFTER);
    assert_eq!((setting.answer(id), hedged(&setting)), (None, 1));
    let before = setting.gateway.counts().ignored;
    setting.says_nothing_is_there(CACHE);
    assert_eq!((setting.answer(id), setting.gateway.counts().ignored), (Some(&Answer::Miss), before));
    setting.says_nothing_is_there(BACKENDS[0]);
    assert_eq!((setting.answers_of(id), setting.gateway.counts().ignored), (1, before + 1));
}

#[test]
fn what_may_change_something_is_asked_of_one_at_a_time() {
    let mut setting = with_hedges(1);
    let wins = Operation::Get(Get { wins: true, ..Get::PLAIN });
    assert!(wins.copy_may_answer() && !wins.only_reads());
    let id = setting.ask(BACKENDS[0], wins);
    setting.pass(HEDGE_AFTER);
    assert_eq!((setting.answer(id), hedged(&setting)), (None, 0));
    setting.pass(A_WHILE);
    assert!(setting.answer(id).is_some());
    assert_eq!(hedged(&setting), 0);
}

#[test]
fn a_cache_node_that_leaves_three_to_their_backend_is_passed_by_once_it_was_silent_for_long_enough() {
    let mut setting = with_hedges(4);
    for _ in 0..3 {
        setting.reads(BACKENDS[0]);
    }
    setting.pass(HEDGE_AFTER);
    let asked = setting.gateway.counts().to_caches;
    assert_eq!((hedged(&setting), setting.gateway.pending()), (3, 0));
    setting.reads(BACKENDS[0]);
    assert_eq!(setting.gateway.counts().to_caches, asked + 1, "it is slow, and no more is known");
    setting.pass(AT_FIRST - HEDGE_AFTER);
    let id = setting.reads(BACKENDS[0]);
    assert_eq!(setting.answer(id), Some(&Answer::Miss), "at once");
    assert_eq!(setting.gateway.counts().to_caches, asked + 1);
}

#[test]
fn a_cache_node_that_says_anything_meanwhile_is_not_silent() {
    let mut setting = with_hedges(4);
    for _ in 0..3 {
        setting.reads(BACKENDS[0]);
    }
    setting.pass(HEDGE_AFTER);
    assert_eq!((hedged(&setting), setting.gateway.pending()), (3, 0));
    setting.says_nothing_is_there(CACHE);
    setting.pass(A_WHILE);
    let asked = setting.gateway.counts().to_caches;
    setting.reads(BACKENDS[0]);
    assert_eq!(setting.gateway.counts().to_caches, asked + 1);
}

#[test]
fn what_is_asked_as_well_and_has_moved_is_asked_of_who_has_it_and_of_nobody_twice() {
    let mut setting = with_hedges(1);
    setting.answering.clear();
    let id = setting.reads(BACKENDS[0]);
    setting.pass(HEDGE_AFTER);
    assert_eq!(hedged(&setting), 1);
    setting.says_it_has_moved(BACKENDS[0]);
    setting.answering = BACKENDS.to_vec();
    setting.pass(A_WHILE);
    assert_eq!((setting.answers_of(id), setting.gateway.pending(), hedged(&setting)), (1, 0, 1));
}

#[test]
fn hedges_are_saved_up_to_a_few() {
    let mut setting = with_hedges(20);
    setting.step(Happened::Tick);
    // All at once: before any of them makes the cache node suspect.
    setting.answering.clear();
    for _ in 0..18 {
        setting.reads(BACKENDS[0]);
    }
    setting.pass(HEDGE_AFTER);
    assert_eq!(hedged(&setting), 16);
}

#[test]
fn a_backend_that_is_away_is_not_asked_as_well() {
    let mut setting = with_hedges(2);
    (setting.alive, setting.answering) = (vec![], vec![]);
    let other = setting.ask(BACKENDS[0], SET);
    setting.pass(Span::from_s(10));
    assert!(setting.answer(other).is_some());
    let told = setting.told;
    let id = setting.reads(BACKENDS[0]);
    setting.pass(HEDGE_AFTER);
    assert_eq!((setting.answer(id), setting.told, hedged(&setting)), (None, told, 0));
}
