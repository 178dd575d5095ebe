//! Cache nodes that do as they are told, or die.

use std::num::NonZero;

use proptest::prelude::*;

use super::*;

const A: NodeId = NodeId(100);
const B: NodeId = NodeId(110);
const C: NodeId = NodeId(120);
const ALL: [NodeId; 3] = [A, B, C];

/// Backends, whose homes are A, B, C, A, ...
fn homes(len: u16) -> BTreeMap<NodeId, NodeId> {
    (0..len).map(backend).zip(ALL.into_iter().cycle()).collect()
}

fn backend(at: u16) -> NodeId {
    NodeId(1_000 + at)
}

/// Cache nodes, of one part each.
fn whole(nodes: &[NodeId]) -> CacheNodes {
    nodes.iter().copied().collect()
}

/// A, B and C, of so many parts.
fn in_parts(parts: [u16; 3]) -> CacheNodes {
    ALL.into_iter().zip(parts).map(|(node, parts)| (node, NonZero::new(parts).expect("not none"))).collect()
}

fn parts_len(nodes: &CacheNodes, node: NodeId) -> u16 {
    nodes.parts_of(node).count() as u16
}

/// Cache nodes, and who speaks with their parts: with them, where they have one each.
struct Fleet {
    nodes: CacheNodes,
    balance: Balance,
    now: Moment,
    loads: BTreeMap<NodeId, u32>,
    charges: BTreeMap<NodeId, BTreeSet<NodeId>>,
    /// What each has yet to hear, in order.
    orders: Vec<(NodeId, Vec<NodeId>)>,
    /// How much each has heard in its session.
    heard: BTreeMap<NodeId, u32>,
    means: Vec<u32>,
}

impl Fleet {
    fn new(backends: u16) -> Self {
        Self::of(whole(&ALL), backends)
    }

    fn of(nodes: CacheNodes, backends: u16) -> Self {
        let homes = homes(backends);
        let loads = homes.keys().map(|backend| (*backend, 10)).collect();
        let balance = Balance::new(homes, nodes.clone(), 1.0);
        let now = Moment::default();
        let (charges, heard) = (BTreeMap::new(), BTreeMap::new());
        Self { nodes, balance, now, loads, charges, orders: Vec::new(), heard, means: Vec::new() }
    }

    fn take(&mut self, orders: Vec<(NodeId, Order)>) {
        for (cache, order) in orders {
            match order {
                Order::Charge(backends) => {
                    for backend in backends.iter().filter(|backend| !self.may_have(cache, backend)) {
                        let node = self.nodes.node_of(cache);
                        let mut others = self.charges.keys().filter(|other| self.nodes.node_of(**other) != node);
                        let has_it = others.find(|other| self.may_have(**other, backend));
                        assert!(
                            has_it.is_none(),
                            "{cache:?} is to take {backend:?}, which {has_it:?} has, or is to take"
                        );
                    }
                    self.orders.push((cache, backends));
                }
                Order::MeanLoad(mean) => self.means.push(mean.0),
            }
        }
    }

    /// Whether a cache node has a backend, or will have heard that it is to take it.
    fn may_have(&self, cache: NodeId, backend: &NodeId) -> bool {
        let mut orders = self.orders.iter().filter(|(to, _)| *to == cache);
        self.charges[&cache].contains(backend) || orders.any(|(_, backends)| backends.contains(backend))
    }

    /// A cache node begins a life, in charge of what is its own.
    fn begins(&mut self, cache: NodeId) {
        let node = self.nodes.node_of(cache);
        let its = self.balance.homes.iter().filter(|(_, home)| Some(**home) == node).map(|(backend, _)| *backend);
        let charge = its.collect();
        self.charges.insert(cache, charge);
        self.opens(cache);
        self.tells(cache);
    }

    /// Another session begins: what was on its way in an earlier one is lost.
    fn opens(&mut self, cache: NodeId) {
        self.orders.retain(|(other, _)| *other != cache);
        self.heard.insert(cache, 0);
        self.balance.opened(cache);
    }

    fn dies(&mut self, cache: NodeId) {
        self.charges.remove(&cache);
        self.orders.retain(|(other, _)| *other != cache);
        self.balance.lost(cache);
    }

    fn tells(&mut self, cache: NodeId) {
        // Each part has as much of it.
        let parts = self.nodes.parts_of(self.nodes.node_of(cache).expect("one of theirs")).count() as u32;
        let load = |backend: &NodeId| Load(self.loads[backend] / parts);
        let charge: Vec<_> = self.charges[&cache].iter().map(|backend| (*backend, load(backend))).collect();
        let orders = self.balance.on_loads(cache, self.heard[&cache], &charge, Load(0));
        self.take(orders);
    }

    /// All parts of a node begin a life.
    fn node_begins(&mut self, node: NodeId) {
        let parts: Vec<NodeId> = self.nodes.parts_of(node).collect();
        parts.into_iter().for_each(|part| self.begins(part));
    }

    /// What all parts of a node are in charge of, which is the same.
    fn charge_of_node(&self, node: NodeId) -> Vec<NodeId> {
        let mut charges = self.nodes.parts_of(node).map(|part| self.charge(part));
        let first = charges.next().expect("one part");
        assert!(charges.all(|charge| charge == first), "parts of {node:?} differ: {:?}", self.charges);
        first
    }

    /// A cache node does the first thing that it was told and has not done yet.
    fn obeys(&mut self, cache: NodeId) {
        if let Some(at) = self.orders.iter().position(|(to, _)| *to == cache) {
            let (_, backends) = self.orders.remove(at);
            self.charges.insert(cache, backends.into_iter().collect());
            *self.heard.entry(cache).or_default() += 1;
            self.tells(cache);
        }
    }

    /// Whoever was told something does it, one after the other.
    fn obey(&mut self) {
        while let Some((cache, _)) = self.orders.first() {
            self.obeys(*cache);
        }
    }

    fn round(&mut self) {
        self.now = self.now + ROUND;
        let caches: Vec<NodeId> = self.charges.keys().copied().collect();
        caches.into_iter().for_each(|cache| self.tells(cache));
        let orders = self.balance.go_on(self.now);
        self.take(orders);
        self.obey();
    }

    fn charge(&self, cache: NodeId) -> Vec<NodeId> {
        self.charges[&cache].iter().copied().collect()
    }
}

#[test]
fn who_is_in_charge_of_what_is_its_own_is_told_nothing_but_the_mean() {
    let mut fleet = Fleet::new(6);
    [A, B, C].into_iter().for_each(|cache| fleet.begins(cache));
    (0..20).for_each(|_| fleet.round());
    assert_eq!(fleet.charge(B), [backend(1), backend(4)]);
    assert!(fleet.balance.parts.values().all(|part| part.ordered.is_none()));
    assert!(!fleet.means.is_empty() && fleet.means.iter().all(|mean| *mean == 20));
}

#[test]
fn what_a_dead_one_had_goes_to_who_has_fewest_and_comes_back_with_it() {
    let mut fleet = Fleet::new(6);
    [A, B, C].into_iter().for_each(|cache| fleet.begins(cache));
    (0..5).for_each(|_| fleet.round());
    fleet.dies(B);
    (0..HOMELESS_FOR).for_each(|_| fleet.round());
    assert_eq!((fleet.charge(A).len(), fleet.charge(C).len()), (2, 2), "it may be back soon");
    fleet.round();
    assert_eq!((fleet.charge(A).len(), fleet.charge(C).len()), (3, 3));
    fleet.begins(B);
    fleet.obey();
    assert_eq!(fleet.charge(A), [backend(0), backend(3)]);
    assert_eq!(fleet.charge(B), [backend(1), backend(4)]);
    assert_eq!(fleet.charge(C), [backend(2), backend(5)]);
}

#[test]
fn a_backend_of_who_has_too_much_for_long_goes_to_who_has_least() {
    let mut fleet = Fleet::new(9);
    [A, B, C].into_iter().for_each(|cache| fleet.begins(cache));
    // A has 100, 30 and 10; B has 30, C 15.
    fleet.loads.extend([(backend(0), 100), (backend(3), 30)]);
    fleet.loads.extend([2, 5, 8].map(|at| (backend(at), 5)));
    (1..TOO_MUCH_FOR).for_each(|_| fleet.round());
    assert_eq!(fleet.charge(A).len(), 3, "not for long yet");
    fleet.round();
    // Half the gap is 62: the hottest takes C to 115, the next to 45.
    assert_eq!(fleet.charge(A), [backend(0), backend(6)]);
    assert!(fleet.charge(C).contains(&backend(3)));
    // The other one follows after a rest; the hottest alone is too much for anybody else, too.
    (0..60).for_each(|_| fleet.round());
    assert_eq!(fleet.charge(A), [backend(0)]);
}

#[test]
fn a_controller_that_begins_goes_by_what_cache_nodes_say() {
    let mut fleet = Fleet::new(6);
    fleet.charges.insert(A, [0, 1, 3].map(backend).into());
    fleet.charges.insert(C, [2, 4, 5].map(backend).into());
    for cache in [A, C] {
        fleet.opens(cache);
        fleet.tells(cache);
    }
    (0..10).for_each(|_| fleet.round());
    assert_eq!(fleet.charge(A), [0, 1, 3].map(backend));
    assert_eq!(fleet.charge(C), [2, 4, 5].map(backend));
}

#[test]
fn a_backend_goes_where_an_operator_wants_it() {
    let mut fleet = Fleet::new(6);
    // Nothing is moved for its load.
    fleet.balance.load_min = 1_000.0;
    [A, B].into_iter().for_each(|cache| fleet.begins(cache));
    (0..6).for_each(|_| fleet.round());
    let before = fleet.charge(B);
    let orders = fleet.balance.move_to(backend(0), B).expect("both are there");
    // Who has it is to let go of it first.
    assert!(matches!(&orders[..], [(A, Order::Charge(left))] if !left.contains(&backend(0))), "{orders:?}");
    fleet.take(orders);
    fleet.obey();
    assert!(!fleet.charge(A).contains(&backend(0)));
    assert_eq!(fleet.charge(B).len(), before.len() + 1);
    assert!(fleet.charge(B).contains(&backend(0)));
    let moved = fleet.balance.backends().into_iter().find(|report| report.backend == backend(0)).expect("a backend");
    assert_eq!(moved, BackendReport { backend: backend(0), home: A, owner: Some(B), load_per_s: Some(10.0) });
    // Once more is no change, and it stays there.
    assert_eq!(fleet.balance.move_to(backend(0), B), Ok(Vec::new()));
    (0..20).for_each(|_| fleet.round());
    assert!(fleet.charge(B).contains(&backend(0)));
}

#[test]
fn after_an_operators_move_all_rests_as_after_any_other() {
    let mut fleet = Fleet::new(9);
    [A, B, C].into_iter().for_each(|cache| fleet.begins(cache));
    fleet.loads.extend([(backend(0), 100), (backend(3), 30)]);
    (1..TOO_MUCH_FOR).for_each(|_| fleet.round());
    let orders = fleet.balance.move_to(backend(6), B).expect("both are there");
    fleet.take(orders);
    fleet.obey();
    let charge = [0, 3].map(backend);
    for _ in 1..REST_FOR {
        fleet.round();
        assert_eq!(fleet.charge(A), charge, "nothing follows for a while");
    }
    (0..TOO_MUCH_FOR).for_each(|_| fleet.round());
    assert_ne!(fleet.charge(A), charge);
}

/// B is in charge of a backend that is to go to A, and comes back before it has let go of it. A was told to take it before B had said that it has it.
#[test]
fn what_a_cache_node_that_is_back_may_have_nobody_is_told_to_take() {
    let mut fleet = Fleet::new(6);
    fleet.balance.load_min = 1_000.0;
    [A, B].into_iter().for_each(|cache| fleet.begins(cache));
    (0..6).for_each(|_| fleet.round());
    fleet.balance.move_to(backend(1), A).expect("both are there");
    fleet.balance.lost(B);
    fleet.opens(B);
    fleet.tells(A);
    assert_eq!(fleet.orders, [], "B has yet to say what it has");
    (0..6).for_each(|_| fleet.round());
    assert!(fleet.charges.values().filter(|charge| charge.contains(&backend(1))).count() == 1);
}

/// The second move comes before the first was heard of.
#[test]
fn of_two_moves_one_is_over_before_the_other_begins() {
    let mut fleet = Fleet::new(6);
    fleet.balance.load_min = 1_000.0;
    [A, B, C].into_iter().for_each(|cache| fleet.begins(cache));
    let moved = backend(0);
    let move_to = |fleet: &mut Fleet, cache| {
        let orders = fleet.balance.move_to(moved, cache).expect("it is there");
        fleet.take(orders);
    };
    move_to(&mut fleet, B);
    fleet.obeys(A);
    assert_eq!(fleet.orders, [(B, vec![moved, backend(1), backend(4)])], "A has let go of it");
    move_to(&mut fleet, C);
    // What they tell crosses what they were told.
    fleet.tells(B);
    fleet.tells(C);
    assert!(fleet.orders.iter().all(|(cache, _)| *cache == B), "B may have it: {:?}", fleet.orders);
    fleet.obey();
    assert!(fleet.charge(C).contains(&moved) && !fleet.charge(B).contains(&moved));
}

/// What is said after an order says nothing of those that came after it.
#[test]
fn of_moves_to_and_fro_only_the_last_one_counts_when_all_are_heard() {
    let mut fleet = Fleet::new(6);
    fleet.balance.load_min = 1_000.0;
    [A, B].into_iter().for_each(|cache| fleet.begins(cache));
    let moved = backend(0);
    for cache in [B, A, B] {
        let orders = fleet.balance.move_to(moved, cache).expect("it is there");
        fleet.take(orders);
    }
    assert!(fleet.orders.iter().map(|(to, _)| *to).eq([A, A, A]), "{:?}", fleet.orders);
    fleet.tells(A);
    fleet.obeys(A);
    assert!(!fleet.charge(A).contains(&moved));
    assert!(fleet.orders.iter().map(|(to, _)| *to).eq([A, A]), "A takes it once more: {:?}", fleet.orders);
    fleet.obey();
    assert!(fleet.charge(B).contains(&moved) && !fleet.charge(A).contains(&moved));
}

#[test]
fn who_says_nothing_is_not_waited_for_for_ever() {
    let mut fleet = Fleet::new(6);
    [A, B].into_iter().for_each(|cache| fleet.begins(cache));
    // C has a session, and never says what it has; B is told to take something of A's, and never says that it has.
    fleet.balance.opened(C);
    let orders = fleet.balance.move_to(backend(0), B).expect("B is there");
    assert_eq!(orders, [(A, Order::Charge(vec![backend(3)]))]);
    fleet.take(orders);
    fleet.obeys(A);
    assert_eq!(fleet.orders, [], "C may have it");
    let takes = |orders: &[(NodeId, Order)], cache| {
        let is_it = |order: &Order| matches!(order, Order::Charge(backends) if backends.contains(&backend(0)));
        orders.iter().any(|(to, order)| *to == cache && is_it(order))
    };
    let mut told = Vec::new();
    for _ in 0..AWAITED_FOR {
        fleet.now = fleet.now + ROUND;
        told.extend(fleet.balance.go_on(fleet.now));
    }
    assert!(takes(&told, B) && !takes(&told, C), "{told:?}");
    assert!(told.iter().any(|(_, order)| matches!(order, Order::MeanLoad(_))), "of those who speak");
    assert_eq!(fleet.balance.move_to(backend(0), C), Err(MoveError::SilentCache(C)));
    let orders = fleet.balance.move_to(backend(0), A).expect("A is there");
    assert!(!takes(&orders, A), "B may have it");
    let mut told = Vec::new();
    for _ in 0..AWAITED_FOR {
        fleet.now = fleet.now + ROUND;
        told.extend(fleet.balance.go_on(fleet.now));
    }
    assert!(takes(&told, A), "{told:?}");
}

#[test]
fn a_move_that_is_said_again_keeps_nothing_from_being_evened_out() {
    let mut fleet = Fleet::new(9);
    [A, B, C].into_iter().for_each(|cache| fleet.begins(cache));
    fleet.loads.extend([(backend(0), 100), (backend(3), 100)]);
    for _ in 0..2 * TOO_MUCH_FOR {
        fleet.round();
        assert_eq!(fleet.balance.move_to(backend(1), B), Ok(Vec::new()));
    }
    assert!(fleet.charge(A).len() < 3, "{:?}", fleet.charges);
}

#[test]
fn backends_go_to_the_homes_that_they_have_in_another_view() {
    let mut fleet = Fleet::new(6);
    fleet.balance.load_min = 1_000.0;
    [A, B].into_iter().for_each(|cache| fleet.begins(cache));
    // C has never been there: A and B have its backends, and one of B's is elsewhere by an operator's wish.
    (0..6).for_each(|_| fleet.round());
    let orders = fleet.balance.move_to(backend(4), A).expect("both are there");
    fleet.take(orders);
    fleet.obey();
    // C comes: it has what is its home from the beginning, in its own words.
    fleet.begins(C);
    (0..3).for_each(|_| fleet.round());
    assert_eq!(fleet.charge(C), [backend(2), backend(5)]);
    // B goes, and what was at home there has a home with C now, or with A.
    let homes: BTreeMap<_, _> =
        [(0, A), (1, C), (2, C), (3, A), (4, C), (5, C)].map(|(at, home)| (backend(at), home)).into();
    fleet.dies(B);
    fleet.balance.on_view(&homes, &whole(&[A, C]));
    fleet.round();
    assert_eq!(fleet.charge(C), [1, 2, 5].map(backend));
    assert_eq!(fleet.charge(A), [0, 3, 4].map(backend), "where an operator wanted it");
    // Homes change while all are there.
    let homes = homes.into_iter().map(|(backend, home)| (backend, if home == A { C } else { A })).collect();
    fleet.balance.on_view(&homes, &whole(&[A, C]));
    (0..2).for_each(|_| fleet.round());
    assert_eq!((fleet.charge(A), fleet.charge(C)), ([1, 2, 4, 5].map(backend).into(), [0, 3].map(backend).into()));
}

#[test]
fn what_is_unknown_or_silent_is_moved_nowhere() {
    let mut fleet = Fleet::new(6);
    [A, B].into_iter().for_each(|cache| fleet.begins(cache));
    (0..6).for_each(|_| fleet.round());
    let owners = fleet.balance.owners.clone();
    assert_eq!(fleet.balance.move_to(backend(6), A), Err(MoveError::UnknownBackend(backend(6))));
    assert_eq!(fleet.balance.move_to(backend(0), C), Err(MoveError::SilentCache(C)));
    assert_eq!(fleet.balance.owners, owners);
}

#[test]
fn loads_that_are_not_worth_it_are_left_alone() {
    let mut fleet = Fleet::new(6);
    fleet.balance.load_min = 1_000.0;
    [A, B, C].into_iter().for_each(|cache| fleet.begins(cache));
    fleet.loads.insert(backend(0), 500);
    (0..20).for_each(|_| fleet.round());
    assert_eq!((fleet.charge(A), fleet.means.len()), (vec![backend(0), backend(3)], 0));
}

#[test]
fn a_controller_that_was_away_takes_nothing_from_anybody() {
    let mut fleet = Fleet::new(6);
    [A, B, C].into_iter().for_each(|cache| fleet.begins(cache));
    (0..10).for_each(|_| fleet.round());
    // It hears of one again, a round comes, and then of the others.
    for cache in [A, B, C] {
        fleet.balance.lost(cache);
    }
    for cache in [A, B, C] {
        fleet.opens(cache);
        fleet.tells(cache);
        fleet.now = fleet.now + ROUND;
        let orders = fleet.balance.go_on(fleet.now);
        fleet.take(orders);
    }
    assert!(fleet.orders.is_empty(), "{:?}", fleet.orders);
}

#[test]
fn who_has_what_is_its_own_keeps_it_whoever_else_says_so() {
    let mut fleet = Fleet::new(6);
    fleet.begins(A);
    fleet.charges.insert(C, [0, 2].map(backend).into());
    fleet.opens(C);
    fleet.tells(C);
    assert_eq!(fleet.orders, [(C, vec![backend(2)])], "and A is told nothing");
}

#[test]
fn who_has_backends_and_nothing_to_do_gets_no_more() {
    let mut fleet = Fleet::new(6);
    [A, B, C].into_iter().for_each(|cache| fleet.begins(cache));
    fleet.loads.extend([2, 5].map(|at| (backend(at), 0)));
    fleet.loads.extend([0, 3].map(|at| (backend(at), 100)));
    (0..40).for_each(|_| fleet.round());
    assert_eq!(fleet.charge(C), [backend(2), backend(5)]);
    let hot = [0, 3].map(backend);
    let of_both = |cache| fleet.charge(cache).into_iter().filter(|it| hot.contains(it)).count();
    assert_eq!((of_both(A), of_both(B)), (1, 1), "one goes to who serves");
}

#[test]
fn all_parts_of_a_cache_node_are_in_charge_of_what_it_is() {
    let mut fleet = Fleet::of(in_parts([3, 2, 1]), 6);
    // Nothing is evened out.
    fleet.balance.load_min = 1_000.0;
    ALL.into_iter().for_each(|node| fleet.node_begins(node));
    (0..6).for_each(|_| fleet.round());
    assert_eq!(fleet.charge_of_node(A), [0, 3].map(backend));
    let orders = fleet.balance.move_to(backend(0), B).expect("both are known");
    fleet.take(orders);
    fleet.obey();
    assert_eq!((fleet.charge_of_node(A), fleet.charge_of_node(B)), (vec![backend(3)], [0, 1, 4].map(backend).into()));
    let told = fleet.balance.told_by(B).expect("it has said so");
    assert_eq!(told.charge, [0, 1, 4].map(|at| (backend(at), 10.0)).into(), "by all of its parts together");
    assert_eq!(fleet.balance.move_to(backend(0), NodeId(A.0 + 1)), Err(MoveError::SilentCache(NodeId(A.0 + 1))));
}

#[test]
fn a_cache_node_keeps_its_backends_until_all_of_its_parts_are_silent() {
    let mut fleet = Fleet::of(in_parts([2, 1, 1]), 6);
    ALL.into_iter().for_each(|node| fleet.node_begins(node));
    (0..3).for_each(|_| fleet.round());
    let second = NodeId(A.0 + 1);
    fleet.dies(second);
    (0..10).for_each(|_| fleet.round());
    assert_eq!(fleet.charge(A), [0, 3].map(backend));
    fleet.dies(A);
    (0..5).for_each(|_| fleet.round());
    assert_eq!((fleet.charge(B).len(), fleet.charge(C).len()), (3, 3));
    fleet.node_begins(A);
    (0..2).for_each(|_| fleet.round());
    assert_eq!(fleet.charge_of_node(A), [0, 3].map(backend));
}

/// It was forgotten, and another one was told to take the backend at once.
#[test]
fn an_order_that_is_on_its_way_while_no_backend_has_a_home_counts_as_before() {
    let mut fleet = Fleet::new(3);
    fleet.begins(C);
    // Nobody is in charge of what is at home with A: for a while it may be back.
    (0..2).for_each(|_| fleet.round());
    let orders = fleet.balance.move_to(backend(0), C).expect("both are known");
    fleet.take(orders);
    let elsewhere = [(0, B), (1, C), (2, A)].map(|(at, home)| (backend(at), home)).into();
    fleet.balance.on_view(&elsewhere, &whole(&ALL));
    fleet.begins(A);
    fleet.balance.on_view(&BTreeMap::new(), &whole(&ALL));
    fleet.balance.on_view(&homes(3), &whole(&ALL));
    for _ in 0..2 {
        [C, A].into_iter().for_each(|cache| fleet.tells(cache));
        fleet.now = fleet.now + ROUND;
        let orders = fleet.balance.go_on(fleet.now);
        fleet.take(orders);
    }
    assert_eq!(fleet.orders.first(), Some(&(C, vec![backend(0), backend(2)])), "C has yet to hear it");
}

/// The mean over all parts is nearly that of its own.
#[test]
fn a_cache_node_of_most_of_all_parts_may_have_too_much() {
    let mut fleet = Fleet::of(in_parts([8, 1, 1]), 36);
    ALL.into_iter().for_each(|node| fleet.node_begins(node));
    let its = fleet.charge(A);
    fleet.loads.iter_mut().for_each(|(backend, load)| *load = if its.contains(backend) { 24 } else { 1 });
    (0..20).for_each(|_| fleet.round());
    assert!(fleet.charge_of_node(A).len() < its.len(), "{:?}", fleet.charges);
}

#[test]
fn a_cache_node_with_a_silent_part_is_given_nothing_more() {
    let mut fleet = Fleet::of(in_parts([1, 2, 1]), 6);
    ALL.into_iter().for_each(|node| fleet.node_begins(node));
    (0..3).for_each(|_| fleet.round());
    fleet.dies(NodeId(B.0 + 1));
    fleet.dies(A);
    (0..6).for_each(|_| fleet.round());
    assert_eq!((fleet.charge(B).len(), fleet.charge(C).len()), (2, 4));
}

#[test]
fn loads_alone_are_no_reason_for_orders() {
    let mut fleet = Fleet::of(in_parts([2, 1, 1]), 6);
    ALL.into_iter().for_each(|node| fleet.node_begins(node));
    // An owner that changes without a word: whoever tells the same as before is told nothing, and the next round tells it.
    fleet.balance.owners.insert(backend(0), B);
    fleet.loads.insert(backend(0), 7);
    fleet.tells(A);
    assert!(fleet.orders.is_empty(), "{:?}", fleet.orders);
    fleet.round();
    assert_eq!((fleet.charge_of_node(A), fleet.charge(B)), (vec![backend(3)], [0, 1, 4].map(backend).into()));
}

#[test]
fn a_cache_node_of_twice_as_many_parts_has_twice_as_much_to_do() {
    let mut fleet = Fleet::of(in_parts([2, 1, 1]), 12);
    // Evenly dealt out, and so twice as much for B and for C as for each part of A.
    ALL.into_iter().for_each(|node| fleet.node_begins(node));
    fleet.loads.values_mut().for_each(|load| *load = 60);
    (0..60).for_each(|_| fleet.round());
    assert_eq!((fleet.charge_of_node(A).len(), fleet.charge(B).len(), fleet.charge(C).len()), (6, 3, 3));
    assert_eq!(fleet.means.last(), Some(&180));
}

proptest! {
    /// Whatever happens, nobody is told to take what another has ([`Fleet::take`]), and in the end each backend is somebody's.
    #[test]
    fn in_the_end_each_backend_is_in_one_charge(
        parts in prop::array::uniform3(1u16..4),
        acts in prop::collection::vec((0u8..16, 0usize..3, 0u16..3, 0u16..8, 0u32..100), 1..100),
    ) {
        let all = in_parts(parts);
        let mut nodes = all.clone();
        let mut fleet = Fleet::of(nodes.clone(), 8);
        for (act, at, part, backend_at, load) in acts {
            let node = ALL[at];
            let cache = NodeId(node.0 + part % parts[at]);
            match act {
                0 | 1 if !fleet.charges.contains_key(&cache) && nodes.is_node(node) => fleet.begins(cache),
                2 if fleet.charges.contains_key(&cache) => fleet.dies(cache),
                // Cut off from the controller alone: it goes on with what it has.
                3 if fleet.charges.contains_key(&cache) => {
                    fleet.balance.lost(cache);
                    fleet.opens(cache);
                }
                4 => drop(fleet.loads.insert(backend(backend_at), load)),
                5 => {
                    if let Ok(orders) = fleet.balance.move_to(backend(backend_at), node) {
                        fleet.take(orders);
                    }
                }
                6..9 => fleet.obeys(cache),
                // Other homes: each the next one's, or none for a while.
                10 => {
                    let others: Vec<NodeId> = nodes.nodes().collect();
                    let homes = homes(8).into_keys().zip(others.into_iter().cycle().skip(at));
                    let homes = homes.filter(|_| load > 30).collect();
                    fleet.balance.on_view(&homes, &nodes);
                }
                // What it tells crosses what it is told.
                9 if fleet.charges.contains_key(&cache) => fleet.tells(cache),
                // A node goes with all of its parts, whose backends have other homes; or one is back.
                11 if nodes.len() > 1 && nodes.is_node(node) => {
                    all.parts_of(node).for_each(|part| fleet.dies(part));
                    let left = all.nodes().filter(|other| nodes.is_node(*other) && *other != node);
                    nodes = left.map(|left| (left, NonZero::new(parts_len(&all, left)).expect("one"))).collect();
                    let others: Vec<NodeId> = nodes.nodes().collect();
                    let homes = homes(8).into_keys().zip(others.into_iter().cycle()).collect();
                    fleet.balance.on_view(&homes, &nodes);
                }
                12 => {
                    nodes = all.clone();
                    fleet.balance.on_view(&homes(8), &nodes);
                }
                _ => fleet.round(),
            }
        }
        nodes = all;
        fleet.balance.on_view(&homes(8), &nodes);
        if fleet.charges.is_empty() {
            fleet.begins(A);
        }
        (0..8).for_each(|_| fleet.round());
        for at in 0..8 {
            let has_it = |part: &NodeId| fleet.charges[part].contains(&backend(at));
            let holders: BTreeSet<_> =
                fleet.charges.keys().filter(|part| has_it(part)).map(|part| nodes.node_of(*part)).collect();
            prop_assert_eq!(holders.len(), 1, "{:?} of {:?}", backend(at), &fleet.charges);
            let mut parts = fleet.charges.keys().filter(|part| holders.contains(&nodes.node_of(**part)));
            prop_assert!(parts.all(has_it), "{:?} is not of all parts of {:?}: {:?}", backend(at), holders, &fleet.charges);
        }
    }
}
