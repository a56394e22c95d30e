//! The SQL that a protocol command stands for, so that query rules and the firewall judge the command as they judge that SQL.
//!
//! A command without such SQL reads or changes nothing but the session itself. Source: "Command Phase" (MySQL) and MariaDB KB
//! "Clientserver protocol: commands".

use wire::command::Command;

/// Bits of COM_REFRESH and what FLUSH calls them; 64 and 128 are RESET REPLICA and RESET MASTER.
const REFRESH: [(u8, &str); 6] = [(PRIVILEGES, "PRIVILEGES"), (2, "LOGS"), (4, "TABLES"), (8, "HOSTS"), (16, "STATUS"), (32, "THREADS")];
pub(super) const PRIVILEGES: u8 = 1;
const RESET_REPLICA: u8 = 64;
const RESET_BINLOG: u8 = 128;

/// The statement that a command with this body stands for, or `None` where no SQL does the same.
pub(super) fn sql_of(command: Command, body: &[u8]) -> Option<Vec<u8>> {
    let statement = match command {
        Command::CreateDb => [b"CREATE DATABASE ", quoted(body).as_slice()].concat(),
        Command::DropDb => [b"DROP DATABASE ", quoted(body).as_slice()].concat(),
        Command::FieldList => {
            let table = body.split(|byte| *byte == 0).next().unwrap_or_default();
            [b"SHOW COLUMNS FROM ", quoted(table).as_slice()].concat()
        }
        Command::ProcessInfo => b"SHOW PROCESSLIST".to_vec(),
        Command::ProcessKill => {
            let id = body.first_chunk::<4>().map_or(0, |id| u32::from_le_bytes(*id));
            format!("KILL {id}").into_bytes()
        }
        Command::Shutdown => b"SHUTDOWN".to_vec(),
        Command::Debug => b"DEBUG".to_vec(),
        Command::Refresh => refresh(body.first().copied().unwrap_or(0)),
        _ => return None,
    };
    Some(statement)
}

/// A name in backticks.
pub(super) fn quoted(name: &[u8]) -> Vec<u8> {
    [b"`", name.split(|byte| *byte == b'`').collect::<Vec<_>>().join(&b"``"[..]).as_slice(), b"`"].concat()
}

fn refresh(bits: u8) -> Vec<u8> {
    if bits & RESET_BINLOG != 0 {
        return b"RESET MASTER".to_vec();
    }
    if bits & RESET_REPLICA != 0 {
        return b"RESET REPLICA".to_vec();
    }
    let what: Vec<_> = REFRESH.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, name)| *name).collect();
    format!("FLUSH {}", what.join(", ")).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_stand_for_statements() {
        let of = |command, body: &[u8]| sql_of(command, body).map(|sql| String::from_utf8_lossy(&sql).into_owned());
        assert_eq!(of(Command::DropDb, b"a`b").as_deref(), Some("DROP DATABASE `a``b`"));
        assert_eq!(of(Command::CreateDb, b"shop").as_deref(), Some("CREATE DATABASE `shop`"));
        assert_eq!(of(Command::FieldList, b"t\0%").as_deref(), Some("SHOW COLUMNS FROM `t`"));
        assert_eq!(of(Command::ProcessInfo, b"").as_deref(), Some("SHOW PROCESSLIST"));
        assert_eq!(of(Command::ProcessKill, &7_u32.to_le_bytes()).as_deref(), Some("KILL 7"));
        assert_eq!(of(Command::Refresh, &[1 | 4]).as_deref(), Some("FLUSH PRIVILEGES, TABLES"));
        assert_eq!(of(Command::Refresh, &[128 | 4]).as_deref(), Some("RESET MASTER"));
        assert_eq!(of(Command::Ping, b""), None);
        assert_eq!(of(Command::Statistics, b""), None);
    }
}
