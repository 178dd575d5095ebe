//! Who is who in a cluster.

use serde::{Deserialize, Serialize};

/// A member of a cluster, or a part of one ([`CacheNodes`](crate::CacheNodes)): what it is and where it is, the view says.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct NodeId(pub u16);
