//! What a cached result depends on, as bytes that are compared whole.
//!
//! A [`Key`] is made of everything that changes the result: who asks ([`Asker`]: user, hostgroup, schema, session variables,
//! the handshake's collation, client flags) and what is asked ([`Asked`]: the text exactly, and the parameters). Two keys are
//! equal when all of that is; the 128-bit hash only finds them. What may change the session, or shows what only the session
//! knows, has no key.
//!
//! An execution whose placeholders can be written as literals ([`with_literals`]) and whose statement was prepared under the
//! schema and settings that hold now has the key of that text; any other has a key of its own, of its raw parameters.

use super::wording::{Bound, with_literals};
use model::HostgroupId;
use sql::{Analysis, Facts, Kind, LexMode};
use std::hash::{BuildHasher, Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;
use wire::flags::{Capabilities, StatusFlags};
use wire::prepared::{ExecuteHeader, ExecuteParams};

/// Who asks.
#[derive(Clone, Copy)]
pub struct Asker<'a> {
    /// The user's name.
    pub user: &'a str,
    /// Where the statement goes: another hostgroup may hold other data.
    pub hostgroup: HostgroupId,
    /// Collation id of the client's handshake: what the session's character set variables are when they are not listed.
    pub collation: u16,
    /// Client flags that change what statements mean.
    pub meaning: Capabilities,
    /// The schema, if one is chosen.
    pub schema: Option<&'a [u8]>,
    /// Session variables, by name.
    pub variables: &'a [(Arc<str>, Arc<[u8]>)],
    /// Whether it has user variables: a stored function or a view may read one that the text does not mention.
    pub has_user_variables: bool,
    /// The session's status flags: with autocommit off or a transaction open, nothing is cached.
    pub status: StatusFlags,
}

impl Asker<'_> {
    fn is_outside_transactions(&self) -> bool {
        let open = StatusFlags::IN_TRANS | StatusFlags::IN_TRANS_READONLY;
        self.status.contains(StatusFlags::AUTOCOMMIT) && !self.status.intersects(open)
    }
}

/// What is asked.
#[derive(Clone, Copy)]
pub enum Asked<'a> {
    /// COM_QUERY.
    Text {
        /// The text as the server would get it, after rewriting.
        sql: &'a [u8],
        /// How many query attributes came with it ([`wire::query::QueryParts::attribute_count`]).
        attribute_count: usize,
    },
    /// COM_STMT_EXECUTE.
    Execution(AskedExecution<'a>),
}

/// A text, and what decided how it was read when it was prepared.
#[derive(Clone, Copy)]
pub struct AskedText<'a> {
    /// The text.
    pub text: &'a [u8],
    /// The schema at PREPARE, if one was chosen.
    pub schema: Option<&'a [u8]>,
    /// Settings, as bytes.
    pub mode: &'a [u8],
}

/// An execution of a prepared statement.
#[derive(Clone, Copy)]
pub struct AskedExecution<'a> {
    /// The statement.
    pub statement: AskedText<'a>,
    /// Settings that decide how its text would be read now; compared with those of [`AskedText::mode`].
    pub mode: &'a [u8],
    /// The same for the tokenizer.
    pub lex: LexMode,
    /// Parameters of the statement.
    pub params: u16,
    /// Types that were bound last; used when the packet has none.
    pub types: &'a [u8],
    /// The command's payload, COM_STMT_EXECUTE's byte first.
    pub payload: &'a [u8],
    /// What was agreed with the client.
    pub caps: Capabilities,
}

impl AskedExecution<'_> {
    /// The text with its parameters as literals, where they can be written so.
    pub fn with_literals(&self) -> Option<Vec<u8>> {
        let params = ExecuteParams::parse(self.payload, self.params, self.caps).ok()?;
        with_literals(self.statement.text, self.lex, bound(self, params.as_ref())?)
    }
}

/// See the module.
#[derive(Debug)]
pub struct Key {
    hash: u128,
    bytes: Box<[u8]>,
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash && self.bytes == other.bytes
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u128(self.hash);
    }
}

/// Facts of statements that read or change what belongs to the session, or lock.
const NEVER: Facts = Facts::LAST_INSERT_ID
    .union(Facts::LAST_INSERT_ID_SET)
    .union(Facts::FOUND_ROWS)
    .union(Facts::CALC_FOUND_ROWS)
    .union(Facts::ROW_COUNT)
    .union(Facts::USER_VARIABLE)
    .union(Facts::USER_VARIABLE_ASSIGN)
    .union(Facts::GET_LOCK)
    .union(Facts::RELEASE_LOCK)
    .union(Facts::CONNECTION_ID)
    .union(Facts::DIAGNOSTICS)
    .union(Facts::MULTI)
    .union(Facts::TORN)
    .union(Facts::VARIABLES)
    .union(Facts::LOCKING_READ)
    .union(Facts::INTO_FILE);

/// True for statements whose results may be cached at all.
pub fn is_cacheable(analysis: &Analysis) -> bool {
    matches!(analysis.kind, Kind::Select | Kind::Show) && !analysis.facts.intersects(NEVER)
}

/// The hash functions of one cache: seeded at random, so that nobody can choose texts that collide.
#[derive(Default)]
pub(crate) struct Hashing {
    low: foldhash::quality::RandomState,
    high: foldhash::quality::RandomState,
}

impl Hashing {
    /// The key; None for what is not cached: see the module, and cursors, and what cannot be read.
    pub(crate) fn key(&self, asker: &Asker<'_>, asked: &Asked<'_>, analysis: &Analysis) -> Option<Key> {
        if !is_cacheable(analysis) || !asker.is_outside_transactions() || asker.has_user_variables {
            return None;
        }
        let mut bytes = Bytes::default();
        bytes.asker(asker);
        match asked {
            Asked::Text { attribute_count: 1.., .. } => return None,
            Asked::Text { sql, .. } => bytes.text(sql),
            Asked::Execution(execution) => bytes.execution(asker, execution)?,
        }
        Some(self.finish(bytes.0))
    }

    fn finish(&self, bytes: Vec<u8>) -> Key {
        let (low, high) = (self.low.hash_one(&bytes), self.high.hash_one(&bytes));
        Key { hash: u128::from(high) << 64 | u128::from(low), bytes: bytes.into() }
    }
}

impl Key {
    /// Which of `count` shards it belongs to.
    pub(super) fn shard(&self, count: usize) -> usize {
        // The low half places it in the shard's map.
        let high = usize::try_from(self.hash >> 96).unwrap_or(0);
        high.checked_rem(count).unwrap_or(0)
    }

    /// Length in bytes.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// A key of arbitrary bytes.
    #[cfg(test)]
    pub(super) fn of(hashing: &Hashing, bytes: &[u8]) -> Self {
        hashing.finish(bytes.to_vec())
    }
}

/// The key under construction. INVARIANT: every part has its length before it, so parts never run into each other.
#[derive(Default)]
struct Bytes(Vec<u8>);

/// What follows who asks.
const TEXT: u8 = 0;
const OWN: u8 = 1;

impl Bytes {
    fn part(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(&bytes.len().to_le_bytes());
        self.0.extend_from_slice(bytes);
    }

    fn optional(&mut self, bytes: Option<&[u8]>) {
        self.0.push(u8::from(bytes.is_some()));
        self.part(bytes.unwrap_or_default());
    }

    fn asker(&mut self, asker: &Asker<'_>) {
        self.part(asker.user.as_bytes());
        self.part(&asker.hostgroup.0.to_le_bytes());
        self.part(&asker.collation.to_le_bytes());
        self.part(&asker.meaning.bits().to_le_bytes());
        self.optional(asker.schema);
        self.part(&asker.variables.len().to_le_bytes());
        for (name, value) in asker.variables {
            self.part(name.as_bytes());
            self.part(value);
        }
    }

    fn text(&mut self, sql: &[u8]) {
        self.0.push(TEXT);
        self.part(sql);
    }

    fn execution(&mut self, asker: &Asker<'_>, execution: &AskedExecution<'_>) -> Option<()> {
        let header = ExecuteHeader::parse(execution.payload).ok()?;
        if header.opens_cursor() {
            return None;
        }
        let params = ExecuteParams::parse(execution.payload, execution.params, execution.caps).ok()?;
        let count = params.as_ref().map_or(0, |params| params.count);
        let bound = bound(execution, params.as_ref())?;
        let statement = execution.statement;
        let is_as_now = statement.schema == asker.schema && statement.mode == execution.mode;
        let has_attributes = count != usize::from(execution.params);
        if is_as_now
            && !has_attributes
            && let Some(text) = with_literals(statement.text, execution.lex, bound)
        {
            self.text(&text);
            return Some(());
        }
        self.0.push(OWN);
        self.optional(statement.schema);
        for part in [statement.mode, statement.text, bound.types, bound.nulls, bound.values] {
            self.part(part);
        }
        Some(())
    }
}

/// The parameters' bytes. None when they have no types: the server answers with an error.
fn bound<'a>(execution: &AskedExecution<'a>, params: Option<&ExecuteParams>) -> Option<Bound<'a>> {
    let Some(params) = params else { return Some(Bound::default()) };
    let cut = |range: &Range<usize>| execution.payload.get(range.clone());
    let types = if params.new_types { cut(&params.types)? } else { execution.types };
    if types.is_empty() {
        return None;
    }
    Some(Bound { types, named: params.named, nulls: cut(&params.null_bitmap)?, values: cut(&params.values)? })
}
