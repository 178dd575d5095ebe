//! Rows that owners share who follow each other, in a database that carries out transactions on one row each, and that may lose what it is asked, or
//! carry it out long after.
//!
//! ```text
//! Operation   what is asked of a row, one thing after the other, until it is read or changed
//!   └── Floors  what was written before a part of the keys began anew counts for nothing, whenever it comes
//! ```
//! No input, no output, no clock: a Cassandra drives it (`persist`), and a database in virtual time (`sim`).
#![forbid(unsafe_code)]

mod floors;
mod operation;

pub use floors::{Floors, FloorsError};
pub use operation::{Ask, Doubt, End, Epoch, Fits, Goal, Heard, Operation, Remembered, Row, Rules, SENT_MAX, Stamp};
