//! How many rows an event of rows has: values are passed over by the lengths that their types have. Pure.
//!
//! <https://dev.mysql.com/doc/dev/mysql-server/latest/classbinary__log_1_1Table__map__event.html>, `Rows_event`.

/// Of both flavors: version 1, then version 2 with more data in the head. Compressed ones (MariaDB) are none of these.
const ROWS: [u8; 7] = [23, 24, 25, 30, 31, 32, 39];
const UPDATES: [u8; 2] = [24, 31];
const VERSION_2: [u8; 3] = [30, 31, 32];

/// Whether it is an event of rows, of any kind.
pub(super) fn is_rows(kind: u8) -> bool {
    ROWS.contains(&kind) || (166..=171).contains(&kind)
}

/// The columns of a table, as its map has them.
#[derive(Debug, Clone)]
pub(super) struct Layout(Vec<Width>);

/// The bytes of a value.
#[derive(Debug, Clone, Copy)]
enum Width {
    Fixed(usize),
    /// Behind a length of so many bytes.
    Counted(usize),
}

impl Layout {
    /// From the number of columns on; None for a type that is not known.
    pub(super) fn parse(map: &[u8]) -> Option<Self> {
        let mut input = Input(map);
        let count = input.number()?;
        let types = input.take(count)?;
        let meta_len = input.number()?;
        let mut meta = Input(input.take(meta_len)?);
        types.iter().map(|kind| width(*kind, &mut meta)).collect::<Option<_>>().map(Self)
    }
}

/// None where the event cannot be followed.
pub(super) fn count(kind: u8, body: &[u8], layout: &Layout) -> Option<u64> {
    if !ROWS.contains(&kind) || kind == 39 {
        return None;
    }
    // Table and flags.
    let mut input = Input(body.get(8..)?);
    if VERSION_2.contains(&kind) {
        let more = usize::from(u16::from_le_bytes(input.take(2)?.try_into().ok()?));
        input.take(more.checked_sub(2)?)?;
    }
    let columns = input.number()?;
    if columns != layout.0.len() {
        return None;
    }
    let first = input.take(columns.div_ceil(8))?;
    let images = if UPDATES.contains(&kind) { vec![first, input.take(columns.div_ceil(8))?] } else { vec![first] };
    let mut rows = 0;
    while !input.0.is_empty() {
        let before = input.0.len();
        for present in &images {
            image(&mut input, layout, present)?;
        }
        // A row without columns: more of them would never end.
        if input.0.len() == before {
            return None;
        }
        rows += 1;
    }
    Some(rows)
}

fn image(input: &mut Input<'_>, layout: &Layout, present: &[u8]) -> Option<()> {
    let is_set = |bits: &[u8], place: usize| bits.get(place / 8).is_some_and(|byte| byte & (1 << (place % 8)) != 0);
    let columns: Vec<Width> = layout.0.iter().enumerate().filter(|(place, _)| is_set(present, *place)).map(|(_, width)| *width).collect();
    let nulls = input.take(columns.len().div_ceil(8))?;
    for (_, width) in columns.into_iter().enumerate().filter(|(place, _)| !is_set(nulls, *place)) {
        let bytes = match width {
            Width::Fixed(bytes) => bytes,
            Width::Counted(bytes) => little(input.take(bytes)?),
        };
        input.take(bytes)?;
    }
    Some(())
}

fn width(kind: u8, meta: &mut Input<'_>) -> Option<Width> {
    use Width::{Counted, Fixed};
    let fraction = |meta: &mut Input<'_>, whole: usize| Some(Fixed(whole + usize::from(*meta.take(1)?.first()?).div_ceil(2)));
    Some(match kind {
        // TINY, YEAR; SHORT; INT24, DATE, TIME; LONG, TIMESTAMP; LONGLONG, DATETIME.
        1 | 13 => Fixed(1),
        2 => Fixed(2),
        9..=11 => Fixed(3),
        3 | 7 => Fixed(4),
        8 | 12 => Fixed(8),
        // FLOAT, DOUBLE: their size.
        4 | 5 => Fixed(usize::from(*meta.take(1)?.first()?)),
        // TIMESTAMP2, DATETIME2, TIME2: with fractions of a second.
        17 => fraction(meta, 4)?,
        18 => fraction(meta, 5)?,
        19 => fraction(meta, 3)?,
        // VARCHAR: its greatest length.
        15 => Counted(if little(meta.take(2)?) > 255 { 2 } else { 1 }),
        // BIT: bits, bytes.
        16 => {
            let [bits, bytes] = meta.take(2)? else { return None };
            Fixed(usize::from(*bytes) + usize::from(*bits > 0))
        }
        // VECTOR, JSON, BLOB, GEOMETRY: the size of their length.
        242 | 245 | 252 | 255 => Counted(usize::from(*meta.take(1)?.first()?)),
        // NEWDECIMAL: digits, and those behind the point.
        246 => {
            let [digits, scale] = meta.take(2)? else { return None };
            Fixed(decimal(usize::from(*digits).checked_sub(usize::from(*scale))?) + decimal(usize::from(*scale)))
        }
        // STRING, which ENUM and SET are too.
        254 => {
            let [real, length] = meta.take(2)? else { return None };
            string(*real, *length)
        }
        _ => return None,
    })
}

/// Nine digits take four bytes.
fn decimal(digits: usize) -> usize {
    const REST: [usize; 9] = [0, 1, 1, 2, 2, 3, 3, 4, 4];
    digits / 9 * 4 + REST[digits % 9]
}

/// Long CHARs keep two bits of their length in the type.
fn string(real: u8, length: u8) -> Width {
    if real == 247 || real == 248 {
        return Width::Fixed(usize::from(length));
    }
    let greatest = if real & 0x30 == 0x30 { usize::from(length) } else { usize::from(length) | (usize::from((real & 0x30) ^ 0x30) << 4) };
    Width::Counted(if greatest > 255 { 2 } else { 1 })
}

fn little(bytes: &[u8]) -> usize {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | usize::from(*byte))
}

struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    /// An integer of variable length.
    fn number(&mut self) -> Option<usize> {
        match *self.take(1)?.first()? {
            small @ 0..=250 => Some(usize::from(small)),
            252 => Some(little(self.take(2)?)),
            253 => Some(little(self.take(3)?)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_all_widths_are_passed_over() {
        // INT, VARCHAR(300), DECIMAL(12,2), DATETIME(3), CHAR(10), BLOB, BIT(9).
        let types = [3, 15, 246, 18, 254, 252, 16];
        let meta = [44, 1, 12, 2, 3, 254, 10, 2, 1, 1];
        let layout = Layout::parse(&[&[7][..], &types, &[10], &meta].concat()).unwrap();
        let row = |nulls: u8| {
            let values: [&[u8]; 7] = [&[1; 4], &[2, 0, 9, 9], &[0; 6], &[0; 7], &[1, b'x'], &[3, 0, 1, 2, 3], &[0; 2]];
            let there = values.iter().enumerate().filter(|(place, _)| nulls & (1 << place) == 0);
            [&[nulls][..], &there.flat_map(|(_, value)| value.iter().copied()).collect::<Vec<u8>>()].concat()
        };
        let event = |kind: u8, rows: &[Vec<u8>]| {
            let head = if UPDATES.contains(&kind) { vec![7, 0x7f, 0x7f] } else { vec![7, 0x7f] };
            let more = if VERSION_2.contains(&kind) { vec![2, 0] } else { Vec::new() };
            count(kind, &[vec![0; 8], more, head, rows.concat()].concat(), &layout)
        };
        assert_eq!(event(30, &[row(0), row(0b101_0010), row(0x7f)]), Some(3));
        assert_eq!(event(23, &[row(0)]), Some(1));
        assert_eq!(event(31, &[row(0), row(2), row(0), row(4)]), Some(2), "before and after");
        assert_eq!(event(25, &[]), Some(0));
        assert_eq!(event(30, &[vec![0, 1]]), None, "too short");
        assert_eq!(event(166, &[row(0)]), None, "compressed");
        let none_present = [&[0; 8][..], &[2, 0, 7, 0], &row(0)].concat();
        assert_eq!(count(30, &none_present, &layout), None, "rows without columns have no end");
        let none = Layout::parse(&[0, 0]).unwrap();
        assert_eq!(count(30, &[&[0; 8][..], &[2, 0, 0, 9]].concat(), &none), None, "nor have those of a table without columns");
        assert!(Layout::parse(&[1, 141, 0]).is_none(), "a type of MariaDB alone");
        assert_eq!([0, 2, 9, 10, 18].map(decimal), [0, 1, 4, 5, 8]);
    }
}
