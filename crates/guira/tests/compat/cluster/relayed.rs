//! A cluster whose members are on loopback addresses, with a relay between them: what happens in each way is the test's to say.

use std::{net::SocketAddr, path::PathBuf, process::Command};

use super::{
    loopback::Loopback,
    members::{GATEWAY, IDS, Members, Patience, Place, place_of},
    relay::{Relay, Treatment, Way},
};

/// Members on loopback addresses, with a relay between them.
pub struct Relayed {
    relay: Relay,
    loopback: Loopback,
}

impl Place for Relayed {
    fn seen(&self, by: u16, whom: u16) -> SocketAddr {
        if by == whom { self.loopback.member(place_of(whom)) } else { self.loopback.seen(way(by, whom)) }
    }

    fn for_clients(&self) -> SocketAddr {
        self.loopback.for_clients(place_of(GATEWAY))
    }

    fn command(&self, _: u16, program: PathBuf) -> Command {
        Command::new(program)
    }
}

pub fn way(from: u16, to: u16) -> Way {
    Way { from: place_of(from), to: place_of(to) }
}

/// A cluster with a relay between its members.
pub fn relayed(seed: u64, patience: Patience) -> Members<Relayed> {
    let loopback = Loopback::claim();
    let real: Vec<_> = (0..IDS.len()).map(|place| loopback.member(place)).collect();
    let relay = Relay::between(&real, seed, |way| loopback.seen(way));
    Members::up(Relayed { relay, loopback }, patience)
}

impl Members<Relayed> {
    pub fn relay(&self) -> &Relay {
        &self.place.relay
    }

    /// Cuts what goes from one to another.
    pub fn cut(&self, from: u16, to: u16) {
        self.relay().treat(way(from, to), &Treatment::CUT);
    }

    pub fn cut_both(&self, one: u16, other: u16) {
        self.relay().treat_both(way(one, other), &Treatment::CUT);
    }

    pub fn heal(&self) {
        self.relay().treat_all(&Treatment::GOOD);
    }
}
