//! Settings that are kept without effect, and settings that cost more than expected. They are reported whether they came from a file, by
//! SQL or with a database.

use super::{Config, Row, TableEffect, operator_tables};
use crate::remark::{About, Remark, RowName, row_name};
use crate::settings::{AdminVariables, Effect, MysqlVariables, Setting};

/// The notice about a setting or column without behaviour in this version.
pub(super) const NOT_YET: &str = "kept, but has no effect yet";

impl Effect {
    /// The notice about a setting without effect; None for others.
    pub(super) fn told(self) -> Option<String> {
        match self {
            Self::NotYet => Some(NOT_YET.to_owned()),
            Self::NoEffect(reason) => Some(format!("has no effect: {reason}")),
            Self::Live | Self::Restart => None,
        }
    }
}

/// Variables of a module that differ from their defaults and do nothing.
pub fn variables(config: &Config, module: &str) -> Vec<Remark> {
    match module {
        MysqlVariables::MODULE => changed(config.mysql.iter(), MysqlVariables::default().iter()),
        _ => changed(config.admin.iter(), AdminVariables::default().iter()),
    }
}

fn changed(
    values: impl Iterator<Item = (&'static Setting, String)>,
    defaults: impl Iterator<Item = (&'static Setting, String)>,
) -> Vec<Remark> {
    let inert = |((setting, value), (_, default)): ((&'static Setting, String), (_, String))| {
        let text = setting.effect.told().filter(|_| value != default)?;
        Some(of_variable(setting, About::Dead, text))
    };
    values.zip(defaults).filter_map(inert).collect()
}

fn of_variable(setting: &Setting, about: About, text: String) -> Remark {
    let row = RowName::called("variable_name", &setting.full_name());
    Remark { table: "global_variables", row, column: "variable_value", about, text }
}

/// Tables and columns that do nothing, one remark each.
pub fn tables(config: &Config) -> Vec<Remark> {
    let mut found = Vec::new();
    for table in operator_tables() {
        let rows = config.rows(table.name);
        let mut remark =
            |row: &Row, column, text| found.push(Remark { table: table.name, row: row_name(row), column, about: About::Dead, text });
        if let (TableEffect::NotYet(word), Some(first), Some(column)) = (table.effect, rows.first(), table.columns.first()) {
            remark(first, column.name, format!("{} {word} read; they have no effect yet", rows.len()));
        }
        for column in table.columns.iter().filter(|column| column.is_inert) {
            let uses = |row: &&Row| row.inert_columns().any(|used| used.name == column.name);
            if let Some(first) = rows.iter().find(uses) {
                remark(first, column.name, NOT_YET.to_owned());
            }
        }
    }
    found
}

/// Values that ProxySQL has where nobody chose one, and that are better reset after a move.
pub fn advice(config: &Config) -> Vec<Remark> {
    const OF_PROXYSQL: [&str; 3] = ["5.5.30", "8.0.11", "8.0.27"];
    let (delay, version) = (config.mysql.auto_increment_delay_multiplex, &config.mysql.server_version);
    let mut found = Vec::new();
    let mut remark = |name, text| found.extend(MysqlVariables::find(name).map(|setting| of_variable(setting, About::Advice, text)));
    if delay == 5 {
        let text = "ProxySQL's default keeps the connection for 5 statements after an AUTO_INCREMENT insert; LAST_INSERT_ID() does not \
                    need that here: set 0";
        remark("auto_increment_delay_multiplex", text.to_owned());
    }
    if OF_PROXYSQL.contains(&version.as_str()) {
        let text =
            format!("ProxySQL's default makes clients take every server for version {version}: set '' to report the servers' own version");
        remark("server_version", text);
    }
    found.extend(exposure(config));
    found
}

/// Accounts that allow more than the operator may expect.
pub fn exposure(config: &Config) -> Vec<Remark> {
    const KNOWN_TO_ALL: [&str; 2] = ["admin:admin", "radmin:radmin"];
    let admin = &config.admin;
    let mut found = Vec::new();
    let mut remark = |name, text: &str| {
        found.extend(AdminVariables::find(name).map(|setting| of_variable(setting, About::Advice, text.to_owned())));
    };
    let runs_programs = ["scheduler", "restapi_routes"].iter().any(|table| config.rows(table).iter().any(|row| row.flag("active")));
    let is_known = admin.admin_credentials_file.is_empty()
        && admin.admin_credentials.expose_text().split(';').any(|login| KNOWN_TO_ALL.contains(&login.trim()));
    if is_known && runs_programs {
        remark(
            "admin_credentials",
            "this default login can run programs as the proxy through the scheduler or routes: choose another password",
        );
    }
    if admin.restapi_enabled && admin.restapi_address == AdminVariables::default().restapi_address {
        remark(
            "restapi_address",
            "metrics and routes are served on this machine only; ProxySQL serves them on every address: set 0.0.0.0 for that",
        );
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_that_everybody_knows_is_told_where_it_runs_programs() {
        let told = |text: &str| {
            let (config, _) = crate::parse(text, "t.cnf").unwrap();
            exposure(&config).iter().map(|remark| remark.row.to_string()).collect::<Vec<_>>()
        };
        let job = |active: u32| format!("scheduler = ({{ id=1, active={active}, interval_ms=1000, filename=\"/bin/true\" }})");
        assert_eq!(told(&job(1)), ["variable_name=admin-admin_credentials"]);
        assert!(told(&job(0)).is_empty() && told("").is_empty());
        assert!(told(&format!("admin_variables = {{ admin_credentials=\"admin:other\" }} {}", job(1))).is_empty());
        assert_eq!(told("admin_variables = { restapi_enabled=true }"), ["variable_name=admin-restapi_address"]);
        assert!(told("admin_variables = { restapi_enabled=true, restapi_address=\"0.0.0.0\" }").is_empty());
    }
}
