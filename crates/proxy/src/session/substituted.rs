//! What the session knows of its last statements, in the place of what a server would say: rows of answers, and numbers in texts.

use super::backends::Backends;
use super::local::known_warnings;
use super::query::{asks_now, is_answer, leaves_found_rows, shows_diagnostics, wide_row};
use session_state::facts::SessionFacts;
use session_state::state::is_wide;
use session_state::wants::Wants;
use sql::{Analysis, Facts, Kind};
use wire::reframe::Patch;

/// The rows of a statement that asks for nothing but what the session knows; None for one that it need not know of.
pub(super) fn patch(facts: &SessionFacts, at: &Backends, wants: &Wants, sql: &[u8], kind: Kind) -> Option<Patch> {
    let fact = match kind {
        Kind::ShowCountWarnings => sql::Fact::WarningCount,
        Kind::ShowCountErrors => sql::Fact::ErrorCount,
        Kind::ShowWarnings | Kind::ShowErrors => return known_warnings(facts, sql, kind),
        _ => sql::single_fact_select(sql, wants.lex)?,
    };
    let value = facts.knows(at.pins.set(), fact).then(|| facts.of(fact, at.handle.id))?;
    let wide = wants.state.variables.get("character_set_results").filter(|charset| is_wide(charset));
    Some(match wide.filter(|_| at.worker.shared.serves_mariadb()) {
        Some(charset) => wide_row(value, charset),
        None => Patch::Number { value, binary: false },
    })
}

/// The same for the first statements of a text, of which each has one result: as long as they leave the diagnostics of the
/// statement before.
pub(super) fn patches(facts: &SessionFacts, at: &Backends, wants: &Wants, sql: &[u8], analysis: &Analysis) -> Vec<Option<Patch>> {
    if analysis.facts.intersects(Facts::VERSIONED | Facts::TORN) {
        // The server may read other statements there.
        return Vec::new();
    }
    let statements = sql::split(sql, wants.lex).map(|one| (one, sql::analyze(one, wants.lex)));
    let showing = statements.take_while(|(one, each)| facts.leaves_diagnostics(at.worker.shared.flavor(), each, one));
    showing.map(|(one, each)| patch(facts, at, wants, one, each.kind).filter(|_| shows_diagnostics(each.kind))).collect()
}

/// The text with the calls replaced by numbers. Of several statements those behind the first are told only what those before
/// them leave as it was.
pub(super) fn substituted(facts: &SessionFacts, at: &Backends, wants: &Wants, sql: &[u8], analysis: &Analysis) -> Vec<u8> {
    let value = |fact| facts.knows(at.pins.set(), fact).then(|| facts.of(fact, at.handle.id));
    if !analysis.facts.contains(Facts::MULTI) {
        let is_answer = is_answer(sql, analysis.kind);
        return sql::substitute_facts(sql, wants.lex, |fact| value(fact).filter(|_| is_answer || !fact.is_connection()));
    }
    let (mut out, mut copied) = (Vec::with_capacity(sql.len() + 64), 0);
    let (mut row_count, mut diagnostics, mut found_rows) = (true, true, true);
    for place in sql::split_places(sql, wants.lex) {
        let one = sql.get(place.clone()).unwrap_or_default();
        let each = sql::analyze(one, wants.lex);
        if asks_now(each.kind) {
            let is_answer = is_answer(one, each.kind);
            out.extend_from_slice(sql.get(copied..place.start).unwrap_or_default());
            out.extend(sql::substitute_facts(one, wants.lex, |fact| {
                let stands = match fact {
                    fact if fact.is_connection() && !is_answer => false,
                    sql::Fact::ConnectionId => true,
                    sql::Fact::FoundRows => found_rows,
                    sql::Fact::WarningCount | sql::Fact::ErrorCount => diagnostics,
                    sql::Fact::RowCount | sql::Fact::PseudoThreadId => row_count,
                };
                value(fact).filter(|_| stands)
            }));
            copied = place.end;
        }
        row_count &= each.kind == Kind::GetDiagnostics;
        diagnostics = diagnostics && facts.leaves_diagnostics(at.worker.shared.flavor(), &each, one);
        found_rows &= leaves_found_rows(&each, one);
    }
    out.extend_from_slice(sql.get(copied..).unwrap_or_default());
    out
}

/// Do all statements of this text leave the warnings, and FOUND_ROWS(), of the statement before?
pub(super) fn several_kept(facts: &SessionFacts, at: &Backends, wants: &Wants, sql: &[u8]) -> (bool, bool) {
    let (mut warnings, mut found_rows) = (facts.has_diagnostics(), true);
    for one in sql::split(sql, wants.lex) {
        let each = sql::analyze(one, wants.lex);
        warnings = warnings
            && (facts.leaves_diagnostics(at.worker.shared.flavor(), &each, one)
                || facts.leaves_warnings(at.worker.shared.flavor(), &each, one));
        found_rows &= leaves_found_rows(&each, one);
    }
    (warnings, found_rows)
}
