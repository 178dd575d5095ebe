//! The map, seen as those see it who use it.

#![cfg(not(any(loom, shuttle)))]

mod drops;
mod elision;
mod growth;
mod histories;
mod limits;
mod model;
mod pairs;
mod panics;
mod small_readers;
mod stress;
