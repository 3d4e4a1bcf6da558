//! Counts the starts that their node never reported: its agent did not respond or was too slow, so the job ran without a cap and
//! unshared. What an agent itself had no decision for is counted where its report arrives (`ingest`). Changes nothing else.

use crate::context::Context;
use crate::metrics::Miss;
use crate::scan::{Scan, mark_of};
use crate::tick_error::TickError;
use pillion_core::event::EventKind;
use pillion_core::{JobStart, NodeName, UnixTime};
use pillion_slurm::{Ending, Job, JobState};
use pillion_store::Event;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tracing::warn;

/// How long a report may take, and how long an agent that came back may take to send what it kept.
const REPORT_DURATION_MAX: Duration = Duration::from_secs(10);

pub struct Misses {
    context: Arc<Context>,
    memory: Mutex<Memory>,
}

#[derive(Default)]
struct Memory {
    /// Starts that were reported, or counted.
    settled: BTreeSet<JobStart>,
    /// Since when each agent has been connected.
    connected_since: BTreeMap<NodeName, UnixTime>,
}

/// A start that should have been reported by now.
#[derive(Debug, PartialEq)]
struct Overdue {
    start: JobStart,
    node: NodeName,
    started_at: UnixTime,
}

impl Misses {
    /// A counter that has seen nothing yet.
    pub fn new(context: Arc<Context>) -> Self {
        Self { context, memory: Mutex::default() }
    }

    /// Checks once every start that should have been reported by now.
    ///
    /// # Errors
    /// [`TickError`] where the store did not answer.
    pub async fn tick(&self) -> Result<(), TickError> {
        if !self.context.is_active() {
            *self.memory.lock().unwrap_or_else(PoisonError::into_inner) = Memory::default();
            return Ok(());
        }
        let Some(scan) = self.context.fresh_scan() else { return Ok(()) };
        for Overdue { start, node, started_at } in self.due(&scan) {
            // Whoever was reported does not have to be looked up.
            let is_reported = self.context.board().launched.contains_key(&start);
            if !is_reported {
                let settled = self.settle(start, node, (started_at, scan.at)).await;
                settled.or_else(|error| self.context.pass_over("misses", start, error))?;
            }
            self.memory.lock().unwrap_or_else(PoisonError::into_inner).settled.insert(start);
        }
        Ok(())
    }

    /// Starts whose report is overdue.
    fn due(&self, scan: &Scan) -> Vec<Overdue> {
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let Memory { settled, connected_since } = &mut *memory;
        settled.retain(|start| scan.jobs.contains_key(&start.job_id));
        connected_since.retain(|node, _| self.context.agents.is_connected(node));
        for node in &scan.nodes {
            if self.context.agents.is_connected(&node.name) {
                connected_since.entry(node.name.clone()).or_insert(scan.at);
            }
        }
        let is_long_ago = |at: UnixTime| scan.at.seconds_since(at) > REPORT_DURATION_MAX.as_secs_f64();
        let due = scan.jobs.values().filter_map(|job| {
            let node = job.nodes.first().filter(|_| was_launched(job))?;
            let started_at = job.started_at.filter(|at| is_long_ago(*at))?;
            let is_due = connected_since.get(node).copied().is_some_and(is_long_ago)
                && !settled.contains(&job.start());
            is_due.then(|| Overdue { start: job.start(), node: node.clone(), started_at })
        });
        due.collect()
    }

    async fn settle(
        &self,
        start: JobStart,
        node: NodeName,
        (started_at, at): (UnixTime, UnixTime),
    ) -> Result<(), TickError> {
        let store = &self.context.store;
        // An earlier start of the same job was over before this one began.
        let is_known = !store.launches(start).await?.is_empty()
            || store
                .events(start.job_id)
                .await?
                .iter()
                .any(|event| event.kind == EventKind::Missed && event.at >= started_at);
        if !is_known {
            warn!(%start, %node, "a start that its node did not report");
            let detail = format!(
                "start {start} was not reported by its node: its agent was not responding; no cap, no sharing"
            );
            let (job_id, kind) = (Some(start.job_id), EventKind::Missed);
            store.record_event(&Event { at, kind, job_id, node: Some(node), detail }).await?;
            self.context.tally.missed(Miss::NotResponding);
        }
        Ok(())
    }
}

/// Whether the script of a job that asked for co-location was begun for certain. A session may have none, and may never begin a
/// step; of one that did not ask nobody tells, and it misses nothing.
fn was_launched(job: &Job) -> bool {
    let has_run = matches!(
        job.state,
        JobState::Running | JobState::Ended(Ending::Completed | Ending::Failed | Ending::Timeout)
    );
    has_run && mark_of(job).is_some_and(|mark| !mark.session && !mark.plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agents::Agents;
    use crate::context::Settings;
    use crate::testing::{NOW, at, hello, job, node, start};
    use pillion_core::ManualClock;
    use pillion_core::report::{Launch, Report, ReportBody};
    use pillion_memory_store::MemoryStore;
    use pillion_slurm::NodeAvailability;

    fn world() -> (Arc<Context>, tokio::sync::mpsc::Receiver<pillion_core::report::ToAgent>) {
        let agents = Agents::default();
        let (_, inbox) = agents.connect(&hello("n1"), at(NOW));
        let clock = Arc::new(ManualClock::new(at(NOW)));
        let slurm = Arc::new(pillion_fake_slurm::FakeSlurm::new(
            pillion_fake_slurm::FakeSettings::default(),
            vec![],
            vec![],
            at(NOW),
        ));
        let store = Arc::new(MemoryStore::default());
        let context = Context::new(clock, slurm, store, Arc::new(agents), Settings::default());
        (Arc::new(context), inbox)
    }

    fn scan(seconds: u64) -> Scan {
        let running =
            Job { started_at: Some(at(NOW)), nodes: vec![NodeName::new("n1")], ..job(JobState::Running) };
        Scan::new(
            at(NOW + seconds),
            vec![running.into()],
            vec![node(NodeAvailability::Up)],
            &["shared".into()],
            0,
        )
    }

    #[tokio::test]
    async fn a_start_without_a_report_is_counted_once_and_not_too_early() {
        let (context, _inbox) = world();
        let misses = Misses::new(Arc::clone(&context));
        assert_eq!(misses.due(&scan(1)), [], "the agent has just come back");
        assert_eq!(misses.due(&scan(9)), []);
        let due = misses.due(&scan(12));
        assert_eq!(due, [Overdue { start: start(), node: NodeName::new("n1"), started_at: at(NOW) }]);
        let settle = async |seconds: u64| {
            let times = (at(NOW + seconds), at(NOW + seconds + 12));
            misses.settle(start(), NodeName::new("n1"), times).await.unwrap();
            context.store.event_count(&EventKind::Missed).await.unwrap()
        };
        assert_eq!((settle(0).await, settle(0).await), (1, 1));
        assert_eq!(settle(60).await, 2, "its next start is counted of its own");
    }

    /// As it was: each job that Slurm started by itself with whole GPUs was told as one that its node had not reported, and an alert with
    /// them.
    #[test]
    fn whoever_asked_for_nothing_and_whoever_sits_in_front_of_it_misses_nothing() {
        let is_awaited = |change: fn(&mut pillion_core::mark::Mark)| {
            let mut running = job(JobState::Running);
            let mut mark = running.mark.clone().unwrap().unwrap();
            change(&mut mark);
            running.mark = Ok(Some(mark));
            was_launched(&running)
        };
        assert!(is_awaited(|_| {}));
        assert!(!is_awaited(|mark| mark.plain = true));
        assert!(!is_awaited(|mark| mark.session = true));
    }

    #[tokio::test]
    async fn a_start_that_was_reported_is_no_miss() {
        let (context, _inbox) = world();
        let misses = Misses::new(Arc::clone(&context));
        let launch = Launch {
            at: at(NOW),
            start: start(),
            step_id: 0,
            decision_id: None,
            gres_types: Vec::new(),
            profile_name: None,
        };
        let report = Report { sequence: 1, body: ReportBody::Launch(launch) };
        context.store.ingest(&NodeName::new("n1"), "j", &report).await.unwrap();
        misses.settle(start(), NodeName::new("n1"), (at(NOW), at(NOW + 12))).await.unwrap();
        assert_eq!(context.store.event_count(&EventKind::Missed).await.unwrap(), 0);
    }
}
