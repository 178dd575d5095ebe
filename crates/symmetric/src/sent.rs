//! What a node has sent to others, by kind: so it can be said what a request costs, and that a hit costs nothing.

use guira_consistency::{Envelope, Message as OfHotKeys};

use crate::Message;

/// Messages that a node has sent, since it began.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SentCounts {
    /// Requests to homes, those that were told again as well.
    pub requests: u64,
    /// Answers to these.
    pub answers: u64,
    /// Writes that are under way (Lin, and each promotion).
    pub invalidates: u64,
    /// Acknowledgements.
    pub acks: u64,
    /// That all have acknowledged.
    pub validates: u64,
    /// Writes that have taken place (SC).
    pub updates: u64,
    /// Questions what has become of one.
    pub questions: u64,
    /// Of what is to be hot no more: four kinds.
    pub evictions: u64,
    /// Of joining: questions and pages.
    pub joining: u64,
    /// Of shards that come back to their nodes: questions and pages.
    pub pages: u64,
    /// Credits, where nothing else has told them, and questions for them.
    pub credits: u64,
    /// To the coordinator.
    pub to_coordinator: u64,
}

impl SentCounts {
    /// One more.
    pub(crate) fn count(&mut self, message: &Message) {
        *self.of(message) += 1;
    }

    fn of(&mut self, message: &Message) -> &mut u64 {
        match message {
            Message::Request(_) => &mut self.requests,
            Message::Replied { .. } => &mut self.answers,
            Message::Protocol { envelope: Envelope { message, .. }, .. } => match message {
                OfHotKeys::Invalidate { .. } => &mut self.invalidates,
                OfHotKeys::Ack { .. } => &mut self.acks,
                OfHotKeys::Validate { .. } => &mut self.validates,
                OfHotKeys::Update { .. } => &mut self.updates,
                OfHotKeys::Question { .. } => &mut self.questions,
                OfHotKeys::Evict { .. }
                | OfHotKeys::Holding { .. }
                | OfHotKeys::Forget { .. }
                | OfHotKeys::Forgotten { .. } => &mut self.evictions,
                OfHotKeys::Fetch { .. } | OfHotKeys::Fetched { .. } => &mut self.joining,
            },
            Message::Fetch(_) | Message::Page(_) => &mut self.pages,
            Message::Credits { .. } | Message::AskCredits { .. } => &mut self.credits,
            Message::Here { .. }
            | Message::Hottest { .. }
            | Message::Told(_)
            | Message::AskHottest
            | Message::HotSet(_) => &mut self.to_coordinator,
        }
    }

    /// All of hot keys: what takes credits.
    pub fn of_hot_keys(&self) -> u64 {
        let Self { invalidates, acks, validates, updates, questions, evictions, joining, .. } = self;
        invalidates + acks + validates + updates + questions + evictions + joining
    }
}
