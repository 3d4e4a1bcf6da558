//! What is followed of one company of tenants on one device, and when it is judged: pure. A company that changes is followed anew:
//! a speed belongs to those who were there.

use super::blocks::Blocks;
use super::estimate::{Estimate, Ground, Reference, Verdict, by_activity, by_counter};
use super::guest::Stays;
use crate::agents::DeviceSeen;
use pillion_core::metric::Metric;
use pillion_core::profile::WorkloadProfile;
use pillion_core::{JobStart, UnixTime};
use pillion_store::Member;
use std::collections::{BTreeMap, BTreeSet};

/// When tenants are judged.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Readings {
    /// After so much was measured, for the first time.
    pub(super) first_seconds: f64,
    /// And then each time after so much more.
    pub(super) steady_seconds: f64,
}

impl Readings {
    /// How much has to be measured for the next one, where so much is.
    fn after(&self, measured_seconds: f64) -> f64 {
        // The second comes where the steady ones would be, were there no first.
        (measured_seconds / self.steady_seconds).floor().mul_add(self.steady_seconds, self.steady_seconds)
    }
}

/// One tenant.
#[derive(Debug, Clone)]
pub(super) struct Followed {
    slowdown_ratio_max: f64,
    /// It is tried with its company.
    is_trial: bool,
    /// `None`: nobody knows how fast it counts alone.
    reference: Option<Reference>,
    blocks: Blocks,
    /// How much has to be measured before it is judged again.
    next_seconds: f64,
    /// The last judgement.
    judged: Option<(Estimate, Verdict)>,
    /// Runs alone that are known of its workload.
    run_count: u32,
}

impl Followed {
    fn of(member: &Member, profile: Option<&WorkloadProfile>, is_trial: bool, readings: &Readings) -> Self {
        let reference = profile.and_then(|profile| {
            Some(Reference {
                rate_per_second: profile.throughput_per_second?,
                variation_fraction: profile.duration_variation_fraction,
                run_count: profile.run_count,
            })
        });
        Self {
            slowdown_ratio_max: member.plan.slowdown_ratio_max,
            is_trial,
            reference,
            blocks: Blocks::default(),
            next_seconds: readings.first_seconds,
            judged: None,
            run_count: profile.map_or(0, |profile| profile.run_count),
        }
    }

    pub(super) const fn slowdown_ratio_max(&self) -> f64 {
        self.slowdown_ratio_max
    }

    pub(super) const fn run_count(&self) -> u32 {
        self.run_count
    }

    /// The last estimate, where it says that the promise is being broken.
    pub(super) fn broken(&self) -> Option<Estimate> {
        self.judged.and_then(|(estimate, verdict)| (verdict == Verdict::Broken).then_some(estimate))
    }

    /// How fast it goes, as far as that was measured.
    pub(super) fn speed_fraction(&self) -> Option<f64> {
        self.judged.map(|(estimate, _)| estimate.speed_fraction)
    }

    fn judge(&mut self, activity: &Activity, readings: &Readings) -> bool {
        let counts = self.reference.filter(|_| self.blocks.has_moved());
        let measured_seconds = match counts {
            Some(_) => self.blocks.measured_seconds(),
            None => activity.seconds(),
        };
        if measured_seconds < self.next_seconds {
            return false;
        }
        let estimate = match counts {
            Some(reference) => by_counter(self.blocks.closed(), &reference),
            None => activity.estimate(),
        };
        // Too few blocks of a counter that hardly moves: at the next sample, then.
        let Some(estimate) = estimate else { return false };
        self.next_seconds = readings.after(measured_seconds);
        // The first reading says whether a trial holds; from then on it is a sharing like every other.
        let verdict = if self.is_trial && self.judged.is_none() {
            estimate.verdict_of_trial(self.slowdown_ratio_max)
        } else {
            estimate.verdict(self.slowdown_ratio_max)
        };
        self.judged = Some((estimate, verdict));
        true
    }
}

/// What the device did since the company is what it is.
#[derive(Debug, Clone, Default)]
struct Activity {
    /// What each tenant does alone; empty where that is not known of all.
    alone: Vec<f64>,
    first_at: Option<UnixTime>,
    last_at: Option<UnixTime>,
    sample_count: f64,
    sum: f64,
}

impl Activity {
    fn add(&mut self, sample: &DeviceSeen) {
        let Some(active) = sample.reading.metrics.get(Metric::SmActiveFraction) else { return };
        self.first_at.get_or_insert(sample.at);
        self.last_at = Some(sample.at);
        self.sample_count += 1.0;
        self.sum += active;
    }

    fn seconds(&self) -> f64 {
        self.first_at.zip(self.last_at).map_or(0.0, |(first, last)| last.seconds_since(first))
    }

    fn estimate(&self) -> Option<Estimate> {
        let is_known = !self.alone.is_empty() && self.sample_count > 0.0;
        is_known.then(|| by_activity(self.sum / self.sample_count, &self.alone, self.seconds())).flatten()
    }
}

/// What was already said of a company, so that it is said once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Told {
    /// That this promise is being broken.
    Breaking(JobStart),
    /// That the guest stays.
    Stays(JobStart, Stays),
}

/// The tenants of one device.
#[derive(Debug, Clone)]
pub(super) struct Sharing {
    company: BTreeSet<JobStart>,
    tenants: BTreeMap<JobStart, Followed>,
    activity: Activity,
    sampled_at: Option<UnixTime>,
    /// Whether all was done that the last judgements ask for.
    pub(super) is_settled: bool,
    /// What was said.
    pub(super) told: BTreeSet<Told>,
}

impl Sharing {
    /// Of these tenants, each with what is known of its workload alone.
    pub(super) fn of(
        tenants: &[(&Member, Option<&WorkloadProfile>)],
        is_trial: bool,
        readings: &Readings,
    ) -> Self {
        let alone: Option<Vec<f64>> = tenants
            .iter()
            .map(|(_, profile)| profile.as_ref()?.metrics.get(Metric::SmActiveFraction))
            .collect();
        let followed = tenants
            .iter()
            .map(|(member, profile)| (member.plan.start, Followed::of(member, *profile, is_trial, readings)));
        Self {
            company: tenants.iter().map(|(member, _)| member.plan.start).collect(),
            tenants: followed.collect(),
            activity: Activity { alone: alone.unwrap_or_default(), ..Activity::default() },
            sampled_at: None,
            is_settled: true,
            told: BTreeSet::new(),
        }
    }

    /// Nothing is made of what the device does.
    pub(super) fn goes_by_counters(&mut self) {
        self.activity.alone.clear();
    }

    /// Whether these, and nobody else, are there.
    pub(super) fn is_of(&self, company: &BTreeSet<JobStart>) -> bool {
        self.company == *company
    }

    pub(super) fn tenant(&self, start: JobStart) -> Option<&Followed> {
        self.tenants.get(&start)
    }

    /// Whose promise is being broken, and how plainly.
    pub(super) fn broken(&self) -> impl Iterator<Item = (JobStart, Estimate)> {
        self.tenants.iter().filter_map(|(start, followed)| Some((*start, followed.broken()?)))
    }

    /// How fast each goes over its speed alone; `None` until all were judged by their counters.
    pub(super) fn speeds(&self) -> Option<BTreeMap<JobStart, f64>> {
        let by_counter = |followed: &Followed| {
            let (estimate, _) = followed.judged?;
            (estimate.ground == Ground::Counter).then_some(estimate.speed_fraction)
        };
        self.tenants.iter().map(|(start, followed)| Some((*start, by_counter(followed)?))).collect()
    }

    /// One sample more. Whoever is judged by it has to be seen to.
    pub(super) fn observe(&mut self, sample: &DeviceSeen, readings: &Readings) {
        if self.sampled_at.is_some_and(|before| sample.at <= before) {
            return;
        }
        self.sampled_at = Some(sample.at);
        self.activity.add(sample);
        for used in &sample.tenants {
            let start = JobStart { job_id: used.job_id, restart_count: used.restart_count };
            let Some(followed) = self.tenants.get_mut(&start) else { continue };
            if let Some((counter, reference)) = used.progress.zip(followed.reference) {
                followed.blocks.add(sample.at, counter, reference.rate_per_second);
            }
        }
        for followed in self.tenants.values_mut() {
            if followed.judge(&self.activity, readings) {
                self.is_settled = false;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{NOW, at, member};
    use pillion_core::decision::MemberState;
    use pillion_core::device::{Reading, TenantUse};
    use pillion_core::metric::Metrics;
    use pillion_core::{SlurmJobId, WorkloadKey};

    const READINGS: Readings = Readings { first_seconds: 60.0, steady_seconds: 600.0 };

    fn start(id: u32) -> JobStart {
        JobStart { job_id: SlurmJobId::plain(id), restart_count: 0 }
    }

    fn profile(rate_per_second: Option<f64>) -> WorkloadProfile {
        WorkloadProfile {
            throughput_per_second: rate_per_second,
            run_count: 5,
            duration_variation_fraction: Some(0.02),
            metrics: Metrics::from([(Metric::SmActiveFraction, 0.5)]),
            ..WorkloadProfile::empty(WorkloadKey::new("alice/w"), "h100")
        }
    }

    fn sharing(rates: [Option<f64>; 2]) -> Sharing {
        company(rates, false)
    }

    fn company(rates: [Option<f64>; 2], is_trial: bool) -> Sharing {
        let members = [7, 8].map(|id| {
            let mut member = member(MemberState::Running);
            member.plan.start = start(id);
            member
        });
        let profiles = rates.map(profile);
        let tenants = [(&members[0], Some(&profiles[0])), (&members[1], Some(&profiles[1]))];
        Sharing::of(&tenants, is_trial, &READINGS)
    }

    fn sample(second: u64, counters: [Option<f64>; 2], active: f64) -> DeviceSeen {
        let used = |(id, progress): (u32, Option<f64>)| TenantUse {
            job_id: SlurmJobId::plain(id),
            restart_count: 0,
            memory_bytes: None,
            process_count: 1,
            progress,
        };
        DeviceSeen {
            at: at(NOW + second),
            reading: Reading::from([(Metric::SmActiveFraction, active)]),
            tenants: [(7, counters[0]), (8, counters[1])].map(used).into(),
        }
    }

    /// At which second this sharing first has something to be seen to, and whose promises are broken then.
    #[expect(clippy::cast_precision_loss, reason = "seconds of a test")]
    fn first_judged(sharing: &mut Sharing, speeds: [f64; 2], active: f64) -> Option<(u64, Vec<u32>)> {
        (0..700).find_map(|second| {
            let counters = speeds.map(|speed| Some(10.0 * speed * second as f64));
            sharing.observe(&sample(second, counters, active), &READINGS);
            let broken = sharing.broken().map(|(start, _)| start.job_id.id).collect();
            (!sharing.is_settled).then_some((second, broken))
        })
    }

    #[test]
    fn tenants_are_judged_after_a_minute_of_progress_and_then_every_ten() {
        let mut sharing = sharing([Some(10.0); 2]);
        assert_eq!(first_judged(&mut sharing, [0.5, 1.0], 0.5), Some((71, vec![7])));
        sharing.is_settled = true;
        let second = (72..2_000).find(|second| {
            #[expect(clippy::cast_precision_loss, reason = "seconds of a test")]
            let counter = 10.0 * *second as f64;
            sharing.observe(&sample(*second, [Some(counter); 2], 0.5), &READINGS);
            !sharing.is_settled
        });
        assert!(second.is_some_and(|second| (605..640).contains(&second)), "{second:?}");
    }

    #[test]
    fn a_trial_has_to_be_seen_to_hold_at_its_first_reading() {
        // A promise of 1.25 asks for 0.8, and of a trial for 0.816.
        for (speed, is_trial, is_broken) in
            [(0.81, true, true), (0.83, true, false), (0.81, false, false), (0.79, false, false)]
        {
            let mut sharing = company([Some(10.0); 2], is_trial);
            let (_, broken) = first_judged(&mut sharing, [speed, 1.0], 0.5).unwrap();
            assert_eq!(!broken.is_empty(), is_broken, "at {speed}, tried: {is_trial}");
        }
        let mut blind = company([None, Some(10.0)], true);
        assert_eq!(first_judged(&mut blind, [0.0, 1.0], 0.5).unwrap().1, Vec::<u32>::new(), "a rough word");
        assert_eq!(blind.speeds(), None);
    }

    #[test]
    fn speeds_are_told_once_all_were_judged_by_their_counters() {
        let mut sharing = sharing([Some(10.0); 2]);
        assert_eq!(sharing.speeds(), None);
        let mut second: u32 = 0;
        while sharing.speeds().is_none() && second < 200 {
            second += 1;
            let counter = 10.0 * f64::from(second);
            sharing.observe(&sample(u64::from(second), [Some(0.5 * counter), Some(counter)], 0.5), &READINGS);
        }
        let speeds = sharing.speeds().unwrap();
        assert!(
            (speeds[&start(7)] - 0.5).abs() < 0.01 && (speeds[&start(8)] - 1.0).abs() < 0.01,
            "{speeds:?}"
        );
    }

    #[test]
    fn who_does_not_count_is_followed_by_what_his_device_does() {
        let mut sharing = sharing([None, Some(10.0)]);
        let (second, broken) = first_judged(&mut sharing, [0.0, 1.0], 0.1).unwrap();
        assert_eq!((second, broken), (60, vec![7]));
        let (_, estimate) = sharing.broken().next().unwrap();
        assert_eq!(estimate.ground, Ground::Activity);
        assert_eq!(sharing.tenant(start(7)).unwrap().run_count(), 5);
    }

    #[test]
    fn who_goes_by_counters_is_not_judged_by_what_the_device_does() {
        let mut sharing = sharing([None, Some(10.0)]);
        sharing.goes_by_counters();
        let (_, broken) = first_judged(&mut sharing, [0.0, 0.5], 0.1).unwrap();
        assert_eq!(broken, [8], "of the other nobody says anything");
    }

    #[test]
    fn a_sample_that_comes_again_is_seen_once() {
        let mut sharing = sharing([Some(10.0); 2]);
        for _ in 0..2_000 {
            sharing.observe(&sample(5, [Some(1.0); 2], 0.5), &READINGS);
        }
        assert!(sharing.is_settled && sharing.activity.sample_count < 2.0);
    }

    #[test]
    fn readings_come_at_one_and_at_ten_minutes_and_then_steadily() {
        assert!(
            [(0.0, 600.0), (62.0, 600.0), (599.0, 600.0), (605.0, 1200.0)]
                .iter()
                .all(|(measured, next)| (READINGS.after(*measured) - next).abs() < 1e-9)
        );
    }
}
