//! Holds what tenants do against the profiles that they were let in by, while they run. A profile is what a workload did
//! before, and a name is anybody's to make up: a light run under a new name, then a heavy one, and the neighbour pays. Who does
//! far more than his profile says is reported as an event within seconds, nobody joins his device any more, and his user runs
//! alone for some runs. Sends nobody away.
//!
//! ```text
//! what agents saw ─► excess (pure) ─► so many in a row ─► credit_loss, event; the device takes no joiner
//! run that ended  ─► newcomers beside a broken promise ──┘
//! ```

mod excess;
mod newcomer;

pub(crate) use newcomer::culprits;

use crate::context::{Context, TickError};
use crate::store::{CreditLoss, Decision, Event, Member, StoredProfile};
use excess::{Excess, Seen, excess};
use pillion_core::decision::MemberState;
use pillion_core::event::EventKind;
use pillion_core::profile::WorkloadProfile;
use pillion_core::{DecisionId, GresType, NodeName, UnixTime, WorkloadKey};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use tracing::warn;

/// How many samples in a row must show it: one may fall into a burst.
const SAMPLES_MIN: u32 = 5;

type Place = (NodeName, GresType);

/// What was seen of a sharing so far.
#[derive(Debug, Clone, Copy)]
struct Watched {
    group: DecisionId,
    sampled_at: UnixTime,
    samples_beyond: u32,
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
        context.board_mut().overrun.retain(|(node, gres_type), group| {
            active.iter().any(|decision| {
                decision.group == *group && (&decision.node, &decision.gres_type) == (node, gres_type)
            })
        });
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
            let Some((group, beyond)) =
                self.count(place, tenants[0].0.group, sample.at, excess(&seen, sample))
            else {
                continue;
            };
            context.board_mut().overrun.insert(place.clone(), group);
            let done = self.lose(place, &beyond).await;
            done.or_else(|error| context.pass_over("credit", beyond.start, error))?;
            if let Some(watched) = self.lock().get_mut(place) {
                watched.is_reported = true;
            }
        }
        Ok(())
    }

    /// Whether a sample shows something that was neither seen nor reported before.
    fn is_new(&self, place: &Place, at: UnixTime) -> bool {
        self.lock().get(place).is_none_or(|watched| !watched.is_reported && at > watched.sampled_at)
    }

    /// One sample more: what is to be reported now, where enough in a row were beyond.
    fn count(
        &self,
        place: &Place,
        group: DecisionId,
        at: UnixTime,
        beyond: Option<Excess>,
    ) -> Option<(DecisionId, Excess)> {
        let mut devices = self.lock();
        let anew =
            Watched { group, sampled_at: UnixTime::from_epoch(0), samples_beyond: 0, is_reported: false };
        let watched = devices.entry(place.clone()).or_insert(anew);
        watched.sampled_at = at;
        watched.samples_beyond = if beyond.is_some() { watched.samples_beyond + 1 } else { 0 };
        beyond.filter(|_| watched.samples_beyond >= SAMPLES_MIN).map(|beyond| (group, beyond))
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

/// The devices on which at least two run, with who.
fn shared_devices(active: &[Decision]) -> BTreeMap<Place, Vec<(&Decision, &Member)>> {
    let mut devices: BTreeMap<Place, Vec<(&Decision, &Member)>> = BTreeMap::new();
    for decision in active {
        for member in decision.members.iter().filter(|member| member.state == MemberState::Running) {
            let place = (decision.node.clone(), decision.gres_type.clone());
            devices.entry(place).or_default().push((decision, member));
        }
    }
    devices.retain(|_, tenants| tenants.len() > 1);
    devices
}

fn by_workload(stored: &[StoredProfile]) -> BTreeMap<(&WorkloadKey, &str), &WorkloadProfile> {
    stored
        .iter()
        .map(|stored| ((&stored.profile.workload, stored.profile.device_model.as_str()), &stored.profile))
        .collect()
}

#[cfg(test)]
mod tests;
