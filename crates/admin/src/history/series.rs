//! The tables of samples: each column with the source and the kind of its number. Each table has twins `_hour` and `_day`.

/// The kind of a number, which decides how an hour's samples become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Grows while the process lives: the last value stands.
    Counter,
    /// Goes up and down: the average stands, rounded.
    Gauge,
}

/// One column behind `timestamp`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SampleColumn {
    /// Its name in SQL.
    pub name: &'static str,
    /// The number's name at its source.
    pub source: &'static str,
    /// Decides how an hour's samples become one number.
    pub kind: Kind,
}

/// The source of the numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// `stats_mysql_global`.
    Global,
    /// The system: CPU time of the process, in clock ticks of 10 ms.
    Cpu,
    /// The allocator, else the system: memory of the process, in bytes.
    Memory,
}

/// A table of samples; its time is the first column.
#[derive(Debug)]
pub(crate) struct SampleTable {
    /// Its name in `stats_history`.
    pub name: &'static str,
    /// Its content in one short sentence.
    pub help: &'static str,
    pub source: Source,
    /// Its columns behind the time.
    pub columns: &'static [SampleColumn],
}

const fn counter(name: &'static str) -> SampleColumn {
    SampleColumn { name, source: name, kind: Kind::Counter }
}

const fn gauge(name: &'static str) -> SampleColumn {
    SampleColumn { name, source: name, kind: Kind::Gauge }
}

const fn from(column: SampleColumn, source: &'static str) -> SampleColumn {
    SampleColumn { source, ..column }
}

/// Every table of samples. Columns are ProxySQL's.
pub(crate) const TABLES: &[SampleTable] = &[
    SampleTable {
        name: "mysql_connections",
        help: "Samples of connections and statements",
        source: Source::Global,
        columns: &[
            counter("Client_Connections_aborted"),
            gauge("Client_Connections_connected"),
            counter("Client_Connections_created"),
            counter("Server_Connections_aborted"),
            gauge("Server_Connections_connected"),
            counter("Server_Connections_created"),
            counter("ConnPool_get_conn_failure"),
            counter("ConnPool_get_conn_immediate"),
            counter("ConnPool_get_conn_success"),
            counter("Questions"),
            counter("Slow_queries"),
            counter("GTID_consistent_queries"),
        ],
    },
    SampleTable {
        name: "myhgm_connections",
        help: "Samples of requests for backend connections",
        source: Source::Global,
        columns: &[
            counter("MyHGM_myconnpoll_destroy"),
            counter("MyHGM_myconnpoll_get"),
            counter("MyHGM_myconnpoll_get_ok"),
            counter("MyHGM_myconnpoll_push"),
            counter("MyHGM_myconnpoll_reset"),
        ],
    },
    SampleTable {
        name: "system_cpu",
        help: "Samples of CPU time, in ticks of 10 ms",
        source: Source::Cpu,
        columns: &[counter("tms_utime"), counter("tms_stime")],
    },
    SampleTable {
        name: "system_memory",
        help: "Samples of memory by kind, bytes",
        source: Source::Memory,
        columns: &[
            from(gauge("allocated"), "jemalloc_allocated"),
            from(gauge("resident"), "jemalloc_resident"),
            from(gauge("active"), "jemalloc_active"),
            from(gauge("mapped"), "jemalloc_mapped"),
            from(gauge("metadata"), "jemalloc_metadata"),
            from(gauge("retained"), "jemalloc_retained"),
        ],
    },
    SampleTable {
        name: "mysql_query_cache",
        help: "Samples of the query cache",
        source: Source::Global,
        columns: &[
            from(counter("count_GET"), "Query_Cache_count_GET"),
            from(counter("count_GET_OK"), "Query_Cache_count_GET_OK"),
            from(counter("count_SET"), "Query_Cache_count_SET"),
            from(counter("bytes_IN"), "Query_Cache_bytes_IN"),
            from(counter("bytes_OUT"), "Query_Cache_bytes_OUT"),
            from(counter("Entries_Purged"), "Query_Cache_Purged"),
            from(gauge("Entries_In_Cache"), "Query_Cache_Entries"),
            from(gauge("Memory_Bytes"), "Query_Cache_Memory_bytes"),
        ],
    },
];
