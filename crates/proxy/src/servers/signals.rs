//! What traffic shows of a server, told to those who watch the servers: each kind once in a while for each server.
//!
//! Looked at only when an ERR packet or a failed connection is at hand. Telling never blocks: the role keeper merges and
//! drops. A writer that refuses a write as read-only is given no new ones until somebody has looked.

use crate::servers::terms::{HostgroupRole, Terms};
use model::fleet::SignalKind;
use std::sync::atomic::{AtomicU64, Ordering};
use wire::codes;

/// A kind of signal is told at most this often for each server and hostgroup, ms.
const EVERY_MS: u64 = 100;

/// When (process clock, ms; 0 is never) each kind of signal was last told of a server.
#[derive(Debug, Default)]
pub(crate) struct LastSignals([AtomicU64; 7]);

impl LastSignals {
    /// Whether this one is due; if so, the next ones of its kind are not for a while.
    pub(crate) fn take(&self, kind: SignalKind, now_ms: u64) -> bool {
        let Some(last) = self.0.get(kind as usize) else { return true };
        let due = |last: u64| last == 0 || now_ms.saturating_sub(last) >= EVERY_MS;
        last.fetch_update(Ordering::AcqRel, Ordering::Acquire, |last| due(last).then_some(now_ms.max(1))).is_ok()
    }
}

/// What a server's error says of the server, if it does. 1290 has many texts; only those about `--read-only` and
/// `--super-read-only` count. `in_read_only_transaction`: the client asked for error 1792 itself.
pub(crate) fn of_error(code: u16, message: &[u8], in_read_only_transaction: bool, is_galera: bool) -> Option<SignalKind> {
    match code {
        codes::OPTION_PREVENTS_STATEMENT => says_read_only(message).then_some(SignalKind::ReadOnly),
        codes::CANT_EXECUTE_IN_READ_ONLY_TRANSACTION if !in_read_only_transaction => Some(SignalKind::ReadOnly),
        codes::READ_ONLY_MODE => Some(SignalKind::ReadOnly),
        codes::UNKNOWN_COM => Some(SignalKind::NotReady),
        codes::SERVER_SHUTDOWN | codes::CONNECTION_KILLED | codes::CLIENT_INTERACTION_TIMEOUT => Some(SignalKind::ShuttingDown),
        // Of a node that lost its primary component, and of a member that leaves its group.
        codes::ERROR_DURING_COMMIT if is_galera => Some(SignalKind::NotReady),
        codes::RUN_HOOK_ERROR => Some(SignalKind::NotReady),
        codes::LOCK_WAIT_TIMEOUT | codes::LOCK_DEADLOCK if is_galera => Some(SignalKind::Certification),
        codes::TRANSACTION_ROLLBACK_DURING_COMMIT => Some(SignalKind::Certification),
        _ => None,
    }
}

fn says_read_only(message: &[u8]) -> bool {
    message.windows(9).any(|word| word.eq_ignore_ascii_case(b"read-only") || word.eq_ignore_ascii_case(b"read_only"))
}

/// Errors that make somebody look, but stop no work meanwhile: a client can cause them, by its own settings (1792) or with a
/// transaction that is too large (1180). So they can cause 3100, which yet stops others: a member that leaves its group gives it to
/// every writer for as long as its check hangs, seconds; where the transaction was too large, the next look ends the wait, ms later.
const CLIENTS_OWN: [u16; 2] = [codes::CANT_EXECUTE_IN_READ_ONLY_TRANSACTION, codes::ERROR_DURING_COMMIT];

/// Whether an error puts a server's role in doubt for new statements in its hostgroup: only a writer's.
pub(crate) fn is_suspicion(code: u16, kind: SignalKind, terms: &Terms) -> bool {
    terms.role == HostgroupRole::Writer && matches!(kind, SignalKind::ReadOnly | SignalKind::NotReady) && !CLIENTS_OWN.contains(&code)
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ_ONLY: &[u8] = b"The MariaDB server is running with the --read-only option so it cannot execute this statement";

    #[test]
    fn errors_say_what_they_say() {
        let of = |code, text: &[u8]| of_error(code, text, false, false);
        assert_eq!(of(1290, READ_ONLY), Some(SignalKind::ReadOnly));
        assert_eq!(of(1290, b"... with the --super-read-only option ..."), Some(SignalKind::ReadOnly));
        assert_eq!(of(1290, b"The MySQL server is running with the --secure-file-priv option"), None);
        assert_eq!(of(1836, b""), Some(SignalKind::ReadOnly));
        assert_eq!(of(1047, b"WSREP has not yet prepared node for application use"), Some(SignalKind::NotReady));
        assert_eq!((of(1053, b""), of(1062, b""), of(0, b"")), (Some(SignalKind::ShuttingDown), None, None));
    }

    #[test]
    fn what_a_client_asked_for_says_nothing() {
        assert_eq!(of_error(1792, b"", false, false), Some(SignalKind::ReadOnly));
        assert_eq!(of_error(1792, b"", true, false), None);
    }

    #[test]
    fn deadlocks_count_on_galera_only() {
        assert_eq!(of_error(1213, b"", false, false), None);
        assert_eq!(of_error(1205, b"", false, true), Some(SignalKind::Certification));
        assert_eq!(of_error(3101, b"", false, false), Some(SignalKind::Certification));
    }

    #[test]
    fn a_commit_that_a_cluster_did_not_take_makes_somebody_look() {
        let writer = Terms { role: HostgroupRole::Writer, ..Terms::default() };
        for (code, is_galera) in [(1180, true), (3100, false)] {
            let kind = of_error(code, b"", false, is_galera);
            assert_eq!(kind, Some(SignalKind::NotReady), "{code}");
            assert_eq!(is_suspicion(code, SignalKind::NotReady, &writer), code == 3100, "{code}");
        }
        assert_eq!(of_error(1180, b"", false, false), None, "elsewhere it is the storage engine's");
    }

    #[test]
    fn only_writers_are_suspected() {
        let terms = |role| Terms { role, ..Terms::default() };
        assert!(is_suspicion(1290, SignalKind::ReadOnly, &terms(HostgroupRole::Writer)));
        assert!(!is_suspicion(1290, SignalKind::ReadOnly, &terms(HostgroupRole::Other)));
        assert!(!is_suspicion(1290, SignalKind::ReadOnly, &terms(HostgroupRole::Plain)));
        assert!(!is_suspicion(1792, SignalKind::ReadOnly, &terms(HostgroupRole::Writer)));
        assert!(!is_suspicion(1213, SignalKind::Certification, &terms(HostgroupRole::Writer)));
    }

    #[test]
    fn a_kind_is_told_at_once_and_then_in_turn() {
        let last = LastSignals::default();
        assert!(last.take(SignalKind::ConnectFailed, 0));
        assert!(!last.take(SignalKind::ConnectFailed, 50));
        assert!(last.take(SignalKind::ReadOnly, 50), "another kind");
        assert!(last.take(SignalKind::ConnectFailed, 101));
        assert!(last.take(SignalKind::Recovered, 101), "the last kind has its place too");
        assert!(!last.take(SignalKind::Recovered, 102));
    }
}
