//! Real etcds, and members that follow them.
#![forbid(unsafe_code)]

mod access;
mod changes;
mod commits;
mod following;
mod maps;
mod partitions;
mod support;
