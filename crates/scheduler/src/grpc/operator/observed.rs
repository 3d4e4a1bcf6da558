//! What is told of jobs that are only observed, and of workloads by what was observed of them.

use super::OperatorServer;
use crate::grpc::auth::Caller;
use crate::grpc::owned::{is_of, own_user_name};
use crate::grpc::scale::Asked;
use crate::grpc::{explain, job, rightsize};
use crate::shadow::words::sentence;
use pillion_api as api;
use pillion_core::{JobStart, Revision, SlurmJobId, UnixTime};
use pillion_slurm::{Job, JobState};
use pillion_store::{ShadowDecision, StoreError};
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
        let known = now.cloned().or(stored.map(|(job, _)| job));
        let waiting = observed.queue.iter().find(|job| job.id == id && job.state == JobState::Pending);
        if let Some(job) = waiting.filter(|job| known.as_ref().is_none_or(|known| known.start != job.start()))
        {
            return self.observed_waiting(job, caller).await;
        }
        let Some(known) = known.filter(|job| caller.may_see(job.uid)) else { return Ok(None) };
        let asked = Asked {
            start: known.start,
            uid: known.uid,
            workload: &known.workload,
            device_count: known.devices.len(),
            ending: known.ending,
        };
        let advice = self.advice_of(asked).await?;
        let status = job::observed_status(&known, lesson, self.context.now());
        let shadow = self.shadow_of(known.start, Some(known.started_at)).await?;
        Ok(Some(api::JobStatus { advice, shadow: shadow.map(|(_, sentence)| sentence), ..status }))
    }

    /// One that waits in an observed partition.
    async fn observed_waiting(
        &self,
        job: &Job,
        caller: Caller,
    ) -> Result<Option<api::JobStatus>, StoreError> {
        if !caller.may_see(job.uid) {
            return Ok(None);
        }
        let decided = self.shadow_of(job.start(), None).await?.map(|(_, sentence)| sentence);
        let seen = Arc::clone(&self.context.board().shadow);
        let shadow = decided.or_else(|| seen.reasons.get(&job.id).map(ToString::to_string));
        Ok(Some(api::JobStatus { shadow, ..job::observed_waiting(job, self.context.now()) }))
    }

    /// What would have been done with a start, and one sentence of it.
    async fn shadow_of(
        &self,
        start: JobStart,
        started_at: Option<UnixTime>,
    ) -> Result<Option<(ShadowDecision, String)>, StoreError> {
        let found = self.context.store.shadow_of(start.job_id).await?;
        let found = found.filter(|(decision, _)| decision.start() == start);
        Ok(found.map(|(decision, score)| {
            let sentence = sentence(&decision, score.as_ref(), started_at);
            (decision, sentence)
        }))
    }

    /// Of one that is only observed: what would have been done with it, and what was considered.
    pub(super) async fn explain_shadow(
        &self,
        id: SlurmJobId,
        caller: Caller,
    ) -> Result<Option<api::ExplainResponse>, StoreError> {
        let Some(status) = self.observed_status(id, caller).await? else { return Ok(None) };
        let start = JobStart { job_id: id, restart_count: status.restart_count };
        let decided = self.shadow_of(start, None).await?.map(|(decision, _)| decision);
        let explanations = decided.and_then(|decision| {
            let explanation = decision.member.explanation?;
            Some(explain::shown(Revision(0), decision.decided_at, explanation, caller))
        });
        Ok(Some(api::ExplainResponse {
            found: true,
            job: status.job,
            explanations: explanations.into_iter().collect(),
            shadow: status.shadow,
            ..api::ExplainResponse::default()
        }))
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
