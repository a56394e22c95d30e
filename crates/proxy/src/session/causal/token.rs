//! Tokens that carry causal reads from one session to another: `SHOW TIDEGATE GTID` and
//! `SET TIDEGATE GTID = '...' [FOR HOSTGROUP n]`.
//!
//! Answered by the proxy, as plain statements (COM_QUERY). A token is a GTID set as servers write it. INVARIANT: whoever may not wait
//! for tokens (`causal_reads` is not `token`) is told so, never passed over.

use crate::session::backends::Backends;
use crate::session::causal::Causality;
use crate::session::end::End;
use crate::session::frontend::Frontend;
use crate::workers::worker::Worker;
use model::HostgroupId;
use model::settings::CausalReads;
use session_state::causal::{CausalPart, CausalRole, Origin, Writes};
use session_state::facts::SessionFacts;
use session_state::gtid;
use sql::{LexMode, Lexer};
use wire::codec::put_lenenc_bytes;
use wire::flags::Capabilities;
use wire::message::put_eof;
use wire::{codes, packet};

/// What a statement about tokens says.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::session) enum Order {
    /// Which GTIDs this session has written, or was told of.
    Show,
    /// What its reads are to wait for from now on; empty for nothing.
    Set {
        /// The set.
        gtids: String,
        /// A hostgroup of the cluster; None for the user's own.
        hostgroup: Option<HostgroupId>,
    },
}

/// ER_WRONG_VALUE_FOR_VAR.
pub(in crate::session) const WRONG_VALUE: u16 = codes::WRONG_VALUE_FOR_VAR;

impl Causality {
    /// Obeys a statement about tokens.
    pub(in crate::session) async fn obey_token_order(
        &mut self,
        at: &mut Backends,
        client: &mut Frontend,
        facts: &mut SessionFacts,
        order: Order,
    ) -> Result<(), End> {
        facts.clear_diagnostics();
        match order {
            Order::Show => {
                facts.answered_here(-1);
                let tokens = self.writes.as_ref().map(|writes| writes.tokens()).unwrap_or_default();
                let rows: Vec<[String; 2]> = tokens.into_iter().map(|(id, gtids)| [id.to_string(), gtids]).collect();
                client.send_made(at, result(["hostgroup", "gtid"], &rows), Capabilities::PROTOCOL_41).await.map(drop)
            }
            Order::Set { gtids, hostgroup } => {
                facts.answered_here(0);
                let id = hostgroup.unwrap_or(at.user.default_hostgroup);
                let snapshot = at.worker.snapshot();
                let user = snapshot.users.get(&at.user.name).unwrap_or(&at.user);
                let part = CausalPart::of(&snapshot, user, id);
                let writer = match part.role {
                    CausalRole::Readers { writer } => writer,
                    CausalRole::Writers | CausalRole::Others => id,
                };
                if part.scope != CausalReads::Token {
                    let text = format!("Tidegate: causal_reads is not 'token' for this user in the cluster of hostgroup {id}");
                    return client.send_error(at, codes::NOT_SUPPORTED_YET, "42000", &text).await;
                }
                let gtids = gtids.trim();
                if let Some(fault) = fault_of_gtids(&at.worker, "the token", gtids, &[writer, id]).filter(|_| !gtids.is_empty()) {
                    return client.send_error(at, WRONG_VALUE, "42000", &fault).await;
                }
                self.writes.get_or_insert_with(Box::<Writes>::default).told(Origin::Token, writer, gtids);
                client.send_ok(at).await
            }
        }
    }
}

/// Reads a statement about tokens; None for any other.
pub(in crate::session) fn token_order(sql: &[u8], lex: LexMode) -> Option<Order> {
    let mut lexer = Lexer::new(sql, lex);
    let mut word = || {
        let token = lexer.token();
        String::from_utf8_lossy(token.text(sql)).into_owned()
    };
    let verb = word();
    let is_show = verb.eq_ignore_ascii_case("SHOW");
    if !is_show && !verb.eq_ignore_ascii_case("SET") || !word().eq_ignore_ascii_case("TIDEGATE") || !word().eq_ignore_ascii_case("GTID") {
        return None;
    }
    let mut next = word();
    let order = if is_show {
        Order::Show
    } else {
        if next != "=" {
            return None;
        }
        let gtids = unquoted(&word())?.to_owned();
        next = word();
        let is_named = next.eq_ignore_ascii_case("FOR");
        if is_named && !word().eq_ignore_ascii_case("HOSTGROUP") {
            return None;
        }
        let hostgroup = if is_named { Some(HostgroupId(word().parse().ok()?)) } else { None };
        if is_named {
            next = word();
        }
        Order::Set { gtids, hostgroup }
    };
    if next == ";" {
        next = word();
    }
    next.is_empty().then_some(order)
}

/// The content of a string. No GTID has a character that would have to be escaped.
fn unquoted(text: &str) -> Option<&str> {
    let inner = text.strip_prefix('\'').and_then(|text| text.strip_suffix('\''));
    inner.or_else(|| text.strip_prefix('"')?.strip_suffix('"'))
}

/// A text result as a server with nothing but CLIENT_PROTOCOL_41 sends it.
fn result<const N: usize>(columns: [&str; N], rows: &[[String; N]]) -> Vec<u8> {
    /// utf8mb4_general_ci.
    const COLLATION: [u8; 2] = [45, 0];
    /// MYSQL_TYPE_VAR_STRING.
    const TEXT: u8 = 253;
    let (mut out, mut seq) = (Vec::new(), 1);
    packet::put_packet(&mut out, &mut seq, &[u8::try_from(N).unwrap_or(u8::MAX)]);
    let mut payload = Vec::new();
    let mut eof = Vec::new();
    put_eof(&mut eof, 0, wire::flags::StatusFlags::AUTOCOMMIT);
    for name in columns {
        payload.clear();
        for text in ["def", "", "", "", name, ""] {
            put_lenenc_bytes(&mut payload, text.as_bytes());
        }
        payload.push(0x0c);
        payload.extend_from_slice(&COLLATION);
        payload.extend_from_slice(&u32::try_from(4 * session_state::gtid::MAX_SET_BYTES).unwrap_or(u32::MAX).to_le_bytes());
        payload.extend_from_slice(&[TEXT, 0, 0, 0, 0, 0]);
        packet::put_packet(&mut out, &mut seq, &payload);
    }
    packet::put_packet(&mut out, &mut seq, &eof);
    for row in rows {
        payload.clear();
        row.iter().for_each(|text| put_lenenc_bytes(&mut payload, text.as_bytes()));
        packet::put_packet(&mut out, &mut seq, &payload);
    }
    packet::put_packet(&mut out, &mut seq, &eof);
    out
}

/// What is wrong with GTIDs that are meant for servers of these hostgroups, in words; None for nothing.
pub(in crate::session) fn fault_of_gtids(worker: &Worker, what: &str, gtids: &str, hostgroups: &[HostgroupId]) -> Option<String> {
    let shared = &worker.shared;
    let known = hostgroups.iter().find_map(|id| shared.hostgroup(*id).flavor());
    let wanted = known.or_else(|| shared.info.get().map(|info| info.flavor));
    let expected = || wanted.map_or("uuid:number (MySQL) or domain-server-number (MariaDB)", gtid::form);
    match (gtid::flavor_of(gtids), wanted) {
        (None, _) => Some(format!("Tidegate: {what} is not a GTID set: write GTIDs as {}, separated by commas", expected())),
        (Some(given), Some(wanted)) if given != wanted => {
            Some(format!("Tidegate: {what} has GTIDs of the form {}, but the servers use {}", gtid::form(given), gtid::form(wanted)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_told_from_statements_for_servers() {
        let read = |text: &str| token_order(text.as_bytes(), LexMode::default());
        let set = |gtids: &str, hostgroup: Option<u32>| Some(Order::Set { gtids: gtids.into(), hostgroup: hostgroup.map(HostgroupId) });
        for text in ["SHOW TIDEGATE GTID", "/* x */ show tidegate gtid ; "] {
            assert_eq!(read(text), Some(Order::Show), "{text}");
        }
        assert_eq!(read("SET TIDEGATE GTID = '0-1-57'"), set("0-1-57", None));
        assert_eq!(read("set tidegate gtid=\"aa:1\" for hostgroup 7;"), set("aa:1", Some(7)));
        assert_eq!(read("SET TIDEGATE GTID = ''"), set("", None));
        for text in [
            "SHOW TABLES",
            "SHOW TIDEGATE GTID, 1",
            "SHOW TIDEGATE GTID; SELECT 1",
            "SET tidegate = 1",
            "SET TIDEGATE GTID = 0",
            "SET TIDEGATE GTID = '0-1-57' FOR HOSTGROUP x",
            "SET TIDEGATE GTID = '0-1-57', autocommit=0",
            "SET @tidegate = 'gtid'",
            "",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }
    #[tokio::test]
    async fn a_token_is_taken_where_reads_wait_for_it() {
        use crate::session::bed::Bed;
        use wire::command::Command;
        let cluster = "mysql_replication_hostgroups = ( { writer_hostgroup=1, reader_hostgroup=2 } )";
        let waits = format!("{cluster}\nmysql_variables = {{ causal_reads = \"token\" }}");
        let gtid = "3e11fa47-71ca-11e1-9e33-c80aa9429562:7";
        for (config, text, expected) in [
            (&*waits, format!("SET TIDEGATE GTID = '{gtid}'"), 0),
            (&waits, format!("SET TIDEGATE GTID = '{gtid}' FOR HOSTGROUP 2"), 0),
            (&waits, "SET TIDEGATE GTID = ''".to_owned(), 0),
            (&waits, "SET TIDEGATE GTID = 'nonsense'".to_owned(), WRONG_VALUE),
            // Who may not wait for tokens is told so.
            (cluster, format!("SET TIDEGATE GTID = '{gtid}'"), codes::NOT_SUPPORTED_YET),
            ("", format!("SET TIDEGATE GTID = '{gtid}'"), codes::NOT_SUPPORTED_YET),
        ] {
            let mut bed = Bed::new(config);
            let heard = bed.serve(Command::Query, text.as_bytes()).await.unwrap();
            let code = if heard[0][0] == wire::message::ERR { u16::from_le_bytes([heard[0][1], heard[0][2]]) } else { 0 };
            assert_eq!(code, expected, "{config} {text}");
            let is_known = bed.causal.writes.as_ref().is_some_and(|writes| writes.known(Origin::Token, HostgroupId(1)).is_some());
            assert_eq!(is_known, code == 0 && text.contains(gtid), "{text}: of the cluster, by its writers");
        }
    }
}
