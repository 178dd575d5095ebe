//! The map, seen as those see it who use it.

#![cfg(not(any(loom, shuttle)))]

mod elision;
mod growth;
mod histories;
mod limits;
mod model;
mod pairs;
