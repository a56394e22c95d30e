//! Rows between the text and the binary protocol.
//!
//! Pure. INVARIANT: what [`to_binary`] and [`to_text`] answer is exactly what the server would have sent in the other
//! protocol; where that is not certain the answer is `None`. Text is therefore taken only in the form that servers write:
//! `+5`, `05` and `-0` are refused.
//!
//! Source: "Text Resultset Row", "Binary Protocol Resultset Row".

use super::columns::{Coding, Integer};
use wire::codec::{Reader, put_lenenc_bytes};
use wire::temporal::{Moment, Shape, Span};

/// Which protocol a result is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ResultProtocol {
    /// COM_QUERY's.
    Text,
    /// COM_STMT_EXECUTE's.
    Binary,
}

impl ResultProtocol {
    pub(crate) fn other(self) -> Self {
        match self {
            Self::Text => Self::Binary,
            Self::Binary => Self::Text,
        }
    }
}

/// NULL in a text row.
const NULL: u8 = 0xfb;
/// The NULL bitmap of a binary row begins with two unused bits.
const BITMAP_OFFSET: usize = 2;

/// Appends `row`, which is in the form other than `to`, in the form `to`. None, and anything may have been appended, when
/// it has no exact image there.
pub(crate) fn convert(row: &[u8], codings: &[Coding], to: ResultProtocol, out: &mut Vec<u8>) -> Option<()> {
    match to {
        ResultProtocol::Binary => to_binary(row, codings, out),
        ResultProtocol::Text => to_text(row, codings, out),
    }
}

fn to_binary(row: &[u8], codings: &[Coding], out: &mut Vec<u8>) -> Option<()> {
    let mut reader = Reader::new(row);
    out.push(0);
    let bitmap = out.len();
    out.resize(bitmap + (codings.len() + BITMAP_OFFSET).div_ceil(8), 0);
    for (index, coding) in codings.iter().enumerate() {
        if reader.peek() == Some(NULL) {
            reader.u8().ok()?;
            let bit = index + BITMAP_OFFSET;
            *out.get_mut(bitmap + bit / 8)? |= 1 << (bit % 8);
            continue;
        }
        put_binary(reader.lenenc_bytes().ok()?, *coding, out)?;
    }
    reader.is_empty().then_some(())
}

fn put_binary(text: &[u8], coding: Coding, out: &mut Vec<u8>) -> Option<()> {
    let mut again = Vec::new();
    match coding {
        Coding::Bytes => put_lenenc_bytes(out, text),
        Coding::Integer(integer) => put_integer(text, integer, out)?,
        Coding::Year(width) => put_year(text, width, out)?,
        Coding::Date => {
            let moment = Moment::parse(text)?;
            moment.put_text(Shape::Date, &mut again)?;
            moment.put(out);
        }
        Coding::DateTime(decimals) => {
            let moment = Moment::parse(text)?;
            moment.put_text(Shape::DateTime(decimals), &mut again)?;
            moment.put(out);
        }
        Coding::Time(decimals) => {
            let span = Span::parse(text)?;
            span.put_text(decimals, &mut again)?;
            // `-00:00:00` has a sign that the binary form would lose.
            if span.negative && (Span { negative: false, ..span }) == Span::default() {
                return None;
            }
            span.put(out);
        }
        Coding::Apart => return None,
    }
    // A date or time must come out again as it went in: with the decimals that its column has.
    let is_exact = again.is_empty() || again == text;
    is_exact.then_some(())
}

fn put_integer(text: &[u8], integer: Integer, out: &mut Vec<u8>) -> Option<()> {
    if !is_canonical(text) {
        return None;
    }
    let digits = std::str::from_utf8(text).ok()?;
    let value: i128 = digits.parse().ok()?;
    let bits = u32::try_from(integer.bytes * 8).ok()?;
    let (low, high) = if integer.is_signed { (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1) } else { (0, (1i128 << bits) - 1) };
    if !(low..=high).contains(&value) {
        return None;
    }
    out.extend_from_slice(value.to_le_bytes().get(..integer.bytes)?);
    Some(())
}

/// As servers write integers: no plus, no leading zero, no minus zero.
fn is_canonical(text: &[u8]) -> bool {
    match text {
        [b'0'] => true,
        [b'-', b'1'..=b'9', rest @ ..] | [b'1'..=b'9', rest @ ..] => rest.len() < 20 && rest.iter().all(u8::is_ascii_digit),
        _ => false,
    }
}

fn put_year(text: &[u8], width: u8, out: &mut Vec<u8>) -> Option<()> {
    if text.len() != usize::from(width) || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let year: u16 = std::str::from_utf8(text).ok()?.parse().ok()?;
    out.extend_from_slice(&year.to_le_bytes());
    Some(())
}

fn to_text(row: &[u8], codings: &[Coding], out: &mut Vec<u8>) -> Option<()> {
    let mut reader = Reader::new(row);
    if reader.u8().ok()? != 0 {
        return None;
    }
    let bitmap = reader.bytes((codings.len() + BITMAP_OFFSET).div_ceil(8)).ok()?;
    let mut text = Vec::new();
    for (index, coding) in codings.iter().enumerate() {
        let bit = index + BITMAP_OFFSET;
        if bitmap.get(bit / 8)? >> (bit % 8) & 1 == 1 {
            out.push(NULL);
            continue;
        }
        if *coding == Coding::Bytes {
            put_lenenc_bytes(out, reader.lenenc_bytes().ok()?);
            continue;
        }
        text.clear();
        put_text(&mut reader, *coding, &mut text)?;
        put_lenenc_bytes(out, &text);
    }
    reader.is_empty().then_some(())
}

fn put_text(reader: &mut Reader<'_>, coding: Coding, out: &mut Vec<u8>) -> Option<()> {
    match coding {
        Coding::Integer(integer) => {
            out.extend_from_slice(read_integer(reader, integer)?.to_string().as_bytes());
            Some(())
        }
        Coding::Year(width) => {
            let year = reader.u16().ok()?;
            let text = format!("{year:0width$}", width = usize::from(width));
            out.extend_from_slice(text.as_bytes());
            (text.len() == usize::from(width)).then_some(())
        }
        Coding::Date => Moment::read(reader)?.put_text(Shape::Date, out),
        Coding::DateTime(decimals) => Moment::read(reader)?.put_text(Shape::DateTime(decimals), out),
        Coding::Time(decimals) => Span::read(reader)?.put_text(decimals, out),
        Coding::Bytes | Coding::Apart => None,
    }
}

fn read_integer(reader: &mut Reader<'_>, integer: Integer) -> Option<i128> {
    let bytes = reader.bytes(integer.bytes).ok()?;
    let is_negative = integer.is_signed && bytes.last().is_some_and(|last| last & 0x80 != 0);
    let mut wide = [if is_negative { 0xff } else { 0 }; 16];
    wide.get_mut(..integer.bytes)?.copy_from_slice(bytes);
    Some(i128::from_le_bytes(wide))
}
