//! What is asked about items that a store keeps, while they are on the way from it or to it.
//!
//! - [`Chain`]: all that goes on about one key, one thing after the other; [`Item`], [`Base`], [`Owned`], [`Reply`]: what it is made of.
//! - [`base_of`], [`record_of`]: an item as a server has it, and as a store does.
//! - [`Late`]: the answers of batches that are not all there yet, and [`give`], which hands one over; [`Mailbox`]: how they come from other
//!   threads.
//!
//! Always true: nothing here does I/O or knows who drives it.
#![forbid(unsafe_code)]

mod chain;
mod late;
mod mailbox;
mod stored;

pub use chain::{Base, Chain, Item, Next, Owned, Reply, Setting, UseBefore, step};
pub use late::{Late, Place, give};
pub use mailbox::Mailbox;
pub use stored::{base_of, record_of};
