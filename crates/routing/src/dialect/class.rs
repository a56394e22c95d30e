//! Bracketed classes, written so that the linear engine can read nothing else into them.

use super::{Engine, Scan, push_literal};

/// One member of a class.
enum Item {
    Byte(u8),
    /// `\d`, `[:alpha:]`, ..., as the linear engine writes it.
    Set(String),
}

const POSIX: &[&str] =
    &["alpha", "digit", "alnum", "upper", "lower", "space", "blank", "punct", "print", "graph", "cntrl", "xdigit", "word"];

pub(super) fn read(scan: &mut Scan<'_>) -> Result<(), &'static str> {
    scan.at += 1;
    scan.out.push('[');
    if scan.peek(0) == Some(b'^') {
        scan.at += 1;
        scan.out.push('^');
    }
    let mut is_first = true;
    loop {
        match scan.peek(0) {
            None => return Err("a class that is not closed"),
            Some(b']') if !is_first => break,
            Some(_) => range(scan)?,
        }
        is_first = false;
    }
    scan.at += 1;
    scan.raw("]", true);
    Ok(())
}

fn range(scan: &mut Scan<'_>) -> Result<(), &'static str> {
    let low = match item(scan)? {
        Item::Byte(low) => low,
        Item::Set(set) => {
            scan.out.push_str(&set);
            let hyphen = scan.peek(0) == Some(b'-') && scan.peek(1) != Some(b']');
            return if hyphen { Err("a range that begins with a class") } else { Ok(()) };
        }
    };
    push_literal(&mut scan.out, low);
    if scan.peek(0) != Some(b'-') || matches!(scan.peek(1), Some(b']') | None) {
        return Ok(());
    }
    scan.at += 1;
    match item(scan)? {
        Item::Byte(high) if high >= low => {
            scan.out.push('-');
            push_literal(&mut scan.out, high);
            Ok(())
        }
        _ => Err("a range without an end"),
    }
}

fn item(scan: &mut Scan<'_>) -> Result<Item, &'static str> {
    let byte = scan.peek(0).ok_or("a class that is not closed")?;
    scan.at += 1;
    match byte {
        b'\\' => escape(scan),
        b'[' if matches!(scan.peek(0), Some(b':' | b'.' | b'=')) => posix(scan),
        byte if byte.is_ascii() => Ok(Item::Byte(byte)),
        _ => Err("letters beyond ASCII"),
    }
}

fn escape(scan: &mut Scan<'_>) -> Result<Item, &'static str> {
    let escaped = scan.peek(0).ok_or("'\\' at the end")?;
    scan.at += 1;
    match escaped {
        b's' if scan.engine == Engine::Re2 => Ok(Item::Set("\\t\\n\\f\\r ".to_owned())),
        b'd' | b'D' | b'w' | b'W' | b's' => Ok(Item::Set(format!("\\{}", char::from(escaped)))),
        b'S' if scan.engine == Engine::Pcre => Ok(Item::Set("\\S".to_owned())),
        _ => scan.single_escape(escaped).map(Item::Byte),
    }
}

fn posix(scan: &mut Scan<'_>) -> Result<Item, &'static str> {
    let name = POSIX.iter().find(|name| {
        let rest = scan.rest().strip_prefix(b":").unwrap_or_default();
        rest.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.starts_with(b":]"))
    });
    let name = name.ok_or("a POSIX class that is not known")?;
    scan.at += name.len() + 3;
    Ok(Item::Set(format!("[:{name}:]")))
}
