//! Single rules of the switched cluster's cores, each told step by step what has happened.

mod asking;
mod away;
mod bounds;
mod cache_node;
mod cleanup;
mod flushes;
mod gives;
mod hedging;
mod parts;
mod resends;
mod routed;
mod successors;
mod takes;
mod views;
