//! Networks for tests: namespaces of the kernel, links between them, and a real switch.
//!
//! A test runs itself again in a namespace of its own: as root, or as any user where user namespaces are allowed. Where neither is, it fails and
//! says what to do; `cargo xtask test` leaves such tests out there, and says that.
//!
//! Always true: a namespace lasts as long as the process that holds it, which ends when the test's process does, however that ends; links go with
//! their namespaces.
#![forbid(unsafe_code)]

mod namespace;
mod open_vswitch;

pub use namespace::{Namespace, in_a_namespace, ip, run};
pub use open_vswitch::OpenVswitch;
