//! What a worker reads: the configuration, compiled, immutable, swapped whole behind an `Arc`.
//!
//! Built by [`Snapshot::compile`] from a checked [`Config`]. Everything is resolved here, so that the hot path
//! looks nothing up twice: hostgroup attributes over global variables, TLS parameters for each server, passwords.
//!
//! INVARIANT: a snapshot never changes. What is observed (who is shunned, who writes) lives elsewhere.

mod hostgroup;
mod server;
mod user;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use hostgroup::{Hostgroup, HostgroupAttributes};
pub use server::{Address, Server, ServerStatus, TlsParams};
pub use user::{NativeHash, Password, User, UserAttributes};

use crate::cidr::NetworkSet;
use crate::config::Config;
use crate::error::{ConfigError, ErrorKind};
use crate::ids::HostgroupId;
use crate::listen::Listen;
use crate::settings::{MysqlVariables, SettingError};

/// The compiled configuration.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Snapshot {
    /// Every `mysql-*` variable.
    pub vars: MysqlVariables,
    /// Where to listen for clients: `vars.interfaces`, read.
    pub listen: Vec<Listen>,
    /// Who may send a PROXY protocol header: `vars.proxy_protocol_networks`, read.
    pub proxy_networks: NetworkSet,
    /// Users who may log in: active rows with `frontend=1`, by name.
    pub users: BTreeMap<Box<str>, Arc<User>>,
    /// Credentials for backends: active rows with `backend=1`, by name. Usually the same `Arc` as in `users`.
    pub backend_users: BTreeMap<Box<str>, Arc<User>>,
    /// Hostgroups that have servers or attributes, by number.
    pub hostgroups: BTreeMap<HostgroupId, Arc<Hostgroup>>,
}

impl Snapshot {
    /// Compiles a checked configuration. Fails on what a table's description cannot check: the JSON columns'
    /// contents, and variables that were assigned without `set`.
    pub fn compile(config: &Config) -> Result<Self, Vec<ConfigError>> {
        let mut errors = Vec::new();
        let vars = &config.mysql;
        let listen = variable("interfaces", &vars.interfaces, Listen::parse_list(&vars.interfaces), &mut errors);
        let networks = &vars.proxy_protocol_networks;
        let proxy_networks = variable("proxy_protocol_networks", networks, networks.parse(), &mut errors);
        let mut snapshot = Self { vars: vars.clone(), listen, proxy_networks, hostgroups: hostgroup::compile(config), ..Self::default() };
        user::compile(config, &mut snapshot, &mut errors);
        match errors.is_empty() {
            true => Ok(snapshot),
            false => Err(errors),
        }
    }

    /// The user who logs in as `name`, as the client sent it.
    pub fn frontend_user(&self, name: &[u8]) -> Option<&Arc<User>> {
        self.users.get(std::str::from_utf8(name).ok()?)
    }

    /// The credentials that backends are given for the user `name`.
    pub fn backend_user(&self, name: &[u8]) -> Option<&Arc<User>> {
        self.backend_users.get(std::str::from_utf8(name).ok()?)
    }

    /// The hostgroup with this number.
    pub fn hostgroup(&self, id: HostgroupId) -> Option<&Arc<Hostgroup>> {
        self.hostgroups.get(&id)
    }

    /// The schema of a session of `user` that names none: the user's own, else `mysql-default_schema`.
    pub fn default_schema<'a>(&'a self, user: &'a User) -> &'a str {
        user.default_schema.as_deref().unwrap_or(&self.vars.default_schema)
    }
}

/// A variable's text as a value, or its default with a fault noted.
fn variable<T: Default, E: std::fmt::Display>(name: &str, text: &str, value: Result<T, E>, errors: &mut Vec<ConfigError>) -> T {
    value.unwrap_or_else(|error| {
        let kind = ErrorKind::Setting(SettingError::BadText { text: text.to_owned(), reason: error.to_string() });
        errors.push(ConfigError { at: None, subject: format!("mysql_variables.{name}"), kind });
        T::default()
    })
}
