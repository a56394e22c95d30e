use super::*;
use proptest::prelude::*;
use wire::codec::{put_lenenc_bytes, put_u16, put_u32};

const PLAIN: Capabilities = Capabilities::PROTOCOL_41;
const BIGINT: u8 = 8;
const DOUBLE: u8 = 5;
const VARCHAR: u8 = 253;

fn packets(payloads: &[Vec<u8>]) -> Vec<u8> {
    let (mut out, mut seq) = (Vec::new(), 1);
    payloads.iter().for_each(|payload| packet::put_packet(&mut out, &mut seq, payload));
    out
}

fn definition(name: &str, kind: u8, length: u32, flags: u16) -> Vec<u8> {
    let mut out = Vec::new();
    for part in ["def", "s", "t", "t", name, name] {
        put_lenenc_bytes(&mut out, part.as_bytes());
    }
    out.push(0x0c);
    put_u16(&mut out, 45);
    put_u32(&mut out, length);
    out.push(kind);
    put_u16(&mut out, flags);
    out.extend_from_slice(&[0, 0, 0]);
    out
}

/// Rows of a BIGINT and a VARCHAR.
type Rows = Vec<(i64, Option<String>)>;

fn reply(rows: &Rows, form: Form, caps: Capabilities) -> Vec<u8> {
    let is_new = caps.contains(Capabilities::DEPRECATE_EOF);
    let mut all = vec![vec![2], definition("a", BIGINT, 20, 0), definition("b", VARCHAR, 40, 0)];
    if !is_new {
        all.push(vec![0xfe, 0, 0, 2, 0]);
    }
    for (number, text) in rows {
        let mut row = Vec::new();
        match form {
            Form::Text => {
                put_lenenc_bytes(&mut row, number.to_string().as_bytes());
                match text {
                    None => row.push(0xfb),
                    Some(text) => put_lenenc_bytes(&mut row, text.as_bytes()),
                }
            }
            Form::Binary => {
                row.extend_from_slice(&[0, if text.is_none() { 1 << 3 } else { 0 }]);
                row.extend_from_slice(&number.to_le_bytes());
                text.iter().for_each(|text| put_lenenc_bytes(&mut row, text.as_bytes()));
            }
        }
        all.push(row);
    }
    all.push(if is_new { vec![0xfe, 0, 0, 2, 0, 3, 0] } else { vec![0xfe, 3, 0, 2, 0] });
    packets(&all)
}

fn read(bytes: &[u8], form: Form, caps: Capabilities) -> Option<Answer> {
    let mut reader = AnswerReader::new(form, caps);
    reader.feed(bytes);
    reader.finish()
}

fn answer(rows: &Rows) -> Answer {
    read(&reply(rows, Form::Text, PLAIN), Form::Text, PLAIN).unwrap()
}

fn some_rows() -> Rows {
    vec![(1, Some("one".into())), (-2, None), (3, Some(String::new())), (3, Some("three".into()))]
}

#[test]
fn protocols_and_framings_say_the_same() {
    let (rows, new) = (some_rows(), PLAIN | Capabilities::DEPRECATE_EOF);
    let text = answer(&rows);
    assert_eq!((text.rows, text.warnings, text.columns.count, text.error, text.is_whole), (4, 3, 2, None, true));
    for (form, caps) in [(Form::Text, new), (Form::Binary, PLAIN), (Form::Binary, new)] {
        assert_eq!(read(&reply(&rows, form, caps), form, caps).as_ref(), Some(&text), "{form:?}");
    }
}

#[test]
fn the_order_of_rows_is_in_the_sequence_only() {
    let mut rows = some_rows();
    let (one, _) = (answer(&rows), rows.reverse());
    let other = answer(&rows);
    assert_eq!((one.sum, one.exact, one.rows), (other.sum, other.exact, other.rows));
    assert_ne!(one.sequence, other.sequence);
}

#[test]
fn a_row_that_is_there_twice_counts_twice() {
    let once = answer(&vec![(1, None), (2, None)]);
    let twice = answer(&vec![(1, None), (1, None)]);
    assert_ne!(once.sum, twice.sum);
    assert_ne!(answer(&vec![(2, None), (2, None)]).sum, twice.sum);
}

#[test]
fn each_part_of_a_definition_is_seen() {
    let of = |name: &str, kind: u8, length: u32, flags: u16| {
        let bytes = packets(&[vec![1], definition(name, kind, length, flags), vec![0xfe, 0, 0, 2, 0], vec![0xfe, 0, 0, 2, 0]]);
        read(&bytes, Form::Text, PLAIN).unwrap().columns
    };
    let base = of("a", BIGINT, 20, 0);
    assert_eq!(base.differences(&of("a", BIGINT, 20, 0)), Vec::<&str>::new());
    for (other, expected) in [
        (of("b", BIGINT, 20, 0), ["names"]),
        (of("a", 3, 20, 0), ["types"]),
        (of("a", BIGINT, 21, 0), ["lengths"]),
        (of("a", BIGINT, 20, 32), ["flags"]),
    ] {
        assert_eq!(base.differences(&other), expected);
    }
}

#[test]
fn digits_of_floats_are_in_the_exact_sum_only() {
    let of = |value: &str| {
        let mut row = Vec::new();
        put_lenenc_bytes(&mut row, value.as_bytes());
        let end = vec![0xfe, 0, 0, 2, 0];
        read(&packets(&[vec![1], definition("a", DOUBLE, 20, 0), end.clone(), row, end]), Form::Text, PLAIN).unwrap()
    };
    let (one, other) = (of("0.33333333333333"), of("0.33333333333334"));
    assert_eq!((one.sum, one.sequence), (other.sum, other.sequence));
    assert_ne!(one.exact, other.exact);
}

#[test]
fn errors_and_plain_answers() {
    let error = read(&packets(&[b"\xff\x7a\x04#42S02Table 'x' does not exist".to_vec()]), Form::Text, PLAIN).unwrap();
    assert_eq!(error, Answer::of_error(1146));
    let ok = read(&packets(&[vec![0, 1, 0, 2, 0, 5, 0]]), Form::Text, PLAIN).unwrap();
    assert_eq!((ok.error, ok.rows, ok.warnings), (None, 0, 5));
}

#[test]
fn what_cannot_be_read_is_no_answer() {
    let whole = reply(&some_rows(), Form::Text, PLAIN);
    for len in 0..whole.len() {
        assert_eq!(read(whole.get(..len).unwrap(), Form::Text, PLAIN), None, "{len}");
    }
    // Rows of the other protocol.
    assert_eq!(read(&whole, Form::Binary, PLAIN), None);
    assert_eq!(read(&packets(&[b"\xfbfile".to_vec()]), Form::Text, PLAIN), None);
}

#[test]
fn a_row_that_is_too_long_is_passed_over() {
    let mut row = vec![1, b'1'];
    put_lenenc_bytes(&mut row, &vec![b'x'; MAX_ROW + 1]);
    let end = vec![0xfe, 0, 0, 2, 0];
    let columns = [definition("a", BIGINT, 20, 0), definition("b", VARCHAR, 40, 0)];
    let bytes = packets(&[vec![2], columns[0].clone(), columns[1].clone(), end.clone(), row, end]);
    for cut in [0, 100, bytes.len() / 2, bytes.len() - 1] {
        let mut reader = AnswerReader::new(Form::Text, PLAIN);
        reader.feed(&bytes[..cut]);
        reader.feed(&bytes[cut..]);
        let answer = reader.finish().unwrap();
        assert_eq!((answer.rows, answer.is_whole), (1, false));
    }
}

fn any_rows() -> impl Strategy<Value = Rows> {
    proptest::collection::vec((any::<i64>(), proptest::option::of("[a-z0-9 ]{0,12}")), 1..12)
}

proptest! {
    /// The mutation test: one value off is seen, in whichever row and column.
    #[test]
    fn one_value_off_is_seen(rows in any_rows(), at in any::<prop::sample::Index>(), in_text in any::<bool>(), by in 1_i64..1000) {
        let before = answer(&rows);
        let mut changed = rows.clone();
        let place = at.index(rows.len());
        if in_text {
            changed[place].1 = Some(changed[place].1.as_ref().map_or("x".to_owned(), |text| format!("{text}x")));
        } else {
            changed[place].0 = changed[place].0.wrapping_add(by);
        }
        let after = answer(&changed);
        prop_assert_ne!(before.sum, after.sum);
        prop_assert_ne!(before.exact, after.exact);
        prop_assert_eq!(before.rows, after.rows);
    }

    /// However the bytes arrive.
    #[test]
    fn pieces_do_not_matter(rows in any_rows(), cuts in proptest::collection::vec(1_usize..40, 1..60), is_binary in any::<bool>()) {
        let form = if is_binary { Form::Binary } else { Form::Text };
        let bytes = reply(&rows, form, PLAIN);
        let mut reader = AnswerReader::new(form, PLAIN);
        let (mut at, mut cuts) = (0, cuts.into_iter().cycle());
        while at < bytes.len() {
            let end = (at + cuts.next().unwrap()).min(bytes.len());
            reader.feed(&bytes[at..end]);
            at = end;
        }
        prop_assert_eq!(reader.finish(), read(&bytes, form, PLAIN));
    }

    /// Bytes from a hostile server never panic.
    #[test]
    fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..200), is_binary in any::<bool>()) {
        let _ = read(&bytes, if is_binary { Form::Binary } else { Form::Text }, PLAIN);
    }
}
