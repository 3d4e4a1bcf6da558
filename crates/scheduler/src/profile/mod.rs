//! Row 9 of the way of a job: makes profiles of solo runs, outcomes and observations of shared ones, and the account of
//! each, every run once (docs/principles.md#learning).

mod capped;
mod sharing;
mod slice;
mod speed;
mod wide;

use crate::analysis::{run_account, shared_device_seconds};
use crate::context::Context;
use crate::credit::culprits;
use crate::credit::strain::Strain;
use crate::failure;
use crate::first_runs::seen::is_first_run;
use crate::tick_error::TickError;
use pillion_core::event::EventKind;
use pillion_core::family::family_of;
use pillion_core::metric::{Measured, Metric, MetricSource};
use pillion_core::profile::{LessonKind, WorkloadProfile};
use pillion_core::report::{ActivityMeans, JobSummary};
use pillion_core::workload::is_session;
use pillion_core::{CapStep, Fraction, UnixTime, report};
use pillion_slurm::Ending;
use pillion_store::{
    Durations, Event, Lesson, MeasuredRun, Member, NewMember, RequeueCause, RunAccount, StoredProfile,
};
use slice::slice_lesson;
pub(crate) use speed::rate_of;
use speed::{alone_seconds, is_solo, measured_speed};
use std::cmp::Ordering;
use std::sync::Arc;
use tracing::info;

/// Runs that are profiled in one tick.
const RUNS_PER_TICK: u32 = 100;
/// What is counted where a job's own counter tells no speed that can be.
pub(crate) const UNBELIEVED_SPEED: &str = "speed";
/// Fewer samples than these make no profile.
const SAMPLES_MIN: u32 = 3;
/// How many earlier runs a mean stands for at most.
const RUNS_REMEMBERED_MAX: f64 = 30.0;
/// Runs count by their lengths; those that are as long as this are all long.
const LONG_RUN_SECONDS: f64 = 600.0;
/// For so many usual ones at most does one count.
const RUN_WEIGHT_MAX: f64 = 10.0;
/// Of a run that was joined, so many samples alone before: it taught enough then to be joined.
const FIRST_RUN_SAMPLES_MIN: u32 = 30;

pub struct Profile {
    context: Arc<Context>,
}

impl Profile {
    pub fn new(context: Arc<Context>) -> Self {
        Self { context }
    }

    /// Profiles what was summarised since. A run that cannot be profiled is marked so and passed over. Only who leads does: what
    /// was measured of a run while it ran is in his memory.
    ///
    /// # Errors
    /// [`TickError`] where the store did not answer.
    pub async fn tick(&self) -> Result<(), TickError> {
        if !self.context.is_leading() {
            return Ok(());
        }
        for run in self.context.store.unprofiled_runs(RUNS_PER_TICK).await? {
            let Err(error) = self.profile(&run).await else { continue };
            let lesson = Lesson::nothing(format!("it cannot be profiled: {}", report(&error)));
            let (start, gres_type) = (run.summary.start, &run.summary.gres_type);
            self.context.pass_over("profile", start, error)?;
            if let Err(error) = self.context.store.pass_run(start, gres_type, &lesson).await {
                self.context.pass_over("profile", start, error.into())?;
            }
        }
        Ok(())
    }

    async fn profile(&self, run: &MeasuredRun) -> Result<(), TickError> {
        let store = &self.context.store;
        let Some(heard) = wide::heard(store.as_ref(), run, self.context.now()).await? else { return Ok(()) };
        let profiles = store.profiles().await?;
        let stored = profiles.iter().find(|stored| {
            stored.profile.workload == run.job.workload && stored.profile.device_model == run.device_model
        });
        let now = self.context.now();
        let solo_energy_joules = stored.and_then(|stored| stored.profile.energy_joules);
        let (mut speed, mut slice) = (None, None);
        if let Some(decision) = &run.decision {
            let measured = measured_speed(run, stored.as_ref().map(|stored| &stored.profile));
            if measured.is_none() && run.summary.shared.progress.is_some() {
                self.context.tally.doubted(UNBELIEVED_SPEED);
            }
            speed = measured.map(|measured| measured.speed_fraction);
            let (start, energy) = (run.summary.start, run.summary.energy_joules);
            // Of several devices the first tells how fast it went.
            if !run.is_told_by_another() {
                store.record_outcome(decision.id, start, speed, energy).await?;
            }
            slice = slice_lesson(store.as_ref(), run, measured).await?;
            if let Some(observation) = sharing::observe(store.as_ref(), run, measured, &profiles).await?
                && store.record_observation(&observation, now).await?
            {
                self.context.tally.observed();
                self.context.nudges.train.notify_one();
            }
        }
        let (lesson, mut updated) = match (self.cap_not_in_force(run).await?, &heard) {
            (Some(why), _) => (Lesson::nothing(why), None),
            (None, Err(why)) => (Lesson::nothing(*why), None),
            (None, Ok(run)) => learn(stored.cloned(), run, now),
        };
        if updated.is_none() {
            let summary = &run.summary;
            let (samples, shared_seconds) = (summary.solo_sample_count, summary.shared_seconds);
            info!(start = %summary.start, workload = %run.job.workload, samples, shared_seconds, ?lesson, "a run makes no profile");
        }
        if let Some(updated) = &mut updated {
            self.find_family(&mut updated.profile).await?;
        }
        self.call_to_account(run, speed, &profiles).await?;
        let use_beyond_fraction = self.use_beyond(run);
        let account =
            RunAccount { use_beyond_fraction, slice, ..run_account(run, speed, solo_energy_joules) };
        let (start, gres_type) = (run.summary.start, &run.summary.gres_type);
        store.profile_run(start, gres_type, &account, &lesson, updated.as_ref()).await?;
        self.tell_use_beyond(run, &account).await?;
        self.context.tally.ran(&account.sums, shared_device_seconds(run));
        if updated.is_some() || account.slice.is_some() {
            self.context.nudges.engine.notify_one();
        }
        Ok(())
    }

    /// What a run used beyond its profile, where the site books the next ones by that. It is measured by whoever leads, in memory:
    /// of what no scheduler saw nothing is charged.
    fn use_beyond(&self, run: &MeasuredRun) -> Option<f64> {
        let is_wanted = self.context.settings.books_by_use && run.decision.is_some();
        self.context
            .board()
            .strains
            .get(&run.summary.start)
            .filter(|_| is_wanted)
            .and_then(Strain::use_beyond)
    }

    /// Told without how much: that would tell of the neighbours.
    async fn tell_use_beyond(&self, run: &MeasuredRun, account: &RunAccount) -> Result<(), TickError> {
        if account.use_beyond_fraction.is_none_or(|beyond| beyond <= 0.0) {
            return Ok(());
        }
        let event = Event {
            at: self.context.now(),
            kind: EventKind::UseExceeded,
            job_id: Some(run.summary.start.job_id),
            node: Some(run.node.clone()),
            detail: "it used more of its device than its workload was known for; the next runs are booked with more shards"
                .to_owned(),
        };
        self.context.store.record_event(&event).await?;
        self.context.tally.event(&EventKind::UseExceeded);
        self.context.nudges.engine.notify_one();
        Ok(())
    }

    /// By what people call it now; one without a name keeps what it had.
    async fn find_family(&self, profile: &mut WorkloadProfile) -> Result<(), TickError> {
        let names = self.context.store.workload_names(std::slice::from_ref(&profile.workload)).await?;
        if let Some(known) = names.get(&profile.workload) {
            profile.family = family_of(&profile.workload, &known.name);
        }
        Ok(())
    }

    /// Newcomers of another user beside a broken promise cost him the right to share for a while, where what agents measured
    /// bears it out. A speed alone does not: a user who writes his counter slower, or sleeps, while he shares would have whoever
    /// is beside him answer for it.
    async fn call_to_account(
        &self,
        run: &MeasuredRun,
        speed: Option<f64>,
        profiles: &[StoredProfile],
    ) -> Result<(), TickError> {
        let (Some(decision), Some(_)) = (&run.decision, speed) else { return Ok(()) };
        let store = &self.context.store;
        let sharing = store.group(decision.group).await?;
        let members = sharing.iter().flat_map(|one| &one.members);
        let beside: Vec<&Member> =
            members.filter(|member| run.summary.neighbours.contains(&member.plan.start)).collect();
        let mut losses = culprits(run, speed, &beside, profiles, self.context.now());
        losses.retain(|loss| self.context.board().strains.get(&loss.start).is_some_and(Strain::bears_out));
        for loss in losses {
            let event = Event {
                at: loss.lost_at,
                kind: EventKind::CreditLost,
                job_id: Some(loss.start.job_id),
                node: Some(loss.node.clone()),
                detail: loss.reason.clone(),
            };
            if store.lose_credit(&loss, &event).await? {
                self.context.tally.event(&EventKind::CreditLost);
                self.context.nudges.engine.notify_one();
            }
        }
        Ok(())
    }

    /// Why a run that was planned with a cap may not have had it; `None` where it had, or none was planned.
    async fn cap_not_in_force(&self, run: &MeasuredRun) -> Result<Option<&'static str>, TickError> {
        let Some(decision) = run.decision.as_ref().filter(|_| cap_of(run).is_some() && is_solo(run)) else {
            return Ok(None);
        };
        let store = self.context.store.as_ref();
        if !sharing::has_launched(store, run.summary.start, decision).await? {
            return Ok(Some("it began before its cap was set"));
        }
        let events = store.events(run.summary.start.job_id).await?;
        let has_failed = events.iter().any(|event| event.kind == EventKind::ShareFailed);
        Ok(has_failed.then_some("its cap could not be set"))
    }
}

/// Why a run tells nothing of how its workload runs alone; `None` where it does.
fn obstacle(run: &MeasuredRun) -> Option<&'static str> {
    if run.is_told_by_another() {
        return Some("what it teaches is taken from the first of its GPUs");
    }
    // One that could use only a part of a card is not how the workload runs alone.
    let was_parted = run.own_member().is_some_and(|member| member.plan.sharing.is_of_a_part());
    if was_parted {
        Some("it was limited to a part of its device")
    } else if run.job.ending != Some(Ending::Completed) {
        Some("it did not complete")
    } else if run.summary.solo_means.is_none() || run.summary.solo_sample_count < SAMPLES_MIN {
        Some("it was too short for enough samples")
    } else {
        None
    }
}

/// The cap that a run was planned with.
fn cap_of(run: &MeasuredRun) -> Option<Fraction> {
    run.own_member().and_then(|member| member.plan.sharing.cap())
}

/// What a run teaches of its workload alone, and the profile with it, where it changes that.
pub(crate) fn learn(
    stored: Option<StoredProfile>,
    run: &MeasuredRun,
    now: UnixTime,
) -> (Lesson, Option<StoredProfile>) {
    if is_session(&run.job.workload) {
        return (Lesson::nothing("it was interactive: what was done in it foretells nothing"), None);
    }
    if let Some(had_bytes) = ran_out(run) {
        return (
            Lesson::nothing("it ran out of device memory"),
            Some(with_need_beyond(stored, run, had_bytes, now)),
        );
    }
    if !is_solo(run) {
        return match of_first_minutes(stored.as_ref(), run, now) {
            Some(profile) => (LessonKind::Alone.into(), Some(profile)),
            None => (LessonKind::Shared.into(), with_shared_duration(stored, run, now)),
        };
    }
    let learnt = match (obstacle(run), &run.summary.solo_means, cap_of(run)) {
        (Some(why), ..) => Err(why),
        (None, None, _) => Err("it was never measured alone"),
        (None, Some(means), None) => Ok((LessonKind::Alone, with_run(stored, run, means, now))),
        (None, Some(_), Some(cap)) => CapStep::try_from(cap.value())
            .map_err(|_| "its cap was none that speeds are kept for")
            .and_then(|cap| capped::with_capped_run(stored, run, cap, now))
            .map(|profile| (LessonKind::Capped, profile)),
    };
    match learnt {
        Ok((kind, profile)) => (kind.into(), Some(profile)),
        Err(why) => (Lesson::nothing(why), None),
    }
}

/// With how much device memory a run ran out of it, where that is certain: its peak is what it was cut off at, and no need.
fn ran_out(run: &MeasuredRun) -> Option<u64> {
    failure::memory::memory_had(run).filter(|_| has_surely_run_out(run))
}

/// Whether a run ran out of device memory for certain. One that was started again for that says no more how it ended.
fn has_surely_run_out(run: &MeasuredRun) -> bool {
    matches!(run.requeue, Some(RequeueCause::OutOfMemory { .. }))
        || failure::verdict(run).is_some_and(|verdict| verdict.is_surely_out_of_memory())
}

fn with_need_beyond(
    stored: Option<StoredProfile>,
    run: &MeasuredRun,
    had_bytes: u64,
    now: UnixTime,
) -> StoredProfile {
    let mut stored = stored.unwrap_or_else(|| nothing_known(run, now));
    stored.updated_at = now;
    stored.profile.memory_bytes_ran_out = stored.profile.memory_bytes_ran_out.max(Some(had_bytes));
    stored
}

/// A profile that knows nothing but its names.
fn nothing_known(run: &MeasuredRun, now: UnixTime) -> StoredProfile {
    StoredProfile {
        profile: WorkloadProfile::empty(run.job.workload.clone(), run.device_model.clone()),
        durations: Durations::default(),
        run_counts_at_cap: [0; 9],
        updated_at: now,
    }
}

/// What a first run that was joined has shown before: how its workload runs alone, but for how long. `None` where more is known.
fn of_first_minutes(
    stored: Option<&StoredProfile>,
    run: &MeasuredRun,
    now: UnixTime,
) -> Option<StoredProfile> {
    let is_first = stored.is_none() && run.own_member().is_some_and(is_first_run);
    let has_ended_well = run.job.ending == Some(Ending::Completed);
    let means = run.summary.solo_means.as_ref()?;
    if !is_first || !has_ended_well || run.summary.solo_sample_count < FIRST_RUN_SAMPLES_MIN {
        return None;
    }
    let whole = with_run(None, run, means, now);
    let profile = WorkloadProfile {
        duration_seconds: None,
        duration_variation_fraction: None,
        energy_joules: None,
        ..whole.profile
    };
    Some(StoredProfile { profile, durations: Durations::default(), ..whole })
}

/// A profile of a first run's minutes. The first whole run alone takes its place; what it needed at most counts for ever.
fn forget_minutes(stored: StoredProfile) -> StoredProfile {
    if stored.profile.run_count == 0 || stored.profile.duration_seconds.is_some() {
        return stored;
    }
    let WorkloadProfile { workload, device_model, .. } = &stored.profile;
    let profile = WorkloadProfile {
        family: stored.profile.family.clone(),
        memory_bytes_peak: stored.profile.memory_bytes_peak,
        memory_bytes_completed: stored.profile.memory_bytes_completed,
        memory_bytes_ran_out: stored.profile.memory_bytes_ran_out,
        process_count_peak: stored.profile.process_count_peak,
        process_memory_bytes_peak: stored.profile.process_memory_bytes_peak,
        ..WorkloadProfile::empty(workload.clone(), device_model.clone())
    };
    StoredProfile { profile, run_counts_at_cap: [0; 9], durations: Durations::default(), ..stored }
}

/// The profile with a solo run added.
fn with_run(
    stored: Option<StoredProfile>,
    run: &MeasuredRun,
    means: &ActivityMeans,
    now: UnixTime,
) -> StoredProfile {
    let mut stored = stored.map_or_else(|| nothing_known(run, now), forget_minutes);
    stored.updated_at = now;
    let seconds = run.summary.ended_at.seconds_since(run.summary.started_at);
    let part = part_of_mean(stored.profile.run_count, stored.profile.duration_seconds, seconds);
    stored.profile.run_count += 1;
    add_duration(&mut stored, seconds);
    let had_counter = stored.profile.throughput_per_second.is_some();
    add_means(&mut stored.profile, means, run, part);
    if !had_counter && stored.profile.throughput_per_second.is_some() {
        // What was known of caps is in runs a second: it cannot be compared any more.
        stored.profile.throughput_per_second_at_cap = [None; 9];
        stored.run_counts_at_cap = [0; 9];
    }
    stored
}

/// How much of a mean over `run_count` runs before and one of so many seconds is that one's. A run that has hardly begun, as of a
/// script that finds its output there, tells little of one that lasts for days; and the habits of years ago tell little of today's.
fn part_of_mean(run_count: u32, duration_seconds: Option<f64>, seconds: f64) -> f64 {
    let usual = duration_seconds.unwrap_or(seconds).clamp(1.0, LONG_RUN_SECONDS);
    let weight = (seconds.clamp(0.0, LONG_RUN_SECONDS) / usual).min(RUN_WEIGHT_MAX);
    let before = f64::from(run_count).min(RUNS_REMEMBERED_MAX);
    if before == 0.0 { 1.0 } else { weight / (before + weight) }
}

/// Welford's running mean and variance.
fn add_duration(stored: &mut StoredProfile, seconds: f64) {
    stored.durations.run_count += 1;
    let count = f64::from(stored.durations.run_count);
    let before = stored.profile.duration_seconds.unwrap_or(seconds);
    let mean = before + (seconds - before) / count;
    stored.durations.deviation_squares += (seconds - before) * (seconds - mean);
    stored.profile.duration_seconds = Some(mean);
    stored.profile.duration_variation_fraction = (stored.durations.run_count > 1 && mean > 0.0)
        .then(|| (stored.durations.deviation_squares / (count - 1.0)).max(0.0).sqrt() / mean);
}

/// With the duration of a run beside others, as its counter tells it. Of a workload that is known by minutes only nothing is added.
fn with_shared_duration(
    stored: Option<StoredProfile>,
    run: &MeasuredRun,
    now: UnixTime,
) -> Option<StoredProfile> {
    let mut stored = stored.filter(|stored| stored.profile.duration_seconds.is_some())?;
    let seconds = alone_seconds(run, &stored.profile)?;
    add_duration(&mut stored, seconds);
    stored.updated_at = now;
    Some(stored)
}

/// How a run's value of a metric joins what was known from the runs before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Joining {
    /// Both are of one quality.
    Mean,
    /// The run's is of a better source: what was known before is forgotten.
    Anew,
    /// The run's is of a worse source.
    Nothing,
}

/// By quality, and not by name as within one run: nodes with one device model may be measured in different ways. What
/// names no source is worse than all that do.
fn joining(metric: Metric, before: Option<MetricSource>, now: Option<MetricSource>) -> Joining {
    let before = before.map(|source| source.quality(metric));
    let now = now.map(|source| source.quality(metric));
    match now.cmp(&before) {
        Ordering::Greater => Joining::Anew,
        Ordering::Equal => Joining::Mean,
        Ordering::Less => Joining::Nothing,
    }
}

/// `part`: how much of each mean is this run's.
fn add_means(
    profile: &mut WorkloadProfile,
    ActivityMeans(means): &ActivityMeans,
    run: &MeasuredRun,
    part: f64,
) {
    for (metric, now) in means.iter() {
        let before = profile.metrics.measured(metric);
        match joining(metric, profile.metrics.source(metric), now.source) {
            Joining::Nothing => {}
            Joining::Anew => profile.metrics.put(metric, now),
            Joining::Mean => {
                let before = before.unwrap_or(now);
                let value = before.value + (now.value - before.value) * part;
                profile.metrics.put(metric, Measured { value, ..before });
            }
        }
    }
    add_number(&mut profile.energy_joules, run.summary.energy_joules, part);
    add_number(&mut profile.throughput_per_second, rate_of(&run.summary.solo), part);
    // A workload of which nobody knows what it needs is let in beside nobody: nothing seen is not a need of nothing.
    let peak = run.summary.memory_bytes_peak.filter(|peak| *peak > 0);
    profile.memory_bytes_peak = profile.memory_bytes_peak.max(peak);
    if let Some(limit) = run.own_member().and_then(|member| limit_of_all(&member.plan, &run.summary)) {
        let least = profile.memory_bytes_completed.map_or(limit, |least| least.min(limit));
        profile.memory_bytes_completed = Some(least);
    }
    profile.process_count_peak = profile.process_count_peak.max(run.summary.process_count_peak);
    let of_one = run.summary.process_memory_bytes_peak.filter(|peak| *peak > 0);
    profile.process_memory_bytes_peak = profile.process_memory_bytes_peak.max(of_one);
}

/// The most that a run's processes could have taken together: each was limited by itself.
fn limit_of_all(plan: &NewMember, summary: &JobSummary) -> Option<u64> {
    let each = plan.sharing.memory_limit_bytes()?;
    let seen = each.saturating_mul(u64::from(summary.process_count_peak.max(1)));
    plan.sharing.memory_bytes_max(plan.memory_bytes).max(Some(seen))
}

/// The mean with this run, whose part of it is given.
fn add_number(mean: &mut Option<f64>, now: Option<f64>, part: f64) {
    if let Some(now) = now {
        let before = mean.unwrap_or(now);
        *mean = Some(before + (now - before) * part);
    }
}

#[cfg(test)]
mod tests;
