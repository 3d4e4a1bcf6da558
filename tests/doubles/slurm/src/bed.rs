//! What the table of behaviours needs of a cluster: the double and a real Slurm answer it alike.

#![expect(clippy::unwrap_used, reason = "a table of tests fails by panicking")]

use crate::FakeJob;
use async_trait::async_trait;
use pillion_core::{SlurmJobId, UnixTime};
use pillion_slurm::{Job, JobState, Slurm};

/// Whether a job is as it should be.
pub type JobTest = for<'a> fn(&'a Job) -> bool;

/// A cluster of n1 (features fast, h100) and n2 (slow), each with 8 CPUs, 8000 MiB, devices g0 and g1 of 100 shards and
/// 500 lscratch, in the partitions `shared` and `urgent`.
#[async_trait]
pub trait Bed: Sync {
    /// Slurm.
    fn slurm(&self) -> &dyn Slurm;
    /// What time it is there.
    fn now(&self) -> UnixTime;
    /// Submits; the program sleeps.
    async fn submit(&self, job: FakeJob) -> SlurmJobId;
    /// Ends a job.
    async fn cancel(&self, job: SlurmJobId);
    /// `scontrol hold`.
    async fn hold(&self, job: SlurmJobId);
    /// `scontrol release`.
    async fn release(&self, job: SlurmJobId);
    /// Drains a node, or resumes it.
    async fn drain(&self, node: &str, on: bool);
    /// Reserves a node for others from then on, for an hour; or nothing any more.
    async fn reserve(&self, node: Option<(&str, UnixTime)>);
    /// Lets a little time pass.
    async fn wait(&self);

    /// The job as Slurm prints it.
    async fn job(&self, id: SlurmJobId) -> Job {
        let scan = self.slurm().jobs(&[]).await.unwrap();
        assert_eq!(scan.dropped_line_count, 0);
        let found = scan.jobs.iter().find(|job| job.id == id);
        found.unwrap_or_else(|| panic!("{id} is not listed")).as_ref().clone()
    }

    /// Waits until the job is as it should be.
    async fn until(&self, id: SlurmJobId, what: &str, is_so: JobTest) -> Job {
        for _ in 0..300 {
            let job = self.job(id).await;
            if is_so(&job) {
                return job;
            }
            self.wait().await;
        }
        panic!("{id} is not {what}: {:#?}", self.job(id).await)
    }

    /// Waits until it runs.
    async fn running(&self, id: SlurmJobId) -> Job {
        self.until(id, "running", |job| job.state == JobState::Running).await
    }

    /// Waits until the scheduler has looked at it and let it wait.
    async fn looked_at(&self, id: SlurmJobId) -> Job {
        let looked =
            |job: &Job| job.state == JobState::Pending && job.reason != pillion_slurm::ReasonKind::None;
        self.until(id, "looked at and waiting", looked).await
    }

    /// Ends all jobs and waits until nothing is booked.
    async fn clear(&self) {
        for _ in 0..300 {
            let jobs = self.slurm().jobs(&[]).await.unwrap().jobs;
            let left: Vec<_> =
                jobs.into_iter().filter(|job| !matches!(job.state, JobState::Ended(_))).collect();
            if left.is_empty() {
                return;
            }
            for job in left.iter().filter(|job| job.state != JobState::Completing) {
                self.cancel(job.id).await;
            }
            self.wait().await;
        }
        panic!("jobs do not end")
    }
}
