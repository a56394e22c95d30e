//! Files of captured traffic: whatever the bytes are, the reader ends, and each record that it gives can be written again.

use capture::{Reader, Record, Step, Writer, records};

/// The input: a byte (bit 0: the rest is a whole file; else records, of which a file is made and cut), then that.
pub fn check(data: &[u8]) {
    let Some((first, rest)) = data.split_first() else { return };
    if first & 1 == 1 {
        read(rest);
        return;
    }
    let Ok((mut writer, mut file)) = Writer::new(&capture::Header::default(), None) else { return };
    writer.feed(rest, &mut file).expect("it can be compressed");
    file.extend(writer.finish(&capture::Trailer::default()).expect("it can be compressed"));
    let cut = file.len() * usize::from(*first) / 256;
    assert!(!read(&file[..cut]), "a cut is seen");
    assert!(read(&file), "it is whole");
}

/// Whether the file ends as it should.
fn read(file: &[u8]) -> bool {
    let Ok(mut reader) = Reader::open(file, None) else { return false };
    loop {
        match reader.step() {
            Ok(Step::Frame(frame)) => records(&frame).flatten().for_each(|record| again(&record)),
            Ok(Step::End(_)) => return true,
            Ok(Step::CutOff { at }) => {
                assert!(at <= file.len() as u64);
                return false;
            }
            Err(_) => return false,
        }
    }
}

fn again(record: &Record<'_>) {
    let mut out = Vec::new();
    record.encode(&mut out);
    assert_eq!(Record::decode(&mut wire::codec::Reader::new(&out)), Ok(Some(record.clone())));
}
