//! Follows the speed of each tenant while it shares its device, and acts where a promise is being broken with confidence
//! (docs/decisions/0015-the-watch.md). Who cheated is another question (`credit`); this one asks who is slowed.
//!
//! ```text
//! what agents saw ─► blocks ─► estimate ─► follow: whose promise is broken ─► guest: who goes, and may he ─► sent: once
//!                   (counter,   (speed,     (first after a minute of            (all pure)                     │
//!                    in time)    error)      progress, then every ten)                                         ▼
//!                                            event, device closed to joiners ◄─ act ─► job_requeue ─► requeue, alone
//! ```

mod act;
mod blocks;
mod estimate;
mod follow;
mod guest;
mod sent;
pub(crate) mod settings;

pub use settings::PaceSettings;

use crate::context::Context;
use crate::credit::{Place, by_workload, shared_devices};
use crate::first_runs::seen::is_first_run;
use crate::tick_error::TickError;
use crate::view::Watched;
use act::{Shared, see_to};
use follow::{Sharing, Told};
use pillion_core::JobStart;
use pillion_core::profile::WorkloadProfile;
use pillion_store::{Decision, Member};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tracing::info;

type Tenants<'a> = BTreeMap<Place, Vec<(&'a Decision, &'a Member)>>;

pub struct Pace {
    context: Arc<Context>,
    sharings: Mutex<BTreeMap<Place, Sharing>>,
}

impl Pace {
    /// A watch that has seen nothing yet.
    pub fn new(context: Arc<Context>) -> Self {
        Self { context, sharings: Mutex::default() }
    }

    /// Looks once at every device that is shared now.
    ///
    /// # Errors
    /// [`TickError`] where the store or Slurm did not answer.
    pub async fn tick(&self) -> Result<(), TickError> {
        let context = &self.context;
        let active = Arc::clone(&context.board().active);
        let mut shared = shared_devices(&active);
        shared.retain(is_told_of);
        self.forget(&shared);
        if !context.is_leading() {
            context.board_mut().watched.clear();
        }
        if shared.is_empty() || !context.is_leading() || context.settings.by_job().is_watch_off() {
            return Ok(());
        }
        self.begin(&shared).await?;
        let samples = context.agents.samples_of(shared.keys().map(|(node, gres_type)| (node, gres_type)));
        let readings = context.settings.pace.readings();
        for (place, sample) in &samples {
            if let Some(sharing) = self.lock().get_mut(place) {
                sharing.observe(sample, &readings);
            }
        }
        self.tell_speeds(&shared, &active);
        self.see_to_all(&shared).await
    }

    /// Of a company that is gone nothing stays; its device is open again.
    fn forget(&self, shared: &Tenants<'_>) {
        let mut sharings = self.lock();
        sharings.retain(|place, sharing| shared.get(place).is_some_and(|now| sharing.is_of(&company(now))));
        let mut board = self.context.board_mut();
        board.amiss.strained.retain(|place, _| sharings.contains_key(place));
        board.speeds.retain(|place, _| sharings.contains_key(place));
    }

    /// How fast those go that were all judged by their counters: what came of trials.
    fn tell_speeds(&self, shared: &Tenants<'_>, active: &[Decision]) {
        let (now, sharings) = (self.context.now(), self.lock());
        let told = sharings.iter().filter_map(|(place, sharing)| Some((place.clone(), sharing.speeds()?)));
        let told: BTreeMap<Place, BTreeMap<JobStart, f64>> = told.collect();
        let seen = told.iter().filter_map(|(place, speeds)| Watched::of(shared.get(place)?, speeds, now));
        let members = active.iter().flat_map(|decision| &decision.members);
        let running: BTreeSet<JobStart> = members.map(|member| member.plan.start).collect();
        let mut board = self.context.board_mut();
        board.watched.extend(seen.map(|watched| (watched.combination(), watched)));
        board.watched.retain(|_, watched| watched.is_needed(&running, now));
        board.speeds = told;
    }

    /// Begins to follow who is new, against what is known of everybody now.
    async fn begin(&self, shared: &Tenants<'_>) -> Result<(), TickError> {
        let new: Vec<&Place> = {
            let sharings = self.lock();
            shared.keys().filter(|place| !sharings.contains_key(*place)).collect()
        };
        if new.is_empty() {
            return Ok(());
        }
        let stored = self.context.store.profiles().await?;
        let profiles = by_workload(&stored);
        let readings = self.context.settings.pace.readings();
        for place in new {
            let so_far: Vec<Option<WorkloadProfile>> =
                shared[place].iter().map(|(_, member)| self.so_far(member, &shared[place])).collect();
            let known = shared[place].iter().zip(&so_far).map(|((decision, member), so_far)| {
                let stored = profiles.get(&(&member.plan.workload, decision.device_model.as_str()));
                (*member, stored.copied().or(so_far.as_ref()))
            });
            let mut sharing = Sharing::of(&known.collect::<Vec<_>>(), is_trial(&shared[place]), &readings);
            // What one of several devices does alone nobody knows: the profile has the most that any of them did.
            if shared[place].iter().any(|(decision, _)| decision.gres_types.only().is_none()) {
                sharing.goes_by_counters();
            }
            self.lock().insert(place.clone(), sharing);
        }
        Ok(())
    }

    /// What a first run did before it was joined. It is held against itself: its speed alone is off by no more than it went up
    /// and down by itself, and not by what runs differ.
    fn so_far(&self, member: &Member, company: &[(&Decision, &Member)]) -> Option<WorkloadProfile> {
        let board = self.context.board();
        let seen = board.first_runs.get(&member.plan.start).map(|seen| &seen.first);
        // A scheduler that was started again has it from the decision of whoever joined.
        let joined = || company.iter().find_map(|(decision, _)| decision.first_run.as_deref());
        let first = seen.or_else(|| joined().filter(|_| is_first_run(member)))?;
        Some(WorkloadProfile { duration_variation_fraction: first.drift_fraction, ..first.profile.clone() })
    }

    /// What is left undone is done at the next tick.
    async fn see_to_all(&self, shared: &Tenants<'_>) -> Result<(), TickError> {
        let open: Vec<(Place, Sharing)> = {
            let sharings = self.lock();
            let open = sharings.iter().filter(|(_, sharing)| !sharing.is_settled);
            open.map(|(place, sharing)| (place.clone(), sharing.clone())).collect()
        };
        let Some(scan) = self.context.fresh_scan().filter(|_| !open.is_empty()) else { return Ok(()) };
        for (place, sharing) in &open {
            let Some(tenants) = shared.get(place) else { continue };
            let done = see_to(&self.context, &Shared { place, tenants, sharing, scan: &scan }).await;
            let told = match done {
                Ok(told) => told,
                Err(error) => {
                    self.context.pass_over("pace", &place.1, error)?;
                    Vec::new()
                }
            };
            self.settle(place, told);
        }
        Ok(())
    }

    fn settle(&self, place: &Place, told: Vec<Told>) {
        if let Some(sharing) = self.lock().get_mut(place) {
            if let Some(speeds) = sharing.speeds() {
                let speeds: Vec<String> =
                    speeds.iter().map(|(start, speed)| format!("{start}: {speed:.2}")).collect();
                info!(node = %place.0, device = %place.1, speeds = speeds.join(", "), "how fast they go together");
            }
            sharing.is_settled = true;
            sharing.told.extend(told);
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Place, Sharing>> {
        self.sharings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether tenants are followed here: those of several devices on the first of them, for each has one counter.
fn is_told_of(place: &Place, tenants: &mut Vec<(&Decision, &Member)>) -> bool {
    tenants.iter().all(|(decision, _)| *decision.gres_types.first() == place.1)
}

/// Whether one of them was let in for a trial.
fn is_trial(tenants: &[(&Decision, &Member)]) -> bool {
    tenants.iter().any(|(decision, _)| decision.trial.is_some())
}

fn company(tenants: &[(&Decision, &Member)]) -> BTreeSet<JobStart> {
    tenants.iter().map(|(_, member)| member.plan.start).collect()
}

#[cfg(test)]
mod tests;
