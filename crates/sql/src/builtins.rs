//! Keywords and built-in functions of MySQL and MariaDB that may stand before a parenthesis.
//!
//! A call of a name that is neither here nor in [`crate::keywords`] may be a stored or loadable function. Some functions are left out on
//! purpose, so that they count as unknown: they read or change state of the connection and have no fact of their own. These are `NEXTVAL`,
//! `LASTVAL`, `SETVAL`, `IS_FREE_LOCK`, `IS_USED_LOCK`, `WSREP_LAST_SEEN_GTID` and `PS_CURRENT_THREAD_ID`.
//! Source: MySQL 8.4/9.x manual 14, MariaDB knowledge base "Function and Operator Reference". Whether a name can also be a stored function
//! was tested by calls on MySQL 9.7 and MariaDB 10.11. Functions that MySQL dropped with 8.0 count as MariaDB's alone, and those of a later
//! version as any version's.

use crate::keywords::Kw;
use crate::token::{Builtins, LexMode};

/// Lower-case, sorted; by where they are built in.
#[rustfmt::skip]
pub(crate) const BUILTINS: &[(Kw, &[&str])] = &[
    (Kw::Known, &[
        "abs", "acos", "addtime", "aes_decrypt", "aes_encrypt", "against", "all", "any", "asin", "atan",
        "atan2", "avg", "benchmark", "bigint", "bin", "binary", "bit", "bit_count", "bit_length", "blob",
        "bool", "boolean", "ceil", "ceiling", "char_length", "character_length", "coalesce", "coercibility",
        "columns", "compress", "concat", "concat_ws", "contains", "conv", "convert", "convert_tz", "cos", "cot",
        "crc32", "cross", "current_role", "current_user", "date", "date_format", "datediff", "datetime", "day",
        "dayname", "dayofmonth", "dayofweek", "dayofyear", "dec", "decimal", "degrees", "double", "elt", "enum",
        "except", "exp", "export_set", "extractvalue", "field", "find_in_set", "fixed", "float", "floor",
        "foreign", "format", "format_pico_time", "from_base64", "from_days", "from_unixtime",
        "geometrycollection", "get_format", "greatest", "group", "hex", "hour", "ifnull", "inet6_aton",
        "inet6_ntoa", "inet_aton", "inet_ntoa", "inner", "instr", "int", "int1", "int2", "int3", "int4", "int8",
        "integer", "intersect", "interval", "is", "is_ipv4", "is_ipv4_compat", "is_ipv4_mapped", "is_ipv6",
        "isnull", "json", "json_array", "json_array_append", "json_array_insert", "json_contains",
        "json_contains_path", "json_depth", "json_extract", "json_insert", "json_keys", "json_length",
        "json_merge", "json_merge_patch", "json_merge_preserve", "json_object", "json_overlaps", "json_pretty",
        "json_quote", "json_remove", "json_replace", "json_schema_valid", "json_search", "json_set",
        "json_table", "json_type", "json_unquote", "json_valid", "json_value", "keys", "last_day", "last_value",
        "lcase", "least", "left", "length", "linestring", "ln", "load_file", "locate", "log", "log10", "log2",
        "longblob", "longtext", "lower", "lpad", "ltrim", "make_set", "makedate", "maketime", "master_pos_wait",
        "match", "mbrcontains", "mbrdisjoint", "mbrequals", "mbrintersects", "mbroverlaps", "mbrtouches",
        "mbrwithin", "md5", "mediumblob", "mediumint", "mediumtext", "microsecond", "minute", "mod", "month",
        "monthname", "multilinestring", "multipoint", "multipolygon", "name_const", "national", "natural",
        "nchar", "nullif", "numeric", "nvarchar", "oct", "octet_length", "ord", "order", "outer", "over",
        "period_add", "period_diff", "pi", "point", "polygon", "pow", "power", "precision", "primary",
        "quarter", "quote", "radians", "rand", "random_bytes", "range", "real", "regexp", "regexp_instr",
        "regexp_replace", "regexp_substr", "reverse", "right", "rlike", "round", "row_number", "rows", "rpad",
        "rtrim", "schema", "sec_to_time", "second", "separator", "sha", "sha1", "sha2", "sign", "sin", "sleep",
        "smallint", "some", "soundex", "sounds", "space", "sqrt", "srid", "st_area", "st_asbinary",
        "st_asgeojson", "st_astext", "st_aswkb", "st_aswkt", "st_buffer", "st_centroid", "st_contains",
        "st_convexhull", "st_crosses", "st_difference", "st_dimension", "st_disjoint", "st_distance",
        "st_distance_sphere", "st_endpoint", "st_envelope", "st_equals", "st_exteriorring",
        "st_geomcollfromtext", "st_geomcollfromwkb", "st_geometrycollectionfromtext",
        "st_geometrycollectionfromwkb", "st_geometryfromtext", "st_geometryfromwkb", "st_geometryn",
        "st_geometrytype", "st_geomfromgeojson", "st_geomfromtext", "st_geomfromwkb", "st_interiorringn",
        "st_intersection", "st_intersects", "st_isclosed", "st_isempty", "st_issimple", "st_length",
        "st_linefromtext", "st_linefromwkb", "st_linestringfromtext", "st_linestringfromwkb",
        "st_mlinefromtext", "st_mlinefromwkb", "st_mpointfromtext", "st_mpointfromwkb", "st_mpolyfromtext",
        "st_mpolyfromwkb", "st_multilinestringfromtext", "st_multilinestringfromwkb", "st_multipointfromtext",
        "st_multipointfromwkb", "st_multipolygonfromtext", "st_multipolygonfromwkb", "st_numgeometries",
        "st_numinteriorrings", "st_numpoints", "st_overlaps", "st_pointfromtext", "st_pointfromwkb",
        "st_pointn", "st_polyfromtext", "st_polyfromwkb", "st_polygonfromtext", "st_polygonfromwkb", "st_srid",
        "st_startpoint", "st_symdifference", "st_touches", "st_union", "st_within", "st_x", "st_y",
        "str_to_date", "straight_join", "strcmp", "substring_index", "subtime", "tan", "text", "time",
        "time_format", "time_to_sec", "timediff", "timestamp", "timestampadd", "timestampdiff", "tinyblob",
        "tinyint", "tinytext", "to_base64", "to_days", "to_seconds", "ucase", "uncompress",
        "uncompressed_length", "unhex", "unique", "unix_timestamp", "unsigned", "updatexml", "upper", "using",
        "uuid_short", "varbinary", "varchar", "version", "week", "weekday", "weekofyear", "weight_string",
        "window", "xor", "year", "yearweek",
    ]),
    (Kw::OfMySql, &[
        "any_value", "bin_to_uuid", "cube", "format_bytes", "geomcollection", "geometry", "grouping",
        "gtid_subset", "gtid_subtract", "icu_version", "is_uuid", "json_schema_validation_report",
        "json_storage_free", "json_storage_size", "lateral", "mbrcoveredby", "mbrcovers", "member", "of",
        "regexp_like", "rollup", "source_pos_wait", "st_buffer_strategy", "st_frechetdistance", "st_geohash",
        "st_geomcollfromtxt", "st_hausdorffdistance", "st_isvalid", "st_latfromgeohash", "st_latitude",
        "st_lineinterpolatepoint", "st_lineinterpolatepoints", "st_longfromgeohash", "st_longitude",
        "st_makeenvelope", "st_numinteriorring", "st_pointatdistance", "st_pointfromgeohash", "st_simplify",
        "st_swapxy", "st_transform", "st_validate", "statement_digest", "statement_digest_text",
        "string_to_vector", "uuid_to_bin", "validate_password_strength", "vector", "vector_dim",
        "vector_to_string", "wait_for_executed_gtid_set",
    ]),
    (Kw::OfMariaDb, &[
        "add_months", "area", "asbinary", "astext", "aswkb", "aswkt", "binlog_gtid_pos", "buffer", "centroid",
        "chr", "column_add", "column_check", "column_create", "column_delete", "column_exists", "column_get",
        "column_json", "column_list", "convexhull", "crc32c", "crosses", "decode", "decode_histogram",
        "decode_oracle", "des_decrypt", "des_encrypt", "dimension", "disjoint", "encode", "encrypt", "endpoint",
        "envelope", "equals", "exteriorring", "geomcollfromtext", "geomcollfromwkb",
        "geometrycollectionfromtext", "geometrycollectionfromwkb", "geometryfromtext", "geometryfromwkb",
        "geometryn", "geometrytype", "geomfromtext", "geomfromwkb", "glength", "interiorringn", "intersects",
        "isclosed", "isempty", "isring", "issimple", "json_array_intersect", "json_compact", "json_detailed",
        "json_equals", "json_exists", "json_key_value", "json_loose", "json_normalize",
        "json_object_filter_keys", "json_object_to_array", "json_query", "kdf", "lengthb", "linefromtext",
        "linefromwkb", "linestringfromtext", "linestringfromwkb", "master_gtid_wait", "mbrequal",
        "mlinefromtext", "mlinefromwkb", "mpointfromtext", "mpointfromwkb", "mpolyfromtext", "mpolyfromwkb",
        "multilinestringfromtext", "multilinestringfromwkb", "multipointfromtext", "multipointfromwkb",
        "multipolygonfromtext", "multipolygonfromwkb", "natural_sort_key", "numgeometries", "numinteriorrings",
        "numpoints", "old_password", "overlaps", "pointfromtext", "pointfromwkb", "pointn", "pointonsurface",
        "polyfromtext", "polyfromwkb", "polygonfromtext", "polygonfromwkb", "sformat", "st_boundary",
        "st_isring", "st_pointonsurface", "st_relate", "startpoint", "to_char", "to_number", "touches",
        "uuid_v4", "uuid_v7", "vec_distance", "vec_distance_cosine", "vec_distance_euclidean", "vec_fromtext",
        "vec_totext", "within", "wsrep_sync_wait_upto_gtid",
    ]),
    (Kw::Touching, &[
        "adddate", "bit_and", "bit_or", "bit_xor", "cast", "date_add", "date_sub", "extract", "group_concat",
        "json_arrayagg", "json_objectagg", "max", "mid", "min", "position", "session_user", "std", "stddev",
        "stddev_pop", "stddev_samp", "subdate", "substr", "substring", "sum", "system_user", "trim", "var_pop",
        "var_samp", "variance",
    ]),
    (Kw::TouchingOnMariaDb, &[
        "cume_dist", "dense_rank", "first_value", "lag", "lead", "nth_value", "ntile", "percent_rank", "rank",
    ]),
    (Kw::TouchingOfMySql, &[
        "st_collect",
    ]),
    (Kw::TouchingOfMariaDb, &[
        "median", "percentile_cont", "percentile_disc", "trim_oracle",
    ]),
];

/// When a name before a parenthesis is built in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    Always,
    /// If the parenthesis touches it.
    Touching,
    Never,
}

impl Kw {
    /// On MySQL, and on MariaDB.
    const fn built_in(self) -> (When, When) {
        use When::*;
        match self {
            Kw::OfMySql => (Always, Never),
            Kw::OfMariaDb => (Never, Always),
            Kw::Touching | Kw::Count | Kw::Now | Kw::Curdate | Kw::Curtime => (Touching, Touching),
            Kw::TouchingOnMariaDb => (Always, Touching),
            Kw::TouchingOfMySql => (Touching, Never),
            Kw::TouchingOfMariaDb => (Never, Touching),
            Kw::Sysdate => (Touching, Always),
            Kw::Chain
            | Kw::Committed
            | Kw::Connection
            | Kw::Consistent
            | Kw::Data
            | Kw::Diagnostics
            | Kw::Dumpfile
            | Kw::Errors
            | Kw::Event
            | Kw::Export
            | Kw::Import
            | Kw::Instance
            | Kw::Isolation
            | Kw::Level
            | Kw::Only
            | Kw::Persist
            | Kw::PersistOnly
            | Kw::Query
            | Kw::Repeatable
            | Kw::Serializable
            | Kw::Share
            | Kw::Snapshot
            | Kw::Tables
            | Kw::Temporary
            | Kw::Transaction
            | Kw::Uncommitted
            | Kw::Variables
            | Kw::View
            | Kw::Warnings
            | Kw::Work
            | Kw::Xml => (Always, Never),
            Kw::None
            | Kw::Atomic
            | Kw::ErrorCount
            | Kw::Hard
            | Kw::Identity
            | Kw::Immediate
            | Kw::Package
            | Kw::Previous
            | Kw::PseudoThreadId
            | Kw::Soft
            | Kw::Statement
            | Kw::WarningCount
            | Kw::VariableTable
            | Kw::VariableTable2
            | Kw::VariableTable3
            | Kw::VariableTable4
            | Kw::VariableTable5
            | Kw::VariableTable6
            | Kw::VariableTable7 => (Never, Never),
            _ => (Always, Always),
        }
    }

    /// Before a parenthesis it is no stored function, wherever it runs and however it is written.
    #[inline]
    pub(crate) fn is_always_built_in(self) -> bool {
        ALWAYS[usize::from(self as u8)]
    }

    /// May it be a stored function, with these bytes between it and the parenthesis?
    pub(crate) fn may_be_stored(self, between: &[u8], mode: LexMode) -> bool {
        // IGNORE_SPACE passes over no comment.
        let touches = between.is_empty() || mode.ignore_space && between.iter().all(u8::is_ascii_whitespace);
        let is_stored = |when| when == When::Never || when == When::Touching && !touches;
        let (mysql, mariadb) = self.built_in();
        mode.builtins != Builtins::MariaDb && is_stored(mysql) || mode.builtins != Builtins::MySql && is_stored(mariadb)
    }

    /// Is it no name of a stored function on this server, however it is written?
    pub(crate) fn is_built_in(self, is_mariadb: bool) -> bool {
        let (mysql, mariadb) = self.built_in();
        (if is_mariadb { mariadb } else { mysql }) == When::Always
    }
}

static ALWAYS: [bool; 256] = {
    let mut table = [true; 256];
    let mut at = 0;
    while at < Kw::ALL.len() {
        let kw = Kw::ALL[at];
        table[kw as usize] = matches!(kw.built_in(), (When::Always, When::Always));
        at += 1;
    }
    table
};
