//! What a worker counts: plain adds, read by others only through a copy. They only grow, and go along to the process that takes
//! this one's place; what falls too belongs into a [`crate::stats::collect::Census`].

use std::cell::Cell;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters of one worker.
        #[derive(Default)]
        pub(crate) struct Counters { $($(#[$doc])* pub $name: Cell<u64>,)* }

        /// A copy of a worker's counters, or their sums over workers.
        #[derive(Clone, Debug, Default)]
        pub(crate) struct Counted { $($(#[$doc])* pub $name: u64,)* }

        impl Counters {
            /// Names and values.
            pub(crate) fn values(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name.get()),)*]
            }

            /// Adds what another process has counted; what is not counted here is passed over.
            pub(crate) fn add(&self, counted: &[(Box<str>, u64)]) {
                for (name, value) in counted {
                    match &**name {
                        $(stringify!($name) => self.$name.set(self.$name.get().wrapping_add(*value)),)*
                        _ => {}
                    }
                }
            }

            /// A copy.
            pub(crate) fn copy(&self) -> Counted {
                Counted { $($name: self.$name.get(),)* }
            }
        }

        impl Counted {
            /// Adds another worker's.
            pub(crate) fn add(&mut self, other: &Self) {
                $(self.$name = self.$name.wrapping_add(other.$name);)*
            }
        }
    };
}

counters! {
    /// Clients accepted.
    clients,
    /// Clients refused at login.
    clients_refused,
    /// Sessions that ended because a connection failed or a peer broke the protocol.
    clients_aborted,
    /// Logins with a wrong password or name.
    denied_password,
    /// Logins beyond `mysql-max_connections`.
    denied_max_connections,
    /// Logins beyond a user's own `max_connections`.
    denied_max_user_connections,
    /// Clients turned away because their address failed too often.
    hosts_blocked,
    /// Commands served.
    questions,
    /// Nanoseconds from when a statement was sent to the end of its reply, while that is measured.
    backend_ns,
    /// Nanoseconds spent on rules, while that is measured.
    rules_ns,
    /// Statements slower than `long_query_time`.
    slow_queries,
    /// Statements answered without a backend.
    answered_here,
    /// COMMIT from clients.
    commits,
    /// ROLLBACK from clients.
    rollbacks,
    /// SET autocommit from clients.
    set_autocommits,
    /// SET NAMES and SET CHARACTER SET from clients.
    set_names,
    /// USE from clients.
    use_dbs,
    /// COM_INIT_DB from clients.
    init_dbs,
    /// COM_STMT_PREPARE from clients.
    prepares,
    /// COM_STMT_EXECUTE from clients.
    executes,
    /// COM_STMT_CLOSE from clients.
    closes,
    /// COM_STMT_PREPARE to servers.
    backend_prepares,
    /// COM_STMT_EXECUTE to servers.
    backend_executes,
    /// COM_STMT_CLOSE to servers.
    backend_closes,
    /// COM_INIT_DB to servers.
    backend_init_dbs,
    /// SELECT ... FOR UPDATE and the like with autocommit=0.
    locking_reads_without_autocommit,
    /// State changes sent ahead of a statement.
    state_syncs,
    /// Backends reset because nothing less would do.
    resets,
    /// Backends opened.
    backends_opened,
    /// Requests whose connection was put off by `throttle_connections_per_sec_to_hostgroup`.
    connects_throttled,
    /// Connects that failed.
    connect_errors,
    /// Statements that waited for `max_queries_per_second`.
    paced,
    /// Statements that would have had to wait too long for it.
    pace_refusals,
    /// Requests for a backend.
    wants,
    /// Requests that had to wait for a backend.
    waits,
    /// Requests that waited in vain.
    wait_timeouts,
    /// Statements that were sent to a server together with those of other sessions.
    pipelined,
    /// Those of them that were sent again, alone.
    pipelined_again,
    /// Replies to them that nobody waited for any more.
    pipelined_dropped,
    /// Backends given to another worker.
    handed_over,
    /// Idle connections that were found closed, or out of step, when they were looked at.
    found_closed,
    /// Statements about accounts and rights, after which idle connections are closed.
    rights_changed,
    /// Questions for user variables that a statement computed.
    user_variables_asked,
    /// Backends lost while a statement ran on them.
    backends_lost,
    /// Transactions rolled back because their server lost its role and the time to finish was over.
    transactions_left,
    /// Statements sent again on another backend, with the proof that they had no effect.
    retries,
    /// Statements that a server refused without applying them, kept from the client to try another.
    refusals_hidden,
    /// Statements that were refused because their digest text is too long for the rules that would have to read it.
    digests_too_long,
    /// Statements with a directive in their comment of which something was passed over.
    misread_comments,
    /// Sessions that went on with another backend although something pinned them.
    moves,
    /// Transactions that were replayed.
    replays_ok,
    /// Transactions whose replay was answered otherwise, or took too long.
    replays_failed,
    /// Transactions that were too large to be kept for a replay.
    replays_too_large,
    /// Statements that let replays go first.
    replay_waits,
    /// Times that a replica was asked to wait for a session's own write.
    causal_waits,
    /// Reads that the writer served because no replica had the session's own write in time.
    causal_timeouts,
    /// Reads of a read/write split that the writer served because no reader took work.
    reads_to_writer,
    /// Lost writes that turned out to be applied.
    lost_writes_applied,
    /// Lost writes that turned out not to be applied.
    lost_writes_not_applied,
    /// Lost writes of which nobody could say what became of them in time.
    lost_writes_undecided,
    /// Transactions without a GTID of the proxy's choice, because a server refused it.
    gtids_refused,
    /// Replicas that were refused, for their position is of another server.
    positions_refused,
    /// KILL QUERY sent to servers.
    killed_queries,
    /// KILL CONNECTION sent to servers.
    killed_connections,
    /// Error packets of our own making.
    own_errors,
    /// Clients that left while a statement ran.
    unexpected_quits,
    /// Clients that broke the protocol.
    unexpected_packets,
    /// Bytes from clients.
    bytes_from_clients,
    /// Bytes to clients.
    bytes_to_clients,
    /// Mirrored statements that a server has answered without an error.
    mirrors_done,
    /// Mirrored statements that a server has answered with an error.
    mirrors_refused,
    /// Mirrored statements that got no answer: no connection, or it was lost, or they took too long.
    mirrors_failed,
    /// Statements that were to be mirrored, and for which there was no room.
    mirrors_dropped,
}

/// Adds one.
pub(crate) fn count(counter: &Cell<u64>) {
    add(counter, 1);
}

/// Adds `n`.
pub(crate) fn add(counter: &Cell<u64>, n: u64) {
    counter.set(counter.get().wrapping_add(n));
}
