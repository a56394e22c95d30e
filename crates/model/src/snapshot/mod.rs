//! The workers' input: the configuration, compiled, immutable, swapped whole behind an `Arc`.
//!
//! Built by [`Snapshot::compile`] from a checked [`Config`]. Everything is resolved here, so that the hot path looks nothing up twice:
//! hostgroup attributes over global variables, TLS parameters for each server, passwords.
//!
//! INVARIANT: a snapshot never changes. Observed states (shunned servers, writers) live elsewhere.

mod channels;
pub mod effective;
mod firewall;
mod healing;
mod healing_hooks;
mod hostgroup;
mod rehearsals;
mod roles;
mod rules;
mod server;
mod split;
mod user;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use channels::Channel;
pub use effective::{Effective, Overrides};
pub use firewall::{FirewallConfig, FirewallMode, FirewallRule, FirewallUser};
pub use healing::{Healing, HealingMode, HealingServer, Loss, Promotion, SemiSyncRule, SiteRule};
pub(crate) use healing_hooks::names_a_program;
pub use healing_hooks::{HealingHook, HookMoment};
pub use hostgroup::{Hostgroup, HostgroupAttributes, ServerDefaults};
pub(crate) use rehearsals::decimal;
pub use rehearsals::{Rehearsal, RehearsalIgnore, RehearsalMode, is_drawn};
pub use roles::{Aurora, ReadOnlyCheck, RoleGroup, RoleKind, WriterReads};
pub use rules::{AddressPattern, FastRoute, Modifiers, QueryRule, RuleConfig, RuleMultiplex, WeightedFlag, located, rule_subject};
pub use server::{Address, Server, ServerStatus, TlsParams};
pub use split::{ReadWriteSplit, UserSplit};
pub(crate) use user::password_file;
pub use user::{NativeHash, Password, User, UserAttributes, masked_attributes};

use crate::cidr::NetworkSet;
use crate::config::Config;
use crate::error::{ConfigError, ErrorKind};
use crate::ids::HostgroupId;
use crate::listen::Listen;
use crate::settings::{MysqlVariables, SettingError};

/// The compiled configuration.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Snapshot {
    /// As loaded; [`Effective`] has those that a hostgroup or a user may override.
    pub vars: MysqlVariables,
    /// The listeners for clients: `vars.interfaces`, parsed.
    pub listen: Vec<Listen>,
    /// Peers that may send a PROXY protocol header: `vars.proxy_protocol_networks`, parsed.
    pub proxy_networks: NetworkSet,
    /// Users that may log in: active rows with `frontend=1`, by name.
    pub users: BTreeMap<Box<str>, Arc<User>>,
    /// Credentials for backends: active rows with `backend=1`, by name. Usually the same `Arc` as in `users`.
    pub backend_users: BTreeMap<Box<str>, Arc<User>>,
    /// Hostgroups that have servers or attributes, by number.
    pub hostgroups: BTreeMap<HostgroupId, Arc<Hostgroup>>,
    /// Clusters whose servers change roles.
    pub roles: Vec<Arc<RoleGroup>>,
    /// Replication channels that the monitor keeps on their clusters' writers.
    pub channels: Vec<Arc<Channel>>,
    /// Replication clusters for which the monitor says who should take over, by writer hostgroup.
    pub healing: BTreeMap<HostgroupId, Arc<Healing>>,
    /// If more clusters than this lose their writers at a time, no server is promoted.
    pub healing_max_clusters: u64,
    /// Several proxies heal, and etcd says which one (`admin-shared_config_endpoints`).
    pub healing_is_shared: bool,
    /// What an operator says of servers for healing.
    pub healing_servers: Arc<Vec<HealingServer>>,
    /// Programs that healing runs.
    pub healing_hooks: Arc<Vec<HealingHook>>,
    /// Where these programs are, on this machine; empty: none runs.
    pub healing_hooks_dir: String,
    /// Rehearsals that an operator may start.
    pub rehearsals: Vec<Arc<Rehearsal>>,
    /// Query rules, fast routing, the firewall's whitelist.
    pub rules: Arc<RuleConfig>,
}

impl Snapshot {
    /// Compiles a checked configuration. Errors: faults that a table's description cannot find, in JSON columns or in variables assigned
    /// without `set`.
    pub fn compile(config: &Config) -> Result<Self, Vec<ConfigError>> {
        let mut errors = Vec::new();
        crate::config::references::check(config, &mut errors);
        let vars = &config.mysql;
        let listen = variable("interfaces", &vars.interfaces, Listen::parse_list(&vars.interfaces), &mut errors);
        let networks = &vars.proxy_protocol_networks;
        let proxy_networks = variable("proxy_protocol_networks", networks, networks.parse(), &mut errors);
        let pairs = split::Pairs::of(config);
        let hostgroups = hostgroup::compile(config, &pairs, &mut errors);
        let rules = Arc::new(rules::compile(config, &mut errors));
        let roles = roles::compile(config);
        let channels = channels::compile(config, &roles, &mut errors);
        let healing = healing::compile(config, &roles, &mut errors);
        let healing_servers = Arc::new(healing::servers(config));
        let rehearsals = rehearsals::compile(config);
        let clusters = Self { hostgroups, roles, channels, healing, healing_servers, rehearsals, ..Self::default() };
        let healing_is_shared = !config.admin.shared_config_endpoints.is_empty();
        let clusters = Self { healing_max_clusters: config.admin.healing_max_clusters, healing_is_shared, ..clusters };
        let (healing_hooks, healing_hooks_dir) = (Arc::new(healing_hooks::compile(config)), config.admin.healing_hooks_dir.clone());
        let clusters = Self { healing_hooks, healing_hooks_dir, ..clusters };
        let mut snapshot = Self { vars: vars.clone(), listen, proxy_networks, rules, ..clusters };
        user::compile(config, &pairs, &mut snapshot, &mut errors);
        if errors.is_empty() { Ok(snapshot) } else { Err(errors) }
    }

    /// The user for a login with this name, as the client sent it.
    pub fn frontend_user(&self, name: &[u8]) -> Option<&Arc<User>> {
        self.users.get(std::str::from_utf8(name).ok()?)
    }

    /// The credentials that backends are given for the user `name`.
    pub fn backend_user(&self, name: &[u8]) -> Option<&Arc<User>> {
        self.backend_users.get(std::str::from_utf8(name).ok()?)
    }

    /// None for a hostgroup that no row names.
    pub fn hostgroup(&self, id: HostgroupId) -> Option<&Arc<Hostgroup>> {
        self.hostgroups.get(&id)
    }

    /// How roles are found out in the clusters whose writers stand in the hostgroup `id`.
    pub fn writers_by(&self, id: HostgroupId) -> impl Iterator<Item = &RoleKind> {
        self.roles.iter().filter(move |cluster| cluster.writer == id).map(|cluster| &cluster.kind)
    }

    /// The settings for sessions of `user` in the hostgroup `id`, each with its value and the value's origin. First those of
    /// [`Snapshot::effective`], then limits that stand in columns.
    pub fn explain_effective(&self, user: &User, id: HostgroupId) -> Vec<(String, String, effective::Source)> {
        let hostgroup = self.hostgroup(id).map(|h| &h.attributes);
        let mut all = effective::explain(&self.vars, hostgroup.map(|h| &h.settings), Some(&user.attributes.settings));
        if hostgroup.is_some_and(|h| !h.multiplex)
            && let Some(multiplexing) = all.iter_mut().find(|(setting, ..)| setting.name == "multiplexing")
        {
            (multiplexing.1, multiplexing.2) = ("false".to_owned(), effective::Source::Hostgroup);
        }
        let mut lines: Vec<_> = all.into_iter().map(|(setting, text, source)| (setting.full_name(), text, source)).collect();
        lines.extend(self.explain_columns(user, id));
        lines
    }

    /// Limits that are no settings of [`Effective`]: a row of `mysql_hostgroup_attributes` takes the variable's place, and
    /// users have a column for their clients.
    fn explain_columns(&self, user: &User, id: HostgroupId) -> [(String, String, effective::Source); 3] {
        let attributes = self.hostgroup(id).map_or_else(|| HostgroupAttributes::from_variables(&self.vars), |h| h.attributes.clone());
        let of_hostgroup = |name: &str, number: u32| (format!("mysql-{name}"), number.to_string(), attributes.source);
        [
            of_hostgroup("free_connections_pct", attributes.free_connections_pct.into()),
            of_hostgroup("throttle_connections_per_sec_to_hostgroup", attributes.throttle_connections_per_sec),
            ("mysql_users.max_connections".to_owned(), user.max_connections.to_string(), effective::Source::User),
        ]
    }

    /// The settings in the hostgroup `id` without those of a user.
    pub fn effective_in(&self, id: HostgroupId) -> Effective {
        effective::resolve(&self.vars, self.hostgroup(id).map(|h| &h.attributes.settings), None)
    }

    /// The settings that hold for sessions of `user` in the hostgroup `id`.
    pub fn effective(&self, user: &User, id: HostgroupId) -> Effective {
        let hostgroup = self.hostgroup(id);
        let mut effective = effective::resolve(&self.vars, hostgroup.map(|h| &h.attributes.settings), Some(&user.attributes.settings));
        // The column forbids, whatever else is said.
        effective.multiplexing &= hostgroup.is_none_or(|h| h.attributes.multiplex);
        effective
    }

    /// The schema of a session of `user` that names none: the user's own, else `mysql-default_schema`.
    pub fn default_schema<'a>(&'a self, user: &'a User) -> &'a str {
        user.default_schema.as_deref().unwrap_or(&self.vars.default_schema)
    }
}

/// The parsed value of a variable. A fault is noted, and the default taken.
fn variable<T: Default, E: std::fmt::Display>(name: &str, text: &str, value: Result<T, E>, errors: &mut Vec<ConfigError>) -> T {
    value.unwrap_or_else(|error| {
        let kind = ErrorKind::Setting(SettingError::BadText { text: text.to_owned(), reason: error.to_string() });
        errors.push(ConfigError { at: None, subject: format!("mysql_variables.{name}"), kind });
        T::default()
    })
}
