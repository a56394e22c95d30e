//! What mode `rejoin` would do about each server, as rows of EXPLAIN HEALING. Nothing is sent.

use model::fleet::HealingStep;
use topology::healing::{Primary, Replica, Standing, Tended};

use super::advice::{Words, say};
use super::board::Seen;

/// Rows for every server that does not follow the writer.
pub(super) fn steps(seen: &Seen) -> Vec<HealingStep> {
    let Some(primary) = &seen.facts.primary else { return Vec::new() };
    let servers = seen.facts.replicas.iter().zip(&seen.tended);
    servers.filter(|(_, one)| one.standing != Standing::Follows).flat_map(|(replica, one)| of_server(seen, primary, replica, one)).collect()
}

fn of_server(seen: &Seen, primary: &Primary, replica: &Replica, one: &Tended) -> Vec<HealingStep> {
    let words = Words::of(&seen.facts, &one.addr);
    let name = replica.channel.as_ref().map(|channel| channel.name.as_str()).unwrap_or_default();
    let row =
        |step: &str, statement: String, undo: String| HealingStep { step: step.to_owned(), server: one.addr.to_string(), statement, undo };
    let undo = match &replica.channel {
        Some(channel) => format!("-- the channel is pointed at {} again", channel.source),
        None => "-- the new channel is forgotten".to_owned(),
    };
    let account = if replica.channel.is_none() { " /* with the account mysql-replication_username */" } else { "" };
    let follow = row("rejoin", format!("{}{account}", words.follow(name, &primary.addr, one.is_out)), undo);
    let waits = say("rejoin", Some(&one.addr), if one.why.is_empty() { one.standing.as_str().to_owned() } else { one.why.clone() });
    match one.standing {
        Standing::Outcast => vec![
            waits,
            row("close", words.close().to_owned(), "-- none: it stays closed".to_owned()),
            say("end clients", Some(&one.addr), "KILL for each session of a client".to_owned()),
            say("compare", Some(&one.addr), format!("only if it has nothing that {} lacks:", primary.addr)),
            follow,
        ],
        Standing::Stray => vec![waits, follow],
        Standing::Rebuild => vec![waits, say("rebuild", Some(&one.addr), rebuild(primary, replica))],
        _ => vec![waits],
    }
}

/// Commands for an operator: they delete what the server has.
pub(super) fn rebuild(primary: &Primary, replica: &Replica) -> String {
    let (host, port) = (&primary.addr.host, primary.addr.port);
    if replica.version.is_mariadb {
        format!(
            "mariadb-backup --backup --host={host} --port={port} ... on the writer, then --prepare and --copy-back here, SET GLOBAL \
             gtid_slave_pos from mariadb_backup_binlog_info, and ADOPT SERVER"
        )
    } else {
        format!(
            "SET GLOBAL clone_valid_donor_list='{host}:{port}'; CLONE INSTANCE FROM user@'{host}':{port} IDENTIFIED BY '...'; then ADOPT SERVER. \
             CLONE deletes everything here and restarts the server"
        )
    }
}
