//! Every configuration table, described once: columns, types, defaults, ranges, keys, rules across columns.
//! Reading, checking and error messages all work from here.

use super::row::Row;
use crate::snapshot::{HookMoment, names_a_program};

/// The description of a table, for files, SQL and errors.
#[derive(Debug)]
pub struct Table {
    /// The same in `main`, `disk` and error texts.
    pub name: &'static str,
    /// Its name in the configuration file, where that differs.
    pub file_name: &'static str,
    /// The meaning of its rows, in one short sentence.
    pub help: &'static str,
    /// In the order of SQL.
    pub columns: &'static [Column],
    /// Sets of columns whose values no two rows may share. NULL equals nothing.
    pub keys: &'static [&'static [&'static str]],
    /// Rules across columns.
    pub checks: &'static [Check],
    /// Whether its rows have an effect in this version.
    pub effect: TableEffect,
}

/// Whether the rows of a table have an effect in this version of Tidegate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableEffect {
    /// They are in force: in the snapshot, or on the ports of the admin interface and in its scheduler.
    Used,
    /// They are read, checked and kept. The word for them in the notice.
    NotYet(&'static str),
}

/// The description of a column, for files, SQL and errors.
#[derive(Debug, Clone, Copy)]
pub struct Column {
    /// The name in SQL and in files.
    pub name: &'static str,
    /// A second name that files may use, or empty.
    pub alias: &'static str,
    /// Type and range.
    pub kind: ColumnKind,
    /// Its value where none is given.
    pub default: ColumnDefault,
    /// The same in a configuration file.
    pub file_default: ColumnDefault,
    /// Whether its table is used but this column is not, yet.
    pub is_inert: bool,
}

/// Type and range of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnKind {
    /// A whole number in a range. Ranges of 0..1 also take `true` and `false`.
    Integer {
        /// Smallest allowed value.
        min: i64,
        /// Largest allowed value.
        max: i64,
    },
    /// Any UTF-8 text.
    Text,
    /// Text that is never logged.
    Secret,
    /// One of these words, in any letter case; kept as spelt here.
    Words(&'static [&'static str]),
    /// A JSON object, or empty.
    Json,
}

/// A column's value where none is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnDefault {
    /// There is none: leaving the column out is an error.
    Required,
    /// The value is unset.
    Null,
    /// This number.
    Integer(i64),
    /// This text.
    Text(&'static str),
}

/// A rule across the columns of a row.
#[derive(Debug)]
pub struct Check {
    /// The column that the error names.
    pub column: &'static str,
    /// Whether a row keeps the rule.
    pub holds: fn(&Row) -> bool,
    /// The rule, as an error says it.
    pub rule: &'static str,
    /// The rule as a CHECK of SQL; empty where only loading checks it.
    pub sql: &'static str,
}

impl Table {
    /// `name` may be the table's name in files or in SQL.
    pub fn by_file_name(name: &str) -> Option<&'static Table> {
        TABLES.iter().find(|table| table.file_name == name || table.name == name)
    }

    /// The index of the column called `name`, by name or alias. Letter case does not matter, as in SQL.
    pub fn column_index(&self, name: &str) -> Option<usize> {
        let is_named = |column: &Column| {
            column.name.eq_ignore_ascii_case(name) || (!column.alias.is_empty() && column.alias.eq_ignore_ascii_case(name))
        };
        self.columns.iter().position(is_named)
    }
}

const INT_MAX: i64 = i32::MAX as i64;
const UINT_MAX: i64 = u32::MAX as i64;
const PORT: ColumnKind = int(0, 65_535);
const FLAG: ColumnKind = int(0, 1);
const NATURAL: ColumnKind = int(0, INT_MAX);
const UNSIGNED: ColumnKind = int(0, UINT_MAX);

const fn int(min: i64, max: i64) -> ColumnKind {
    ColumnKind::Integer { min, max }
}

const fn column(name: &'static str, kind: ColumnKind, default: ColumnDefault) -> Column {
    Column { name, alias: "", kind, default, file_default: default, is_inert: false }
}

/// A column that must be given.
const fn needed(name: &'static str, kind: ColumnKind) -> Column {
    column(name, kind, ColumnDefault::Required)
}

/// A column that is NULL where not given.
const fn nullable(name: &'static str, kind: ColumnKind) -> Column {
    column(name, kind, ColumnDefault::Null)
}

const fn number(name: &'static str, kind: ColumnKind, default: i64) -> Column {
    column(name, kind, ColumnDefault::Integer(default))
}

/// Text that is empty where not given.
const fn text(name: &'static str) -> Column {
    column(name, ColumnKind::Text, ColumnDefault::Text(""))
}

/// A JSON object that is empty where not given.
const fn json(name: &'static str) -> Column {
    column(name, ColumnKind::Json, ColumnDefault::Text(""))
}

const fn also(column: Column, alias: &'static str) -> Column {
    Column { alias, ..column }
}

/// A number with another default in configuration files.
const fn number_in_file(column: Column, default: i64) -> Column {
    Column { file_default: ColumnDefault::Integer(default), ..column }
}

const fn inert(column: Column) -> Column {
    Column { is_inert: true, ..column }
}

/// Whether a replication channel may be called so. The name stands in statements, and servers compare it in any letter case.
fn is_channel_name(name: &str) -> bool {
    name.len() <= 64 && is_plain(name, "_-.") && !name.to_ascii_lowercase().starts_with("group_replication_")
}

/// Whether a source may be at this address. It stands in statements.
fn is_source_host(host: &str) -> bool {
    (1..=255).contains(&host.len()) && is_plain(host, "_-.:")
}

/// Whether a column's text is a number of this kind.
fn is_number(row: &Row, column: &str, is_so: impl FnOnce(f64) -> bool) -> bool {
    crate::snapshot::decimal(row, column).is_some_and(is_so)
}

/// Classes of differences that `mysql_rehearsal_ignores` may name.
pub const IGNORABLE: [&str; 13] = [
    "error_new",
    "rows",
    "count",
    "affected",
    "error_gone",
    "error_other",
    "timed_out",
    "reordered",
    "limited",
    "float",
    "columns",
    "insert_id",
    "warnings",
];

/// The hash of a digest, as tables show it: `0x` and at most 16 hexadecimal digits.
pub(crate) fn digest_of(text: &str) -> Option<u64> {
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"))?;
    u64::from_str_radix(digits, 16).ok().filter(|_| !digits.starts_with('+'))
}

/// A rehearsal that copies whole sessions.
fn copies_all(row: &Row) -> bool {
    row.text("mode") == Some("all")
}

fn is_factor(factor: f64) -> bool {
    (1.0..=1000.0).contains(&factor)
}

fn is_plain(text: &str, marks: &str) -> bool {
    text.chars().all(|c| c.is_ascii_alphanumeric() || marks.contains(c))
}

/// Every table that a configuration file may hold.
pub const TABLES: &[Table] = &[
    Table {
        name: "mysql_servers",
        file_name: "mysql_servers",
        help: "Backend servers, with hostgroup, weight and limits",
        columns: &[
            also(number("hostgroup_id", NATURAL, 0), "hostgroup"),
            also(needed("hostname", ColumnKind::Text), "address"),
            number("port", PORT, 3306),
            inert(number("gtid_port", PORT, 0)),
            column("status", ColumnKind::Words(&["ONLINE", "SHUNNED", "OFFLINE_SOFT", "OFFLINE_HARD"]), ColumnDefault::Text("ONLINE")),
            number("weight", int(0, 10_000_000), 1),
            number("compression", FLAG, 0),
            number("max_connections", NATURAL, 1000),
            number("max_replication_lag", int(0, 126_144_000), 0),
            number("use_ssl", FLAG, 0),
            number("max_latency_ms", UNSIGNED, 0),
            text("comment"),
        ],
        keys: &[&["hostgroup_id", "hostname", "port"]],
        checks: &[
            Check {
                column: "gtid_port",
                holds: |row| row.integer("gtid_port") == Some(0) || row.integer("gtid_port") != row.integer("port"),
                rule: "must differ from port, or be 0",
                sql: "gtid_port <> port OR gtid_port = 0",
            },
            Check {
                column: "hostname",
                holds: |row| row.text("hostname").is_some_and(|host| !host.is_empty()),
                rule: "must not be empty",
                sql: "",
            },
        ],
        effect: TableEffect::Used,
    },
    Table {
        name: "mysql_users",
        file_name: "mysql_users",
        help: "Users of clients and backends, with their default hostgroups",
        columns: &[
            needed("username", ColumnKind::Text),
            nullable("password", ColumnKind::Secret),
            number("active", FLAG, 1),
            number("use_ssl", FLAG, 0),
            number("default_hostgroup", NATURAL, 0),
            nullable("default_schema", ColumnKind::Text),
            number("schema_locked", FLAG, 0),
            number("transaction_persistent", FLAG, 1),
            number("fast_forward", FLAG, 0),
            number("backend", FLAG, 1),
            number("frontend", FLAG, 1),
            number("max_connections", NATURAL, 10_000),
            json("attributes"),
            text("comment"),
        ],
        keys: &[&["username", "backend"], &["username", "frontend"]],
        checks: &[],
        effect: TableEffect::Used,
    },
    Table {
        name: "mysql_hostgroup_attributes",
        file_name: "mysql_hostgroup_attributes",
        help: "Settings of single hostgroups",
        columns: &[
            also(needed("hostgroup_id", NATURAL), "hostgroup"),
            number("max_num_online_servers", int(0, 1_000_000), 1_000_000),
            inert(number("autocommit", int(-1, 1), -1)),
            number("free_connections_pct", int(0, 100), 10),
            text("init_connect"),
            number("multiplex", FLAG, 1),
            number("connection_warming", FLAG, 0),
            number("throttle_connections_per_sec", int(1, 1_000_000), 1_000_000),
            inert(json("ignore_session_variables")),
            json("hostgroup_settings"),
            json("servers_defaults"),
            text("comment"),
        ],
        keys: &[&["hostgroup_id"]],
        checks: &[],
        effect: TableEffect::Used,
    },
    Table {
        name: "mysql_servers_ssl_params",
        file_name: "mysql_servers_ssl_params",
        help: "TLS settings of single backend servers",
        columns: &[
            needed("hostname", ColumnKind::Text),
            number("port", PORT, 3306),
            text("username"),
            text("ssl_ca"),
            text("ssl_cert"),
            text("ssl_key"),
            text("ssl_capath"),
            text("ssl_crl"),
            text("ssl_crlpath"),
            text("ssl_cipher"),
            text("tls_version"),
            text("comment"),
        ],
        keys: &[&["hostname", "port", "username"]],
        checks: &[],
        effect: TableEffect::Used,
    },
    Table {
        name: "mysql_query_rules",
        file_name: "mysql_query_rules",
        help: "Rules that route, rewrite, cache, delay or refuse statements",
        columns: &[
            nullable("rule_id", NATURAL),
            // As in ProxySQL: a row in a file is active unless it says otherwise.
            number_in_file(number("active", FLAG, 0), 1),
            nullable("username", ColumnKind::Text),
            nullable("schemaname", ColumnKind::Text),
            number("flagIN", NATURAL, 0),
            nullable("client_addr", ColumnKind::Text),
            nullable("proxy_addr", ColumnKind::Text),
            nullable("proxy_port", PORT),
            nullable("digest", ColumnKind::Text),
            nullable("match_digest", ColumnKind::Text),
            nullable("match_pattern", ColumnKind::Text),
            number("negate_match_pattern", FLAG, 0),
            column("re_modifiers", ColumnKind::Text, ColumnDefault::Text("CASELESS")),
            nullable("flagOUT", NATURAL),
            nullable("replace_pattern", ColumnKind::Text),
            nullable("destination_hostgroup", NATURAL),
            nullable("cache_ttl", int(1, INT_MAX)),
            nullable("cache_empty_result", FLAG),
            nullable("cache_timeout", NATURAL),
            nullable("reconnect", FLAG),
            nullable("timeout", UNSIGNED),
            nullable("retries", int(0, 1000)),
            nullable("delay", UNSIGNED),
            nullable("next_query_flagIN", UNSIGNED),
            nullable("mirror_flagOUT", UNSIGNED),
            nullable("mirror_hostgroup", NATURAL),
            nullable("error_msg", ColumnKind::Text),
            nullable("OK_msg", ColumnKind::Text),
            nullable("sticky_conn", FLAG),
            nullable("multiplex", int(0, 2)),
            nullable("gtid_from_hostgroup", NATURAL),
            nullable("log", FLAG),
            number("apply", FLAG, 0),
            json("attributes"),
            nullable("comment", ColumnKind::Text),
        ],
        keys: &[&["rule_id"]],
        checks: &[Check {
            column: "replace_pattern",
            holds: |row| row.text("replace_pattern").is_none() || row.text("match_pattern").is_some(),
            rule: "needs match_pattern",
            sql: "replace_pattern IS NULL OR match_pattern IS NOT NULL",
        }],
        effect: TableEffect::Used,
    },
    Table {
        name: "mysql_query_rules_fast_routing",
        file_name: "mysql_query_rules_fast_routing",
        help: "Hostgroups by user and schema, looked up after the query rules",
        columns: &[
            needed("username", ColumnKind::Text),
            needed("schemaname", ColumnKind::Text),
            number("flagIN", NATURAL, 0),
            needed("destination_hostgroup", NATURAL),
            text("comment"),
        ],
        keys: &[&["username", "schemaname", "flagIN"]],
        checks: &[],
        effect: TableEffect::Used,
    },
    Table {
        name: "mysql_replication_hostgroups",
        file_name: "mysql_replication_hostgroups",
        help: "Replication clusters: writer and reader hostgroups",
        columns: &[
            needed("writer_hostgroup", NATURAL),
            needed("reader_hostgroup", NATURAL),
            column(
                "check_type",
                ColumnKind::Words(&[
                    "read_only",
                    "innodb_read_only",
                    "super_read_only",
                    "read_only|innodb_read_only",
                    "read_only&innodb_read_only",
                ]),
                ColumnDefault::Text("read_only"),
            ),
            text("comment"),
        ],
        keys: &[&["writer_hostgroup"], &["reader_hostgroup"]],
        checks: &[READER_DIFFERS],
        effect: TableEffect::Used,
    },
    group_table("mysql_group_replication_hostgroups", "Group Replication clusters: hostgroups and limits"),
    group_table("mysql_galera_hostgroups", "Galera clusters: hostgroups and limits"),
    Table {
        name: "mysql_replication_channels",
        file_name: "mysql_replication_channels",
        help: "Replication channels from other clusters, which the proxy moves with the writer",
        columns: &[
            needed("writer_hostgroup", NATURAL),
            text("channel_name"),
            also(needed("source_hostname", ColumnKind::Text), "source_address"),
            number("source_port", int(1, 65_535), 3306),
            number("active", FLAG, 1),
            text("comment"),
        ],
        keys: &[&["writer_hostgroup", "channel_name"]],
        checks: &[
            Check {
                column: "channel_name",
                holds: |row| row.text("channel_name").is_some_and(is_channel_name),
                rule: "must be at most 64 letters, digits and marks of '_-.', and not begin with group_replication_",
                sql: "",
            },
            Check {
                column: "source_hostname",
                holds: |row| row.text("source_hostname").is_some_and(is_source_host),
                rule: "must be a host name or an address: 1 to 255 letters, digits and marks of '_-.:'",
                sql: "",
            },
        ],
        effect: TableEffect::Used,
    },
    Table {
        name: "mysql_healing",
        file_name: "mysql_healing",
        help: "Replication clusters for which the proxy says who should take over if the writer dies, whose servers it takes back, and where it promotes",
        columns: &[
            needed("writer_hostgroup", NATURAL),
            column("mode", ColumnKind::Words(&["off", "advise", "rejoin", "full"]), ColumnDefault::Text("advise")),
            number("dead_ms", int(1_000, 600_000), 4_000),
            number("votes", int(0, 100), 0),
            number("apply_ms", int(1_000, 86_400_000), 60_000),
            column("loss", ColumnKind::Words(&["none", "reported", "any"]), ColumnDefault::Text("reported")),
            number("max_lost_ms", int(0, 86_400_000), 10_000),
            column("site", ColumnKind::Words(&["same", "prefer", "any"]), ColumnDefault::Text("same")),
            number("min_replicas", int(0, 100), 0),
            number("block_ms", int(0, 2_592_000_000), 3_600_000),
            column("semi_sync", ColumnKind::Words(&["keep", "managed"]), ColumnDefault::Text("keep")),
            number("acks", int(1, 100), 1),
            text("comment"),
        ],
        keys: &[&["writer_hostgroup"]],
        checks: &[],
        effect: TableEffect::Used,
    },
    Table {
        name: "mysql_healing_servers",
        file_name: "mysql_healing_servers",
        help: "Servers that healing prefers, avoids or never promotes, and their sites",
        columns: &[
            also(needed("hostname", ColumnKind::Text), "address"),
            number("port", int(1, 65_535), 3306),
            column("promotion", ColumnKind::Words(&["auto", "prefer", "neutral", "avoid", "never"]), ColumnDefault::Text("auto")),
            text("site"),
            text("comment"),
        ],
        keys: &[&["hostname", "port"]],
        checks: &[],
        effect: TableEffect::Used,
    },
    Table {
        name: "mysql_healing_hooks",
        file_name: "mysql_healing_hooks",
        help: "Programs in admin-healing_hooks_dir that healing runs, by moment: before, fence, after, blocked, outcast, errant",
        columns: &[
            needed("writer_hostgroup", NATURAL),
            column("moment", ColumnKind::Words(HookMoment::WORDS), ColumnDefault::Required),
            needed("command", ColumnKind::Text),
            number("timeout_ms", int(100, 600_000), 10_000),
            number("required", FLAG, 0),
            text("comment"),
        ],
        keys: &[&["writer_hostgroup", "moment", "command"]],
        checks: &[Check {
            column: "command",
            holds: |row| row.text("command").is_some_and(names_a_program),
            rule: "must begin with the name of a program in admin-healing_hooks_dir, without a slash",
            sql: "",
        }],
        effect: TableEffect::Used,
    },
    Table {
        name: "mysql_rehearsals",
        file_name: "mysql_rehearsals",
        help: "Rehearsals of an upgrade: whose reads are repeated on a shadow server and compared",
        columns: &[
            needed("name", ColumnKind::Text),
            number("active", FLAG, 1),
            needed("source_hostgroup", NATURAL),
            needed("shadow_hostgroup", NATURAL),
            column("mode", ColumnKind::Text, ColumnDefault::Text("reads")),
            column("percent", ColumnKind::Text, ColumnDefault::Text("10")),
            text("users"),
            text("schemas"),
            column("on_full", ColumnKind::Text, ColumnDefault::Text("drop")),
            number("wait_ms", int(0, 60_000), 1_000),
            number("queue_mb", int(1, 4_096), 64),
            number("order_wait_ms", int(1_000, 600_000), 5_000),
            number("pin", FLAG, 1),
            column("slow_factor", ColumnKind::Text, ColumnDefault::Text("1.5")),
            column("total_growth", ColumnKind::Text, ColumnDefault::Text("1.2")),
            number("warmup_s", int(0, 86_400), 60),
            number("samples", int(0, 100), 3),
            number("show_literals", FLAG, 0),
            number("rechecks_per_s", int(0, 1_000), 10),
            number("explain", FLAG, 1),
            text("comment"),
        ],
        keys: &[&["name"]],
        checks: &[
            Check {
                column: "name",
                holds: |row| row.text("name").is_some_and(|name| (1..=64).contains(&name.len()) && is_plain(name, "_-.")),
                rule: "must be 1 to 64 letters, digits and marks of '_-.'",
                sql: "",
            },
            Check {
                column: "shadow_hostgroup",
                holds: |row| row.integer("shadow_hostgroup") != row.integer("source_hostgroup"),
                rule: "must differ from source_hostgroup",
                sql: "shadow_hostgroup <> source_hostgroup",
            },
            Check {
                column: "mode",
                holds: |row| matches!(row.text("mode"), Some("reads" | "all")),
                rule: "must be 'reads' or 'all'",
                sql: "mode IN ('reads','all')",
            },
            Check {
                column: "percent",
                holds: |row| is_number(row, "percent", |percent| percent > 0.0 && percent <= 100.0),
                rule: "must be a number above 0 and at most 100",
                sql: "",
            },
            Check {
                column: "percent",
                holds: |row| !copies_all(row) || is_number(row, "percent", |percent| percent >= 100.0),
                rule: "must be 100 with mode 'all': rows that the other sessions write would be missing on the shadow",
                sql: "",
            },
            Check {
                column: "schemas",
                holds: |row| !copies_all(row) || row.text("schemas").unwrap_or_default().is_empty(),
                rule: "must be empty with mode 'all', which copies whole sessions",
                sql: "",
            },
            Check {
                column: "on_full",
                holds: |row| matches!(row.text("on_full"), Some("drop" | "wait")),
                rule: "must be 'drop' or 'wait'",
                sql: "on_full IN ('drop','wait')",
            },
            Check {
                column: "on_full",
                holds: |row| copies_all(row) || row.text("on_full") != Some("wait"),
                rule: "must be 'drop' with mode 'reads': reads that are not repeated leave no difference in the data",
                sql: "",
            },
            Check {
                column: "slow_factor",
                holds: |row| is_number(row, "slow_factor", is_factor),
                rule: "must be a number from 1 to 1000",
                sql: "",
            },
            Check {
                column: "total_growth",
                holds: |row| is_number(row, "total_growth", is_factor),
                rule: "must be a number from 1 to 1000",
                sql: "",
            },
        ],
        effect: TableEffect::Used,
    },
    Table {
        name: "mysql_rehearsal_ignores",
        file_name: "mysql_rehearsal_ignores",
        help: "Differences that rehearsals ignore: of a digest, a schema, a column's values or a class",
        columns: &[text("digest"), text("schemaname"), text("column_name"), text("class"), text("comment")],
        keys: &[&["digest", "schemaname", "column_name", "class"]],
        checks: &[
            Check {
                column: "digest",
                holds: |row| row.text("digest").is_none_or(|digest| digest.is_empty() || digest_of(digest).is_some()),
                rule: "must be empty or as stats_tidegate_rehearsal_digests shows it, such as '0x3F1CC2B2A4D2E0B1'",
                sql: "",
            },
            Check {
                column: "digest",
                holds: |row| ["digest", "column_name", "class"].iter().any(|column| row.text(column).is_some_and(|text| !text.is_empty())),
                rule: "or column_name or class must be given: otherwise the row would ignore all differences",
                sql: "",
            },
            Check {
                column: "column_name",
                holds: |row| row.text("column_name").is_none_or(|name| name.chars().count() <= 64),
                rule: "must have at most 64 characters",
                sql: "",
            },
            Check {
                column: "class",
                holds: |row| row.text("class").is_none_or(|class| class.is_empty() || IGNORABLE.contains(&class)),
                rule: "must be empty or one of 'error_new', 'rows', 'count', 'affected', 'error_gone', 'error_other', 'timed_out', \
                       'reordered', 'limited', 'float', 'columns', 'insert_id', 'warnings'",
                sql: "",
            },
            Check {
                column: "class",
                holds: |row| {
                    let is_of_column = row.text("column_name").is_some_and(|name| !name.is_empty());
                    !is_of_column || matches!(row.text("class"), None | Some("" | "rows"))
                },
                rule: "must be empty or 'rows' with column_name, which leaves the values of the column out of the comparison",
                sql: "",
            },
        ],
        effect: TableEffect::Used,
    },
    Table {
        name: "mysql_aws_aurora_hostgroups",
        file_name: "mysql_aws_aurora_hostgroups",
        help: "Aurora clusters: hostgroups and lag limits",
        columns: &[
            needed("writer_hostgroup", NATURAL),
            needed("reader_hostgroup", int(1, INT_MAX)),
            number("active", FLAG, 1),
            number("aurora_port", PORT, 3306),
            needed("domain_name", ColumnKind::Text),
            number("max_lag_ms", int(10, 600_000), 600_000),
            number("check_interval_ms", int(100, 600_000), 1_000),
            number("check_timeout_ms", int(80, 3_000), 800),
            number("writer_is_also_reader", FLAG, 0),
            number("new_reader_weight", int(0, 10_000_000), 1),
            number("add_lag_ms", int(0, 600_000), 30),
            number("min_lag_ms", int(0, 600_000), 30),
            number("lag_num_checks", int(1, 16), 1),
            nullable("comment", ColumnKind::Text),
        ],
        keys: &[&["writer_hostgroup"], &["reader_hostgroup"]],
        checks: &[
            READER_DIFFERS,
            Check {
                column: "domain_name",
                holds: |row| row.text("domain_name").is_some_and(|name| name.starts_with('.')),
                rule: "must begin with '.'",
                sql: "SUBSTR(domain_name,1,1) = '.'",
            },
        ],
        effect: TableEffect::Used,
    },
    Table {
        name: "mysql_collations",
        file_name: "mysql_collations",
        help: "Collations; kept without an effect",
        columns: &[needed("Id", NATURAL), needed("Collation", ColumnKind::Text), needed("Charset", ColumnKind::Text), text("Default")],
        keys: &[&["Id"]],
        checks: &[],
        effect: TableEffect::NotYet("collations"),
    },
    Table {
        name: "mysql_firewall_whitelist_users",
        file_name: "mysql_firewall_whitelist_users",
        help: "Users that the firewall checks, with its mode",
        columns: &[
            number("active", FLAG, 1),
            needed("username", ColumnKind::Text),
            needed("client_address", ColumnKind::Text),
            column("mode", ColumnKind::Words(&["OFF", "DETECTING", "PROTECTING"]), ColumnDefault::Text("OFF")),
            text("comment"),
        ],
        keys: &[&["username", "client_address"]],
        checks: &[],
        effect: TableEffect::Used,
    },
    Table {
        name: "mysql_firewall_whitelist_rules",
        file_name: "mysql_firewall_whitelist_rules",
        help: "Statements that the firewall allows, by digest",
        columns: &[
            number("active", FLAG, 1),
            needed("username", ColumnKind::Text),
            needed("client_address", ColumnKind::Text),
            needed("schemaname", ColumnKind::Text),
            number("flagIN", NATURAL, 0),
            needed("digest", ColumnKind::Text),
            text("comment"),
        ],
        keys: &[&["username", "client_address", "schemaname", "flagIN", "digest"]],
        checks: &[],
        effect: TableEffect::Used,
    },
    Table {
        name: "mysql_firewall_whitelist_sqli_fingerprints",
        file_name: "mysql_firewall_whitelist_sqli_fingerprints",
        help: "Fingerprints for SQL injection checks; kept without an effect",
        columns: &[number("active", FLAG, 1), needed("fingerprint", ColumnKind::Text)],
        keys: &[&["fingerprint"]],
        checks: &[],
        effect: TableEffect::Used,
    },
    Table {
        name: "mysql_ldap_mapping",
        file_name: "mysql_ldap_mapping",
        help: "LDAP users and groups; kept without an effect",
        columns: &[
            needed("priority", int(1, 1_000_000)),
            needed("frontend_entity", ColumnKind::Text),
            needed("backend_entity", ColumnKind::Text),
            text("comment"),
        ],
        keys: &[&["priority"], &["frontend_entity"]],
        checks: &[],
        effect: TableEffect::NotYet("rows"),
    },
    Table {
        name: "scheduler",
        file_name: "scheduler",
        help: "Scripts that the proxy runs at intervals",
        columns: &[
            nullable("id", NATURAL),
            number("active", FLAG, 1),
            needed("interval_ms", int(100, 100_000_000)),
            needed("filename", ColumnKind::Text),
            nullable("arg1", ColumnKind::Text),
            nullable("arg2", ColumnKind::Text),
            nullable("arg3", ColumnKind::Text),
            nullable("arg4", ColumnKind::Text),
            nullable("arg5", ColumnKind::Text),
            text("comment"),
        ],
        keys: &[&["id"]],
        checks: &[],
        effect: TableEffect::Used,
    },
    Table {
        name: "proxysql_servers",
        file_name: "proxysql_servers",
        help: "Proxies that exchange their configuration",
        columns: &[
            also(needed("hostname", ColumnKind::Text), "address"),
            number("port", PORT, 6032),
            number("weight", NATURAL, 0),
            text("comment"),
        ],
        keys: &[&["hostname", "port"]],
        checks: &[],
        effect: TableEffect::Used,
    },
    Table {
        name: "restapi_routes",
        file_name: "restapi",
        help: "Scripts that the REST interface runs",
        columns: &[
            nullable("id", NATURAL),
            number("active", FLAG, 1),
            also(needed("timeout_ms", int(100, 100_000_000)), "interval_ms"),
            needed("method", ColumnKind::Words(&["GET", "POST"])),
            needed("uri", ColumnKind::Text),
            needed("script", ColumnKind::Text),
            text("comment"),
        ],
        keys: &[&["id"]],
        checks: &[],
        effect: TableEffect::Used,
    },
    Table {
        name: "coredump_filters",
        file_name: "coredump_filters",
        help: "Filters of core dumps; kept without an effect",
        columns: &[needed("filename", ColumnKind::Text), needed("line", NATURAL)],
        keys: &[&["filename", "line"]],
        checks: &[],
        effect: TableEffect::NotYet("filters"),
    },
];

const READER_DIFFERS: Check = Check {
    column: "reader_hostgroup",
    holds: |row| row.integer("reader_hostgroup") != row.integer("writer_hostgroup"),
    rule: "must differ from writer_hostgroup",
    sql: "reader_hostgroup <> writer_hostgroup",
};

const GROUP_COLUMNS: &[Column] = &[
    needed("writer_hostgroup", NATURAL),
    needed("backup_writer_hostgroup", NATURAL),
    needed("reader_hostgroup", int(1, INT_MAX)),
    needed("offline_hostgroup", NATURAL),
    number("active", FLAG, 1),
    number("max_writers", NATURAL, 1),
    number("writer_is_also_reader", int(0, 2), 0),
    number("max_transactions_behind", NATURAL, 0),
    nullable("comment", ColumnKind::Text),
];

/// The shape that Group Replication and Galera share.
const fn group_table(name: &'static str, help: &'static str) -> Table {
    Table {
        name,
        file_name: name,
        help,
        columns: GROUP_COLUMNS,
        keys: &[&["writer_hostgroup"], &["reader_hostgroup"], &["offline_hostgroup"], &["backup_writer_hostgroup"]],
        checks: &[READER_DIFFERS, BACKUP_DIFFERS, OFFLINE_DIFFERS],
        effect: TableEffect::Used,
    }
}

const BACKUP_DIFFERS: Check = Check {
    column: "backup_writer_hostgroup",
    holds: |row| differs(row, "backup_writer_hostgroup", &["writer_hostgroup", "reader_hostgroup"]),
    rule: "must differ from writer_hostgroup and reader_hostgroup",
    sql: "backup_writer_hostgroup <> writer_hostgroup AND backup_writer_hostgroup <> reader_hostgroup",
};

const OFFLINE_DIFFERS: Check = Check {
    column: "offline_hostgroup",
    holds: |row| differs(row, "offline_hostgroup", &["writer_hostgroup", "reader_hostgroup", "backup_writer_hostgroup"]),
    rule: "must differ from the other hostgroups",
    sql: "offline_hostgroup <> writer_hostgroup AND offline_hostgroup <> reader_hostgroup AND backup_writer_hostgroup <> offline_hostgroup",
};

fn differs(row: &Row, column: &str, others: &[&str]) -> bool {
    others.iter().all(|other| row.integer(column) != row.integer(other))
}
