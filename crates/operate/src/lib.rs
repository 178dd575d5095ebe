//! The REST API of a cluster's controller, for operators: what cache nodes, backends and rules there are, and which cache node a backend goes to.
//!
//! ```text
//! GET /v1/status                counts, what waits, the table and its budget
//! GET /v1/caches                cache nodes: session, load, the backends in their charge, their parts if there are several
//! GET /v1/backends              backends: home, owner, load
//! GET /v1/rules?limit=N&after=HASH      rules by their hashes, page by page; they lead to parts, of which a node's first has its number
//! GET /v1/rules/{hash}          the rule of a hash
//! GET /v1/flows?limit=N&after=ID        what switches are to have, for another controller: page by page, and at which version
//! GET /v1/flows/changes?since=N&limit=N  what has changed since the first page's version, and up to which; 410: read all again
//! PUT /v1/backends/{id}/cache   {"cache": ID}: move it there
//! ```
//! Backends are those whose cache node may change: none, in a cluster with a gateway that goes by their homes and not by rules. What is not as wanted
//! is answered with `{"error": "one line"}`. From top to bottom:
//!
//! - [`Bound`] and [`Rest`]: the port, its thread and what a connection may take.
//! - [`Access`]: who is answered at all.
//! - `routes`: what is asked for, `shown` what it looks like, `refusal` what is said instead.
//! - [`Operated`]: whoever is asked, a controller or a test's.
#![forbid(unsafe_code)]

mod access;
mod flows;
mod operated;
mod refusal;
mod rest;
mod routes;
mod shown;

pub use access::{Access, AccessError, Token, TokenError};
pub use operated::{Operated, Overview};
pub use rest::{Bound, Limits, Rest};
