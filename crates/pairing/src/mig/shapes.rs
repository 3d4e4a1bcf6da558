//! What can be added to a device, as states that grow by one instance at a time: so that all of them are filled with jobs in
//! one pass (`fill`).

use pillion_core::mig::{Geometry, MigProfile, Slot};
use std::collections::BTreeMap;

/// How many instances of each plain size.
type Counts = Vec<u8>;

/// The sets of instances that can be added to a device, with the empty one.
#[derive(Debug, Clone)]
pub(super) struct Shapes {
    /// The plain sizes, the largest first.
    pub(super) sizes: Vec<MigProfile>,
    /// Of each set, where its instances lie, the larger ones first. The first is empty.
    pub(super) slots: Vec<Vec<Slot>>,
    /// Of each set and size, the set with one more of that size, where there is one.
    next: Vec<Vec<Option<usize>>>,
}

/// Jobs in a set of instances: for each a size, by their indexes.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Filling {
    pub(super) value: f64,
    pub(super) jobs: Vec<(usize, usize)>,
}

impl Shapes {
    /// All that can be made beside `taken`.
    pub(super) fn beside(geometry: &Geometry, taken: &[Slot]) -> Self {
        Self::new(geometry, geometry.sets(taken))
    }

    /// Of the instances that stand, and no others.
    pub(super) fn standing(geometry: &Geometry, standing: &[Slot]) -> Self {
        let mut parts: Vec<Vec<Slot>> = vec![Vec::new()];
        for slot in standing {
            let with: Vec<Vec<Slot>> =
                parts.iter().map(|part| part.iter().chain([slot]).copied().collect()).collect();
            parts.extend(with);
        }
        Self::new(geometry, parts)
    }

    fn new(geometry: &Geometry, sets: Vec<Vec<Slot>>) -> Self {
        let sizes: Vec<MigProfile> = geometry.plain().map(|size| size.profile).collect();
        let mut by_counts: BTreeMap<Counts, Vec<Slot>> = BTreeMap::from([(vec![0; sizes.len()], Vec::new())]);
        for set in sets {
            // An instance of no plain size is nobody's to fill.
            let counts: Counts = sizes.iter().map(|size| count(&set, *size)).collect();
            if counts.iter().map(|count| usize::from(*count)).sum::<usize>() == set.len() {
                by_counts.entry(counts).or_insert(set);
            }
        }
        let index: BTreeMap<&Counts, usize> =
            by_counts.keys().enumerate().map(|(at, counts)| (counts, at)).collect();
        let next =
            by_counts.keys().map(|counts| grown(counts).map(|more| index.get(&more).copied()).collect());
        let next = next.collect();
        Self { sizes, next, slots: by_counts.into_values().collect() }
    }

    /// The best filling of each set, by its index, with jobs worth so much in each size; `None` where nobody may be given one.
    /// A set that cannot be filled wholly has none. Each has all of those that have to be in it.
    pub(super) fn fill(
        &self,
        job_count: usize,
        required: &[usize],
        worth: impl Fn(usize, usize) -> Option<f64>,
    ) -> Vec<Option<Filling>> {
        let mut best: Vec<Option<Filling>> = vec![None; self.slots.len()];
        best[0] = Some(Filling::default());
        for job in 0..job_count {
            let is_required = required.contains(&job);
            // The fuller sets first: each job is given one instance.
            for state in (0..best.len()).rev() {
                let Some(before) = best[state].take() else { continue };
                for (size, to) in self.next[state].iter().enumerate() {
                    let (Some(to), Some(worth)) = (to, worth(job, size)) else { continue };
                    let value = before.value + worth;
                    if best[*to].as_ref().is_none_or(|known| value > known.value) {
                        let jobs = before.jobs.iter().copied().chain([(job, size)]).collect();
                        best[*to] = Some(Filling { value, jobs });
                    }
                }
                // Without him there is none.
                best[state] = (!is_required).then_some(before);
            }
        }
        best
    }
}

/// With one more of each size.
fn grown(counts: &Counts) -> impl Iterator<Item = Counts> {
    (0..counts.len()).map(|size| {
        let mut more = counts.clone();
        more[size] += 1;
        more
    })
}

fn count(set: &[Slot], profile: MigProfile) -> u8 {
    u8::try_from(set.iter().filter(|slot| slot.profile == profile).count()).unwrap_or(u8::MAX)
}
