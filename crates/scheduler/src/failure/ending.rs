//! Tenants that are ended beside others: their agent ends their clients through the MPS daemon, before a signal does and perhaps
//! takes the others along (docs/decisions/0005-real-devices.md). One that we end ourselves is held first, for its job would fail
//! by itself if it lost its device before Slurm has taken the requeue. Nothing here is durable: what is forgotten is ended by
//! signals, as without us, and what is held goes on by itself.

use crate::context::Context;
use crate::scan::Scan;
use crate::tick_error::TickError;
use pillion_core::decision::MemberState;
use pillion_core::event::EventKind;
use pillion_core::report::{END_DELAY_SECONDS_MAX, EndOrder, EndOutcome, EndResult, ToAgent};
use pillion_core::{JobStart, NodeName, UnixTime, UserId};
use pillion_slurm::{Job, JobState, KILL_WAIT_DEFAULT};
use pillion_store::{Decision, Event, Requeue, RequeueCause};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tracing::info;

/// How long an agent may take to say whether it holds a start, in seconds.
const ANSWER_SECONDS: f64 = 3.0;
/// The last clients end so long before SIGKILL, in seconds: a daemon takes a part of one, and so may the way to it.
const MARGIN_SECONDS: f64 = 2.0;
/// slurm.conf may be read anew at any time: how long `KillWait` is believed, in seconds.
const KILL_WAIT_AGE_SECONDS_MAX: f64 = 600.0;
/// Of one start the agent ends clients twice at most: those that SIGTERM kills, and the others.
const RESULTS_MAX: u32 = 2;

/// A start that shares its device by MPS with another.
#[derive(Debug, Clone, PartialEq)]
struct Tenant {
    node: NodeName,
    uid: UserId,
}

/// How far one is that we end ourselves.
#[derive(Debug, Clone, PartialEq)]
enum Hold {
    Asked {
        node: NodeName,
        at: UnixTime,
    },
    Answered {
        node: NodeName,
        /// Why it is not held, and its end may take its neighbours along; `None`: it does not.
        harm: Option<String>,
    },
    /// Slurm was asked. It is not held again, whatever came of that.
    Over {
        node: NodeName,
    },
}

impl Hold {
    const fn node(&self) -> &NodeName {
        match self {
            Self::Asked { node, .. } | Self::Answered { node, .. } | Self::Over { node } => node,
        }
    }
}

/// What Slurm said when it was asked to requeue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    Taken,
    Refused,
    /// It may have been taken.
    Lost,
}

/// Whether Slurm may be asked now to end a start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ready {
    Now,
    /// Its agent was asked, or is away.
    NotYet,
    /// Why its end could take its neighbours along.
    Never(String),
}

/// What is known of starts that are being ended, until a restart.
#[derive(Debug, Default)]
pub struct Endings(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    holds: BTreeMap<JobStart, Hold>,
    /// Whoever shared at the last look, and those whom Slurm is ending.
    tenants: BTreeMap<JobStart, Tenant>,
    /// Whose agent was told that Slurm ends them, and how many more answers are taken for one.
    told: BTreeMap<JobStart, (NodeName, u32)>,
    kill_wait: Option<(Duration, UnixTime)>,
}

/// Those of the starts on each device that are or may be beside another there, and share by a daemon.
fn tenants(decisions: &[Decision]) -> BTreeMap<JobStart, Tenant> {
    let mut devices: BTreeMap<_, Vec<(JobStart, Tenant, bool)>> = BTreeMap::new();
    for decision in decisions {
        let here = devices.entry((&decision.node, &decision.gres_type)).or_default();
        let there = decision.members.iter();
        let there = there.filter(|it| matches!(it.state, MemberState::Released | MemberState::Running));
        here.extend(there.map(|member| {
            let tenant = Tenant { node: decision.node.clone(), uid: member.plan.uid };
            (member.plan.start, tenant, member.plan.sharing.mechanism().has_daemon())
        }));
    }
    let shared = devices.into_values().filter(|here| here.len() > 1).flatten();
    shared.filter(|(_, _, has_daemon)| *has_daemon).map(|(start, tenant, _)| (start, tenant)).collect()
}

/// Since when Slurm is ending this start, if it is. Where it is to be started again it is counted as another already.
fn ended_since(start: JobStart, tenant: &Tenant, scan: &Scan) -> Option<UnixTime> {
    let job = scan.jobs.get(&start.job_id).filter(|job| job.uid == tenant.uid)?;
    let is_it = [start.restart_count, start.restart_count.saturating_add(1)].contains(&job.restart_count);
    let is_ending = is_it && job.state == JobState::Completing;
    // What is ahead of the scan is its time limit's end.
    is_ending.then(|| job.ended_at.filter(|ended_at| *ended_at <= scan.at).unwrap_or(scan.at))
}

/// How long clients that catch SIGTERM, which came at `since`, may go on.
fn delay_seconds(since: UnixTime, now: UnixTime, kill_wait: Duration) -> f64 {
    let left = since.seconds() + kill_wait.as_secs_f64() - MARGIN_SECONDS - now.seconds();
    left.clamp(0.0, END_DELAY_SECONDS_MAX.min(kill_wait.as_secs_f64()))
}

impl State {
    /// Takes up what is there now: whoever has begun to be ended and was not told of.
    fn look(&mut self, decisions: &[Decision], scan: &Scan) -> Vec<(JobStart, NodeName, UnixTime)> {
        let before = std::mem::replace(&mut self.tenants, tenants(decisions));
        let ending = before.into_iter().filter(|(start, tenant)| ended_since(*start, tenant, scan).is_some());
        self.tenants.extend(ending);
        self.holds.retain(|start, _| {
            scan.jobs.get(&start.job_id).is_some_and(|job| job.restart_count == start.restart_count)
        });
        let tenants = &self.tenants;
        self.told.retain(|start, _| {
            tenants.contains_key(start) || scan.jobs.get(&start.job_id).is_some_and(is_ending_now)
        });
        let untold = self.tenants.iter().filter(|(start, _)| !self.told.contains_key(start));
        untold
            .filter_map(|(start, tenant)| {
                Some((*start, tenant.node.clone(), ended_since(*start, tenant, scan)?))
            })
            .collect()
    }

    fn kill_wait(&self) -> Duration {
        self.kill_wait.map_or(KILL_WAIT_DEFAULT, |(kill_wait, _)| kill_wait)
    }
}

fn is_ending_now(job: &Job) -> bool {
    job.state == JobState::Completing
}

impl Endings {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Each change is whole before anything can panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether Slurm may be asked now to end the start of this requeue: it is held, or cannot be. Otherwise its agent was asked.
    /// What an operator orders is done all the same; a guest that goes back for the sake of the others must not take them along.
    pub(super) fn ready(&self, context: &Context, requeue: &Requeue, decisions: &[Decision]) -> Ready {
        let is_ordered = requeue.cause != RequeueCause::SentBack;
        let unheard = if is_ordered { Ready::Now } else { Ready::NotYet };
        let (start, now, mut state) = (requeue.start, context.now(), self.lock());
        match state.holds.get(&start) {
            Some(Hold::Asked { at, .. }) => {
                let waited = now.seconds() - at.seconds();
                // A clock that was set back is no reason to wait longer.
                if (0.0..ANSWER_SECONDS).contains(&waited) { Ready::NotYet } else { unheard }
            }
            Some(Hold::Answered { harm: Some(why), .. }) if !is_ordered => Ready::Never(why.clone()),
            Some(Hold::Answered { .. }) => Ready::Now,
            // It goes on, and is not held once more.
            Some(Hold::Over { .. }) => unheard,
            None => {
                let Some(Tenant { node, .. }) = tenants(decisions).remove(&start) else { return Ready::Now };
                if !context.agents.send(&node, ToAgent::End { start, order: EndOrder::Hold }) {
                    return unheard;
                }
                state.holds.insert(start, Hold::Asked { node, at: now });
                Ready::NotYet
            }
        }
    }

    /// An agent that has come anew knows nothing of what it was told before.
    pub fn agent_came(&self, node: &NodeName) {
        let mut state = self.lock();
        state.told.retain(|_, (told, _)| told != node);
        state.holds.retain(|_, hold| !matches!(hold, Hold::Asked { node: asked, .. } if asked == node));
    }

    /// What Slurm said, for whoever was asked to hold this start.
    pub(super) fn answered(&self, context: &Context, start: JobStart, answer: Answer) {
        let (now, mut state) = (context.now(), self.lock());
        let Some(hold) = state.holds.remove(&start) else { return };
        let node = hold.node().clone();
        let order = match answer {
            Answer::Taken => {
                state.told.insert(start, (node.clone(), RESULTS_MAX));
                EndOrder::End { delay_seconds: delay_seconds(now, now, state.kill_wait()) }
            }
            Answer::Refused | Answer::Lost => EndOrder::LetGo,
        };
        if answer != Answer::Refused {
            state.holds.insert(start, Hold::Over { node: node.clone() });
        }
        // Lost: the agent lets it go by itself.
        context.agents.send(&node, ToAgent::End { start, order });
    }

    /// An agent's answer. `Some`: so many clients of the start were ended, as it was told to.
    fn heard(&self, context: &Context, node: &NodeName, result: &EndResult) -> Option<u32> {
        let (start, mut state) = (result.start, self.lock());
        match &result.outcome {
            EndOutcome::Held | EndOutcome::NotHeld { .. } => {
                let asked = state.holds.get_mut(&start);
                if let Some(hold @ Hold::Asked { .. }) = asked.filter(|hold| hold.node() == node) {
                    *hold = Hold::Answered { node: node.clone(), harm: harm(&result.outcome) };
                    context.nudges.requeue.notify_one();
                }
                None
            }
            EndOutcome::Ended { client_count } => {
                let (_, left) =
                    state.told.get_mut(&start).filter(|(told, left)| told == node && *left > 0)?;
                *left -= 1;
                Some(*client_count)
            }
        }
    }

    /// Takes an agent's answer, and keeps the event where it ended somebody as it was told to. Whatever else it says counts nothing.
    ///
    /// # Errors
    /// [`TickError`] where the store did not answer.
    pub async fn result(
        &self,
        context: &Context,
        node: &NodeName,
        result: &EndResult,
    ) -> Result<(), TickError> {
        let Some(count) = self.heard(context, node, result) else { return Ok(()) };
        let (at, kind, job_id) = (context.now(), EventKind::ClientsEnded, Some(result.start.job_id));
        let processes = if count == 1 { "1 process".to_owned() } else { format!("{count} processes") };
        let detail =
            format!("{processes} of it left the GPU through the MPS daemon, ahead of Slurm's signal");
        info!(start = %result.start, %node, count, "clients ended through their daemon");
        context.tally.event(&kind);
        Ok(context.store.record_event(&Event { at, kind, job_id, node: Some(node.clone()), detail }).await?)
    }
}

/// Why the end of a start that is not held may take its neighbours along: SIGTERM comes before its clients can leave.
fn harm(outcome: &EndOutcome) -> Option<String> {
    match outcome {
        EndOutcome::NotHeld { why, outlasts_sigterm: false } => Some(why.clone()),
        _ => None,
    }
}

/// Tells agents of tenants whom Slurm ends: by their user's word, at their time limit, or by ours.
pub struct Ending {
    context: Arc<Context>,
}

impl Ending {
    pub fn new(context: Arc<Context>) -> Self {
        Self { context }
    }

    /// Tells of each once.
    ///
    /// # Errors
    /// [`TickError`] where Slurm does not say how long it waits before SIGKILL; what was true before counts meanwhile.
    pub async fn tick(&self) -> Result<(), TickError> {
        let context = &self.context;
        let Some(scan) = context.fresh_scan().filter(|_| context.is_active()) else { return Ok(()) };
        let active = Arc::clone(&context.board().active);
        let now = context.now();
        let due = context.endings.lock().look(&active, &scan);
        for (start, node, since) in due {
            let mut state = context.endings.lock();
            let delay_seconds = delay_seconds(since, now, state.kill_wait());
            let order = EndOrder::End { delay_seconds };
            if context.agents.send(&node, ToAgent::End { start, order }) {
                state.told.insert(start, (node, RESULTS_MAX));
            }
        }
        self.learn_kill_wait(now).await
    }

    async fn learn_kill_wait(&self, now: UnixTime) -> Result<(), TickError> {
        let known = self.context.endings.lock().kill_wait;
        let is_fresh = |(_, at): (Duration, UnixTime)| {
            (0.0..KILL_WAIT_AGE_SECONDS_MAX).contains(&(now.seconds() - at.seconds()))
        };
        let has_tenants = !self.context.endings.lock().tenants.is_empty();
        if !has_tenants || known.is_some_and(is_fresh) {
            return Ok(());
        }
        let asked =
            self.context.slurm.kill_wait().await.map_err(TickError::slurm("ask Slurm for KillWait"))?;
        self.context.endings.lock().kill_wait = Some((asked, now));
        Ok(())
    }
}

#[cfg(test)]
mod tests;
