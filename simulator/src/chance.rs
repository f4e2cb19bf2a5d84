//! Interventions: everything that goes wrong, or that people do, drawn so that a history can be played again without
//! some of it.
//!
//! Whether the `n`-th opportunity of a source is taken, and how, depends on the seed, the source and `n` alone. So a
//! history in which an invariant was violated can be shrunk: the interventions that it does not need are left out, and the
//! others stay what they were.

use std::collections::BTreeSet;

use fastrand::Rng;

/// Where an intervention comes from. Each source counts its opportunities by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Source {
    /// A request of a controller process.
    Request = 0,
    /// Something delivered by a watch.
    Watch = 1,
    /// People and machines.
    Person = 2,
    /// A node that Karpenter launches.
    Launch = 3,
    /// A process: its pauses, its clock, its network.
    Process = 4,
}

const SOURCES: usize = 5;
const BITS_OF_COUNT: u32 = 28;

/// Draws interventions.
#[derive(Debug)]
pub struct Chance {
    seed: u64,
    only: Option<BTreeSet<u32>>,
    opportunities: [u32; SOURCES],
    /// The interventions that took place, by number, in their order.
    pub taken: Vec<u32>,
}

impl Chance {
    /// Draws by this seed; `only` these numbers, if given.
    pub fn new(seed: u64, only: Option<&[u32]>) -> Self {
        let only = only.map(|only| only.iter().copied().collect());
        Self { seed, only, opportunities: [0; SOURCES], taken: Vec::new() }
    }

    /// An opportunity, taken once in `rarity` times; never where that is 0. What happens is drawn from the result.
    pub fn take(&mut self, source: Source, rarity: u32) -> Option<Rng> {
        let count = self.opportunities.get_mut(source as usize)?;
        let number = ((source as u32) << BITS_OF_COUNT) | *count;
        *count += 1;
        if rarity == 0 || self.only.as_ref().is_some_and(|only| !only.contains(&number)) {
            return None;
        }
        let mut rng = Rng::with_seed(self.seed.wrapping_mul(0xd134_2543_de82_ef95) ^ u64::from(number));
        rng.u64(..); // the first number of neighbouring seeds is much alike
        (rng.u32(0..rarity) == 0).then(|| {
            self.taken.push(number);
            rng
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_changes_nothing_of_the_rest() {
        let draw = |only: Option<&[u32]>| {
            let mut chance = Chance::new(7, only);
            let drawn: Vec<_> = (0..200)
                .map(|i| {
                    chance.take(if i % 2 == 0 { Source::Request } else { Source::Person }, 10).map(|mut r| r.u32(..))
                })
                .collect();
            (drawn, chance.taken)
        };
        let (all, taken) = draw(None);
        assert!(taken.len() > 5, "{taken:?}");
        let (some, kept) = draw(Some(&taken[1..3]));
        assert_eq!(kept, taken[1..3]);
        let expected: Vec<_> = all.iter().flatten().skip(1).take(2).copied().collect();
        assert_eq!(some.into_iter().flatten().collect::<Vec<_>>(), expected);
    }
}
