//! `kill -9` while configurations are saved and loaded: the next start finds one of them, whole.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use admin::{Precedence, bootstrap};

use crate::bed::{Bed, FILE, options};

const DATADIR: &str = "TIDEGATE_TEST_DATADIR";
const SERVERS: i64 = 300;
const KILLS: u64 = 25;

/// The child: saves two configurations in turn until it is killed. Does nothing when it is run by itself.
#[test]
fn saves_until_it_is_killed() {
    let Ok(datadir) = std::env::var(DATADIR) else {
        return;
    };
    let boot = bootstrap(options(datadir.as_ref(), FILE, Precedence::Database)).unwrap();
    let bed = Bed::start(boot, Arc::new(tempfile::tempdir().unwrap()));
    for round in 1.. {
        bed.ok("DELETE FROM mysql_servers");
        bed.ok(&format!(
            "INSERT INTO mysql_servers (hostgroup_id, hostname, weight, comment) \
             WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {SERVERS}) SELECT 1, 'host' || i, {round}, 'round {round}' FROM n"
        ));
        bed.ok("SAVE MYSQL SERVERS TO DISK");
        bed.ok("LOAD MYSQL SERVERS TO RUNTIME");
        println!("saved {round}");
    }
}

#[test]
fn a_kill_leaves_the_old_or_the_new_configuration() {
    let datadir = tempfile::tempdir().unwrap();
    for kill in 0..KILLS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "crash::saves_until_it_is_killed", "--nocapture"])
            .env(DATADIR, datadir.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.by_ref().any(|line| line.unwrap().starts_with("saved")), "the child saved once");
        // The moment of the kill: spread over the time that a round takes.
        std::thread::sleep(Duration::from_micros(kill * 7919 % 40_000));
        child.kill().unwrap();
        child.wait().unwrap();

        let boot = bootstrap(options(datadir.path(), FILE, Precedence::Database)).unwrap();
        let rows = boot.config.rows("mysql_servers");
        let weights: std::collections::BTreeSet<_> = rows.iter().map(|row| row.integer("weight")).collect();
        assert_eq!((rows.len(), weights.len()), (usize::try_from(SERVERS).unwrap(), 1), "kill {kill}: {weights:?}");
    }
}
