//! The gateway of a client, for as long as it runs.
//!
//! Always true: once it is closed it stays so, and the first reason is the one that is told.

use std::sync::{Mutex, MutexGuard, PoisonError};

use guira_switched::host::{GatewayHost, MemberHost};

use crate::Closing;

pub(crate) struct Running {
    state: Mutex<State>,
}

enum State {
    Open(GatewayHost),
    Closed(Closing),
}

impl Running {
    pub(crate) fn new(host: GatewayHost) -> Self {
        Self { state: Mutex::new(State::Open(host)) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // It is replaced whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends it: who waits is answered. The first to call it waits until it has ended.
    pub(crate) fn close(&self, why: Closing) {
        let mut state = self.state();
        let why = match &*state {
            State::Closed(_) => return,
            State::Open(host) if host.runs() => why,
            State::Open(_) => Closing::Panicked,
        };
        let was = std::mem::replace(&mut *state, State::Closed(why));
        // Who was waiting looks whether it is there.
        drop(state);
        drop(was);
    }

    /// Why it is closed.
    pub(crate) fn closing(&self) -> Option<Closing> {
        match &*self.state() {
            State::Open(host) if host.runs() => None,
            State::Open(_) => Some(Closing::Panicked),
            State::Closed(why) => Some(*why),
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closing().is_some()
    }

    /// Calls it, unless it is closed.
    #[cfg(any(feature = "etcd", test))]
    pub(crate) fn with<R>(&self, call: impl FnOnce(&GatewayHost) -> R) -> Option<R> {
        match &*self.state() {
            State::Open(host) => Some(call(host)),
            State::Closed(_) => None,
        }
    }
}
