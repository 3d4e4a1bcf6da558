//! What is told of jobs that are only observed, and of workloads by what was observed of them.

use super::OperatorServer;
use crate::grpc::auth::Caller;
use crate::grpc::owned::{is_of, own_user_name};
use crate::grpc::{job, rightsize, scale};
use pillion_api as api;
use pillion_core::SlurmJobId;
use pillion_store::StoreError;
use std::sync::Arc;
use std::time::Duration;

impl OperatorServer {
    /// One that is only observed: as it stands now, else as it was written down last.
    pub(super) async fn observed_status(
        &self,
        id: SlurmJobId,
        caller: Caller,
    ) -> Result<Option<api::JobStatus>, StoreError> {
        let observed = Arc::clone(&self.context.board().observed);
        let now = observed.jobs.iter().filter(|job| job.start.job_id == id).max_by_key(|job| job.start);
        let stored = self.context.store.observed_job(id).await?;
        let lesson = stored.as_ref().and_then(|(_, lesson)| lesson.clone());
        let known = now.cloned().or(stored.map(|(job, _)| job)).filter(|job| caller.may_see(job.uid));
        let Some(known) = known else { return Ok(None) };
        let advice = match scale::advice_filter(&known) {
            Some(filter) => scale::advice(&known, &self.pages.scaling(&filter).await?),
            None => None,
        };
        let status = job::observed_status(&known, lesson, self.context.now());
        Ok(Some(api::JobStatus { advice, ..status }))
    }

    /// Of workloads that the caller may see: everybody's, or his own.
    pub(super) async fn rightsized(
        &self,
        request: &api::RightsizeRequest,
        caller: Caller,
    ) -> Result<api::RightsizeResponse, StoreError> {
        let own = own_user_name(&self.context, caller);
        let profiles = self.context.store.profiles().await?;
        let seen = profiles.iter().map(|stored| &stored.profile);
        let seen = seen.filter(|it| caller.is_operator || own.as_ref().is_some_and(|own| is_of(it, own)));
        let since = self.context.now() - Duration::from_hours(24 * rightsize::USED_DAYS);
        let used = self.pages.used_devices(since).await?;
        let models = rightsize::models(&self.context.agents.all());
        Ok(rightsize::answer(&seen.collect::<Vec<_>>(), &models, &used, request))
    }
}
