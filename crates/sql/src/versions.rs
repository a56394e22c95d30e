//! Data definitions with version comments that some servers skip, as each server reads them.
//!
//! `CREATE TABLE t (p POINT /*!80003 SRID 4326 */)` stands in every dump of MySQL 8. Without the comment the rest is a definition as well.
//! This module proves it by reading the text as each kind of server does, without assuming a meaning of the parts.

use crate::analyze::analyze;
use crate::bytes::{self, Condition};
use crate::kind::Kind;
use crate::token::{LexMode, Lexer, TokenKind};

/// Longest text that is read so, bytes.
const LONGEST: usize = 64 * 1024;
/// Conditions that differ, at most. Each adds four readings.
const MOST: usize = 6;

/// A server by what decides whether it runs a comment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Server {
    is_mariadb: bool,
    version: u32,
}

impl Server {
    fn runs(self, condition: Condition) -> bool {
        let is_for = self.is_mariadb || !condition.mariadb_only;
        // MariaDB skips comments for MySQL 5.7 and later, up to 9.99.99.
        let is_of_mysql = self.is_mariadb && !condition.mariadb_only && (50_700..100_000).contains(&condition.from);
        is_for && !is_of_mysql && self.version >= condition.from
    }
}

/// Is this text a single data definition to each server, and nothing that could leave state behind? Its version comments end at the
/// same place for all of them.
pub(crate) fn defines_in_each(sql: &[u8], mode: LexMode) -> bool {
    let Some(comments) = comments(sql, mode) else { return false };
    servers(&comments).is_some_and(|servers| {
        servers.into_iter().all(|server| {
            let read = analyze(&read_by(server, sql, &comments), mode);
            read.kind == Kind::Ddl && read.facts.is_quiet()
        })
    })
}

/// A version comment that some servers skip: its start, its end, and the servers that run it.
type Comment = (usize, usize, Condition);

/// The version comments of a text. `None` if they cannot be taken out one by one, or the text is too long.
fn comments(sql: &[u8], mode: LexMode) -> Option<Vec<Comment>> {
    if sql.len() > LONGEST {
        return None;
    }
    let mut all: Vec<Comment> = Vec::new();
    let mut lexer = Lexer::new(sql, mode);
    loop {
        // The bytes before the next token are blanks or comments.
        let mut at = lexer.position();
        let token = lexer.token();
        let gap = sql.get(at..token.start)?;
        // A comment up to the line's end may hide the marks of other comments.
        if gap.contains(&b'#') || gap.windows(2).any(|pair| pair == b"--") {
            return None;
        }
        while let Some(open) = sql.get(at..token.start)?.windows(2).position(|pair| pair == b"/*").map(|found| at + found) {
            match bytes::condition(sql, open) {
                Some(condition) => {
                    let (end, other) = bytes::skipped_to(sql, open)?;
                    let is_apart = all.last().is_none_or(|(_, last_end, _)| *last_end <= open);
                    if end != other || !is_apart || !sql.get(..end)?.ends_with(b"*/") {
                        return None;
                    }
                    all.push((open, end, condition));
                    at = open + 2;
                }
                None if bytes::version_comment(sql, open).is_some() => at = open + 2,
                None => at = bytes::comment_end(sql, open),
            }
        }
        if token.kind == TokenKind::End {
            return Some(all);
        }
    }
}

/// A server of each kind that reads the text in its own way.
fn servers(comments: &[Comment]) -> Option<Vec<Server>> {
    let mut versions = vec![0, u32::MAX];
    for (_, _, condition) in comments {
        for version in [condition.from.saturating_sub(1), condition.from] {
            if !versions.contains(&version) {
                versions.push(version);
            }
        }
    }
    let pairs = versions.iter().flat_map(|&version| [true, false].map(|is_mariadb| Server { is_mariadb, version }));
    (versions.len() <= 2 + 2 * MOST).then(|| pairs.collect())
}

/// The text with a blank in place of each comment that the server skips. A comment that it runs stands there without its mark.
fn read_by(server: Server, sql: &[u8], comments: &[Comment]) -> Vec<u8> {
    let (mut out, mut copied) = (Vec::with_capacity(sql.len()), 0);
    for (open, end, condition) in comments {
        out.extend_from_slice(sql.get(copied..*open).unwrap_or_default());
        out.push(b' ');
        if server.runs(*condition) {
            let content = bytes::version_comment(sql, *open).unwrap_or(*end);
            out.extend_from_slice(sql.get(content..end.saturating_sub(2)).unwrap_or_default());
            out.push(b' ');
        }
        copied = *end;
    }
    out.extend_from_slice(sql.get(copied..).unwrap_or_default());
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Facts;

    #[test]
    fn a_definition_is_one_to_each_server() {
        for (sql, expected) in [
            ("CREATE DATABASE d /*!40100 DEFAULT CHARACTER SET utf8mb4 */ /*!80016 DEFAULT ENCRYPTION='N' */", true),
            ("CREATE TABLE t (p POINT NOT NULL /*!80003 SRID 4326 */, i INT /*!80023 INVISIBLE */)", true),
            ("CREATE TABLE t (i INT) /*!50100 PARTITION BY HASH (i) */ /*M!100302 ENCRYPTED=YES */ COMMENT '/*!80000 x */'", true),
            ("ALTER TABLE t /*!80000 ALTER INDEX i INVISIBLE */", true),
            ("ALTER TABLE t ADD a INT /*!80000 , ADD b INT */", true),
            ("CREATE TABLE t (i INT /*!80023 INVISIBLE */ /* f() */)", true),
            ("DROP DATABASE d /*!80000 */", true),
            // Other code runs, or other statements.
            ("CREATE TABLE t (i INT) /*!80000 AS SELECT f() */", false),
            ("CREATE TABLE t AS SELECT f /*!80000 + */ (1)", false),
            ("CREATE TABLE t AS SELECT @a /*!80000 + */ := 1", false),
            ("CREATE TABLE t AS SELECT @a /*M! + */ := 1", false),
            ("CREATE TABLE t AS SELECT GET_LOCK /*!80000 , */ ('a', 1)", false),
            ("CREATE /*!80000 TEMPORARY */ TABLE t (i INT)", false),
            ("CREATE /*M! TEMPORARY */ TABLE t (i INT)", false),
            ("/*!80000 CREATE */ TABLE t", false),
            ("/*M!999999 */ CREATE TABLE t (i INT)", true),
            ("CREATE /*!80000 USER u -- */ TABLE t (i INT)", false),
            ("CREATE TABLE t (i INT) /*!80000 ; SET @x = 1 */", false),
            ("CREATE TABLE t (i INT /*!80023 INVISIBLE */); SELECT 1", false),
            ("CREATE TABLE t (i INT /*!80023 DEFAULT '*/', j INT DEFAULT '*/ ')", false),
            ("CREATE TABLE t (i INT /*!80023 INVISIBLE", false),
            ("CREATE TABLE t (i INT /*!80000 /*!80023 INVISIBLE */ */)", false),
            ("CREATE TABLE t (i INT /*!80023 INVISIBLE */) -- /*!80000\n COMMENT 'x' /* */", false),
            ("CREATE PROCEDURE p() BEGIN /*!80000 SET @x = 1; */ END", false),
            ("SET /*!80000 GLOBAL */ sort_buffer_size = 1", false),
            ("SELECT 1 /*!80000 , 2 */", false),
        ] {
            let facts = analyze(sql.as_bytes(), LexMode::default()).facts;
            assert_eq!(!facts.contains(Facts::TORN), expected, "{sql}");
            assert!(facts.contains(Facts::VERSIONED), "{sql}");
        }
    }

    #[test]
    fn who_runs_what() {
        let [mysql, mariadb] = [false, true].map(|is_mariadb| move |version| Server { is_mariadb, version });
        for (comment, server, expected) in [
            ("/*!80016 */", mysql(80_016), true),
            ("/*!80016 */", mysql(80_015), false),
            ("/*!80016 */", mariadb(110_800), false),
            ("/*!100100 */", mariadb(101_100), true),
            ("/*!110000 */", mariadb(101_100), false),
            ("/*!100100 */", mysql(90_700), false),
            ("/*M! */", mysql(90_700), false),
            ("/*M! */", mariadb(101_100), true),
            ("/*M!80000 */", mariadb(101_100), true),
            ("/*M!110000 */", mariadb(101_100), false),
        ] {
            let condition = bytes::condition(comment.as_bytes(), 0).unwrap();
            assert_eq!(server.runs(condition), expected, "{comment} on {server:?}");
        }
        assert!(bytes::condition(b"/*!40101 */", 0).is_none() && bytes::condition(b"/* */", 0).is_none());
    }
}
