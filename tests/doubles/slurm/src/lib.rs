//! A strict double of Slurm for the simulation: one value, virtual time, no threads, no chance.
//!
//! It does what Slurm 24.11.5 was seen to do, its awkward sides included (a refused update that leaves the node list
//! applied, a pin that can never be met and sets the priority to 0, a requeue that keeps the shards of its lease).
//! [`behaviours`] is that table, and is run on real Slurm as well. What it does not imitate: fair share, steps, most of backfill.
//!
//! Beside it: what a real one printed, on a [`tape`], and its [`reading`].
//!
//! Time moves only in [`FakeSlurm::tick`]; what is due until then happens in order, at its own moment.

mod bed;
pub mod behaviours;
mod disk;
mod fence;
pub mod reading;
mod request;
mod rows;
mod schedule;
mod settings;
pub mod tape;
mod update;
mod world;

pub use settings::{FakeArray, FakeCall, FakeJob, FakeNode, FakePartition, FakeSettings};

use async_trait::async_trait;
use pillion_core::{GresType, NodeName, SlurmJobId, UnixTime};
use pillion_slurm::{
    Ending, HeldDevices, Job, JobState, JobUpdate, JobsScan, Node, Partition, Privacy, Requeued, Reservation,
    Slurm, SlurmError, SlurmVersion,
};
use request::Booking;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use world::World;

/// Slurm in memory. All methods take `&self`, as those of the trait do.
#[derive(Debug)]
pub struct FakeSlurm {
    world: Mutex<World>,
}

impl FakeSlurm {
    /// A cluster without jobs, at `now`.
    pub fn new(
        settings: FakeSettings,
        nodes: Vec<FakeNode>,
        partitions: Vec<FakePartition>,
        now: UnixTime,
    ) -> Self {
        Self { world: Mutex::new(World::new(settings, nodes, partitions, now)) }
    }

    fn world(&self) -> MutexGuard<'_, World> {
        // A test that panicked has failed already.
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets all happen that is due until `now`.
    pub fn tick(&self, now: UnixTime) {
        self.world().advance(now);
    }

    /// Submits a job; for an array the id of the array, its tasks are `id_task`.
    #[expect(clippy::needless_pass_by_value, reason = "reads better at every call: submit(FakeJob { .. })")]
    pub fn submit(&self, job: FakeJob) -> SlurmJobId {
        self.world().submit(&job)
    }

    /// Ends a running job now, as its own program would. `false`: it does not run.
    pub fn finish(&self, job: SlurmJobId, ending: Ending) -> bool {
        self.world().finish(job, ending)
    }

    /// `scancel`. `false`: unknown, or over.
    pub fn cancel(&self, job: SlurmJobId) -> bool {
        self.world().cancel(job)
    }

    /// `scontrol hold`. `false`: it does not wait.
    pub fn hold(&self, job: SlurmJobId) -> bool {
        self.world().hold(job)
    }

    /// Slurm preempts the job: it is requeued, or ends where that is not allowed. `false`: it does not run.
    pub fn preempt(&self, job: SlurmJobId) -> bool {
        self.world().preempt(job)
    }

    /// A user's `scontrol update Requeue=0`: from now on nobody requeues it. `false`: unknown, or so already.
    pub fn forbid_requeue(&self, job: SlurmJobId) -> bool {
        self.world().forbid_requeue(job)
    }

    /// A user's `scontrol requeue`, not counted as a call of ours.
    pub fn user_requeue(&self, job: SlurmJobId) -> bool {
        self.world().requeue(job).is_ok()
    }

    /// `scontrol release`, by its user or an admin, not counted as a call of ours. `false`: unknown.
    pub fn release_hold(&self, job: SlurmJobId) -> bool {
        self.world().release_hold(job).is_ok()
    }

    /// `scontrol update Account= QOS=`, by its user. `false`: unknown, or it does not wait.
    pub fn charge_to(&self, job: SlurmJobId, account: &str, qos: &str) -> bool {
        self.world().charge_to(job, account, qos)
    }

    /// An admin's `scontrol update` (another tool's, a user's allowed one), not counted as a call of ours.
    ///
    /// # Errors
    /// As [`Slurm::update`].
    pub fn foreign_update(&self, jobs: &[SlurmJobId], update: &JobUpdate) -> Result<(), SlurmError> {
        self.world().update(jobs, update)
    }

    /// Sets a node's flag (`DRAIN`, `RESERVED`, `NOT_RESPONDING`, ..) or clears it. Jobs that run there go on.
    pub fn set_node_flag(&self, node: &NodeName, flag: Option<&str>) {
        self.world().set_node_flag(node, flag);
    }

    /// These nodes are reserved for others, each for a while; in the place of what was reserved before.
    pub fn set_reservations(&self, reservations: Vec<Reservation>) {
        self.world().set_reservations(reservations);
    }

    /// The node dies: its state is `DOWN`, its jobs are requeued or end with `NODE_FAIL`.
    pub fn fail_node(&self, node: &NodeName) {
        self.world().fail_node(node);
    }

    /// slurmctld stops responding, or responds again. While it does not every call ends in [`SlurmError::Timeout`], nothing is
    /// scheduled, and running jobs run on.
    pub fn set_down(&self, down: bool) {
        self.world().set_down(down);
    }

    /// slurmdbd stops responding, or responds again: `sacct` ends in [`SlurmError::Timeout`] while it does not.
    pub fn set_accounting_down(&self, down: bool) {
        self.world().set_accounting_down(down);
    }

    /// slurmctld writes the state of its jobs to disk, as it does every few seconds.
    pub fn save(&self) {
        self.world().save();
    }

    /// slurmctld is killed and comes back with what it saved last. `false`: it never saved anything, nothing happened.
    pub fn forget(&self) -> bool {
        self.world().forget()
    }

    /// The next so many updates that name a partition are refused for the moment, as backfill makes Slurm do.
    pub fn refuse_partition_updates(&self, count: u32) {
        self.world().partition_refusals = count;
    }

    /// The next so many updates are carried out, but their answers are lost: the caller sees a timeout.
    pub fn lose_update_answers(&self, count: u32) {
        self.world().lost_answers = count;
    }

    /// A QOS limit: how many jobs one user may run at once.
    pub fn set_user_jobs_max(&self, jobs_max: Option<u32>) {
        self.world().set_user_jobs_max(jobs_max);
    }

    /// Every call through the trait so far, in order, with its outcome.
    pub fn journal(&self) -> Vec<FakeCall> {
        self.world().journal.clone()
    }

    /// One job as Slurm would print it; `None` once it is forgotten.
    pub fn job(&self, job: SlurmJobId) -> Option<Job> {
        self.world().job(job)
    }

    /// All jobs that have not ended, as Slurm would print them.
    pub fn open_jobs(&self) -> Vec<Job> {
        self.world().open_jobs()
    }

    /// The state of one job; `None` once it is forgotten.
    pub fn state(&self, job: SlurmJobId) -> Option<pillion_slurm::JobState> {
        self.world().state(job)
    }

    /// The devices whose shards a job holds of each of its nodes, also where it did not ask for one by name.
    pub fn devices_of(&self, job: SlurmJobId) -> Vec<(NodeName, Vec<GresType>)> {
        let world = self.world();
        let bookings = world.records.get(&job).into_iter().flat_map(|record| &record.bookings);
        let of_node =
            |booking: &Booking| Some((booking.node.clone()?, booking.shards.keys().cloned().collect()));
        bookings.filter_map(of_node).collect()
    }

    /// What breaks Slurm's own rules: a device with more than its shards booked, or with shards beside a whole-GPU
    /// holder, a node with more CPUs or memory booked than it has. Empty is right.
    pub fn overbooked(&self) -> Vec<String> {
        self.world().overbooked()
    }
}

#[async_trait]
impl Slurm for FakeSlurm {
    async fn version(&self) -> Result<SlurmVersion, SlurmError> {
        let mut world = self.world();
        let answer = world.up("scontrol").map(|()| world.settings.version);
        world.journal(|at, ok| FakeCall::Version { at, ok }, answer)
    }

    async fn privacy(&self) -> Result<Privacy, SlurmError> {
        let world = self.world();
        world.up("scontrol").map(|()| world.settings.privacy)
    }

    async fn jobs(&self, partitions: &[String]) -> Result<JobsScan, SlurmError> {
        let mut world = self.world();
        let answer = world.up("squeue").map(|()| {
            let jobs = world.jobs(partitions).into_iter().map(Arc::new).collect();
            JobsScan { jobs, dropped_line_count: 0 }
        });
        world.journal(|at, ok| FakeCall::Jobs { at, ok }, answer)
    }

    async fn nodes(&self) -> Result<Vec<Node>, SlurmError> {
        let mut world = self.world();
        let answer = world.up("scontrol").map(|()| world.node_rows());
        world.journal(|at, ok| FakeCall::Nodes { at, ok }, answer)
    }

    async fn reservations(&self) -> Result<Vec<Reservation>, SlurmError> {
        let world = self.world();
        world.up("scontrol").map(|()| world.reservations.clone())
    }

    async fn partitions(&self) -> Result<Vec<Partition>, SlurmError> {
        let mut world = self.world();
        let answer = world.up("scontrol").map(|()| world.partition_rows());
        world.journal(|at, ok| FakeCall::Partitions { at, ok }, answer)
    }

    async fn update(&self, jobs: &[SlurmJobId], update: &JobUpdate) -> Result<(), SlurmError> {
        let mut world = self.world();
        let mut answer = world.up("scontrol").and_then(|()| world.update(jobs, update));
        if answer.is_ok() && world.lost_answers > 0 {
            world.lost_answers -= 1;
            answer = Err(SlurmError::Timeout { program: "scontrol".to_owned(), seconds: 10 });
        }
        world.journal(
            |at, ok| FakeCall::Update { at, ok, jobs: jobs.to_vec(), update: update.clone() },
            answer,
        )
    }

    async fn allows_requeue(&self, job: SlurmJobId) -> Result<bool, SlurmError> {
        let world = self.world();
        world.up("squeue").and_then(|()| world.known(job).map(|record| record.request.requeue))
    }

    async fn job_names(&self, jobs: &[SlurmJobId]) -> Result<BTreeMap<SlurmJobId, String>, SlurmError> {
        let mut world = self.world();
        let answer = world.up("squeue").map(|()| world.names(jobs));
        world.journal(|at, ok| FakeCall::JobNames { at, ok, jobs: jobs.to_vec() }, answer)
    }

    async fn node_counts(&self, jobs: &[SlurmJobId]) -> Result<BTreeMap<SlurmJobId, u32>, SlurmError> {
        let mut world = self.world();
        let answer = world.up("squeue").map(|()| world.node_counts(jobs));
        world.journal(|at, ok| FakeCall::NodeCounts { at, ok, jobs: jobs.to_vec() }, answer)
    }

    async fn held_devices(&self, jobs: &[u32]) -> Result<BTreeMap<u32, HeldDevices>, SlurmError> {
        let mut world = self.world();
        let answer = world.up("scontrol").map(|()| world.held_devices(jobs));
        world.journal(|at, ok| FakeCall::HeldDevices { at, ok, jobs: jobs.to_vec() }, answer)
    }

    async fn batch_script(&self, job: u32) -> Result<Option<Vec<u8>>, SlurmError> {
        let mut world = self.world();
        let answer = world.up("scontrol").map(|()| {
            let record = world.inner(job).filter(|record| !matches!(record.state, JobState::Ended(_)));
            record.and_then(|record| record.request.script.clone()).map(String::into_bytes)
        });
        world.journal(|at, ok| FakeCall::BatchScript { at, ok, job }, answer)
    }

    async fn submit_line(&self, job: u32) -> Result<Option<String>, SlurmError> {
        let mut world = self.world();
        let answer = world
            .up("sacct")
            .map(|()| world.inner(job).and_then(|record| record.request.submit_line.clone()));
        world.journal(|at, ok| FakeCall::SubmitLine { at, ok, job }, answer)
    }

    async fn requeue(&self, job: SlurmJobId, which: Requeued) -> Result<(), SlurmError> {
        let mut world = self.world();
        let up = world.up("scontrol");
        if up.is_ok() && which == Requeued::Running && !world.runs_still(job) {
            return Ok(());
        }
        let answer = up.and_then(|()| world.requeue(job));
        world.journal(|at, ok| FakeCall::Requeue { at, ok, job }, answer)
    }
}

#[cfg(test)]
mod tests;
