//! Those who ask before a core that answers later: a server's workers, or threads of a program, on this side; on the other a core on its host.
//!
//! ```text
//! worker --> FrontService --(a batch)--> Front --> host: Desk --(one of each key at a time)--> core
//!   ^---------- mailbox <------------ Owed <-----------/  <--(answers)-----------------------/
//! thread --> Caller: waits for room ------^
//! ```
//! - [`Front`]: through which a core is asked, from any thread. [`Wanted`]: what it is asked.
//! - [`FrontService`]: a server's [`Service`](guira_item::Service) before fronts. [`Caller`]: a program before one.
//! - [`Direct`]: what a worker answers without asking. [`Desk`]: at the core's host, who waits for what.
//!
//! Always true: who waits for an answer gets one, once, also when the host ends; what may change a key is asked alone of all that a batch asks of it, in
//! the order of asking.
#![forbid(unsafe_code)]

mod asked;
mod caller;
mod desk;
mod direct;
mod lines;
mod owed;
mod room;
mod service;

pub use asked::{Front, Wanted};
pub use caller::{Caller, CallerBounds};
pub use desk::{Ask, AskNumber, Desk};
pub use direct::{AsksAlways, Direct, Known};
pub use service::{ClockNow, FrontService, FrontWorker, ServiceConfig};
