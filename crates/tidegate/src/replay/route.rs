//! `tidegate replay --route`: where the statements of files would go by a configuration. No server is asked.
//!
//! Sessions are followed as far as files tell: user, schema, prepared statements, autocommit, transactions. Files do not tell clients'
//! addresses, listeners and what pinned a session, and the state of servers plays no part.

use super::keys;
use super::options::ReplayOptions;
use super::plan::{open, read_records};
use super::session::autocommit_of;
use anyhow::{Context, Result, bail};
use capture::seal::PrivateKey;
use capture::{Command, Record, SessionStart, What};
use meter::digest::{DigestRules, Judged, shown};
use model::snapshot::User;
use model::{HostgroupId, Snapshot};
use routing::{Firewall, Memo, Options, Request, Route, RuleSet, SessionFacts, Side, Statement, Transaction, Verdict};
use sql::{Analysis, Facts, Kind, LexMode};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

/// Ways that are told apart; further ones are counted together.
const MAX_WAYS: usize = 50_000;
/// Prepared statements that a session may have in a file; those beyond are not judged.
const MAX_STATEMENTS: usize = 20_000;
/// Characters of a digest's text.
const SHOWN: usize = 100;

/// Prints where the statements of the files go by `--route`, or which go elsewhere than by `--route-from`.
///
/// # Errors
/// A file or a configuration cannot be read, or a configuration is not usable.
pub(super) fn route(options: &ReplayOptions, new: &Path) -> Result<()> {
    let key = options.key.as_deref().map(keys::read_private).transpose()?;
    let config = Configuration::load(new)?;
    let base = options.route_from.as_deref().map(Configuration::load).transpose()?;
    let has_base = base.is_some();
    let mut ways = Ways { config, base, sessions: HashMap::new(), found: Found::default() };
    let mut notes = Vec::new();
    for path in &options.files {
        notes.extend(ways.follow(path, key.as_ref())?.map(|fault| ("file", fault)));
    }
    for (part, text) in ways.found.page(has_base, new, options.route_from.as_deref()).into_iter().chain(notes) {
        println!("{part:<10} {text}");
    }
    Ok(())
}

/// What the statements of files did.
struct Ways {
    config: Configuration,
    base: Option<Configuration>,
    sessions: HashMap<u64, Session>,
    found: Found,
}

/// State of a captured session, as far as the file has it.
#[derive(Default)]
struct Session {
    user: Box<str>,
    schema: Box<[u8]>,
    statements: HashMap<u32, Rc<[u8]>>,
    is_autocommit_off: bool,
    /// By `--route` and by `--route-from`.
    standings: [Standing; 2],
}

/// What routing by one configuration remembers of a session.
#[derive(Clone, Copy, Default)]
struct Standing {
    /// The flag at which its next statement begins.
    flag_in: u32,
    /// Where its transaction is.
    transaction: Option<HostgroupId>,
}

impl Ways {
    /// Reads a file to its end; what is wrong with it, if it has a fault.
    fn follow(&mut self, path: &Path, key: Option<&PrivateKey>) -> Result<Option<String>> {
        let mut reader = open(path, key).with_context(|| path.display().to_string())?;
        // Ids of sessions mean others in another file.
        self.sessions.clear();
        Ok(read_records(&mut reader, |record| self.note(record)).fault(path))
    }

    fn note(&mut self, record: &Record<'_>) {
        match record {
            Record::Session(start) => {
                self.sessions.insert(start.session, Session::of(start));
                self.found.sessions += 1;
            }
            Record::Command(command) => self.command(command),
            // A gap ends with a record of the session.
            Record::Gap(gap) => drop(self.sessions.remove(&gap.session)),
            Record::End { session } => drop(self.sessions.remove(session)),
        }
    }

    fn command(&mut self, command: &Command<'_>) {
        let Some(session) = self.sessions.get_mut(&command.session) else { return };
        let (text, is_query): (Rc<[u8]>, bool) = match &command.what {
            What::Query(text) => ((*text).into(), true),
            What::Execute { statement, .. } => match session.statements.get(statement) {
                Some(text) => (Rc::clone(text), false),
                None => return self.found.unknown += 1,
            },
            What::Withheld { .. } => return self.found.withheld += 1,
            What::Reset(setup) => return session.reset(setup),
            other => return session.change(other),
        };
        self.found.statements += 1;
        let turn = self.found.statements;
        let mut standings = session.standings;
        let way = self.config.judge(session, &mut standings[0], &text, is_query, turn);
        let before = self.base.as_mut().map(|base| base.judge(session, &mut standings[1], &text, is_query, turn).shown);
        session.standings = standings;
        session.ran(&text);
        self.found.add(&session.user, way, before);
    }
}

impl Session {
    fn of(start: &SessionStart<'_>) -> Self {
        let mut session = Self { user: String::from_utf8_lossy(start.user).into(), schema: start.schema.into(), ..Self::default() };
        start.setup.iter().for_each(|text| session.ran(text));
        session
    }

    /// As COM_RESET_CONNECTION leaves it.
    fn reset(&mut self, setup: &[&[u8]]) {
        self.statements.clear();
        (self.is_autocommit_off, self.standings) = (false, Default::default());
        setup.iter().for_each(|text| self.ran(text));
    }

    /// What commands without a text do.
    fn change(&mut self, what: &What<'_>) {
        match what {
            What::Prepare { statement, text } if self.statements.len() < MAX_STATEMENTS => {
                self.statements.insert(*statement, (*text).into());
            }
            What::CloseStatement(statement) => drop(self.statements.remove(statement)),
            What::InitDb(schema) => self.schema = (*schema).into(),
            _ => {}
        }
    }

    /// What a statement does to the session.
    fn ran(&mut self, text: &[u8]) {
        let lex = LexMode::default();
        match sql::analyze(text, lex).kind {
            Kind::Use => {
                if let Some(schema) = sql::parse_use(text, lex) {
                    self.schema = schema.into();
                }
            }
            Kind::Set => {
                self.is_autocommit_off = autocommit_of(text).map_or(self.is_autocommit_off, |is_on| !is_on);
            }
            _ => {}
        }
    }
}

/// Where a statement goes.
struct Way {
    digest: u64,
    text: Box<[u8]>,
    /// The destination and what is done on the way, in words.
    shown: String,
}

/// A configuration that routes.
struct Configuration {
    snapshot: Snapshot,
    rules: RuleSet,
    firewall: Firewall,
    digests: DigestRules,
    memo: Memo,
}

impl Configuration {
    fn load(path: &Path) -> Result<Self> {
        let named = |errors: Vec<model::ConfigError>| {
            let all: Vec<String> = errors.iter().map(ToString::to_string).collect();
            anyhow::anyhow!("{} is not usable: {}", path.display(), all.join("; "))
        };
        let (config, _) = model::load(path).map_err(named)?;
        let snapshot = Snapshot::compile(&config).map_err(named)?;
        if snapshot.users.is_empty() {
            bail!("{} has no row of mysql_users: without users nothing can be routed", path.display());
        }
        let rules = RuleSet::compile(&snapshot.rules, Options::from_variables(&snapshot.vars)).map_err(named)?;
        Ok(Self {
            firewall: Firewall::new(&snapshot.rules.firewall),
            digests: DigestRules::from_variables(&snapshot.vars),
            memo: Memo::new(),
            rules,
            snapshot,
        })
    }

    /// Where a statement of a session goes. `turn` decides where a rule leaves it to chance.
    fn judge(&mut self, session: &Session, standing: &mut Standing, text: &[u8], is_query: bool, turn: u64) -> Way {
        let lex = LexMode::default();
        let analysis = sql::analyze_with(text, lex, self.digests.grouping());
        let digest = self.digests.digest(text, lex);
        let hash = digest.hash;
        let Some(user) = self.snapshot.users.get(&*session.user).map(Arc::clone) else {
            return Way { digest: hash, text: digest.text, shown: "no such user".to_owned() };
        };
        let obeys = user.attributes.comment_directives && analysis.facts.contains(Facts::COMMENT);
        let judged = Judged { digest: &digest, rules: &self.digests, sql: text, lex };
        let request = Request {
            user: user.name.as_bytes(),
            schema: &session.schema,
            client_addr: None,
            proxy_addr: "",
            proxy_port: 0,
            digest_key: judged.key(&analysis),
            digest: &judged,
            text,
            flag_in: standing.flag_in,
            comment: if obeys { sql::first_comment(text, lex) } else { None },
        };
        let statement = Statement { text, mode: lex, analysis };
        let random = turn.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let shown = if is_query && routing::precedes_rules(&statement) {
            let route = self.rules.destination(&request, &mut self.memo, random);
            self.travels(&route, &user, &statement, session, standing)
        } else {
            let route = self.rules.route(&request, &mut self.memo, random);
            standing.flag_in = route.next_query_flag_in.unwrap_or(standing.flag_in);
            let blocked = || {
                self.snapshot.vars.firewall_whitelist_enabled
                    && self.firewall.judge(request.user, None, request.schema, route.final_flag, hash) == Verdict::Blocked
            };
            match (&route.ok_msg, &route.error_msg) {
                _ if blocked() => "blocked by the firewall".to_owned(),
                (Some(_), _) => "answered with OK".to_owned(),
                (None, Some(error)) => format!("refused: {error}"),
                (None, None) => self.travels(&route, &user, &statement, session, standing),
            }
        };
        Way { digest: hash, text: digest.text, shown }
    }

    /// The hostgroup and what is done on the way. What is open in a transaction stays where that is.
    fn travels(&self, route: &Route, user: &User, statement: &Statement<'_>, session: &Session, standing: &mut Standing) -> String {
        let facts = SessionFacts { transaction: Transaction::None, autocommit_off: session.is_autocommit_off, pinned: false };
        let own = match routing::split_of(&self.snapshot, user, route) {
            None => route.destination_hostgroup.unwrap_or(user.default_hostgroup),
            Some(split) => match routing::side(statement, &facts, &user.attributes.safe_functions) {
                Side::Reader => split.reader,
                Side::Writer | Side::Stay => split.writer,
            },
        };
        let hostgroup = standing.transaction.unwrap_or(own);
        if let Some(opens) = opens_transaction(statement, session.is_autocommit_off) {
            standing.transaction = opens.then_some(hostgroup);
        }
        let also = [
            route.cache_ttl_ms.map(|ms| format!(", cached {ms} ms")),
            route.rewritten.as_ref().map(|_| ", rewritten".to_owned()),
            route.mirror_hostgroup.map(|copy| format!(", copied to hostgroup {copy}")),
        ];
        also.into_iter().flatten().fold(format!("hostgroup {hostgroup}"), |text, more| text + &more)
    }
}

/// Whether a transaction is open after a statement; None: as before.
fn opens_transaction(statement: &Statement<'_>, is_autocommit_off: bool) -> Option<bool> {
    let Statement { text, mode, analysis: Analysis { kind, .. } } = *statement;
    match kind {
        Kind::Begin => Some(true),
        Kind::Commit | Kind::Rollback => Some(sql::parse_transaction(text, mode).chain == Some(true)),
        Kind::Ddl | Kind::Grant | Kind::LockTables | Kind::DropTable => Some(false),
        Kind::Select | Kind::Insert | Kind::Replace | Kind::Update | Kind::Delete | Kind::LoadData | Kind::Call if is_autocommit_off => {
            Some(true)
        }
        _ => None,
    }
}

/// What was found.
#[derive(Default)]
struct Found {
    sessions: u64,
    statements: u64,
    /// Executions of statements whose text the files do not have.
    unknown: u64,
    withheld: u64,
    ways: BTreeMap<(u64, Box<str>, String, Option<String>), u64>,
    texts: HashMap<u64, Box<[u8]>>,
    /// Statements beyond [`MAX_WAYS`], and how many of them go elsewhere.
    others: (u64, u64),
}

impl Found {
    fn add(&mut self, user: &str, way: Way, before: Option<String>) {
        let moves = before.as_ref().is_some_and(|before| *before != way.shown);
        let key = (way.digest, user.into(), way.shown, before);
        if let Some(count) = self.ways.get_mut(&key) {
            *count += 1;
        } else if self.ways.len() < MAX_WAYS {
            self.texts.insert(way.digest, way.text);
            self.ways.insert(key, 1);
        } else {
            self.others.0 += 1;
            self.others.1 += u64::from(moves);
        }
    }

    fn page(&self, has_base: bool, new: &Path, old: Option<&Path>) -> Vec<(&'static str, String)> {
        let by = old.map_or_else(|| new.display().to_string(), |old| format!("{} in place of {}", new.display(), old.display()));
        let mut lines =
            vec![("route", format!("{} statements of {} digests, {} sessions, by {by}", self.statements, self.texts.len(), self.sessions))];
        let mut listed: Vec<_> =
            self.ways.iter().filter(|((_, _, now, before), _)| before.as_ref().is_none_or(|before| before != now)).collect();
        listed.sort_by_key(|(key, count)| (std::cmp::Reverse(**count), *key));
        if has_base {
            let statements = self.others.1 + listed.iter().map(|(_, count)| **count).sum::<u64>();
            let mut digests: Vec<u64> = listed.iter().map(|((digest, ..), _)| *digest).collect();
            digests.sort_unstable();
            digests.dedup();
            lines.push(("elsewhere", format!("{statements} statements of {} digests", digests.len())));
        }
        for ((digest, user, now, before), count) in listed {
            let text = self.texts.get(digest).map_or("".into(), |text| String::from_utf8_lossy(text));
            let text: String = text.chars().take(SHOWN).collect();
            let from = before.as_ref().map_or_else(String::new, |before| format!("{before} -> "));
            lines.push(("way", format!("{count} times, user '{user}', {from}{now}: {} {text}", shown(*digest))));
        }
        if self.others.0 > 0 {
            lines
                .push(("others", format!("{} statements in further digests and ways, {} of them elsewhere", self.others.0, self.others.1)));
        }
        if self.unknown + self.withheld > 0 {
            lines.push(("missing", format!("{} commands were not captured, {} executions have no text", self.withheld, self.unknown)));
        }
        lines
    }
}

#[cfg(test)]
#[path = "route_tests.rs"]
mod tests;
