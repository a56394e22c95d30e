//! The firewall's whitelist: which user may send which digest in which schema.

use std::collections::{HashMap, HashSet};

use model::snapshot::{FirewallConfig, FirewallMode};

/// The firewall's decision about a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// The user's mode is OFF: nothing is looked at, injections neither.
    Trusted,
    /// The whitelist has the user, the address, the schema and the digest.
    Listed,
    /// It is not on the list and is logged.
    Detected,
    /// It is not on the list and is blocked: error 1148 with `mysql-firewall_whitelist_errormsg`, unless a rule gave
    /// another text.
    Blocked,
}

type Map<K, V> = HashMap<K, V, foldhash::fast::RandomState>;
type Modes = Map<Box<[u8]>, FirewallMode>;
/// Flags and digests.
type Digests = HashSet<(u32, u64), foldhash::fast::RandomState>;

/// The whitelist, ready to be asked. Whether it counts is `mysql-firewall_whitelist_enabled`.
#[derive(Debug, Default)]
pub struct Firewall {
    /// By user, then by address; the empty address is any.
    users: Map<Box<[u8]>, Modes>,
    /// By user, address of the user's row, and schema.
    allowed: Map<Box<[u8]>, Digests>,
}

impl Firewall {
    /// Prepares the tables.
    pub fn new(config: &FirewallConfig) -> Self {
        let mut firewall = Self::default();
        for user in &config.users {
            let modes = firewall.users.entry(user.username.as_bytes().into()).or_default();
            modes.insert(user.client_address.as_bytes().into(), user.mode);
        }
        for rule in &config.rules {
            let scope = scope(rule.username.as_bytes(), rule.client_address.as_bytes(), rule.schemaname.as_bytes());
            firewall.allowed.entry(scope.into_boxed_slice()).or_default().insert((rule.flag_in, rule.digest));
        }
        firewall
    }

    /// Judges a statement. `final_flag` is [`Route::final_flag`](crate::Route::final_flag), `digest` the hash that
    /// operators see. A user without a row is protected and has nothing on his list.
    pub fn judge(&self, user: &[u8], client_addr: Option<&str>, schema: &[u8], final_flag: u32, digest: u64) -> Verdict {
        let modes = self.users.get(user);
        let at = |address: &[u8]| modes.and_then(|modes| modes.get(address)).copied();
        let own = client_addr.and_then(|address| at(address.as_bytes()).map(|mode| (address, mode)));
        let Some((address, mode)) = own.or_else(|| at(b"").map(|mode| ("", mode))) else {
            return Verdict::Blocked;
        };
        if mode == FirewallMode::Off {
            return Verdict::Trusted;
        }
        let list = self.allowed.get(scope(user, address.as_bytes(), schema).as_slice());
        match (list.is_some_and(|list| list.contains(&(final_flag, digest))), mode) {
            (true, _) => Verdict::Listed,
            (false, FirewallMode::Protecting) => Verdict::Blocked,
            (false, _) => Verdict::Detected,
        }
    }
}

/// One key of three texts, each with its length before it.
fn scope(user: &[u8], address: &[u8], schema: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(user.len() + address.len() + schema.len() + 16);
    for part in [user, address] {
        key.extend_from_slice(&part.len().to_le_bytes());
        key.extend_from_slice(part);
    }
    key.extend_from_slice(schema);
    key
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::snapshot::{FirewallRule, FirewallUser};

    fn firewall() -> Firewall {
        let user = |username: &str, client_address: &str, mode| FirewallUser {
            username: username.into(),
            client_address: client_address.into(),
            mode,
        };
        let rule = |client_address: &str, digest| FirewallRule {
            username: "app".into(),
            client_address: client_address.into(),
            schemaname: "shop".into(),
            flag_in: 0,
            digest,
        };
        Firewall::new(&FirewallConfig {
            users: vec![
                user("app", "", FirewallMode::Protecting),
                user("app", "10.0.0.1", FirewallMode::Detecting),
                user("root", "", FirewallMode::Off),
            ],
            rules: vec![rule("", 1), rule("10.0.0.1", 2)],
            sqli_fingerprints: Vec::new(),
        })
    }

    #[test]
    fn verdicts() {
        let cases = [
            ("app", Some("10.9.9.9"), "shop", 0, 1, Verdict::Listed),
            ("app", None, "shop", 0, 1, Verdict::Listed),
            ("app", Some("10.9.9.9"), "shop", 0, 2, Verdict::Blocked),
            ("app", Some("10.9.9.9"), "shop", 1, 1, Verdict::Blocked),
            ("app", Some("10.9.9.9"), "other", 0, 1, Verdict::Blocked),
            ("app", Some("10.0.0.1"), "shop", 0, 1, Verdict::Detected),
            ("app", Some("10.0.0.1"), "shop", 0, 2, Verdict::Listed),
            ("root", Some("10.0.0.1"), "", 0, 9, Verdict::Trusted),
            ("nobody", Some("10.0.0.1"), "shop", 0, 1, Verdict::Blocked),
        ];
        let firewall = firewall();
        for (user, address, schema, flag, digest, expected) in cases {
            let verdict = firewall.judge(user.as_bytes(), address, schema.as_bytes(), flag, digest);
            assert_eq!(verdict, expected, "{user} {address:?} {schema} {flag} {digest}");
        }
    }
}
