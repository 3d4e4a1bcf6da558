//! Tenants that are ended beside others: their agent ends their clients through the MPS daemon, before a signal does and perhaps
//! takes the others along (docs/decisions/0005-real-devices.md). One that we end ourselves is held first, for its job would fail
//! by itself if it lost its device before Slurm has taken the requeue. Nothing here is durable: what is forgotten is ended by
//! signals, as without us, and what is held goes on by itself.

use super::endings::{Answer, Endings, Harm, Hold, Ready, Tenant, delay_seconds, tenants};
use crate::context::Context;
use crate::tick_error::TickError;
use pillion_core::event::EventKind;
use pillion_core::report::{EndOrder, EndOutcome, EndResult, ToAgent};
use pillion_core::{JobStart, NodeName, UnixTime};
use pillion_store::{Decision, Event, Requeue};
use std::sync::Arc;
use std::time::Duration;
use tracing::info;

/// How long an agent may take to say whether it holds a start, in seconds.
const ANSWER_SECONDS: f64 = 3.0;
/// How long its answer is believed, in seconds: it lets go by itself whom it has held for ten, and Slurm's signal takes a part of them.
const ANSWER_AGE_SECONDS_MAX: f64 = 7.0;
/// How often one start is held: none stands still again and again for a Slurm that is never asked in time.
const HOLDS_MAX: u32 = 4;
/// slurm.conf may be read anew at any time: how long `KillWait` is believed, in seconds.
const KILL_WAIT_AGE_SECONDS_MAX: f64 = 600.0;
/// Of one start the agent ends clients twice at most: those that SIGTERM kills, and the others.
const RESULTS_MAX: u32 = 2;

impl Endings {
    /// Whether Slurm may be asked now to end the start of this requeue: it is held, or cannot be. Otherwise its agent was asked.
    /// `is_ordered`: it is done all the same. A guest that goes back for the sake of the others, or one that goes for its own, must not take them along.
    pub(super) fn ready(
        &self,
        context: &Context,
        requeue: &Requeue,
        decisions: &[Decision],
        is_ordered: bool,
    ) -> Ready {
        let unheard = if is_ordered { Ready::Now } else { Ready::NotYet };
        let (start, now, mut state) = (requeue.start, context.now(), self.lock());
        let count = match state.holds.get(&start) {
            Some(Hold::Asked { at, .. }) => {
                let is_waited_for = is_within(*at, now, ANSWER_SECONDS);
                return if is_waited_for { Ready::NotYet } else { unheard };
            }
            Some(Hold::Answered { at, count, .. }) if !is_within(*at, now, ANSWER_AGE_SECONDS_MAX) => *count,
            Some(Hold::Answered { harm: Some(harm), .. }) if !is_ordered => {
                return Ready::Never(harm.clone());
            }
            Some(Hold::Answered { .. }) => return Ready::Now,
            // It goes on, and is not held once more.
            Some(Hold::Over { .. }) => return unheard,
            None => 0,
        };
        let Some(Tenant { node, .. }) = tenants(decisions).remove(&start) else { return Ready::Now };
        let is_sent =
            count < HOLDS_MAX && context.agents.send(&node, ToAgent::End { start, order: EndOrder::Hold });
        if !is_sent {
            return unheard;
        }
        state.holds.insert(start, Hold::Asked { node, at: now, count: count + 1 });
        Ready::NotYet
    }

    /// An agent that has come anew knows nothing of what it was told before, and holds nobody.
    pub fn agent_came(&self, node: &NodeName) {
        let mut state = self.lock();
        state.told.retain(|_, (told, _)| told != node);
        state.holds.retain(|_, hold| matches!(hold, Hold::Over { .. }) || hold.node() != node);
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
        let (start, now, mut state) = (result.start, context.now(), self.lock());
        match &result.outcome {
            EndOutcome::Held | EndOutcome::NotHeld { .. } => {
                let asked = state.holds.get_mut(&start).filter(|hold| hold.node() == node);
                if let Some(hold) = asked
                    && let Hold::Asked { count, .. } = *hold
                {
                    let harm = harm(&result.outcome);
                    *hold = Hold::Answered { node: node.clone(), at: now, count, harm };
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

/// Whether what was at `since` is no older. A clock that was set back is no reason to wait longer.
fn is_within(since: UnixTime, now: UnixTime, seconds: f64) -> bool {
    (0.0..seconds).contains(&(now.seconds() - since.seconds()))
}

/// Why the end of a start that is not held may take its neighbours along: SIGTERM comes before its clients can leave.
fn harm(outcome: &EndOutcome) -> Option<Harm> {
    match outcome {
        EndOutcome::NotHeld { why, outlasts_sigterm: false, is_of_it_alone } => {
            Some(Harm { why: why.clone(), is_everybodys: !is_of_it_alone })
        }
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
        let is_fresh = |(_, at): (Duration, UnixTime)| is_within(at, now, KILL_WAIT_AGE_SECONDS_MAX);
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
