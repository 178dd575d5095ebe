//! A server on real sockets, before an engine that tells what it was asked.

mod administration;
mod cp;
mod late_answers;
mod rounds;
mod sessions;
mod support;
mod transports;
