//! The most that can be saved in a round by who knows the truth, under three rules on first runs.

use super::super::exact;
use super::super::score::keeps;
use super::super::truth::Truth;
use super::FIRST_RUN_ALONE_HOURS;
use super::outcome::{Sharing, Tally, hours_saved};
use std::collections::BTreeMap;

/// What first runs may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    /// Share with nobody.
    FirstRunsAlone,
    /// Be joined by others after their first minutes, without a cap of their own.
    FirstRunsHost,
    /// Share as everybody.
    Free,
}

/// A workload, and whether it runs for the first time, as one number.
const fn class((workload, is_first): (usize, bool)) -> usize {
    2 * workload + is_first as usize
}

/// Exact matching on the truth among those that keep the promise.
pub(super) fn best(truth: &Truth, jobs: &[(usize, bool)], speed_min: f64, rule: Rule) -> Tally {
    let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
    for job in jobs {
        *counts.entry(class(*job)).or_default() += 1;
    }
    let mut offers: BTreeMap<[usize; 2], (f64, Sharing)> = BTreeMap::new();
    for (at, combination) in truth.combinations.iter().enumerate() {
        for is_turned in [false, true] {
            let mut ends = [0, 1].map(|end| (combination.workloads[end], combination.caps[end]));
            if is_turned {
                ends.reverse();
            }
            for first in [[false, false], [false, true], [true, false], [true, true]] {
                let jobs = [0, 1].map(|end| (ends[end].0, first[end]));
                let Some(alone_hours) = alone_hours(rule, first, ends[0].1.is_none()) else { continue };
                if !jobs.iter().all(|job| counts.contains_key(&class(*job))) {
                    continue;
                }
                let sharing = Sharing { combination: at, is_turned, alone_hours };
                offer(truth, &mut offers, jobs.map(class), sharing, speed_min);
            }
        }
    }
    let weights = offers.iter().map(|(ends, (weight, _))| (*ends, *weight)).collect();
    let mut tally = Tally::of_jobs(jobs);
    for (ends, count) in exact::matched(&counts, &weights) {
        tally.add(truth, &offers[&ends].1, count, speed_min);
    }
    tally
}

/// How long the first of two has run alone before the second joins it; `None` = they may not share so.
fn alone_hours(rule: Rule, is_first_run: [bool; 2], is_host_uncapped: bool) -> Option<f64> {
    match (rule, is_first_run) {
        (Rule::Free, _) | (_, [false, false]) => Some(0.0),
        (Rule::FirstRunsHost, [true, false]) if is_host_uncapped => Some(FIRST_RUN_ALONE_HOURS),
        (Rule::FirstRunsHost | Rule::FirstRunsAlone, _) => None,
    }
}

/// Keeps the best way of sharing of two classes, where it keeps the promise and saves something.
fn offer(
    truth: &Truth,
    offers: &mut BTreeMap<[usize; 2], (f64, Sharing)>,
    [a, b]: [usize; 2],
    sharing: Sharing,
    speed_min: f64,
) {
    let Some(speeds) = sharing.speeds(truth).filter(|speeds| keeps(*speeds, speed_min)) else { return };
    let saved = hours_saved(sharing.alone_hours, speeds);
    let best = offers.get(&[a.min(b), a.max(b)]).map_or(0.0, |(best, _)| *best);
    if saved > best {
        offers.insert([a.min(b), a.max(b)], (saved, sharing));
    }
}
