//! Simulated power cuts: what may be on a disk when the power goes, told from what a process has done to its files.
//!
//! ```text
//! process --(libc)--> recorder.c, preloaded ----> the real files
//!                          |
//!                          v
//!                       journal --[up to a cut]--> Disk --[Choices]--> Tree: a folder as it may be after the cut
//! ```
//! Always true: what was synced before the cut is in every tree; everything else is there or not as [`Choices`] say, within what file
//! systems do (`docs/design/0013-power-cuts.md`); with all of it, the tree is what the process has seen.
#![forbid(unsafe_code)]

mod choices;
mod disk;
mod journal;
mod recorder;
mod tree;

pub use choices::{Choices, Dice, Lengths};
pub use disk::{Disk, Strange};
pub use journal::{Act, Entry, Journal};
pub use recorder::{Fault, Recorder};
pub use tree::{Node, Tree};
