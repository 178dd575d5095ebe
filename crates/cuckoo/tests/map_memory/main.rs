//! What a map does with memory: when it is freed while others look, by whom, and what is left where somebody panics. AddressSanitizer looks on in
//! `cargo xtask sanitize`.

#![cfg(not(any(loom, shuttle)))]

mod drops;
mod panics;
mod small_readers;
mod stress;
