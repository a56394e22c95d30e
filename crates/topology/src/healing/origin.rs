//! Who wrote before this proxy looked.

use std::collections::BTreeMap;

use model::ServerAddr;

/// The server from which most others replicate and that replicates from none of them; None if there is no such server. `links` are pairs
/// of members: a replica and its source. A member in the middle of a chain is never the writer, however many replicas it has.
pub fn origin(links: &[(ServerAddr, ServerAddr)]) -> Option<ServerAddr> {
    let mut counts: BTreeMap<&ServerAddr, usize> = BTreeMap::new();
    for (_, source) in links.iter().filter(|(_, source)| !links.iter().any(|(replica, _)| replica == source)) {
        *counts.entry(source).or_default() += 1;
    }
    counts.into_iter().max_by_key(|(_, count)| *count).map(|(addr, _)| addr.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pairs of replica and source, and who wrote.
    type Case = (&'static [(&'static str, &'static str)], Option<&'static str>);

    #[test]
    fn the_writer_follows_no_member() {
        let addr = |name: &str| ServerAddr { host: name.into(), port: 1 };
        let table: &[Case] = &[
            (&[], None),
            (&[("a", "p"), ("b", "p")], Some("p")),
            (&[("r", "p"), ("a", "r"), ("b", "r")], Some("p")),
            (&[("a", "r"), ("b", "r")], Some("r")),
            (&[("a", "p"), ("b", "q"), ("c", "q")], Some("q")),
            (&[("p", "q"), ("q", "p"), ("a", "p")], None),
        ];
        for (links, wanted) in table {
            let links: Vec<_> = links.iter().map(|(replica, source)| (addr(replica), addr(source))).collect();
            assert_eq!(origin(&links), wanted.map(addr), "{links:?}");
        }
    }
}
