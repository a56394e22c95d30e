//! One rule, ready to be tried.

use model::ConfigError;
use model::error::ErrorKind;
use model::snapshot::{AddressPattern, QueryRule, rule_subject};

use crate::dialect::Engine;
use crate::pattern::{LimitExceeded, Pattern, Use};
use crate::request::Request;
use crate::rewrite::Rewrite;

/// A row and what its patterns were compiled to.
#[derive(Debug)]
pub(crate) struct Rule {
    pub row: QueryRule,
    pub match_digest: Option<Pattern>,
    pub match_pattern: Option<Pattern>,
    pub rewrite: Option<Rewrite>,
}

impl Rule {
    pub(crate) fn compile(row: &QueryRule, engine: Engine, errors: &mut Vec<ConfigError>) -> Self {
        let mut refuse = |column: &str, reason: String| {
            let subject = rule_subject(row.rule_id, column);
            errors.push(ConfigError { at: None, subject, kind: ErrorKind::Pattern(reason) });
        };
        let used = if row.replace_pattern.is_some() { Use::Replace } else { Use::Test };
        let mut pattern = |column: &str, text: &Option<Box<str>>, used: Use| {
            let text = text.as_deref()?;
            Pattern::new(text, row.modifiers.caseless, engine, used).map_err(|reason| refuse(column, reason)).ok()
        };
        let match_digest = pattern("match_digest", &row.match_digest, Use::Test);
        let match_pattern = pattern("match_pattern", &row.match_pattern, used);
        let rewrite = match (&row.replace_pattern, &match_pattern) {
            (Some(text), Some(pattern)) => {
                let rewrite = Rewrite::parse(text, pattern.groups(), row.modifiers.global);
                rewrite.map_err(|reason| refuse("replace_pattern", reason)).ok()
            }
            _ => None,
        };
        Self { row: row.clone(), match_digest, match_pattern, rewrite }
    }

    /// Whether the condition on the client's address holds.
    pub(crate) fn admits_address(&self, address: Option<&str>) -> bool {
        self.row.client_addr.as_ref().is_none_or(|pattern| holds(pattern, address))
    }

    /// The first condition on the sender, or on the digest's hash, that does not hold.
    pub(crate) fn refused_by(&self, request: &Request<'_>, digest: impl FnOnce() -> u64) -> Option<&'static str> {
        let row = &self.row;
        let is_other = |wanted: &Option<Box<str>>, is: &[u8]| wanted.as_deref().is_some_and(|wanted| wanted.as_bytes() != is);
        match () {
            () if is_other(&row.username, request.user) => Some("username"),
            () if is_other(&row.schemaname, request.schema) => Some("schemaname"),
            () if !self.admits_address(request.client_addr) => Some("client_addr"),
            () if is_other(&row.proxy_addr, request.proxy_addr.as_bytes()) => Some("proxy_addr"),
            () if row.proxy_port.is_some_and(|port| port != request.proxy_port) => Some("proxy_port"),
            () if row.digest.is_some_and(|wanted| wanted != digest()) => Some("digest"),
            () => None,
        }
    }

    /// Whether a pattern's condition holds, negation included.
    pub(crate) fn holds(&self, pattern: &Option<Pattern>, text: &[u8]) -> Result<bool, LimitExceeded> {
        match pattern {
            None => Ok(true),
            Some(pattern) => Ok(pattern.is_match(text)? != self.row.negate_match_pattern),
        }
    }

    /// Whether the rule counts as matched when its expression was given up. A rule that refuses statements does: otherwise a statement
    /// that is hard to search would pass it. Any other rule does not, negated or not.
    pub(crate) fn if_given_up(&self) -> bool {
        self.row.error_msg.is_some()
    }

    /// The statement with the match replaced, if this rule rewrites and there is one.
    pub(crate) fn rewritten(&self, text: &[u8]) -> Result<Option<Vec<u8>>, LimitExceeded> {
        match (&self.match_pattern, &self.rewrite) {
            (Some(pattern), Some(rewrite)) => pattern.replace(text, rewrite),
            _ => Ok(None),
        }
    }
}

fn holds(pattern: &AddressPattern, address: Option<&str>) -> bool {
    match pattern {
        AddressPattern::Any => true,
        AddressPattern::Exact(wanted) => address == Some(wanted),
        AddressPattern::Prefix(prefix) => address.is_some_and(|address| address.starts_with(&**prefix)),
    }
}
