//! Records: what one session did, in the order in which it did it.
//!
//! A record is its kind (a byte), the length of its body, and the body. Numbers are length-encoded as in MySQL's protocol. Readers skip
//! kinds that they do not know.

use crate::params::Params;
use rehearsal::{Answer, Columns};
use wire::WireError;
use wire::codec::{Reader, put_lenenc, put_lenenc_bytes};

type Result<T> = std::result::Result<T, WireError>;

const SESSION: u8 = 1;
const END: u8 = 2;
const GAP: u8 = 3;
const QUERY: u8 = 16;
const PREPARE: u8 = 17;
const EXECUTE: u8 = 18;
const LONG_DATA: u8 = 19;
const CLOSE_STATEMENT: u8 = 20;
const RESET_STATEMENT: u8 = 21;
const RESET: u8 = 22;
const INIT_DB: u8 = 23;
const CHANGE_USER: u8 = 24;
const SET_OPTION: u8 = 25;
const WITHHELD: u8 = 26;

/// One record.
#[allow(clippy::large_enum_variant)] // most are commands, and one is at hand at a time
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// A session begins, or goes on after a gap. What follows of it refers to this state.
    Session(SessionStart<'a>),
    /// A command that was answered.
    Command(Command<'a>),
    /// A session has ended.
    End {
        /// Which.
        session: u64,
    },
    /// Commands of a session are missing.
    Gap(Gap),
}

/// The state in which a session is when its capture begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionStart<'a> {
    /// Its id.
    pub session: u64,
    /// Its user.
    pub user: &'a [u8],
    /// Its schema; empty for none.
    pub schema: &'a [u8],
    /// Capabilities of its client.
    pub capabilities: u64,
    /// Statements that bring a new connection into its state.
    pub setup: Vec<&'a [u8]>,
}

/// When a command ran.
///
/// INVARIANT of a capture: `after < seq`, and numbers of ends are unique. So the order that they give has no circle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timing {
    /// Commands that had ended when this one began have numbers up to this one.
    pub after: u64,
    /// The number of this command's end.
    pub seq: u64,
    /// When it began, us of the process clock.
    pub begin_us: u64,
    /// How long the server took, us; the proxy if no server answered.
    pub time_us: u64,
}

/// A command of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command<'a> {
    /// The session's id.
    pub session: u64,
    /// When it ran.
    pub timing: Timing,
    /// What it was.
    pub what: What<'a>,
    /// What the server answered; None if the proxy answered it or the answer is not known.
    pub reply: Option<Answer>,
}

/// What a command was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What<'a> {
    /// COM_QUERY.
    Query(&'a [u8]),
    /// COM_STMT_PREPARE. It stands before the first execution if the session prepared the statement before its capture began.
    Prepare {
        /// The client's id of the statement.
        statement: u32,
        /// Its text.
        text: &'a [u8],
    },
    /// COM_STMT_EXECUTE.
    Execute {
        /// The statement.
        statement: u32,
        /// Its parameters.
        params: Params<'a>,
    },
    /// COM_STMT_SEND_LONG_DATA.
    LongData {
        /// The statement.
        statement: u32,
        /// The parameter's place.
        parameter: u16,
        /// A part of its bytes.
        bytes: &'a [u8],
    },
    /// COM_STMT_CLOSE.
    CloseStatement(u32),
    /// COM_STMT_RESET.
    ResetStatement(u32),
    /// COM_RESET_CONNECTION, and statements that bring back what the client's login had set.
    Reset(Vec<&'a [u8]>),
    /// COM_INIT_DB.
    InitDb(&'a [u8]),
    /// COM_CHANGE_USER, without its password. A record of the session follows.
    ChangeUser {
        /// The new user.
        user: &'a [u8],
    },
    /// COM_SET_OPTION.
    SetOption(u16),
    /// A command that is not captured, and not replayed.
    Withheld {
        /// Why.
        why: Withheld,
        /// Its digest's text, without literals.
        digest: &'a [u8],
    },
}

/// Reasons, with the numbers that files have.
macro_rules! reasons {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $number:literal, $text:literal;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)*
        }

        impl $name {
            /// Every reason.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The name that tables and reports show.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)*
                }
            }

            fn number(self) -> u8 {
                match self {
                    $(Self::$variant => $number,)*
                }
            }

            fn of_number(number: u8) -> Self {
                match number {
                    $($number => Self::$variant,)*
                    _ => Self::Other,
                }
            }
        }
    };
}

reasons! {
    /// Why a command was not captured.
    Withheld {
        /// A reason of a newer version.
        Other = 0, "other";
        /// It carries a password.
        Password = 1, "password";
        /// No server answered it, or not all of the answer came.
        NoAnswer = 2, "no answer";
        /// It sends a file of the client.
        LocalFile = 3, "local file";
        /// COM_STMT_BULK_EXECUTE, or an execution with query attributes.
        Form = 4, "form";
        /// A command about other sessions or the server, such as KILL or SHUTDOWN.
        Administrative = 5, "administrative";
        /// Its text is too long to be searched for passwords while clients wait.
        Long = 6, "long text";
    }
}

reasons! {
    /// Why commands of a session are missing.
    GapReason {
        /// A reason of a newer version.
        Other = 0, "other";
        /// The queue was full.
        QueueFull = 1, "queue full";
        /// A command was too long.
        TooLong = 2, "too long";
        /// The process was short of memory.
        Memory = 3, "memory";
    }
}

/// Commands of a session are missing from here on, until it begins again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The session's id.
    pub session: u64,
    /// Why.
    pub why: GapReason,
}

impl Record<'_> {
    /// The session that it belongs to.
    pub fn session(&self) -> u64 {
        match self {
            Self::Session(start) => start.session,
            Self::Command(command) => command.session,
            Self::End { session } => *session,
            Self::Gap(gap) => gap.session,
        }
    }

    /// Appends the record.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut body = Vec::new();
        let kind = match self {
            Self::Session(start) => {
                put_session(start, &mut body);
                SESSION
            }
            Self::Command(command) => put_command(command, &mut body),
            Self::End { session } => {
                put_lenenc(&mut body, *session);
                END
            }
            Self::Gap(gap) => {
                put_lenenc(&mut body, gap.session);
                body.push(gap.why.number());
                GAP
            }
        };
        out.push(kind);
        put_lenenc_bytes(out, &body);
    }
}

impl<'a> Record<'a> {
    /// Takes the next record from the front of `reader`; None for one of a kind that is not known.
    ///
    /// # Errors
    /// The bytes are no record.
    pub fn decode(reader: &mut Reader<'a>) -> Result<Option<Self>> {
        let kind = reader.u8()?;
        let mut body = Reader::new(reader.lenenc_bytes()?);
        let body = &mut body;
        Ok(Some(match kind {
            SESSION => Self::Session(session(body)?),
            END => Self::End { session: body.lenenc()? },
            GAP => Self::Gap(Gap { session: body.lenenc()?, why: GapReason::of_number(body.u8()?) }),
            QUERY..=WITHHELD => Self::Command(command(kind, body)?),
            _ => return Ok(None),
        }))
    }
}

fn put_session(start: &SessionStart<'_>, out: &mut Vec<u8>) {
    put_lenenc(out, start.session);
    put_lenenc_bytes(out, start.user);
    put_lenenc_bytes(out, start.schema);
    put_lenenc(out, start.capabilities);
    put_list(&start.setup, out);
}

fn session<'a>(body: &mut Reader<'a>) -> Result<SessionStart<'a>> {
    Ok(SessionStart {
        session: body.lenenc()?,
        user: body.lenenc_bytes()?,
        schema: body.lenenc_bytes()?,
        capabilities: body.lenenc()?,
        setup: list(body)?,
    })
}

fn put_list(texts: &[&[u8]], out: &mut Vec<u8>) {
    put_lenenc(out, texts.len() as u64);
    texts.iter().for_each(|text| put_lenenc_bytes(out, text));
}

fn list<'a>(body: &mut Reader<'a>) -> Result<Vec<&'a [u8]>> {
    let count = body.lenenc()?;
    let mut texts = Vec::new();
    // Each text takes a byte at least.
    if count > body.remaining() as u64 {
        return Err(WireError::Malformed("a record names more texts than it has"));
    }
    for _ in 0..count {
        texts.push(body.lenenc_bytes()?);
    }
    Ok(texts)
}

fn put_command(command: &Command<'_>, out: &mut Vec<u8>) -> u8 {
    let Timing { after, seq, begin_us, time_us } = command.timing;
    for number in [command.session, seq, seq.saturating_sub(after), begin_us, time_us] {
        put_lenenc(out, number);
    }
    put_reply(command.reply.as_ref(), out);
    put_what(&command.what, out)
}

fn put_what(what: &What<'_>, out: &mut Vec<u8>) -> u8 {
    match what {
        What::Query(text) => {
            put_lenenc_bytes(out, text);
            QUERY
        }
        What::Prepare { statement, text } => {
            put_lenenc(out, u64::from(*statement));
            put_lenenc_bytes(out, text);
            PREPARE
        }
        What::Execute { statement, params } => {
            put_lenenc(out, u64::from(*statement));
            params.encode(out);
            EXECUTE
        }
        What::LongData { statement, parameter, bytes } => {
            put_lenenc(out, u64::from(*statement));
            put_lenenc(out, u64::from(*parameter));
            put_lenenc_bytes(out, bytes);
            LONG_DATA
        }
        What::CloseStatement(statement) => {
            put_lenenc(out, u64::from(*statement));
            CLOSE_STATEMENT
        }
        What::ResetStatement(statement) => {
            put_lenenc(out, u64::from(*statement));
            RESET_STATEMENT
        }
        What::Reset(setup) => {
            put_list(setup, out);
            RESET
        }
        What::InitDb(schema) => {
            put_lenenc_bytes(out, schema);
            INIT_DB
        }
        What::ChangeUser { user } => {
            put_lenenc_bytes(out, user);
            CHANGE_USER
        }
        What::SetOption(option) => {
            put_lenenc(out, u64::from(*option));
            SET_OPTION
        }
        What::Withheld { why, digest } => {
            out.push(why.number());
            put_lenenc_bytes(out, digest);
            WITHHELD
        }
    }
}

fn command<'a>(kind: u8, body: &mut Reader<'a>) -> Result<Command<'a>> {
    let (session, seq, back) = (body.lenenc()?, body.lenenc()?, body.lenenc()?);
    let after = seq.checked_sub(back.max(1)).ok_or(WireError::Malformed("a command ended before it began"))?;
    let timing = Timing { after, seq, begin_us: body.lenenc()?, time_us: body.lenenc()? };
    let reply = reply(body)?;
    Ok(Command { session, timing, what: what(kind, body)?, reply })
}

fn what<'a>(kind: u8, body: &mut Reader<'a>) -> Result<What<'a>> {
    Ok(match kind {
        QUERY => What::Query(body.lenenc_bytes()?),
        PREPARE => What::Prepare { statement: id(body)?, text: body.lenenc_bytes()? },
        EXECUTE => What::Execute { statement: id(body)?, params: Params::decode(body)? },
        LONG_DATA => What::LongData { statement: id(body)?, parameter: short(body)?, bytes: body.lenenc_bytes()? },
        CLOSE_STATEMENT => What::CloseStatement(id(body)?),
        RESET_STATEMENT => What::ResetStatement(id(body)?),
        RESET => What::Reset(list(body)?),
        INIT_DB => What::InitDb(body.lenenc_bytes()?),
        CHANGE_USER => What::ChangeUser { user: body.lenenc_bytes()? },
        SET_OPTION => What::SetOption(short(body)?),
        _ => What::Withheld { why: Withheld::of_number(body.u8()?), digest: body.lenenc_bytes()? },
    })
}

fn id(body: &mut Reader<'_>) -> Result<u32> {
    u32::try_from(body.lenenc()?).map_err(|_| WireError::Malformed("a statement's id is too large"))
}

fn short(body: &mut Reader<'_>) -> Result<u16> {
    u16::try_from(body.lenenc()?).map_err(|_| WireError::Malformed("a number is too large"))
}

/// Appends an answer, as records have it. 0: none; 1: an answer; 2: an answer of which a row was too long to be read.
pub fn put_reply(reply: Option<&Answer>, out: &mut Vec<u8>) {
    let Some(answer) = reply else { return out.push(0) };
    out.push(if answer.is_whole { 1 } else { 2 });
    let error = answer.error.map_or(0, |code| u64::from(code) + 1);
    for number in [error, answer.rows, answer.affected, answer.insert_id, u64::from(answer.warnings)] {
        put_lenenc(out, number);
    }
    let Columns { count, names, types, lengths, flags, charsets } = answer.columns;
    put_lenenc(out, count);
    if count > 0 {
        [names, types, lengths, flags, charsets].iter().for_each(|hash| out.extend_from_slice(&hash.to_le_bytes()));
    }
    if answer.rows > 0 {
        out.extend_from_slice(&answer.sum.to_le_bytes());
        out.extend_from_slice(&answer.exact.to_le_bytes());
        out.extend_from_slice(&answer.sequence.to_le_bytes());
    }
}

/// Reads what [`put_reply`] wrote.
///
/// # Errors
/// The bytes are no answer.
pub fn reply(body: &mut Reader<'_>) -> Result<Option<Answer>> {
    let is_whole = match body.u8()? {
        0 => return Ok(None),
        form => form == 1,
    };
    let error = match body.lenenc()? {
        0 => None,
        code => Some(u16::try_from(code - 1).map_err(|_| WireError::Malformed("an error number is too large"))?),
    };
    let (rows, affected, insert_id, warnings) = (body.lenenc()?, body.lenenc()?, body.lenenc()?, short(body)?);
    let mut answer = Answer { error, rows, affected, insert_id, warnings, is_whole, ..Answer::default() };
    let columns = &mut answer.columns;
    columns.count = body.lenenc()?;
    if columns.count > 0 {
        for hash in [&mut columns.names, &mut columns.types, &mut columns.lengths, &mut columns.flags, &mut columns.charsets] {
            *hash = body.u64()?;
        }
    }
    if rows > 0 {
        answer.sum = u128::from_le_bytes(body.array()?);
        answer.exact = u128::from_le_bytes(body.array()?);
        answer.sequence = body.u64()?;
    }
    Ok(Some(answer))
}

#[cfg(test)]
#[path = "record_tests.rs"]
pub(crate) mod tests;
