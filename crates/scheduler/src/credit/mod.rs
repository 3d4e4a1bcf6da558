//! Holds what tenants do against the profiles that they were let in by, while they run. A profile is what a workload did
//! before, and a name is anybody's to make up: a light run under a new name, then a heavy one, and the neighbour pays. Who does
//! far more than his profile says is reported as an event within seconds, nobody joins his device any more, and his user runs
//! alone for some runs. Sends nobody away.
//!
//! ```text
//! what agents saw ─► look (pure) ─┬─► window: enough of the last samples ──────┬─► credit_loss, event; the device takes
//!                                 └─► strain: over the whole sharing ─┐         │   no joiner
//! run that ended ──► newcomers beside a broken promise ───────────────┴─► where both say so
//! ```

mod excess;
mod newcomer;
pub(crate) mod strain;
mod window;

pub(crate) use newcomer::culprits;

use crate::context::Context;
use crate::tick_error::TickError;
use excess::{Excess, Look, Seen, look};
use pillion_core::decision::MemberState;
use pillion_core::event::EventKind;
use pillion_core::profile::WorkloadProfile;
use pillion_core::{DecisionId, GresType, NodeName, UnixTime, WorkloadKey};
use pillion_store::{CreditLoss, Decision, Event, Member, StoredProfile};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use strain::Strain;
use tracing::warn;
use window::Window;

pub(crate) type Place = (NodeName, GresType);

/// What was seen of a sharing so far.
#[derive(Debug, Clone)]
struct Watched {
    group: DecisionId,
    sampled_at: UnixTime,
    window: Window,
    is_reported: bool,
}

pub struct Credit {
    context: Arc<Context>,
    watched: Mutex<BTreeMap<Place, Watched>>,
}

impl Credit {
    /// A checker that has seen nothing yet.
    pub fn new(context: Arc<Context>) -> Self {
        Self { context, watched: Mutex::default() }
    }

    /// Checks once every device that is shared now.
    ///
    /// # Errors
    /// [`TickError`] where the store did not answer.
    pub async fn tick(&self) -> Result<(), TickError> {
        let context = &self.context;
        let active = Arc::clone(&context.board().active);
        let shared = shared_devices(&active);
        self.lock().retain(|place, watched| {
            let mut tenants = shared.get(place).into_iter().flatten();
            tenants.any(|(decision, _)| decision.group == watched.group)
        });
        context.board_mut().amiss.overrun.retain(|(node, gres_type), group| {
            active.iter().any(|decision| {
                decision.group == *group && decision.places().any(|place| place == (node, gres_type))
            })
        });
        self.forget_strains(&active);
        if shared.is_empty() || !context.is_leading() {
            return Ok(());
        }
        let mut samples = context.agents.samples_of(shared.keys().map(|(node, gres_type)| (node, gres_type)));
        samples.retain(|place, sample| self.is_new(place, sample.at));
        if samples.is_empty() {
            return Ok(());
        }
        let stored = context.store.profiles().await?;
        let profiles = by_workload(&stored);
        for (place, sample) in &samples {
            let tenants = &shared[place];
            let mut seen = Vec::new();
            for (decision, member) in tenants {
                let known = profiles.get(&(&member.plan.workload, decision.device_model.as_str()));
                seen.push(Seen { member, profile: known.copied() });
            }
            let (group, look) = (tenants[0].0.group, look(&seen, sample));
            self.add_strain(tenants, sample.at, &look);
            let Some(beyond) = self.count(place, group, sample.at, look) else { continue };
            context.board_mut().amiss.overrun.insert(place.clone(), group);
            let done = self.lose(place, &beyond).await;
            done.or_else(|error| context.pass_over("credit", beyond.start, error))?;
            if let Some(watched) = self.lock().get_mut(place) {
                watched.is_reported = true;
            }
        }
        Ok(())
    }

    fn is_new(&self, place: &Place, at: UnixTime) -> bool {
        self.lock().get(place).is_none_or(|watched| at > watched.sampled_at)
    }

    /// One sample more: what is to be reported now, where enough of the last were beyond and nothing was reported yet.
    fn count(&self, place: &Place, group: DecisionId, at: UnixTime, look: Look) -> Option<Excess> {
        let mut devices = self.lock();
        let anew = Watched { group, sampled_at: at, window: Window::default(), is_reported: false };
        let watched = devices.entry(place.clone()).or_insert(anew);
        watched.sampled_at = at;
        if watched.is_reported {
            return None;
        }
        watched.window.add(&look);
        look.excess.filter(|excess| watched.window.bears_out(excess))
    }

    /// Keeps of each tenant what was measured while he was there, for a promise beside him that may turn out to be broken.
    fn add_strain(&self, tenants: &[(&Decision, &Member)], at: UnixTime, look: &Look) {
        let mut board = self.context.board_mut();
        for (decision, member) in tenants {
            let start = member.plan.start;
            let strain = board.strains.entry(start).or_insert_with(|| Strain::of(decision.group, at));
            strain.add(start, at, look);
        }
    }

    fn forget_strains(&self, active: &[Decision]) {
        let now = self.context.now();
        let groups: BTreeSet<DecisionId> = active.iter().map(|decision| decision.group).collect();
        self.context
            .board_mut()
            .strains
            .retain(|_, strain| strain.is_kept(|group| groups.contains(&group), now));
    }

    async fn lose(&self, (node, gres_type): &Place, beyond: &Excess) -> Result<(), TickError> {
        let context = &self.context;
        let detail = format!("on {gres_type}: {}; nobody joins it there any more", beyond.detail);
        warn!(start = %beyond.start, %node, "{detail}");
        let event = Event {
            at: context.now(),
            kind: EventKind::ProfileExceeded,
            job_id: Some(beyond.start.job_id),
            node: Some(node.clone()),
            detail: detail.clone(),
        };
        let loss = CreditLoss {
            uid: beyond.uid,
            lost_at: event.at,
            start: beyond.start,
            node: node.clone(),
            reason: detail,
        };
        if context.store.lose_credit(&loss, &event).await? {
            context.tally.event(&EventKind::ProfileExceeded);
            context.nudges.engine.notify_one();
        }
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<Place, Watched>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The devices on which at least two meet, with who. Whoever has an instance to himself meets nobody.
pub(crate) fn shared_devices(active: &[Decision]) -> BTreeMap<Place, Vec<(&Decision, &Member)>> {
    let mut devices: BTreeMap<Place, Vec<(&Decision, &Member)>> = BTreeMap::new();
    for decision in active {
        for member in decision.members.iter().filter(|member| {
            member.state == MemberState::Running && !member.plan.sharing.mechanism().has_instances()
        }) {
            for (node, gres_type) in decision.places() {
                devices.entry((node.clone(), gres_type.clone())).or_default().push((decision, member));
            }
        }
    }
    devices.retain(|_, tenants| tenants.len() > 1);
    devices
}

pub(crate) fn by_workload(stored: &[StoredProfile]) -> BTreeMap<(&WorkloadKey, &str), &WorkloadProfile> {
    stored
        .iter()
        .map(|stored| ((&stored.profile.workload, stored.profile.device_model.as_str()), &stored.profile))
        .collect()
}

#[cfg(test)]
mod tests;
