//! Programs that healing runs: `mysql_healing_hooks`.

use super::hostgroup::number;
use crate::config::{Config, Row};
use crate::ids::HostgroupId;

/// A row of `mysql_healing_hooks`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealingHook {
    /// The cluster, by its writer hostgroup.
    pub writer: HostgroupId,
    /// When it runs.
    pub moment: HookMoment,
    /// The program's name in `admin-healing_hooks_dir`, then its arguments. No shell reads them.
    pub command: Vec<String>,
    /// Then it is ended, with all that it started, ms.
    pub timeout_ms: u64,
    /// `before` and `fence`: if it fails, the plan is undone.
    pub is_required: bool,
}

/// When a program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookMoment {
    /// A promotion begins, and nothing is changed yet.
    Before,
    /// The chosen server has applied everything, and is about to be opened: the program makes sure that the old writer is down.
    Fence,
    /// A server was promoted.
    After,
    /// The writer is dead, and no server is promoted.
    Blocked,
    /// A former writer is out until it is proved clean.
    Outcast,
    /// A server has transactions that the writer lacks.
    Errant,
}

impl HookMoment {
    /// As the table has them.
    pub const WORDS: &[&str] = &["before", "fence", "after", "blocked", "outcast", "errant"];

    /// As the table has it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Before => "before",
            Self::Fence => "fence",
            Self::After => "after",
            Self::Blocked => "blocked",
            Self::Outcast => "outcast",
            Self::Errant => "errant",
        }
    }

    fn of(word: &str) -> Option<Self> {
        let all = [Self::Before, Self::Fence, Self::After, Self::Blocked, Self::Outcast, Self::Errant];
        all.into_iter().find(|moment| moment.as_str() == word)
    }
}

/// Whether the first word of a command is the name of a file in a directory, and no way out of it.
pub(crate) fn names_a_program(command: &str) -> bool {
    command.split_ascii_whitespace().next().is_some_and(|program| !program.contains('/') && !matches!(program, "." | ".."))
}

/// Every row of `mysql_healing_hooks`, in the table's order.
pub(super) fn compile(config: &Config) -> Vec<HealingHook> {
    let of = |row: &Row| {
        Some(HealingHook {
            writer: HostgroupId(number(row, "writer_hostgroup")),
            moment: HookMoment::of(row.text("moment")?)?,
            command: row.text("command")?.split_ascii_whitespace().map(str::to_owned).collect(),
            timeout_ms: number(row, "timeout_ms"),
            is_required: row.flag("required"),
        })
    };
    config.rows("mysql_healing_hooks").iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::Snapshot;

    fn compiled(rows: &str) -> Result<Snapshot, String> {
        let text = format!("admin_variables = {{ healing_hooks_dir=\"/etc/hooks\" }}\nmysql_healing_hooks = ( {rows} )");
        let said = |errors: Vec<crate::error::ConfigError>| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
        let (config, _) = crate::config::parse(&text, "test.cnf").map_err(said)?;
        Snapshot::compile(&config).map_err(said)
    }

    #[test]
    fn a_command_is_a_name_and_its_arguments() {
        let snapshot = compiled(r#"{ writer_hostgroup=10, moment="fence", command="power  off '$x'", required=1 }"#).unwrap();
        let [hook] = &snapshot.healing_hooks[..] else { panic!("one row") };
        assert_eq!((hook.moment, hook.timeout_ms, hook.is_required), (HookMoment::Fence, 10_000, true));
        assert_eq!(hook.command, ["power", "off", "'$x'"]);
        assert_eq!(snapshot.healing_hooks_dir, "/etc/hooks");
        assert_eq!(HookMoment::WORDS.iter().filter_map(|word| HookMoment::of(word)).count(), 6);
    }

    #[test]
    fn a_way_out_of_the_directory_is_refused() {
        for command in ["/bin/sh", "../sh", "a/b", "..", ".", "", " "] {
            let rows = format!(r#"{{ writer_hostgroup=10, moment="after", command="{command}" }}"#);
            assert!(compiled(&rows).is_err(), "{command:?}");
        }
        assert!(compiled(r#"{ writer_hostgroup=10, moment="later", command="a" }"#).is_err());
    }
}
