//! A backend that removes what an earlier life has left of partitions that are not its own: that, and nothing else.

use std::{collections::VecDeque, time::Duration};

use guira_cluster::{Incarnation, NodeClock};
use guira_item::{
    Moment, Span,
    store::{Condition, Found, StoreError, StoreErrorKind, StoreState, Write, Written},
};
use guira_routing::{NodeId, PartitionId, PartitionMap};
use guira_switched::{
    Life, Member, Outbox, Role, Scanned, Shares, StaticFile, StoreCall,
    backend::{Backend, BackendConfig, Happened},
    hash_of,
};

const ME: NodeId = NodeId(3);
const OTHER: NodeId = NodeId(4);

/// Its partition is the other's.
const STRAY: &[u8] = b"stray";
const OWN: &[u8] = b"own";

/// A backend whose store has both keys.
struct Owner {
    backend: Backend,
    now: Moment,
    calls: VecDeque<StoreCall>,
}

impl Owner {
    fn begin(cleans_up: bool) -> Self {
        assert_ne!(PartitionId::of(hash_of(STRAY)), PartitionId::of(hash_of(OWN)));
        let map = PartitionMap::over(&[ME]).expect("a map").with_owner([PartitionId::of(hash_of(STRAY))], OTHER);
        let member = |node: NodeId| Member::new(node.0, ([127, 0, 0, 1], node.0).into(), Role::backend(None));
        let file = StaticFile { members: vec![member(ME), member(OTHER)], ..StaticFile::default() };
        let now = Moment::from_ns(1_000_000_000);
        let clock = NodeClock::set(now, Duration::from_secs(1_800_000_000));
        let life = Life { incarnation: Incarnation(7), clock, seed: 1 };
        let config = file.backend_config(ME, &Shares::fixed(map.into()), life);
        let backend = Backend::new(BackendConfig { cleans_up, ..config }, StoreState::default(), now);
        let mut owner = Self { backend, now, calls: VecDeque::new() };
        owner.step(Happened::Tick);
        owner
    }

    fn step(&mut self, happened: Happened<'_>) {
        let mut out = Outbox::default();
        self.backend.step(self.now, happened, &mut out);
        self.calls.extend(out.store.drain(..));
    }

    /// Its store does all that it is asked, or fails at what is said to fail.
    fn completes_all(&mut self, fails: impl Fn(&StoreCall) -> Option<StoreError>) -> Vec<StoreCall> {
        let mut done = Vec::new();
        while let Some(call) = self.calls.pop_front() {
            let error = fails(&call);
            let written = |error: Option<StoreError>| error.map_or(Ok(Written::All), Err);
            self.step(match call.clone() {
                StoreCall::Scan(scan) => {
                    let keys = vec![OWN.into(), STRAY.into()];
                    Happened::Scanned(scan.number, error.map_or(Ok(Scanned { keys, more_after: None }), Err))
                }
                StoreCall::Write(key, _) => Happened::Written(key, written(error)),
                StoreCall::Read(key) => Happened::Read(key, error.map_or(Ok(Found::default()), Err)),
                StoreCall::State(_) => Happened::StateWritten(written(error)),
                other => panic!("{other:?}"),
            });
            done.push(call);
        }
        done
    }

    fn pass(&mut self, span: Span) {
        self.now = self.now + span;
        self.step(Happened::Tick);
    }
}

fn is_scan(call: &StoreCall) -> bool {
    matches!(call, StoreCall::Scan(_))
}

fn removal() -> StoreCall {
    StoreCall::Write(STRAY.into(), Write::Delete { key: STRAY.into(), condition: Condition::Always })
}

#[test]
fn what_an_earlier_life_has_left_is_removed_and_nothing_else() {
    let mut owner = Owner::begin(true);
    assert_eq!(owner.backend.partitions_unclear(), 1);
    let done = owner.completes_all(|_| None);
    let sought =
        done.iter().find_map(|call| if let StoreCall::Scan(scan) = call { Some(&scan.partitions) } else { None });
    assert_eq!(sought, Some(&[PartitionId::of(hash_of(STRAY))].into()));
    let writes: Vec<&StoreCall> = done.iter().filter(|call| matches!(call, StoreCall::Write(..))).collect();
    assert_eq!((writes, owner.backend.partitions_unclear()), (vec![&removal()], 0));
    owner.pass(Span::from_s(60));
    assert!(owner.calls.is_empty(), "{:?}", owner.calls);
}

#[test]
fn who_is_not_told_to_does_not_look_through_its_store() {
    let done = Owner::begin(false).completes_all(|_| None);
    assert!(!done.is_empty() && !done.iter().any(is_scan), "{done:?}");
}

#[test]
fn a_removal_of_which_nobody_knows_is_done_again() {
    let lost = StoreError { unknown: true, ..StoreError::refused(StoreErrorKind::Unavailable, "a disk") };
    let mut owner = Owner::begin(true);
    owner.completes_all(|call| (*call == removal()).then(|| lost.clone()));
    assert_eq!(owner.backend.partitions_unclear(), 1);
    owner.pass(Span::from_ms(500));
    assert!(owner.completes_all(|_| None).contains(&removal()));
    assert_eq!(owner.backend.partitions_unclear(), 0);
}

#[test]
fn a_store_that_cannot_be_looked_through_is_tried_less_and_less_often() {
    let damaged = |call: &StoreCall| is_scan(call).then(|| StoreError::refused(StoreErrorKind::Damaged, "a disk"));
    let mut owner = Owner::begin(true);
    assert_eq!(owner.completes_all(damaged).iter().filter(|call| is_scan(call)).count(), 1);
    let mut waits = Vec::new();
    for _ in 0..7 {
        let mut waited = Span::default();
        while !owner.completes_all(damaged).iter().any(is_scan) {
            let until = owner.backend.wake_at().expect("it wakes by itself").max(owner.now).since(owner.now);
            waited = waited + until;
            owner.pass(until);
        }
        waits.push(waited.as_s());
    }
    assert_eq!(waits, [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 16.0]);
    owner.pass(Span::from_s(16));
    owner.completes_all(|_| None);
    assert_eq!(owner.backend.partitions_unclear(), 0);
}
