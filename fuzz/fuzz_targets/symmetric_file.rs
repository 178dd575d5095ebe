//! A symmetric cluster's file: any text. What is a cluster is printed as one, and has what all members need.
#![no_main]

use std::time::Duration;

use guira_cluster::{Incarnation, Life, NodeClock};
use guira_item::Moment;
use guira_symmetric::SymmetricFile;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(file) = SymmetricFile::parse(text) else { return };
    assert!(SymmetricFile::is_named(text) || !text.contains("topology"));
    let printed = file.print().expect("what was read can be written");
    assert_eq!(SymmetricFile::parse(&printed), Ok(file.clone()));
    assert!(SymmetricFile::is_named(&printed));
    assert!(file.members().is_ok() && file.member(file.coordinator()).is_some());
    let clock = NodeClock::set(Moment::default(), Duration::from_secs(1_800_000_000));
    let life = Life { incarnation: Incarnation(1), clock, seed: 1 };
    assert_eq!(file.roles().values().sum::<usize>(), file.members.len());
    for node in file.nodes() {
        assert!(file.member(node).is_some());
        let config = file.node_config(node, life);
        assert!(config.me == node && config.coordinator == file.coordinator());
    }
    assert_eq!(file.coordinator_config().views.nodes, file.nodes());
});
