//! Rows between the protocols, against an oracle that writes both from the value.

use super::super::columns::Coding;
use super::super::columns::tests::definition;
use super::super::rows::convert;
use super::server::{EOF_CAPS, reply};
use super::*;
use proptest::prelude::*;
use wire::codec::put_lenenc_bytes;

const UNSIGNED: u16 = 32;

/// A value with its column, its text and its bytes in a binary row.
#[derive(Debug, Clone)]
struct Sample {
    definition: Vec<u8>,
    text: Vec<u8>,
    binary: Vec<u8>,
}

fn integer(type_code: u8, bytes: usize) -> impl Strategy<Value = Sample> {
    (any::<u64>(), any::<bool>()).prop_map(move |(bits, is_unsigned)| {
        let shift = 64 - 8 * bytes as u32;
        let text = if is_unsigned { (bits << shift >> shift).to_string() } else { ((bits << shift) as i64 >> shift).to_string() };
        let flags = if is_unsigned { UNSIGNED } else { 0 };
        Sample { definition: definition(type_code, flags, 20, 0), text: text.into_bytes(), binary: bits.to_le_bytes()[..bytes].to_vec() }
    })
}

fn bytes() -> impl Strategy<Value = Sample> {
    let types = prop_oneof![Just(0u8), Just(16), Just(245), Just(246), Just(247), Just(248), 249..=255u8, Just(15), Just(242)];
    (types, proptest::collection::vec(any::<u8>(), 0..300)).prop_map(|(type_code, text)| {
        let mut binary = Vec::new();
        put_lenenc_bytes(&mut binary, &text);
        Sample { definition: definition(type_code, 0, 20, 0), text, binary }
    })
}

fn year() -> impl Strategy<Value = Sample> {
    (0..=2155u16).prop_map(|year| Sample {
        definition: definition(13, UNSIGNED | 64, 4, 0),
        text: format!("{year:04}").into_bytes(),
        binary: year.to_le_bytes().to_vec(),
    })
}

fn date() -> impl Strategy<Value = Sample> {
    (0..=9999u16, 0..=12u8, 0..=31u8).prop_map(|(y, m, d)| {
        let binary = match (y, m, d) {
            (0, 0, 0) => vec![0],
            _ => [&[4], &y.to_le_bytes()[..], &[m, d]].concat(),
        };
        Sample { definition: definition(10, 0, 10, 0), text: format!("{y:04}-{m:02}-{d:02}").into_bytes(), binary }
    })
}

/// Hour, minute, second, microsecond (often 0) and the decimals that show it.
fn clock() -> impl Strategy<Value = (u8, u8, u8, u32, u8)> {
    let small = |high: u8| prop_oneof![2 => Just(0u8), 3 => 0..=high];
    (small(23), small(59), small(59), 0..1_000_000u32, 0..=6u8).prop_map(|(h, m, s, micro, decimals)| {
        let scale = 10u32.pow(6 - u32::from(decimals));
        (h, m, s, micro / scale * scale % 1_000_000, decimals)
    })
}

fn fraction(micro: u32, decimals: u8) -> String {
    let digits = format!("{micro:06}");
    if decimals == 0 { String::new() } else { format!(".{}", &digits[..usize::from(decimals)]) }
}

fn datetime() -> impl Strategy<Value = Sample> {
    let date = prop_oneof![1 => Just((0u16, 0u8, 0u8)), 5 => (0..=9999u16, 0..=12u8, 0..=31u8)];
    (prop_oneof![Just(7u8), Just(12)], date, clock()).prop_map(|(type_code, (y, mo, d), (h, mi, s, micro, decimals))| {
        let mut fields = [&y.to_le_bytes()[..], &[mo, d, h, mi, s], &micro.to_le_bytes()].concat();
        fields.truncate(match () {
            () if micro != 0 => 11,
            () if (h, mi, s) != (0, 0, 0) => 7,
            () if (y, mo, d) != (0, 0, 0) => 4,
            () => 0,
        });
        let text = format!("{y:04}-{mo:02}-{d:02} {h:02}:{mi:02}:{s:02}{}", fraction(micro, decimals));
        let binary = [&[fields.len() as u8], &fields[..]].concat();
        Sample { definition: definition(type_code, 0, 26, decimals), text: text.into_bytes(), binary }
    })
}

fn time() -> impl Strategy<Value = Sample> {
    (any::<bool>(), 0..=34u32, clock()).prop_map(|(negative, days, (h, mi, s, micro, decimals))| {
        let is_zero = (days, h, mi, s, micro) == (0, 0, 0, 0, 0);
        let negative = negative && !is_zero;
        let mut fields = [&[u8::from(negative)], &days.to_le_bytes()[..], &[h, mi, s], &micro.to_le_bytes()].concat();
        fields.truncate(match () {
            () if is_zero => 0,
            () if micro == 0 => 8,
            () => 12,
        });
        let hours = days * 24 + u32::from(h);
        let text = format!("{}{hours:02}:{mi:02}:{s:02}{}", if negative { "-" } else { "" }, fraction(micro, decimals));
        let binary = [&[fields.len() as u8], &fields[..]].concat();
        Sample { definition: definition(11, 0, 10, decimals), text: text.into_bytes(), binary }
    })
}

fn sample() -> impl Strategy<Value = Sample> {
    prop_oneof![integer(1, 1), integer(2, 2), integer(3, 4), integer(9, 4), integer(8, 8), bytes(), year(), date(), datetime(), time(),]
}

/// The row in text and in binary form, written from the samples.
fn rows(samples: &[(Sample, bool)]) -> (Vec<u8>, Vec<u8>) {
    let values: Vec<_> = samples.iter().map(|(sample, is_null)| (!is_null).then_some(&sample.text[..])).collect();
    let mut binary = vec![0; 1 + (samples.len() + 9) / 8];
    for (index, (sample, is_null)) in samples.iter().enumerate() {
        match is_null {
            true => binary[1 + (index + 2) / 8] |= 1 << ((index + 2) % 8),
            false => binary.extend_from_slice(&sample.binary),
        }
    }
    (text_row(&values), binary)
}

proptest! {
    #[test]
    fn rows_cross_exactly_both_ways(samples in proptest::collection::vec((sample(), proptest::bool::weighted(0.2)), 1..20)) {
        let codings: Vec<_> = samples.iter().map(|(sample, _)| Coding::of(&sample.definition).unwrap()).collect();
        let (text, binary) = rows(&samples);
        for (from, to, form) in [(&text, &binary, ResultProtocol::Binary), (&binary, &text, ResultProtocol::Text)] {
            let mut out = Vec::new();
            convert(from, &codings, form, &mut out).unwrap();
            prop_assert_eq!(&out, to);
        }
    }

    /// What is taken from text comes back as the same text, so nothing is taken that would change.
    #[test]
    fn odd_text_is_refused_or_kept(sample in sample(), text in "[-+]?[0-9]{0,6}([-:. ][0-9]{0,3}){0,6}") {
        let codings = [Coding::of(&sample.definition).unwrap()];
        let row = text_row(&[Some(text.as_bytes())]);
        let (mut binary, mut again) = (Vec::new(), Vec::new());
        if convert(&row, &codings, ResultProtocol::Binary, &mut binary).is_some() {
            convert(&binary, &codings, ResultProtocol::Text, &mut again).unwrap();
            prop_assert_eq!(again, row);
        }
    }

    #[test]
    fn no_bytes_panic(row: Vec<u8>, samples in proptest::collection::vec(sample(), 0..5)) {
        let codings: Vec<_> = samples.iter().map(|sample| Coding::of(&sample.definition).unwrap()).collect();
        let _ = convert(&row, &codings, ResultProtocol::Binary, &mut Vec::new());
        let _ = convert(&row, &codings, ResultProtocol::Text, &mut Vec::new());
    }
}

#[test]
fn text_that_servers_do_not_write_is_refused() {
    let refused = |type_code, text: &str| {
        let codings = [Coding::of(&definition(type_code, 0, 4, 0)).unwrap()];
        convert(&text_row(&[Some(text.as_bytes())]), &codings, ResultProtocol::Binary, &mut Vec::new()).is_none()
    };
    for text in ["+5", "05", "-0", "", "5 ", "128", "-129"] {
        assert!(refused(1, text), "{text}");
    }
    for text in ["2024-1-01", "2024-01-01 ", "0000-00-00 00:00:00"] {
        assert!(refused(10, text), "{text}");
    }
    for text in ["-00:00:00", "1:00:00", "001:00:00", "00:00:00.5"] {
        assert!(refused(11, text), "{text}");
    }
    assert!(refused(5, "1.5"));
}

/// Fetches in `form` and asks in the other.
fn across(definition: Vec<u8>, row: Vec<u8>, form: ResultProtocol) -> (Arc<QueryCache>, Look) {
    let cache = cache(|_| {});
    let found = cache.look(key(&cache, "q"), form, TTL, 0);
    let Look::Lead(mut fill) = found else { panic!() };
    fill.feed(&reply(&[definition], &[row], EOF_CAPS));
    fill.finish(EOF_CAPS, 0).unwrap();
    let other = cache.look(key(&cache, "q"), form.other(), TTL, 0);
    (cache, other)
}

#[test]
fn an_entry_answers_the_other_protocol() {
    let (_, found) = across(column(3), text_row(&[Some(b"7")]), ResultProtocol::Text);
    let Look::Hit(entry) = found else { panic!() };
    let mut out = Vec::new();
    entry.write_reply(ResultProtocol::Binary, Default::default(), &mut out).unwrap();
    assert_eq!(server::payloads(&out)[2], b"\0\0\x07\0\0\0");
}

#[test]
fn where_values_would_change_each_protocol_has_its_own_entry() {
    let (cache, found) = across(column(5), text_row(&[Some(b"0.1")]), ResultProtocol::Text);
    let binary = [&[0, 0], &0.1f64.to_le_bytes()[..]].concat();
    let Look::Lead(mut fill) = found else { panic!() };
    fill.feed(&reply(&[column(5)], std::slice::from_ref(&binary), EOF_CAPS));
    fill.finish(EOF_CAPS, 0).unwrap();
    for (form, row) in [(ResultProtocol::Text, b"\x030.1".to_vec()), (ResultProtocol::Binary, binary)] {
        let Look::Hit(entry) = cache.look(key(&cache, "q"), form, TTL, 0) else { panic!() };
        let mut out = Vec::new();
        entry.write_reply(form, Default::default(), &mut out).unwrap();
        assert_eq!(server::payloads(&out)[2], row);
    }
    assert_eq!(value(&cache, "Entries"), 2);
    // A NULL is the same everywhere.
    let (_, found) = across(column(5), text_row(&[None]), ResultProtocol::Text);
    assert!(matches!(found, Look::Hit(_)));
}
