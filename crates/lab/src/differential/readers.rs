//! Sessions that read rows of their own, each as fast as it can, while something else is tested. They leave no connection idle, so that
//! quick reads share connections where `mysql-pipeline_depth` allows it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use crate::client::{Client, ConnectOptions, Param};
use crate::error::LabError;

/// The connection was not had in time: all are pinned for a while.
const NO_CONNECTION: u16 = 9001;

/// Such sessions. They end when dropped.
#[derive(Debug)]
pub struct Readers {
    done: Arc<AtomicBool>,
    answers: Arc<AtomicU64>,
    threads: Vec<JoinHandle<Result<(), LabError>>>,
}

impl Readers {
    /// Starts `count` sessions with `options`, whose schema has this table. Every second session executes a prepared statement. `root`
    /// makes the table.
    pub fn start(root: &ConnectOptions, options: &ConnectOptions, table: &str, count: usize) -> Result<Self, LabError> {
        let mut root = Client::connect(root)?;
        let schema = options.database.as_deref().unwrap_or("test");
        root.run(format!("CREATE TABLE {schema}.{table} (id INT PRIMARY KEY, v VARCHAR(20))"))?;
        let rows: Vec<String> = (0..count).map(|key| format!("({key}, 'v{key}')")).collect();
        root.run(format!("INSERT INTO {schema}.{table} VALUES {}", rows.join(",")))?;
        let (done, answers) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let mut readers = Self { done, answers, threads: Vec::new() };
        for key in 0..count {
            let mut reader = Reader { session: Client::connect(options)?, sql: format!("SELECT id, v FROM {table} WHERE id = "), key };
            let (done, answers) = (Arc::clone(&readers.done), Arc::clone(&readers.answers));
            readers.threads.push(thread::spawn(move || reader.run(&done, &answers)));
        }
        Ok(readers)
    }

    /// The replies so far, each of which was the session's own.
    pub fn answers(&self) -> u64 {
        self.answers.load(Ordering::Acquire)
    }

    /// Ends the sessions. An error is that of a session that failed or got a wrong row.
    pub fn stop(mut self) -> Result<u64, LabError> {
        self.done.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            thread.join().map_err(|_| LabError::Protocol("a reader panicked".to_owned()))??;
        }
        Ok(self.answers())
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.done.store(true, Ordering::Release);
    }
}

struct Reader {
    session: Client,
    sql: String,
    key: usize,
}

impl Reader {
    fn run(&mut self, done: &AtomicBool, answers: &AtomicU64) -> Result<(), LabError> {
        let prepared = if self.key.is_multiple_of(2) { None } else { Some(self.session.prepare(format!("{}?", self.sql))?) };
        let own = [Some(self.key.to_string()), Some(format!("v{}", self.key))];
        while !done.load(Ordering::Acquire) {
            let reply = match &prepared {
                Some(statement) => self.session.execute(statement, &[Param::Int(self.key as i64)])?,
                None => self.session.query(format!("{}{}", self.sql, self.key))?,
            };
            if reply.err().is_some_and(|error| error.code == NO_CONNECTION) {
                continue;
            }
            let rows = reply.check()?.table()?;
            if rows != [own.clone()] {
                return Err(LabError::Protocol(format!("the session of row {} got {rows:?}", self.key)));
            }
            answers.fetch_add(1, Ordering::AcqRel);
        }
        Ok(())
    }
}
