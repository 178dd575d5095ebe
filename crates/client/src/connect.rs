//! How a program becomes a member of a cluster.

use std::{fmt, io, net::SocketAddr, path::PathBuf, sync::Arc};

use guira_cluster::{Sealer, Transport};
use guira_routing::NodeId;
use guira_switched::{
    Life, Member, Role, StaticFile, StaticFileError,
    host::{Caller, CallerBounds, GatewayHost, LifeError},
};

/// What a client may be told beside who it is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ClientOptions {
    /// Keeps the number of this member's last life, so that it is let in again although the clock was set back since. Without, the clock alone
    /// says which life is the later one.
    pub life_file: Option<PathBuf>,
}

/// Why a program cannot be a member.
#[derive(Debug)]
pub enum ConnectError {
    /// The file describes no cluster.
    File(StaticFileError),
    /// No member of the file has this number, or what has it is no gateway.
    NoGateway(NodeId),
    /// The member's address is not to be had: another has it, or it is not this machine's.
    Address(SocketAddr, io::Error),
    /// No life can begin.
    Life(LifeError),
    /// The system gives no thread, or no descriptors.
    Start(io::Error),
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(error) => write!(f, "{error}"),
            Self::NoGateway(NodeId(id)) => write!(f, "member {id}: the cluster's file has to name it, as a gateway"),
            Self::Address(address, error) => write!(f, "cannot bind {address}: {error}"),
            Self::Life(error) => write!(f, "life_file: {error}"),
            Self::Start(error) => write!(f, "cannot start: {error}"),
        }
    }
}

impl std::error::Error for ConnectError {}

/// A member's sockets. Whoever has them is the member: nobody else can have them meanwhile.
pub(crate) fn bind(file: &StaticFile, me: NodeId) -> Result<Transport, ConnectError> {
    file.check().map_err(ConnectError::File)?;
    let address = match file.member(me) {
        Some(Member { address, role: Role::Gateway { .. }, .. }) => *address,
        _ => return Err(ConnectError::NoGateway(me)),
    };
    let members = Arc::new(file.members().map_err(ConnectError::File)?);
    let sealer = Sealer::new(&file.secret(), me);
    Transport::bind(address, sealer, members).map_err(|error| ConnectError::Address(address, error))
}

/// A gateway on them, and what asks it.
pub(crate) fn start(
    transport: Transport,
    file: &StaticFile,
    me: NodeId,
    options: &ClientOptions,
) -> Result<(GatewayHost, Caller), ConnectError> {
    let shares = file.shares().map_err(ConnectError::File)?;
    let life = Life::begin(options.life_file.as_deref()).map_err(ConnectError::Life)?;
    let config = file.gateway_config(me, &shares, life);
    // If all of it goes to one backend the gateway takes that.
    let bounds = CallerBounds {
        operations_max: config.pending_max,
        asked_len_max: config.pending_len_max,
        kept_len_max: file.values_len_max(),
    };
    let host = GatewayHost::start(transport, config).map_err(ConnectError::Start)?;
    let caller = Caller::before(&host, bounds);
    Ok((host, caller))
}
