//! What a statement's text says of its answer: whether it reads, whether rows have an order, and whether servers may answer differently.

use sql::{Analysis, Facts, Kind, LexMode, Lexer, Token, TokenKind};

/// Facts of a SELECT or DO that does more than read. One that calls stored functions counts: an operator must know that it was not
/// compared.
const NO_READ: Facts =
    Facts::LOCKING_READ.union(Facts::INTO_FILE).union(Facts::GET_LOCK).union(Facts::RELEASE_LOCK).union(Facts::USER_VARIABLE_ASSIGN);

/// What a statement is for a rehearsal in mode `reads`. [`Reads::Plainly`] and [`Reads::Perhaps`] count in the coverage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reads {
    /// A SELECT that only reads, as far as its text says.
    Plainly,
    /// It may read, but its text does not show what: EXECUTE, CALL and the like. It is never compared.
    Perhaps,
    /// It writes, locks, or is about the session or the server.
    No,
}

impl Reads {
    /// Of a statement with this analysis. Of several in one text, each is looked at.
    pub fn of(sql: &[u8], mode: LexMode, analysis: &Analysis) -> Self {
        if !analysis.facts.contains(Facts::MULTI) {
            return Self::of_one(sql, mode, analysis);
        }
        let reads = |statement: &[u8]| Self::of_one(statement, mode, &sql::analyze(statement, mode)) != Self::No;
        if sql::split(sql, mode).any(reads) { Self::Perhaps } else { Self::No }
    }

    fn of_one(sql: &[u8], mode: LexMode, analysis: &Analysis) -> Self {
        let body = if analysis.kind == Kind::SetStatement { sql::set_statement_body(sql, mode) } else { None };
        match body.map(|body| Self::of_kind(&sql::analyze(body, mode))) {
            Some(Self::No) => Self::No,
            Some(_) => Self::Perhaps,
            None => Self::of_kind(analysis),
        }
    }

    fn of_kind(analysis: &Analysis) -> Self {
        let does_more = analysis.facts.intersects(NO_READ);
        match analysis.kind {
            Kind::Select if !does_more => Self::Plainly,
            Kind::Do if !does_more => Self::Perhaps,
            Kind::Execute | Kind::Call | Kind::Compound | Kind::SetStatement | Kind::Handler => Self::Perhaps,
            _ => Self::No,
        }
    }
}

/// See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traits {
    /// An ORDER BY stands at the top.
    pub is_ordered: bool,
    /// A LIMIT stands where no ORDER BY says which rows it keeps.
    pub is_limited: bool,
    /// It stands between parentheses, so that the number of rows may depend on its choice.
    pub is_limited_inside: bool,
    /// The number of a LIMIT without OFFSET at the top.
    pub limit: Option<u64>,
    /// It names a function of the clock, such as NOW(): at another time it answers otherwise.
    pub reads_clock: bool,
    /// Why servers need not agree.
    pub noise: Option<&'static str>,
}

impl Traits {
    /// The traits of a statement that returned so many rows. A LIMIT at the top that was not reached chose nothing.
    pub fn with_rows(self, rows: u64) -> Self {
        let has_chosen = self.is_limited_inside || self.limit.is_none_or(|limit| rows >= limit);
        Self { is_limited: self.is_limited && has_chosen, ..self }
    }
}

/// Functions whose values are a server's own. The clock's functions are not among them: a second question shows whether they matter.
const OWN_VALUES: &[&str] = &["rand", "uuid", "uuid_short", "uuid_v4", "uuid_v7", "version", "connection_id", "random_bytes", "sys_guid"];

/// Functions of the clock. Those of the second line need no parentheses.
const CLOCK: &[&str] = &["now", "sysdate", "curdate", "curtime", "unix_timestamp", "utc_date", "utc_time", "utc_timestamp"];
const CLOCK_WORDS: &[&str] = &["current_timestamp", "current_date", "current_time", "localtime", "localtimestamp"];

/// Schemas that describe a server.
const OWN_SCHEMAS: &[&str] = &["information_schema", "performance_schema", "mysql", "sys"];

/// What was seen between two parentheses.
#[derive(Clone, Copy, Default)]
struct Level {
    is_ordered: bool,
    has_limit: bool,
    is_group_concat: bool,
    is_exists: bool,
}

impl Level {
    /// Opened behind this word.
    fn behind(word: &[u8]) -> Self {
        let is = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
        Self { is_group_concat: is("group_concat"), is_exists: is("exists"), ..Self::default() }
    }

    /// Its LIMIT keeps rows that no ORDER BY names.
    fn chooses(self) -> bool {
        self.has_limit && !self.is_ordered && !self.is_exists
    }

    fn close(self, traits: &mut Traits) {
        traits.is_limited |= self.chooses();
        if self.is_group_concat && !self.is_ordered {
            traits.noise.get_or_insert("GROUP_CONCAT without ORDER BY");
        }
    }
}

/// Reads the traits of a statement.
pub fn traits(sql: &[u8], mode: LexMode) -> Traits {
    let (mut lexer, mut traits) = (Lexer::new(sql, mode), Traits::default());
    let (mut levels, mut word): (Vec<Level>, &[u8]) = (vec![Level::default()], &[]);
    let mut is_offset = false;
    loop {
        let token = lexer.token();
        if token.kind == TokenKind::End {
            break;
        }
        if levels.len() == 1 {
            is_offset |= traits.limit.is_some() && (token.is(b',') || token.text(sql).eq_ignore_ascii_case(b"offset"));
            traits.limit = number_behind_limit(word, &token, sql).or(traits.limit);
        }
        traits.reads_clock |= token.kind == TokenKind::Word && is_one_of(token.text(sql), CLOCK_WORDS);
        if token.is(b'(') {
            note_call(word, &mut traits);
            levels.push(Level::behind(word));
        } else if token.is(b')') && levels.len() > 1 {
            let level = levels.pop().unwrap_or_default();
            traits.is_limited_inside |= level.chooses();
            level.close(&mut traits);
        } else if token.is(b'.') && is_one_of(word, OWN_SCHEMAS) {
            traits.noise.get_or_insert("it reads tables that describe the server");
        } else if let Some(level) = levels.last_mut() {
            note_word(&token, sql, level);
        }
        word = if matches!(token.kind, TokenKind::Word | TokenKind::QuotedName) { bare(token.text(sql)) } else { &[] };
    }
    let top = levels.first().copied().unwrap_or_default();
    traits.is_ordered = top.is_ordered;
    traits.limit = traits.limit.filter(|_| !is_offset);
    top.close(&mut traits);
    traits
}

fn number_behind_limit(word: &[u8], token: &Token, sql: &[u8]) -> Option<u64> {
    let is_number = token.kind == TokenKind::Number && word.eq_ignore_ascii_case(b"limit");
    is_number.then(|| std::str::from_utf8(token.text(sql)).ok()?.parse().ok())?
}

fn note_call(word: &[u8], traits: &mut Traits) {
    traits.reads_clock |= is_one_of(word, CLOCK);
    if is_one_of(word, OWN_VALUES) {
        traits.noise.get_or_insert("it calls a function whose value is the server's own");
    }
}

fn note_word(token: &Token, sql: &[u8], level: &mut Level) {
    if token.kind == TokenKind::Word {
        let text = token.text(sql);
        level.is_ordered |= text.eq_ignore_ascii_case(b"order");
        level.has_limit |= text.eq_ignore_ascii_case(b"limit");
    }
}

/// A name without its backticks.
fn bare(text: &[u8]) -> &[u8] {
    text.strip_prefix(b"`").and_then(|text| text.strip_suffix(b"`")).unwrap_or(text)
}

fn is_one_of(word: &[u8], names: &[&str]) -> bool {
    names.iter().any(|name| word.eq_ignore_ascii_case(name.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_limits_and_noise() {
        for (text, is_ordered, is_limited, is_noisy) in [
            ("SELECT a FROM t", false, false, false),
            ("SELECT a FROM t ORDER BY a", true, false, false),
            ("SELECT a FROM t ORDER BY a LIMIT 5", true, false, false),
            ("SELECT a FROM t LIMIT 5", false, true, false),
            ("SELECT a FROM (SELECT a FROM t ORDER BY a LIMIT 3) AS x", false, false, false),
            ("SELECT a FROM (SELECT a FROM t LIMIT 3) AS x ORDER BY a", true, true, false),
            ("SELECT a FROM t WHERE EXISTS (SELECT 1 FROM u LIMIT 1)", false, false, false),
            ("(SELECT a FROM t) UNION (SELECT b FROM u) ORDER BY 1", true, false, false),
            ("SELECT GROUP_CONCAT(a) FROM t", false, false, true),
            ("SELECT GROUP_CONCAT(a ORDER BY a) FROM t", false, false, false),
            ("SELECT ROW_NUMBER() OVER (ORDER BY a) FROM t", false, false, false),
            ("SELECT UUID()", false, false, true),
            ("SELECT uuid FROM t", false, false, false),
            ("SELECT a FROM t ORDER BY RAND()", true, false, true),
            ("SELECT table_name FROM information_schema.tables", false, false, true),
            ("SELECT table_name FROM `information_schema`.`tables`", false, false, true),
            ("SELECT 'order by rand() limit 1'", false, false, false),
            ("SELECT NOW()", false, false, false),
        ] {
            let found = traits(text.as_bytes(), LexMode::default());
            assert_eq!((found.is_ordered, found.is_limited, found.noise.is_some()), (is_ordered, is_limited, is_noisy), "{text}");
        }
    }

    #[test]
    fn what_may_read_is_known() {
        for (text, expected) in [
            ("SELECT a FROM t", Reads::Plainly),
            ("SELECT own(a) FROM t", Reads::Plainly),
            ("SELECT a FROM t FOR UPDATE", Reads::No),
            ("SELECT @a := 1", Reads::No),
            ("EXECUTE s USING @a", Reads::Perhaps),
            ("EXECUTE IMMEDIATE ?", Reads::Perhaps),
            ("CALL p(@a)", Reads::Perhaps),
            ("DO own(1)", Reads::Perhaps),
            ("DO RELEASE_LOCK('a')", Reads::No),
            ("SET STATEMENT max_statement_time=1 FOR SELECT a FROM t", Reads::Perhaps),
            ("SET STATEMENT max_statement_time=1 FOR DELETE FROM t", Reads::No),
            ("BEGIN NOT ATOMIC SELECT 1; END", Reads::Perhaps),
            ("HANDLER t READ FIRST", Reads::Perhaps),
            ("SELECT 1; SELECT 2", Reads::Perhaps),
            ("UPDATE t SET a = 1; SELECT ROW_COUNT()", Reads::Perhaps),
            ("UPDATE t SET a = 1; COMMIT", Reads::No),
            ("PREPARE s FROM 'SELECT 1'", Reads::No),
            ("INSERT INTO t SELECT a FROM u", Reads::No),
            ("SET NAMES utf8mb4", Reads::No),
            ("BEGIN", Reads::No),
            ("SHOW TABLES", Reads::No),
        ] {
            let mode = LexMode::default();
            assert_eq!(Reads::of(text.as_bytes(), mode, &sql::analyze(text.as_bytes(), mode)), expected, "{text}");
        }
    }

    #[test]
    fn functions_of_the_clock_are_known() {
        let reads_clock = |text: &str| traits(text.as_bytes(), LexMode::default()).reads_clock;
        assert!(
            ["SELECT NOW()", "SELECT current_date", "SELECT a FROM t WHERE b < UNIX_TIMESTAMP()"].map(reads_clock).iter().all(|is| *is)
        );
        assert!(!["SELECT now FROM t", "SELECT 'NOW()'", "SELECT `current_date` FROM t"].map(reads_clock).contains(&true));
    }

    #[test]
    fn a_limit_that_is_not_reached_chooses_nothing() {
        for (text, limit, with_4, with_5) in [
            ("SELECT a FROM t LIMIT 5", Some(5), false, true),
            ("SELECT a FROM t LIMIT 5 FOR UPDATE", Some(5), false, true),
            ("SELECT a FROM t LIMIT 2, 5", None, true, true),
            ("SELECT a FROM t LIMIT 5 OFFSET 2", None, true, true),
            ("SELECT a FROM t LIMIT ?", None, true, true),
            ("SELECT a FROM t ORDER BY a LIMIT 5", Some(5), false, false),
            ("SELECT a FROM (SELECT a FROM t LIMIT 3) AS x", None, true, true),
            ("SELECT a FROM (SELECT a FROM t LIMIT 3) AS x LIMIT 5", Some(5), true, true),
        ] {
            let found = traits(text.as_bytes(), LexMode::default());
            let are_limited = [4, 5].map(|rows| found.with_rows(rows).is_limited);
            assert_eq!((found.limit, are_limited), (limit, [with_4, with_5]), "{text}");
        }
    }

    #[test]
    fn parentheses_that_do_not_match_are_survived() {
        for text in ["SELECT ))) ORDER BY a", "((((", ")", ""] {
            traits(text.as_bytes(), LexMode::default());
        }
    }
}
