//! The models there are, each with three bounds, and which faults of the protocol each finds.

use guira_consistency::{Consistency, Mutant};

use crate::{
    Bounds,
    symmetric::{
        orders::Want::{self, Append, Delete, Get, LateGet, Set, SetBriefly, Swap},
        scenario::{Begins, Client, Faults, Scenario},
    },
};

/// The names of all models.
pub const MODELS: [&str; 41] = [
    "writes",
    "modifies",
    "finished",
    "swaps",
    "crashes",
    "crashed-modifies",
    "lapses",
    "node-returns",
    "home-returns",
    "promotes",
    "evicts",
    "turns",
    "promotion-crashes",
    "eviction-crashes",
    "forgetting-crashes",
    "forgetting-returns",
    "homes-crash",
    "promoted-below",
    "ends",
    "two-keys",
    "joins-and-promotes",
    "joins-and-evicts",
    "again",
    "again-modifies",
    "sc-writes",
    "sc-modifies",
    "sc-modify",
    "sc-crashes",
    "sc-crashed-modifies",
    "sc-returns",
    "sc-sessions",
    "sc-ends",
    "all-write",
    "two-crashes",
    "two-joins",
    "lapse-returns",
    "turn-crashes",
    "turn-crashes-lose",
    "sc-all-write",
    "sc-turn-crashes",
    "sc-turns",
];

/// Which model finds which fault, within the smallest bounds.
pub const FINDS: [(Mutant, &str); 33] = [
    (Mutant::AckForgotten, "writes"),
    (Mutant::TieIgnored, "writes"),
    (Mutant::ValidateAny, "writes"),
    (Mutant::ReplayFresh, "crashes"),
    (Mutant::ModifyByTwo, "modifies"),
    (Mutant::ModifyNotAborted, "modifies"),
    (Mutant::ModifyTwice, "finished"),
    (Mutant::OldEpoch, "node-returns"),
    (Mutant::AcksKept, "node-returns"),
    (Mutant::PastLease, "lapses"),
    (Mutant::WriterReturns, "node-returns"),
    (Mutant::JoinerEarly, "home-returns"),
    (Mutant::JoinerDeaf, "node-returns"),
    (Mutant::JoinerRevives, "forgetting-returns"),
    (Mutant::JoinerLeaves, "joins-and-evicts"),
    (Mutant::WriteBackEarly, "evicts"),
    (Mutant::EvictDrops, "eviction-crashes"),
    (Mutant::LeavingDeaf, "evicts"),
    (Mutant::PromotesTwice, "turns"),
    (Mutant::AckOfEarlier, "turns"),
    (Mutant::UnconfirmedServes, "promotes"),
    (Mutant::SuccessorIdle, "promotion-crashes"),
    (Mutant::ForgottenByNobody, "forgetting-crashes"),
    (Mutant::DoubtIgnored, "homes-crash"),
    (Mutant::TimesAlike, "promoted-below"),
    (Mutant::Unburied, "ends"),
    (Mutant::AgainPlain, "again"),
    (Mutant::UpdateOnce, "sc-writes"),
    (Mutant::DepartedUntold, "sc-crashes"),
    (Mutant::FloorIgnored, "sc-sessions"),
    (Mutant::ModifyUnsettled, "sc-modify"),
    (Mutant::SettledByAny, "sc-modify"),
    (Mutant::SuccessorPromotes, "sc-turn-crashes"),
];

fn client(node: usize, wants: &[Want]) -> Client {
    Client { node, wants: wants.iter().map(|want| (0, *want)).collect() }
}

/// All models, in the order of [`MODELS`].
pub fn models(bounds: Bounds) -> Vec<Scenario> {
    let base = Scenario {
        name: "",
        about: "",
        consistency: Consistency::Lin,
        nodes: 3,
        keys: 1,
        clients: Vec::new(),
        begins: Begins::Hot,
        hot_set: (0, 0),
        faults: Faults::default(),
        faulty_from: 0,
        asks_again: false,
        wanders: false,
        shards_die: false,
        settles_one_in: 16,
        logs: false,
        forgets_dead: true,
        ways_max: bounds.of(20_000_000, 100_000_000, 1_000_000_000),
        mutant: None,
    };
    let none = Faults::default();
    let sequential = Scenario { consistency: Consistency::Sc, ..base.clone() };
    vec![
        Scenario {
            name: "writes",
            about: "all nodes write, and read",
            clients: vec![client(0, &[Set(b'a'), Get]), client(1, &[Set(b'b')]), client(2, &[Get])],
            faults: Faults { passes: 1, ..none },
            ..base.clone()
        },
        Scenario {
            name: "modifies",
            about: "read-modify-writes beside a plain write",
            clients: vec![client(0, &[Set(b'a'), Get]), client(1, &[Append(b'b')]), client(2, &[Append(b'c'), Get])],
            ..base.clone()
        },
        Scenario {
            name: "finished",
            about: "a read-modify-write is finished by others, who write on top of it",
            clients: vec![client(0, &[Append(b'a')]), client(1, &[Append(b'b')]), client(2, &[Get, Set(b'c')])],
            faults: Faults { passes: 2, ..none },
            ..base.clone()
        },
        Scenario {
            name: "swaps",
            about: "two go by what they have read, and one removes it",
            clients: vec![client(0, &[Get, Swap(b'a')]), client(1, &[Get, Swap(b'b')]), client(2, &[Delete])],
            ..base.clone()
        },
        Scenario {
            name: "crashes",
            about: "a node dies while all write, and is out of the next view",
            clients: vec![client(0, &[Set(b'a'), Get]), client(1, &[Set(b'b')]), client(2, &[Set(b'c')])],
            faults: Faults { crashes: 1, views: 1, passes: 1, ..none },
            faulty_from: 1,
            ..base.clone()
        },
        Scenario {
            name: "crashed-modifies",
            about: "the same, with read-modify-writes",
            clients: vec![client(0, &[Append(b'a')]), client(1, &[Append(b'b')]), client(2, &[Set(b'c')])],
            faults: Faults { crashes: 1, views: 1, ..none },
            faulty_from: 1,
            ..base.clone()
        },
        Scenario {
            name: "lapses",
            about: "a node is cut off, and goes on for as long as it may",
            clients: vec![client(0, &[Set(b'a'), Get]), client(2, &[Set(b'b'), Get])],
            faults: Faults { lapses: 1, views: 1, passes: 1, ..none },
            faulty_from: 1,
            ..base.clone()
        },
        Scenario {
            name: "node-returns",
            about: "a node dies and comes back, in one view or in two",
            clients: vec![client(1, &[Get]), client(2, &[Set(b'b'), Set(b'd')]), client(0, &[Set(b'c')])],
            faults: Faults { crashes: 1, views: 2, joins: 1, ..none },
            faulty_from: 2,
            ..base.clone()
        },
        Scenario {
            name: "home-returns",
            about: "the home dies and comes back",
            clients: vec![client(1, &[Set(b'a')]), client(0, &[Get])],
            faults: Faults { crashes: 1, views: 1, joins: 1, ..none },
            ..base.clone()
        },
        Scenario {
            name: "promotes",
            about: "a key becomes hot while it is written and read",
            clients: vec![client(0, &[Set(b'a')]), client(1, &[Set(b'b'), Get]), client(2, &[Get])],
            begins: Begins::Cold,
            hot_set: (1, 0),
            faults: Faults { passes: 1, ..none },
            ..base.clone()
        },
        Scenario {
            name: "evicts",
            about: "a key ceases to be hot while it is written and read",
            clients: vec![client(1, &[Set(b'a'), Get]), client(2, &[Append(b'b')])],
            hot_set: (0, 1),
            faults: Faults { passes: 1, ..none },
            ..base.clone()
        },
        Scenario {
            name: "turns",
            about: "a key becomes hot, ceases to be, and becomes so again",
            clients: vec![client(1, &[Set(b'a'), Get]), client(2, &[Get])],
            begins: Begins::Cold,
            hot_set: (2, 1),
            ..base.clone()
        },
        Scenario {
            name: "promotion-crashes",
            about: "the home dies while a key becomes hot",
            clients: vec![client(1, &[Set(b'a'), Get]), client(2, &[Get])],
            begins: Begins::Cold,
            hot_set: (1, 0),
            faults: Faults { crashes: 1, views: 1, passes: 1, ..none },
            ..base.clone()
        },
        Scenario {
            name: "eviction-crashes",
            about: "the home dies, or another, while a key ceases to be hot",
            clients: vec![client(1, &[Set(b'a'), Get]), client(2, &[Get])],
            hot_set: (0, 1),
            faults: Faults { crashes: 1, views: 1, passes: 1, ..none },
            ..base.clone()
        },
        Scenario {
            name: "forgetting-crashes",
            about: "the home dies, with its shard, after a key has ceased to be hot",
            clients: vec![client(1, &[Set(b'a'), Get]), client(2, &[Get])],
            hot_set: (0, 1),
            faults: Faults { crashes: 1, views: 1, ..none },
            shards_die: true,
            ..base.clone()
        },
        Scenario {
            name: "forgetting-returns",
            about: "the home dies while a key ceases to be hot, and comes back",
            clients: vec![client(1, &[Get])],
            hot_set: (0, 1),
            faults: Faults { crashes: 1, views: 2, joins: 1, passes: 1, ..none },
            shards_die: true,
            ..base.clone()
        },
        Scenario {
            name: "homes-crash",
            about: "the home dies, with its shard, and then its successor, while a key ceases to be hot",
            clients: vec![client(1, &[Set(b'a')]), client(2, &[Get])],
            hot_set: (0, 1),
            faults: Faults { crashes: 2, views: 2, ..none },
            shards_die: true,
            ..base.clone()
        },
        Scenario {
            name: "promoted-below",
            about: "a key that its home has lost is promoted by a successor, from below what others still have",
            clients: vec![client(1, &[Set(b'a')]), client(2, &[Get])],
            hot_set: (1, 1),
            faults: Faults { crashes: 1, views: 1, ..none },
            shards_die: true,
            ..base.clone()
        },
        Scenario {
            name: "ends",
            about: "a value ends, by the clock of one node and not yet by another's",
            clients: vec![client(0, &[SetBriefly(b'a'), Get]), client(1, &[LateGet]), client(2, &[Append(b'b'), Get])],
            ..base.clone()
        },
        Scenario {
            name: "two-keys",
            about: "a node dies and comes back, page by page, while each key is written",
            clients: vec![
                Client { node: 0, wants: vec![(0, Set(b'a'))] },
                Client { node: 1, wants: vec![(1, Set(b'b'))] },
                Client { node: 2, wants: vec![(0, Get), (1, Get)] },
            ],
            keys: 2,
            faults: Faults { crashes: 1, views: 1, joins: 1, ..none },
            faulty_from: 2,
            ..base.clone()
        },
        Scenario {
            name: "joins-and-promotes",
            about: "a node comes back while a key becomes hot and ceases to be",
            clients: vec![client(1, &[Set(b'a')])],
            begins: Begins::Cold,
            hot_set: (1, 1),
            faults: Faults { crashes: 1, views: 1, joins: 1, ..none },
            faulty_from: 2,
            ..base.clone()
        },
        Scenario {
            name: "joins-and-evicts",
            about: "a node comes back, page by page, while one of two keys ceases to be hot",
            clients: vec![client(1, &[Set(b'a')])],
            keys: 2,
            hot_set: (0, 1),
            faults: Faults { crashes: 1, views: 1, joins: 1, ..none },
            faulty_from: 2,
            ..base.clone()
        },
        Scenario {
            name: "again",
            about: "who does not know what became of his request asks again, elsewhere",
            clients: vec![client(2, &[Set(b'a')]), client(1, &[Get, Set(b'b')]), client(0, &[Get])],
            faults: Faults { crashes: 1, views: 1, ..none },
            faulty_from: 2,
            asks_again: true,
            ..base.clone()
        },
        Scenario {
            name: "again-modifies",
            about: "the same, with read-modify-writes",
            clients: vec![client(2, &[Append(b'a')]), client(1, &[Append(b'b')]), client(0, &[Get])],
            faults: Faults { crashes: 1, views: 1, passes: 1, ..none },
            faulty_from: 2,
            asks_again: true,
            ..base.clone()
        },
        Scenario {
            name: "sc-writes",
            about: "SC: all nodes write, and read",
            clients: vec![client(0, &[Set(b'a'), Get]), client(1, &[Set(b'b'), Get]), client(2, &[Get])],
            faults: Faults { passes: 1, ..none },
            ..sequential.clone()
        },
        Scenario {
            name: "sc-modifies",
            about: "SC: read-modify-writes beside a plain write",
            clients: vec![client(0, &[Append(b'a')]), client(1, &[Append(b'b')]), client(2, &[Set(b'c')])],
            ..sequential.clone()
        },
        Scenario {
            name: "sc-modify",
            about: "SC: a read-modify-write beside plain writes",
            clients: vec![client(0, &[Append(b'a')]), client(1, &[Set(b'b')]), client(2, &[Set(b'c')])],
            ..sequential.clone()
        },
        Scenario {
            name: "sc-crashes",
            about: "SC: a node dies that has written",
            clients: vec![client(0, &[Set(b'a')]), client(1, &[Get]), client(2, &[Set(b'c'), Set(b'd')])],
            faults: Faults { crashes: 1, views: 1, passes: 1, ..none },
            faulty_from: 2,
            ..sequential.clone()
        },
        Scenario {
            name: "sc-crashed-modifies",
            about: "SC: a node dies whose read-modify-write is on its way",
            clients: vec![client(0, &[Set(b'a')]), client(1, &[Append(b'b')]), client(2, &[Append(b'c')])],
            faults: Faults { crashes: 1, views: 1, ..none },
            faulty_from: 2,
            ..sequential.clone()
        },
        Scenario {
            name: "sc-returns",
            about: "SC: a node dies and comes back",
            clients: vec![client(0, &[Set(b'a')]), client(2, &[Set(b'c'), Get])],
            faults: Faults { crashes: 1, views: 2, joins: 1, ..none },
            faulty_from: 2,
            ..sequential.clone()
        },
        Scenario {
            name: "sc-sessions",
            about: "SC: a client goes from node to node, and says what it has seen",
            clients: vec![client(0, &[Set(b'a'), Get, Get]), client(2, &[Set(b'c')])],
            wanders: true,
            ..sequential.clone()
        },
        Scenario {
            name: "sc-ends",
            about: "SC: a value ends, by the clock of one node and not yet by another's",
            clients: vec![client(0, &[SetBriefly(b'a'), Get]), client(1, &[LateGet]), client(2, &[Get])],
            ..sequential.clone()
        },
        Scenario {
            name: "all-write",
            about: "two keys, both written by all nodes",
            clients: vec![
                Client {
                    node: 0,
                    wants: bounds.of(
                        vec![(0, Set(b'a'))],
                        vec![(0, Set(b'a')), (1, Get)],
                        vec![(0, Set(b'a')), (1, Set(b'd'))],
                    ),
                },
                Client {
                    node: 1,
                    wants: bounds.of(
                        vec![(1, Set(b'b'))],
                        vec![(1, Set(b'b')), (0, Get)],
                        vec![(1, Set(b'b')), (0, Set(b'e'))],
                    ),
                },
                Client {
                    node: 2,
                    wants: bounds.of(vec![(0, Set(b'c'))], vec![(0, Set(b'c'))], vec![(0, Set(b'c')), (1, Set(b'f'))]),
                },
            ],
            keys: 2,
            ..base.clone()
        },
        Scenario {
            name: "two-crashes",
            about: "two nodes die, one after the other, while all write",
            clients: vec![
                client(0, &[Set(b'a'), Get]),
                client(1, &[Set(b'b')]),
                client(2, bounds.of(&[], &[Set(b'c')], &[Set(b'c')])),
            ],
            faults: Faults { crashes: 2, views: 2, passes: bounds.of(0, 0, 1), ..none },
            faulty_from: 1,
            ..base.clone()
        },
        Scenario {
            name: "two-joins",
            about: "two nodes die and come back",
            clients: vec![
                client(0, &[Set(b'a')]),
                client(1, bounds.of(&[], &[Set(b'b')], &[Set(b'b')])),
                client(2, bounds.of(&[], &[], &[Get])),
            ],
            faults: Faults { crashes: 2, views: bounds.of(2, 2, 3), joins: 2, ..none },
            faulty_from: 1,
            ..base.clone()
        },
        Scenario {
            name: "lapse-returns",
            about: "a node is cut off while it writes, is taken for dead, and comes back in another life",
            clients: vec![
                client(0, bounds.of(&[Set(b'a')], &[Set(b'a'), Get], &[Set(b'a'), Get])),
                client(2, bounds.of(&[Set(b'b')], &[Set(b'b'), Get], &[Set(b'b'), Set(b'c')])),
            ],
            faults: Faults { lapses: 1, views: 2, joins: 1, ..none },
            faulty_from: 2,
            ..base.clone()
        },
        Scenario {
            name: "turn-crashes",
            about: "a node dies, the home or another, while a key becomes hot and ceases to be",
            clients: vec![client(1, &[Set(b'a')]), client(2, bounds.of(&[], &[Get], &[Append(b'b')]))],
            begins: Begins::Cold,
            hot_set: (1, 1),
            faults: Faults { crashes: 1, views: 1, passes: bounds.of(0, 0, 1), ..none },
            ..base.clone()
        },
        Scenario {
            name: "turn-crashes-lose",
            about: "the same, where a shard dies with its home",
            clients: vec![client(1, &[Set(b'a')]), client(2, bounds.of(&[], &[Get], &[Append(b'b')]))],
            begins: Begins::Cold,
            hot_set: (1, 1),
            faults: Faults { crashes: 1, views: 1, passes: bounds.of(0, 0, 1), ..none },
            shards_die: true,
            ..base.clone()
        },
        Scenario {
            name: "sc-all-write",
            about: "SC: two keys, both written by all nodes",
            clients: vec![
                Client {
                    node: 0,
                    wants: bounds.of(
                        vec![(0, Set(b'a'))],
                        vec![(0, Set(b'a')), (1, Get)],
                        vec![(0, Set(b'a')), (1, Set(b'd'))],
                    ),
                },
                Client {
                    node: 1,
                    wants: bounds.of(vec![(1, Set(b'b'))], vec![(1, Set(b'b'))], vec![(1, Set(b'b')), (0, Set(b'e'))]),
                },
                Client {
                    node: 2,
                    wants: bounds.of(vec![(0, Set(b'c'))], vec![(0, Set(b'c'))], vec![(0, Set(b'c')), (1, Set(b'f'))]),
                },
            ],
            keys: 2,
            ..sequential.clone()
        },
        Scenario {
            name: "sc-turn-crashes",
            about: "SC: a node dies while a key becomes hot and ceases to be",
            clients: vec![client(1, &[Set(b'a')]), client(2, bounds.of(&[], &[Get], &[Append(b'b')]))],
            begins: Begins::Cold,
            hot_set: (1, 1),
            faults: Faults { crashes: 1, views: 1, passes: bounds.of(0, 0, 1), ..none },
            ..sequential.clone()
        },
        Scenario {
            name: "sc-turns",
            about: "SC: a key becomes hot, and ceases to be",
            clients: vec![client(1, &[Set(b'a'), Get])],
            begins: Begins::Cold,
            hot_set: (1, 1),
            ..sequential
        },
    ]
}
