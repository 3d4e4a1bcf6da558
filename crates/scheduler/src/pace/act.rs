//! What follows where promises are being broken: it is told, the device is closed to joiners, and by policy the guest is to go back.
//! Done again from the beginning until all of it is done: each step finds what was done before.

use super::estimate::Estimate;
use super::follow::{Followed, Sharing, Told};
use super::guest::{Case, Rest, Stays, Word, guest, stays};
use super::sent::CameAs;
use super::{is_trial, sent};
use crate::context::Context;
use crate::credit::Place;
use crate::failure::requeue::comes_back_alone;
use crate::scan::Scan;
use crate::tick_error::TickError;
use pillion_config::Watch;
use pillion_core::event::EventKind;
use pillion_core::{JobStart, UnixTime};
use pillion_slurm::Job;
use pillion_store::{Decision, Event, Member};
use tracing::warn;

/// How long nobody else is sent away on the word of a user on which somebody was.
const BELIEVED_AGAIN_SECONDS: f64 = 3600.0;

/// One device with its tenants, as it is now.
pub(super) struct Shared<'a> {
    pub(super) place: &'a Place,
    pub(super) tenants: &'a [(&'a Decision, &'a Member)],
    pub(super) sharing: &'a Sharing,
    pub(super) scan: &'a Scan,
}

impl Shared<'_> {
    /// Whether its user submitted it as a guest.
    fn is_guest(&self, member: &Member) -> bool {
        self.scan.is_guest(member.plan.start.job_id)
    }
}

/// Sees to what the last judgements ask for; gives what was told.
pub(super) async fn see_to(context: &Context, shared: &Shared<'_>) -> Result<Vec<Told>, TickError> {
    let Shared { place, tenants, sharing, scan } = *shared;
    let broken: Vec<(JobStart, Estimate)> = sharing.broken().collect();
    let job = guest(tenants, |member| shared.is_guest(member))
        .and_then(|guest| Some((guest, scan.jobs.get(&guest.plan.start.job_id)?)));
    let watch = job.map_or(Watch::Off, |(_, job)| context.settings.by_job().watch(job));
    let Some((guest, job)) = job.filter(|_| watch != Watch::Off && !broken.is_empty()) else {
        context.board_mut().amiss.strained.remove(place);
        return Ok(Vec::new());
    };
    context.board_mut().amiss.strained.insert(place.clone(), tenants[0].0.group);
    let mut told = Vec::new();
    for (start, estimate) in &broken {
        let Some(promise) = sharing.tenant(*start).map(|tenant| (estimate, tenant.slowdown_ratio_max()))
        else {
            continue;
        };
        let event = sent::breaking(*start, &place.0, context.now(), promise, is_trial(tenants));
        told.extend(tell(context, shared, Told::Breaking(*start), &event).await?);
    }
    // Who was submitted as a guest agreed to it, whatever the site does with others.
    if (watch != Watch::Act && !shared.is_guest(guest)) || !context.is_active() {
        return Ok(told);
    }
    // Where one of them lets it go, it goes; rather by what is certain than by somebody's word.
    let verdicts = broken.iter().map(|one| {
        let case = case(context, shared, one, (guest, job));
        (stays(&case), case.word == Word::Believed, one.0)
    });
    let stays = match verdicts.min() {
        Some((None, is_word, whose)) => send_back(context, shared, guest, is_word.then_some(whose)).await?,
        Some((Some(why), ..)) => Some(why),
        None => None,
    };
    if let Some(why) = stays {
        let event = sent::stays(guest, &place.0, context.now(), why);
        told.extend(tell(context, shared, Told::Stays(guest.plan.start, why), &event).await?);
    }
    Ok(told)
}

/// Intends that the guest is started again; gives why it stays all the same. `on_word_of`: another user's job, whose own doing it may
/// be.
async fn send_back(
    context: &Context,
    shared: &Shared<'_>,
    guest: &Member,
    on_word_of: Option<JobStart>,
) -> Result<Option<Stays>, TickError> {
    let (start, node) = (guest.plan.start, &shared.place.0);
    let open = context.store.open_requeues().await?;
    if open.iter().any(|requeue| requeue.start == start) {
        return Ok(None);
    }
    let allowed = context.slurm.allows_requeue(start.job_id).await;
    if !allowed.map_err(TickError::slurm("ask for a job"))? {
        return Ok(Some(Stays::NoRequeue));
    }
    let came = match (shared.is_guest(guest), is_trial(shared.tenants)) {
        (true, _) => CameAs::Guest,
        (_, true) => CameAs::Trial,
        _ => CameAs::Joiner,
    };
    let (requeue, event) = sent::sent_back(guest, node, context.now(), came);
    if !context.store.intend_requeue(&requeue, &event).await? {
        return Ok(Some(Stays::Once));
    }
    if let Some(host) = on_word_of.and_then(|whose| member_of(shared, whose)) {
        context.board_mut().believed.insert(host.plan.uid, context.now());
    }
    warn!(%start, %node, "{}", event.detail);
    context.tally.event(&EventKind::SentBack);
    context.nudges.requeue.notify_one();
    Ok(None)
}

/// Tells it, unless that was done before: by us, or by whoever led before us.
async fn tell(
    context: &Context,
    shared: &Shared<'_>,
    what: Told,
    event: &Event,
) -> Result<Option<Told>, TickError> {
    if shared.sharing.told.contains(&what) {
        return Ok(None);
    }
    let (Told::Breaking(start) | Told::Stays(start, _)) = what;
    let since = company_since(shared.tenants);
    let before = context.store.events(start.job_id).await?;
    let is_known = before.iter().any(|known| {
        let is_same = matches!(what, Told::Breaking(_)) || known.detail == event.detail;
        known.kind == event.kind && known.at >= since && is_same
    });
    if !is_known {
        warn!(%start, node = %shared.place.0, kind = %event.kind, "{}", event.detail);
        context.store.record_event(event).await?;
        context.tally.event(&event.kind);
    }
    Ok(Some(what))
}

/// When the last of them came.
fn company_since(tenants: &[(&Decision, &Member)]) -> UnixTime {
    let started = tenants.iter().filter_map(|(_, member)| member.started_at);
    started.fold(UnixTime::from_epoch(0), |last, at| if at > last { at } else { last })
}

fn case(
    context: &Context,
    shared: &Shared<'_>,
    (start, estimate): &(JobStart, Estimate),
    (guest, job): (&Member, &Job),
) -> Case {
    let slowed = member_of(shared, *start).unwrap_or(guest);
    let runs = |member: &Member| shared.sharing.tenant(member.plan.start).map_or(0, Followed::run_count);
    let strain =
        context.board().strains.get(&guest.plan.start).filter(|_| runs(guest) < runs(slowed)).copied();
    let is_likely =
        strain.is_some_and(|strain| strain.bears_out()) || is_of_first_run(context, slowed, estimate);
    let account = |member: &Member| {
        let job = shared.scan.jobs.get(&member.plan.start.job_id);
        job.map(|job| job.account.as_str()).unwrap_or_default()
    };
    let owners = [slowed, guest].map(|member| (member.plan.uid, account(member)));
    let word = if context.settings.policy.watch_believes.lets(owners) {
        Word::Own
    } else if strain.is_some_and(|strain| strain.is_by_memory()) {
        Word::BorneOut
    } else if is_likely && is_believed_again(context, slowed) {
        Word::Believed
    } else {
        Word::OfAnother
    };
    Case {
        ground: estimate.ground,
        word,
        as_guest: shared.is_guest(guest),
        comes_back: comes_back_alone(job),
        guest: rest(context.now(), shared, guest),
        slowed: rest(context.now(), shared, slowed),
        restart_seconds: context.settings.pace.restart_seconds,
    }
}

fn member_of<'a>(shared: &Shared<'a>, start: JobStart) -> Option<&'a Member> {
    shared.tenants.iter().map(|(_, member)| *member).find(|member| member.plan.start == start)
}

/// Whether this is the word of a first run's user, in time. A guest came to it by minutes of measurement, and nothing else could
/// show that its promise breaks; so it is taken at the first reading, when a guest loses minutes at most.
fn is_of_first_run(context: &Context, slowed: &Member, estimate: &Estimate) -> bool {
    let is_first_reading = estimate.seconds < context.settings.pace.steady_seconds;
    context.board().first_runs.contains_key(&slowed.plan.start) && is_first_reading
}

/// Whether nobody of another user was sent away a moment ago for what may be this user's own doing: his counter, and compute units,
/// of which the device tells but the sum. Who makes that up harms one job a little, once an hour.
fn is_believed_again(context: &Context, slowed: &Member) -> bool {
    let board = context.board();
    let believed_at = board.believed.get(&slowed.plan.uid);
    believed_at.is_none_or(|at| context.now().seconds_since(*at) >= BELIEVED_AGAIN_SECONDS)
}

#[expect(clippy::cast_precision_loss, reason = "time limits are far below 2^53 seconds")]
fn rest(now: UnixTime, shared: &Shared<'_>, member: &Member) -> Rest {
    let start = member.plan.start;
    let measured = shared.sharing.tenant(start).and_then(Followed::speed_fraction);
    let expected = member.plan.estimate.as_ref().map(|estimate| estimate.speed_fraction);
    let limit = shared.scan.jobs.get(&start.job_id).and_then(|job| job.time_limit_seconds);
    Rest {
        elapsed_seconds: member.started_at.map_or(0.0, |at| now.seconds_since(at).max(0.0)),
        alone_seconds: member.plan.solo_duration_seconds,
        speed_fraction: measured.or(expected).unwrap_or(1.0).clamp(0.05, 1.0),
        limit_seconds: limit.map(|seconds| seconds as f64),
    }
}
