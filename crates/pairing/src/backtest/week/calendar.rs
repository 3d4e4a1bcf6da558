//! Who runs when: jobs of each round, by name. A name is one version of a workload that was measured; what recurs is a job of
//! an earlier round, each as likely as the other, so that a few names run every day and most of them once or twice.

use super::{DAYS, ROUNDS_PER_DAY, WeekOptions};
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

/// The generator's stream of the calendar, and of what is observed.
pub(super) const CALENDAR_STREAM: u64 = 1 << 40;
pub(super) const OBSERVED_STREAM: u64 = CALENDAR_STREAM + 1;

/// One of the week's rounds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Round {
    /// The name of each job.
    pub(super) names: Vec<usize>,
    /// Names below this ran in an earlier round; the others run for the first time, one job each.
    pub(super) known_count: usize,
}

/// A whole week.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Calendar {
    /// Of each name the workload that was measured, by place.
    pub(super) workload_of: Vec<usize>,
    pub(super) rounds: Vec<Round>,
}

impl Calendar {
    pub(super) fn draw(workload_count: usize, options: &WeekOptions, seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(CALENDAR_STREAM);
        let mut week = Self { workload_of: Vec::new(), rounds: Vec::new() };
        let mut ran: Vec<usize> = Vec::new();
        for _ in 0..DAYS * ROUNDS_PER_DAY {
            let known_count = week.workload_of.len();
            let mut names = Vec::with_capacity(options.jobs);
            for _ in 0..options.jobs {
                let recurs = rng.random_bool(options.recur_fraction.clamp(0.0, 1.0));
                let name = ran.choose(&mut rng).copied().filter(|_| recurs).unwrap_or_else(|| {
                    week.workload_of.push(rng.random_range(0..workload_count));
                    week.workload_of.len() - 1
                });
                names.push(name);
            }
            ran.extend(&names);
            week.rounds.push(Round { names, known_count });
        }
        week
    }

    /// Of each job of a round its workload, and whether it runs for the first time.
    pub(super) fn jobs(&self, round: &Round) -> Vec<(usize, bool)> {
        round.names.iter().map(|name| (self.workload_of[*name], *name >= round.known_count)).collect()
    }
}
