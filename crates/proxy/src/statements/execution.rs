//! An execution of a prepared statement as its client sent it, for any backend that has the statement.
//!
//! It has no cursor and no long data. The statement's number and the types that a server has seen differ by backend, so the packet is
//! made when the backend is known. INVARIANT: a packet is made only for a backend that has the statement as the client has it.

use super::stmt_cache::StatementCache;
use session_state::statement_key::StatementKey;
use std::sync::Arc;
use wire::flags::Capabilities;
use wire::packet::put_packet;
use wire::prepared::{ExecuteParams, rewrite_execute};

/// See the module.
pub(crate) struct Execution {
    /// The statement, as backends have it.
    pub key: Arc<StatementKey>,
    /// How many parameters it has.
    pub params: u16,
    /// The types that its client bound last.
    pub types: Vec<u8>,
    /// What was agreed with the client.
    pub caps: Capabilities,
}

impl Execution {
    /// Whether a backend with these statements can run it.
    pub(crate) fn is_ready(&self, statements: &mut StatementCache) -> bool {
        statements.find(&self.key).is_some()
    }

    /// Appends the packet for a backend with these statements: `payload` under the server's number, with the types where the server has
    /// not seen them. None where the backend lacks the statement; nothing is appended then.
    pub(crate) fn put(&self, payload: &[u8], statements: &mut StatementCache, out: &mut Vec<u8>) -> Option<()> {
        let prepared = statements.find(&self.key)?;
        let is_unseen = self.params > 0 && !self.types.is_empty() && prepared.bound_types != self.types;
        let params = if is_unseen { Some(ExecuteParams::parse(payload, self.params, self.caps).ok()??) } else { None };
        let mut rewritten = Vec::with_capacity(payload.len() + self.types.len() + 1);
        rewrite_execute(payload, prepared.id, params.as_ref(), Some(&self.types), &mut rewritten).ok()?;
        if is_unseen {
            prepared.bound_types.clone_from(&self.types);
        }
        put_packet(out, &mut 0, &rewritten);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use meter::digest::Digest;
    use meter::prepared::{PreparedList, Side};
    use session_state::statement_key::Meaning;

    const BIGINT: [u8; 2] = [8, 0];
    const TEXT: [u8; 2] = [253, 0];

    fn key(text: &str, types: Option<[u8; 2]>) -> Arc<StatementKey> {
        let types = types.map(|types| types[..].into());
        Arc::new(Meaning { schema: None, mode: b""[..].into(), user_variables: None, text: text.as_bytes().into(), types }.into())
    }

    /// A backend that has prepared these.
    fn having(all: &[(&Arc<StatementKey>, u32)]) -> StatementCache {
        let (mut statements, mut list) = (StatementCache::default(), PreparedList::default());
        for (key, id) in all {
            let digest = || Arc::new(Digest { hash: 0, text: Box::default(), len: 0 });
            statements.insert(Arc::clone(key), *id, list.list("anna", key, digest, (0, 0)).hold(Side::Server));
        }
        statements
    }

    /// One parameter: its types, or none, and its value.
    fn payload(types: Option<[u8; 2]>, value: u8) -> Vec<u8> {
        let mut payload = vec![0x17, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0];
        match types {
            Some(types) => payload.extend([1, types[0], types[1]]),
            None => payload.push(0),
        }
        payload.push(value);
        payload
    }

    fn execution(key: &Arc<StatementKey>, types: [u8; 2]) -> Execution {
        Execution { key: Arc::clone(key), params: 1, types: types.to_vec(), caps: Capabilities::PROTOCOL_41 }
    }

    /// The payload that this backend gets.
    fn sent(execution: &Execution, payload: &[u8], statements: &mut StatementCache) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        execution.put(payload, statements, &mut out).map(|()| out.split_off(4))
    }

    /// The same payload under this number.
    fn of(id: u8, mut payload: Vec<u8>) -> Vec<u8> {
        payload[1] = id;
        payload
    }

    #[test]
    fn each_backend_gets_its_own_number_and_the_types_that_it_lacks() {
        let (one, other) = (key("SELECT ?", None), key("SELECT 1 + ?", None));
        let mut statements = having(&[(&one, 71), (&other, 72)]);
        let (first, second) = (execution(&one, BIGINT), execution(&other, TEXT));
        assert_eq!(sent(&first, &payload(None, 5), &mut statements).unwrap(), of(71, payload(Some(BIGINT), 5)), "they are inserted");
        assert_eq!(sent(&first, &payload(None, 6), &mut statements).unwrap(), of(71, payload(None, 6)), "the server has them now");
        assert_eq!(sent(&second, &payload(Some(TEXT), 7), &mut statements).unwrap(), of(72, payload(Some(TEXT), 7)));
        let retyped = execution(&one, TEXT);
        assert_eq!(sent(&retyped, &payload(None, 8), &mut statements).unwrap(), of(71, payload(Some(TEXT), 8)), "another client's");
        assert_eq!(sent(&first, &payload(None, 9), &mut statements).unwrap(), of(71, payload(Some(BIGINT), 9)), "and back");
        assert!(sent(&execution(&key("DO 1", None), BIGINT), &payload(None, 1), &mut statements).is_none());
        assert!(sent(&first, &payload(None, 1)[..9], &mut having(&[(&one, 71)])).is_none(), "malformed, and types are to be inserted");
    }

    #[test]
    fn types_that_were_not_sent_count_as_unseen() {
        let one = key("SELECT ?", None);
        let mut statements = having(&[(&one, 71)]);
        let caps = Capabilities::PROTOCOL_41.union(Capabilities::QUERY_ATTRIBUTES);
        let (plain, counting) = (execution(&one, BIGINT), Execution { caps, ..execution(&one, BIGINT) });
        // It says that it has no parameters, which the server refuses.
        assert!(sent(&counting, &[0x17, 1, 0, 0, 0, 8, 1, 0, 0, 0, 0], &mut statements).is_none());
        assert_eq!(sent(&plain, &payload(None, 5), &mut statements).unwrap(), of(71, payload(Some(BIGINT), 5)));
    }

    /// Where a server settles types by the first execution (MySQL).
    #[test]
    fn a_statement_that_was_never_executed_is_of_the_first_types() {
        let (fresh, number, text) = (key("SELECT ?", None), key("SELECT ?", Some(BIGINT)), key("SELECT ?", Some(TEXT)));
        let mut statements = having(&[(&fresh, 71)]);
        let (as_number, as_text) = (execution(&number, BIGINT), execution(&text, TEXT));
        assert!(as_number.is_ready(&mut statements));
        assert!(!as_text.is_ready(&mut statements), "it would convert values");
        assert_eq!(sent(&as_number, &payload(None, 5), &mut statements).unwrap(), of(71, payload(Some(BIGINT), 5)));
        assert!(as_number.is_ready(&mut statements) && sent(&as_text, &payload(None, 5), &mut statements).is_none());
    }
}
