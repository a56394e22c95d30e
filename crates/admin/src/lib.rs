//! The operator's side: a SQL engine over the configuration, its commands, and the ports that lead to it.
//!
//! [`bootstrap()`] finds the configuration that holds at the start. [`Bootstrap::start`] gives it to an engine on a thread of its own,
//! which [`EngineHandle`] talks to. The engine knows the data plane by `model`'s traits alone and never imports `proxy`.
//!
//! [`outside`] keeps the ports on a thread of their own: [`front`] speaks the MySQL protocol, [`http`] serves metrics and REST routes,
//! [`scheduler`] runs scripts.
//!
//! INVARIANT: observed values are never written back as configuration, and a refused command changes nothing.

mod attempts;
mod bootstrap;
pub mod client;
mod clock;
mod commands;
mod engine;
mod error;
pub mod front;
mod handle;
mod history;
pub mod http;
mod live;
pub mod metrics;
mod numbers;
pub mod outside;
mod process;
pub mod remarks;
mod reply;
pub mod scheduler;
mod sharing;
mod statement;
mod store;
mod take_over;
mod watch;
pub mod web;

pub use bootstrap::{Bootstrap, EngineOptions, Precedence, bootstrap, bootstrap_locked, foresee, take_over};
pub use error::AdminError;
pub use handle::{EngineHandle, Job, Jobs, channel};
pub use process::{Process, Stop};
pub use reply::{Reply, Role, SessionInfo};
pub use store::{DISK_FILE, database_files, lock, lock_file, looks_blank, missing_files, sign, user_of};
pub use take_over::{Frozen, Successor};
