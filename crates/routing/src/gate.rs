//! The conditions of all rules that depend on the class of a statement, packed into a small array. A new class costs one pass over it; the
//! rules themselves are large, and most are not read.

use model::snapshot::QueryRule;

use crate::facets::Facets;
use crate::prefilter::Prefilter;
use crate::request::ClassKey;

/// The conditions of one rule on a class. Numbers are those of [`Facets`]; 0 is no condition.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Gate {
    pub flag_in: u32,
    user: u32,
    schema: u32,
    proxy_addr: u32,
    /// The port and 1.
    proxy_port: u32,
    digest: Option<u64>,
    /// The digest's prefilter must have found it.
    must_be_found: bool,
    /// There is more to ask: an address or an expression for the digest.
    pub asks_more: bool,
    /// The text's prefilter can pass it over.
    pub text_filtered: bool,
    /// It asks nothing of the text.
    pub is_certain: bool,
    /// Chance picks its flagOUT.
    pub is_by_chance: bool,
    /// It may change the flag and let the evaluation go on.
    pub changes_flag: bool,
    pub apply: bool,
}

impl Gate {
    /// Packs the rule at a place.
    pub(crate) fn new(place: u32, rule: &QueryRule, facets: &Facets, digests: &Prefilter, texts: &Prefilter) -> Self {
        let (user, schema, proxy_addr) = facets.numbers(rule);
        Self {
            flag_in: rule.flag_in,
            user,
            schema,
            proxy_addr,
            proxy_port: rule.proxy_port.map_or(0, |port| u32::from(port) + 1),
            digest: rule.digest,
            must_be_found: digests.is_filtered(place),
            asks_more: rule.client_addr.is_some() || rule.match_digest.is_some(),
            text_filtered: texts.is_filtered(place),
            is_certain: rule.match_pattern.is_none(),
            is_by_chance: rule.flag_out.is_none() && !rule.flag_outs.is_empty(),
            changes_flag: !rule.apply && (rule.flag_out.is_some() || !rule.flag_outs.is_empty()),
            apply: rule.apply,
        }
    }

    /// Whether a class may pass. `found` are the places that the digest's prefilter found, ascending.
    pub(crate) fn admits(&self, place: u32, key: &ClassKey, found: &[u32], digest: impl FnOnce() -> u64) -> bool {
        let fits = |wanted: u32, is: u32| wanted == 0 || wanted == is;
        fits(self.user, key.user)
            && fits(self.schema, key.schema)
            && fits(self.proxy_addr, key.proxy_addr)
            && fits(self.proxy_port, u32::from(key.proxy_port) + 1)
            && (!self.must_be_found || found.binary_search(&place).is_ok())
            && self.digest.is_none_or(|wanted| wanted == digest())
    }
}
