//! Dates and times between their text and their binary form.
//!
//! Source: "Binary Protocol Value", and the text that servers send: `YYYY-MM-DD`, `YYYY-MM-DD HH:MM:SS[.f]`, `[-]HH:MM:SS[.f]`
//! with as many decimals as the column definition says. Nothing is checked against a calendar: servers send `0000-00-00`
//! and `2024-02-30` too. What does not fit a form exactly is `None`.

use crate::codec::{Reader, put_u16, put_u32};

/// What a text form shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// The date only.
    Date,
    /// Date and time, with so many decimals of a second (0..=6).
    DateTime(u8),
}

/// A DATE, DATETIME or TIMESTAMP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// 0..=9999.
    pub year: u16,
    /// 0..=99, as all that follow but the last.
    pub month: u8,
    /// Day of the month.
    pub day: u8,
    /// Time of the day.
    pub clock: Clock,
}

/// A TIME: a signed span.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Below zero.
    pub negative: bool,
    /// Whole days.
    pub days: u32,
    /// What is left of a day.
    pub clock: Clock,
}

/// Hours, minutes, seconds, microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clock {
    /// Hour, 0..=99.
    pub hour: u8,
    /// Minute, 0..=99.
    pub minute: u8,
    /// Second, 0..=99.
    pub second: u8,
    /// Microsecond, 0..=999999.
    pub micro: u32,
}

const HOURS_A_DAY: u32 = 24;
/// Digits of a fraction of a second.
const FRACTION: usize = 6;

impl Moment {
    /// Reads the binary form, its length first.
    pub fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let len = reader.u8().ok()?;
        let mut moment = Self::default();
        match len {
            0 => return Some(moment),
            4 | 7 | 11 => {}
            _ => return None,
        }
        moment.year = reader.u16().ok()?;
        moment.month = reader.u8().ok()?;
        moment.day = reader.u8().ok()?;
        if len > 4 {
            moment.clock.read_time(reader)?;
        }
        if len > 7 {
            moment.clock.micro = reader.u32().ok()?;
        }
        Some(moment)
    }

    /// Appends the binary form, as short as servers make it.
    pub fn put(&self, out: &mut Vec<u8>) {
        let len = match self {
            moment if moment.clock.micro != 0 => 11,
            moment if moment.clock != Clock::default() => 7,
            moment if *moment != Self::default() => 4,
            _ => 0,
        };
        out.push(len);
        if len > 0 {
            put_u16(out, self.year);
            out.extend_from_slice(&[self.month, self.day]);
        }
        if len > 4 {
            self.clock.put_time(out);
        }
        if len > 7 {
            put_u32(out, self.clock.micro);
        }
    }

    /// Reads the text of a date, or of date and time.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let (date, time) = match text.split_at_checked(10)? {
            (date, []) => (date, None),
            (date, [b' ', time @ ..]) => (date, Some(time)),
            _ => return None,
        };
        let [year @ .., b'-', m1, m2, b'-', d1, d2] = date else { return None };
        let mut moment = Self { year: number(year)?.try_into().ok()?, month: two(*m1, *m2)?, day: two(*d1, *d2)?, clock: Clock::default() };
        if let Some(time) = time {
            let (hours, rest) = time.split_at_checked(2)?;
            moment.clock = Clock::parse(number(hours)?.try_into().ok()?, rest)?;
        }
        Some(moment)
    }

    /// Appends the text; None, and anything may have been appended, when the shape would lose something.
    pub fn put_text(&self, shape: Shape, out: &mut Vec<u8>) -> Option<()> {
        put_digits(out, u32::from(self.year), 4)?;
        out.push(b'-');
        put_digits(out, u32::from(self.month), 2)?;
        out.push(b'-');
        put_digits(out, u32::from(self.day), 2)?;
        match shape {
            Shape::Date => (self.clock == Clock::default()).then_some(()),
            Shape::DateTime(decimals) => {
                out.push(b' ');
                put_digits(out, u32::from(self.clock.hour), 2)?;
                self.clock.put_text(decimals, out)
            }
        }
    }
}

impl Span {
    /// Reads the binary form, its length first.
    pub fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let len = reader.u8().ok()?;
        let mut span = Self::default();
        match len {
            0 => return Some(span),
            8 | 12 => {}
            _ => return None,
        }
        span.negative = reader.u8().ok()? != 0;
        span.days = reader.u32().ok()?;
        span.clock.read_time(reader)?;
        if len > 8 {
            span.clock.micro = reader.u32().ok()?;
        }
        Some(span)
    }

    /// Appends the binary form, as short as servers make it.
    pub fn put(&self, out: &mut Vec<u8>) {
        let is_zero = self.days == 0 && self.clock == Clock::default();
        let len = match self.clock.micro {
            _ if is_zero => 0,
            0 => 8,
            _ => 12,
        };
        out.push(len);
        if len > 0 {
            out.push(u8::from(self.negative));
            put_u32(out, self.days);
            self.clock.put_time(out);
        }
        if len > 8 {
            put_u32(out, self.clock.micro);
        }
    }

    /// Reads the text: an optional sign, 2 to 4 digits of hours, minutes, seconds, and up to 6 decimals.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let (negative, text) = match text {
            [b'-', rest @ ..] => (true, rest),
            _ => (false, text),
        };
        let colon = text.iter().position(|byte| *byte == b':').filter(|at| (2..=4).contains(at))?;
        let (hours, rest) = text.split_at_checked(colon)?;
        let hours = number(hours)?;
        let clock = Clock::parse((hours % HOURS_A_DAY).try_into().ok()?, rest)?;
        Some(Self { negative, days: hours / HOURS_A_DAY, clock })
    }

    /// Appends the text; None, and anything may have been appended, when it would lose something.
    pub fn put_text(&self, decimals: u8, out: &mut Vec<u8>) -> Option<()> {
        if self.negative {
            out.push(b'-');
        }
        let hours = self.days.checked_mul(HOURS_A_DAY)?.checked_add(u32::from(self.clock.hour))?;
        put_digits(out, hours, if hours > 99 { 3 } else { 2 })?;
        self.clock.put_text(decimals, out)
    }
}

impl Clock {
    fn read_time(&mut self, reader: &mut Reader<'_>) -> Option<()> {
        let [hour, minute, second] = reader.array().ok()?;
        (self.hour, self.minute, self.second) = (hour, minute, second);
        Some(())
    }

    fn put_time(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[self.hour, self.minute, self.second]);
    }

    /// Reads `:MM:SS[.f]`.
    fn parse(hour: u8, text: &[u8]) -> Option<Self> {
        let (time, fraction) = text.split_at_checked(6)?;
        let [b':', m1, m2, b':', s1, s2] = time else { return None };
        let micro = match fraction {
            [] => 0,
            [b'.', digits @ ..] if (1..=FRACTION).contains(&digits.len()) => {
                let scale = 10u32.pow(u32::try_from(FRACTION - digits.len()).ok()?);
                number(digits)? * scale
            }
            _ => return None,
        };
        Some(Self { hour, minute: two(*m1, *m2)?, second: two(*s1, *s2)?, micro })
    }

    /// Appends `:MM:SS[.f]`.
    fn put_text(&self, decimals: u8, out: &mut Vec<u8>) -> Option<()> {
        out.push(b':');
        put_digits(out, u32::from(self.minute), 2)?;
        out.push(b':');
        put_digits(out, u32::from(self.second), 2)?;
        let hidden = FRACTION.checked_sub(usize::from(decimals))?;
        let scale = 10u32.pow(u32::try_from(hidden).ok()?);
        if !self.micro.is_multiple_of(scale) {
            return None;
        }
        if decimals > 0 {
            out.push(b'.');
            put_digits(out, self.micro / scale, usize::from(decimals))?;
        }
        Some(())
    }
}

fn two(tens: u8, ones: u8) -> Option<u8> {
    number(&[tens, ones])?.try_into().ok()
}

/// Digits only, nine at most.
fn number(digits: &[u8]) -> Option<u32> {
    if digits.is_empty() || digits.len() > 9 {
        return None;
    }
    digits.iter().try_fold(0, |sum, byte| byte.is_ascii_digit().then(|| sum * 10 + u32::from(byte - b'0')))
}

/// Exactly `width` digits; None when the value is wider.
fn put_digits(out: &mut Vec<u8>, value: u32, width: usize) -> Option<()> {
    let mut left = value;
    let start = out.len();
    out.resize(start + width, b'0');
    for place in out.get_mut(start..)?.iter_mut().rev() {
        *place += u8::try_from(left % 10).ok()?;
        left /= 10;
    }
    (left == 0).then_some(())
}
