//! Pillion as it would be installed: it remembers what it saw, plans with what it knows, and is told what came of it.

use super::super::draw::observe;
use super::super::trials::{Played, Scene, play};
use super::calendar::{Calendar, OBSERVED_STREAM, Round};
use super::names::Names;
use super::outcome::{Sharing, Tally};
use super::round::{self, PROFILE_SO_FAR_ERROR_FRACTION};
use super::{FIRST_RUN_ALONE_HOURS, WATCH_MARGIN, Week};
use crate::history::Observation;
use crate::model::{Learned, TrainOptions, train};
use crate::plan::{Pairing, Plan};
use crate::planner::plan;
use crate::policy::Policy;
use crate::trials::{TrialPolicy, TrialVerdict};
use crate::view::{ClusterView, ProfileBook};
use pillion_core::Fraction;
use pillion_core::profile::WorkloadProfile;
use rand::SeedableRng as _;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution as _, Normal};
use std::collections::BTreeMap;

/// See the module.
pub(super) struct Installation<'w, 'a> {
    week: &'w Week<'a>,
    names: Names,
    history: Vec<Observation>,
    verdicts: Vec<TrialVerdict>,
    rng: ChaCha8Rng,
}

/// What a plan starts together, by name and in the order of host and guest.
struct Started {
    names: [usize; 2],
    sharing: Sharing,
}

impl<'w, 'a> Installation<'w, 'a> {
    pub(super) fn new(week: &'w Week<'a>, calendar: &Calendar, seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(OBSERVED_STREAM);
        Self { week, names: Names::new(week, calendar), history: Vec::new(), verdicts: Vec::new(), rng }
    }

    /// Plans a round with what was learnt before it, and learns from what came of it.
    pub(super) fn round(&mut self, round: &Round) -> Tally {
        let is_first = |name: &usize| *name >= round.known_count;
        let workloads = round.names.iter().map(|name| (self.names.workload_of[*name], is_first(name)));
        let mut tally = Tally::of_jobs(&workloads.collect::<Vec<_>>());
        let seen = round.names.iter().copied().filter(is_first).collect::<Vec<_>>();
        let seen = seen.into_iter().map(|name| (name, self.so_far(name))).collect();
        if let Some(trial) = self.week.options.trials {
            return self.played(tally, round, &seen, trial);
        }
        let view = round::view(self.week, round, &self.names, &seen);
        let plan = plan(&view, &self.model(round), &round::policy(self.week, round, &self.names));
        let (started, unmeasured) = self.started(&view, &plan);
        tally.unmeasured = unmeasured;
        for pair in started {
            let seen = self.observe(&pair);
            match self.week.options.watch.filter(|_| self.is_breaking(&seen)) {
                Some(watch) => tally.add_parted(&self.week.truth, &pair.sharing, watch),
                None => tally.add(&self.week.truth, &pair.sharing, 1, self.week.speed_min()),
            }
            self.history.push(seen);
        }
        tally
    }

    /// The same round played out, with trials: who breaks a promise is taken apart, and what was seen is planned with at once.
    fn played(
        &mut self,
        of_jobs: Tally,
        round: &Round,
        seen: &BTreeMap<usize, WorkloadProfile>,
        trial: TrialPolicy,
    ) -> Tally {
        let (week, names) = (self.week, &self.names);
        let known = ProfileBook::from(names.profiles[..round.known_count].to_vec());
        let policy = Policy { trials: Some(trial), ..round::policy(week, round, names) };
        let scene = Scene {
            truth: &week.truth,
            profiles: &known,
            policy,
            trial,
            view: round::scene_view(week, round, names),
            jobs: round::scene_jobs(week, round, names, seen),
            known: std::mem::take(&mut self.history),
            verdicts: std::mem::take(&mut self.verdicts),
        };
        let Played { tally, trials, joined_count, known, verdicts } =
            play(scene, ChaCha8Rng::from_rng(&mut self.rng));
        (self.history, self.verdicts) = (known, verdicts);
        Tally {
            paired: tally.paired,
            broken: tally.broken,
            sent_back: trials.went_back,
            unfit: tally.unfit,
            first_runs_joined: joined_count,
            unmeasured: tally.unmeasured,
            hours_saved: tally.hours_saved,
            hours_kept: tally.hours_kept,
            ..of_jobs
        }
    }

    /// Trained on all that was observed so far.
    fn model(&self, round: &Round) -> Learned {
        let known = self.names.profiles[..round.known_count].to_vec();
        train(&ProfileBook::from(known), &self.history, &TrainOptions::default())
    }

    /// What a first run's first minutes show: its profile with their error.
    fn so_far(&mut self, name: usize) -> WorkloadProfile {
        let profile = &self.names.profiles[name];
        let noise = Normal::new(1.0, PROFILE_SO_FAR_ERROR_FRACTION).expect("a standard deviation above 0");
        let mut metrics = profile.metrics.clone();
        for metric in profile.metrics.known().collect::<Vec<_>>() {
            let factor: f64 = noise.sample(&mut self.rng);
            if let Some(value) = profile.metrics.fraction(metric) {
                metrics.set(metric, Fraction::clamped(value.value() * factor).value());
            }
        }
        // How fast it is under caps nobody has seen.
        let throughput_per_second_at_cap = [None; 9];
        // Every job here counts its progress; in which unit does not matter.
        let throughput_per_second = profile.throughput_per_second.or(Some(1.0));
        WorkloadProfile {
            metrics,
            throughput_per_second,
            throughput_per_second_at_cap,
            run_count: 0,
            ..profile.clone()
        }
    }

    /// What a plan starts together, and how many of its pairs nobody measured.
    fn started(&self, view: &ClusterView, plan: &Plan) -> (Vec<Started>, usize) {
        let mut unmeasured = 0;
        let mut started = Vec::new();
        for pairing in plan.pairings.iter().filter(|one| one.members.len() > 1 || one.joins.is_some()) {
            match self.pair(view, pairing) {
                Some(pair) => started.push(pair),
                None => unmeasured += 1,
            }
        }
        (started, unmeasured)
    }

    fn pair(&self, view: &ClusterView, pairing: &Pairing) -> Option<Started> {
        let members = pairing.members.iter().map(|member| (&member.workload, member.sharing.cap()));
        let host = match pairing.joins {
            Some(_) => view
                .devices
                .iter()
                .find(|device| pairing.gres_types.contains(&device.gres_type))?
                .tenants
                .first(),
            None => None,
        };
        let host_before = host.and_then(|host| Some((host.workload.as_ref()?, host.sharing.cap())));
        let tenants: Vec<_> = host_before.into_iter().chain(members).collect();
        let [(a, cap_a), (b, cap_b)] = tenants.as_slice() else { return None };
        let names = [*self.names.by_key.get(*a)?, *self.names.by_key.get(*b)?];
        let (ends, caps) = (names.map(|name| self.names.workload_of[name]), [*cap_a, *cap_b]);
        let combination = self.week.truth.find(ends, caps)?;
        let found = &self.week.truth.combinations[combination];
        let is_turned = (found.workloads, found.caps) != (ends, caps);
        let alone_hours = if host.is_some() { FIRST_RUN_ALONE_HOURS } else { 0.0 };
        Some(Started { names, sharing: Sharing { combination, is_turned, alone_hours } })
    }

    /// Whether a watch would say that a promise is being broken, by what was measured.
    fn is_breaking(&self, seen: &Observation) -> bool {
        let least = self.week.speed_min() * (1.0 - WATCH_MARGIN);
        seen.fits && seen.tenants.iter().filter_map(|tenant| tenant.speed_fraction).any(|speed| speed < least)
    }

    /// What agents would have measured of a pair, with the noise of one run.
    fn observe(&mut self, pair: &Started) -> Observation {
        let mut seen = observe(&self.week.truth, pair.sharing.combination, &mut self.rng);
        let mut names = pair.names;
        if pair.sharing.is_turned {
            names.reverse();
        }
        for (tenant, name) in seen.tenants.iter_mut().zip(names) {
            tenant.workload = self.names.keys[name].clone();
        }
        seen
    }
}
