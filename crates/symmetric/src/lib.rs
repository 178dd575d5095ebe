//! The symmetric cluster (ccKVS, EuroSys 2018): every node has a shard and the same hot keys, and any node serves any request.
//!
//! ```text
//! Views    one for all: who is a member in which life, which shard is whose, and leases
//!   Here, Told    what members say to it, and hear
//! Holder   at each node: how long it may serve, by what it was told
//! HotSetChooser  one for all: which keys are to be hot
//! Flow     how much a node has under way to each of the others, by credits
//! Coordinator  the two that are one for all     Node   a shard, all hot keys, and what is asked of them
//! DirectReads  at each thread of a node: what it answers without the core
//! ```
//! Cores without I/O, clock or randomness. What keeps a hot key the same on all nodes is `guira-consistency` (`docs/design/0037`, `0038`).
//!
//! - [`SymmetricFile`]: a cluster as a file says it is. [`host`]: the cores on sockets and threads, and a node as a service.
#![forbid(unsafe_code)]

mod coordinator;
mod direct;
mod engine_items;
mod flow;
mod giving;
mod holder;
mod homecoming;
pub mod host;
mod hot_set;
mod items;
mod kept;
mod lanes;
mod message;
mod node;
mod sent;
mod shard;
mod symmetric_file;
mod taking;
mod views;

pub use coordinator::{Coordinator, CoordinatorConfig, CoordinatorHappened, CoordinatorOutbox, CoordinatorStatus};
pub use direct::{DirectCounts, DirectReads};
pub use engine_items::{EngineItems, SharedEngine};
pub use flow::{FlowConfig, FlowCounts, FlowMutant, MessageNumber};
pub use holder::{Heard, Holder, HolderConfig};
pub use homecoming::{CopyNumber, Fetch, HomecomingConfig, HomecomingMutant, Page, PageNumber, Rest};
pub use hot_set::{HotSet, HotSetChooser, HotSetConfig};
pub use items::{Items, MemoryItems, NotShared, Place, ShardAccess, SharedItems, SharedRead};
pub use kept::NotKept;
pub use message::{Asked, Message, NoMessage, Replied, Request};
pub use node::{AskId, Node, NodeConfig, NodeCounts, NodeHappened, NodeOutbox, NodeStatus, ShownMutant, slot_of};
pub use sent::SentCounts;
pub use symmetric_file::{Member, Role, SymmetricFile, SymmetricFileError};
pub use views::{Given, Has, Here, Told, Views, ViewsConfig, ViewsError, ViewsHappened, ViewsMutant, ViewsOutbox};
