//! SET: which variables a text assigns, what of them a server must be asked for, and which effects another session can repeat.

use crate::charsets::{self, Hidden};
use crate::chosen::Decided;
use crate::door::{Asker, Door};
use crate::question::Question;
use crate::state::{CHARSETS, Text, assignment_rank, follower_of};
use crate::tracked::UNCARRIED;
use crate::wants::Wants;
use sql::{Analysis, Assignment, Facts, Kind, LexMode, Target, Value};
use std::sync::Arc;
use wire::codec::Reader;
use wire::reframe::ReplyFacts;

/// The variable that is off where each statement begins a transaction.
pub const AUTOCOMMIT: &str = "autocommit";

/// A variable and the value it got, as the server reported it.
pub type Change = (Arc<str>, Text);

/// What a SET statement made of literals only did.
#[derive(Debug, Default)]
pub struct SetEffect {
    /// Variables that the server's session tracker reported.
    pub told: Vec<Change>,
    /// Everything that it changed in a session's state; character sets are told only in part.
    pub changes: Vec<Change>,
    /// What it decided of who chose the session's collations.
    pub decided: Decided,
}

impl Wants {
    /// Asks for the character sets in force. False when they are others than before: which collations go with them is not known.
    pub async fn has_kept_charsets<D: Door>(&mut self, door: &mut Asker<'_, D>) -> bool {
        let before = self.charset_changes(CHARSETS);
        self.ask_for_charsets(door, &[Hidden::Kept; 2]).await && self.charset_changes(CHARSETS) == before
    }

    /// Does the text have a SET NAMES or SET CHARACTER SET?
    pub fn names_charsets(&self, sql: &[u8], analysis: &Analysis) -> bool {
        let names = |a: &Assignment| matches!(a.target, Target::Names { .. } | Target::CharacterSet(_));
        assignments(sql, analysis, self.lex).iter().any(names)
    }

    /// Asks the held backend for session variables; the error's code where it does not answer, or 0.
    pub async fn ask_for_variables<D: Door>(&self, door: &mut Asker<'_, D>, names: &[String]) -> Result<Vec<Change>, u16> {
        let columns: Vec<String> = names.iter().map(|name| format!("@@session.{name}")).collect();
        let values = self.ask_for_values(door, &columns).await?;
        let told = names.iter().zip(values).map(|(name, value)| {
            let value = match (name.as_str(), value.as_slice()) {
                (AUTOCOMMIT, b"1") => b"ON".to_vec(),
                (AUTOCOMMIT, b"0") => b"OFF".to_vec(),
                _ => value,
            };
            (name.as_str().into(), value.into())
        });
        Ok(told.collect())
    }

    /// Asks the held backend for the values of these expressions; NULL is empty. The error's code where it does not answer, or 0.
    pub async fn ask_for_values<D: Door>(&self, door: &mut Asker<'_, D>, columns: &[String]) -> Result<Vec<Vec<u8>>, u16> {
        // Where nothing is reported, the results may be in a character set that is not known yet.
        let as_bytes = self.has_wide_results() || door.at.tracks_nothing();
        let reply = door.ask(Question::Values { expressions: columns, as_bytes }).await.map_err(|_| 0_u16)?;
        let code = reply.error.as_ref().map_or(0, |error| error.code);
        let mut values = Reader::new(reply.rows.first().ok_or(code)?);
        // NULL (0xfb) is no string.
        Ok(columns.iter().map(|_| values.lenenc_bytes().map(<[u8]>::to_vec).unwrap_or_default()).collect())
    }

    /// What the statement would do in any session, if that depends on nothing else.
    pub fn repeatable_effect(&self, all: &[Assignment], reply: &ReplyFacts, untold: &[Change]) -> Option<SetEffect> {
        let constant = |v: &Value| matches!(v, Value::Literal(_) | Value::Word(_));
        let known = |t: &Target| match t {
            Target::Session(name) => {
                changes_another(name).is_none()
                    && !UNCARRIED.contains(&name.as_str())
                    && !matches!(name.as_str(), "timestamp" | "last_insert_id" | "identity")
            }
            Target::Names { .. } | Target::TransactionSession { .. } => true,
            Target::NextTransaction(_) | Target::CharacterSet(_) | Target::Global(_) | Target::Persist(_) | Target::User(_) => false,
        };
        if !all.iter().all(|a| known(&a.target) && constant(&a.value)) {
            return None;
        }
        let told: Vec<Change> = reply.variables.iter().map(|(n, v)| ((**n).into(), (**v).into())).collect();
        // Whatever else the server tells of (the end of an earlier SET STATEMENT) is not this statement's doing.
        let own = |name: &str| {
            charsets::is_one(name)
                || name.starts_with("tx_")
                || name.starts_with("transaction_")
                || all.iter().any(|a| matches!(&a.target, Target::Session(n) if n == name))
        };
        if !told.iter().all(|(name, _)| own(name)) {
            return None;
        }
        if all.iter().any(|a| is_relative(a, told.iter().chain(untold))) {
            return None;
        }
        let mut changes: Vec<Change> = told.iter().chain(untold).filter(|(name, _)| !charsets::is_one(name)).cloned().collect();
        for assignment in all {
            changes.extend(self.charset_changes(charsets::decided_by(&assignment.target)?));
        }
        changes.sort_by_key(|(name, _)| assignment_rank(name, false));
        Some(SetEffect { told, changes, decided: Decided::by(all) })
    }
}

impl Wants {
    /// USE, or a SET of constants: all that it changes is carried to whatever server comes next.
    pub fn only_changes_session(&self, text: &[u8], analysis: &Analysis) -> bool {
        let is_carried = |target: &Target| match target {
            Target::Session(name) => !UNCARRIED.contains(&name.as_str()),
            Target::User(_) | Target::Names { .. } | Target::CharacterSet(_) | Target::TransactionSession { .. } => true,
            Target::NextTransaction(_) | Target::Global(_) | Target::Persist(_) => false,
        };
        match analysis.kind {
            _ if analysis.facts.intersects(Facts::MULTI | Facts::TORN) => false,
            Kind::Use => true,
            Kind::Set => sql::parse_set(text, self.lex)
                .is_some_and(|all| all.iter().all(|one| is_carried(&one.target) && one.value != Value::Expression)),
            _ => false,
        }
    }
}

/// Is there something to learn from the statement that the tracker does not tell?
pub fn teaches(analysis: &Analysis, reply: &ReplyFacts) -> bool {
    let sets = analysis.kind == Kind::Set || analysis.facts.contains(Facts::MULTI);
    let changes_others = || reply.variables.iter().any(|(name, _)| changes_another(name).is_some());
    sets || lost_schema(reply) || changes_others() || !reply.variables.is_empty() && charsets::changed_by(reply)
}

/// The variable that changes along with this one, and by what it was before perhaps. Character sets are learnt otherwise.
pub fn changes_another(name: &str) -> Option<&'static str> {
    follower_of(name).filter(|_| !charsets::is_one(name))
}

/// Variables with switches: a SET changes those that it names.
pub const OF_SWITCHES: &[&str] = &["optimizer_switch", "optimizer_trace", "optimizer_trace_features"];

/// Does the value that it gave depend on the one of before? Not where it is what the text says.
fn is_relative<'a>(assignment: &Assignment, mut told: impl Iterator<Item = &'a Change>) -> bool {
    let Target::Session(name) = &assignment.target else { return false };
    let (Value::Literal(text) | Value::Word(text)) = &assignment.value else { return true };
    let is_said = |value: &[u8]| value.eq_ignore_ascii_case(text.trim_matches(['\'', '"']).as_bytes());
    OF_SWITCHES.contains(&name.as_str()) && !told.any(|(told, value)| **told == **name && is_said(value))
}

/// What all the SETs of a text assign that are understood.
pub fn assignments(sql: &[u8], analysis: &Analysis, lex: LexMode) -> Vec<Assignment> {
    let statements = if analysis.facts.contains(Facts::MULTI) { sql::split(sql, lex).collect() } else { vec![sql] };
    statements.into_iter().filter_map(|one| sql::parse_set(one, lex)).flatten().collect()
}

/// Has the session no schema any more? It was dropped.
pub fn lost_schema(reply: &ReplyFacts) -> bool {
    reply.error.is_none() && reply.schema.as_ref().is_some_and(|schema| schema.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Vec<Assignment> {
        assignments(text.as_bytes(), &sql::analyze(text.as_bytes(), LexMode::default()), LexMode::default())
    }

    #[test]
    fn all_the_sets_of_a_text_are_read_and_nothing_else() {
        for (text, expected) in
            [("SET @a = 1, sql_mode = ''", 2), ("SET @a = 1; SELECT 1; SET @b = 2", 2), ("SELECT 'SET @a = 1'", 0), ("", 0)]
        {
            assert_eq!(parsed(text).len(), expected, "{text}");
        }
    }

    #[test]
    fn switches_that_are_named_leave_the_others_as_they_were() {
        let told = |value: &str| -> Vec<Change> { vec![("optimizer_switch".into(), value.as_bytes().into())] };
        for (text, value, expected) in [
            ("SET optimizer_switch = 'mrr=on'", "mrr=on,index_merge=off", true),
            ("SET optimizer_switch = 'mrr=on'", "MRR=ON", false),
            ("SET optimizer_switch = mrr", "index_merge=off", true),
            ("SET sql_mode = 'ANSI'", "", false),
            ("SET sql_mode = CONCAT(@@sql_mode, ',ANSI')", "", true),
            ("SET sql_mode = DEFAULT", "", true),
            ("SET @a = 1 + 1", "", false),
        ] {
            assert_eq!(is_relative(&parsed(text)[0], told(value).iter()), expected, "{text} gave {value}");
        }
    }
}
