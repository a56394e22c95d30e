//! Which commands ran beside writes of other sessions: a replay need not give them the same answers, because the order rule lets them
//! overlap again.

/// The writes of a capture. Two numbers of 8 bytes for each.
#[derive(Clone, Debug, Default)]
pub struct Races {
    afters: Vec<u64>,
    seqs: Vec<u64>,
    is_sorted: bool,
}

impl Races {
    /// Adds a write with its [`Timing`](crate::Timing)'s numbers.
    pub fn add(&mut self, after: u64, seq: u64) {
        self.afters.push(after);
        self.seqs.push(seq);
        self.is_sorted = false;
    }

    /// All writes were added.
    pub fn sort(&mut self) {
        self.afters.sort_unstable();
        self.seqs.sort_unstable();
        self.is_sorted = true;
    }

    /// How many writes were neither before nor behind a command with these numbers, itself not among them.
    ///
    /// Writes that had ended before it began (`seq <= after`) began before it ended too, so the difference of two counts is the number.
    pub fn beside(&self, after: u64, seq: u64, is_write: bool) -> u64 {
        debug_assert!(self.is_sorted);
        let began = self.afters.partition_point(|other| *other < seq);
        let had_ended = self.seqs.partition_point(|other| *other <= after);
        (began.saturating_sub(had_ended) as u64).saturating_sub(u64::from(is_write))
    }

    /// Whether any write had begun before a command with this number ended.
    pub fn any_before(&self, seq: u64) -> bool {
        self.afters.first().is_some_and(|first| *first < seq)
    }

    /// There is no write.
    pub fn is_empty(&self) -> bool {
        self.seqs.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_beside_a_command_are_counted() {
        let mut races = Races::default();
        // Ended before; overlapping; began behind.
        [(0, 1), (1, 3), (5, 6)].into_iter().for_each(|(after, seq)| races.add(after, seq));
        races.sort();
        assert_eq!(races.beside(1, 2, false), 1, "the one that ended as the third");
        assert_eq!(races.beside(1, 4, false), 1);
        assert_eq!(races.beside(3, 4, false), 0, "it had ended");
        assert_eq!(races.beside(1, 3, true), 0, "not itself");
        assert_eq!(races.beside(4, 7, false), 1);
        assert!(races.any_before(1) && !Races::default().any_before(9));
    }
}
