//! A member that follows, for a test to look at.

use std::{
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    time::Duration,
};

use guira_cluster::{Epoch, Incarnation};
use guira_etcd::{Etcd, FollowOptions, Follower, Following, Told, View};
use guira_routing::NodeId;

use super::{PATIENCE, as_of, cluster};

pub const LIFE: u64 = 1_000;

/// Longer than a test: what is done at once does not wait for a lease to run out.
pub const LONG: Duration = Duration::from_secs(600);

/// As short as may be: what etcd is asked each third of it is asked soon.
pub const SHORT: Duration = Duration::from_secs(1);

/// Who follows, and what it was told.
pub struct Member {
    pub following: Following,
    pub told: Receiver<Told>,
}

impl Member {
    /// One who has read what [`cluster`] is.
    pub fn follow_as(me: u16, etcd: Etcd, seen: Epoch, lease: Duration) -> Self {
        let (tell, told) = mpsc::channel();
        let seen = as_of(seen.0, cluster("guira"));
        let me = seen.file.member(NodeId(me)).expect("a member").clone();
        let who = Follower { me, life: Incarnation(LIFE), seen };
        let tell = move |what| drop(tell.send(what));
        let following = etcd.follow(who, FollowOptions { lease }, tell).expect("a thread");
        Self { following, told }
    }

    /// What is told next of who is in the cluster: a machine that stalls makes etcd seem away.
    #[track_caller]
    pub fn next(&self) -> Told {
        loop {
            let told = self.told.recv_timeout(PATIENCE).expect("something is told");
            if !is_of_touch(&told) {
                return told;
            }
        }
    }

    #[track_caller]
    pub fn is_told_a_line(&self, with: &str) {
        match self.next() {
            Told::Unreadable(line) => assert!(line.contains(with) && !line.contains('\n'), "{line}"),
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    pub fn is_told_that_it_may_not_say(&self, why: &str) {
        match self.next() {
            Told::Unsaid(line) => assert!(line.contains(why) && !line.contains('\n'), "{line}"),
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    pub fn is_told(&self, view: &View) {
        match self.next() {
            Told::View(told) => assert_eq!((told.epoch, told.file.members), (view.epoch, view.file.members.clone())),
            other => panic!("{other:?}"),
        }
    }

    /// A cluster that was made anew, with all that owns something: its view and its map are heard one after the other.
    #[track_caller]
    pub fn is_told_made(&self, again: Epoch) {
        let is_all = |view: &View| (view.epoch, view.revision.0) == (again, again.0);
        while !matches!(self.next(), Told::View(view) if is_all(&view)) {}
    }

    /// Nothing was told that was not asked for above.
    #[track_caller]
    pub fn was_told_all(&self) {
        let more: Vec<Told> = self.told.try_iter().filter(|told| !is_of_touch(told)).collect();
        assert_eq!(more, []);
    }

    /// What it was told was the last.
    #[track_caller]
    pub fn has_ended(&self) {
        assert_eq!(self.told.recv_timeout(PATIENCE), Err(RecvTimeoutError::Disconnected));
    }
}

fn is_of_touch(told: &Told) -> bool {
    matches!(told, Told::OutOfTouch(_) | Told::InTouch)
}
