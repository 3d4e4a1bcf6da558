//! Observes ordinary partitions (`observe.partitions`): which jobs run there, on which devices, what they run, how busy it keeps them.
//! Slurm is only read, and bounded in how often; nothing here plans, releases or ends anybody, and what it keeps has tables of its
//! own (decision 0022).
//!
//! ```text
//!  Slurm ─► starts (pure) ─┬─► store: observed_job ─┐
//!  agents' samples ─► activity (pure) ┘             ├─► joined (pure) ─► profile::learn ─► workload_profile
//!  agents' runs ─► truth ─► store: observed_run ────┘
//! ```

pub(crate) mod activity;
mod joined;
pub(crate) mod seen;
mod starts;

use crate::context::Context;
use crate::profile;
use crate::tick_error::TickError;
pub(crate) use joined::is_settled;
use joined::joined;
use pillion_core::family::family_of;
use pillion_core::name::NameSource;
use pillion_core::workload::{of_script, of_submit_line};
use pillion_core::{SlurmJobId, WorkloadKey, WorkloadName};
use pillion_slurm::NAMED_JOBS_MAX;
use pillion_store::{Lesson, Naming, ObservedJob, ObservedRun, StoredProfile};
use seen::Observed;
use starts::{Starts, observed_nodes};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Scripts that are asked for in one tick: each is a call of its own, and no job waits for it.
const SCRIPTS_PER_TICK: usize = 25;
/// Starts that are written down in one tick.
const WRITTEN_PER_TICK: usize = 5_000;
/// Starts that are learnt from in one tick.
const LEARNT_PER_TICK: u32 = 100;

pub struct Observe {
    context: Arc<Context>,
    /// `None`: what an earlier scheduler has written down was not read yet.
    starts: Mutex<Option<Starts>>,
}

impl Observe {
    /// An observer that has seen nothing yet.
    pub fn new(context: Arc<Context>) -> Self {
        Self { context, starts: Mutex::default() }
    }

    /// One look. Only the scheduler that leads has the agents' word.
    ///
    /// # Errors
    /// [`TickError`] where Slurm or the store did not answer; what was seen before stays.
    pub async fn tick(&self) -> Result<(), TickError> {
        let context = &self.context;
        if context.settings.observed.is_empty() {
            return Ok(());
        }
        if !context.is_leading() {
            // Another one writes meanwhile.
            *self.lock() = None;
            return Ok(());
        }
        self.restore().await?;
        self.scan().await?;
        self.ask_devices().await?;
        // What is new of the devices does not wait for scripts.
        let asked = self.ask_workloads().await;
        self.write_down().await?;
        context.nudges.shadow.notify_one();
        // Nor does what is over.
        self.learn().await?;
        asked
    }

    async fn restore(&self) -> Result<(), TickError> {
        if self.lock().is_none() {
            let open = self.context.store.open_observed().await?;
            self.lock().get_or_insert_with(|| Starts::restored(open));
        }
        Ok(())
    }

    async fn scan(&self) -> Result<(), TickError> {
        let context = &self.context;
        let (at, settings) = (context.now(), &context.settings);
        let answer = context
            .slurm
            .jobs(&settings.observed)
            .await
            .map_err(TickError::slurm("read observed partitions"))?;
        let nodes = context.slurm.nodes().await.map_err(TickError::slurm("read the nodes"))?;
        let nodes = observed_nodes(nodes, &settings.observed, &settings.pool);
        let minutes = context.activity().take();
        self.with(|starts| {
            starts.follow(at, &answer.jobs, &nodes, answer.dropped_line_count == 0);
            starts.count(&minutes);
        });
        let is_whole = answer.dropped_line_count == 0;
        let seen = Observed { at: Some(at), nodes, jobs: Vec::new(), queue: answer.jobs, is_whole };
        self.hang(seen);
        Ok(())
    }

    /// Shows what was seen, with the starts as they are known now.
    fn hang(&self, seen: Observed) {
        let jobs = self.with(|starts| starts.jobs().cloned().collect());
        self.context.board_mut().observed = Arc::new(Observed { jobs, ..seen });
    }

    /// Shows the same look with what was found out of its starts since: a job of some seconds is over at the next one.
    fn hang_anew(&self) {
        let before = Observed::clone(&self.context.board().observed);
        self.hang(before);
    }

    async fn ask_devices(&self) -> Result<(), TickError> {
        let asked = self.with(|starts| starts.without_devices(NAMED_JOBS_MAX));
        if !asked.is_empty() {
            let held = self.context.slurm.held_devices(&asked).await;
            let held = held.map_err(TickError::slurm("ask which devices jobs hold"))?;
            self.with(|starts| starts.hold(&asked, held));
            self.hang_anew();
        }
        Ok(())
    }

    /// What each new start runs: by its script, as `pillion.lua` names it, or by its submit line.
    async fn ask_workloads(&self) -> Result<(), TickError> {
        let unknown = self.with(|starts| starts.without_workload(SCRIPTS_PER_TICK));
        if unknown.is_empty() {
            return Ok(());
        }
        let asked = self.ask_workloads_of(unknown).await;
        self.hang_anew();
        asked
    }

    async fn ask_workloads_of(&self, unknown: Vec<ObservedJob>) -> Result<(), TickError> {
        let slurm = &self.context.slurm;
        let ids: Vec<SlurmJobId> = unknown.iter().map(|job| job.start.job_id).collect();
        let names = slurm.job_names(&ids).await.map_err(TickError::slurm("read the names of jobs"))?;
        let (mut namings, mut failed) = (Vec::new(), None);
        for job in unknown {
            // Slurm has forgotten it; so does the next scan.
            let Some(name) = names.get(&job.start.job_id) else { continue };
            let script = match slurm.batch_script(job.inner_id).await {
                Ok(script) => script,
                Err(error) => {
                    failed = Some(TickError::slurm("read a script")(error));
                    break;
                }
            };
            let workload = match script {
                Some(script) => of_script(&job.user, name, &script),
                // Submit lines are slurmdbd's: where it does not answer, those that have a script do not wait for it.
                None if failed.is_some() => continue,
                None => match slurm.submit_line(job.inner_id).await {
                    Ok(line) => of_submit_line(&job.user, name, line.as_deref().unwrap_or_default()),
                    Err(error) => {
                        failed = Some(TickError::slurm("read a submit line")(error));
                        continue;
                    }
                },
            };
            self.with(|starts| starts.run(job.start.job_id, &workload));
            namings.extend(naming(workload, &job, name));
        }
        let kept = self.context.store.name_workloads(&namings, self.context.now()).await;
        kept.or_else(|error| self.context.pass_over("observe", "names of workloads", error.into()))?;
        failed.map_or(Ok(()), Err)
    }

    async fn write_down(&self) -> Result<(), TickError> {
        let at = self.context.now();
        let unwritten = self.with(|starts| starts.unwritten(at, WRITTEN_PER_TICK));
        self.context.store.record_observed(&unwritten).await?;
        self.with(|starts| starts.written(at, &unwritten));
        Ok(())
    }

    /// Learns from starts that are over.
    async fn learn(&self) -> Result<(), TickError> {
        let (store, now) = (&self.context.store, self.context.now());
        for (job, runs) in store.unlearned_observed(LEARNT_PER_TICK).await? {
            if is_settled(&job, &runs, now) {
                let learnt = self.learn_of(&job, &runs).await;
                learnt.or_else(|error| self.context.pass_over("observe", job.start, error))?;
            }
        }
        Ok(())
    }

    async fn learn_of(&self, job: &ObservedJob, runs: &[ObservedRun]) -> Result<(), TickError> {
        let store = &self.context.store;
        let run = match joined(job, runs) {
            Ok(run) => run,
            Err(why) => return Ok(store.learn_observed(job.start, &Lesson::nothing(why), None).await?),
        };
        let stored = store.profile(&run.job.workload, &run.device_model).await?;
        let (lesson, mut updated) = profile::learn(stored, &run, self.context.now());
        if let Some(updated) = &mut updated {
            self.name(job, &run.job.workload, updated).await?;
        }
        store.learn_observed(job.start, &lesson, updated.as_ref()).await?;
        if updated.is_some() {
            self.context.nudges.engine.notify_one();
        }
        Ok(())
    }

    /// People call it as they call its jobs. On several devices it is no kin of what runs on one: the planner would take it for such.
    async fn name(
        &self,
        job: &ObservedJob,
        workload: &WorkloadKey,
        updated: &mut StoredProfile,
    ) -> Result<(), TickError> {
        let store = &self.context.store;
        let names = store.workload_names(std::slice::from_ref(&job.workload)).await?;
        let Some(known) = names.get(&job.workload) else { return Ok(()) };
        if *workload == job.workload {
            updated.profile.family = family_of(workload, &known.name);
            return Ok(());
        }
        let (name, uid, source) = (known.name.clone(), job.uid, NameSource::Job);
        let naming = Naming { workload: workload.clone(), uid, name, source };
        Ok(store.name_workloads(&[naming], self.context.now()).await?)
    }

    fn with<T>(&self, change: impl FnOnce(&mut Starts) -> T) -> T {
        change(self.lock().get_or_insert_with(Starts::default))
    }

    fn lock(&self) -> MutexGuard<'_, Option<Starts>> {
        self.starts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn naming(workload: WorkloadKey, job: &ObservedJob, name: &str) -> Option<Naming> {
    let name = WorkloadName::safe(name)?;
    Some(Naming { workload, uid: job.uid, name, source: NameSource::Job })
}

#[cfg(test)]
pub(crate) mod tests;
