use super::*;
use crate::header::ServerAt;
use crate::record::tests::samples;
use crate::seal;
use crate::writer::{FRAME, Writer};

fn header() -> Header {
    let servers = vec![ServerAt { hostgroup: 1, address: "db1:3306".to_owned(), version: "10.11.19-MariaDB".to_owned() }];
    let [name, program, host, options] = ["friday", "0.2.0", "proxy1", "FOR 60 SECONDS"].map(str::to_owned);
    Header { name, program, host, started_unix_us: 1_700_000_000_000_000, started_us: 5, servers, options }
}

fn trailer() -> Trailer {
    Trailer { reason: "its time was over".to_owned(), ended_us: 9, commands: 11, sessions: 1, gaps: 1 }
}

/// A file of two frames with the samples in each, and its key.
fn file(is_sealed: bool) -> (Vec<u8>, PrivateKey) {
    let (private, public) = seal::generate().unwrap();
    let (mut writer, mut file) = Writer::new(&header(), is_sealed.then_some(public)).unwrap();
    for _ in 0..2 {
        samples().iter().for_each(|record| writer.push(record));
        file.extend(writer.frame().unwrap().unwrap());
    }
    file.extend(writer.finish(&trailer()).unwrap());
    (file, PrivateKey::from_pem(&private).unwrap())
}

/// All steps to the end, as far as they go.
fn steps(file: &[u8], key: Option<&PrivateKey>) -> (Vec<Step>, Option<FileError>) {
    let mut reader = match Reader::open(file, key) {
        Ok(reader) => reader,
        Err(e) => return (Vec::new(), Some(e)),
    };
    let mut all = Vec::new();
    loop {
        match reader.step() {
            Ok(step) => {
                all.push(step);
                if !matches!(all.last(), Some(Step::Frame(_))) {
                    return (all, None);
                }
            }
            Err(e) => return (all, Some(e)),
        }
    }
}

#[test]
fn a_file_is_read_as_it_was_written() {
    for is_sealed in [false, true] {
        let (file, key) = file(is_sealed);
        let reader = Reader::open(&file[..], Some(&key)).unwrap();
        assert_eq!(*reader.header(), header());
        let (steps, error) = steps(&file, Some(&key));
        assert!(error.is_none(), "{error:?}");
        let [Step::Frame(one), Step::Frame(_), Step::End(end)] = &steps[..] else { panic!("{steps:?}") };
        let read: Vec<Record<'_>> = records(one).collect::<Result<_, _>>().unwrap();
        assert_eq!((read, end), (samples(), &trailer()));
        let is_readable = file.windows(8).any(|part| part == b"SELECT '");
        assert!(!is_readable || !is_sealed);
    }
}

#[test]
fn a_file_that_is_cut_at_any_byte_says_where() {
    for is_sealed in [false, true] {
        let (file, key) = file(is_sealed);
        let mut ends = vec![Reader::open(&file[..], Some(&key)).unwrap().position()];
        let mut whole = Reader::open(&file[..], Some(&key)).unwrap();
        while !matches!(whole.step().unwrap(), Step::End(_)) {
            ends.push(whole.position());
        }
        for cut in 0..file.len() {
            let (steps, error) = steps(&file[..cut], Some(&key));
            match (steps.last(), error) {
                (None, Some(FileError::NotACapture | FileError::Header)) => assert!((cut as u64) < ends[0], "{cut}"),
                (Some(Step::CutOff { at }), None) => {
                    let last_whole = ends.iter().rev().find(|end| **end <= cut as u64);
                    assert_eq!(Some(at), last_whole, "cut at {cut}");
                    assert_eq!(steps.len(), ends.iter().filter(|end| **end <= cut as u64).count());
                }
                other => panic!("cut at {cut}: {other:?}"),
            }
        }
    }
}

#[test]
fn a_changed_byte_is_found() {
    for is_sealed in [false, true] {
        let (file, key) = file(is_sealed);
        for at in 0..file.len() {
            let mut changed = file.clone();
            changed[at] ^= 0x10;
            let (steps, error) = steps(&changed, Some(&key));
            let is_cut = matches!(steps.last(), Some(Step::CutOff { .. }));
            assert!(error.is_some() || is_cut, "byte {at} of {}", file.len());
        }
    }
}

#[test]
fn keys_that_do_not_fit_are_named() {
    let (file, key) = file(true);
    let (other, _) = seal::generate().unwrap();
    let other = PrivateKey::from_pem(&other).unwrap();
    let said = |key: Option<&PrivateKey>| Reader::open(&file[..], key).map(|_| ()).unwrap_err().to_string();
    let id = shown(&key.public().id());
    assert_eq!(said(None), format!("the file is sealed to key {id}: name the private key with --key"));
    let given = shown(&other.public().id());
    assert_eq!(said(Some(&other)), format!("the file is sealed to key {id}, and the given private key opens files of key {given}"));
}

#[test]
fn other_files_and_newer_ones_are_refused() {
    let said = |bytes: &[u8]| Reader::open(bytes, None).map(|_| ()).unwrap_err().to_string();
    assert_eq!(said(b"-- MariaDB dump 10.19 of a database"), "this is not a capture file");
    assert_eq!(said(b""), "this is not a capture file");
    let (mut file, _) = file(false);
    file[8] = 2;
    assert_eq!(said(&file), "the file has format 2, and this program reads formats up to 1: use a newer tidegate");
}

#[test]
fn sealed_frames_stay_in_their_places() {
    let (file, key) = file(true);
    let mut reader = Reader::open(&file[..], Some(&key)).unwrap();
    let start = usize::try_from(reader.position()).unwrap();
    reader.step().unwrap();
    let second = usize::try_from(reader.position()).unwrap();
    let without_first = [&file[..start], &file[second..]].concat();
    let (_, error) = steps(&without_first, Some(&key));
    assert!(error.unwrap().to_string().contains("stands in another place"));
}

#[test]
fn frames_are_cut_between_records() {
    let mut all = Vec::new();
    let record = Record::Gap(crate::Gap { session: 70_000, why: crate::GapReason::Memory });
    let count = 3 * FRAME / 5;
    (0..count).for_each(|_| record.encode(&mut all));
    let (mut writer, mut file) = Writer::new(&header(), None).unwrap();
    // What is no record ends it.
    all.extend([1, 0xfe]);
    writer.feed(&all, &mut file).unwrap();
    file.extend(writer.finish(&trailer()).unwrap());
    let (steps, error) = steps(&file, None);
    assert!(error.is_none() && steps.len() > 2, "{error:?}, {} steps", steps.len());
    let read = |step: &Step| match step {
        Step::Frame(frame) => records(frame).map(|read| assert_eq!(read.unwrap(), record)).count(),
        _ => 0,
    };
    assert_eq!(steps.iter().map(read).sum::<usize>(), count);
}
