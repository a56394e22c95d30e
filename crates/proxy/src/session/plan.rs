//! What a statement is when it is ready to run: what is sent, and what is known of its reply beforehand.

use super::pipeline::Form;
use sql::{Analysis, Kind};
use wire::packet::{HEADER, MAX_PAYLOAD};
use wire::reframe::Patch;
use wire::reply::ReplyKind;

/// A statement ready to run.
pub(super) struct Plan {
    /// What it is.
    pub analysis: Analysis,
    /// The shape of its reply.
    pub reply: ReplyKind,
    /// For each result, what the session knows better than the backend.
    pub patches: Vec<Option<Patch>>,
    /// The command's bytes when they are not the client's.
    pub rewritten: Option<Vec<u8>>,
    /// The client's prepared statement that it names.
    pub statement: Option<u32>,
    /// How the client's statement came, and which rehearsals ran when it was looked at for them (their epoch).
    pub heard: Option<(Form, u64)>,
}

impl Plan {
    /// A plan that sends the client's own bytes.
    pub(super) fn new(analysis: Analysis) -> Self {
        Self { analysis, reply: ReplyKind::Results, patches: Vec::new(), rewritten: None, statement: None, heard: None }
    }

    /// How the statement is seen by what brings a backend to the session's state. The text USE may run in any schema. An execution of USE
    /// may not: MariaDB goes back to the schema that it found, unless that is the prepared statement's.
    pub(super) fn as_synced(&self) -> Analysis {
        match self.analysis.kind {
            Kind::Use if self.statement.is_some() => Analysis { kind: Kind::Other, ..self.analysis },
            _ => self.analysis,
        }
    }

    /// The body of the command that is sent in place of the client's; None too when it takes several packets.
    pub(super) fn sent_body(&self) -> Option<&[u8]> {
        self.rewritten.as_deref().filter(|packets| packets.len() < MAX_PAYLOAD)?.get(HEADER + 1..)
    }
}
