//! What it is worth to try two whom the bounds do not admit: what they gain if they keep their promises, weighed with what it
//! costs to take them apart again (docs/decisions/0014-trials.md).

use super::caps::{self, CAP_GAIN_MIN};
use super::evaluation::{Evaluation, Trial};
use super::evaluator::Evaluator;
use super::tenant::CandidateTenant;
use super::worth::{self, Stay};
use crate::model::{SpeedEstimate, TenantInput};
use crate::planner::index::{ClassIndex, DeviceIndex, KindIndex};
use crate::planner::trial::{Seen, Trials};
use crate::planner::tries::TryKey;
use crate::policy::Objective;
use crate::trials::user_of;
use crate::view::DeviceView;
use pillion_core::Fraction;
use pillion_core::metric::Metric;
use std::rc::Rc;

/// By how much faster than promised two must be seen to be kept together.
pub(crate) const WATCH_MARGIN_FRACTION: f64 = 0.02;
/// Whoever keeps its promise more probably than this is not waited for.
pub(crate) const SURE_PROBABILITY: f64 = 0.85;

/// A trial is worth more than this, in typical runs (two minutes of an hour): less is within what estimates are off by.
const TRIAL_WORTH_MIN: f64 = 0.03;

impl<'a> Evaluator<'_, 'a> {
    /// What was chosen, or a trial of the same two, where that is worth more.
    pub(super) fn or_trial(
        &self,
        chosen: Evaluation,
        tenants: &[CandidateTenant<'a>],
        sets: &[Vec<Option<Fraction>>],
        device: &'a DeviceView,
        mode: Option<u8>,
    ) -> Evaluation {
        let Some((trials, pair)) = self.may_try(tenants) else { return chosen };
        let is_safe = chosen.is_admitted() && chosen.excess(self.context.policy) <= 0.0;
        let mut best = None;
        let mut least = if is_safe { chosen.weight + CAP_GAIN_MIN } else { 0.0 };
        for set in sets {
            let Ok(evaluation) = self.evaluation(tenants, set, device, mode) else { continue };
            let estimates: Vec<&SpeedEstimate> = evaluation.estimates.iter().collect();
            let offer = self.offer(trials, pair, set, &estimates, device, mode);
            if let Some((trial, weight)) = offer.filter(|(_, weight)| *weight > least) {
                // Without a cap unless one is clearly better.
                least = weight + CAP_GAIN_MIN * f64::from(u8::from(best.is_none()));
                best = Some(self.tried(evaluation, trial, weight));
            }
        }
        match best {
            Some(trial) => {
                let otherwise = chosen.is_admitted().then(|| Rc::new(chosen));
                Evaluation { otherwise, ..trial }
            }
            None => chosen,
        }
    }

    /// The same without caps, for screening.
    pub(super) fn or_uncapped_trial(
        &self,
        chosen: Evaluation,
        tenants: &[CandidateTenant<'a>],
        estimates: &[&SpeedEstimate],
        device: &'a DeviceView,
    ) -> Evaluation {
        let Some((trials, pair)) = self.may_try(tenants) else { return chosen };
        let caps = pair.map(|tenant| caps::without_caps(&[tenant.cap])[0]);
        match self.offer(trials, pair, &caps, estimates, device, None) {
            Some((trial, weight)) if !chosen.is_admitted() => self.tried(chosen, trial, weight),
            _ => chosen,
        }
    }

    /// An evaluation as a trial. Nobody's promise is at risk beyond what the watch lets pass: it takes and gives nothing of the budget.
    pub(super) fn tried(&self, evaluation: Evaluation, trial: Trial, weight: f64) -> Evaluation {
        let risk = self.context.policy.broken_budget(2);
        Evaluation { weight, risk, excluded_by: None, trial: Some(trial), ..evaluation }
    }

    /// What it costs to keep a device waiting so long, in typical runs.
    pub(crate) fn cost_of_wait(&self, seconds: f64) -> f64 {
        self.typical.share_of_run(seconds)
    }

    /// Of which kind of trial two waiting jobs are, by class.
    pub(crate) fn try_key_of_pair(
        &self,
        host: ClassIndex,
        joiner: ClassIndex,
        kind: KindIndex,
    ) -> Option<TryKey> {
        let tenants = self.pair_tenants(host, joiner, kind).ok()?;
        Some(self.try_key(&tenants, self.context.kinds[kind]))
    }

    /// Likewise a job, by class, that joins what runs on a device.
    pub(crate) fn try_key_of_join(&self, class: ClassIndex, device: DeviceIndex) -> Option<TryKey> {
        let tenants = self.tenants_with(class, device).ok()?;
        Some(self.try_key(tenants.as_slice().try_into().ok()?, &self.context.devices[device]))
    }

    fn try_key(&self, [a, b]: &[CandidateTenant<'a>; 2], device: &DeviceView) -> TryKey {
        (self.model_of(device), [a.profile.min(b.profile), a.profile.max(b.profile)])
    }

    /// Two whom the watch can follow by the progress that they count and take apart by it, where the site wants trials.
    pub(super) fn may_try<'t>(
        &self,
        tenants: &'t [CandidateTenant<'a>],
    ) -> Option<(&Trials<'a>, &'t [CandidateTenant<'a>; 2])> {
        let pair: &[CandidateTenant<'a>; 2] = tenants.try_into().ok()?;
        let counts = |tenant: &CandidateTenant<'_>| {
            self.context.profiles[tenant.profile].throughput_per_second.is_some_and(|rate| rate > 0.0)
        };
        // How fast a counter counts is its user's to say, and nobody is sent away on another user's word
        // unless the site says so (docs/decisions/0015-the-watch.md): else the watch could not take strangers apart.
        let owners = [0, 1].map(|at| (pair[at].owner.uid, pair[at].owner.account));
        let is_believed = self.context.policy.watch_believes.lets(owners);
        let may_try = is_believed && pair.iter().all(|tenant| tenant.may_be_tried && counts(tenant));
        self.context.trials.as_ref().filter(|_| may_try).map(|trials| (trials, pair))
    }

    /// The trial of two with these estimates and what it is worth; `None` where there is none to be had.
    pub(super) fn offer(
        &self,
        trials: &Trials<'a>,
        pair: &[CandidateTenant<'a>; 2],
        caps: &[Option<Fraction>],
        estimates: &[&SpeedEstimate],
        device: &'a DeviceView,
        mode: Option<u8>,
    ) -> Option<(Trial, f64)> {
        let inputs = self.inputs(pair, caps, device, mode);
        let workloads = [0, 1].map(|at| &self.context.profiles[pair[at].profile].workload);
        let misfit = self.context.model.misfit_probability(&inputs, &device.model);
        let least = [0, 1].map(|at| (1.0 + WATCH_MARGIN_FRACTION) / pair[at].promise.value());
        let kept = [0, 1].map(|at| estimates[at].kept_above(least[at]));
        // 1. How probably they keep their promises.
        let keep_probability = match trials.seen(device, workloads, [caps[0], caps[1]]) {
            Seen::Unfit => return None,
            Seen::At(speeds) if (0..2).any(|at| speeds[at] < least[at]) => return None,
            Seen::At(_) => 1.0 - misfit,
            Seen::Never => {
                let said = (1.0 - misfit) * kept[0].0 * kept[1].0;
                said * trials.believed_fraction(device, user_of(workloads[0]))
            }
        };
        let is_sure = keep_probability >= SURE_PROBABILITY;
        // Whoever went back already does not go back again.
        let is_restarted = pair.iter().any(|tenant| tenant.is_restarted);
        if is_restarted && !is_sure {
            return None;
        }
        // What the guest loses by going back is counted against its own promise, which has to outlast that.
        if keep_probability < 1.0 && !self.outlasts_going_back(trials, &pair[1]) {
            return None;
        }
        // 2. What they gain then: those that do not keep them are taken apart, so that what is unsure is worth more than its mean.
        let gain = self.worth_at(pair, &inputs, kept.map(|(_, speed)| speed), device);
        let sum: f64 = kept.iter().map(|(_, speed)| speed).sum();
        if sum - 1.0 < self.context.policy.gain_min {
            return None;
        }
        // 3. What it costs to go back: the host was slowed, the guest begins again.
        let trial = trials.policy;
        let host = estimates[0].speed_fraction.min(least[0]);
        let lost_seconds = trial.trial_seconds * (1.0 - host).max(0.0) + trial.restart_seconds;
        let cost = self.typical.share_of_run(lost_seconds);
        let broken = (1.0 - misfit - keep_probability).max(0.0);
        let weight = keep_probability * gain - broken * cost - misfit * worth::MISFIT_COST;
        (weight > TRIAL_WORTH_MIN).then_some((Trial { keep_probability, is_sure }, weight))
    }

    /// Whether a guest that is sent back at the first reading would still keep its promise.
    fn outlasts_going_back(&self, trials: &Trials<'_>, guest: &CandidateTenant<'_>) -> bool {
        let lost_seconds = trials.policy.trial_seconds + trials.policy.restart_seconds;
        let slack = guest.promise.value() - 1.0;
        self.typical.seconds(guest.runs).is_none_or(|seconds| lost_seconds <= slack * seconds)
    }

    /// What they win at these speeds.
    fn worth_at(
        &self,
        pair: &[CandidateTenant<'_>; 2],
        inputs: &[TenantInput<'_>],
        speeds: [f64; 2],
        device: &DeviceView,
    ) -> f64 {
        let stays = [0, 1].map(|at| Stay {
            runs: pair[at].runs,
            speed: speeds[at],
            contested: 0.0,
            watts: inputs[at].profile.metrics.get(Metric::PowerWatts),
        });
        let objective = self.context.policy.objective;
        let together = match objective {
            Objective::Throughput => None,
            Objective::Energy | Objective::ThroughputPerWatt => {
                self.context.model.power_watts(inputs, &device.model)
            }
        };
        worth::worth(&stays, 1.0, together, objective)
    }
}
