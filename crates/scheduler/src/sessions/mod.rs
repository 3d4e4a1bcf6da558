//! Watches interactive jobs: which of them leave their devices idle, so that a guest may come, and which have begun to work beside guests,
//! who go then (docs/decisions/0039-interactive-hosts.md). What is seen is kept in memory only: a scheduler that is started again watches
//! anew, and until then nobody comes.
//!
//! ```text
//! what agents saw ─► idle (pure) ─┬─► idle sessions on the board ─► view ─► engine
//!                                 └─► guests of who works: to be started again
//! ```

mod idle;

use crate::context::Context;
use crate::room_asked::{Leave, RoomAsked};
use crate::sent_away::send_away;
use crate::tick_error::TickError;
use idle::{Watched, is_quiet, look};
use pillion_core::decision::MemberState;
use pillion_core::metric::Metric;
use pillion_core::workload::is_session;
use pillion_core::{GresType, JobStart, NodeName};
use pillion_store::{Decision, Member, StoredProfile};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tracing::info;

type Place = (NodeName, GresType);

/// Read by the guest's user.
const REASON: &str = "it is a guest, and the interactive job that has its GPU uses it now";

/// See the module.
pub struct Sessions {
    context: Arc<Context>,
    watched: Mutex<BTreeMap<JobStart, Watched>>,
}

/// An interactive job that runs, and who else is on its device.
struct Session<'a> {
    decision: &'a Decision,
    member: &'a Member,
    beside: Vec<(&'a Decision, &'a Member)>,
}

impl Sessions {
    /// One that has seen nothing yet.
    pub fn new(context: Arc<Context>) -> Self {
        Self { context, watched: Mutex::default() }
    }

    /// Looks once at every interactive job that others may come to.
    ///
    /// # Errors
    /// [`TickError`] where the store did not answer.
    pub async fn tick(&self) -> Result<(), TickError> {
        let context = &self.context;
        if !context.is_leading() {
            self.lock().clear();
            context.board_mut().idle_sessions.clear();
            return Ok(());
        }
        let active = Arc::clone(&context.board().active);
        let sessions = sessions(&active);
        let starts: BTreeSet<JobStart> = sessions.values().map(|own| own.member.plan.start).collect();
        self.lock().retain(|start, _| starts.contains(start));
        context.board_mut().idle_sessions.retain(|start| starts.contains(start));
        if sessions.is_empty() {
            return Ok(());
        }
        // All that is known is much to read each second, and is for guests alone.
        let has_guests = sessions.values().any(|session| !session.beside.is_empty());
        let profiles = if has_guests { context.store.profiles().await? } else { Vec::new() };
        let samples = context.agents.samples_of(sessions.keys().map(|(node, gres_type)| (node, gres_type)));
        let mut first_error = None;
        for (place, session) in &sessions {
            let stream = context.agents.stream_number(&place.0);
            self.lock().entry(session.member.plan.start).or_default().attend(stream);
            if let Some(sample) = samples.get(place) {
                let start = session.member.plan.start;
                let guests = session.uses(&profiles);
                let seen = look(sample, start, &guests, session.member.plan.memory_bytes);
                self.lock().entry(start).or_default().add(
                    sample.at,
                    seen,
                    !guests.is_empty(),
                    is_quiet(sample),
                );
            }
            let judged = self.judge(session).await;
            let start = session.member.plan.start;
            if let Err(error) = judged.or_else(|error| context.pass_over("sessions", start, error)) {
                first_error.get_or_insert(error);
            }
        }
        first_error.map_or(Ok(()), Err)
    }

    /// Whether guests may come to it, or those that are there have to go.
    async fn judge(&self, session: &Session<'_>) -> Result<(), TickError> {
        let (context, start) = (&self.context, session.member.plan.start);
        let watched = self.lock().get(&start).cloned().unwrap_or_default();
        // Who cannot leave without harm does not come.
        let may_part = !context.board().is_parting_unsafe;
        let is_quiet = may_part && watched.is_idle_for(context.settings.session_idle, context.now());
        let is_client = self.is_client(session).await?;
        let is_idle = is_quiet && is_client == Some(true);
        {
            let mut board = context.board_mut();
            let is_news = if is_idle {
                board.idle_sessions.insert(start)
            } else {
                board.idle_sessions.remove(&start);
                false
            };
            drop(board);
            if is_news {
                info!(%start, node = %session.decision.node, "an interactive job leaves its device idle: guests may come");
                context.nudges.engine.notify_one();
            }
        }
        if watched.is_active() || is_client == Some(false) {
            for (decision, guest) in &session.beside {
                let guest = guest.plan.start;
                let leave = RoomAsked::leave(context.board().room_asked.get(&guest), context.now());
                if leave == Leave::Unasked && send_away(context, guest, &decision.node, REASON).await? {
                    info!(start = %guest, host = %start, node = %decision.node, "a guest makes room for an interactive job");
                }
            }
        }
        Ok(())
    }

    /// Whether all of its tasks share the device as they should, by its node's word; `None`: none has begun.
    async fn is_client(&self, session: &Session<'_>) -> Result<Option<bool>, TickError> {
        let launches = self.context.store.launches(session.member.plan.start).await?;
        if launches.is_empty() {
            return Ok(None);
        }
        Ok(Some(launches.iter().all(|launch| launch.decision_id == Some(session.decision.id))))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<JobStart, Watched>> {
        // Each change is whole before anything can panic.
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Session<'_> {
    /// What each of the others uses of the device alone.
    fn uses(&self, profiles: &[StoredProfile]) -> Vec<Option<f64>> {
        let of = |decision: &Decision, member: &Member| {
            let mut known = profiles.iter().map(|stored| &stored.profile);
            let profile = known.find(|profile| {
                profile.workload == member.plan.workload && profile.device_model == decision.device_model
            })?;
            profile.metrics.get(Metric::SmActiveFraction)
        };
        self.beside.iter().map(|(decision, member)| of(decision, member)).collect()
    }
}

/// The interactive jobs that run where guests may come, by where they run.
fn sessions(active: &[Decision]) -> BTreeMap<Place, Session<'_>> {
    let mut tenants: BTreeMap<Place, Vec<(&Decision, &Member)>> = BTreeMap::new();
    for decision in active {
        let Some(only) = decision.gres_types.only() else { continue };
        for member in decision.members.iter().filter(|member| member.state == MemberState::Running) {
            let place = (decision.node.clone(), only.clone());
            tenants.entry(place).or_default().push((decision, member));
        }
    }
    let sessions = tenants.into_iter().filter_map(|(place, mut tenants)| {
        let is_host = |(_, member): &(&Decision, &Member)| {
            is_session(&member.plan.workload) && member.plan.sharing.mechanism().has_daemon()
        };
        let (decision, member) = tenants.remove(tenants.iter().position(is_host)?);
        Some((place, Session { decision, member, beside: tenants }))
    });
    sessions.collect()
}

#[cfg(test)]
mod tests;
