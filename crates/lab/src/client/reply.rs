//! A server's answer, in full: raw payloads beside their meaning, so that two replies can be compared byte for byte.

use wire::codec::Reader;
use wire::message::{EOF, ERR, ErrPacket, OkPacket};
use wire::session_state::{Change, changes};
use wire::{Capabilities, StatusFlags};

use super::value::{Value, malformed};
use crate::error::LabError;

/// All results of one command, in order. A plain query has one; CALL and multi-statements have several.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// At least one.
    pub results: Vec<Outcome>,
}

/// One result.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// An OK packet.
    Ok(Status),
    /// A result set.
    Rows(ResultSet),
    /// An ERR packet.
    Err(ServerError),
}

/// Columns, rows, end.
#[derive(Clone, Debug, PartialEq)]
pub struct ResultSet {
    /// Column definitions; empty columns (no definition was sent) with OPTIONAL_RESULTSET_METADATA.
    pub columns: Vec<Column>,
    /// The EOF packet after the columns, unless DEPRECATE_EOF.
    pub columns_end: Option<Status>,
    /// The rows.
    pub rows: Vec<Row>,
    /// The packet after the last row: EOF, OK with header 0xfe, or an error in the middle.
    pub end: Result<Status, ServerError>,
}

/// A row.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The payload.
    pub raw: Vec<u8>,
    /// Its fields.
    pub values: Vec<Value>,
}

/// A column definition. Source: "Column Definition 41".
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Column {
    /// The payload.
    pub raw: Vec<u8>,
    /// Schema name.
    pub schema: String,
    /// Table alias.
    pub table: String,
    /// The table's own name.
    pub org_table: String,
    /// Column alias.
    pub name: String,
    /// The column's own name.
    pub org_name: String,
    /// MariaDB's extended type information, raw; empty without MARIADB_CLIENT_EXTENDED_METADATA.
    pub extended: Vec<u8>,
    /// Collation id.
    pub charset: u16,
    /// Display length.
    pub length: u32,
    /// Type byte.
    pub kind: u8,
    /// Column flags.
    pub flags: u16,
    /// Decimals.
    pub decimals: u8,
}

/// An OK or EOF packet. Fields that an EOF lacks are zero or empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The payload.
    pub raw: Vec<u8>,
    /// 0x00 or 0xfe.
    pub header: u8,
    /// Rows changed (or found).
    pub affected_rows: u64,
    /// The generated id, 0 for none.
    pub last_insert_id: u64,
    /// Server status.
    pub status: StatusFlags,
    /// Number of warnings.
    pub warnings: u16,
    /// Human-readable text.
    pub info: String,
    /// Session-track entries, undecoded; see [`Status::changes`].
    pub session_state: Vec<u8>,
}

/// An ERR packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerError {
    /// The payload.
    pub raw: Vec<u8>,
    /// MySQL error number.
    pub code: u16,
    /// SQLSTATE.
    pub sqlstate: String,
    /// The text.
    pub message: String,
}

impl Reply {
    /// The first result's OK; the server's error as an error.
    pub fn ok(&self) -> Result<&Status, LabError> {
        match self.first()? {
            Outcome::Ok(status) => Ok(status),
            _ => Err(LabError::Protocol("rows where OK was expected".to_owned())),
        }
    }

    /// The first result's rows; the server's error as an error.
    pub fn rows(&self) -> Result<&ResultSet, LabError> {
        match self.first()? {
            Outcome::Rows(set) => Ok(set),
            _ => Err(LabError::Protocol("OK where rows were expected".to_owned())),
        }
    }

    /// The first error in the reply, also one that ended a result set.
    pub fn err(&self) -> Option<&ServerError> {
        self.results.iter().find_map(|result| match result {
            Outcome::Err(error) => Some(error),
            Outcome::Rows(set) => set.end.as_ref().err(),
            Outcome::Ok(_) => None,
        })
    }

    /// The status that ended the last result, if it was no error.
    pub fn status(&self) -> Option<&Status> {
        match self.results.last()? {
            Outcome::Ok(status) => Some(status),
            Outcome::Rows(set) => set.end.as_ref().ok(),
            Outcome::Err(_) => None,
        }
    }

    /// The first result set's fields as text.
    pub fn table(&self) -> Result<Vec<Vec<Option<String>>>, LabError> {
        Ok(self.rows()?.rows.iter().map(Row::text).collect())
    }

    /// The first field of the first row as text: `None` when there is no row or it is NULL.
    pub fn scalar(&self) -> Result<Option<String>, LabError> {
        Ok(self.rows()?.rows.first().and_then(|row| row.values.first()).and_then(Value::text))
    }

    /// Fails when anything in the reply is an error.
    pub fn check(self) -> Result<Reply, LabError> {
        match self.err() {
            Some(error) => Err(error.to_lab_error()),
            None => Ok(self),
        }
    }

    fn first(&self) -> Result<&Outcome, LabError> {
        if let Some(error) = self.err() {
            return Err(error.to_lab_error());
        }
        self.results.first().ok_or_else(|| LabError::Protocol("empty reply".to_owned()))
    }
}

impl ResultSet {
    /// The column's place by its name.
    pub fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.name == name)
    }

    /// A field as text, by row number and column name; `None` for NULL or when there is no such field.
    pub fn field(&self, row: usize, name: &str) -> Option<String> {
        self.rows.get(row)?.values.get(self.column(name)?)?.text()
    }
}

impl Row {
    /// The fields as text.
    pub fn text(&self) -> Vec<Option<String>> {
        self.values.iter().map(Value::text).collect()
    }
}

impl Status {
    /// Reads an OK payload, or an EOF payload (which is shorter than 9 bytes unless DEPRECATE_EOF made it an OK).
    pub(super) fn parse(payload: &[u8], caps: Capabilities) -> Result<Status, LabError> {
        if payload.first() == Some(&EOF) && !caps.contains(Capabilities::DEPRECATE_EOF) {
            return Status::parse_eof(payload);
        }
        let ok = OkPacket::parse(payload, caps).map_err(malformed)?;
        Ok(Status {
            raw: payload.to_vec(),
            header: payload.first().copied().unwrap_or_default(),
            affected_rows: ok.affected_rows,
            last_insert_id: ok.last_insert_id,
            status: ok.status,
            warnings: ok.warnings,
            info: String::from_utf8_lossy(ok.info).into_owned(),
            session_state: ok.session_state.to_vec(),
        })
    }

    fn parse_eof(payload: &[u8]) -> Result<Status, LabError> {
        let mut reader = Reader::new(payload);
        reader.u8().map_err(malformed)?;
        let warnings = reader.u16().map_err(malformed)?;
        let status = StatusFlags(reader.u16().map_err(malformed)?);
        Ok(Status {
            raw: payload.to_vec(),
            header: EOF,
            affected_rows: 0,
            last_insert_id: 0,
            status,
            warnings,
            info: String::new(),
            session_state: Vec::new(),
        })
    }

    /// The session changes that the server reports, decoded. Malformed entries are an error.
    pub fn changes(&self) -> Result<Vec<Change<'_>>, LabError> {
        changes(&self.session_state).collect::<Result<_, _>>().map_err(malformed)
    }

    /// A tracked system variable's new value.
    pub fn variable(&self, wanted: &str) -> Option<String> {
        self.changes().ok()?.into_iter().find_map(|change| match change {
            Change::SystemVariable { name, value } if name == wanted.as_bytes() => Some(String::from_utf8_lossy(value).into_owned()),
            _ => None,
        })
    }

    /// Whether another result follows.
    pub fn more(&self) -> bool {
        self.status.contains(StatusFlags::MORE_RESULTS)
    }

    /// Whether a transaction is open.
    pub fn in_transaction(&self) -> bool {
        self.status.contains(StatusFlags::IN_TRANS)
    }
}

impl ServerError {
    pub(super) fn parse(payload: &[u8], caps: Capabilities) -> Result<ServerError, LabError> {
        debug_assert_eq!(payload.first(), Some(&ERR));
        let error = ErrPacket::parse(payload, caps).map_err(malformed)?;
        Ok(ServerError {
            raw: payload.to_vec(),
            code: error.code,
            sqlstate: String::from_utf8_lossy(&error.sqlstate).into_owned(),
            message: String::from_utf8_lossy(error.message).into_owned(),
        })
    }

    /// The same as the lab's error.
    pub fn to_lab_error(&self) -> LabError {
        LabError::Server { code: self.code, sqlstate: self.sqlstate.clone(), message: self.message.clone() }
    }
}

impl Column {
    pub(super) fn parse(payload: &[u8], caps: Capabilities) -> Result<Column, LabError> {
        Column::read(payload, caps).map_err(malformed)
    }

    fn read(payload: &[u8], caps: Capabilities) -> wire::error::Result<Column> {
        let mut reader = Reader::new(payload);
        reader.lenenc_bytes()?; // catalog, always "def"
        let mut name = || -> wire::error::Result<String> { Ok(String::from_utf8_lossy(reader.lenenc_bytes()?).into_owned()) };
        let (schema, table, org_table) = (name()?, name()?, name()?);
        let (alias, org_name) = (name()?, name()?);
        let extended =
            if caps.contains(Capabilities::MARIADB_CLIENT_EXTENDED_METADATA) { reader.lenenc_bytes()?.to_vec() } else { Vec::new() };
        reader.lenenc()?; // length of the fixed fields, always 12
        Ok(Column {
            raw: payload.to_vec(),
            schema,
            table,
            org_table,
            name: alias,
            org_name,
            extended,
            charset: reader.u16()?,
            length: reader.u32()?,
            kind: reader.u8()?,
            flags: reader.u16()?,
            decimals: reader.u8()?,
        })
    }
}
