//! The input of the rest of Tidegate: identifiers, settings, configuration and the compiled [`Snapshot`].
//!
//! Data flows one way: text (`libconfig`) -> checked rows (`config`) -> the workers' input (`snapshot`).
//! The crate is pure: no clock, no randomness, no sockets. It only reads and writes files. [`config::load`] reads its argument and the
//! included files, [`SecretFiles`] reads files with secrets, [`files::replace`] writes one.
//!
//! INVARIANT: everything in a [`Snapshot`] has passed every check; a worker never validates.

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
