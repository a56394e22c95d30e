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

Effect: **live** settings change when the configuration is loaded, **restart** settings at the next start. Settings
without an effect are listed at the end, under [Accepted and ignored](#accepted-and-ignored).
";

/// The whole of `docs/reference/settings.md`.
pub fn settings_markdown() -> String {
    let mut page = INTRODUCTION.to_owned();
    let mut ignored = Vec::new();
    module(&mut page, &mut ignored, MysqlVariables::MODULE, MysqlVariables::default().iter());
    module(&mut page, &mut ignored, AdminVariables::MODULE, AdminVariables::default().iter());
    module(&mut page, &mut ignored, GlobalSettings::MODULE, GlobalSettings::default().iter());
    local_names(&mut page);
    ignored_names(&mut page, &ignored);
    retired_names(&mut page);
    page
}

fn local_names(page: &mut String) {
    page.push_str("\n## Each proxy's own\n\nProxies that share a configuration ([shared-configuration.md](../how-to/shared-configuration.md)) keep these settings for themselves:\n\n");
    for module in [MysqlVariables::MODULE, AdminVariables::MODULE] {
        let prefix = format!("{module}-");
        let names: Vec<String> = LOCAL.iter().filter(|name| name.starts_with(&prefix)).map(|name| format!("`{name}`")).collect();
        let _ = writeln!(page, "- {}", names.join(", "));
    }
}

/// The settings of one module that act. Those that do not go to `ignored`, as rows of [`ignored_names`].
fn module(page: &mut String, ignored: &mut Vec<String>, name: &str, settings: impl Iterator<Item = (&'static Setting, String)>) {
    let mut rows: Vec<_> = settings.collect();
    rows.sort_by_key(|(setting, _)| setting.name.to_ascii_lowercase());
    let title = match name {
        GlobalSettings::MODULE => "Outside of every group".to_owned(),
        _ => format!("{name}-*"),
    };
    let _ = write!(page, "\n## {title}\n\n| name | default | allowed | effect | meaning |\n|---|---|---|---|---|\n");
    for (setting, default) in rows {
        let (name, kind, help) = (setting.full_name(), allowed(&setting.kind), setting.help);
        let default = if default.is_empty() { "''".to_owned() } else { format!("`{default}`") };
        let effect = match setting.effect {
            Effect::Live => "live",
            Effect::Restart => "restart",
            Effect::NotYet => {
                ignored.push(format!("| `{name}` | {default} | {kind} | not implemented yet | {help} |"));
                continue;
            }
            Effect::NoEffect(reason) => {
                ignored.push(format!("| `{name}` | {default} | {kind} | {reason} | {help} |"));
                continue;
            }
        };
        let _ = writeln!(page, "| `{name}` | {default} | {kind} | {effect} | {help} |");
    }
}

fn ignored_names(page: &mut String, rows: &[String]) {
    page.push_str(
        "\n## Accepted and ignored\n\nThese settings have no effect. Values are checked and kept, so that existing files load.\n\n\
         | name | default | allowed | why it is ignored | meaning in ProxySQL |\n|---|---|---|---|---|\n",
    );
    for row in rows {
        let _ = writeln!(page, "{row}");
    }
}

fn retired_names(page: &mut String) {
    page.push_str(
        "\n### Retired names\n\nThese names are accepted with a notice. Their values are not kept.\n\n| name | why |\n|---|---|\n",
    );
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
        TextRule::OneLine => "text without control characters",
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
