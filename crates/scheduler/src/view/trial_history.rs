//! What came of sharings of two: what was measured of them, and what the watch saw meanwhile.

use pillion_core::{JobStart, UnixTime};
use pillion_pairing::{Observation, TrialKind, TrialVerdict};
use pillion_store::{Decision, Member, StoredObservation};
use std::collections::{BTreeMap, BTreeSet};

/// So long after it was last seen to be so it counts at least.
const WATCHED_SECONDS: f64 = 600.0;

/// Two under their caps (their bits), on one model of device by one mechanism.
pub(crate) type Combination = (TrialKind, [Option<u64>; 2]);

/// What the watch saw of two, until what was measured of both runs says it: the one that stays may run for days.
#[derive(Debug, Clone, PartialEq)]
pub struct Watched {
    pub(super) verdict: TrialVerdict,
    starts: [JobStart; 2],
    seen_at: UnixTime,
}

impl Watched {
    /// Of two that go so fast; `None` where they are not two, or one was not judged.
    pub(crate) fn of(
        company: &[(&Decision, &Member)],
        speeds: &BTreeMap<JobStart, f64>,
        seen_at: UnixTime,
    ) -> Option<Self> {
        let [(decision, a), (_, b)] = company else { return None };
        let tenants = [a, b].map(|member| (member.plan.workload.clone(), member.plan.sharing.cap()));
        let starts = [a.plan.start, b.plan.start];
        let speeds = Some([*speeds.get(&starts[0])?, *speeds.get(&starts[1])?]);
        let verdict = TrialVerdict::new(&*decision.device_model, decision.mechanism(), tenants, speeds);
        Some(Self { verdict, starts, seen_at })
    }

    /// Which combination it is of: of each the newest is kept.
    pub(crate) fn combination(&self) -> Combination {
        combination(&self.verdict)
    }

    /// Whether nobody else says it yet: one of them runs still, or ended a moment ago.
    pub(crate) fn is_needed(&self, running: &BTreeSet<JobStart>, now: UnixTime) -> bool {
        self.starts.iter().any(|start| running.contains(start))
            || (0.0..WATCHED_SECONDS).contains(&now.seconds_since(self.seen_at))
    }
}

/// What came of sharings of two before, the newest of each combination.
#[derive(Debug, Clone, Default)]
pub struct TrialHistory {
    horizon: u64,
    pub(super) verdicts: BTreeMap<Combination, TrialVerdict>,
}

impl TrialHistory {
    /// The number of the last observation that was learnt.
    pub const fn horizon(&self) -> u64 {
        self.horizon
    }

    /// What these observations say something of.
    pub(crate) fn combinations(observations: &[StoredObservation]) -> BTreeSet<Combination> {
        let verdicts = observations.iter().filter_map(|stored| verdict_of(&stored.observation));
        verdicts.map(|verdict| combination(&verdict)).collect()
    }

    /// Learns observations, oldest first. Of what is not measured yet of all nothing is learnt; it comes again when it is.
    pub fn learn(&mut self, new: &[StoredObservation]) {
        for stored in new {
            self.horizon = self.horizon.max(stored.number);
            if let Some(verdict) = verdict_of(&stored.observation) {
                self.verdicts.insert(combination(&verdict), verdict);
            }
        }
    }
}

fn combination(verdict: &TrialVerdict) -> Combination {
    let caps = verdict.cap_fractions.map(|cap| cap.map(|cap| cap.value().to_bits()));
    (verdict.kind.clone(), caps)
}

fn verdict_of(seen: &Observation) -> Option<TrialVerdict> {
    let [a, b] = &seen.tenants[..] else { return None };
    let tenants = [a, b].map(|tenant| (tenant.workload.clone(), tenant.sharing.cap()));
    let speeds = if seen.fits { Some([a.speed_fraction?, b.speed_fraction?]) } else { None };
    Some(TrialVerdict::new(&*seen.device_model, seen.mechanism(), tenants, speeds))
}
