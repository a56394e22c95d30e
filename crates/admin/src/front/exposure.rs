//! Logins whose password anybody can guess, and from where they may come: told in the log and on the web page.

use std::net::IpAddr;

use model::snapshot::Password;
use model::{Config, Listen};

use super::accounts::{Accounts, Origin, may_connect};

/// Guessable passwords, for the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exposure {
    /// One or two sentences.
    pub text: String,
    /// A login with such a password may come from another machine.
    pub is_open: bool,
}

impl Exposure {
    /// Of a configuration. None if every password is chosen, or only this machine reaches the admin port and the web page.
    pub fn of(config: &Config) -> Option<Self> {
        let places = reachable(config);
        let accounts = Accounts::of(config);
        let remote = Origin::of(Some(IpAddr::from([192, 0, 2, 1])));
        let (open, local): (Vec<&str>, Vec<&str>) = accounts.guessable().partition(|name| may_connect(name.as_bytes(), remote));
        let (is_open, names) = if open.is_empty() { (false, local) } else { (true, open) };
        if places.is_empty() || names.is_empty() {
            return None;
        }
        let names: Vec<String> = names.iter().map(|name| format!("'{name}'")).collect();
        let (names, places) = (listed(&names), listed(&places));
        let text = if is_open {
            format!(
                "Anybody who reaches {places} may log in as {names}: the password is empty or the user's name. Change admin-admin_credentials and \
                 admin-stats_credentials."
            )
        } else {
            format!(
                "On {places}, only this machine may log in as {names}: these names have default passwords. For logins from elsewhere, add another name \
                 to admin-admin_credentials."
            )
        };
        Some(Self { text, is_open })
    }
}

/// The listeners that other machines reach, each with its variable.
fn reachable(config: &Config) -> Vec<String> {
    let admin = &config.admin;
    let ports = Listen::parse_list(&admin.mysql_ifaces).unwrap_or_default();
    let is_remote = |listen: &Listen| matches!(listen, Listen::Tcp(address) if !address.ip().is_loopback());
    let mut found: Vec<String> = ports.iter().filter(|listen| is_remote(listen)).map(|listen| format!("the admin port {listen}")).collect();
    let address: Option<IpAddr> = admin.web_address.trim().parse().ok();
    if admin.web_enabled && address.is_some_and(|address| !address.is_loopback()) {
        found.push(format!("the web page's port {}", admin.web_port));
    }
    found
}

/// `a, b and c`.
fn listed(all: &[String]) -> String {
    match all {
        [first @ .., last] if !first.is_empty() => format!("{} and {last}", first.join(", ")),
        _ => all.concat(),
    }
}

impl Accounts {
    /// Logins whose password is empty or their own name.
    fn guessable(&self) -> impl Iterator<Item = &str> {
        // A hash of caching_sha2_password takes milliseconds, and no default is one.
        let is_guessable = |name: &str| {
            self.get(name.as_bytes()).is_some_and(|account| {
                let is_slow = matches!(account.password, Password::CachingSha2Hash(_));
                !is_slow && (account.is_proven_by(name.as_bytes()) || account.is_proven_by(b""))
            })
        };
        self.names().filter(move |name| is_guessable(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(change: impl FnOnce(&mut Config)) -> Option<(bool, String)> {
        let mut config = Config::default();
        change(&mut config);
        Exposure::of(&config).map(|exposure| (exposure.is_open, exposure.text))
    }

    #[test]
    fn a_default_password_is_told_where_others_reach_the_port() {
        let (is_open, text) = told(|_| ()).unwrap();
        assert!(
            !is_open && text.starts_with("On the admin port 0.0.0.0:6032, only this machine may log in as 'admin', 'monitor' and 'stats'"),
            "{text}"
        );
        assert_eq!(told(|c| c.admin.set("mysql_ifaces", "127.0.0.1:6032;/tmp/a.sock").unwrap()), None);
        let chosen = |c: &mut Config| {
            c.admin.set("admin_credentials", "admin:chosen").unwrap();
            c.admin.set("stats_credentials", "stats:chosen").unwrap();
            c.mysql.set("monitor_password", "chosen").unwrap();
        };
        assert_eq!(told(chosen), None);
        let (is_open, text) = told(|c| {
            chosen(c);
            c.admin.set("mysql_ifaces", "127.0.0.1:6032").unwrap();
            c.admin.set("web_enabled", "true").unwrap();
            c.admin.set("admin_credentials", "radmin:radmin;admin:admin").unwrap();
        })
        .unwrap();
        assert!(is_open && text.starts_with("Anybody who reaches the web page's port 6080 may log in as 'radmin':"), "{text}");
    }
}
