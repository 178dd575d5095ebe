//! A Rust program as its own gateway to a switched cluster.
//!
//! ```text
//! threads of the program --> Client --> the gateway's thread --(a rule for the hash)--> cache node
//!                                                       \------(none)-----------------> backend
//! ```
//! It is the gateway that `guira node` starts, in the program itself: the same routes, the same two choices of a cache node, the same retries,
//! every change at most once, every answer linearizable for its key. What is spared is memcached's protocol and the way to a gateway process.
//!
//! The program is a member of the cluster: one of those that the cluster calls `gateway`, with a number and an address of its own, which
//! all other members know too. Its `listen` is not used: nobody connects to it. One program at a time is a member.
//!
//! ```toml
//! [[member]]
//! id = 10001
//! role = "gateway"
//! address = "10.0.0.9:7000"      # where the program runs; UDP and TCP, from member to member
//! listen = "10.0.0.9:11211"      # not used by a client
//! ```
//!
//! ```no_run
//! use std::{fs, time::Duration};
//!
//! use guira_client::{Ask, Client, ClientOptions, NodeId, StaticFile, Value};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let file = StaticFile::parse(&fs::read_to_string("cluster.toml")?)?;
//! let client = Client::connect(&file, NodeId(10_001), &ClientOptions::default())?;
//!
//! client.set("greeting", "hello")?;
//! client.set("session", Value::of("abc").with_flags(7).ending_in(Duration::from_secs(60)))?;
//! if let Some(item) = client.get("greeting")? {
//!     // Only if nobody has changed it meanwhile.
//!     client.compare_and_set("greeting", item.version, "good morning")?;
//! }
//!
//! // All at once, from one thread.
//! for outcome in client.batch([Ask::get("greeting"), Ask::increment("visits", 1), Ask::delete("session")]) {
//!     println!("{:?}", outcome?);
//! }
//! # Ok(())
//! # }
//! ```
//! A cluster whose members come and go is kept in etcd, and so is this member (`Client::connect_by_etcd`, with the feature `etcd`, which is on by default):
//! operators add it (`guira cluster add`), and the client hears of who else comes and goes.
//!
#![cfg_attr(feature = "etcd", doc = "```no_run")]
#![cfg_attr(not(feature = "etcd"), doc = "```ignore")]
//! # use guira_client::{Access, Client, ClientOptions, NodeId};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let place = "10.0.0.1:2379,10.0.0.2:2379,10.0.0.3:2379/shop".parse()?;
//! let secret = std::fs::read_to_string("secret")?;
//! let options = ClientOptions::default();
//! let client = Client::connect_by_etcd(&place, &Access::default(), secret.trim(), NodeId(10_001), &options)?;
//! # Ok(())
//! # }
//! ```
//! - [`Client`]: what a program asks. Calls wait for their answers; any number of threads may ask at a time.
//! - [`Ask`], [`Outcome`]: operations that are asked together ([`Client::batch`]), and what came of each.
//! - [`Value`], [`Expires`], [`Item`], [`Version`]: what is stored, and what is there.
//! - [`Error`], [`ConnectError`], [`Closing`]: what goes wrong. All but [`Error::Unknown`] have changed nothing.
//!
//! Keys are 1 to 250 bytes, of any values; memcached's clients of the same cluster can only ask for those without spaces and control characters.
#![forbid(unsafe_code)]

mod ask;
mod client;
mod connect;
mod error;
#[cfg(feature = "etcd")]
mod kept;
mod outcome;
mod running;
mod value;

pub use ask::Ask;
pub use client::Client;
pub use connect::{ClientOptions, ConnectError};
pub use error::{Closing, Error};
pub use guira_item::KeyError;
pub use guira_routing::NodeId;
pub use guira_switched::{StaticFile, StaticFileError};
#[cfg(feature = "etcd")]
pub use kept::{Access, AccessError, CertificateFiles, EtcdError, Place, PlaceError, Tls, Touch, User};
pub use outcome::{Compared, Item, Outcome, Version};
pub use value::{Expires, Value};
