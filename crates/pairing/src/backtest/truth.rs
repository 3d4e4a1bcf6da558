//! What was measured, one entry a combination of two workloads and their caps: the only ones that may be chosen, and what
//! comes of each.

use crate::allow::AllowList;
use crate::history::{Observation, ObservedTenant};
use crate::view::ProfileBook;
use pillion_core::device::Mechanism;
use pillion_core::{Fraction, WorkloadKey};
use std::collections::{BTreeMap, BTreeSet};

/// A cap in thousandths; 1000 = none.
type Thousandths = u16;

/// Two workloads, by place in [`Truth::workloads`] (the lower first), their caps, and how fast they ran.
#[derive(Debug, Clone, PartialEq)]
pub struct Combination {
    /// Places in [`Truth::workloads`], the lower first.
    pub workloads: [usize; 2],
    /// Their caps; absent = none.
    pub caps: [Option<Fraction>; 2],
    /// Their speeds over solo speed, 0..=1 (what lies above is noise of the solo run); absent = they do not fit together.
    pub speeds: Option<[f64; 2]>,
}

impl Combination {
    /// Whether both fit, each capped at one half.
    pub(super) fn fits_half_half(&self) -> bool {
        self.is_half_half() && self.speeds.is_some()
    }

    /// The sum of both speeds, 0..=2; 0 where they did not fit.
    pub(super) fn sum(&self) -> f64 {
        self.speeds.map_or(0.0, |speeds| speeds[0] + speeds[1])
    }

    /// Whether neither has a cap.
    pub fn is_uncapped(&self) -> bool {
        self.caps == [None, None]
    }

    /// Whether both are capped at one half.
    pub(super) fn is_half_half(&self) -> bool {
        self.caps.iter().all(|cap| cap.is_some_and(|cap| (cap.value() - 0.5).abs() < 1e-6))
    }
}

/// Everything that was measured of pairs on one device model with one mechanism.
#[derive(Debug, Clone, PartialEq)]
pub struct Truth {
    /// The device model.
    pub device_model: String,
    /// How it was shared.
    pub mechanism: Mechanism,
    /// Workloads of the measured pairs, by name.
    pub workloads: Vec<WorkloadKey>,
    /// Of each workload, its family's place in [`Truth::families`].
    pub family_of: Vec<usize>,
    /// The combinations, by workloads and caps.
    pub combinations: Vec<Combination>,
    /// Observations that are no truth: of another device or mechanism, or without both speeds.
    pub left_out: usize,
    families: Vec<String>,
    place: BTreeMap<Key, usize>,
}

type Key = ([usize; 2], [Thousandths; 2]);

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a fraction is 0 to 1")]
fn thousandths(cap: Option<Fraction>) -> Thousandths {
    cap.map_or(1000, |cap| (cap.value() * 1000.0).round() as Thousandths)
}

/// The lower workload first; between two of one workload the tighter cap.
fn ordered<T>(workloads: [usize; 2], caps: [Option<Fraction>; 2], [first, second]: [T; 2]) -> (Key, [T; 2]) {
    let ends = caps.map(thousandths);
    if (workloads[0], ends[0]) <= (workloads[1], ends[1]) {
        ((workloads, ends), [first, second])
    } else {
        (([workloads[1], workloads[0]], [ends[1], ends[0]]), [second, first])
    }
}

/// Runs of one combination, summed.
#[derive(Default)]
struct Sum {
    caps: [Option<Fraction>; 2],
    runs: f64,
    fit_runs: f64,
    speeds: [f64; 2],
}

impl Sum {
    fn add(&mut self, observation: &Observation, speeds: Option<[f64; 2]>) {
        let runs = observation.run_count.max(1.0);
        self.runs += runs;
        if let Some(speeds) = speeds {
            self.fit_runs += runs;
            self.speeds = [0, 1].map(|at| self.speeds[at] + speeds[at] * runs);
        }
    }

    /// They fit together where at least half of the runs did.
    fn combination(self, workloads: [usize; 2]) -> Combination {
        let fits = 2.0 * self.fit_runs >= self.runs;
        let speeds = fits.then(|| self.speeds.map(|sum| (sum / self.fit_runs).clamp(0.0, 1.0)));
        Combination { workloads, caps: self.caps, speeds }
    }
}

/// The tenants and speeds of an observation that can be truth: two tenants, whose speeds are known where they fit.
fn pair_of(observation: &Observation) -> Option<(&[ObservedTenant; 2], Option<[f64; 2]>)> {
    let tenants: &[ObservedTenant; 2] = observation.tenants.as_slice().try_into().ok()?;
    if !observation.fits {
        return Some((tenants, None));
    }
    Some((tenants, Some([tenants[0].speed_fraction?, tenants[1].speed_fraction?])))
}

impl Truth {
    pub(super) fn new(profiles: &ProfileBook, observations: &[Observation], device_model: &str) -> Self {
        let mechanism = most_frequent_mechanism(observations, device_model);
        let of_setting = observations.iter().filter(|observation| {
            observation.device_model == device_model && observation.mechanism() == mechanism
        });
        let pairs: Vec<_> =
            of_setting.filter_map(|observation| Some((observation, pair_of(observation)?))).collect();
        let names: BTreeSet<&WorkloadKey> = pairs
            .iter()
            .flat_map(|(_, (tenants, _))| tenants.iter().map(|tenant| &tenant.workload))
            .collect();
        let workloads: Vec<WorkloadKey> = names.into_iter().cloned().collect();
        let index: BTreeMap<&WorkloadKey, usize> =
            workloads.iter().enumerate().map(|(at, workload)| (workload, at)).collect();
        let mut sums: BTreeMap<Key, Sum> = BTreeMap::new();
        for (observation, (tenants, speeds)) in &pairs {
            let [a, b] = *tenants;
            let caps = [a.sharing.cap(), b.sharing.cap()];
            let ends = [index[&a.workload], index[&b.workload]];
            let (key, caps) = ordered(ends, caps, caps);
            let speeds = speeds.map(|speeds| ordered(ends, [a.sharing.cap(), b.sharing.cap()], speeds).1);
            let sum = sums.entry(key).or_insert_with(|| Sum { caps, ..Sum::default() });
            sum.add(observation, speeds);
        }
        let place = sums.keys().copied().enumerate().map(|(at, key)| (key, at)).collect();
        let combinations = sums.into_iter().map(|((ends, _), sum)| sum.combination(ends)).collect();
        let (families, family_of) = families(profiles, &workloads, device_model);
        let left_out = observations.len() - pairs.len();
        let device_model = device_model.to_owned();
        Self { device_model, mechanism, workloads, family_of, combinations, left_out, families, place }
    }

    /// The families' names.
    pub fn families(&self) -> &[String] {
        &self.families
    }

    /// The measured combination of two workloads under these caps, in either order.
    pub fn find(&self, workloads: [usize; 2], caps: [Option<Fraction>; 2]) -> Option<usize> {
        self.place.get(&ordered(workloads, caps, [(), ()]).0).copied()
    }

    /// A workload's place.
    pub fn workload(&self, key: &WorkloadKey) -> Option<usize> {
        self.workloads.binary_search(key).ok()
    }

    /// What was measured, as a rule for the planner.
    pub(super) fn allow_list(&self) -> AllowList {
        let mut list = AllowList::default();
        for combination in &self.combinations {
            let [a, b] = combination.workloads.map(|workload| &self.workloads[workload]);
            let [cap_a, cap_b] = combination.caps;
            list.allow((a, cap_a), (b, cap_b));
        }
        list
    }
}

fn most_frequent_mechanism(observations: &[Observation], device_model: &str) -> Mechanism {
    let mut counts: BTreeMap<&str, (usize, Mechanism)> = BTreeMap::new();
    for seen in observations.iter().filter(|seen| seen.device_model == device_model) {
        counts.entry(seen.mechanism().as_str()).or_insert((0, seen.mechanism())).0 += 1;
    }
    counts.values().max_by_key(|(count, _)| *count).map_or(Mechanism::TimeSliced, |(_, mechanism)| *mechanism)
}

/// A workload whose family nobody names is a family of its own.
fn families(
    profiles: &ProfileBook,
    workloads: &[WorkloadKey],
    device_model: &str,
) -> (Vec<String>, Vec<usize>) {
    let names = workloads.iter().map(|workload| {
        let family = profiles.get(workload, device_model).and_then(|profile| profile.family.clone());
        family.unwrap_or_else(|| workload.as_str().to_owned())
    });
    let names: Vec<String> = names.collect();
    let each_once: BTreeSet<&String> = names.iter().collect();
    let families: Vec<String> = each_once.into_iter().cloned().collect();
    let family_of = names.iter().map(|name| families.binary_search(name).unwrap_or_default()).collect();
    (families, family_of)
}
