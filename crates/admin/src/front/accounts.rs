//! The logins of the admin port: `admin-admin_credentials`, `admin-stats_credentials` and the monitor's user.

use std::collections::BTreeMap;
use std::net::IpAddr;

use model::snapshot::Password;
use model::{Config, Secret};
use wire::auth::crypt;
use wire::auth::hash::{equal, native_stored};
use wire::auth::server::Stored;

use crate::reply::Role;

/// Names that may connect from this machine only, whatever their role.
const LOCAL_NAMES: [&str; 3] = ["admin", "stats", "monitor"];

/// The origin of a client, for the rules of logins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// This machine: loopback or a Unix socket.
    Local,
    /// Anywhere else.
    Remote,
}

impl Origin {
    /// The origin of a peer; `None` is a Unix socket.
    pub fn of(peer: Option<IpAddr>) -> Self {
        match peer.map(|ip| ip.to_canonical()) {
            Some(ip) if !ip.is_loopback() => Self::Remote,
            _ => Self::Local,
        }
    }
}

/// A name with its role and password.
#[derive(Debug, Clone, PartialEq)]
pub struct AdminAccount {
    /// Given to every session that logs in with this name.
    pub role: Role,
    /// The stored password or hash.
    pub password: Password,
}

impl AdminAccount {
    /// Whether this is the password. A hash of caching_sha2_password takes some ms.
    pub fn is_proven_by(&self, password: &[u8]) -> bool {
        match &self.password {
            Password::Empty => password.is_empty(),
            Password::Clear(secret) => equal(secret.expose(), password),
            Password::NativeHash(stored) => equal(&native_stored(password), &stored.0),
            Password::CachingSha2Hash(_) => match self.stored() {
                Stored::CachingSha2(text) => crypt::verify(text, password).unwrap_or(false),
                _ => false,
            },
        }
    }

    /// The password as the authentication takes it.
    pub fn stored(&self) -> Stored<'_> {
        match &self.password {
            Password::Empty => Stored::Empty,
            Password::Clear(secret) => Stored::Clear(secret.expose()),
            Password::NativeHash(hash) => Stored::NativeHash(hash.0),
            // INVARIANT: `Password::read` takes only ASCII text that begins with `$A$`; anything else would not verify.
            Password::CachingSha2Hash(text) => Stored::CachingSha2(std::str::from_utf8(text.expose()).unwrap_or_default()),
        }
    }
}

/// All logins, by name.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Accounts {
    by_name: BTreeMap<Vec<u8>, AdminAccount>,
}

impl Accounts {
    /// The accounts of a configuration.
    pub fn of(config: &Config) -> Self {
        let (admin, mysql) = (&config.admin, &config.mysql);
        Self::read(&admin.admin_credentials, &admin.stats_credentials, (mysql.monitor_username.as_str(), &mysql.monitor_password))
    }

    /// Reads `user:password;user2:password2` twice. A name in both lists is an admin's; the monitor's user reads, unless a
    /// list has it. A password may be a hash, as in `mysql_users`.
    pub fn read(admin: &Secret, stats: &Secret, monitor: (&str, &Secret)) -> Self {
        let mut accounts = Self::default();
        accounts.add(monitor.0.as_bytes(), monitor.1.expose(), Role::Stats);
        accounts.add_list(stats.expose(), Role::Stats);
        accounts.add_list(admin.expose(), Role::Admin);
        accounts
    }

    /// The login called `name`.
    pub fn get(&self, name: &[u8]) -> Option<&AdminAccount> {
        self.by_name.get(name)
    }

    /// The names of all logins that are text, in order.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().filter_map(|name| std::str::from_utf8(name).ok())
    }

    /// Whether some password can be proven only under RSA when the channel is not secure.
    pub fn needs_key(&self) -> bool {
        self.by_name.values().any(|account| matches!(account.password, Password::CachingSha2Hash(_)))
    }

    fn add_list(&mut self, list: &[u8], role: Role) {
        for entry in list.split(|byte| *byte == b';') {
            let colon = entry.iter().position(|byte| *byte == b':').unwrap_or(entry.len());
            let (name, password) = entry.split_at(colon);
            self.add(name.trim_ascii(), password.get(1..).unwrap_or_default(), role);
        }
    }

    fn add(&mut self, name: &[u8], password: &[u8], role: Role) {
        if !name.is_empty() {
            self.by_name.insert(name.to_vec(), AdminAccount { role, password: Password::read(&Secret::new(password)) });
        }
    }
}

/// Whether `name` may come from there.
pub fn may_connect(name: &[u8], origin: Origin) -> bool {
    origin == Origin::Local || !LOCAL_NAMES.iter().any(|local| local.as_bytes() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_as_operators_write_them() {
        let accounts = Accounts::read(&"admin:ad:min; root:r;;".into(), &"stats:stats;admin:no".into(), ("monitor", &"m".into()));
        let role = |name: &str| accounts.get(name.as_bytes()).map(|a| a.role);
        assert_eq!(role("admin"), Some(Role::Admin));
        assert_eq!(accounts.get(b"admin").unwrap().stored(), Stored::Clear(b"ad:min"));
        assert_eq!((role("root"), role("stats"), role("monitor")), (Some(Role::Admin), Some(Role::Stats), Some(Role::Stats)));
        assert_eq!(role(""), None);
        assert!(!accounts.needs_key());
    }

    #[test]
    fn some_names_are_local() {
        let v4_in_v6: IpAddr = "::ffff:127.0.0.1".parse().unwrap();
        assert_eq!((Origin::of(None), Origin::of(Some(v4_in_v6))), (Origin::Local, Origin::Local));
        let remote = Origin::of(Some("192.0.2.1".parse().unwrap()));
        assert!(!may_connect(b"admin", remote) && !may_connect(b"stats", remote) && may_connect(b"root", remote));
        assert!(may_connect(b"admin", Origin::Local));
    }
}
