//! The part of a configuration that proxies share, and the part that each keeps.

use super::Config;
use super::text::to_text_of;
use crate::error::{ConfigError, ErrorKind};
use crate::settings::Setting;

/// Variables that describe one machine or one process: they are never shared. A name that ends in `*` stands for all that begin so.
pub const LOCAL: &[&str] = &[
    "mysql-interfaces",
    "mysql-threads",
    "mysql-stacksize",
    "mysql-memory_budget",
    "mysql-eventslog_filename",
    "mysql-slowlog_filename",
    "mysql-auditlog_filename",
    "mysql-trace_ca",
    "mysql-trace_resource_attributes",
    "mysql-ssl_p2s_ca",
    "mysql-ssl_p2s_capath",
    "mysql-ssl_p2s_cert",
    "mysql-ssl_p2s_key",
    "mysql-ssl_p2s_crl",
    "mysql-ssl_p2s_crlpath",
    "admin-mysql_ifaces",
    "admin-telnet_admin_ifaces",
    "admin-telnet_stats_ifaces",
    "admin-restapi_enabled",
    "admin-restapi_address",
    "admin-restapi_port",
    "admin-web_enabled",
    "admin-web_port",
    "admin-web_address",
    "admin-web_hosts",
    "admin-web_plain_http",
    "admin-web_trusted_proxies",
    "admin-ssl_keylog_file",
    "admin-healing_hooks_dir",
    "admin-version",
    "admin-shared_config_*",
];

/// Whether a variable is this proxy's own.
pub fn is_local(setting: &Setting) -> bool {
    let name = setting.full_name();
    LOCAL.iter().any(|local| match local.strip_suffix('*') {
        Some(begin) => name.starts_with(begin),
        None => name == *local,
    })
}

/// The text of the shared part: every table, and variables that are neither [`LOCAL`] nor at their default. So an older version can read
/// the text, unless a variable that it does not know is used.
pub fn to_shared_text(config: &Config) -> String {
    let default = Config::default();
    let is_shared = |setting: &Setting, value: &str| {
        let usual = match setting.module {
            crate::settings::MysqlVariables::MODULE => default.mysql.get(setting.name),
            _ => default.admin.get(setting.name),
        };
        !is_local(setting) && usual.as_deref() != Some(value)
    };
    to_text_of(&Config { globals: default.globals.clone(), ..config.clone() }, is_shared)
}

/// The configuration of a proxy with `own` as its local part, and this text as its shared part.
///
/// # Errors
/// Everything in the text that this version does not know, or that is wrong.
pub fn with_shared(text: &str, name: &str, own: &Config) -> Result<Config, Vec<ConfigError>> {
    let (mut config, _) = super::load::parse_strictly(text, name)?;
    config.globals = own.globals.clone();
    config.given = own.given.clone();
    let mut errors = Vec::new();
    let mine = own.mysql.iter().chain(own.admin.iter()).filter(|(setting, _)| is_local(setting));
    for (setting, value) in mine.filter(|(setting, _)| !super::text::is_read_only(setting)) {
        if let Err(error) = set(&mut config, setting, &value) {
            errors.push(ConfigError { at: None, subject: setting.full_name(), kind: ErrorKind::Setting(error) });
        }
    }
    if errors.is_empty() { Ok(config) } else { Err(errors) }
}

/// Sets a variable of either module.
pub(crate) fn set(config: &mut Config, setting: &Setting, value: &str) -> Result<(), crate::settings::SettingError> {
    match setting.module {
        crate::settings::MysqlVariables::MODULE => config.mysql.set(setting.name, value),
        _ => config.admin.set(setting.name, value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{AdminVariables, MysqlVariables};

    fn config(text: &str) -> Config {
        super::super::parse(text, "test").unwrap().0
    }

    #[test]
    fn every_local_name_is_known() {
        let names: Vec<String> = MysqlVariables::SETTINGS.iter().chain(AdminVariables::SETTINGS).map(Setting::full_name).collect();
        for local in LOCAL {
            let is_it = |name: &&String| local.strip_suffix('*').map_or(*name == local, |begin| name.starts_with(begin));
            assert!(names.iter().any(|name| is_it(&name)), "{local}");
        }
    }

    #[test]
    fn what_is_shared_comes_back_and_what_is_local_stays() {
        let one = config(
            "mysql_variables = { interfaces=\"127.0.0.1:1111\", max_connections=7 } admin_variables = { mysql_ifaces=\"127.0.0.1:1\" }
             mysql_users = ( { username=\"anna\", password=\"a\\\"b\", default_hostgroup=3 } )",
        );
        let two = config("mysql_variables = { interfaces=\"127.0.0.1:2222\", max_connections=9, default_schema=\"x\" }");
        let text = to_shared_text(&one);
        assert!(!text.contains("1111") && !text.contains("mysql_ifaces") && !text.contains("threads"), "{text}");
        let taken = with_shared(&text, "shared", &two).unwrap();
        assert_eq!(taken.mysql.interfaces, "127.0.0.1:2222");
        assert_eq!((taken.mysql.max_connections, taken.rows("mysql_users").len()), (7, 1));
        assert_eq!(taken.mysql.default_schema, Config::default().mysql.default_schema);
        assert_eq!(to_shared_text(&taken), text);
    }

    #[test]
    fn what_this_version_does_not_know_is_refused() {
        let own = Config::default();
        assert!(with_shared("mysql_variables = { from_the_future=1 }", "shared", &own).is_err());
        assert!(with_shared("mysql_users = ( { username=\"a\", future=1 } )", "shared", &own).is_err());
    }
}
