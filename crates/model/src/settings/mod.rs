//! The one registry of `mysql-*` and `admin-*` variables.
//!
//! A setting is one line in `mysql.rs`, `admin.rs` or `globals.rs`: name, type, default, range, effect, help.
//! The typed structs, `set`, `get`, the checks, the error texts and `docs/reference/settings.md` all derive from that line.
//! Names are accepted with or without their module prefix and in any letter case.

#[macro_use]
mod table;
mod admin;
mod docs;
mod globals;
mod mysql;
mod retired;
mod value;

pub use admin::AdminVariables;
pub use docs::settings_markdown;
pub use globals::GlobalSettings;
pub use mysql::{AuthPlugin, BackendSslVerify, CausalReads, Failback, MysqlVariables, SecondWriters, SessionTrackGtids, TlsVersion};
pub use retired::{Retired, retired, retired_by_full_name};
pub use value::{Kind, SettingValue, TextRule, Unit};

use crate::suggest;

/// One line of the registry.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    /// `mysql` or `admin`.
    pub module: &'static str,
    /// The name without its module prefix, in the letter case that is shown.
    pub name: &'static str,
    /// Type and range.
    pub kind: Kind,
    /// When a change takes effect.
    pub effect: Effect,
    /// One line for people.
    pub help: &'static str,
}

impl Setting {
    /// The name as SQL and the documentation write it: `mysql-threads`. Settings outside of every group have no prefix.
    pub fn full_name(&self) -> String {
        match self.module {
            GlobalSettings::MODULE => self.name.to_owned(),
            module => format!("{module}-{}", self.name),
        }
    }
}

impl Setting {
    /// Why the variable that SQL calls `name` is refused, which is not known.
    pub fn unknown(name: &str) -> SettingError {
        let (module, bare) = name.split_once('-').unwrap_or(("", name));
        let known: &[Setting] = match module.to_ascii_lowercase().as_str() {
            MysqlVariables::MODULE => MysqlVariables::SETTINGS,
            AdminVariables::MODULE => AdminVariables::SETTINGS,
            _ => &[],
        };
        SettingError::Unknown { suggestion: suggest::nearest(bare, known.iter().map(|setting| setting.name)) }
    }

    /// The variable that SQL calls `name`, in any letter case: its prefix is needed.
    pub fn by_full_name(name: &str) -> Option<&'static Setting> {
        let (module, bare) = name.split_once('-')?;
        match module.to_ascii_lowercase().as_str() {
            MysqlVariables::MODULE => MysqlVariables::find(bare),
            AdminVariables::MODULE => AdminVariables::find(bare),
            _ => None,
        }
    }

    /// A value as it is shown once it was taken: booleans, numbers and words have one spelling. None where it would be refused,
    /// and for secrets.
    pub fn as_kept(&self, text: &str) -> Option<String> {
        match self.kind {
            Kind::Boolean => bool::parse(text, &self.kind).ok().map(|value| value.show()),
            Kind::Integer { .. } => u64::parse(text, &self.kind).ok().map(|value| value.show()),
            Kind::Text(_) => String::parse(text, &self.kind).ok(),
            Kind::Words(words) => words.iter().find(|word| text.trim().eq_ignore_ascii_case(word)).map(|word| (*word).to_owned()),
            Kind::Secret(_) => None,
        }
    }

    /// Whether `text` is `false` and a number is needed, which is read as 0.
    pub fn is_false_for_number(&self, text: &str) -> bool {
        matches!(self.kind, Kind::Integer { .. }) && text.trim().eq_ignore_ascii_case("false")
    }

    /// Whether its value must not be logged.
    pub fn is_secret(&self) -> bool {
        matches!(self.kind, Kind::Secret(_))
    }
}

/// When a setting's value takes effect in this version of Tidegate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Takes effect when the new configuration is loaded.
    Live,
    /// Takes effect at the next start.
    Restart,
    /// Accepted and kept; the behaviour is not there yet.
    NotYet,
    /// Accepted and kept, and will never do anything, for this reason.
    NoEffect(&'static str),
}

/// Why a setting was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    /// No such setting.
    #[error("unknown variable{}", suggest::hint(suggestion))]
    Unknown {
        /// The nearest known name, if one is near.
        suggestion: Option<&'static str>,
    },
    /// The text is not a whole number.
    #[error("'{text}' is not an integer; allowed is {min}..{max}{unit}")]
    NotInteger {
        /// As given.
        text: String,
        /// Smallest allowed value.
        min: u64,
        /// Largest allowed value.
        max: u64,
        /// The unit of the number.
        unit: Unit,
    },
    /// An integer outside of its range.
    #[error("{value} is out of range {min}..{max}{unit}")]
    OutOfRange {
        /// As given: it may not even fit 64 bits.
        value: String,
        /// Smallest allowed value.
        min: u64,
        /// Largest allowed value.
        max: u64,
        /// The unit of the number.
        unit: Unit,
    },
    /// The text is neither true, false, 1 nor 0.
    #[error("'{text}' is not a boolean; allowed are true, false, 1, 0")]
    NotBoolean {
        /// As given.
        text: String,
    },
    /// One of a few words was needed.
    #[error("'{text}' is not allowed; allowed are {}", allowed.join(", "))]
    NotAllowed {
        /// As given.
        text: String,
        /// In the spelling in which they are kept.
        allowed: &'static [&'static str],
    },
    /// The text breaks the setting's own rule.
    #[error("'{text}': {reason}")]
    BadText {
        /// As given; `***` for a secret.
        text: String,
        /// The rule that it breaks.
        reason: String,
    },
}

/// `name` without a `mysql-` / `admin-` prefix that equals `module`.
fn bare_name<'a>(module: &str, name: &'a str) -> &'a str {
    match name.split_once('-') {
        Some((prefix, rest)) if prefix.eq_ignore_ascii_case(module) => rest,
        _ => name,
    }
}

/// In any letter case, with or without the module's prefix.
fn find(module: &str, settings: &'static [Setting], name: &str) -> Option<&'static Setting> {
    let bare = bare_name(module, name);
    settings.iter().find(|setting| setting.name.eq_ignore_ascii_case(bare))
}

/// With the nearest known name, if one is near.
fn unknown(module: &str, settings: &'static [Setting], name: &str) -> SettingError {
    let names = settings.iter().map(|setting| setting.name);
    SettingError::Unknown { suggestion: suggest::nearest(bare_name(module, name), names) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_and_without_prefix_in_any_case() {
        let mut vars = MysqlVariables::default();
        for (name, text) in [("threads", "5"), ("mysql-threads", "6"), ("MySQL-THREADS", " 7 ")] {
            vars.set(name, text).unwrap();
        }
        assert_eq!((vars.threads, vars.get("mysql-Threads")), (7, Some("7".to_owned())));
        assert_eq!(vars.get("query_cache_size_mb"), Some("256".to_owned()));
        assert!(vars.set("admin-threads", "1").is_err());
    }

    #[test]
    fn refusals_say_what_is_allowed() {
        let cases = [
            ("threads", "0", "0 is out of range 1..255"),
            ("threads", "99999999999999999999", "99999999999999999999 is out of range 1..255"),
            ("threads", "-1", "-1 is out of range 1..255"),
            ("threads", "4x", "'4x' is not an integer; allowed is 1..255"),
            ("wait_timeout", "1728000001", "1728000001 is out of range 0..1728000000 ms"),
            ("have_ssl", "yes", "'yes' is not a boolean; allowed are true, false, 1, 0"),
            ("backend_ssl_verify", "on", "'on' is not allowed; allowed are off, ca, identity"),
            ("interfaces", "db:1", "'db:1': 'db:1' is neither ip:port, [ipv6]:port nor /path"),
            ("proxy_protocol_networks", "10/8", "'10/8': '10' is not an IP address"),
            ("monitor_username", "", "'': must not be empty"),
            ("eventslog_filename", "a/", "'a/': must not end in '/'"),
            ("thread", "1", "unknown variable; did you mean 'threads'?"),
            ("zebra_crossing", "1", "unknown variable"),
        ];
        let mut vars = MysqlVariables::default();
        for (name, text, message) in cases {
            assert_eq!(vars.set(name, text).unwrap_err().to_string(), message, "{name}");
        }
        assert_eq!(vars, MysqlVariables::default(), "a refused value changes nothing");
    }

    #[test]
    fn every_default_passes_its_own_check() {
        let (mut mysql, mut admin) = (MysqlVariables::default(), AdminVariables::default());
        for (setting, text) in MysqlVariables::default().iter() {
            mysql.set(setting.name, &text).unwrap_or_else(|e| panic!("{}: {e}", setting.name));
        }
        for (setting, text) in AdminVariables::default().iter() {
            admin.set(setting.name, &text).unwrap_or_else(|e| panic!("{}: {e}", setting.name));
        }
        assert_eq!((mysql, admin), (MysqlVariables::default(), AdminVariables::default()));
    }

    #[test]
    fn names_are_unique_and_not_retired() {
        for settings in [MysqlVariables::SETTINGS, AdminVariables::SETTINGS] {
            for (i, setting) in settings.iter().enumerate() {
                assert!(!settings[..i].iter().any(|other| other.name == setting.name), "{}", setting.name);
                assert!(retired(setting.module, setting.name).is_none(), "{}", setting.name);
            }
        }
    }

    #[test]
    fn secrets_stay_out_of_debug_and_errors() {
        let mut vars = MysqlVariables::default();
        vars.set("monitor_password", "hunter2").unwrap();
        assert!(!format!("{vars:?}").contains("hunter2"));
        assert_eq!(vars.get("monitor_password"), Some("hunter2".to_owned()));
    }

    #[test]
    fn null_texts_mean_unset() {
        let mut vars = MysqlVariables::default();
        vars.set("init_connect", "SET @a=1").unwrap();
        vars.set("init_connect", "(null)").unwrap();
        assert_eq!(vars.init_connect, "");
    }

    proptest::proptest! {
        #[test]
        fn what_is_kept_is_read_back(index in 0..MysqlVariables::SETTINGS.len(), text in "[0-9]{1,12}|true|off|.{0,12}") {
            let name = MysqlVariables::SETTINGS[index].name;
            let mut vars = MysqlVariables::default();
            let outcome = vars.set(name, &text);
            let mut again = MysqlVariables::default();
            again.set(name, &vars.get(name).unwrap()).unwrap();
            proptest::prop_assert_eq!(&again, &vars);
            proptest::prop_assert!(outcome.is_ok() || vars == MysqlVariables::default());
        }
    }

    #[test]
    fn retired_names_are_known() {
        assert!(retired("mysql", "mysql-forward_autocommit").is_some());
        assert!(retired("admin", "hash_passwords").is_some());
        assert!(retired("mysql", "hash_passwords").is_none());
        MysqlVariables::default().set("forward_autocommit", "true").unwrap();
    }

    #[test]
    fn settings_of_traces_are_checked() {
        let mut vars = MysqlVariables::default();
        for (name, value, is_fit) in [
            ("trace_endpoint", "", true),
            ("trace_endpoint", "http://collector:4318", true),
            ("trace_endpoint", "https://[::1]/v1/traces", true),
            ("trace_endpoint", "collector:4318", false),
            ("trace_endpoint", "http://", false),
            ("trace_endpoint", "http://me:secret@collector", false),
            ("trace_endpoint", "http://a b", false),
            ("trace_sample_ratio", "0.25", true),
            ("trace_sample_ratio", "1", true),
            ("trace_sample_ratio", "1.1", false),
            ("trace_sample_ratio", "NaN", false),
            ("trace_sample_ratio", "", false),
            ("trace_headers", "", true),
            ("trace_headers", "api-key=1, x=", true),
            ("trace_headers", "api-key", false),
            ("trace_resource_attributes", "=x", false),
        ] {
            assert_eq!(vars.set(name, value).is_ok(), is_fit, "{name} = '{value}'");
        }
    }
}
