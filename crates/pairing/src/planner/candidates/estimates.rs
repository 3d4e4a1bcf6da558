//! Estimates, and what follows from them: which promise they keep, what the sharing is worth, what it risks.

use super::evaluation::Evaluation;
use super::evaluator::Evaluator;
use super::tenant::{CandidateTenant, climb};
use super::trial::WATCH_MARGIN_FRACTION;
use super::worth::{self, Stay};
use crate::model::{SpeedEstimate, TenantInput};
use crate::plan::Reason;
use crate::planner::admit;
use crate::planner::first_run;
use crate::planner::index::{KindIndex, ProfileIndex};
use crate::policy::Objective;
use crate::view::DeviceView;
use pillion_core::Fraction;
use pillion_core::metric::Metric;
use pillion_core::share::Sharing;
use std::rc::Rc;

/// Tenants that will more probably not fit than this are not tried together.
const MISFIT_MAX: f64 = 0.5;
/// So many estimates are kept: beyond that, memory costs more than to estimate again.
const PREDICTIONS_MAX: usize = 20_000;

impl<'a> Evaluator<'_, 'a> {
    pub(super) fn evaluation(
        &self,
        tenants: &[CandidateTenant<'a>],
        caps: &[Option<Fraction>],
        device: &DeviceView,
        mode: Option<u8>,
    ) -> Result<Evaluation, Reason> {
        let estimates = self.predict(tenants, caps, device, mode)?;
        let judged = self.judged(tenants, caps, &estimates.iter().collect::<Vec<_>>(), device, mode)?;
        Ok(Evaluation { caps: caps.to_vec(), estimates, ..judged })
    }

    /// What follows from estimates, which are not kept with it.
    pub(super) fn judged(
        &self,
        tenants: &[CandidateTenant<'a>],
        caps: &[Option<Fraction>],
        estimates: &[&SpeedEstimate],
        device: &DeviceView,
        mode: Option<u8>,
    ) -> Result<Evaluation, Reason> {
        let sum: f64 = estimates.iter().map(|estimate| estimate.speed_fraction).sum();
        let before = if let [_, _] = tenants { 1.0 } else { self.sum_before(tenants, caps, device, mode)? };
        let mut promises = estimates.iter().zip(tenants);
        let are_kept = promises.all(|(estimate, tenant)| admit::keeps_promise(estimate, tenant.promise));
        let inputs = self.inputs(tenants, caps, device, mode);
        let misfit = self.context.model.misfit_probability(&inputs, &device.model);
        let risks = estimates.iter().zip(tenants).map(|(own, tenant)| own.break_probability(tenant.promise));
        let risk: f64 = risks.map(|risk| misfit + (1.0 - misfit) * risk).sum();
        let weight = self.weight(tenants, &inputs, estimates, before, device) * (1.0 - misfit)
            - misfit * worth::MISFIT_COST;
        let excluded_by = if misfit >= MISFIT_MAX {
            Some(Reason::MemoryDoesNotFit)
        } else if !are_kept || self.is_seen_to_break(tenants, caps, device) {
            Some(Reason::PromiseAtRisk)
        } else if sum - before < self.context.policy.gain_min || weight <= 0.0 {
            Some(Reason::GainTooSmall)
        } else {
            None
        };
        Ok(Evaluation { ccs_mode: mode, gain: sum - 1.0, weight, risk, excluded_by, ..Evaluation::unknown() })
    }

    /// Whether the watch sees two of these workloads break a promise of these, who run now or did a moment ago: sooner than any model
    /// learns it.
    fn is_seen_to_break(
        &self,
        tenants: &[CandidateTenant<'_>],
        caps: &[Option<Fraction>],
        device: &DeviceView,
    ) -> bool {
        let ([a, b], [cap_a, cap_b]) = (tenants, caps) else { return false };
        let workloads = [a, b].map(|tenant| &self.context.profiles[tenant.profile].workload);
        let least = [a, b].map(|tenant| (1.0 - WATCH_MARGIN_FRACTION) / tenant.promise.value());
        self.context.watched.are_slower(device, workloads, [*cap_a, *cap_b], least)
    }

    /// The sum of speeds without the last tenant.
    fn sum_before(
        &self,
        tenants: &[CandidateTenant<'a>],
        caps: &[Option<Fraction>],
        device: &DeviceView,
        mode: Option<u8>,
    ) -> Result<f64, Reason> {
        let count = tenants.len() - 1;
        if let Some(pair) = self.of_copies(&tenants[..count], &caps[..count], device, mode) {
            return Ok(pair.iter().map(|estimate| estimate.speed_fraction).sum());
        }
        let estimates = self.predict(&tenants[..count], &caps[..count], device, mode)?;
        Ok(estimates.iter().map(|estimate| estimate.speed_fraction).sum())
    }

    /// What the site's objective makes of a sharing, in typical runs on a device of its own. Without known power,
    /// throughput counts.
    fn weight(
        &self,
        tenants: &[CandidateTenant<'_>],
        inputs: &[TenantInput<'_>],
        estimates: &[&SpeedEstimate],
        before: f64,
        device: &DeviceView,
    ) -> f64 {
        let stays: Vec<Stay> = tenants
            .iter()
            .zip(inputs)
            .zip(estimates)
            .map(|((tenant, input), own)| Stay {
                runs: tenant.runs,
                speed: own.speed_fraction,
                contested: if own.has_heavy_tail { own.spread() } else { 0.0 },
                watts: input.profile.metrics.get(Metric::PowerWatts),
            })
            .collect();
        let together = match self.context.policy.objective {
            Objective::Throughput => None,
            Objective::Energy | Objective::ThroughputPerWatt => {
                self.context.model.power_watts(inputs, &device.model)
            }
        };
        worth::worth(&stays, before, together, self.context.policy.objective)
    }

    pub(super) fn inputs(
        &self,
        tenants: &[CandidateTenant<'_>],
        caps: &[Option<Fraction>],
        device: &DeviceView,
        mode: Option<u8>,
    ) -> Vec<TenantInput<'a>> {
        let capped = tenants.iter().zip(caps);
        let inputs = capped.map(|(tenant, cap)| TenantInput {
            profile: self.context.profiles[tenant.profile],
            sharing: Sharing::by(device.mechanism, *cap, mode),
        });
        inputs.collect()
    }

    pub(super) fn predict(
        &self,
        tenants: &[CandidateTenant<'_>],
        caps: &[Option<Fraction>],
        device: &DeviceView,
        mode: Option<u8>,
    ) -> Result<Rc<Vec<SpeedEstimate>>, Reason> {
        if tenants.len() > 2
            && let Some(copies) = self.of_copies(tenants, caps, device, mode)
        {
            return Ok(copies);
        }
        let capped = tenants.iter().zip(caps);
        let capped =
            capped.map(|(tenant, cap)| (tenant.profile, cap.map_or(f64::MAX, Fraction::value).to_bits()));
        let key = (self.model_of(device), mode, capped.collect());
        if let Some(known) = self.found.predictions.borrow().get(&key) {
            return known.clone().ok_or(Reason::UnknownWorkload);
        }
        let inputs = self.inputs(tenants, caps, device, mode);
        let estimates = self.context.model.predict(&inputs, &device.model).ok();
        let estimates = estimates
            .map(|estimates| Rc::new(self.doubted(estimates, tenants.iter().map(|tenant| tenant.profile))));
        if self.found.predictions.borrow().len() < PREDICTIONS_MAX {
            self.found.predictions.borrow_mut().insert(key, estimates.clone());
        }
        estimates.ok_or(Reason::UnknownWorkload)
    }

    /// How fast copies are that go up step by step, by what was measured of them; `None` where nothing was. Two that would start are as
    /// any two.
    fn of_copies(
        &self,
        tenants: &[CandidateTenant<'_>],
        caps: &[Option<Fraction>],
        device: &DeviceView,
        mode: Option<u8>,
    ) -> Option<Rc<Vec<SpeedEstimate>>> {
        let are_alike = caps.iter().all(|cap| *cap == caps[0]);
        if tenants.len() < 2 || !are_alike || !climb(tenants) {
            return None;
        }
        let ladder = self.ladder(tenants, Sharing::by(device.mechanism, caps[0], mode), &device.model);
        let speed = ladder.speed(&self.inputs(tenants, caps, device, mode), &device.model)?;
        Some(Rc::new(vec![speed; tenants.len()]))
    }

    /// The same with the doubt about profiles that are of a first run's minutes only.
    pub(super) fn doubted(
        &self,
        mut estimates: Vec<SpeedEstimate>,
        profiles: impl IntoIterator<Item = ProfileIndex>,
    ) -> Vec<SpeedEstimate> {
        let errors = &self.context.first_run_errors;
        for error in profiles.into_iter().filter_map(|profile| errors.get(&profile)) {
            first_run::widen(&mut estimates, *error);
        }
        estimates
    }

    /// The first kind of devices of this model and mechanism: estimates know no other difference.
    pub(super) fn model_of(&self, device: &DeviceView) -> KindIndex {
        let alike = self
            .context
            .kinds
            .position(|kind| kind.model == device.model && kind.mechanism == device.mechanism);
        alike.unwrap_or(KindIndex::from(0))
    }
}
