//! Rows that can be loaded and never have their effect.

use std::net::{IpAddr, Ipv6Addr};

use super::{Config, Row};
use crate::listen::Listen;
use crate::remark::{About, Remark, RowName, row_name};
use crate::snapshot::{AddressPattern, Password, QueryRule, Snapshot};

/// One remark per row.
pub(super) fn rows(config: &Config, snapshot: &Snapshot) -> Vec<Remark> {
    let active = |table: &str| config.rows(table).iter().filter(|row| row.flag("active"));
    let mut found: Vec<Remark> = active("mysql_firewall_whitelist_users").filter_map(of_whitelist).collect();
    found.extend(config.rows("mysql_servers").iter().flat_map(|row| of_server(row).into_iter().chain(takes_nothing(row))));
    found.extend(active("mysql_users").flat_map(|row| of_user(row, snapshot)));
    found.extend(snapshot.rules.rules.iter().flat_map(|rule| of_rule(rule, snapshot)));
    found
}

fn remark(row: &Row, column: &'static str, text: String) -> Remark {
    Remark { table: row.table.name, row: row_name(row), column, about: About::Dead, text }
}

fn of_whitelist(row: &Row) -> Option<Remark> {
    let address = row.text("client_address")?;
    let text = || format!("'{address}' is compared literally, so the row never matches: '%' works in mysql_query_rules.client_addr only");
    address.contains(['%', '_', '/']).then(|| remark(row, "client_address", text()))
}

fn of_server(row: &Row) -> Option<Remark> {
    let (host, port) = (row.text("hostname")?, row.integer("port")?);
    let address = host.split('%').next().unwrap_or(host);
    if !host.starts_with('/') && host.contains(':') && address.parse::<Ipv6Addr>().is_err() {
        let text = format!("'{host}' is neither a name nor an IPv6 address: write it without brackets, and the port in its own column");
        return Some(remark(row, "hostname", text));
    }
    let text = match (host.starts_with('/'), port) {
        (true, 0) => return None,
        (true, _) => {
            format!("'{host}' is the path of a Unix socket, but port {port} makes it a host name: set port=0")
        }
        (false, 0) => format!("port 0 makes '{host}' the path of a Unix socket: set the server's port"),
        (false, _) => return None,
    };
    Some(remark(row, "port", text))
}

fn takes_nothing(row: &Row) -> Option<Remark> {
    let is_online = row.text("status").is_none_or(|status| status == "ONLINE");
    let text = "max_connections is 0: the server gets no statements, and statements for it wait; to take a server out of service, set \
                OFFLINE_SOFT";
    (is_online && row.integer("max_connections") == Some(0)).then(|| remark(row, "max_connections", text.to_owned()))
}

fn of_user(row: &Row, snapshot: &Snapshot) -> Vec<Remark> {
    let mut found = Vec::new();
    if row.flag("use_ssl") && row.flag("frontend") && !snapshot.vars.have_ssl {
        let text =
            "clients of the user must use TLS, but mysql-have_ssl is false: every login is refused (1045); change one of the two settings";
        found.push(remark(row, "use_ssl", text.to_owned()));
    }
    if !row.flag("frontend") && !row.flag("backend") {
        found.push(remark(row, "frontend", "frontend and backend are 0, so the row has no effect: set both to 1".to_owned()));
    }
    let user = row.text("username").and_then(|name| snapshot.users.get(name));
    let additional = user.and_then(|user| user.attributes.additional_password.as_ref());
    found.extend(row.secret("password").map(Password::read).and_then(|password| of_password(row, "password", &password)));
    found.extend(additional.and_then(|password| of_password(row, "attributes", password)));
    found
}

fn of_password(row: &Row, column: &'static str, password: &Password) -> Option<Remark> {
    let Password::Clear(clear) = password else { return None };
    let like = match clear.expose() {
        [b'*', ..] => "mysql_native_password's ('*' and 40 hex digits)",
        clear if clear.starts_with(b"$A$") => "caching_sha2_password's ('$A$', 70 bytes)",
        _ => return None,
    };
    let it = if column == "password" { "it" } else { "additional_password" };
    Some(remark(row, column, format!("{it} begins like a hash of {like} but is none, so it is the password itself")))
}

fn of_rule(rule: &QueryRule, snapshot: &Snapshot) -> Vec<Remark> {
    let dead = |column, text| Remark {
        table: "mysql_query_rules",
        row: RowName::numbered("rule_id", rule.rule_id),
        column,
        about: About::Dead,
        text,
    };
    let mut found = Vec::new();
    let is_possible = |address: &str| address.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f' | b'.' | b':'));
    let never = match &rule.client_addr {
        Some(AddressPattern::Exact(address)) if !is_shown(address) => Some(address),
        Some(AddressPattern::Prefix(address)) if !is_possible(address) => Some(address),
        _ => None,
    };
    if let Some(address) = never {
        let text = format!("'{address}' is not a client address, so the rule never matches: a prefix ends with '%', such as 10.%");
        found.push(dead("client_addr", text));
    }
    // A PROXY protocol header may name any listener address.
    if snapshot.vars.proxy_protocol_networks.is_empty() {
        let text = |what: String| format!("{what}: the rule never matches; mysql-interfaces has the listeners");
        found.extend(unreached_address(rule, snapshot).map(|what| dead("proxy_addr", text(what))));
        found.extend(unreached_port(rule, snapshot).map(|what| dead("proxy_port", text(what))));
    }
    found
}

/// Is it an address as clients' are written?
fn is_shown(address: &str) -> bool {
    address.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().to_string() == address)
}

fn unreached_address(rule: &QueryRule, snapshot: &Snapshot) -> Option<String> {
    let wanted = rule.proxy_addr.as_deref()?;
    let ips = || snapshot.listen.iter().filter_map(|listen| if let Listen::Tcp(address) = listen { Some(address.ip()) } else { None });
    match wanted.parse::<IpAddr>() {
        Ok(ip) if ip.is_unspecified() => Some(format!("no client connects to '{wanted}': use an address of this machine")),
        Ok(ip) if ips().any(|one| one == ip || one.is_unspecified()) => None,
        Ok(_) => Some(format!("the proxy does not listen on '{wanted}'")),
        Err(_) if Listen::only_path(&snapshot.listen).is_some_and(|path| path.as_os_str() == wanted) => None,
        Err(_) => Some(format!("'{wanted}' is neither an IP address nor the path of the only Unix socket")),
    }
}

fn unreached_port(rule: &QueryRule, snapshot: &Snapshot) -> Option<String> {
    let wanted = rule.proxy_port?;
    let mut ports = snapshot.listen.iter().map(|listen| match listen {
        Listen::Tcp(address) => Some(address.port()).filter(|port| *port != 0),
        Listen::Unix(_) => Some(0),
    });
    // One that the system chooses may be this one.
    (!ports.any(|port| port.is_none_or(|port| port == wanted))).then(|| format!("the proxy does not listen on port {wanted}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `column` of each remark, and its text.
    fn told(text: &str) -> Vec<(&'static str, String)> {
        let config = crate::config::parse(text, "proxysql.cnf").unwrap_or_else(|errors| panic!("{text}: {errors:?}")).0;
        let snapshot = Snapshot::compile(&config).unwrap();
        rows(&config, &snapshot).into_iter().map(|remark| (remark.column, remark.text)).collect()
    }

    #[test]
    fn what_never_works() {
        let rule = |columns: &str| format!("mysql_query_rules = ({{ rule_id=7, active=1, {columns} }})");
        let server = |columns: &str| format!("mysql_servers = ({{ hostgroup=1, {columns} }})");
        let user = |columns: &str| format!("mysql_users = ({{ username=\"u\", {columns} }})");
        let native = format!("*{}", "0aF9".repeat(10));
        let listen = "mysql_variables = { interfaces=\"127.0.0.1:6033;/run/p.sock\" }";
        let cases: Vec<(String, &[&str])> = vec![
            (server("address=\"a\", port=0"), &["port"]),
            (server("address=\"/run/a.sock\", port=0"), &[]),
            (server("address=\"/run/a.sock\", port=3306"), &["port"]),
            (server("address=\"a\""), &[]),
            (server("address=\"::1\""), &[]),
            (server("address=\"fe80::1%eth0\""), &[]),
            (server("address=\"[::1]\""), &["hostname"]),
            (server("address=\"a:3306\""), &["hostname"]),
            (user("password=\"*abc\""), &["password"]),
            (user(&format!("password=\"{native}\"")), &[]),
            (user("password=\"$A$005$short\""), &["password"]),
            (user("password=\"clear\""), &[]),
            (user("attributes=\"{\\\"additional_password\\\":\\\"*abc\\\"}\""), &["attributes"]),
            (user("attributes=\"{\\\"additional_password\\\":\\\"clear\\\"}\""), &[]),
            (user("frontend=0, backend=0"), &["frontend"]),
            (user("frontend=0, backend=0, active=0"), &[]),
            (user("frontend=0"), &[]),
            (rule("client_addr=\"10.0.0.0/8\""), &["client_addr"]),
            (rule("client_addr=\"10.%\""), &[]),
            (rule("client_addr=\"fd00:%\""), &[]),
            (rule("client_addr=\"%\""), &[]),
            (rule("client_addr=\"::1\""), &[]),
            (rule("client_addr=\"10.1.2.3\""), &[]),
            (rule("client_addr=\"db.example.com\""), &["client_addr"]),
            (rule("client_addr=\"www.%\""), &["client_addr"]),
            (rule("client_addr=\"localhost\""), &["client_addr"]),
            (rule("client_addr=\"999.1.1.1\""), &["client_addr"]),
            (rule("client_addr=\"::ffff:10.1.2.3\""), &["client_addr"]),
            (rule("proxy_addr=\"10.1.2.3\", proxy_port=6033"), &[]),
            (rule("proxy_addr=\"0.0.0.0\""), &["proxy_addr"]),
            (rule("proxy_port=7000"), &["proxy_port"]),
            (format!("{listen} {}", rule("proxy_addr=\"10.1.2.3\"")), &["proxy_addr"]),
            (format!("{listen} {}", rule("proxy_addr=\"127.0.0.1\", proxy_port=6033")), &[]),
            (format!("{listen} {}", rule("proxy_addr=\"/run/p.sock\"")), &[]),
            (format!("{listen} {}", rule("proxy_addr=\"/run/q.sock\"")), &["proxy_addr"]),
            (format!("mysql_variables = {{ proxy_protocol_networks=\"*\" }} {}", rule("proxy_addr=\"10.1.2.3\", proxy_port=1")), &[]),
        ];
        for (text, columns) in cases {
            let found = told(&text);
            assert_eq!(found.iter().map(|(column, _)| *column).collect::<Vec<_>>(), columns, "{text}: {found:?}");
            assert!(found.iter().all(|(_, text)| !text.contains("005$short") && !text.contains("*abc")), "{found:?}");
        }
    }
}
