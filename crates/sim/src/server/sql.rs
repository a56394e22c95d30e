//! The little SQL of model servers: the statements of model clients, and those that the proxy sends itself. It does not use the proxy's
//! parsers, so that a fault there is not repeated here.

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    /// A word, as written.
    Word(String),
    Number(i64),
    /// A string in quotes.
    Text(String),
    /// `@x`.
    User(String),
    /// `@@x`, `@@session.x`, `@@global.x`.
    System(Scope, String),
    /// Anything else.
    Sign(char),
}

/// The scope of a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    Session,
    Global,
}

/// Something with a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Expr {
    Null,
    Number(i64),
    /// A text, or a word where a value is due.
    Text(String),
    /// `@x`.
    User(String),
    /// `@x := 5`.
    Assign(String, Box<Expr>),
    System(Scope, String),
    Default,
    /// `?`.
    Parameter,
    /// `DATABASE()` and its like: name in upper case, arguments.
    Call(String, Vec<Expr>),
    Column(String),
}

/// The target of a SET.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Session(String),
    Global(String),
    /// `@x`.
    User(String),
    Names,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Statement {
    /// `INSERT INTO table (op) VALUES (n)`.
    Insert {
        table: String,
        /// The value; None is a parameter.
        op: Option<i64>,
    },
    /// SELECT, with the table and the `op` asked for.
    Select {
        list: Vec<Expr>,
        /// `FROM table`.
        table: Option<String>,
        /// `WHERE op = n`; None inside is a parameter.
        op: Option<Option<i64>>,
    },
    /// BEGIN, START TRANSACTION.
    Begin,
    Commit,
    Rollback,
    Set(Vec<(Target, Expr)>),
    Use(String),
    CreateTemporary(String),
    DropTemporary(String),
    ShowWarnings,
    ShowVariables,
    /// DO: nothing.
    Do,
    /// `SELECT COMMAND,CONNECTION_ID() FROM information_schema.PROCESSLIST WHERE ID=n`.
    Processlist(i64),
    /// `SHOW GLOBAL STATUS LIKE 'Uptime'`.
    Uptime,
    /// `SELECT STATE FROM information_schema.PROCESSLIST WHERE ID=n`: no test waits for the model's value.
    State,
    /// A question for views, of which the model has none.
    Views,
    Kill {
        /// Only what runs.
        is_query: bool,
        id: i64,
    },
}

/// Reads a statement; an error is its text.
pub(super) fn parse(text: &str) -> Result<Statement, String> {
    let asked = text.strip_prefix("SELECT COMMAND,CONNECTION_ID() FROM information_schema.PROCESSLIST WHERE ID=");
    if let Some(id) = asked.and_then(|id| id.parse().ok()) {
        return Ok(Statement::Processlist(id));
    }
    if text == "SHOW GLOBAL STATUS LIKE 'Uptime'" {
        return Ok(Statement::Uptime);
    }
    if text.starts_with("SELECT STATE FROM information_schema.PROCESSLIST WHERE ID=") {
        return Ok(Statement::State);
    }
    if text.starts_with("SELECT 0,CAST(TABLE_TYPE AS BINARY)") {
        return Ok(Statement::Views);
    }
    let mut parser = Parser { tokens: tokens(text)?, at: 0 };
    parser.statement().ok_or_else(|| format!("You have an error in your SQL syntax; the model does not know: {text}"))
}

fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let chars: Vec<char> = text.chars().collect();
    let mut tokens = Vec::new();
    let mut i = 0;
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let word_at = |i: &mut usize| {
        let from = *i;
        while chars.get(*i).is_some_and(|c| is_word(*c)) {
            *i += 1;
        }
        chars.get(from..*i).unwrap_or_default().iter().collect::<String>()
    };
    while let Some(&c) = chars.get(i) {
        match c {
            c if c.is_whitespace() => i += 1,
            '/' if chars.get(i + 1) == Some(&'*') => {
                i += 2;
                while i < chars.len() && !(chars.get(i) == Some(&'*') && chars.get(i + 1) == Some(&'/')) {
                    i += 1;
                }
                i += 2;
            }
            '\'' | '`' => {
                let end = chars.iter().skip(i + 1).position(|x| *x == c).ok_or("a string has no end")? + i + 1;
                let text: String = chars.get(i + 1..end).unwrap_or_default().iter().collect();
                tokens.push(if c == '`' { Token::Word(text) } else { Token::Text(text) });
                i = end + 1;
            }
            '@' if chars.get(i + 1) == Some(&'@') => {
                i += 2;
                let mut name = word_at(&mut i);
                let mut scope = Scope::Session;
                if chars.get(i) == Some(&'.') {
                    scope = if name.eq_ignore_ascii_case("global") { Scope::Global } else { Scope::Session };
                    i += 1;
                    name = word_at(&mut i);
                }
                tokens.push(Token::System(scope, name.to_ascii_lowercase()));
            }
            '@' => {
                i += 1;
                let quoted = chars.get(i) == Some(&'`');
                i += usize::from(quoted);
                tokens.push(Token::User(word_at(&mut i)));
                i += usize::from(quoted);
            }
            '-' if chars.get(i + 1).is_some_and(char::is_ascii_digit) => {
                i += 1;
                let digits = word_at(&mut i);
                tokens.push(Token::Number(-digits.parse::<i64>().map_err(|e| e.to_string())?));
            }
            c if c.is_ascii_digit() => {
                let word = word_at(&mut i);
                tokens.push(word.parse().map_or(Token::Word(word), Token::Number));
            }
            c if is_word(c) => {
                let word = word_at(&mut i);
                // An introducer: texts are ASCII here.
                if !(word.starts_with('_') && chars.get(i) == Some(&'\'')) {
                    tokens.push(Token::Word(word));
                }
            }
            c => {
                tokens.push(Token::Sign(c));
                i += 1;
            }
        }
    }
    Ok(tokens)
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
}

impl Parser {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    fn next(&mut self) -> Option<Token> {
        let token = self.tokens.get(self.at).cloned();
        self.at += 1;
        token
    }

    fn word(&mut self) -> Option<String> {
        match self.next()? {
            Token::Word(w) => Some(w),
            _ => None,
        }
    }

    /// Takes the word if it is the next one.
    fn takes(&mut self, word: &str) -> bool {
        let found = matches!(self.peek(), Some(Token::Word(w)) if w.eq_ignore_ascii_case(word));
        self.at += usize::from(found);
        found
    }

    fn takes_sign(&mut self, sign: char) -> bool {
        let found = self.peek() == Some(&Token::Sign(sign));
        self.at += usize::from(found);
        found
    }

    fn statement(&mut self) -> Option<Statement> {
        let first = self.word()?.to_ascii_uppercase();
        match first.as_str() {
            "BEGIN" | "START" => Some(Statement::Begin),
            "COMMIT" => Some(Statement::Commit),
            "ROLLBACK" => Some(Statement::Rollback),
            "DO" => Some(Statement::Do),
            "USE" => self.word().map(Statement::Use),
            "SET" => self.set().map(Statement::Set),
            "SELECT" => self.select(),
            "INSERT" => self.insert(),
            "CREATE" if self.takes("TEMPORARY") && self.takes("TABLE") => self.word().map(Statement::CreateTemporary),
            "DROP" if self.takes("TEMPORARY") && self.takes("TABLE") => self.word().map(Statement::DropTemporary),
            "SHOW" if self.takes("WARNINGS") => Some(Statement::ShowWarnings),
            "SHOW" if self.takes("SESSION") && self.takes("VARIABLES") => Some(Statement::ShowVariables),
            "KILL" => {
                let is_query = self.takes("QUERY");
                match self.next()? {
                    Token::Number(id) => Some(Statement::Kill { is_query, id }),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    fn parameter(&mut self) -> Option<Option<i64>> {
        match self.next()? {
            Token::Number(n) => Some(Some(n)),
            Token::Sign('?') => Some(None),
            _ => None,
        }
    }

    fn insert(&mut self) -> Option<Statement> {
        self.takes("INTO").then_some(())?;
        let table = self.word()?;
        while !self.takes("VALUES") {
            self.next()?;
        }
        self.takes_sign('(').then_some(())?;
        let op = self.parameter()?;
        Some(Statement::Insert { table, op })
    }

    fn select(&mut self) -> Option<Statement> {
        let mut list = vec![self.expr()?];
        while self.takes_sign(',') {
            list.push(self.expr()?);
        }
        let (mut table, mut op) = (None, None);
        if self.takes("FROM") {
            table = Some(self.word()?);
            if self.takes("WHERE") {
                (self.takes("op") && self.takes_sign('=')).then_some(())?;
                op = Some(self.parameter()?);
            }
        }
        Some(Statement::Select { list, table, op })
    }

    fn expr(&mut self) -> Option<Expr> {
        Some(match self.next()? {
            Token::Number(n) => Expr::Number(n),
            Token::Text(t) => Expr::Text(t),
            Token::System(scope, name) => Expr::System(scope, name),
            Token::User(name) if self.takes_sign(':') => {
                self.takes_sign('=').then_some(())?;
                Expr::Assign(name, Box::new(self.expr()?))
            }
            Token::User(name) => Expr::User(name),
            Token::Word(word) if self.takes_sign('(') => {
                let mut arguments = Vec::new();
                while !self.takes_sign(')') {
                    arguments.push(self.expr()?);
                    self.takes_sign(',');
                }
                Expr::Call(word.to_ascii_uppercase(), arguments)
            }
            Token::Word(word) if word.eq_ignore_ascii_case("NULL") => Expr::Null,
            Token::Word(word) if word.eq_ignore_ascii_case("DEFAULT") => Expr::Default,
            Token::Word(word) => Expr::Column(word),
            Token::Sign('?') => Expr::Parameter,
            Token::Sign(_) => return None,
        })
    }

    fn set(&mut self) -> Option<Vec<(Target, Expr)>> {
        let mut all = Vec::new();
        loop {
            let target = match self.next()? {
                Token::System(Scope::Session, name) => Target::Session(name),
                Token::System(Scope::Global, name) => Target::Global(name),
                Token::User(name) => Target::User(name),
                Token::Word(w) if w.eq_ignore_ascii_case("NAMES") => {
                    let charset = self.expr()?;
                    let collation = if self.takes("COLLATE") { self.expr()? } else { Expr::Default };
                    all.push((Target::Names, Expr::Call("NAMES".to_owned(), vec![charset, collation])));
                    if !self.takes_sign(',') {
                        return Some(all);
                    }
                    continue;
                }
                Token::Word(w) if w.eq_ignore_ascii_case("SESSION") => Target::Session(self.word()?.to_ascii_lowercase()),
                Token::Word(w) if w.eq_ignore_ascii_case("GLOBAL") => Target::Global(self.word()?.to_ascii_lowercase()),
                Token::Word(w) => Target::Session(w.to_ascii_lowercase()),
                _ => return None,
            };
            self.takes_sign(':');
            self.takes_sign('=').then_some(())?;
            all.push((target, self.expr()?));
            if !self.takes_sign(',') {
                return (self.at >= self.tokens.len()).then_some(all);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_proxy_sends_is_understood() {
        let session = |n: &str| Target::Session(n.to_owned());
        let set = parse("SET @@session.time_zone='+02:00',@@session.autocommit=@@global.autocommit,@`v`=5").unwrap();
        let wanted = vec![
            (session("time_zone"), Expr::Text("+02:00".into())),
            (session("autocommit"), Expr::System(Scope::Global, "autocommit".into())),
            (Target::User("v".into()), Expr::Number(5)),
        ];
        assert_eq!(set, Statement::Set(wanted));
        for text in [
            "SET SESSION session_track_system_variables=_latin1'*',session_track_schema=ON,session_track_state_change=ON",
            "SET NAMES 'utf8mb4' COLLATE 'utf8mb4_bin',@@session.time_zone='UTC'",
            "SELECT @@session_track_system_variables,@@session_track_schema,@@session_track_state_change",
            "DO (SELECT 1 FROM (SELECT 1) tidegate)",
            "KILL QUERY 7",
        ] {
            parse(text).unwrap();
        }
    }

    #[test]
    fn what_clients_send_is_understood() {
        let insert = Statement::Insert { table: "t".into(), op: Some(12) };
        assert_eq!(parse("INSERT INTO t (op) VALUES (12)").unwrap(), insert);
        let list = vec![Expr::Column("n".into()), Expr::System(Scope::Session, "server_id".into())];
        let select = Statement::Select { list, table: Some("t".into()), op: Some(Some(3)) };
        assert_eq!(parse("SELECT n, @@server_id FROM t WHERE op = 3").unwrap(), select);
        assert!(parse("SELECT GET_LOCK('a', 0), @v := 5").is_ok());
        assert_eq!(parse("SELECT ?").unwrap(), Statement::Select { list: vec![Expr::Parameter], table: None, op: None });
        assert!(parse("DELETE FROM t").is_err());
    }
}
