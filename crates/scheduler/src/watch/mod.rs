//! Row 2 of the way of a job: scans Slurm, writes down what managed jobs do (`ledger`), checks the invariants, hangs the scan
//! on the board. Changes nothing in Slurm.

mod ledger;

use crate::context::{Context, is_of_before};
use crate::scan::{Scan, mark_of};
use crate::step::CLOCKS_DIFFER;
use crate::tick_error::TickError;
use crate::view::occupants;
use ledger::Ledger;
use pillion_core::event::EventKind;
use pillion_core::invariant::{Violation, check_occupants};
use pillion_core::{GresType, JobStart, NodeName, UnixTime, report};
use pillion_slurm::updates::{FORGOTTEN_PAUSE, RESTART_PAUSE};
use pillion_slurm::{GpuDefaults, JobState, JobsScan, Privacy, Reservation};
use pillion_store::Event;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tracing::{error, warn};

/// How long Slurm's word on `PrivateData` and `JobDefaults` is believed.
const CONF_AGE_MAX: Duration = Duration::from_mins(1);

/// How long Slurm's word on reservations is believed: admins make them hours ahead.
const RESERVATIONS_AGE_MAX: Duration = Duration::from_secs(15);

/// The clock of a node may be off by so much, and its jobs still run.
const NODE_CLOCK_OFF_MAX: Duration = Duration::from_hours(1);

/// The queue watcher.
pub struct Watch {
    context: Arc<Context>,
    ledger: Ledger,
}

impl Watch {
    /// A watcher that has seen nothing yet.
    pub fn new(context: Arc<Context>) -> Self {
        Self { ledger: Ledger::new(Arc::clone(&context)), context }
    }

    /// One scan, and what follows from it.
    ///
    /// # Errors
    /// [`TickError`] where Slurm or the store did not answer; the board then keeps the older scan.
    pub async fn tick(&self) -> Result<(), TickError> {
        let context = &self.context;
        if context.board().slurm_version.is_none() {
            let version =
                context.slurm.version().await.map_err(TickError::slurm("ask Slurm for its version"))?;
            if let Some(refusal) = version.refusal() {
                error!(%version, refusal, "this Slurm is not supported; nothing will be released");
            }
            context.board_mut().slurm_version = Some(version);
        }
        self.ask_conf().await?;
        let before = context.board().scan.clone();
        if let Some(before) = &before {
            self.recall_launches(before).await?;
        }
        let mut scan = self.look().await?;
        // What was recalled says something of a later scan only.
        if before.is_none() && self.recall_launches(&scan).await? {
            scan = self.look().await?;
        }
        let scan = Arc::new(scan);
        // Two who wrote the same rows would put an older scan over a newer one.
        if context.is_leading() {
            self.ledger.write_down(&scan).await?;
        } else {
            self.ledger.forget();
        }
        context.board_mut().dropped_line_count += scan.dropped_line_count;
        let Some(is_first) = self.hang(&scan) else { return Ok(()) };
        self.check(&scan, is_first).await?;
        context.nudges.release.notify_one();
        context.nudges.engine.notify_one();
        context.nudges.judge.notify_one();
        context.nudges.requeue.notify_one();
        context.nudges.names.notify_one();
        Ok(())
    }

    async fn look(&self) -> Result<Scan, TickError> {
        let (context, at) = (&self.context, self.context.now());
        let pool = &context.settings.pool;
        // Without a pool nothing is managed, and Slurm would take no partition for all of them.
        let answer = if pool.is_empty() {
            JobsScan::default()
        } else {
            context.slurm.jobs(pool).await.map_err(TickError::slurm("read the queue"))?
        };
        let mut nodes = context.slurm.nodes().await.map_err(TickError::slurm("read the nodes"))?;
        let reservations = self.reservations().await;
        let reserved_from = Reservation::first_of(&reservations, at);
        for node in &mut nodes {
            node.reserved_from = reserved_from.get(&node.name).copied();
        }
        Ok(Scan::new(at, answer.jobs, nodes, pool, answer.dropped_line_count))
    }

    /// What is reserved for others: asked now and then. Where Slurm does not say, what it said last holds on; a job that is planned onto a
    /// node in vain is put back.
    async fn reservations(&self) -> Arc<Vec<Reservation>> {
        let (context, now) = (&self.context, self.context.now());
        let known = context.board().reservations.clone();
        if let Some((reservations, at)) = &known
            && now.seconds_since(*at) < RESERVATIONS_AGE_MAX.as_secs_f64()
        {
            return Arc::clone(reservations);
        }
        let reservations = match context.slurm.reservations().await {
            Ok(reservations) => Arc::new(reservations),
            Err(error) => {
                warn!(error = report(&error), "Slurm's reservations were not read");
                known.map(|(reservations, _)| reservations).unwrap_or_default()
            }
        };
        context.board_mut().reservations = Some((Arc::clone(&reservations), now));
        reservations
    }

    /// Asks the store for starts that a node told of before we led: those that wait in this scan with a lease from before. `true`: it knew
    /// of some.
    async fn recall_launches(&self, scan: &Scan) -> Result<bool, TickError> {
        let context = &self.context;
        let due = {
            let board = context.board();
            let Some(led_since) = board.led_since else { return Ok(false) };
            due_for_recall(scan, led_since, &board.launched)
        };
        let mut is_any = false;
        for (start, lease) in due {
            let told = match context.store.launches(start).await {
                // Not of another job that had its number before.
                Ok(launches) => launches.iter().any(|launch| launch.at + NODE_CLOCK_OFF_MAX >= lease),
                Err(error) => context.pass_over("watch", start, error.into()).map(|()| false)?,
            };
            if told {
                let now = context.now();
                context.board_mut().launched.insert(start, now);
                is_any = true;
            }
        }
        Ok(is_any)
    }

    /// What slurm.conf says of users and of jobs is asked again now and then: it may be read anew at any time.
    async fn ask_conf(&self) -> Result<(), TickError> {
        let (context, now) = (&self.context, self.context.now());
        let known = context.board().privacy;
        if known.is_some_and(|(_, at)| now.seconds_since(at) < CONF_AGE_MAX.as_secs_f64()) {
            return Ok(());
        }
        let asked = self.conf().await;
        match (asked, known) {
            (Ok((privacy, gpu_defaults)), _) => {
                let mut board = context.board_mut();
                (board.privacy, board.gpu_defaults) = (Some((privacy, now)), gpu_defaults);
            }
            // What was true a minute ago is good enough to go on with.
            (Err(_), Some(_)) => {}
            (Err(error), None) => return Err(error),
        }
        Ok(())
    }

    async fn conf(&self) -> Result<(Privacy, BTreeMap<String, GpuDefaults>), TickError> {
        let slurm = &self.context.slurm;
        let privacy = slurm.privacy().await.map_err(TickError::slurm("ask Slurm for PrivateData"))?;
        let defaults = slurm.gpu_defaults().await.map_err(TickError::slurm("ask Slurm for JobDefaults"))?;
        Ok((privacy, defaults))
    }

    /// Hangs the scan on the board, with what follows from it. `Some(true)`: it is the first one. `None`: who began to lead while it was
    /// read scans anew.
    fn hang(&self, scan: &Arc<Scan>) -> Option<bool> {
        let mut board = self.context.board_mut();
        if is_of_before(scan.at, board.led_since) {
            self.context.nudges.watch.notify_one();
            return None;
        }
        let before = board.scan.clone();
        let before = before.as_ref().map(|before| &before.jobs);
        for job in scan.jobs.changed_since(before) {
            let seen = before.and_then(|before| before.get(&job.id));
            if job.restart_count > seen.map_or(0, |seen| seen.restart_count) {
                board.cooling.insert(job.id, scan.at + RESTART_PAUSE);
            }
        }
        board.idle = board.idle.after(scan);
        board.amiss.setup_backoff.reopen(scan.at);
        board.launched.retain(|start, _| scan.jobs.contains_key(&start.job_id));
        for start in forgotten(scan, &board.launched) {
            if board.forgotten.insert(start) {
                board.cooling.insert(start.job_id, scan.at + FORGOTTEN_PAUSE);
            }
        }
        board.forgotten.retain(|start| scan.jobs.contains_key(&start.job_id));
        board.unanswered.retain(|start, _| scan.jobs.contains_key(&start.job_id));
        board.tried.retain(|start, _| scan.jobs.contains_key(&start.job_id));
        // A name that no scan knows is nobody's: whoever came under it is sent away, and costs nothing any more.
        let observed = Arc::clone(&board.observed);
        if !scan.nodes.is_empty() || observed.at.is_some() {
            self.context.agents.retain(|node, observes| {
                if observes { observed.nodes.contains_key(node) } else { scan.node(node).is_some() }
            });
        }
        let is_first = board.scan.replace(Arc::clone(scan)).is_none();
        if is_first {
            self.context.nudges.heartbeat.notify_one();
        }
        Some(is_first)
    }

    /// Checks what Slurm says against the invariants; a violation stops releases on its node until it is gone. Who only watches
    /// releases nothing, and would tell of every violation a second time.
    async fn check(&self, scan: &Scan, is_first: bool) -> Result<(), TickError> {
        if !self.context.is_leading() {
            self.context.board_mut().stopped.clear();
            return Ok(());
        }
        // Whoever runs under a decision of ours was released from the board's. Those of another scheduler stand in the store.
        let decisions = if is_first {
            Arc::new(self.context.store.active_decisions().await?)
        } else {
            Arc::clone(&self.context.board().active)
        };
        let agents = self.context.agents.all();
        let device_of = |node: &NodeName, gres_type: &GresType| {
            agents.get(node)?.devices.iter().find(|device| device.gres_type == *gres_type)
        };
        let mut violations = check_occupants(&occupants(scan, &decisions), device_of);
        violations.extend(whole_gpu_holders(scan));
        let stopped: BTreeMap<NodeName, Violation> = violations
            .iter()
            .filter_map(|violation| Some((node_of(violation)?.clone(), violation.clone())))
            .collect();
        let before = std::mem::replace(&mut self.context.board_mut().stopped, stopped);
        let is_new = |violation: &&Violation| !before.values().any(|known| known == *violation);
        for violation in violations.iter().filter(is_new) {
            warn!(id = violation.id(), %violation, "an invariant does not hold");
            self.context.board_mut().violation_count += 1;
            let node = node_of(violation).cloned();
            let (at, kind, detail) = (scan.at, EventKind::Violation, violation.to_string());
            let event = Event { at, kind, job_id: None, node, detail };
            let kept = self.context.store.record_event(&event).await;
            kept.or_else(|error| self.context.pass_over("watch", violation, error.into()))?;
        }
        Ok(())
    }
}

/// Starts that wait with a lease from before we led, and of which no node has told us; and when they were leased.
fn due_for_recall(
    scan: &Scan,
    led_since: UnixTime,
    launched: &BTreeMap<JobStart, UnixTime>,
) -> Vec<(JobStart, UnixTime)> {
    let waiting = scan.jobs.values().filter(|job| job.state == JobState::Pending);
    let leased = waiting.filter_map(|job| {
        let lease = mark_of(job).and_then(|mark| mark.lease_epoch)?;
        Some((job.start(), UnixTime::from_epoch(lease)))
    });
    leased
        .filter(|(start, lease)| *lease <= led_since + CLOCKS_DIFFER && !launched.contains_key(start))
        .collect()
}

/// Starts that a node had begun before this scan, and that wait in it all the same: slurmctld was killed and has forgotten its last
/// seconds.
fn forgotten(scan: &Scan, launched: &BTreeMap<JobStart, UnixTime>) -> Vec<JobStart> {
    let waits = |start: &JobStart| {
        let job = scan.jobs.get(&start.job_id);
        job.is_some_and(|job| job.state == JobState::Pending && job.start() == *start)
    };
    launched.iter().filter(|(start, at)| **at < scan.at && waits(start)).map(|(start, _)| *start).collect()
}

/// P-4: jobs that hold whole GPUs in the pool.
fn whole_gpu_holders(scan: &Scan) -> Vec<Violation> {
    scan.jobs
        .values()
        .filter(|job| matches!(job.state, JobState::Running | JobState::Suspended))
        .filter(|job| job.gres.split(',').any(|entry| entry == "gpu" || entry.starts_with("gpu:")))
        .filter_map(|job| {
            Some(Violation::WholeGpuInPool { node: job.nodes.first()?.clone(), job_id: job.id })
        })
        .collect()
}

fn node_of(violation: &Violation) -> Option<&NodeName> {
    match violation {
        Violation::MemoryOvercommitted { node, .. }
        | Violation::ShardsOverbooked { node, .. }
        | Violation::WholeGpuInPool { node, .. }
        | Violation::InstancesCollide { node, .. }
        | Violation::UsersInOneInstance { node, .. }
        | Violation::UnplannedNeighbour { node, .. } => Some(node),
        Violation::TwoDecisions(_) | Violation::ReleasedTwice(_) => None,
    }
}

#[cfg(test)]
mod tests;
