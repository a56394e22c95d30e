//! A limited part of a script's output.

/// Which part is kept when there is too much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// The beginning: an answer that is cut is no answer.
    Head,
    /// The end: what went wrong is said last.
    Tail,
}

/// The kept part of an output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capture {
    keep: Keep,
    limit: usize,
    bytes: Vec<u8>,
    is_cut: bool,
}

impl Capture {
    /// Nothing yet; at most `limit` bytes will be kept.
    pub fn new(keep: Keep, limit: usize) -> Self {
        Self { keep, limit, bytes: Vec::new(), is_cut: false }
    }

    /// Appends output. Beyond the limit, [`Keep`] says which part is dropped.
    pub fn push(&mut self, more: &[u8]) {
        let room = self.limit.saturating_sub(self.bytes.len());
        self.is_cut |= more.len() > room;
        match self.keep {
            Keep::Head => self.bytes.extend(more.iter().take(room)),
            Keep::Tail => {
                let more = more.get(more.len().saturating_sub(self.limit)..).unwrap_or_default();
                let excess = (self.bytes.len() + more.len()).saturating_sub(self.limit);
                self.bytes.drain(..excess.min(self.bytes.len()));
                self.bytes.extend_from_slice(more);
            }
        }
    }

    /// The kept part.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }

    /// Whether something was left out.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn keeps_one_end(pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..9), 0..6), limit in 0usize..12) {
            let all = pieces.concat();
            let cut = all.len().min(limit);
            for (keep, kept) in [(Keep::Head, &all[..cut]), (Keep::Tail, &all[all.len() - cut..])] {
                let mut capture = Capture::new(keep, limit);
                pieces.iter().for_each(|piece| capture.push(piece));
                prop_assert_eq!(&capture.bytes[..], kept);
                prop_assert_eq!(capture.is_cut(), all.len() > limit);
            }
        }
    }
}
