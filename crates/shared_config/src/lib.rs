//! One configuration for many proxies: revisions of it in etcd, who serves it, and the orders that hold for all.
//!
//! Owns how etcd is spoken to and what is where in it. What the text of a revision means, and whether it is put in force, is its user's
//! to say. [`SharedConfig`] has a thread of its own; what it has seen is read without waiting.

mod etcd;
mod manifest;
mod parts;
mod settings;
mod store;
mod thread;

pub use etcd::EtcdError;
pub use http_client::Endpoint;
pub use manifest::{Ancestor, Conflict, FORMAT, Manifest, ProxyLine, Revision, Rollout, Standing, Verdict, descend, judge};
pub use parts::sum;
pub use settings::Settings;
pub use store::{Head, PublishError};
pub use thread::{Counts, Link, Seen, SharedConfig, new_id};
