use super::*;

/// A record of each kind.
pub(crate) fn samples() -> Vec<Record<'static>> {
    let timing = Timing { after: 4, seq: 9, begin_us: 1_000_000, time_us: 250 };
    let answer = Answer {
        error: None,
        columns: Columns { count: 2, names: 1, types: 2, lengths: 3, flags: 4, charsets: 5 },
        rows: 3,
        affected: 0,
        insert_id: 0,
        warnings: 1,
        sum: 7,
        exact: 8,
        sequence: 9,
        is_whole: true,
        without: None,
    };
    let params = Params { count: 1, nulls: &[0], types: (&[3, 0][..]).into(), values: &[5, 0, 0, 0] };
    let whats = [
        (What::Query(b"SELECT 'a'"), Some(answer)),
        (What::Prepare { statement: 3, text: b"SELECT ?" }, Some(Answer::of_error(1064))),
        (What::Execute { statement: 3, params }, Some(Answer { affected: 2, insert_id: 70_000, ..Answer::default() })),
        (What::LongData { statement: 3, parameter: 0, bytes: b"long" }, None),
        (What::CloseStatement(3), None),
        (What::ResetStatement(3), None),
        (What::Reset(vec![b"SET a = 1"]), None),
        (What::InitDb(b"shop"), None),
        (What::ChangeUser { user: b"bert" }, None),
        (What::SetOption(1), None),
        (What::Withheld { why: Withheld::Password, digest: b"SET PASSWORD = ?" }, Some(Answer { is_whole: false, ..Answer::default() })),
    ];
    let start = SessionStart { session: 7, user: b"anna", schema: b"shop", capabilities: 77, setup: vec![b"SET a = 1", b""] };
    let mut all = vec![Record::Session(start)];
    all.extend(whats.into_iter().map(|(what, reply)| Record::Command(Command { session: 7, timing, what, reply })));
    all.extend([Record::Gap(Gap { session: 7, why: GapReason::TooLong }), Record::End { session: 7 }]);
    all
}

fn encoded(record: &Record<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    record.encode(&mut out);
    out
}

#[test]
fn records_are_read_as_they_were_written() {
    for record in samples() {
        let bytes = encoded(&record);
        let mut reader = Reader::new(&bytes);
        assert_eq!(Record::decode(&mut reader).unwrap(), Some(record));
        assert!(reader.is_empty());
    }
}

#[test]
fn a_record_that_is_cut_is_an_error() {
    for record in samples() {
        let bytes = encoded(&record);
        for end in 0..bytes.len() {
            assert!(Record::decode(&mut Reader::new(&bytes[..end])).is_err(), "{record:?} at {end}");
        }
        // The body is shorter than what stands in it.
        for end in 2..bytes.len() {
            let mut short = vec![bytes[0]];
            put_lenenc_bytes(&mut short, &bytes[2..end]);
            let _ = Record::decode(&mut Reader::new(&short));
        }
    }
}

#[test]
fn what_is_not_known_is_skipped() {
    let mut bytes = vec![200];
    put_lenenc_bytes(&mut bytes, b"of a newer version");
    bytes.extend(encoded(&Record::End { session: 7 }));
    let mut reader = Reader::new(&bytes);
    assert_eq!(Record::decode(&mut reader).unwrap(), None);
    assert_eq!(Record::decode(&mut reader).unwrap(), Some(Record::End { session: 7 }));
    assert_eq!((Withheld::of_number(99), GapReason::of_number(99)), (Withheld::Other, GapReason::Other));
    for why in Withheld::ALL {
        assert_eq!(Withheld::of_number(why.number()), *why);
    }
}

#[test]
fn a_command_cannot_end_before_it_began() {
    let command = |after, seq| {
        let what = What::CloseStatement(1);
        encoded(&Record::Command(Command { session: 1, timing: Timing { after, seq, ..Timing::default() }, what, reply: None }))
    };
    assert!(Record::decode(&mut Reader::new(&command(0, 0))).is_err());
    let read = command(5, 5);
    let Ok(Some(Record::Command(read))) = Record::decode(&mut Reader::new(&read)) else { panic!("it is a command") };
    assert!(read.timing.after < read.timing.seq, "whatever stands there");
}

#[test]
fn a_list_has_no_more_texts_than_bytes() {
    // A RESET of session 1 without an answer, and a list of 3 texts in 2 bytes.
    let record = [22, 9, 1, 1, 1, 0, 0, 0, 3, 0, 0];
    let read = Record::decode(&mut Reader::new(&record));
    assert!(read.is_err_and(|e| e.to_string().contains("more texts")));
}
