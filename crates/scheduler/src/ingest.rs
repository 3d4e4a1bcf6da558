//! Row 8 of the way of a job: what an agent says becomes durable, once each. Called by `grpc::agent` for every message of a
//! stream, and by the simulation; knows nothing of the wire.

mod thinned;

use self::thinned::Stored;
use crate::agents::StreamId;
use crate::context::Context;
use crate::metrics::Miss;
use crate::tick_error::TickError;
use crate::truth::{self, Distrust, Doubt, Reporter, Verdict, Word};
use pillion_core::decision::DecisionState;
use pillion_core::event::EventKind;
use pillion_core::health::DeviceCondition;
use pillion_core::name::{NameSource, is_profile_of};
use pillion_core::report::{
    AgentHello, DeviceSamples, JobSummary, Launch, Report, ReportBody, ShareResult, ToAgent,
};
use pillion_core::{NodeName, WorkloadName};
use pillion_store::{Decision, Event, Naming, ObservedJob};
use std::borrow::Cow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tracing::{info, warn};

/// The receiver of agents' messages.
pub struct Ingest {
    context: Arc<Context>,
    distrust: Distrust,
    stored: Mutex<Stored>,
}

impl Ingest {
    pub fn new(context: Arc<Context>) -> Self {
        Self { context, distrust: Distrust::default(), stored: Mutex::default() }
    }

    /// Stores a report, where it is true, and answers what to acknowledge. `None`: Slurm was not scanned since, and nobody
    /// can say yet whether it is; it is to be reported again.
    ///
    /// # Errors
    /// [`TickError`] where the store did not answer: the agent keeps the report and sends it again.
    pub async fn report(
        &self,
        node: &NodeName,
        journal_id: &str,
        report: &Report,
    ) -> Result<Option<ToAgent>, TickError> {
        let is_kept = match self.keep(node, journal_id, report).await {
            Ok(is_kept) => is_kept,
            // What the store refuses would come again for ever, and nothing after it.
            Err(error) => {
                self.context.pass_over("ingest", format_args!("a report of {node}"), error)?;
                true
            }
        };
        Ok(is_kept.then_some(ToAgent::Ack(report.sequence)))
    }

    /// `false`: not yet.
    async fn keep(&self, node: &NodeName, journal_id: &str, report: &Report) -> Result<bool, TickError> {
        let Some(report) = self.believed(node, report).await? else { return Ok(false) };
        if let Some(ReportBody::Launch(launch)) = report.as_ref().map(|report| &report.body) {
            // Before it counts as stored: naming twice changes nothing, and an answer that was lost is made up for.
            self.name_workload(launch).await?;
        }
        if let Some(report) = report {
            let kept = self.kept(node, &report);
            if self.context.store.ingest(node, journal_id, &kept).await? {
                if let ReportBody::Samples(stored) = &kept.body {
                    self.stored().were(node, stored);
                }
                self.context.board_mut().reported_at = Some(self.context.now());
                self.react(node, &report.body).await?;
            }
        }
        Ok(true)
    }

    /// What of a report is kept: not each sample, and of an observed node none, but how busy its devices were minute by minute.
    fn kept<'a>(&self, node: &NodeName, report: &'a Report) -> Cow<'a, Report> {
        let ReportBody::Samples(taken) = &report.body else { return Cow::Borrowed(report) };
        let samples = if self.context.agents.observes(node) {
            DeviceSamples { recorded_at: taken.recorded_at, samples: Vec::new() }
        } else {
            let period = self.context.settings.sample_period;
            self.stored().due(node, taken, period)
        };
        Cow::Owned(Report { sequence: report.sequence, body: ReportBody::Samples(samples) })
    }

    fn stored(&self) -> MutexGuard<'_, Stored> {
        self.stored.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What of a report counts; `None`: nobody can say yet.
    async fn believed(&self, node: &NodeName, report: &Report) -> Result<Option<Option<Report>>, TickError> {
        let context = &self.context;
        let (skew_seconds, devices) = context.agents.reporter(node);
        let reporter = Reporter { node, skew_seconds, devices: &devices, now: context.now() };
        let scan = context.board().scan.clone();
        let (what, verdict) = match &report.body {
            ReportBody::Samples(samples) => {
                let (samples, doubts) =
                    truth::cleaned(samples.clone(), reporter, context.settings.samples_kept);
                for doubt in doubts {
                    self.distrust(node, "a look at its devices", doubt).await?;
                }
                let body = samples.map(ReportBody::Samples);
                return Ok(Some(body.map(|body| Report { sequence: report.sequence, body })));
            }
            ReportBody::JobSummary(summary) => {
                let start = context.store.slurm_start(summary.start).await?;
                let word = Word { start: start.as_ref(), scan: scan.as_deref() };
                (format!("a summary of {}", summary.start), truth::summary(summary, reporter, word))
            }
            ReportBody::ObservedRun(run) => {
                let starts = self.observed_starts(run.start.job_id.id).await?;
                // Where nothing is observed any more, nobody waits for a look that never comes.
                let is_over = context.settings.observed.is_empty();
                let scanned_at = if is_over { Some(context.now()) } else { context.board().observed.at };
                match truth::observed_run(run, reporter, &starts, scanned_at) {
                    Ok(start) => {
                        let run = JobSummary { start, ..(**run).clone() };
                        let body = ReportBody::ObservedRun(Box::new(run));
                        return Ok(Some(Some(Report { body, ..report.clone() })));
                    }
                    Err(verdict) => (format!("an observed run of job {}", run.start.job_id), verdict),
                }
            }
            ReportBody::Launch(launch) => {
                let decision = match launch.decision_id {
                    Some(id) => context.store.decision(id).await?,
                    None => None,
                };
                let start = context.store.slurm_start(launch.start).await?;
                let word = Word { start: start.as_ref(), scan: scan.as_deref() };
                let verdict = truth::launch(launch, reporter, word, decision.as_ref());
                (format!("a launch of {}", launch.start), verdict)
            }
        };
        Ok(match verdict {
            Verdict::Counts => Some(Some(report.clone())),
            Verdict::NotYet => None,
            Verdict::PassedOver => Some(None),
            Verdict::Dropped(doubt) => {
                self.distrust(node, &what, doubt).await?;
                Some(None)
            }
        })
    }

    /// All starts that are known under an inner number of Slurm's: of the last scans, and of before.
    async fn observed_starts(&self, number: u32) -> Result<Vec<ObservedJob>, TickError> {
        let observed = Arc::clone(&self.context.board().observed);
        let mut starts: Vec<ObservedJob> =
            observed.jobs.iter().filter(|job| job.inner_id == number).cloned().collect();
        let mut before = self.context.store.observed_by_number(&[number]).await?;
        before.retain(|job| !starts.iter().any(|known| known.start == job.start));
        starts.append(&mut before);
        Ok(starts)
    }

    /// A report that cannot be read: counted, and reported now and then, as what is not believed.
    ///
    /// # Errors
    /// [`TickError`] where the store did not answer.
    pub async fn unreadable(&self, node: &NodeName, sequence: u64, why: &str) -> Result<(), TickError> {
        let what = format!("report {sequence} ({why})");
        self.distrust(node, &what, Doubt::Unreadable).await
    }

    /// Counts what is not believed, and keeps an event of the node now and then.
    async fn distrust(&self, node: &NodeName, what: &str, doubt: Doubt) -> Result<(), TickError> {
        self.context.tally.doubted(doubt.as_str());
        if let Some(event) = self.distrust.of(node, what, doubt, self.context.now()) {
            warn!(%node, "{}", event.detail);
            self.context.store.record_event(&event).await?;
        }
        Ok(())
    }

    /// Keeps what a job calls its workload, where the workload's own key says so too.
    async fn name_workload(&self, launch: &Launch) -> Result<(), TickError> {
        let Some(profile_name) = &launch.profile_name else { return Ok(()) };
        let Some(job) = self.context.store.job(launch.start.job_id).await? else { return Ok(()) };
        let Some(name) = WorkloadName::safe(profile_name) else { return Ok(()) };
        if is_profile_of(profile_name, &job.workload) {
            let (workload, uid, source) = (job.workload, job.uid, NameSource::Profile);
            let naming = Naming { workload, uid, name, source };
            self.context.store.name_workloads(&[naming], self.context.now()).await?;
        }
        Ok(())
    }

    async fn react(&self, node: &NodeName, body: &ReportBody) -> Result<(), TickError> {
        match body {
            ReportBody::Samples(samples) => {
                self.context.agents.set_readings(node, samples);
                if self.context.agents.observes(node) {
                    let (skew_seconds, _) = self.context.agents.reporter(node);
                    self.context.activity().sampled(node, skew_seconds, samples);
                }
            }
            ReportBody::JobSummary(_) => {
                self.context.nudges.watch.notify_one();
                self.context.nudges.profile.notify_one();
                self.context.nudges.judge.notify_one();
            }
            ReportBody::ObservedRun(_) => {}
            ReportBody::Launch(launch) => {
                let now = self.context.now();
                self.context.board_mut().launched.insert(launch.start, now);
                self.context.nudges.watch.notify_one();
                if launch.decision_id.is_none() {
                    let detail =
                        format!("start {} had no decision on its node: no cap, no sharing", launch.start);
                    self.event(EventKind::Missed, launch.start.job_id, node, detail).await?;
                    self.context.tally.missed(Miss::NoDecision);
                }
            }
        }
        Ok(())
    }

    /// Devices of a node are otherwise than before: what closes or opens one is logged, and the engine plans again.
    /// Each fault that begins or is over becomes an event of the node.
    ///
    /// # Errors
    /// [`TickError`] where the store did not answer: the agent reports all faults again when it connects anew.
    pub async fn conditions(
        &self,
        stream: &StreamId,
        conditions: &[DeviceCondition],
    ) -> Result<(), TickError> {
        let node = stream.node();
        let agents = &self.context.agents;
        let before = agents.all().remove(node).map(|agent| agent.conditions).unwrap_or_default();
        if !agents.set_conditions(stream, conditions) {
            return Ok(());
        }
        for now in conditions {
            let was_closed_by = before.get(&now.gres_type).and_then(DeviceCondition::closed_by);
            match (was_closed_by, now.closed_by()) {
                (None, Some(fault)) => warn!(%node, device = %now.gres_type, "no new tenants: {fault}"),
                (Some(_), None) => info!(%node, device = %now.gres_type, "is well again"),
                _ => continue,
            }
            self.context.nudges.engine.notify_one();
        }
        self.record_conditions(node, conditions).await
    }

    /// Keeps how these devices are, as an agent says that connects or has seen a change.
    ///
    /// # Errors
    /// [`TickError`] where the store did not answer.
    pub async fn record_conditions(
        &self,
        node: &NodeName,
        conditions: &[DeviceCondition],
    ) -> Result<(), TickError> {
        Ok(self.context.store.record_conditions(node, conditions, self.context.now()).await?)
    }

    /// The agent's answer to a prepared share: the release may go on, or the decision is given up.
    ///
    /// # Errors
    /// [`TickError`] where the store did not answer.
    pub async fn share_result(&self, node: &NodeName, result: &ShareResult) -> Result<(), TickError> {
        if result.revoked {
            return Ok(());
        }
        let context = &self.context;
        let now = context.now();
        let decision = context.store.decision(result.decision_id).await?;
        if let Verdict::Dropped(doubt) = truth::share(result, node, decision.as_ref()) {
            return self.distrust(node, &format!("an answer for {}", result.start), doubt).await;
        }
        self.back_off(node, decision.as_ref(), result);
        if let Some(error) = &result.error {
            let reason = format!("node {node} could not set up the share: {error}");
            self.event(EventKind::ShareFailed, result.start.job_id, node, reason.clone()).await?;
            context.tally.event(&EventKind::ShareFailed);
            if decision.is_some_and(|decision| decision.state == DecisionState::Planned) {
                context.store.abandon(result.decision_id, &reason, now).await?;
                let until = now + context.settings.cooling;
                context.board_mut().cooling.insert(result.start.job_id, until);
            }
        } else {
            context.store.member_prepared(result.decision_id, result.start, now).await?;
            context.nudges.release.notify_one();
        }
        Ok(())
    }

    /// Where a share could not be set up nobody else is sent for a moment.
    fn back_off(&self, node: &NodeName, decision: Option<&Decision>, result: &ShareResult) {
        let Some(decision) = decision else { return };
        let Some(member) = decision.members.iter().find(|member| member.plan.start == result.start) else {
            return;
        };
        let now = self.context.now();
        let mut board = self.context.board_mut();
        for gres_type in &decision.gres_types {
            let place = (node.clone(), gres_type.clone());
            match &result.error {
                Some(error) => board.amiss.setup_backoff.failed(place, member.plan.uid, error, now),
                None => board.amiss.setup_backoff.succeeded(&place),
            }
        }
    }

    /// Takes back shares that an agent holds from before and that no active decision stands behind any more.
    ///
    /// # Errors
    /// [`TickError`] where the store did not answer.
    pub async fn revoke_stale(&self, hello: &AgentHello) -> Result<(), TickError> {
        for &decision_id in &hello.decision_ids {
            let Some(decision) = self.context.store.decision(decision_id).await? else { continue };
            for member in decision.members.iter().filter(|member| !member.state.is_active()) {
                let order = ToAgent::Revoke { decision_id, start: member.plan.start };
                self.context.agents.send(&hello.node, order);
            }
        }
        Ok(())
    }

    async fn event(
        &self,
        kind: EventKind,
        job_id: pillion_core::SlurmJobId,
        node: &NodeName,
        detail: String,
    ) -> Result<(), TickError> {
        let at = self.context.now();
        let event = Event { at, kind, job_id: Some(job_id), node: Some(node.clone()), detail };
        Ok(self.context.store.record_event(&event).await?)
    }
}

#[cfg(test)]
mod tests;
