//! A log with real files, and with a writer that is held up.

use super::*;
use std::path::PathBuf;
use std::sync::Barrier;

struct Line(Vec<u8>, Option<Arc<Barrier>>);

impl Record for Line {
    fn size(&self) -> usize {
        self.0.len()
    }

    /// May hold the writer up: it comes in, and waits to be let go.
    fn encode(&self, _: LogFormat, out: &mut Vec<u8>) {
        if let Some(barrier) = &self.1 {
            barrier.wait();
            barrier.wait();
        }
        out.extend_from_slice(&self.0);
    }
}

fn line(text: &str) -> Line {
    Line(text.as_bytes().to_vec(), None)
}

struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("tidegate-log-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn target(&self, max_bytes: u64) -> Option<LogTarget> {
        Some(LogTarget { base: self.0.join("q"), max_bytes, form: LogFormat::Json })
    }

    fn files(&self) -> Vec<(String, String)> {
        let files = std::fs::read_dir(&self.0).unwrap().map(|e| e.unwrap().path());
        let mut files: Vec<_> =
            files.map(|p| (p.file_name().unwrap().to_str().unwrap().to_owned(), std::fs::read_to_string(&p).unwrap())).collect();
        files.sort();
        files
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
    list.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
}

#[test]
fn files_rotate_by_size_and_on_demand() {
    let dir = Dir::new("rotate");
    for name in ["q.00000041", "q.00000007", "q.not", "qq.00000099", "q.99"] {
        std::fs::write(dir.0.join(name), "").unwrap();
    }
    let log = Log::default();
    log.configure(dir.target(8), 1 << 20);
    ["aaa", "bbb", "ccc"].iter().for_each(|t| log.write(line(t)));
    log.rotate().unwrap();
    log.write(line("ddd"));
    log.stop();
    let written: Vec<_> = dir.files().into_iter().filter(|(name, _)| name.as_str() > "q.00000041" && name.starts_with("q.0")).collect();
    assert_eq!(written, pairs(&[("q.00000042", "aaa\nbbb\n"), ("q.00000043", "ccc\n"), ("q.00000044", "ddd\n")]));
    assert_eq!(log.counts(), LogCounts { written: 4, dropped: 0, failed: 0 });
}

#[test]
fn a_full_queue_drops_and_counts() {
    let dir = Dir::new("drop");
    let (log, barrier) = (Log::default(), Arc::new(Barrier::new(2)));
    log.configure(dir.target(1 << 20), 10);
    log.write(Line(b"held".to_vec(), Some(Arc::clone(&barrier))));
    barrier.wait();
    // The writer is held up: ten bytes may wait, and no one who writes is.
    ["12345", "67890", "lost", "x"].iter().for_each(|t| log.write(line(t)));
    assert_eq!(log.counts().dropped, 2);
    barrier.wait();
    log.stop();
    assert_eq!(dir.files(), pairs(&[("q.00000001", "held\n12345\n67890\n")]));
    assert_eq!(log.counts(), LogCounts { written: 3, dropped: 2, failed: 0 });
}

#[test]
fn a_file_that_cannot_be_opened_costs_records_only() {
    let dir = Dir::new("missing");
    let log = Log::default();
    log.configure(Some(LogTarget { base: dir.0.join("no/such/q"), max_bytes: 100, form: LogFormat::Json }), 1 << 20);
    log.write(line("lost"));
    log.rotate().unwrap();
    assert_eq!(log.counts(), LogCounts { written: 0, dropped: 0, failed: 1 });
    log.configure(dir.target(100), 1 << 20);
    log.write(line("kept"));
    log.stop();
    assert_eq!(dir.files(), pairs(&[("q.00000001", "kept\n")]));
}

#[test]
fn switched_off_nothing_runs() {
    let log: Log<Line> = Log::default();
    log.configure(None, 100);
    assert!(!log.is_on() && log.rotate().is_ok());
    log.stop();
}

/// `/dev/full` stands for a file on a full disk.
#[test]
fn a_full_disk_is_tried_again_with_the_same_file() {
    let dir = Dir::new("full");
    let mut writer = Writer::new(Arc::clone(&Log::<Line>::default().inner));
    writer.target = dir.target(4);
    let write = |writer: &mut Writer<Line>, text: &str| {
        writer.failed_at = writer.failed_at.and_then(|at| at.checked_sub(RETRY));
        writer.write(&line(text));
        writer.append();
    };
    writer.file = Some(LogFile::at("/dev/full".into()).unwrap());
    for _ in 0..3 {
        write(&mut writer, "lost");
        assert!(writer.file.as_ref().is_some_and(|file| file.path() == std::path::Path::new("/dev/full")));
    }
    assert_eq!((dir.files(), writer.inner.failed.load(Ordering::Relaxed)), (Vec::new(), 3));
    let said = writer.complained_at;
    write(&mut writer, "lost");
    assert!(said.is_some() && writer.complained_at == said, "once in ten seconds");
    // There is room again: the file that was full by size is left for the next one.
    writer.open_anew();
    write(&mut writer, "aaa");
    write(&mut writer, "bbb");
    assert_eq!(dir.files(), pairs(&[("q.00000001", "aaa\n"), ("q.00000002", "bbb\n")]));
}

#[test]
fn a_file_that_was_deleted_is_known() {
    let dir = Dir::new("deleted");
    let file = LogFile::create(&dir.target(4).unwrap()).unwrap();
    assert!(!file.is_deleted());
    std::fs::remove_file(file.path()).unwrap();
    assert!(file.is_deleted());
}
