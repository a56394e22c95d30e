//! What the rest of Tidegate is told to do: identifiers, settings, configuration and the compiled [`Snapshot`].
//!
//! Data flows one way: text (`libconfig`) -> checked rows (`config`) -> what a worker reads (`snapshot`).
//! The crate is pure: no clock, no randomness, no sockets. The only IO is of files: [`config::load`] reads the
//! one that it is handed and those that it includes, [`SecretFiles`] those with secrets, [`files::replace`] writes one.
//!
//! INVARIANT: whatever reaches a [`Snapshot`] has passed every check; a worker never validates.

pub mod cidr;
pub mod config;
pub mod control;
pub mod error;
pub mod files;
pub mod fleet;
pub mod ids;
pub mod libconfig;
pub mod listen;
pub mod names;
pub mod pace;
pub mod refusals;
pub mod remark;
pub mod secret;
pub mod secret_files;
pub mod settings;
pub mod snapshot;
pub mod stats;
mod suggest;

pub use cidr::NetworkSet;
pub use config::{Config, Notice, load, load_regular, parse};
pub use error::{ConfigError, ErrorKind, Origin};
pub use ids::{HostgroupId, ServerAddr, ServerKey};
pub use listen::Listen;
pub use remark::{About, Remark, RowName, Scope};
pub use secret::Secret;
pub use secret_files::SecretFiles;
pub use settings::{AdminVariables, Effect, MysqlVariables, Setting, SettingError};
pub use snapshot::{Address, Hostgroup, Password, QueryRule, ReadWriteSplit, RuleConfig, Server, ServerStatus, Snapshot, TlsParams, User};
pub use suggest::edits;
