//! One proxy whose rules are loaded through the admin port, as an operator does, case by case.

use super::common::{LIMIT, Peer};
use super::{proxy, servers};
use lab::client::Encoding;
use lab::{Client, Tidegate, wait};

/// See the module.
pub(crate) struct Bed {
    pub proxy: Tidegate,
    pub admin: Client,
}

impl Bed {
    /// No rules yet. User `free` may give directives in comments.
    pub(crate) fn start() -> Self {
        let obeyed = [("attributes", r#"{"comment_directives": true}"#.into())];
        let proxy = proxy(&[]).user_with("empty", "", 1, &obeyed).start().unwrap();
        // Clients are accepted a moment before administrators are.
        let admin = wait::until("the admin port", LIMIT, || proxy.admin().ok()).unwrap();
        Self { proxy, admin }
    }

    /// Puts these rules in force, numbered from 1: `column=value` with `; ` between, values as in SQL.
    pub(crate) fn load(&mut self, rules: &[&str]) {
        self.admin.run("DELETE FROM mysql_query_rules").unwrap();
        for (id, rule) in (1..).zip(rules) {
            let pairs: Vec<(&str, &str)> = rule.split("; ").map(|pair| pair.split_once('=').unwrap()).collect();
            let columns: Vec<&str> = pairs.iter().map(|pair| pair.0).collect();
            let values: Vec<&str> = pairs.iter().map(|pair| pair.1).collect();
            let sql =
                format!("INSERT INTO mysql_query_rules (rule_id, active, {}) VALUES ({id}, 1, {})", columns.join(","), values.join(","));
            self.admin.run(sql).unwrap();
        }
        self.apply("QUERY RULES");
    }

    /// Runs admin statements, then puts `what` in force.
    pub(crate) fn change(&mut self, what: &str, statements: &[&str]) {
        for sql in statements {
            self.admin.run(sql).unwrap();
        }
        self.apply(what);
    }

    fn apply(&mut self, what: &str) {
        self.admin.run(format!("LOAD MYSQL {what} TO RUNTIME")).unwrap();
    }

    /// A new session of `app` in schema `test`.
    pub(crate) fn session(&self, encoding: Encoding) -> Peer {
        Peer::through(&self.proxy, encoding)
    }

    /// New sessions, one for each protocol.
    pub(crate) fn sessions(&self) -> [Peer; 2] {
        [Encoding::Text, Encoding::Binary].map(|encoding| self.session(encoding))
    }

    /// The digest of a statement that was run.
    pub(crate) fn digest_of(&mut self, text: &str) -> String {
        let sql = format!("SELECT digest FROM stats_mysql_query_digest WHERE digest_text='{text}'");
        self.admin.scalar(sql).unwrap().unwrap()
    }
}

/// The address that sessions come from, and the port that they come to.
pub(crate) fn own_port(bed: &Bed) -> String {
    assert_eq!(servers().len(), 2);
    bed.proxy.port().to_string()
}
