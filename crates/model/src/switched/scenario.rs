//! What is checked: who does what, what may go wrong, and how often.

use std::{collections::BTreeSet, fmt};

use guira_switched::Mutant;
use serde::Serialize;

use crate::switched::orders::Wish;

/// The keys there are.
pub(crate) const KEYS: [[u8; 1]; 2] = [*b"a", *b"b"];

/// A key's number.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct KeyNumber(pub usize);

/// A client: asks one thing after the other, of one gateway.
#[derive(Clone, Debug)]
pub struct Client {
    /// Which, from 0: the first has a rule for every key, so it asks the first cache node first, and so on; those beyond have none.
    pub gateway: usize,
    /// What.
    pub wishes: Vec<(KeyNumber, Wish)>,
}

/// What may go wrong: so often at most, or as often as can be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Faults {
    /// Messages that are lost; `None`: any number.
    pub losses: Option<u8>,
    /// Messages that come twice; `None`: any number.
    pub doublings: Option<u8>,
    /// Times that a backend dies and begins another life.
    pub backend_deaths: u8,
    /// Times that the first cache node does.
    pub cache_deaths: u8,
    /// Times that the backend hears that the first cache node has gone; it may be back at any time.
    pub departures: u8,
    /// Times that a gateway asks again what was not answered yet, or hedges it; `None`: any number.
    pub resends: Option<u8>,
    /// Calls of a disk that fail.
    pub disk_failures: u8,
    /// Writes of a disk that are lost sight of: they may come at any time.
    pub late: u8,
    /// Commits that are refused though they might take place.
    pub refusals: u8,
}

/// What there is when a model begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Begins {
    /// Nothing.
    Empty,
    /// A key has the value 0, and is in every cache node.
    Cached(KeyNumber),
    /// A key that is not there was asked for and reported, and the cache node has just asked for it.
    Fetching(KeyNumber),
}

/// A model with its bounds.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Its name.
    pub name: &'static str,
    /// What it is about.
    pub about: &'static str,
    /// Who asks what.
    pub clients: Vec<Client>,
    /// Gateways.
    pub gateways: u16,
    /// Cache nodes: at most two, all in charge of all backends, with one clock.
    pub caches: usize,
    /// How often it changes who is to have the partition of key A: at first the first of two backends has it, and it is to be the second's. With 0 there is
    /// one backend.
    pub moves: u8,
    /// What there is when it begins, beside sessions.
    pub begins: Begins,
    /// Keys have the same hash.
    pub hashes_collide: bool,
    /// Keys that a cache node has room for.
    pub items_max: usize,
    /// What was read in a tick is reported at its end, too; without, what is read is told of at once, and no more.
    pub reports: bool,
    /// A lease, in ticks.
    pub lease_ticks: u64,
    /// Ticks that a clock goes on at most; `None`: for ever.
    pub ticks_max: Option<u64>,
    /// Sessions that cache nodes begin at most beside the first; what comes after is not looked at.
    pub sessions_max: u8,
    /// Gateways hedge what they may (`docs/design/0034-hedged-reads.md`) before they ask again.
    pub hedges: bool,
    /// The network routes, in any way there is: what goes by its content comes to its backend, or to any cache node, or to several of them.
    pub network_routes: bool,
    /// What goes from and to gateways comes at once, and is neither lost nor doubled.
    pub gateways_are_near: bool,
    /// So does what goes from one backend to the other.
    pub backends_are_near: bool,
    /// Datagrams from one member to another at once.
    pub room: usize,
    /// What may go wrong.
    pub faults: Faults,
    /// Of one in so many states it is looked whether everything is answered once faults stop.
    pub settles_one_in: u64,
    /// A fault put into the protocol, which has to be found.
    pub mutant: Option<Mutant>,
}

impl Scenario {
    /// Whether a client goes by what it has read.
    pub(crate) fn swaps(&self, client: usize) -> bool {
        let wishes = self.clients.get(client).map_or(&[][..], |client| &client.wishes);
        wishes.iter().any(|(_, wish)| matches!(wish, Wish::Swap { .. }))
    }
}

impl Scenario {
    /// Whether at most one `flush_all` is to come, and no other is beside it; its tick tells states apart, as long as ticks are counted.
    pub(crate) fn has_one_to_come_at_most(&self) -> bool {
        let wishes = || self.clients.iter().flat_map(|client| &client.wishes).map(|(_, wish)| wish);
        let to_come = wishes().filter(|wish| matches!(wish, Wish::FlushIn(_))).count();
        let is_alone = !wishes().any(|wish| *wish == Wish::Flush);
        to_come == 0 || (to_come == 1 && is_alone && self.ticks_max.is_some())
    }

    /// Whether somebody marks items where somebody goes by digits that he has read.
    pub(crate) fn marks_what_is_swapped(&self) -> bool {
        let marks = |client: &Client| client.wishes.iter().any(|(_, wish)| *wish == Wish::Invalidate);
        self.clients.iter().any(marks) && (0..self.clients.len()).any(|client| self.swaps(client))
    }

    /// Whether somebody has all items gone where clients name more than one.
    pub(crate) fn flushes_several_keys(&self) -> bool {
        let wishes = || self.clients.iter().flat_map(|client| &client.wishes);
        let keys: BTreeSet<usize> = wishes().map(|(key, _)| key.0).collect();
        keys.len() > 1 && wishes().any(|(_, wish)| matches!(wish, Wish::Flush | Wish::FlushIn(_)))
    }
}

/// A number that may be without end.
struct UpTo<T>(Option<T>);

impl<T: fmt::Display> fmt::Display for UpTo<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(most) => write!(f, "{most}"),
            None => f.write_str("any number of"),
        }
    }
}

/// Its bounds, in one line.
impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operations: usize = self.clients.iter().map(|client| client.wishes.len()).sum();
        let Faults {
            losses,
            doublings,
            backend_deaths,
            cache_deaths,
            departures,
            resends,
            disk_failures,
            late,
            refusals,
        } = self.faults;
        write!(
            f,
            "{operations} operations of {} clients, {} ticks, {} new sessions, {} datagrams each way",
            self.clients.len(),
            UpTo(self.ticks_max),
            self.sessions_max,
            self.room,
        )?;
        let counts = [(losses, "losses"), (doublings, "doublings"), (resends, "resends")];
        let deaths = [
            (self.moves, "moves"),
            (backend_deaths, "deaths of a backend"),
            (cache_deaths, "deaths of a cache node"),
            (departures, "departures of a cache node"),
        ];
        let failures =
            [(disk_failures, "failures of the disk"), (late, "writes that come late"), (refusals, "refusals")];
        let bounded = deaths.into_iter().chain(failures).map(|(count, of)| (Some(count), of));
        for (count, of) in counts.into_iter().chain(bounded) {
            if count != Some(0) {
                write!(f, ", {} {of}", UpTo(count))?;
            }
        }
        Ok(())
    }
}
