//! Which devices a job on several nodes can have: Slurm books the same list on each of its nodes, so they have the same names on each.
//! Must not know what is free, nor for whom.

use pillion_core::GresType;

/// Beyond so many sets those of neighbours alone are tried: each is looked for on every node.
const SETS_MAX: usize = 128;
/// Names that have a place in a [`Set`]; those of a node are a few.
const NAMES_MAX: usize = u64::BITS as usize;

/// The names of a pool's devices, numbered in the order in which they are first met.
#[derive(Default)]
pub(in crate::planner) struct Names<'v>(Vec<&'v GresType>);

/// Some of them, each by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::planner) struct Set(u64);

impl Set {
    pub(super) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(super) const fn holds(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether all of it is in the other, and it is something: a name beyond [`NAMES_MAX`] is in none.
    pub(in crate::planner) const fn is_part_of(self, other: Self) -> bool {
        !self.is_empty() && other.holds(self)
    }

    #[must_use]
    pub(in crate::planner) const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// From its first to its last, and whether it begins elsewhere than a group of so many does: the less, the more of a node is left
    /// whole for others.
    pub(in crate::planner) const fn spread(self) -> (u32, bool) {
        let first = self.0.trailing_zeros();
        (u64::BITS - self.0.leading_zeros() - first, !first.is_multiple_of(self.0.count_ones()))
    }
}

impl<'v> Names<'v> {
    /// The set of this name alone; empty for one beyond [`NAMES_MAX`].
    pub(in crate::planner) fn one(&mut self, name: &'v GresType) -> Set {
        let known = self.0.iter().position(|own| *own == name);
        let number = known.unwrap_or_else(|| {
            self.0.push(name);
            self.0.len() - 1
        });
        if number < NAMES_MAX { Set(1 << number) } else { Set::default() }
    }

    /// The sets of so many of `among`: all of them or, where these are too many, those of neighbours.
    pub(in crate::planner) fn sets(&self, among: Set, count: usize) -> Vec<Set> {
        let of: Vec<usize> =
            (0..self.0.len().min(NAMES_MAX)).filter(|at| among.holds(Set(1 << at))).collect();
        if count == 0 || of.len() < count {
            return Vec::new();
        }
        if ways_to_choose(of.len(), count) <= SETS_MAX {
            return every(&of, count);
        }
        of.windows(count).map(set_of_numbers).collect()
    }
}

fn set_of_numbers(numbers: &[usize]) -> Set {
    Set(numbers.iter().fold(0, |all, number| all | 1 << number))
}

/// At most one more than [`SETS_MAX`] is told apart.
fn ways_to_choose(of: usize, count: usize) -> usize {
    let mut ways = 1_usize;
    for taken in 0..count.min(of - count) {
        ways = ways * (of - taken) / (taken + 1);
        if ways > SETS_MAX {
            return SETS_MAX + 1;
        }
    }
    ways
}

fn every(of: &[usize], count: usize) -> Vec<Set> {
    if count == 0 {
        return vec![Set::default()];
    }
    let Some((first, others)) = of.split_first().filter(|_| of.len() >= count) else { return Vec::new() };
    let with_first = every(others, count - 1).into_iter().map(|set| set.with(Set(1 << first)));
    with_first.chain(every(others, count)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(all: &[GresType]) -> (Names<'_>, Set) {
        let mut names = Names::default();
        let set = all.iter().fold(Set::default(), |set, name| set.with(names.one(name)));
        (names, set)
    }

    fn gres(count: usize) -> Vec<GresType> {
        (0..count).map(|at| GresType::new(format!("g{at}"))).collect()
    }

    #[test]
    fn all_sets_are_tried_where_they_are_few_and_neighbours_where_they_are_many() {
        let sets = |of: usize, count: usize| {
            let all = gres(of);
            let (names, set) = names(&all);
            names.sets(set, count)
        };
        assert_eq!(sets(8, 4).len(), 70);
        assert_eq!((sets(8, 4)[0], sets(8, 4)[69]), (Set(0x0f), Set(0xf0)));
        assert_eq!((sets(8, 8), sets(8, 9), sets(8, 0)), (vec![Set(0xff)], vec![], vec![]));
        assert_eq!((sets(16, 2).len(), sets(16, 8).len(), sets(70, 64).len()), (120, 9, 1));
    }

    #[test]
    fn neighbours_that_begin_a_group_leave_most_to_others() {
        assert!(Set(0x0f).spread() < Set(0x1e).spread() && Set(0x1e).spread() < Set(0x33).spread());
        assert_eq!(Set(0xf0).spread(), (4, false));
    }

    proptest::proptest! {
        /// Each is so many of those that it is of, none comes twice, and their number is the binomial.
        #[test]
        fn sets_are_told_once_each(mask in 0_u64..256, count in 1_usize..9) {
            let all = gres(8);
            let (names, _) = names(&all);
            let sets = names.sets(Set(mask), count);
            let by_hand = (0..256_u64).filter(|set| set & mask == *set && set.count_ones() as usize == count);
            let mut found: Vec<u64> = sets.iter().map(|set| set.0).collect();
            found.sort_unstable();
            proptest::prop_assert_eq!(found, by_hand.collect::<Vec<_>>());
        }
    }
}
