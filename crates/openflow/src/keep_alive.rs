//! Whether the other end is there: after a silence it is asked, and given up if it does not answer.
//!
//! Always true: an answer is waited for from when it was asked for; before that the other end may have had nothing to say.

use guira_item::{Moment, Span};

use crate::Broken;

/// When something was heard last, and whether it is asked since.
#[derive(Debug)]
pub(crate) struct KeepAlive {
    ask_after: Span,
    give_up_after: Span,
    heard_at: Moment,
    asked_at: Option<Moment>,
}

impl KeepAlive {
    /// Asks after so long a silence, and gives up after so long a one.
    pub(crate) fn new(now: Moment, ask_after: Span, give_up_after: Span) -> Self {
        Self { ask_after, give_up_after, heard_at: now, asked_at: None }
    }

    pub(crate) fn heard(&mut self, now: Moment) {
        (self.heard_at, self.asked_at) = (now, None);
    }

    /// When it is given up if it can neither be asked nor heard until then.
    pub(crate) fn give_up_at(&self) -> Moment {
        self.heard_at + self.give_up_after
    }

    /// Whether it is to be asked now.
    ///
    /// # Errors
    /// [`Broken::Silent`]: it was, and has not answered.
    pub(crate) fn is_to_ask(&mut self, now: Moment) -> Result<bool, Broken> {
        match self.asked_at {
            Some(asked_at) if now.since(asked_at) >= self.patience() => Err(Broken::Silent),
            None if now.since(self.heard_at) >= self.ask_after => {
                self.asked_at = Some(now);
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// When that is to be looked at.
    pub(crate) fn wake_at(&self) -> Moment {
        self.asked_at.map_or(self.heard_at + self.ask_after, |asked_at| asked_at + self.patience())
    }

    /// How long an answer is waited for.
    fn patience(&self) -> Span {
        Span::from_ns(self.give_up_after.ns().saturating_sub(self.ask_after.ns()))
    }
}
