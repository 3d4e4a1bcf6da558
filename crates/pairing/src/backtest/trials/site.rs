//! The site that is played out: every job may have a device of its own, all start at once, time goes from event to event.

mod snapshot;

use super::TrialTally;
use super::record::record_of;
use super::scene::{Begins, Played, Scene};
use crate::backtest::draw::observe;
use crate::backtest::score::{self, Tally, UNFIT_HOURS_LOST, as_float};
use crate::backtest::truth::Truth;
use crate::history::Observation;
use crate::model::{Learned, TrainOptions, train};
use crate::plan::Pairing;
use crate::planner::candidates::trial::WATCH_MARGIN_FRACTION;
use crate::planner::plan;
use crate::policy::Policy;
use crate::trials::{TrialPolicy, TrialRecord, TrialVerdict};
use crate::view::{ClusterView, ProfileBook};
use pillion_core::{Fraction, WorkloadKey};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeSet;

const JOB_SECONDS: f64 = 3600.0;
/// Two that do not fit are found out after five minutes.
const UNFIT_SECONDS: f64 = 300.0;
/// Nobody waits longer for a verdict.
const BOUND_SECONDS: f64 = 600.0;
/// Events this near are one.
const TOGETHER_SECONDS: f64 = 1e-6;
/// A pair within the bounds is taken apart only where it is seen to be this much slower than promised: more than noise.
const BREACH_FRACTION: f64 = 0.06;

struct Job {
    workload: usize,
    begins: Begins,
    left_seconds: f64,
    started_at: Option<f64>,
    /// Until then it starts again and makes no progress.
    idle_until: f64,
    has_gone_back: bool,
    has_shared: bool,
    is_broken: bool,
    ended_at: f64,
}

/// A job on a device.
#[derive(Clone, Copy)]
struct Seat {
    job: usize,
    cap: Option<Fraction>,
}

/// Two on a device, in the order of its seats.
struct Pair {
    combination: usize,
    /// Absent = they do not fit.
    speeds: Option<[f64; 2]>,
    is_trial: bool,
    /// When the watch reads, or two are found not to fit; absent = it has.
    verdict_at: Option<f64>,
    saved_seconds: f64,
}

#[derive(Default)]
struct Device {
    /// The host first.
    seats: Vec<Seat>,
    pair: Option<Pair>,
}

pub(super) struct Site<'s> {
    truth: &'s Truth,
    profiles: &'s ProfileBook,
    policy: Policy,
    trial: TrialPolicy,
    rng: ChaCha8Rng,
    known: Vec<Observation>,
    model: Learned,
    verdicts: Vec<TrialVerdict>,
    record: TrialRecord,
    /// Of jobs that wait: only its waiting and devices are made anew.
    view: ClusterView,
    jobs: Vec<Job>,
    waiting: BTreeSet<usize>,
    devices: Vec<Device>,
    now: f64,
    busy_seconds: f64,
    /// Saved by pairs that broke a promise.
    forfeited_seconds: f64,
    tally: Tally,
    trials: TrialTally,
}

impl<'s> Site<'s> {
    pub(super) fn new(scene: Scene<'s>, rng: ChaCha8Rng) -> Self {
        let Scene { truth, profiles, policy, trial, view, jobs, known, verdicts } = scene;
        let mut site = Self {
            truth,
            profiles,
            record: record_of(truth, &known, speed_min(&policy)),
            policy,
            trial,
            rng,
            model: train(profiles, &known, &TrainOptions::default()),
            known,
            verdicts,
            view,
            waiting: BTreeSet::new(),
            tally: Tally { jobs: jobs.len(), ..Tally::default() },
            jobs: Vec::new(),
            devices: Vec::new(),
            now: 0.0,
            busy_seconds: 0.0,
            forfeited_seconds: 0.0,
            trials: TrialTally::default(),
        };
        for (workload, begins) in jobs {
            site.meet(workload, begins);
        }
        site
    }

    fn meet(&mut self, workload: usize, begins: Begins) {
        let number = self.jobs.len();
        let ran_seconds = match begins {
            Begins::Waits => {
                self.waiting.insert(number);
                None
            }
            Begins::Runs { for_seconds, .. } => {
                self.busy_seconds += for_seconds;
                self.seat_alone(Seat { job: number, cap: None });
                Some(for_seconds)
            }
        };
        self.jobs.push(Job {
            workload,
            begins,
            left_seconds: JOB_SECONDS - ran_seconds.unwrap_or(0.0),
            started_at: ran_seconds.map(|seconds| -seconds),
            idle_until: 0.0,
            has_gone_back: false,
            has_shared: false,
            is_broken: false,
            ended_at: 0.0,
        });
    }

    /// On a device of its own.
    fn seat_alone(&mut self, seat: Seat) {
        self.devices.push(Device { seats: vec![seat], pair: None });
    }

    /// Plays until every job has ended.
    pub(super) fn played_out(mut self) -> Played {
        loop {
            if !self.waiting.is_empty() {
                self.start();
            }
            let Some(next) = self.next_event() else { break };
            self.advance(next);
            self.end_jobs();
            if self.read_pairs() {
                self.model = train(self.profiles, &self.known, &TrainOptions::default());
            }
        }
        self.scored()
    }

    /// What the planner would start now.
    fn start(&mut self) {
        let (view, hosts) = self.snapshot();
        let planned = plan(&view, &self.model, &self.policy);
        for pairing in &planned.pairings {
            let numbers: Vec<usize> =
                pairing.members.iter().map(|member| member.start.job_id.id as usize - 1).collect();
            let seats: Vec<Seat> = pairing
                .members
                .iter()
                .zip(&numbers)
                .map(|(member, job)| Seat { job: *job, cap: member.sharing.cap() })
                .collect();
            for job in &numbers {
                self.waiting.remove(job);
                self.jobs[*job].started_at.get_or_insert(self.now);
            }
            let host = pairing.joins.and_then(|group| hosts.get(usize::try_from(group.0).ok()?)).copied();
            self.seat(host, &seats, pairing);
        }
    }

    fn seat(&mut self, host: Option<usize>, seats: &[Seat], pairing: &Pairing) {
        let place = host.unwrap_or_else(|| {
            self.devices.push(Device::default());
            self.devices.len() - 1
        });
        for seat in seats {
            self.devices[place].seats.push(*seat);
        }
        let [a, b] = self.devices[place].seats[..] else {
            // Alone, a job has no cap that it would be held back by later.
            return;
        };
        let Some((combination, speeds)) = self.measured([a, b]) else {
            self.tally.unmeasured += 1;
            self.devices[place].seats.pop();
            self.seat_alone(b);
            return;
        };
        self.trials.tried += usize::from(pairing.trial.is_some());
        self.jobs[a.job].has_shared = true;
        self.jobs[b.job].has_shared = true;
        let begins = self.now.max(self.jobs[a.job].idle_until).max(self.jobs[b.job].idle_until);
        let wait = if speeds.is_some() { self.trial.trial_seconds } else { UNFIT_SECONDS };
        self.devices[place].pair = Some(Pair {
            combination,
            speeds,
            is_trial: pairing.trial.is_some(),
            verdict_at: Some(begins + wait),
            saved_seconds: 0.0,
        });
    }

    /// The combination that two are, and their speeds in the order of the seats.
    fn measured(&self, seats: [Seat; 2]) -> Option<(usize, Option<[f64; 2]>)> {
        let ends = seats.map(|seat| self.jobs[seat.job].workload);
        let caps = seats.map(|seat| seat.cap);
        let at = self.truth.find(ends, caps)?;
        let combination = &self.truth.combinations[at];
        let is_straight = combination.workloads == ends && combination.caps == caps;
        let speeds = combination.speeds.map(|[a, b]| if is_straight { [a, b] } else { [b, a] });
        Some((at, speeds))
    }

    fn speed(&self, device: &Device, at: usize) -> f64 {
        if self.jobs[device.seats[at].job].idle_until > self.now + TOGETHER_SECONDS {
            return 0.0;
        }
        match &device.pair {
            Some(pair) => pair.speeds.map_or(0.0, |speeds| speeds[at]),
            None => 1.0,
        }
    }

    fn next_event(&self) -> Option<f64> {
        let mut next = f64::INFINITY;
        for device in &self.devices {
            for (at, seat) in device.seats.iter().enumerate() {
                let job = &self.jobs[seat.job];
                let speed = self.speed(device, at);
                if speed > 0.0 {
                    next = next.min(self.now + job.left_seconds / speed);
                }
                if job.idle_until > self.now + TOGETHER_SECONDS {
                    next = next.min(job.idle_until);
                }
            }
            next = next.min(device.pair.as_ref().and_then(|pair| pair.verdict_at).unwrap_or(f64::INFINITY));
        }
        if !self.waiting.is_empty() && self.now < BOUND_SECONDS {
            next = next.min(BOUND_SECONDS);
        }
        next.is_finite().then_some(next)
    }

    fn advance(&mut self, next: f64) {
        let seconds = next - self.now;
        for place in 0..self.devices.len() {
            let device = &self.devices[place];
            if device.seats.is_empty() {
                continue;
            }
            let speeds: Vec<f64> = (0..device.seats.len()).map(|at| self.speed(device, at)).collect();
            for (seat, speed) in device.seats.iter().zip(&speeds) {
                self.jobs[seat.job].left_seconds -= speed * seconds;
            }
            self.busy_seconds += seconds;
            if let Some(pair) = &mut self.devices[place].pair {
                pair.saved_seconds += (speeds.iter().sum::<f64>() - 1.0) * seconds;
            }
        }
        // Whoever waits for a verdict keeps a device waiting.
        self.busy_seconds += seconds * as_float(self.waiting.len());
        self.trials.hours_waited += seconds * as_float(self.waiting.len()) / 3600.0;
        self.now = next;
    }

    fn end_jobs(&mut self) {
        for place in 0..self.devices.len() {
            let ended: Vec<usize> = self.devices[place]
                .seats
                .iter()
                .map(|seat| seat.job)
                .filter(|job| self.jobs[*job].left_seconds <= TOGETHER_SECONDS)
                .collect();
            if ended.is_empty() {
                continue;
            }
            for job in &ended {
                self.jobs[*job].ended_at = self.now;
            }
            self.part(place, true);
            self.devices[place].seats.retain(|seat| !ended.contains(&seat.job));
        }
    }

    /// Two are no longer together. Those that were let run count as they really ran.
    fn part(&mut self, place: usize, was_let_run: bool) {
        let Some(pair) = self.devices[place].pair.take() else { return };
        if !was_let_run {
            self.trials.hours_lost -= pair.saved_seconds / 3600.0;
            return;
        }
        let speed_min = speed_min(&self.policy);
        let mut is_broken = false;
        for (seat, speed) in self.devices[place].seats.iter().zip(pair.speeds.unwrap_or_default()) {
            if !score::keeps_one(speed, speed_min) {
                self.jobs[seat.job].is_broken = true;
                is_broken = true;
            }
        }
        if is_broken {
            self.forfeited_seconds += pair.saved_seconds.max(0.0);
        }
    }

    /// The watch reads what is due; says whether anything was learnt.
    fn read_pairs(&mut self) -> bool {
        let mut has_learnt = false;
        for place in 0..self.devices.len() {
            let now = self.now + TOGETHER_SECONDS;
            let Some(pair) = &mut self.devices[place].pair else { continue };
            if pair.verdict_at.is_none_or(|at| at > now) {
                continue;
            }
            pair.verdict_at = None;
            has_learnt = true;
            let (combination, is_trial) = (pair.combination, pair.is_trial);
            let seen = observe(self.truth, combination, &mut self.rng);
            let speeds: Option<Vec<f64>> = seen.tenants.iter().map(|tenant| tenant.speed_fraction).collect();
            self.learn(place, combination, seen);
            self.judge(place, is_trial, speeds);
        }
        has_learnt
    }

    fn learn(&mut self, place: usize, combination: usize, mut seen: Observation) {
        let truth = &self.truth.combinations[combination];
        let mut keys: Vec<WorkloadKey> =
            self.devices[place].seats.iter().map(|seat| self.key(seat.job).clone()).collect();
        // In the order of the combination, which its first workload tells; of two alike either will do but for their caps.
        let first = self.devices[place].seats[0];
        if (self.jobs[first.job].workload, first.cap) != (truth.workloads[0], truth.caps[0]) {
            keys.reverse();
        }
        for (tenant, key) in seen.tenants.iter_mut().zip(&keys) {
            tenant.workload = key.clone();
        }
        let speeds = seen.tenants.iter().map(|tenant| tenant.speed_fraction).collect::<Option<Vec<f64>>>();
        let speeds = speeds.and_then(|speeds| speeds.try_into().ok());
        if let Ok([a, b]) = <[WorkloadKey; 2]>::try_from(keys) {
            let tenants = [(a, truth.caps[0]), (b, truth.caps[1])];
            let model = self.truth.device_model.clone();
            self.verdicts.push(TrialVerdict::new(model, self.truth.mechanism, tenants, speeds));
        }
        self.known.push(seen);
        self.record = record_of(self.truth, &self.known, speed_min(&self.policy));
    }

    fn key(&self, job: usize) -> &WorkloadKey {
        &self.view.waiting[job].workload
    }

    fn judge(&mut self, place: usize, is_trial: bool, speeds: Option<Vec<f64>>) {
        let margin = if is_trial { WATCH_MARGIN_FRACTION } else { -BREACH_FRACTION };
        let least = speed_min(&self.policy) * (1.0 + margin);
        let guest = self.devices[place].seats[1].job;
        match speeds {
            None => {
                // Both begin again. It costs what it costs every policy.
                self.part(place, false);
                self.trials.hours_lost += UNFIT_HOURS_LOST - UNFIT_SECONDS / 3600.0;
                self.busy_seconds += UNFIT_HOURS_LOST * 3600.0 - UNFIT_SECONDS;
                self.tally.unfit += 1;
                for seat in std::mem::take(&mut self.devices[place].seats) {
                    self.begin_again(seat.job);
                }
            }
            Some(speeds) if speeds.iter().any(|speed| *speed < least) => {
                self.part(place, false);
                self.devices[place].seats.truncate(1);
                let done = JOB_SECONDS - self.jobs[guest].left_seconds;
                self.trials.hours_lost += (done + self.trial.restart_seconds) / 3600.0;
                self.trials.went_back += 1;
                self.begin_again(guest);
            }
            Some(_) => self.trials.held += usize::from(is_trial),
        }
    }

    /// As on a cluster it begins again alone, and nobody joins it.
    fn begin_again(&mut self, number: usize) {
        let job = &mut self.jobs[number];
        job.left_seconds = JOB_SECONDS;
        job.has_gone_back = true;
        job.idle_until = self.now + self.trial.restart_seconds;
        self.seat_alone(Seat { job: number, cap: None });
    }

    fn scored(mut self) -> Played {
        let promise = self.policy.slowdown_ratio_max.value();
        let shared = self.jobs.iter().filter(|job| job.has_shared);
        let joined_count = shared.clone().filter(|job| matches!(job.begins, Begins::Runs { .. })).count();
        for job in shared {
            let slowdown = (job.ended_at - job.started_at.unwrap_or(0.0)) / JOB_SECONDS;
            self.tally.paired += 1;
            self.tally.broken += usize::from(job.is_broken || slowdown > promise);
            self.tally.slowdowns.push(slowdown);
        }
        self.tally.hours_saved = as_float(self.jobs.len()) - self.busy_seconds / 3600.0;
        self.tally.hours_kept = self.tally.hours_saved - self.forfeited_seconds / 3600.0;
        let Self { tally, trials, known, verdicts, .. } = self;
        Played { tally, trials, joined_count, known, verdicts }
    }
}

/// The speed below which a promise is broken.
fn speed_min(policy: &Policy) -> f64 {
    policy.slowdown_ratio_max.value().recip()
}
