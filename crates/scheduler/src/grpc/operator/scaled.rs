//! What fewer GPUs would have been, and what was spent above break-even: of observed partitions and of the pool.

use super::OperatorServer;
use crate::grpc::scale::{self, Asked};
use pillion_api as api;
use pillion_core::JobStart;
use pillion_scale::History;
use pillion_store::{JobRecord, ScalingFilter, StoreError};

/// Runs that are read at once where all of a stretch of time are: some megabytes.
const PAGE_RUNS: u32 = 2_000;

impl OperatorServer {
    /// What runs of a stretch of time spent above the break-even of their workloads: the newest, as many as the filter says, or, with
    /// a limit of 0, all of them.
    pub(super) async fn above_break_even(
        &self,
        filter: &ScalingFilter,
    ) -> Result<Option<api::ScaleSum>, StoreError> {
        let mut history = History::default();
        if filter.limit > 0 {
            let runs = self.pages.scaling(filter).await?;
            let is_cut = runs.len() >= filter.limit as usize;
            for run in &runs {
                scale::add(&mut history, run);
            }
            return Ok(scale::sum(&history).map(|sum| api::ScaleSum { is_cut, ..sum }));
        }
        let pages = ScalingFilter { limit: PAGE_RUNS, ..filter.clone() };
        self.pages.each_scaling(&pages, |run| scale::add(&mut history, run)).await?;
        Ok(scale::sum(&history))
    }

    /// What fewer GPUs would have been, where that is sure.
    pub(super) async fn advice_of(&self, asked: Asked<'_>) -> Result<Option<String>, StoreError> {
        let Some(filter) = scale::advice_filter(asked) else { return Ok(None) };
        Ok(scale::advice(asked.start, &self.pages.scaling(&filter).await?))
    }

    /// The same of a job of the pool.
    pub(super) async fn advice_of_pool(&self, job: &JobRecord) -> Result<Option<String>, StoreError> {
        let of_node = pillion_slurm::shards(&job.gres).count();
        let device_count = of_node.saturating_mul(job.node_count.map_or(1, |count| count as usize));
        self.advice_of(Asked {
            start: JobStart { job_id: job.id, restart_count: job.restart_count },
            uid: job.uid,
            workload: &job.workload,
            device_count,
            ending: job.ending,
        })
        .await
    }
}
