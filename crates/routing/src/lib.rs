#![forbid(unsafe_code)]
mod node;
pub use node::NodeId;
