//! The client's view as lines of text: the form in which two runs are compared and differences are shown.
//!
//! Everything of a reply is in the lines, byte for byte, except parts that cannot agree. Those are sequence numbers of prepared statements
//! (as in error 1243) and the order of session-track entries. The EOF between columns and rows cannot agree either, as it describes an
//! execution that is not over.

use std::fmt::Write as _;

use wire::StatusFlags;
use wire::session_state::Change;

use crate::client::{Column, Outcome, Prepared, Reply, ResultSet, Row, ServerError, Status};

/// Bytes of a row that are shown; a hash stands for the rest.
const SHOWN_BYTES: usize = 160;
/// Errors whose text names a prepared statement's id.
const NAMES_A_STATEMENT: [u16; 2] = [1243, 1210];
/// The same text in a row of SHOW WARNINGS.
const NAMES_ITS_ID: &[u8] = b"prepared statement handler (";

/// The lines of a reply.
pub fn reply_lines(reply: &Reply) -> Vec<String> {
    let mut lines = Vec::new();
    for outcome in &reply.results {
        match outcome {
            Outcome::Ok(status) => lines.push(status_line("ok", status)),
            Outcome::Err(error) => lines.push(error_line(error)),
            Outcome::Rows(set) => put_set(&mut lines, set),
        }
    }
    lines
}

/// The lines of a preparation.
pub(super) fn prepared_lines(prepared: &Prepared) -> Vec<String> {
    let mut lines = vec![format!("prepared, {} warnings", prepared.warnings)];
    lines.extend(prepared.params.iter().map(|column| format!("param {}", column_text(column))));
    lines.extend(prepared.columns.iter().map(|column| format!("column {}", column_text(column))));
    lines
}

pub(super) fn put_set(lines: &mut Vec<String>, set: &ResultSet) {
    lines.extend(set.columns.iter().map(|column| format!("column {}", column_text(column))));
    if let Some(end) = &set.columns_end {
        lines.push(columns_end_line(end));
    }
    lines.extend(set.rows.iter().map(row_line));
    lines.push(match &set.end {
        Ok(status) => status_line("rows end", status),
        Err(error) => error_line(error),
    });
}

/// An OK or EOF packet. Whether an index was used is left out: that hangs on statistics which servers gather beside.
pub fn status_line(what: &str, status: &Status) -> String {
    let flags = StatusFlags(status.status.0 & !(StatusFlags::NO_INDEX_USED | StatusFlags::NO_GOOD_INDEX_USED).0);
    let mut line = format!(
        "{what} {:#04x} affected {} id {} status {:#06x}{} warnings {}",
        status.header,
        status.affected_rows,
        status.last_insert_id,
        flags.0,
        flag_names(flags),
        status.warnings
    );
    if !status.info.is_empty() {
        let _ = write!(line, " info {:?}", status.info);
    }
    let mut tracked: Vec<String> = match status.changes() {
        Ok(changes) => changes.iter().map(change_text).collect(),
        Err(error) => vec![format!("malformed: {error}")],
    };
    tracked.sort();
    if !tracked.is_empty() {
        let _ = write!(line, " tracked [{}]", tracked.join(", "));
    }
    line
}

/// The EOF between columns and rows. If its server connection has none, a proxy must make it before the server has reported the statement's
/// result. So the results (warnings, used indexes, an opened transaction, further results) are compared at the end of the rows only. Every
/// client reads them there.
fn columns_end_line(end: &Status) -> String {
    let known = end.status & (StatusFlags::AUTOCOMMIT | StatusFlags::CURSOR_EXISTS | StatusFlags::NO_BACKSLASH_ESCAPES);
    format!("columns end {:#04x} status {:#06x}{}", end.header, known.0, flag_names(known))
}

fn error_line(error: &ServerError) -> String {
    let message = if NAMES_A_STATEMENT.contains(&error.code) {
        error.message.chars().filter(|c| !c.is_ascii_digit()).collect()
    } else {
        error.message.clone()
    };
    format!("error {} ({}) {message}", error.code, error.sqlstate)
}

fn flag_names(flags: StatusFlags) -> String {
    let known = [
        (StatusFlags::IN_TRANS, "trx"),
        (StatusFlags::AUTOCOMMIT, "autocommit"),
        (StatusFlags::MORE_RESULTS, "more"),
        (StatusFlags::CURSOR_EXISTS, "cursor"),
        (StatusFlags::LAST_ROW_SENT, "last-row"),
        (StatusFlags::SESSION_STATE_CHANGED, "state"),
    ];
    let names: Vec<&str> = known.iter().filter(|(flag, _)| flags.contains(*flag)).map(|(_, name)| *name).collect();
    format!("({})", names.join(" "))
}

fn change_text(change: &Change<'_>) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match change {
        Change::SystemVariable { name, value } => format!("{}={:?}", text(name), text(value)),
        Change::Schema(name) => format!("schema {:?}", text(name)),
        Change::StateChange(changed) => format!("state {changed}"),
        Change::Gtids(_) => "gtids".to_owned(),
        Change::TransactionCharacteristics(sql) => format!("characteristics {:?}", text(sql)),
        Change::TransactionState(letters) => format!("transaction {}", text(letters)),
        Change::Other { kind, data } => format!("kind {kind} {data:02x?}"),
    }
}

fn column_text(column: &Column) -> String {
    format!(
        "{}.{}({}).{}({}) type {} charset {} length {} flags {:#x} decimals {} extended {:02x?} bytes {:016x}",
        column.schema,
        column.table,
        column.org_table,
        column.name,
        column.org_name,
        column.kind,
        column.charset,
        column.length,
        column.flags,
        column.decimals,
        column.extended,
        hash(&column.raw)
    )
}

fn row_line(row: &Row) -> String {
    if row.raw.windows(NAMES_ITS_ID.len()).any(|part| part == NAMES_ITS_ID) {
        let text = row.text().into_iter().map(Option::unwrap_or_default).collect::<Vec<_>>().join(" ");
        return format!("row {}", text.chars().filter(|c| !c.is_ascii_digit()).collect::<String>());
    }
    let shown = &row.raw[..row.raw.len().min(SHOWN_BYTES)];
    let escaped: String = shown.iter().flat_map(|byte| std::ascii::escape_default(*byte)).map(char::from).collect();
    if row.raw.len() > SHOWN_BYTES {
        format!("row {escaped}... {} bytes {:016x}", row.raw.len(), hash(&row.raw))
    } else {
        format!("row {escaped}")
    }
}

/// FNV-1a: only to tell two long byte strings apart.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}
