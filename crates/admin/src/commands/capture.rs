//! CAPTURE START and STOP: traffic of sessions goes into a file, for `tidegate replay`.
//!
//! START reads a key and creates a file, so it runs on a thread of its own.

use std::sync::Arc;

use model::control::{CaptureOrder, CaptureStart};

use super::{Answer, Command, form, open, refuse};
use crate::engine::statement::Statement;
use crate::engine::{Ask, Engine};
use crate::reply::Reply;

/// Longest capture, s.
const MAX_SECONDS: u64 = 604_800;
/// Largest file, MB.
const MAX_MB: u64 = 1_048_576;
const MAX_NAME: usize = 64;

pub(super) const COMMANDS: &[Command] = &[
    open("CAPTURE START", order).help(
        "CAPTURE START 'name' FOR s SECONDS MAX m MB [PERCENT p] [USERS 'a,b'] TO PUBLIC KEY 'file' | PLAIN",
        "Writes what sessions say, and what they are answered, to a file in mysql-capture_directory. The file is sealed to the X25519 public key \
         of a PEM file: only the private key opens it. PLAIN seals nothing: the file shows all values.",
        "CAPTURE START 'friday' FOR 600 SECONDS MAX 2048 MB PERCENT 10 TO PUBLIC KEY 'capture.pub.pem'",
    ),
    open("CAPTURE STOP", order).help(
        "CAPTURE STOP 'name'",
        "Ends a capture and completes its file. stats_tidegate_captures shows the result.",
        "CAPTURE STOP 'friday'",
    ),
];

fn order(engine: &mut Engine, ask: &Ask<'_>) -> Answer {
    let order = match parse(ask.statement) {
        Ok(order) => order,
        Err(reason) => return refuse(format!("{reason}; the command is: {}", form(ask.statement))),
    };
    tracing::info!("{}@{}: {}", ask.session.user, ask.session.peer, ask.statement.text);
    let plane = Arc::clone(&engine.plane);
    engine.later(Box::new(move || match plane.capture(&order) {
        Ok(info) => {
            tracing::info!("{info}");
            Reply::Ok { affected: 0, insert_id: 0, info, warnings: Vec::new() }
        }
        Err(reason) => Reply::refused(reason),
    }))
}

fn parse(statement: &Statement) -> Result<CaptureOrder, String> {
    let name = name(statement)?;
    let mut words = Words { statement, at: 3 };
    if statement.is(1, "STOP") {
        return words.end().map(|()| CaptureOrder::Stop { name });
    }
    words.expect("FOR", "FOR s SECONDS is missing: a capture has a limit of time")?;
    let seconds = words.number("seconds", MAX_SECONDS)?;
    words.expect("SECOND|SECONDS", "SECONDS is missing")?;
    words.expect("MAX", "MAX m MB is missing: a capture has a limit of size")?;
    let max_mb = words.number("MB", MAX_MB)?;
    words.expect("MB", "MB is missing")?;
    let mut start = CaptureStart { name, seconds, max_mb, percent: 100.0, users: Vec::new(), public_key: None };
    if words.take("PERCENT") {
        start.percent = words.percent()?;
    }
    if words.take("USERS") {
        let users = words.word();
        start.users = users.split(',').map(str::trim).filter(|user| !user.is_empty()).map(str::to_owned).collect();
        if start.users.is_empty() {
            return Err("USERS names no user".to_owned());
        }
    }
    if !words.take("PLAIN") {
        words.expect("TO", "TO PUBLIC KEY 'file' or PLAIN is missing")?;
        words.expect("PUBLIC", "PUBLIC KEY is missing")?;
        words.expect("KEY", "KEY is missing")?;
        let file = words.word();
        if file.is_empty() {
            return Err("the file of the public key is missing".to_owned());
        }
        start.public_key = Some(file.to_owned());
    }
    words.end().map(|()| CaptureOrder::Start(start))
}

fn name(statement: &Statement) -> Result<String, String> {
    let name = statement.word(2);
    let is_plain = name.chars().all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-' | '.'));
    match name {
        "" => Err("no capture is named".to_owned()),
        _ if name.len() > MAX_NAME || !is_plain || name.starts_with('.') => {
            Err(format!("'{name}' is not a name of 1 to {MAX_NAME} letters, digits, _, - and ., without a dot in front"))
        }
        _ => Ok(name.to_owned()),
    }
}

/// The words of an order, one after another.
struct Words<'a> {
    statement: &'a Statement,
    at: usize,
}

impl<'a> Words<'a> {
    fn word(&mut self) -> &'a str {
        self.at += 1;
        self.statement.word(self.at - 1)
    }

    /// Moves past one of these keywords, if it is next.
    fn take(&mut self, pattern: &str) -> bool {
        let is_next = self.statement.is(self.at, pattern);
        self.at += usize::from(is_next);
        is_next
    }

    fn expect(&mut self, pattern: &str, missing: &str) -> Result<(), String> {
        if self.take(pattern) { Ok(()) } else { Err(missing.to_owned()) }
    }

    fn number(&mut self, what: &str, most: u64) -> Result<u64, String> {
        let word = self.word();
        let number = word.parse().ok().filter(|number| (1..=most).contains(number));
        number.ok_or_else(|| format!("'{word}' is not a number of {what} from 1 to {most}"))
    }

    fn percent(&mut self) -> Result<f64, String> {
        let word = self.word();
        let percent = word.parse().ok().filter(|percent: &f64| *percent > 0.0 && *percent <= 100.0);
        percent.ok_or_else(|| format!("'{word}' is not a percentage above 0, up to 100"))
    }

    fn end(&self) -> Result<(), String> {
        match self.statement.rest(self.at) {
            "" => Ok(()),
            rest => Err(format!("'{rest}' is not understood")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(sql: &str) -> Result<CaptureOrder, String> {
        parse(&Statement::parse(sql))
    }

    #[test]
    fn orders_are_read() {
        let plain =
            CaptureStart { name: "friday".to_owned(), seconds: 600, max_mb: 2048, percent: 100.0, users: Vec::new(), public_key: None };
        let order = "CAPTURE START 'friday' FOR 600 SECONDS MAX 2048 MB";
        assert_eq!(read(&format!("{order} PLAIN;")), Ok(CaptureOrder::Start(plain.clone())));
        let sealed = CaptureStart {
            percent: 2.5,
            users: ["anna", "bert"].map(str::to_owned).to_vec(),
            public_key: Some("/etc/key.pem".to_owned()),
            ..plain
        };
        let options = "percent 2.5 users 'anna, bert' to public key '/etc/key.pem'";
        assert_eq!(read(&format!("{order} {options}")), Ok(CaptureOrder::Start(sealed)));
        assert_eq!(read("capture stop friday"), Ok(CaptureOrder::Stop { name: "friday".to_owned() }));
    }

    #[test]
    fn limits_and_sealing_must_be_said() {
        for (sql, error) in [
            ("CAPTURE START", "no capture is named"),
            ("CAPTURE START '../x' FOR 1 SECONDS MAX 1 MB PLAIN", "'../x' is not a name"),
            ("CAPTURE START '.x' FOR 1 SECONDS MAX 1 MB PLAIN", "'.x' is not a name"),
            ("CAPTURE START a PLAIN", "FOR s SECONDS is missing"),
            ("CAPTURE START a FOR 0 SECONDS MAX 1 MB PLAIN", "'0' is not a number of seconds from 1 to 604800"),
            ("CAPTURE START a FOR 1 SECONDS PLAIN", "MAX m MB is missing"),
            ("CAPTURE START a FOR 1 SECONDS MAX x MB PLAIN", "'x' is not a number of MB"),
            ("CAPTURE START a FOR 1 SECONDS MAX 1 MB", "TO PUBLIC KEY 'file' or PLAIN is missing"),
            ("CAPTURE START a FOR 1 SECONDS MAX 1 MB TO PUBLIC KEY", "the file of the public key is missing"),
            ("CAPTURE START a FOR 1 SECONDS MAX 1 MB PERCENT 0 PLAIN", "'0' is not a percentage"),
            ("CAPTURE START a FOR 1 SECONDS MAX 1 MB USERS '' PLAIN", "USERS names no user"),
            ("CAPTURE START a FOR 1 SECONDS MAX 1 MB PLAIN please", "'please' is not understood"),
            ("CAPTURE STOP a now", "'now' is not understood"),
        ] {
            let found = read(sql).unwrap_err();
            assert!(found.contains(error), "{sql}: {found}");
        }
    }
}
