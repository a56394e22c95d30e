//! Reproducible choices. SplitMix64: small, and good enough to choose among statements.

/// A stream of choices; the same seed always gives the same stream.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// Begins a stream.
    pub fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    /// A stream of its own for part `n` of the work of this seed.
    pub fn part(seed: u64, n: u64) -> Rng {
        let mut rng = Rng(seed ^ n.wrapping_mul(0xd134_2543_de82_ef95));
        rng.bits();
        rng
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `limit`; 0 when `limit` is 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.bits().checked_rem(limit).unwrap_or(0)
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// One of `choices`, which must not be empty.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        let at = usize::try_from(self.below(choices.len() as u64)).unwrap_or(0);
        &choices[at]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_choices() {
        let draw = |seed| {
            let mut rng = Rng::part(seed, 3);
            (0..20).map(|_| rng.below(1000)).collect::<Vec<_>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }
}
