//! Which node is asked for a key (SwitchKV, NSDI 2016, sections 3.1 and 3.2.3).
//!
//! ```text
//! key ---> KeyHash                what packet headers carry, the same at every member
//!            |
//!            |--> Header           in a destination's address, an Encoding says how: for a network that routes by it
//!            |
//!            |--> RouteTable      is it cached, and where: one rule for a hash; a hint
//!            |        ^
//!            |        | RuleSink: a table takes updates at once, a switch one after the other
//!            |    RulePlan        which rules are wanted, and which update is made next
//!            |
//!            +--> PartitionMap    if it is not: which backend has it
//!            +--> CacheNodes      which part of a cache node it is of, there
//! ```
//! No input or output, no clock and no randomness of its own: moments and seeds are given. So a run repeats itself, and all who know the
//! backends and the seed know who owns a key. Memory is bounded by the rules and backends that there may be.
#![forbid(unsafe_code)]

mod cache_nodes;
#[cfg(test)]
mod captured;
mod choices;
mod frame;
mod hash;
mod header;
mod ipv6_plan;
mod mac_plan;
mod node;
mod partitions;
mod prefix;
mod route_table;
mod rule_plan;
mod rule_sink;

pub use cache_nodes::{CacheNodes, Steering};
pub use choices::Choices;
pub use frame::{Frame, FrameError, FrameReader, FrameWriter, MTU, PayloadTooLong, Source};
pub use hash::{HashSeed, KeyHash};
pub use header::{Encoding, EncodingError, Header, HeaderHash};
pub use ipv6_plan::Ipv6Plan;
pub use mac_plan::{Destination, MacAddress, MacAddressError, MacKind, MacPlan};
pub use node::NodeId;
pub use partitions::{BACKENDS_MAX, PARTITIONS, PartitionError, PartitionId, PartitionMap};
pub use prefix::{Prefix, PrefixError};
pub use route_table::{RouteTable, TableFull};
pub use rule_plan::{BudgetError, Load, RuleBudget, RuleChoices, RulePlan, RuleUpdate, TooManyWanted};
pub use rule_sink::RuleSink;
