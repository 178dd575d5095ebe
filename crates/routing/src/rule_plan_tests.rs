//! The paper's cases, and a plan beside a naive one.

use proptest::prelude::*;

use super::*;
use crate::{RouteTable, RuleSink};

const NODE: NodeId = NodeId(1);
const OTHER: NodeId = NodeId(2);

fn ms(ms: u64) -> Moment {
    Moment::default() + Span::from_ms(ms)
}

/// A budget for so many cached keys.
fn budget(updates_per_s: u32, delay: Span, cached_max: usize) -> RuleBudget {
    let mut budget = RuleBudget { updates_per_s, table_len_max: 0, deletion_delay: delay, choices: RuleChoices::One };
    budget.table_len_max = budget.buffer_len() + cached_max;
    assert_eq!(budget.cached_max(), cached_max);
    budget
}

fn install(hash: u64, node: NodeId) -> RuleUpdate {
    RuleUpdate::Install { hash: KeyHash(hash), choices: node.into() }
}

fn install_two(hash: u64) -> RuleUpdate {
    RuleUpdate::Install { hash: KeyHash(hash), choices: Choices::of(NODE, OTHER) }
}

fn delete(hash: u64) -> RuleUpdate {
    RuleUpdate::Delete { hash: KeyHash(hash) }
}

fn want(plan: &mut RulePlan, now: Moment, hash: u64, node: NodeId) {
    plan.want(now, KeyHash(hash), node, Load(0)).unwrap();
}

/// Makes all updates, each as soon as it may be.
fn drain(plan: &mut RulePlan, mut now: Moment) -> Vec<(Moment, RuleUpdate)> {
    let mut made = Vec::new();
    while let Some(at) = plan.wake_at(now) {
        now = at;
        made.push((now, plan.next(now).expect("woken for something")));
    }
    made
}

/// 600 keys take the place of 600 others at once; when the last one is installed, and the last one deleted.
fn hot_in(delay: Span) -> (f64, f64) {
    let mut plan = RulePlan::new(budget(400, delay, 600)).unwrap();
    let mut table = RouteTable::new(plan.budget.table_len_max, 1);
    (0..600).for_each(|hash| want(&mut plan, ms(0), hash, NODE));
    drain(&mut plan, ms(0)).into_iter().for_each(|(at, update)| table.update(at, update));
    let start = ms(10_000);
    for hash in 0..600 {
        plan.unwant(start, KeyHash(hash), NODE);
        want(&mut plan, start, hash + 600, NODE);
    }
    assert_eq!((plan.rules(), plan.waiting()), (600, (600, 600)));
    let (mut last_installed, mut last_deleted) = (0.0, 0.0);
    for (made, (at, update)) in drain(&mut plan, start).into_iter().enumerate() {
        let after_s = at.since(start).as_s();
        assert!(after_s <= made as f64 / 400.0, "no part of the rate is lost");
        *(if matches!(update, RuleUpdate::Install { .. }) { &mut last_installed } else { &mut last_deleted }) = after_s;
        table.update(at, update);
        assert!(table.len() <= plan.budget.table_len_max);
    }
    assert_eq!((plan.rules(), plan.waiting(), table.len()), (600, (0, 0), 600));
    assert!((600..1_200).all(|hash| table.lookup(KeyHash(hash)) == Some(NODE.into())));
    (last_installed, last_deleted)
}

/// The paper's figure 18.
#[test]
fn a_buffer_halves_the_time_until_all_new_keys_have_rules() {
    let (installed, deleted) = hot_in(Span::from_s(2));
    assert!((1.45..=1.5).contains(&installed) && (2.95..=3.0).contains(&deleted), "{installed} s and {deleted} s");
    let (installed, deleted) = hot_in(Span::default());
    assert!((2.95..=3.0).contains(&installed) && (2.95..=3.0).contains(&deleted), "{installed} s and {deleted} s");
}

#[test]
fn deletions_that_have_waited_long_enough_take_turns_with_installs() {
    let mut plan = RulePlan::new(budget(400, Span::from_s(2), 1_000)).unwrap();
    (0..1_000).for_each(|hash| want(&mut plan, ms(0), hash, NODE));
    drain(&mut plan, ms(0));
    let start = ms(10_000);
    for hash in 0..1_000 {
        plan.unwant(start, KeyHash(hash), NODE);
        want(&mut plan, start, hash + 1_000, NODE);
    }
    let order: Vec<_> = drain(&mut plan, start).into_iter().map(|(_, update)| update).collect();
    let installs_first = order.iter().take_while(|update| matches!(update, RuleUpdate::Install { .. })).count();
    assert!((800..=801).contains(&installs_first), "{installs_first}: what two seconds bring");
    let installs = |range: std::ops::Range<u64>| range.map(|hash| install(hash + 1_000, NODE));
    let rest = 1_000 - installs_first as u64;
    let in_turns = (0..rest).zip(installs(installs_first as u64..1_000)).flat_map(|(old, new)| [delete(old), new]);
    let expected = installs(0..installs_first as u64).chain(in_turns).chain((rest..1_000).map(delete));
    assert!(order.into_iter().eq(expected));
}

#[test]
fn a_full_table_loses_its_oldest_rule_that_is_not_wanted_before_it_takes_another() {
    // Two updates at once, and a buffer of one.
    let mut plan = RulePlan::new(budget(1_000, Span::from_ms(1), 2)).unwrap();
    want(&mut plan, ms(0), 1, NODE);
    want(&mut plan, ms(0), 2, NODE);
    drain(&mut plan, ms(0));
    plan.unwant(ms(10), KeyHash(2), NODE);
    plan.unwant(ms(10), KeyHash(1), NODE);
    want(&mut plan, ms(10), 3, NODE);
    want(&mut plan, ms(10), 4, NODE);
    let updates: Vec<_> = drain(&mut plan, ms(10)).into_iter().map(|(at, update)| (at.since(ms(10)), update)).collect();
    let at = Span::from_ms;
    assert_eq!(updates, [(at(0), install(3, NODE)), (at(0), delete(2)), (at(1), install(4, NODE)), (at(2), delete(1))]);
}

#[test]
fn a_full_table_replaces_a_rule_without_losing_another() {
    let mut plan = RulePlan::new(budget(1_000, Span::from_us(1_500), 2)).unwrap();
    want(&mut plan, ms(0), 1, NODE);
    want(&mut plan, ms(0), 2, NODE);
    drain(&mut plan, ms(0));
    plan.unwant(ms(10), KeyHash(2), NODE);
    want(&mut plan, ms(10), 3, NODE);
    assert_eq!(plan.next(ms(10)), Some(install(3, NODE)));
    plan.unwant(ms(10), KeyHash(3), NODE);
    want(&mut plan, ms(10), 4, NODE);
    assert_eq!(plan.next(ms(10)), Some(install(4, NODE)));
    assert_eq!(plan.rules(), plan.budget.table_len_max);
    want(&mut plan, ms(11), 1, OTHER);
    assert_eq!(plan.next(ms(11)), Some(install(1, OTHER)));
    assert_eq!((plan.rules(), plan.waiting()), (4, (0, 2)));
}

#[test]
fn what_was_not_made_yet_is_taken_back_without_an_update() {
    let mut plan = RulePlan::new(budget(10, Span::from_s(1), 5)).unwrap();
    want(&mut plan, ms(0), 1, NODE);
    assert_eq!(plan.next(ms(0)), Some(install(1, NODE)));
    assert_eq!(plan.next(ms(0)), None, "nothing waits");
    // A deletion, and an install.
    plan.unwant(ms(1), KeyHash(1), NODE);
    want(&mut plan, ms(1), 2, NODE);
    assert_eq!((plan.rules(), plan.waiting()), (1, (1, 1)));
    want(&mut plan, ms(2), 1, NODE);
    plan.unwant(ms(2), KeyHash(2), NODE);
    assert_eq!((plan.rules(), plan.waiting(), plan.wake_at(ms(2))), (1, (0, 0), None));
    // Another node's rule takes this one's place, without a deletion.
    plan.unwant(ms(3), KeyHash(1), NODE);
    want(&mut plan, ms(3), 1, OTHER);
    assert_eq!((plan.rules(), plan.waiting()), (1, (1, 0)));
    assert_eq!(drain(&mut plan, ms(1_000)), [(ms(1_000), install(1, OTHER))]);
}

#[test]
fn what_is_said_twice_or_by_a_node_that_has_it_no_more_changes_nothing() {
    let mut plan = RulePlan::new(budget(1, Span::from_s(1), 5)).unwrap();
    want(&mut plan, ms(0), 1, NODE);
    want(&mut plan, ms(0), 2, NODE);
    want(&mut plan, ms(0), 1, NODE);
    assert_eq!((plan.waiting(), plan.wanted), ((2, 0), 2));
    assert_eq!(plan.next(ms(0)), Some(install(1, NODE)), "it has kept its place");
    want(&mut plan, ms(0), 2, OTHER);
    plan.unwant(ms(0), KeyHash(2), NODE);
    plan.unwant(ms(0), KeyHash(3), NODE);
    assert_eq!((plan.rules(), plan.waiting()), (1, (1, 0)));
    plan.unwant(ms(1), KeyHash(1), NODE);
    plan.unwant(ms(500), KeyHash(1), NODE);
    assert_eq!(plan.waiting(), (1, 1));
    assert_eq!(plan.next(ms(1_001)), Some(delete(1)), "it has waited since the first time");
}

#[test]
fn rules_of_a_dead_node_go_first_and_those_of_no_other() {
    let mut plan = RulePlan::new(budget(10, Span::from_s(1), 9)).unwrap();
    for (hash, node) in [(1, OTHER), (2, NODE), (3, NODE), (4, OTHER), (5, NODE)] {
        want(&mut plan, ms(0), hash, node);
    }
    drain(&mut plan, ms(0));
    let now = ms(1_000);
    plan.unwant(now, KeyHash(1), OTHER);
    plan.unwant(now, KeyHash(2), NODE);
    want(&mut plan, now, 4, NODE);
    want(&mut plan, now, 5, OTHER);
    want(&mut plan, now, 6, OTHER);
    want(&mut plan, now, 7, NODE);
    plan.forget_node(now, NODE);
    plan.forget_node(now, NODE);
    // Key 5's rule led to it and is led elsewhere; key 4's was to lead to it, and leads to where it is not any more; 7 never had one.
    assert_eq!((plan.rules(), plan.waiting()), (5, (2, 4)));
    let order: Vec<_> = drain(&mut plan, now).into_iter().map(|(_, update)| update).collect();
    assert_eq!(order, [delete(2), delete(3), install(5, OTHER), install(6, OTHER), delete(1), delete(4)]);
    assert_eq!((plan.rules(), plan.rules.len()), (2, 2));
}

#[test]
fn more_rules_than_may_be_are_not_wanted() {
    let mut plan = RulePlan::new(budget(10, Span::from_s(1), 2)).unwrap();
    want(&mut plan, ms(0), 1, NODE);
    want(&mut plan, ms(0), 2, NODE);
    assert_eq!(plan.want(ms(0), KeyHash(3), NODE, Load(0)), Err(TooManyWanted { cached_max: 2 }));
    assert_eq!(plan.want(ms(0), KeyHash(2), OTHER, Load(0)), Ok(()), "it is one of them");
    plan.unwant(ms(0), KeyHash(1), NODE);
    assert_eq!(plan.want(ms(0), KeyHash(3), NODE, Load(0)), Ok(()));
    plan.forget_node(ms(0), OTHER);
    assert_eq!((plan.want(ms(0), KeyHash(1), NODE, Load(0)), plan.wanted), (Ok(()), 2));
}

#[test]
fn budgets_that_allow_nothing_are_refused() {
    let delay = Span::from_ms(1_001);
    let budget =
        RuleBudget { updates_per_s: 100, table_len_max: 102, deletion_delay: delay, choices: RuleChoices::One };
    assert_eq!((budget.buffer_len(), budget.cached_max()), (101, 1));
    assert!(RulePlan::new(budget).is_ok());
    let no_room = RulePlan::new(RuleBudget { table_len_max: 101, ..budget });
    assert_eq!(no_room.err(), Some(BudgetError::NoRoom { buffer_len: 101, table_len_max: 101 }));
    assert_eq!(RulePlan::new(RuleBudget { updates_per_s: 0, ..budget }).err(), Some(BudgetError::NoUpdates));
}

#[test]
fn a_clock_that_goes_back_brings_no_updates() {
    let mut plan = RulePlan::new(budget(1_000, Span::from_s(1), 9)).unwrap();
    (0..9).for_each(|hash| want(&mut plan, ms(100), hash, NODE));
    assert!(plan.next(ms(100)).is_some() && plan.next(ms(50)).is_some());
    assert_eq!((plan.next(ms(50)), plan.wake_at(ms(50))), (None, Some(ms(101))));
    assert!(plan.next(ms(101)).is_some() && plan.next(ms(101)).is_none());
}

/// What is wanted and what is in the table, as anybody would write it down.
#[derive(Default)]
struct Model {
    wanted: BTreeMap<KeyHash, Choices>,
    table: BTreeMap<KeyHash, Choices>,
    /// Those that lead to a node that is dead.
    dead: Vec<KeyHash>,
    /// Since when others have waited to be deleted.
    since: BTreeMap<KeyHash, Moment>,
    made: Vec<Moment>,
    last_was_deletion: bool,
}

impl Model {
    fn is_right(&self, hash: KeyHash) -> bool {
        self.wanted.get(&hash) == self.table.get(&hash)
    }

    /// It leads somewhere, and nowhere is wanted.
    fn is_too_much(&self, hash: KeyHash) -> bool {
        self.table.contains_key(&hash) && !self.wanted.contains_key(&hash)
    }

    fn installs(&self) -> usize {
        self.wanted.keys().filter(|hash| !self.is_right(**hash) && !self.is_too_much(**hash)).count()
    }

    fn deletions(&self) -> usize {
        self.table.keys().filter(|hash| self.is_too_much(**hash)).count()
    }

    fn unwant(&mut self, hash: &KeyHash, node: NodeId) {
        match self.wanted.get(hash).copied().and_then(|wanted| wanted.without(node)) {
            Some(left) => drop(self.wanted.insert(*hash, left)),
            None => drop(self.wanted.remove(hash)),
        }
    }

    fn settle(&mut self, now: Moment) {
        let (wanted, table) = (&self.wanted, &self.table);
        self.dead.retain(|hash| wanted.get(hash) != table.get(hash));
        let waits = |hash: &&KeyHash| self.is_too_much(**hash) && !self.dead.contains(hash);
        let waiting: Vec<KeyHash> = table.keys().filter(waits).copied().collect();
        self.since.retain(|hash, _| waiting.contains(hash));
        for hash in waiting {
            self.since.entry(hash).or_insert(now);
        }
    }

    fn make(&mut self, now: Moment, update: RuleUpdate, budget: &RuleBudget) {
        let (RuleUpdate::Install { hash, .. } | RuleUpdate::Delete { hash }) = update;
        assert!(!self.is_right(hash), "{update:?} changes nothing");
        let late = |since: &Moment| now >= *since + budget.deletion_delay;
        let oldest = self.since.values().min();
        let is_full = self.table.len() == budget.table_len_max;
        if !self.dead.is_empty() {
            assert!(self.dead.contains(&hash), "{update:?} ahead of {:?}", self.dead);
        } else if self.is_too_much(hash) {
            assert_eq!(self.since.get(&hash), oldest, "the oldest");
            let is_late = oldest.is_some_and(late) && !self.last_was_deletion;
            assert!(is_late || is_full || self.installs() == 0, "{update:?} ahead of installs");
        } else {
            assert!(!oldest.is_some_and(late) || self.last_was_deletion, "{update:?} ahead of what is late");
        }
        self.last_was_deletion = self.is_too_much(hash) && !self.dead.contains(&hash);
        match update {
            RuleUpdate::Install { hash, choices } => {
                assert_eq!(self.wanted.get(&hash), Some(&choices), "{update:?} is not wanted");
                self.table.insert(hash, choices);
            }
            RuleUpdate::Delete { hash } => {
                assert!(!self.wanted.contains_key(&hash), "{update:?} is wanted");
                self.table.remove(&hash);
            }
        }
        assert!(self.table.len() <= budget.table_len_max);
        self.dead.retain(|dead| *dead != hash);
        self.made.push(now);
        for (at, first) in self.made.iter().enumerate() {
            let (made, window) = ((self.made.len() - at) as u64, now.since(*first) + Tokens::LATE);
            assert!(
                (made - 1) * NS_PER_S <= window.ns() * u64::from(budget.updates_per_s),
                "{made} updates in {window:?}"
            );
        }
    }
}

fn ask(plan: &mut RulePlan, model: &mut Model, now: Moment) {
    let (wake_at, waits) = (plan.wake_at(now), plan.waiting() != (0, 0));
    let update = plan.next(now);
    assert_eq!(update.is_some(), wake_at == Some(now), "woken when there is something");
    assert_eq!(wake_at.is_some(), waits);
    if let Some(update) = update {
        model.make(now, update, &plan.budget);
    }
}

proptest! {
    #[test]
    fn the_table_becomes_what_is_wanted_within_its_bounds(
        updates_per_s in prop_oneof![1u32..50, 900u32..3_000],
        delay_us in 0u64..30_000,
        cached_max in 1usize..5,
        choices in prop_oneof![Just(RuleChoices::One), Just(RuleChoices::Two)],
        acts in prop::collection::vec((0u8..24, 0u64..8, 0u16..3, 0u64..2_000), 1..200),
    ) {
        let budget = RuleBudget { choices, ..budget(updates_per_s, Span::from_us(delay_us), cached_max) };
        let mut plan = RulePlan::new(budget).unwrap();
        let (mut model, mut now) = (Model::default(), ms(0));
        for (act, hash, node, us) in acts {
            let (hash, node) = (KeyHash(hash), NodeId(node));
            match act {
                0..7 => {
                    let fits = model.wanted.len() < cached_max || model.wanted.contains_key(&hash);
                    prop_assert_eq!(plan.want(now, hash, node, Load(0)).is_ok(), fits);
                    if fits {
                        let wanted = model.wanted.entry(hash).or_insert(node.into());
                        *wanted = match choices {
                            RuleChoices::One => node.into(),
                            RuleChoices::Two => wanted.with(node).unwrap_or(*wanted),
                        };
                    }
                }
                7..12 => {
                    // Mostly what is wanted.
                    let wanted = model.wanted.get(&hash).filter(|_| act < 11);
                    let node = wanted.and_then(|wanted| wanted.iter().last()).unwrap_or(node);
                    plan.unwant(now, hash, node);
                    model.unwant(&hash, node);
                }
                12 => {
                    plan.forget_node(now, node);
                    (0..8).for_each(|hash| model.unwant(&KeyHash(hash), node));
                    let its = model.table.iter().filter(|(_, there)| there.contains(node)).map(|(hash, _)| *hash);
                    model.dead.extend(its);
                }
                13..20 => ask(&mut plan, &mut model, now),
                20 => now = now + Span::from_us(20 * us),
                21 => now = plan.wake_at(now).unwrap_or(now),
                _ => now = now + Span::from_us(us),
            }
            model.settle(now);
            prop_assert_eq!(plan.rules(), model.table.len());
            prop_assert_eq!(plan.waiting(), (model.installs(), model.deletions()));
            prop_assert!(plan.rules.len() <= model.table.len() + model.wanted.len());
        }
        while let Some(at) = plan.wake_at(now) {
            now = at;
            ask(&mut plan, &mut model, now);
            model.settle(now);
        }
        prop_assert_eq!(&model.wanted, &model.table);
        prop_assert_eq!(plan.rules.len(), model.table.len());
        prop_assert!(plan.ahead.is_empty() && plan.installs.is_empty() && plan.deletions.is_empty());
    }
}

#[test]
fn the_rules_of_keys_with_more_load_are_installed_first() {
    let mut plan = RulePlan::new(budget(400, Span::from_s(2), 1_000)).unwrap();
    for (hash, load) in [(1, 5), (2, 500), (3, 5), (4, 90), (5, 500)] {
        plan.want(ms(0), KeyHash(hash), NODE, Load(load)).unwrap();
    }
    // What is told again while it waits counts from then on.
    plan.want(ms(0), KeyHash(3), NODE, Load(100)).unwrap();
    let installed = (0..5u64).map(|at| match plan.next(ms(10 * (at + 1))) {
        Some(RuleUpdate::Install { hash, .. }) => hash.0,
        other => panic!("{other:?}"),
    });
    assert_eq!(installed.collect::<Vec<_>>(), [2, 5, 3, 4, 1]);
}

#[test]
fn a_rule_leads_to_two_nodes_at_most_and_to_one_where_that_is_all_a_switch_knows() {
    let two = RuleBudget { choices: RuleChoices::Two, ..budget(1_000, Span::from_ms(5), 9) };
    let mut plan = RulePlan::new(two).unwrap();
    want(&mut plan, ms(0), 1, NODE);
    assert_eq!(plan.next(ms(0)), Some(install(1, NODE)));
    want(&mut plan, ms(10), 1, OTHER);
    want(&mut plan, ms(10), 1, NodeId(3));
    assert_eq!((plan.next(ms(10)), plan.rules()), (Some(install_two(1)), 1));
    // One of them has it no more: that comes as soon as an install of a key with as much load.
    plan.want(ms(20), KeyHash(1), NODE, Load(7)).unwrap();
    plan.unwant(ms(20), KeyHash(1), NODE);
    plan.want(ms(20), KeyHash(2), NODE, Load(6)).unwrap();
    plan.want(ms(20), KeyHash(3), NODE, Load(8)).unwrap();
    assert_eq!(plan.waiting(), (3, 0));
    let made: Vec<_> = drain(&mut plan, ms(20)).into_iter().map(|(_, update)| update).collect();
    assert_eq!(made, [install(3, NODE), install(1, OTHER), install(2, NODE)]);
    want(&mut plan, ms(30), 1, NODE);
    drain(&mut plan, ms(30));
    plan.forget_node(ms(40), OTHER);
    assert_eq!(drain(&mut plan, ms(40)), [(ms(40), install(1, NODE))]);
    let mut plan = RulePlan::new(budget(1_000, Span::from_ms(5), 9)).unwrap();
    want(&mut plan, ms(0), 1, NODE);
    want(&mut plan, ms(0), 1, OTHER);
    assert_eq!(drain(&mut plan, ms(0)), [(ms(0), install(1, OTHER))]);
}

#[test]
fn a_rule_that_is_refused_is_not_there_and_no_more_are_wanted_than_there_is_room_for() {
    // Room for the rules of four keys, and a buffer of many.
    let mut plan = RulePlan::new(budget(1_000, Span::from_s(1), 4)).unwrap();
    (1..=4).for_each(|hash| want(&mut plan, ms(0), hash, NODE));
    drain(&mut plan, ms(0));
    assert_eq!((plan.refused(ms(9), KeyHash(9)), plan.refused(ms(9), KeyHash(4))), (None, Some(NODE.into())));
    assert_eq!((plan.rules(), plan.waiting()), (3, (0, 0)));
    plan.is_full(ms(9));
    assert_eq!(plan.want(ms(10), KeyHash(5), NODE, Load(1)), Err(TooManyWanted { cached_max: 3 }));
    plan.want(ms(10), KeyHash(1), OTHER, Load(1)).unwrap();
    assert_eq!(drain(&mut plan, ms(10)).len(), 1);
    // There may be more by then.
    plan.want(ms(10_009), KeyHash(5), NODE, Load(1)).unwrap();
    assert!(plan.want(ms(10_009), KeyHash(6), NODE, Load(1)).is_err());
    plan.is_full(ms(10_010));
    plan.set_table_len_max(1_006);
    plan.want(ms(10_010), KeyHash(6), NODE, Load(1)).unwrap();
    assert_eq!(drain(&mut plan, ms(10_010)).len(), 2);
}

#[test]
fn updates_come_at_the_rate_that_a_switch_was_seen_to_take() {
    let mut plan = RulePlan::new(budget(1_000, Span::from_ms(1), 1_000)).unwrap();
    plan.set_updates_per_s(ms(0), 10);
    (1..=5).for_each(|hash| want(&mut plan, ms(0), hash, NODE));
    let times: Vec<Moment> = drain(&mut plan, ms(0)).into_iter().map(|(at, _)| at).collect();
    let gaps: Vec<Span> = times.windows(2).map(|pair| pair[1].since(pair[0])).collect();
    assert!(gaps[1..].iter().all(|gap| *gap >= Span::from_ms(99)), "{gaps:?}");
    plan.set_updates_per_s(ms(1_000), 0);
    want(&mut plan, ms(1_000), 9, NODE);
    assert_eq!(drain(&mut plan, ms(1_000)).len(), 1, "as slow as one a second");
}
