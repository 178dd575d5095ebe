//! The models there are, each with three bounds, and which faults of the protocol each finds.

use guira_switched::Mutant;

use crate::{
    Bounds,
    switched::{
        orders::Wish::{self, Contend, Delete, Flush, FlushIn, Get, Invalidate, Set, Swap},
        scenario::{Begins, Client, Faults, KeyNumber, Scenario},
    },
};

const A: KeyNumber = KeyNumber(0);
const B: KeyNumber = KeyNumber(1);

/// The names of all models.
pub const MODELS: [&str; 25] = [
    "updates",
    "leases",
    "deaths",
    "cache-deaths",
    "failures",
    "requests",
    "fetches",
    "drops",
    "collisions",
    "seconds",
    "departures",
    "absences",
    "moves",
    "moved-copies",
    "move-deaths",
    "returns",
    "late-copies",
    "late-changes",
    "flushes",
    "flush-failures",
    "moved-flushes",
    "flushes-to-come",
    "moved-flushes-to-come",
    "hedges",
    "routed",
];

/// Which model finds which fault, within the smallest bounds.
pub const FINDS: [(Mutant, &str); 27] = [
    (Mutant::R1, "leases"),
    (Mutant::R2, "deaths"),
    (Mutant::R2View, "departures"),
    (Mutant::R2Begin, "absences"),
    (Mutant::R3, "requests"),
    (Mutant::R4, "updates"),
    (Mutant::R5, "fetches"),
    (Mutant::R6Drop, "drops"),
    (Mutant::R6Lapse, "updates"),
    (Mutant::R7, "seconds"),
    (Mutant::R8, "collisions"),
    (Mutant::MoveAnswer, "returns"),
    (Mutant::MoveLife, "move-deaths"),
    (Mutant::MoveGate, "moves"),
    (Mutant::MoveDrain, "moves"),
    (Mutant::MoveUncache, "moved-copies"),
    (Mutant::MoveCount, "moved-copies"),
    (Mutant::MoveChange, "moves"),
    (Mutant::MoveNews, "late-changes"),
    (Mutant::MoveClear, "move-deaths"),
    (Mutant::MoveFence, "late-copies"),
    (Mutant::MoveVersions, "moves"),
    (Mutant::MoveFlush, "moved-flushes"),
    (Mutant::MoveFlushTaken, "moved-flushes-to-come"),
    (Mutant::FlushSessions, "flushes"),
    (Mutant::FlushForgotten, "flushes-to-come"),
    (Mutant::HedgeWin, "hedges"),
];

/// Faults that no model finds. What they take is in none, and the simulator finds them: an item that ends and a clock that is set back, two backends of which one's clock
/// is ahead of the other's, a store that two have in turn. [`Mutant::MoveTakerLife`] is found by nobody: it takes a `flush_all` beside a move and a death, which is more than any bounds have.
pub const FINDS_NOT: [Mutant; 4] = [Mutant::R1Bury, Mutant::MoveTakerLife, Mutant::MoveFlushAt, Mutant::TakesEarly];

fn client(gateway: usize, wishes: &[(KeyNumber, Wish)]) -> Client {
    Client { gateway, wishes: wishes.into() }
}

/// All models, in the order of [`MODELS`].
pub fn models(bounds: Bounds) -> Vec<Scenario> {
    let none = Faults { losses: Some(0), doublings: Some(0), resends: Some(1), ..Faults::default() };
    let reads = |count: usize| client(0, &vec![(A, Get); count]);
    let base = Scenario {
        name: "updates",
        about: "a key that is cached is changed while it is read",
        clients: vec![client(0, &[(A, Set(1))]), reads(2)],
        gateways: 1,
        caches: 1,
        moves: 0,
        begins: Begins::Cached(A),
        hashes_collide: false,
        // Room for both keys, and for both that are asked for: none needs leave to come in.
        items_max: 4,
        reports: false,
        lease_ticks: 3,
        ticks_max: None,
        sessions_max: bounds.of(0, 1, 1),
        hedges: false,
        network_routes: false,
        gateways_are_near: true,
        backends_are_near: false,
        room: 1,
        faults: Faults { losses: bounds.of(Some(0), None, None), ..none },
        settles_one_in: bounds.of(1, 16, 16),
        mutant: None,
    };
    vec![
        base.clone(),
        Scenario {
            name: "leases",
            about: "what makes a lease go on comes late, and again",
            clients: vec![client(0, &[(A, Set(1))]), reads(bounds.of(1, 1, 2))],
            sessions_max: bounds.of(0, 0, 1),
            room: 2,
            faults: Faults { doublings: bounds.of(Some(1), None, None), resends: Some(0), ..none },
            ..base.clone()
        },
        Scenario {
            name: "deaths",
            about: "the backend dies, with what its disk was doing",
            clients: vec![client(0, &[(A, Set(1)), (A, Set(2))]), reads(bounds.of(1, 1, 2))],
            ticks_max: bounds.of(Some(2), None, None),
            sessions_max: bounds.of(0, 0, 1),
            faults: Faults { backend_deaths: 1, resends: bounds.of(Some(0), Some(1), Some(1)), ..none },
            ..base.clone()
        },
        Scenario {
            name: "cache-deaths",
            about: "the cache node dies, and comes back with nothing",
            clients: vec![client(0, &[(A, Set(1))]), reads(bounds.of(1, 1, 2))],
            ticks_max: bounds.of(Some(2), None, None),
            sessions_max: 1,
            faults: Faults { cache_deaths: 1, resends: bounds.of(Some(0), Some(0), Some(1)), ..none },
            ..base.clone()
        },
        Scenario {
            name: "failures",
            about: "the disk fails, and says so, or says that it does not know",
            clients: vec![client(0, &[(A, Set(1))]), reads(bounds.of(1, 2, 2))],
            sessions_max: 0,
            faults: Faults { disk_failures: bounds.of(1, 1, 2), ..none },
            ..base.clone()
        },
        Scenario {
            name: "requests",
            about: "requests and answers come late, again, or never",
            clients: vec![client(0, &[(A, Set(1)), (A, Set(2))]), client(1, &vec![(A, Get); bounds.of(1, 2, 2)])],
            gateways: 2,
            begins: Begins::Empty,
            ticks_max: Some(0),
            sessions_max: 0,
            gateways_are_near: false,
            room: 2,
            faults: Faults {
                doublings: bounds.of(Some(1), Some(1), None),
                losses: bounds.of(Some(0), Some(1), Some(2)),
                resends: bounds.of(Some(0), Some(1), Some(2)),
                backend_deaths: bounds.of(0, 0, 1),
                ..none
            },
            ..base.clone()
        },
        Scenario {
            name: "fetches",
            about: "a key is fetched while it is changed",
            clients: vec![
                client(0, &[(A, Set(1)), (A, Get), (A, Get)]),
                client(1, &[(A, Get)]),
                client(1, &[(A, Set(2))]),
            ],
            gateways: 2,
            begins: Begins::Fetching(A),
            reports: true,
            ticks_max: Some(0),
            sessions_max: 0,
            room: bounds.of(2, 2, 3),
            faults: Faults { resends: bounds.of(Some(0), Some(0), Some(1)), ..none },
            ..base.clone()
        },
        Scenario {
            name: "drops",
            about: "a key that is no longer kept is told of again",
            clients: vec![client(0, &[(A, Delete), (A, Set(1)), (A, Set(2)), (A, Get)])],
            reports: true,
            ticks_max: bounds.of(Some(1), Some(1), Some(2)),
            sessions_max: 0,
            room: bounds.of(2, 2, 3),
            faults: Faults { doublings: Some(1), resends: Some(0), ..none },
            ..base.clone()
        },
        Scenario {
            name: "collisions",
            about: "two keys have one hash",
            clients: vec![client(0, &[(A, Set(1)), (A, Get)]), client(0, &[(B, Set(2)), (B, Get)])],
            hashes_collide: true,
            ticks_max: bounds.of(Some(0), Some(1), Some(2)),
            sessions_max: 0,
            ..base.clone()
        },
        Scenario {
            name: "seconds",
            about: "a key that two cache nodes have is changed while it is read at both",
            clients: vec![client(0, &[(A, Set(1))]), reads(bounds.of(1, 1, 2)), client(1, &[(A, Get)])],
            gateways: 2,
            caches: 2,
            ticks_max: bounds.of(Some(0), Some(0), Some(2)),
            sessions_max: bounds.of(0, 0, 1),
            faults: Faults { losses: bounds.of(Some(0), Some(1), None), ..base.faults },
            ..base.clone()
        },
        Scenario {
            name: "departures",
            about: "the backend hears that its cache node has gone, which goes on serving what it may",
            clients: vec![client(0, &[(A, Set(1))]), reads(bounds.of(1, 1, 2))],
            sessions_max: bounds.of(0, 1, 2),
            ticks_max: bounds.of(Some(2), Some(2), None),
            room: bounds.of(1, 2, 2),
            faults: Faults { departures: bounds.of(1, 1, 2), ..none },
            ..base.clone()
        },
        Scenario {
            name: "absences",
            about: "the backend begins another life when its cache node has gone, which goes on serving what it may",
            clients: vec![client(0, &[(A, Set(1)), (A, Set(2))]), reads(1)],
            sessions_max: bounds.of(0, 0, 1),
            ticks_max: bounds.of(Some(2), Some(4), None),
            faults: Faults { departures: 1, backend_deaths: 1, resends: Some(0), ..none },
            ..base.clone()
        },
        Scenario {
            name: "moves",
            about: "a partition moves while a key of it is changed and read",
            clients: vec![
                client(0, &[(A, Get), (A, Set(1)), (A, Swap { to: 2, read: None })]),
                reads(bounds.of(0, 1, 1)),
            ],
            caches: 0,
            moves: 1,
            ticks_max: bounds.of(Some(0), Some(0), Some(2)),
            sessions_max: 0,
            room: 2,
            faults: Faults { refusals: bounds.of(0, 0, 1), resends: bounds.of(Some(0), Some(0), Some(1)), ..none },
            ..base.clone()
        },
        Scenario {
            name: "moved-copies",
            about: "a partition moves of which cache nodes have a key, that is changed and read at each",
            clients: vec![client(0, &[(A, Set(1))]), client(1, &vec![(A, Get); bounds.of(1, 1, 2)])],
            gateways: 2,
            caches: 2,
            moves: 1,
            ticks_max: bounds.of(Some(0), Some(0), Some(1)),
            sessions_max: 0,
            room: bounds.of(1, 2, 2),
            backends_are_near: true,
            faults: Faults { resends: Some(0), ..none },
            settles_one_in: 16,
            ..base.clone()
        },
        Scenario {
            name: "move-deaths",
            about: "who gives a partition dies, or who takes it, and its commits come late",
            clients: vec![client(0, &[(A, Delete), (A, Get)])],
            caches: 0,
            moves: 1,
            ticks_max: bounds.of(Some(5), Some(6), None),
            sessions_max: 0,
            room: 2,
            backends_are_near: true,
            faults: Faults { backend_deaths: 1, refusals: bounds.of(0, 1, 1), resends: Some(0), ..none },
            settles_one_in: 16,
            ..base.clone()
        },
        Scenario {
            name: "returns",
            about: "a partition moves and comes back, and so do requests",
            clients: vec![client(0, &[(A, Set(1)), (A, Delete), (A, Get)])],
            caches: 0,
            moves: 2,
            ticks_max: Some(0),
            sessions_max: 0,
            gateways_are_near: false,
            backends_are_near: true,
            room: bounds.of(1, 2, 2),
            faults: Faults { doublings: Some(1), resends: Some(0), ..none },
            settles_one_in: 16,
            ..base.clone()
        },
        Scenario {
            name: "late-copies",
            about: "who takes a partition dies, and what it was writing comes once its next life has made room",
            clients: vec![client(0, &[(A, Delete), (A, Get)])],
            caches: 0,
            moves: 1,
            ticks_max: bounds.of(Some(4), Some(5), None),
            sessions_max: 0,
            backends_are_near: true,
            faults: Faults { backend_deaths: 1, late: 1, resends: Some(0), ..none },
            settles_one_in: 16,
            ..base.clone()
        },
        Scenario {
            name: "late-changes",
            about: "a change of which nobody knows comes, or does not, while its partition is copied, and is read there",
            clients: vec![client(0, &[(A, Set(1))]), client(0, &vec![(A, Get); bounds.of(2, 2, 3)])],
            caches: 0,
            moves: 1,
            begins: Begins::Empty,
            ticks_max: bounds.of(Some(2), Some(3), None),
            sessions_max: 0,
            backends_are_near: true,
            faults: Faults { late: 1, disk_failures: bounds.of(0, 0, 1), resends: Some(0), ..none },
            settles_one_in: 16,
            ..base.clone()
        },
        Scenario {
            name: "flushes",
            about: "all is taken away while a key that is cached is changed and read",
            clients: bounds.of(
                vec![client(0, &[(A, Flush)]), reads(1)],
                vec![client(0, &[(A, Flush)]), client(0, &[(A, Set(1))]), reads(1)],
                vec![client(0, &[(A, Flush)]), client(0, &[(A, Set(1))]), reads(2)],
            ),
            sessions_max: bounds.of(0, 0, 1),
            faults: none,
            ..base.clone()
        },
        Scenario {
            name: "flush-failures",
            about: "all is taken away while the disk fails, or the backend dies",
            clients: vec![client(0, &[(A, Flush), (A, Get)]), reads(1)],
            ticks_max: bounds.of(Some(1), Some(3), None),
            sessions_max: bounds.of(0, 0, 1),
            faults: Faults { disk_failures: 1, backend_deaths: 1, resends: Some(0), ..none },
            settles_one_in: 16,
            ..base.clone()
        },
        Scenario {
            name: "moved-flushes",
            about: "all is taken away while a partition moves, of which a key is changed and read",
            clients: bounds.of(
                vec![client(0, &[(A, Flush), (A, Get)])],
                vec![client(0, &[(A, Flush), (A, Get)]), client(0, &[(A, Set(1))])],
                vec![client(0, &[(A, Flush), (A, Get)]), client(0, &[(A, Set(1)), (A, Get)])],
            ),
            caches: 0,
            moves: 1,
            ticks_max: bounds.of(Some(0), Some(0), Some(1)),
            sessions_max: 0,
            gateways_are_near: false,
            backends_are_near: true,
            room: bounds.of(1, 1, 2),
            faults: Faults { refusals: bounds.of(0, 1, 1), resends: Some(0), ..none },
            settles_one_in: 16,
            ..base.clone()
        },
        Scenario {
            name: "flushes-to-come",
            about: "all is to be taken away in a while, and the backend dies meanwhile, or then",
            clients: bounds.of(
                vec![client(0, &[(A, FlushIn(1)), (A, Get)])],
                vec![client(0, &[(A, FlushIn(1)), (A, Set(1)), (A, Get)])],
                vec![client(0, &[(A, FlushIn(1)), (A, Get)]), client(0, &[(A, Set(1)), (A, Get)])],
            ),
            ticks_max: bounds.of(Some(5), Some(5), Some(8)),
            sessions_max: bounds.of(0, 0, 1),
            faults: Faults { backend_deaths: 1, resends: Some(0), ..none },
            settles_one_in: 16,
            ..base.clone()
        },
        Scenario {
            name: "moved-flushes-to-come",
            about: "all is to be taken away in a while, before a partition moves, meanwhile or after, of which a key is changed",
            clients: vec![
                client(0, &[(A, FlushIn(1)), (A, Get)]),
                client(0, bounds.of(&[(A, Set(1))], &[(A, Set(1))], &[(A, Set(1)), (A, Get)])),
            ],
            caches: 0,
            moves: 1,
            ticks_max: bounds.of(Some(1), Some(1), Some(4)),
            sessions_max: 0,
            backends_are_near: true,
            faults: Faults { refusals: bounds.of(0, 0, 1), resends: bounds.of(Some(0), Some(1), Some(1)), ..none },
            settles_one_in: 16,
            ..base.clone()
        },
        Scenario {
            name: "hedges",
            about: "a cache node and the backend are asked at a time for what is marked and changed, and answer late",
            clients: vec![
                client(
                    0,
                    bounds.of(
                        &[(A, Contend), (A, Get)],
                        &[(A, Contend), (A, Get)],
                        &[(A, Contend), (A, Get), (A, Get)],
                    ),
                ),
                client(1, &[(A, Invalidate), (A, Contend)]),
                client(1, bounds.of(&[], &[(A, Set(1))], &[(A, Set(1)), (A, Get)])),
            ],
            gateways: 2,
            ticks_max: Some(0),
            sessions_max: 0,
            hedges: true,
            gateways_are_near: false,
            room: bounds.of(1, 1, 2),
            faults: Faults {
                losses: bounds.of(Some(0), Some(0), None),
                resends: bounds.of(Some(1), Some(2), Some(3)),
                ..none
            },
            ..base.clone()
        },
        Scenario {
            name: "routed",
            about: "the network routes reads of a key that is changed, in any way there is",
            clients: vec![
                client(0, &[(A, Contend), (A, Get)]),
                client(1, if bounds == Bounds::Small { &[(A, Set(1))] } else { &[(A, Set(1)), (A, Get), (A, Delete)] }),
            ],
            gateways: 2,
            ticks_max: Some(0),
            sessions_max: 0,
            network_routes: true,
            gateways_are_near: false,
            room: bounds.of(1, 1, 2),
            faults: Faults {
                losses: bounds.of(Some(0), None, None),
                resends: bounds.of(Some(1), Some(2), Some(2)),
                ..none
            },
            ..base
        },
    ]
}
