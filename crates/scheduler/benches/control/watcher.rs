//! Looks at the board and the counters while the reconcilers work, and keeps what it saw.

use crate::controller::Controller;
use crate::world::Counts;
use pillion_core::{Clock as _, SystemClock, UnixTime};
use pillion_scheduler::context::Context;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How often it looks.
const PERIOD: Duration = Duration::from_millis(20);

/// What was seen in a stretch of time.
#[derive(Debug, Default, Clone)]
pub(crate) struct Seen {
    pub(crate) seconds: f64,
    /// Seconds from the beginning of each scan of Slurm until it hung on the board.
    pub(crate) scans: Vec<f64>,
    /// Seconds between the ends of plans that were committed, or left nothing to commit.
    pub(crate) plan_gaps: Vec<f64>,
    pub(crate) releases: u64,
    pub(crate) squeue_calls: u64,
    pub(crate) slurm: Counts,
    /// Seconds from the call of a release or an undo to its answer.
    pub(crate) update_waits: Vec<f64>,
    /// Of this process, in cores.
    pub(crate) cpu_cores: f64,
}

pub(crate) struct Watcher {
    context: Arc<Context>,
    controller: Arc<Controller>,
    scan_at: Option<UnixTime>,
    planned_at: Option<UnixTime>,
    plan_seen: Instant,
    begun: Instant,
    before: Seen,
    now: Seen,
    cpu_before: f64,
}

impl Watcher {
    pub(crate) fn new(context: Arc<Context>, controller: Arc<Controller>) -> Self {
        let now = Instant::now();
        let mut watcher = Self {
            context,
            controller,
            scan_at: None,
            planned_at: None,
            plan_seen: now,
            begun: now,
            before: Seen::default(),
            now: Seen::default(),
            cpu_before: 0.0,
        };
        watcher.begin();
        watcher
    }

    /// Begins a stretch of time.
    pub(crate) fn begin(&mut self) {
        self.begun = Instant::now();
        self.plan_seen = self.begun;
        self.controller.take_update_waits();
        self.before = self.counters();
        self.cpu_before = cpu_seconds();
        self.now = Seen::default();
    }

    fn counters(&self) -> Seen {
        let counts = self.context.tally.counts();
        let calls = |name: &str| counts.slurm.get(name).map_or(0, |calls| calls.durations.count());
        Seen {
            releases: counts.releases,
            squeue_calls: calls("jobs") + calls("job-names") + calls("allows-requeue"),
            slurm: self.controller.world().counts,
            ..Seen::default()
        }
    }

    /// Looks until `is_over` or `seconds` have passed.
    pub(crate) async fn watch(&mut self, seconds: u64, mut is_over: impl FnMut(&Controller) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(seconds);
        while Instant::now() < deadline && !is_over(&self.controller) {
            self.observe();
            tokio::time::sleep(PERIOD).await;
        }
    }

    fn observe(&mut self) {
        let (scan_at, planned_at) = {
            let board = self.context.board();
            (board.scan.as_ref().map(|scan| scan.at), board.planned_at)
        };
        if scan_at != self.scan_at {
            self.scan_at = scan_at;
            self.now.scans.extend(scan_at.map(|at| SystemClock.now().seconds_since(at)));
        }
        if planned_at != self.planned_at {
            self.planned_at = planned_at;
            self.now.plan_gaps.push(self.plan_seen.elapsed().as_secs_f64());
            self.plan_seen = Instant::now();
        }
    }

    /// What was seen since `begin`.
    pub(crate) fn end(&mut self) -> Seen {
        let after = self.counters();
        let mut seen = std::mem::take(&mut self.now);
        // A plan that is still under way counts by how long it has taken.
        seen.plan_gaps.push(self.plan_seen.elapsed().as_secs_f64());
        seen.seconds = self.begun.elapsed().as_secs_f64();
        seen.releases = after.releases - self.before.releases;
        seen.squeue_calls = after.squeue_calls - self.before.squeue_calls;
        let (now, before) = (after.slurm, self.before.slurm);
        seen.slurm = Counts {
            starts: now.starts - before.starts,
            alone: now.alone - before.alone,
            ends: now.ends - before.ends,
            renewals: now.renewals - before.renewals,
            undos: now.undos - before.undos,
            refused: now.refused - before.refused,
        };
        seen.update_waits = self.controller.take_update_waits();
        seen.cpu_cores = (cpu_seconds() - self.cpu_before) / seen.seconds.max(1e-9);
        seen
    }
}

/// A field of `/proc/self/status` in MiB.
pub(crate) fn memory_mib(field: &str) -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<f64>().ok());
    kib.map_or(f64::NAN, |kib| kib / 1024.0)
}

/// Processor time of this process so far.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name may hold spaces and ends with the last parenthesis.
    let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks: Vec<f64> =
        rest.split_whitespace().skip(11).take(2).filter_map(|word| word.parse().ok()).collect();
    // Of 100 a second, as Linux counts for programs.
    ticks.iter().sum::<f64>() / 100.0
}
