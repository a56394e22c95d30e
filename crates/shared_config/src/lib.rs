//! One configuration for many proxies: its revisions in etcd, the live proxies, and the orders that hold for all.
//!
//! Owns the protocol of etcd and the layout of the keys. The user interprets the text of a revision and decides whether to put it in force.
//! [`SharedConfig`] has a thread of its own; its last state is read without waiting.

mod etcd;
mod heal;
mod manifest;
mod parts;
mod settings;
mod store;
mod thread;

pub use etcd::EtcdError;
pub use heal::{Heal, Leading, WriteError};
pub use http_client::Endpoint;
pub use manifest::{Ancestor, Conflict, FORMAT, Manifest, ProxyLine, Revision, Rollout, Standing, Verdict, descend, judge};
pub use parts::sum;
pub use settings::Settings;
pub use store::{Head, PublishError};
pub use thread::{Counts, Link, Seen, SharedConfig, new_id};
