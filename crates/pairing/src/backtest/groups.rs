//! How far three and more that share a device are foretold by what is known of fewer: `pillion backtest --groups`. Nothing is
//! replayed; each group's estimate is held against what was measured.

use super::score::{as_float, keeps_one};
use crate::copies::{CopyBook, CopyKind};
use crate::history::Observation;
use crate::model::{InterferenceModel, PredictError, SpeedEstimate, TenantInput, TrainOptions, train};
use crate::planner::copies::Ladder;
use crate::view::ProfileBook;
use pillion_core::SlowdownRatio;
use pillion_core::profile::WorkloadProfile;
use serde::Serialize;
use std::collections::BTreeSet;

/// What the model had seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Seen {
    /// How each runs alone.
    Nothing,
    /// All pairs besides.
    Pairs,
    /// All pairs, and all groups that are smaller.
    Smaller,
    /// As many copies as there are but one: what they do together is foretold from that, as on a cluster where more than four copies
    /// share (docs/decisions/0037-replicas.md).
    OneLess,
}

impl Seen {
    /// What the model may have seen.
    const OF_MODEL: [Self; 3] = [Self::Nothing, Self::Pairs, Self::Smaller];
}

/// The groups of one size, as the model foretells them.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GroupScore {
    /// How many share the device.
    pub tenants: usize,
    /// Whether all of them run the same.
    pub are_copies: bool,
    /// What the model had seen.
    pub seen: Seen,
    /// How many such groups were measured.
    pub groups: usize,
    /// Error of a speed fraction, root of its mean square.
    pub speed_fraction_rmse: f64,
    /// Mean of what was foretold less what was measured.
    pub speed_fraction_bias: f64,
    /// Of the speeds, how many were above their low figure, 0..=1.
    pub above_low_fraction: f64,
    /// Groups in which everybody was measured to keep the promise.
    pub kept: usize,
    /// Groups that the low figures admit.
    pub admitted: usize,
    /// Of these, how many break the promise of somebody.
    pub broken: usize,
}

/// Scores the groups by size, copies apart from others; what is known grows.
pub fn scores(
    profiles: &ProfileBook,
    pairs: &[Observation],
    groups: &[Observation],
    promise: SlowdownRatio,
) -> Vec<GroupScore> {
    let kinds: BTreeSet<(bool, usize)> = groups.iter().map(kind).collect();
    let mut scores = Vec::new();
    for (are_copies, tenants) in kinds {
        let smaller = groups.iter().filter(|group| group.tenants.len() < tenants);
        let of_kind = || groups.iter().filter(|group| kind(group) == (are_copies, tenants));
        for seen in Seen::OF_MODEL {
            let known: Vec<Observation> = match seen {
                Seen::Pairs => pairs.to_vec(),
                Seen::Smaller => pairs.iter().chain(smaller.clone()).cloned().collect(),
                Seen::Nothing | Seen::OneLess => Vec::new(),
            };
            let model = train(profiles, &known, &TrainOptions::default());
            let mut tally = Tally::default();
            of_kind().for_each(|group| tally.add(profiles, &model, group, promise));
            scores.push(tally.score((are_copies, tenants), seen));
        }
        if are_copies && tenants > 2 {
            let book = CopyBook::of(pairs.iter().chain(smaller));
            let mut tally = Tally::default();
            of_kind().for_each(|group| tally.add(profiles, &Steps { book: &book, promise }, group, promise));
            // Of whom one less was not measured nothing is said.
            if tally.groups > 0 {
                scores.push(tally.score((are_copies, tenants), Seen::OneLess));
            }
        }
    }
    scores
}

/// What is said of copies by what was measured of one less. Of a step that would not be taken it says that nobody is surely fast.
struct Steps<'b> {
    book: &'b CopyBook,
    promise: SlowdownRatio,
}

impl InterferenceModel for Steps<'_> {
    fn name(&self) -> &'static str {
        "copies"
    }

    fn predict(
        &self,
        tenants: &[TenantInput<'_>],
        device_model: &str,
    ) -> Result<Vec<SpeedEstimate>, PredictError> {
        let own = &tenants[0];
        let workload = &own.profile.workload;
        let kind = CopyKind::new(workload, device_model, own.sharing);
        let ladder = Ladder { book: self.book, kind, believes_counters: true };
        let mut speed = ladder.speed(tenants, device_model).ok_or_else(|| PredictError::NoProfile {
            workload: workload.to_string(),
            device_model: device_model.to_owned(),
        })?;
        let count = u32::try_from(tenants.len()).unwrap_or(u32::MAX);
        if ladder.may_be(count, self.promise).is_err() {
            speed.speed_fraction_low = 0.0;
        }
        Ok(vec![speed; tenants.len()])
    }

    fn power_watts(&self, _: &[TenantInput<'_>], _: &str) -> Option<f64> {
        None
    }
}

/// Whether all tenants run the same, and how many they are.
fn kind(group: &Observation) -> (bool, usize) {
    let workloads: BTreeSet<_> = group.tenants.iter().map(|tenant| &tenant.workload).collect();
    (workloads.len() == 1, group.tenants.len())
}

#[derive(Default)]
struct Tally {
    groups: usize,
    errors: Vec<f64>,
    above_low: usize,
    kept: usize,
    admitted: usize,
    broken: usize,
}

impl Tally {
    /// A group that somebody's speed is missing of, or that nothing can be said of, does not count.
    fn add(
        &mut self,
        profiles: &ProfileBook,
        model: &dyn InterferenceModel,
        group: &Observation,
        promise: SlowdownRatio,
    ) {
        let device = &group.device_model;
        let of = |workload| {
            let known = profiles.get(workload, device).cloned();
            known.unwrap_or_else(|| WorkloadProfile::empty(workload.clone(), device))
        };
        let known: Vec<WorkloadProfile> = group.tenants.iter().map(|tenant| of(&tenant.workload)).collect();
        let speeds: Option<Vec<f64>> = group.tenants.iter().map(|tenant| tenant.speed_fraction).collect();
        let inputs = known.iter().zip(&group.tenants);
        let inputs: Vec<TenantInput<'_>> =
            inputs.map(|(profile, tenant)| TenantInput { profile, sharing: tenant.sharing }).collect();
        let (Some(speeds), Ok(estimates)) = (speeds, model.predict(&inputs, device)) else { return };
        let least = promise.value().recip();
        let keeps = speeds.iter().all(|speed| keeps_one(*speed, least));
        let is_admitted = estimates.iter().all(|estimate| estimate.speed_fraction_low >= least);
        self.groups += 1;
        self.kept += usize::from(keeps);
        self.admitted += usize::from(is_admitted);
        self.broken += usize::from(is_admitted && !keeps);
        for (estimate, speed) in estimates.iter().zip(&speeds) {
            // Faster than alone is noise, or a host that waits less: nothing is foretold above 1.
            self.errors.push(estimate.speed_fraction - speed.min(1.0));
            self.above_low += usize::from(*speed >= estimate.speed_fraction_low);
        }
    }

    fn score(&self, (are_copies, tenants): (bool, usize), seen: Seen) -> GroupScore {
        let count = as_float(self.errors.len().max(1));
        let squares: f64 = self.errors.iter().map(|error| error * error).sum();
        GroupScore {
            tenants,
            are_copies,
            seen,
            groups: self.groups,
            speed_fraction_rmse: (squares / count).sqrt(),
            speed_fraction_bias: self.errors.iter().sum::<f64>() / count,
            above_low_fraction: as_float(self.above_low) / count,
            kept: self.kept,
            admitted: self.admitted,
            broken: self.broken,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::ObservedTenant;
    use pillion_core::WorkloadKey;
    use pillion_core::device::Mechanism;
    use pillion_core::metric::Metric;
    use pillion_core::share::Sharing;

    /// Tenants of a device on which everybody has what is left of it when all others have had this.
    fn crowd(count: usize, each_takes: f64) -> Observation {
        let speed = (1.0 - each_takes * as_float(count - 1)).max(0.05);
        let tenant = ObservedTenant {
            workload: WorkloadKey::new("small"),
            sharing: Sharing::by(Mechanism::Mps, None, None),
            speed_fraction: Some(speed),
            is_self_reported: false,
        };
        Observation {
            device_model: "h100".to_owned(),
            tenants: vec![tenant; count],
            power_watts: None,
            fits: true,
            run_count: 1.0,
            speed_fraction_deviation: None,
        }
    }

    #[test]
    fn what_is_known_of_smaller_groups_counts_and_what_breaks_is_told() {
        let mut small =
            WorkloadProfile { run_count: 3, ..WorkloadProfile::empty(WorkloadKey::new("small"), "h100") };
        small.metrics.set(Metric::SmActiveFraction, 0.1);
        let profiles = ProfileBook::from(vec![small]);
        let pairs = vec![crowd(2, 0.02); 20];
        let groups: Vec<Observation> =
            [3, 4, 16].into_iter().flat_map(|count| vec![crowd(count, 0.04); 3]).collect();
        let promise = SlowdownRatio::try_promise(1.25).unwrap();
        let scores = scores(&profiles, &pairs, &groups, promise);
        assert_eq!(
            scores.len(),
            11,
            "three sizes by what was seen, and two by one less: of fifteen nothing is known"
        );
        let by_model: Vec<_> = scores.iter().filter(|score| score.seen != Seen::OneLess).collect();
        assert!(by_model.iter().all(|score| score.are_copies && score.groups == 3));
        let of = |tenants, seen| {
            scores.iter().find(|score| (score.tenants, score.seen) == (tenants, seen)).unwrap()
        };
        assert_eq!((of(3, Seen::Pairs).kept, of(16, Seen::Pairs).kept), (3, 0));
        assert!(scores.iter().all(|score| score.broken <= score.admitted && score.admitted <= score.groups));
        let error = |seen| of(4, seen).speed_fraction_rmse;
        assert!((error(Seen::Pairs) - error(Seen::Nothing)).abs() > 1e-6, "what was seen counts");
        assert!((error(Seen::Smaller) - error(Seen::Pairs)).abs() > 1e-6, "and so do threes");
        assert!(scores.iter().all(|score| score.speed_fraction_rmse <= 1.0), "{scores:#?}");
        let steps = [3, 4].map(|tenants| of(tenants, Seen::OneLess));
        assert_eq!(steps.map(|score| (score.groups, score.admitted)), [(3, 3); 2]);
    }
}
