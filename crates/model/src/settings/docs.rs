//! Writes `docs/reference/settings.md` from the registry.

use std::fmt::Write;

use super::retired::RETIRED;
use super::{AdminVariables, Effect, GlobalSettings, Kind, MysqlVariables, Setting, TextRule};
use crate::config::shared::LOCAL;

const INTRODUCTION: &str = "\
# Settings

<!-- Written from the registry by `UPDATE_DOCS=1 cargo test -p model`; do not edit. -->

Settings go into the groups `mysql_variables` and `admin_variables` of `proxysql.cnf`, with or without their
prefix. Names are read in any letter case. A value outside of its range is an error; nothing is rounded or reset.

Effect: **live** = when the configuration is loaded; **restart** = at the next start; **not yet** = accepted and
kept, the behaviour is not there yet; **none** = accepted so that existing files load, and why it does nothing.
";

/// The whole of `docs/reference/settings.md`.
pub fn settings_markdown() -> String {
    let mut page = INTRODUCTION.to_owned();
    module(&mut page, MysqlVariables::MODULE, MysqlVariables::default().iter());
    module(&mut page, AdminVariables::MODULE, AdminVariables::default().iter());
    module(&mut page, GlobalSettings::MODULE, GlobalSettings::default().iter());
    local_names(&mut page);
    retired_names(&mut page);
    page
}

fn local_names(page: &mut String) {
    page.push_str("\n## Each proxy's own\n\nProxies that share a configuration ([shared-configuration.md](../how-to/shared-configuration.md)) keep these for themselves:\n");
    let names: Vec<String> = LOCAL.iter().map(|name| format!("`{name}`")).collect();
    let _ = writeln!(page, "{}.", names.join(", "));
}

fn module(page: &mut String, name: &str, settings: impl Iterator<Item = (&'static Setting, String)>) {
    let mut rows: Vec<_> = settings.collect();
    rows.sort_by_key(|(setting, _)| setting.name.to_ascii_lowercase());
    let title = match name {
        GlobalSettings::MODULE => "Outside of every group".to_owned(),
        _ => format!("{name}-*"),
    };
    let _ = write!(page, "\n## {title}\n\n| name | default | allowed | effect | meaning |\n|---|---|---|---|---|\n");
    for (setting, default) in rows {
        let (kind, effect) = (allowed(&setting.kind), effect(setting.effect));
        let default = if default.is_empty() { "''".to_owned() } else { format!("`{default}`") };
        let _ = writeln!(page, "| `{}` | {default} | {kind} | {effect} | {} |", setting.full_name(), setting.help);
    }
}

fn retired_names(page: &mut String) {
    page.push_str("\n## Retired names\n\nAccepted with a notice, and ignored.\n\n| name | why |\n|---|---|\n");
    for retired in RETIRED {
        let _ = writeln!(page, "| `{}-{}` | {} |", retired.module, retired.name, retired.reason);
    }
}

fn allowed(kind: &Kind) -> String {
    match kind {
        Kind::Boolean => "true, false".to_owned(),
        Kind::Integer { min, max, unit } => format!("{min}..{max}{unit}"),
        Kind::Words(words) => words.join(", "),
        Kind::Secret(rule) => format!("{} (secret)", rule_text(*rule)),
        Kind::Text(rule) => rule_text(*rule).to_owned(),
    }
}

fn rule_text(rule: TextRule) -> &'static str {
    match rule {
        TextRule::Any | TextRule::Nullable => "text",
        TextRule::NonEmpty => "text, not empty",
        TextRule::FileBase => "text, not ending in /",
        TextRule::Listeners => "`ip:port`, `[ipv6]:port` or `/path`, separated by `;`",
        TextRule::Networks => "networks separated by commas, or `*`",
        TextRule::Address => "an IP address",
        TextRule::TableName => "`schema.table`",
        TextRule::Logins => "`user:password`, separated by `;`",
        TextRule::Charset => "a character set",
        TextRule::HttpUrl => "a URL",
        TextRule::Ratio => "0 to 1",
        TextRule::Pairs => "`name=value`, separated by commas",
    }
}

fn effect(effect: Effect) -> String {
    match effect {
        Effect::Live => "live".to_owned(),
        Effect::Restart => "restart".to_owned(),
        Effect::NotYet => "not yet".to_owned(),
        Effect::NoEffect(reason) => format!("none: {reason}"),
    }
}
