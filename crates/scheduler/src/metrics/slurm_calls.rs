//! Slurm, with every call timed and its failures counted.

use super::tally::{SlurmFailure, Tally};
use async_trait::async_trait;
use pillion_core::SlurmJobId;
use pillion_slurm::{
    GpuDefaults, HeldDevices, JobUpdate, JobsScan, Node, Partition, Privacy, Requeued, Reservation, Slurm,
    SlurmError, SlurmVersion,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Another Slurm behind counters.
pub struct CountedSlurm {
    inner: Arc<dyn Slurm>,
    tally: Arc<Tally>,
}

impl CountedSlurm {
    /// Counts the calls of `inner`.
    pub fn new(inner: Arc<dyn Slurm>, tally: Arc<Tally>) -> Self {
        Self { inner, tally }
    }

    async fn timed<T>(
        &self,
        call: &'static str,
        answer: impl Future<Output = Result<T, SlurmError>> + Send,
    ) -> Result<T, SlurmError> {
        let begun = Instant::now();
        let answer = answer.await;
        self.tally.slurm_called(call, begun.elapsed(), answer.as_ref().err().map(failure));
        answer
    }
}

fn failure(error: &SlurmError) -> SlurmFailure {
    match error {
        SlurmError::Failed { .. }
        | SlurmError::Fenced { .. }
        | SlurmError::InvalidArgument { .. }
        | SlurmError::Misunderstood { .. } => SlurmFailure::Refused,
        _ => SlurmFailure::Unanswered,
    }
}

#[async_trait]
impl Slurm for CountedSlurm {
    async fn version(&self) -> Result<SlurmVersion, SlurmError> {
        self.timed("version", self.inner.version()).await
    }
    async fn privacy(&self) -> Result<Privacy, SlurmError> {
        self.timed("privacy", self.inner.privacy()).await
    }
    async fn gpu_defaults(&self) -> Result<BTreeMap<String, GpuDefaults>, SlurmError> {
        self.timed("gpu_defaults", self.inner.gpu_defaults()).await
    }
    async fn kill_wait(&self) -> Result<Duration, SlurmError> {
        self.timed("kill_wait", self.inner.kill_wait()).await
    }
    async fn jobs(&self, partitions: &[String]) -> Result<JobsScan, SlurmError> {
        self.timed("jobs", self.inner.jobs(partitions)).await
    }
    async fn nodes(&self) -> Result<Vec<Node>, SlurmError> {
        self.timed("nodes", self.inner.nodes()).await
    }
    async fn reservations(&self) -> Result<Vec<Reservation>, SlurmError> {
        self.timed("reservations", self.inner.reservations()).await
    }
    async fn partitions(&self) -> Result<Vec<Partition>, SlurmError> {
        self.timed("partitions", self.inner.partitions()).await
    }
    async fn update(&self, jobs: &[SlurmJobId], update: &JobUpdate) -> Result<(), SlurmError> {
        self.timed("update", self.inner.update(jobs, update)).await
    }
    async fn update_each(&self, updates: &[(SlurmJobId, JobUpdate)]) -> Result<u64, SlurmError> {
        self.timed("update-each", self.inner.update_each(updates)).await
    }
    async fn allows_requeue(&self, job: SlurmJobId) -> Result<bool, SlurmError> {
        self.timed("allows-requeue", self.inner.allows_requeue(job)).await
    }
    async fn job_names(&self, jobs: &[SlurmJobId]) -> Result<BTreeMap<SlurmJobId, String>, SlurmError> {
        self.timed("job-names", self.inner.job_names(jobs)).await
    }
    async fn node_counts(&self, jobs: &[SlurmJobId]) -> Result<BTreeMap<SlurmJobId, u32>, SlurmError> {
        self.timed("node-counts", self.inner.node_counts(jobs)).await
    }
    async fn held_devices(&self, jobs: &[u32]) -> Result<BTreeMap<u32, HeldDevices>, SlurmError> {
        self.timed("held-devices", self.inner.held_devices(jobs)).await
    }
    async fn batch_script(&self, job: u32) -> Result<Option<Vec<u8>>, SlurmError> {
        self.timed("batch-script", self.inner.batch_script(job)).await
    }
    async fn submit_line(&self, job: u32) -> Result<Option<String>, SlurmError> {
        self.timed("submit-line", self.inner.submit_line(job)).await
    }
    async fn requeue(&self, job: SlurmJobId, which: Requeued) -> Result<(), SlurmError> {
        self.timed("requeue", self.inner.requeue(job, which)).await
    }
}
