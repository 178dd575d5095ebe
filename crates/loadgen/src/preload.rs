//! Fills a server with a workload's keys before anything is measured.

use std::net::SocketAddr;

use crate::blocking::Blocking;
use crate::encoder::Encoder;
use crate::error::LoadError;
use crate::mix::Kind;
use crate::progress::Progress;
use crate::protocol::Protocol;
use crate::tally::Tally;
use crate::workload::Workload;

/// Sets every key of `workload` once, each on its shard. Returns what the servers answered; anything but `done`
/// means that a key is not there.
pub fn preload(addresses: &[SocketAddr], protocol: Protocol, workload: &Workload) -> Result<Tally, LoadError> {
    let mut encoder = Encoder::new(workload, protocol, addresses.len());
    let connect = |address: &SocketAddr| Blocking::connect(*address, protocol);
    let mut connections = addresses.iter().map(connect).collect::<Result<Vec<_>, _>>()?;
    let progress = Progress::new("loading keys", workload.keys);
    for id in 0..workload.keys {
        let connection = &mut connections[Encoder::shard_of(id, addresses.len())];
        connection.write_with(|out| encoder.push_write(out, Kind::Set, id))?;
        if workload.has_counters() {
            connection.write_with(|out| encoder.push_counter(out, id))?;
        }
        if id % 65_536 == 0 {
            progress.at(id);
        }
    }
    let mut tally = Tally::default();
    for connection in &mut connections {
        connection.flush()?;
        tally.add(&connection.tally());
    }
    Ok(tally)
}
