//! Networks on one machine: namespaces of the kernel, links between them, and a real switch. For clusters of one machine, and for tests.
//!
//! A test runs itself again in a namespace of its own: as root, or as any user where user namespaces are allowed. Where neither is, it fails and
//! says what to do; `cargo xtask test` leaves such tests out there, and says that. All else says in one line what it could not do.
//!
//! Always true: a namespace lasts as long as the process that holds it, which ends when the one that wanted it does, however that ends; links go with
//! their namespaces.
#![forbid(unsafe_code)]

mod frames;
mod host;
mod namespace;
mod open_vswitch;

pub use frames::Frames;
pub use host::{Gets, Host, host_lines};
pub use namespace::{Namespace, in_a_namespace, ip, ip_all, may_have_networks, run, within_network_of};
pub use open_vswitch::OpenVswitch;
