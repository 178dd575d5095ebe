//! One write of a key, as all nodes tell it to each other: any of them can finish it.

use serde::{Deserialize, Serialize};

use crate::{Answer, Kind, RequestId, Timestamp, Value};

/// Requests that are remembered with a key: with more sessions than that in between, one that is asked again is carried out again. A session's next
/// request takes the place of the one before, and what is asked again is so within a second or two.
const DONE_MAX: usize = 16;

/// What was written.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Version {
    /// When.
    pub at: Timestamp,
    /// On top of which: the writer had that valid. So who is on its way with a write knows whether a newer one is on top of its own.
    pub base: Timestamp,
    /// Whether it depends on that.
    pub kind: Kind,
    /// What is there; `None`: nothing.
    pub value: Option<Value>,
    /// What asked for it.
    pub by: Option<Done>,
}

/// A request that was carried out, and what it was told.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Done {
    /// Which.
    pub request: RequestId,
    /// What it was told, or would have been.
    pub answer: Answer,
}

/// The requests that a key remembers: of each session the last.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Window(Vec<Done>);

impl Window {
    /// Remembers one.
    pub fn add(&mut self, done: &Done) {
        if let Some(known) = self.0.iter_mut().find(|known| known.request.session == done.request.session) {
            if known.request.sequence < done.request.sequence {
                *known = done.clone();
            }
            return;
        }
        if self.0.len() == DONE_MAX {
            self.0.remove(0);
        }
        self.0.push(done.clone());
    }

    /// Remembers all that another does.
    pub fn merge(&mut self, other: &Self) {
        other.0.iter().for_each(|done| self.add(done));
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Done> {
        self.0.iter()
    }

    /// The last one of a session.
    pub fn last_of(&self, request: RequestId) -> Option<&Done> {
        self.0.iter().find(|known| known.request.session == request.session)
    }
}

#[cfg(test)]
mod tests {
    use guira_chain::Reply;
    use guira_routing::NodeId;

    use super::*;
    use crate::{Sequence, Session, Writer};

    fn done(session: u64, sequence: u64) -> Done {
        let session = Session { node: NodeId(1), life: session, lane: 0 };
        let request = RequestId { session, sequence: Sequence(sequence) };
        let at = Timestamp { version: 1, writer: Writer(0) };
        Done { request, answer: Answer { reply: Reply::Answer(guira_item::Answer::NotFound, None), at } }
    }

    #[test]
    fn the_last_request_of_each_session_is_remembered() {
        let mut window = Window::default();
        window.add(&done(1, 2));
        window.add(&done(1, 1));
        window.add(&done(2, 5));
        assert_eq!(window.last_of(done(1, 1).request), Some(&done(1, 2)));
        assert_eq!(window.last_of(done(3, 1).request), None);
        (10..10 + DONE_MAX as u64).for_each(|session| window.add(&done(session, 1)));
        assert_eq!(window.0.len(), DONE_MAX);
        assert_eq!(window.last_of(done(1, 1).request), None, "the one that was there first made room");
    }
}
