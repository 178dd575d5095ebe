//! Who of etcd is spoken with: one host at a time, and another one when that does not answer.
//!
//! ```text
//! host 0 -- no answer in an attempt's time --> host 1 -- no answer --> (all were asked: a pause) host 0 -- ...
//! ```
//! Always true: a connection over which an answer did not come in time is not used again; an attempt takes a bounded time, whoever is silent.

use std::{error::Error as _, future::Future, time::Duration};

use etcd_client::{Client, ConnectOptions, Error};
use tokio::time::{Instant, sleep_until, timeout};

use crate::{
    Access, AccessError, EtcdError, Place,
    error::{cause, cause_of, line},
};

/// How long an operation takes at most. A member of etcd that fails is replaced within a second or two.
pub(crate) const OPERATION: Duration = Duration::from_secs(5);

/// How long one host is waited for at most, so that another is asked within the operation.
const ATTEMPT_MAX: Duration = Duration::from_secs(2);

/// How it begins what is told of a host that has said nothing.
const SILENCE: &str = "no answer";

/// The pause after all hosts were asked in vain: it doubles up to the second.
const PAUSES: (Duration, Duration) = (Duration::from_millis(25), Duration::from_millis(400));

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It may come from another host, or later. Whether what was asked for was done is not known.
    Away(String),
    /// etcd does not know who asks, and has not done it: over another connection it may know.
    Denied(String),
    /// It does not let him.
    Forbidden(String),
    /// It is not done.
    Refused(String),
    /// The lease is no more.
    LeaseLost,
}

impl Failure {
    /// What is told, if the operation ends with it.
    pub(crate) fn into_error(self, link: &Link) -> EtcdError {
        match self {
            Self::Away(why) => EtcdError::Unreachable { hosts: link.hosts.join(","), why },
            Self::Denied(why) | Self::Forbidden(why) => EtcdError::Denied(why),
            Self::Refused(why) => EtcdError::Refused(why),
            Self::LeaseLost => EtcdError::Refused("the lease is no more".into()),
        }
    }

    /// What was said, in a line.
    pub(crate) fn why(self) -> String {
        match self {
            Self::Away(why) | Self::Denied(why) | Self::Forbidden(why) | Self::Refused(why) => why,
            Self::LeaseLost => "the lease is no more".into(),
        }
    }
}

/// gRPC's numbers for what is not a matter of time.
mod code {
    pub(super) const INVALID_ARGUMENT: i32 = 3;
    pub(super) const NOT_FOUND: i32 = 5;
    pub(super) const PERMISSION_DENIED: i32 = 7;
    pub(super) const RESOURCE_EXHAUSTED: i32 = 8;
    pub(super) const FAILED_PRECONDITION: i32 = 9;
    pub(super) const OUT_OF_RANGE: i32 = 11;
    pub(super) const UNIMPLEMENTED: i32 = 12;
    pub(super) const UNAUTHENTICATED: i32 = 16;
}

/// What etcd says, of an invalid argument among others, to who gives no name where it wants one, to who gives another's, and to who has shown his
/// password before users were changed.
const UNKNOWN: [&str; 3] = ["user name is empty", "authentication failed", "revision of auth store is old"];

/// What it says to who shows a password where none is wanted: of a condition, among others.
const NO_USERS: &str = "authentication is not enabled";

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let Error::GRpcStatus(status) = &error else {
            return match error {
                Error::LeaseKeepAliveError(_) => Self::LeaseLost,
                other => Self::Away(cause_of(&other)),
            };
        };
        let why = match status.source() {
            Some(source) => cause(source),
            None => line(status.message()),
        };
        let is_unknown = || UNKNOWN.iter().any(|text| status.message().contains(text));
        match i32::from(status.code()) {
            code::PERMISSION_DENIED => Self::Forbidden(why),
            // It has been long that he has shown his password.
            code::UNAUTHENTICATED => Self::Denied(why),
            code::INVALID_ARGUMENT if is_unknown() => Self::Denied(why),
            code::INVALID_ARGUMENT
            | code::NOT_FOUND
            | code::RESOURCE_EXHAUSTED
            | code::FAILED_PRECONDITION
            | code::OUT_OF_RANGE
            | code::UNIMPLEMENTED => Self::Refused(why),
            _ => Self::Away(why),
        }
    }
}

/// Hosts of etcd, and a connection to one of them.
pub(crate) struct Link {
    hosts: Vec<String>,
    access: Access,
    at: usize,
    client: Option<Client>,
}

impl Link {
    pub(crate) fn to(place: &Place, access: &Access) -> Self {
        Self { hosts: place.hosts().to_vec(), access: access.clone(), at: 0, client: None }
    }

    /// To the same hosts, over a connection of its own.
    pub(crate) fn another(&self) -> Self {
        Self { hosts: self.hosts.clone(), access: self.access.clone(), at: 0, client: None }
    }

    fn attempt(&self) -> Duration {
        ATTEMPT_MAX.min(OPERATION / (self.hosts.len() as u32 + 1))
    }

    /// From now on the same host is asked over a new connection.
    pub(crate) fn renew(&mut self) {
        self.client = None;
    }

    /// From now on another host is asked, if there is one, and over a new connection in any case.
    pub(crate) fn turn(&mut self) {
        self.renew();
        self.at = (self.at + 1) % self.hosts.len();
    }

    /// Asks the host whose turn it is, once.
    pub(crate) async fn once<T, F>(&mut self, ask: impl FnOnce(Client) -> F) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let attempt = self.attempt();
        if self.client.is_none() {
            self.client = Some(self.connect().await?);
        }
        match &self.client {
            Some(client) => bounded(attempt, ask(client.clone())).await,
            None => Err(Failure::Away("no connection".into())),
        }
    }

    /// A connection to the host whose turn it is. But for who has a password to show, nothing is said yet.
    async fn connect(&self) -> Result<Client, Failure> {
        let unreadable = |error: AccessError| Failure::Away(line(&error.to_string()));
        let attempt = self.attempt();
        let connect = async |options: ConnectOptions| {
            // A host that has no leader is no better than none.
            let options = options.with_connect_timeout(attempt).with_require_leader(true);
            bounded(attempt, Client::connect([&self.hosts[self.at]], Some(options))).await
        };
        match connect(self.access.options().map_err(unreadable)?).await {
            // It may be told to want passwords later.
            Err(Failure::Refused(why)) if why.contains(NO_USERS) => {
                connect(self.access.options_without_user().map_err(unreadable)?).await
            }
            other => other,
        }
    }

    /// Waits for something that the host whose turn it is has to say.
    pub(crate) async fn wait<T>(&self, answer: impl Future<Output = Result<T, Error>>) -> Result<T, Failure> {
        bounded(self.attempt(), answer).await
    }

    /// Asks one host after the other, until one answers or it is too late: what may be asked twice.
    pub(crate) async fn ask<T, F>(&mut self, until: Instant, ask: impl Fn(Client) -> F) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let mut pauses = self.pauses(until);
        let (mut told, mut is_renewed) = (None, false);
        loop {
            match self.once(&ask).await {
                Err(Failure::Away(why)) => {
                    // What was said tells more than silence.
                    if told.is_none() || !why.starts_with(SILENCE) {
                        told = Some(why);
                    }
                    if !pauses.pause(self).await {
                        return Err(Failure::Away(told.unwrap_or_default()));
                    }
                }
                Err(Failure::Denied(_)) if !is_renewed => {
                    is_renewed = true;
                    self.renew();
                }
                other => return other,
            }
        }
    }

    pub(crate) fn pauses(&self, until: Instant) -> Pauses {
        Pauses { until, asked: 0, pause: PAUSES.0 }
    }
}

async fn bounded<T>(attempt: Duration, answer: impl Future<Output = Result<T, Error>>) -> Result<T, Failure> {
    match timeout(attempt, answer).await {
        Ok(answer) => answer.map_err(Failure::from),
        Err(_) => Err(Failure::Away(format!("{SILENCE} within {} ms", attempt.as_millis()))),
    }
}

/// From one host to the next, with a pause when all were asked.
pub(crate) struct Pauses {
    until: Instant,
    asked: usize,
    pause: Duration,
}

impl Pauses {
    /// Turns to the next host; false if it is too late for that.
    pub(crate) async fn pause(&mut self, link: &mut Link) -> bool {
        link.turn();
        self.asked += 1;
        if self.asked.is_multiple_of(link.hosts.len()) {
            sleep_until(self.until.min(Instant::now() + self.pause)).await;
            self.pause = PAUSES.1.min(self.pause * 2);
        }
        Instant::now() < self.until
    }
}
