//! What would have been done (`mode = "shadow"` or `observe.shadow`): at each look the product's own planner decides on the queue of
//! the observed partitions as if they were the pool; decisions are recorded in a table of their own, and scored when their jobs have
//! ended. Slurm is only read, and nothing here reaches a job, an agent or what acts on those (docs/decisions/0026-shadow.md).
//!
//! ```text
//!  observe: queue, nodes, starts ─┬─► view (pure) ─► pairing::plan ─► decide (pure) ─► shadow_decision, open
//!  shadow_decision, open ─────────┘                                                     │
//!  observed_job, observed_run ─────────────────────────► score (pure) ─► closed ◄───────┘
//! ```

pub(crate) mod calibration;
mod decide;
mod score;
pub(crate) mod seen;
mod standing;
#[cfg(test)]
mod tests;
mod view;
pub(crate) mod words;

use crate::context::Context;
use crate::observe::seen::Observed;
use crate::tick_error::TickError;
use decide::{Minds, adopted, decided};
use pillion_core::workload::{of_script, of_submit_line};
use pillion_core::{JobStart, SlurmJobId, UnixTime};
use pillion_slurm::{Job, JobState};
use pillion_store::{ObservedJob, ObservedRun, ShadowDecision, ShadowScore};
use score::{Truth, score};
use seen::ShadowSeen;
use standing::Standings;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use view::{Ground, Work};

/// Scripts that are asked for in one tick: each is a call of its own, and no job waits for it.
const SCRIPTS_PER_TICK: usize = 25;

/// The shadow's shell.
pub struct Shadow {
    context: Arc<Context>,
    /// What those run that wait, as far as it was asked; Slurm says it again whoever asks.
    works: Mutex<BTreeMap<u32, Work>>,
}

impl Shadow {
    /// One that has asked nothing yet.
    pub fn new(context: Arc<Context>) -> Self {
        Self { context, works: Mutex::default() }
    }

    /// Scores what is over, and decides once.
    ///
    /// # Errors
    /// [`TickError`] where Slurm or the store did not answer: the next look is the retry.
    pub async fn tick(&self) -> Result<(), TickError> {
        let context = &self.context;
        if !context.settings.has_shadow() || !context.is_leading() {
            return Ok(());
        }
        let observed = Arc::clone(&context.board().observed);
        let now = context.now();
        // What is old would be decided on as if it were now.
        let is_fresh = observed
            .at
            .is_some_and(|at| now.seconds_since(at) <= context.settings.scan_age_max.as_secs_f64());
        if !is_fresh {
            return Ok(());
        }
        self.ask_works(&observed).await?;
        let (open, stored) = self.close(&observed, now).await?;
        self.decide(&observed, &open, &Standings::new(&observed, &stored, now)).await
    }

    /// What each job runs that waits and was not asked for yet: its script, and how many nodes it wants.
    async fn ask_works(&self, observed: &Observed) -> Result<(), TickError> {
        let waiting = || observed.queue.iter().filter(|job| job.state == JobState::Pending);
        let unknown: Vec<Arc<Job>> = {
            let mut works = self.works();
            let listed: BTreeSet<u32> = waiting().map(|job| job.id.id).collect();
            works.retain(|id, _| listed.contains(id));
            let mut arrays = BTreeSet::new();
            let mut unknown: Vec<&Arc<Job>> = waiting()
                .filter(|job| !works.contains_key(&job.id.id) && arrays.insert(job.id.id))
                .filter(|job| job.gres.split(',').any(|entry| entry == "gpu" || entry.starts_with("gpu:")))
                .collect();
            unknown.sort_by_key(|job| std::cmp::Reverse(job.priority));
            unknown.into_iter().take(SCRIPTS_PER_TICK).map(Arc::clone).collect()
        };
        if unknown.is_empty() {
            return Ok(());
        }
        let slurm = &self.context.slurm;
        let ids: Vec<SlurmJobId> = unknown.iter().map(|job| job.id).collect();
        let names = slurm.job_names(&ids).await.map_err(TickError::slurm("read the names of jobs"))?;
        let counts =
            slurm.node_counts(&ids).await.map_err(TickError::slurm("read how many nodes jobs want"))?;
        for job in unknown {
            // Slurm has forgotten it; so does the next scan.
            let (Some(name), Some(&node_count)) = (names.get(&job.id), counts.get(&job.id)) else { continue };
            let script = slurm.batch_script(job.inner_id).await.map_err(TickError::slurm("read a script"))?;
            let workload = match script {
                Some(script) => of_script(&job.user, name, &script),
                // No batch job: its name would do, and it is not decided on.
                None => of_submit_line(&job.user, name, ""),
            };
            self.works().insert(job.id.id, Work { workload, node_count });
        }
        Ok(())
    }

    /// Closes decisions whose jobs are over; those that stay open, with what is written down of the starts that they are about.
    async fn close(
        &self,
        observed: &Observed,
        now: UnixTime,
    ) -> Result<(Vec<ShadowDecision>, Stored), TickError> {
        let (store, settings) = (&self.context.store, &self.context.settings);
        let mut open = store.open_shadow().await?;
        let groups: BTreeSet<JobStart> = open.iter().map(|decision| decision.group).collect();
        let groups: Vec<JobStart> = groups.into_iter().collect();
        let all = store.shadow_groups(&groups).await?;
        let stored = store.observed_starts(&starts_of(&all)).await?;
        let standings = Standings::new(observed, &stored, now);
        let mut of_groups: BTreeMap<JobStart, Vec<ShadowDecision>> = BTreeMap::new();
        for decision in all {
            of_groups.entry(decision.group).or_default().push(decision);
        }
        let mut scores: Vec<(JobStart, ShadowScore)> = Vec::new();
        for decision in &open {
            let group = of_groups.get(&decision.group).map(Vec::as_slice).unwrap_or_default();
            let truth = Truth { standings: &standings, group, partitions: &settings.observed };
            scores.extend(score(decision, truth).map(|score| (decision.start(), score)));
        }
        store.close_shadow(&scores, now).await?;
        let closed: BTreeSet<JobStart> = scores.iter().map(|(start, _)| *start).collect();
        open.retain(|decision| !closed.contains(&decision.start()));
        Ok((open, stored))
    }

    async fn decide(
        &self,
        observed: &Observed,
        open: &[ShadowDecision],
        standings: &Standings<'_>,
    ) -> Result<(), TickError> {
        let (store, settings) = (&self.context.store, &self.context.settings);
        let profiles = store.profiles().await?;
        let model = self.context.models.current(store.as_ref()).await?;
        let agents = self.context.agents.all();
        let works = self.works().clone();
        let minds = Minds {
            profiles: &profiles,
            model: model.as_ref(),
            policy: &settings.policy,
            by_job: settings.by_job(),
            alone_devices_max: settings.alone_devices_max,
            gpu_types: &settings.gpu_types,
        };
        let ground = Ground {
            at: self.context.now(),
            observed,
            standings,
            works: &works,
            agents: &agents,
            open,
            partitions: &settings.observed,
            bound: settings.bound,
        };
        let mut new = adopted(&ground, &minds);
        let open: Vec<ShadowDecision> = open.iter().chain(&new).cloned().collect();
        let decided = decided(&Ground { open: &open, ..ground }, &minds);
        new.extend(decided.decisions);
        store.record_shadow(&new).await?;
        self.context.board_mut().shadow = Arc::new(ShadowSeen { reasons: decided.reasons });
        Ok(())
    }

    fn works(&self) -> MutexGuard<'_, BTreeMap<u32, Work>> {
        self.works.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is written down of starts.
type Stored = Vec<(ObservedJob, Vec<ObservedRun>)>;

fn starts_of(decisions: &[ShadowDecision]) -> Vec<JobStart> {
    decisions.iter().map(ShadowDecision::start).collect()
}
