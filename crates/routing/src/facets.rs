//! Sorts users, schemas and addresses into classes that no rule tells apart. So an answer that is remembered for one statement serves all
//! statements of its class.

use std::collections::HashMap;

use model::snapshot::{AddressPattern, QueryRule};

use crate::request::{ClassKey, Request};

type Numbers = HashMap<Box<[u8]>, u32, foldhash::fast::RandomState>;

/// The values that rules name. Class 0 is everything else.
#[derive(Debug, Default)]
pub(crate) struct Facets {
    users: Numbers,
    schemas: Numbers,
    proxy_addrs: Numbers,
    ports_matter: bool,
    addresses: Addresses,
}

impl Facets {
    pub(crate) fn of(rules: &[QueryRule]) -> Self {
        let named = |column: fn(&QueryRule) -> Option<&str>| {
            let mut numbers = Numbers::default();
            rules.iter().filter_map(column).for_each(|text| number(&mut numbers, text));
            numbers
        };
        Self {
            users: named(|rule| rule.username.as_deref()),
            schemas: named(|rule| rule.schemaname.as_deref()),
            proxy_addrs: named(|rule| rule.proxy_addr.as_deref()),
            ports_matter: rules.iter().any(|rule| rule.proxy_port.is_some()),
            addresses: Addresses::of(rules),
        }
    }

    /// The classes that a rule names as user, schema and listener's address; 0 where it names none.
    pub(crate) fn numbers(&self, rule: &QueryRule) -> (u32, u32, u32) {
        let number = |numbers: &Numbers, text: &Option<Box<str>>| text.as_deref().map_or(0, |text| class(numbers, text.as_bytes()));
        (number(&self.users, &rule.username), number(&self.schemas, &rule.schemaname), number(&self.proxy_addrs, &rule.proxy_addr))
    }

    pub(crate) fn key(&self, request: &Request<'_>) -> ClassKey {
        ClassKey {
            digest: request.digest_key,
            user: class(&self.users, request.user),
            schema: class(&self.schemas, request.schema),
            client_addr: self.addresses.class(request.client_addr),
            proxy_addr: class(&self.proxy_addrs, request.proxy_addr.as_bytes()),
            proxy_port: if self.ports_matter { request.proxy_port } else { 0 },
            flag_in: request.flag_in,
        }
    }
}

/// Client addresses. Patterns that match one address are nested prefixes of each other, so the longest names them all.
#[derive(Debug, Default)]
struct Addresses {
    exact: Numbers,
    prefixes: Numbers,
    /// Lengths of prefixes, longest first.
    lengths: Vec<usize>,
}

impl Addresses {
    fn of(rules: &[QueryRule]) -> Self {
        let mut addresses = Self::default();
        for pattern in rules.iter().filter_map(|rule| rule.client_addr.as_ref()) {
            match pattern {
                AddressPattern::Any => {}
                AddressPattern::Exact(address) => number(&mut addresses.exact, address),
                AddressPattern::Prefix(prefix) => {
                    number(&mut addresses.prefixes, prefix);
                    addresses.lengths.push(prefix.len());
                }
            }
        }
        addresses.lengths.sort_unstable_by(|left, right| right.cmp(left));
        addresses.lengths.dedup();
        addresses
    }

    /// Odd classes are exact addresses, even ones prefixes.
    fn class(&self, address: Option<&str>) -> u32 {
        if self.exact.is_empty() && self.prefixes.is_empty() {
            return 0;
        }
        let Some(address) = address.map(str::as_bytes) else {
            return 0;
        };
        if let Some(class) = self.exact.get(address) {
            return class * 2 + 1;
        }
        let prefixes = self.lengths.iter().filter_map(|length| address.get(..*length));
        prefixes.filter_map(|prefix| self.prefixes.get(prefix)).next().map_or(0, |class| class * 2)
    }
}

fn number(numbers: &mut Numbers, text: &str) {
    let next = u32::try_from(numbers.len() + 1).unwrap_or(u32::MAX);
    numbers.entry(text.as_bytes().into()).or_insert(next);
}

fn class(numbers: &Numbers, text: &[u8]) -> u32 {
    if numbers.is_empty() { 0 } else { numbers.get(text).copied().unwrap_or(0) }
}
