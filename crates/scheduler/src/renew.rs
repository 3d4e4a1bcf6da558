//! The dead man's switch, held down: moves the begin time of waiting jobs ahead of them. When this stops, Slurm starts each
//! job alone, at the latest one bound later (docs/decisions/0007-begin-time-fails-open.md).
//!
//! It is held down by progress and not by life. No begin time is moved further than one bound from the moment since
//! when a device that the job could run on has stood free, nor than one bound from the last plan. What we did before we were
//! started counts for nothing: until the first plan, and beside a device that was free at the first scan, nobody is moved.
//! And not at all for a job that only nodes could run whose agents do not respond or have fewer open devices than it needs, or that is to
//! have a cap where nobody can set one: nobody can release it.

use crate::agents::Agents;
use crate::context::Context;
use crate::fence;
use crate::idle::{Idle, Place, Wish, suits, wants_cap, wish};
use crate::scan::{Scan, held_reason, is_for_slurm_alone, is_waiting, mark_of};
use crate::tick_error::TickError;
use pillion_core::mark::Mark;
use pillion_core::{NodeName, SlurmJobId, UnixTime};
use pillion_slurm::{Job, JobUpdate, updates};
use pillion_store::drain_of;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tracing::debug;

/// How many jobs one tick renews at most, the most urgent first: the others have time, and Slurm has more to do.
const JOBS_PER_TICK: usize = 2_000;
/// So long a job that did not ask for co-location is left to Slurm, which starts it at once where nobody waits.
const SLURM_FIRST: Duration = Duration::from_secs(5);
/// So long an interactive job waits for a decision beside a free device: somebody sits in front of it.
const SESSION_BOUND: Duration = Duration::from_secs(20);
/// A begin time that would move by less is left.
const MOVE_MIN: Duration = Duration::from_secs(1);

pub struct Renew {
    context: Arc<Context>,
}

impl Renew {
    pub fn new(context: Arc<Context>) -> Self {
        Self { context }
    }

    /// Renews what is due.
    ///
    /// # Errors
    /// [`TickError`] where Slurm or the store did not answer.
    pub async fn tick(&self) -> Result<(), TickError> {
        let context = &self.context;
        let Some(scan) = context.fresh_scan().filter(|_| context.is_active()) else { return Ok(()) };
        let drains = context.store.drains().await?;
        let open = context.agents.open_devices();
        let is_open = |place: &Place, needs_cap: bool| {
            let mechanism = open.get(place);
            drain_of(&drains, &place.0, &place.1).is_none()
                && mechanism.is_some_and(|mechanism| !needs_cap || mechanism.can_cap())
        };
        let (idle, planned_at, set_apart) = {
            let board = context.board();
            (board.idle.clone(), board.planned_at, board.set_apart.clone())
        };
        let bound = context.settings.bound;
        let progress = Progress { idle: &idle, planned_at, set_apart: &set_apart, bound };
        let mut due = due(&scan, progress, is_open);
        due.retain(|(job, _)| !is_abandoned(job, &scan, |node| takes(&context.agents, job, node)));
        due.sort_by_key(|(job, _)| job.eligible_at.map_or(0, UnixTime::epoch));
        due.truncate(JOBS_PER_TICK);
        let Some((first, mark)) = due.first().and_then(|(job, _)| Some((*job, mark_of(job)?))) else {
            return Ok(());
        };
        if !fence::holds(context, first, mark).await? {
            return Ok(());
        }
        let updates: Vec<(SlurmJobId, JobUpdate)> = due
            .into_iter()
            .filter_map(|(job, begin)| Some((job.id, updates::renewal(mark_of(job)?, begin))))
            .collect();
        // Who was released, held or moved since the scan is refused by the fence, and is not ours to move.
        let refused_count =
            context.slurm.update_each(&updates).await.map_err(TickError::slurm("renew begin times"))?;
        debug!(renewed = updates.len(), refused_count, "begin times renewed");
        Ok(())
    }
}

fn takes(agents: &Agents, job: &Job, node: &NodeName) -> bool {
    if wants_cap(job) {
        return agents.sets_caps(node);
    }
    agents.takes_tenants(node, mark_of(job).map_or(1, Mark::device_count))
}

/// What the switch is held down by.
#[derive(Debug, Clone, Copy)]
struct Progress<'a> {
    idle: &'a Idle,
    /// When a plan was last made and committed, or nothing was left to plan; `None`: never since we were started.
    planned_at: Option<UnixTime>,
    /// What that plan keeps for others stands free for nobody else: jobs of one GPU that came onto it one by one, each after its bound,
    /// would keep whoever needs several from ever starting.
    set_apart: &'a BTreeMap<Place, SlurmJobId>,
    bound: Duration,
}

/// Which jobs to renew, and until when they are held back then.
fn due<'a>(
    scan: &'a Scan,
    progress: Progress<'_>,
    is_open: impl Fn(&Place, bool) -> bool,
) -> Vec<(&'a Job, UnixTime)> {
    let mut idle_since: BTreeMap<(Wish<'_>, Option<SlurmJobId>), Option<UnixTime>> = BTreeMap::new();
    let waited_for: BTreeSet<SlurmJobId> = progress.set_apart.values().copied().collect();
    let mut due = Vec::new();
    for job in scan.jobs.values().filter(|job| is_waiting(job) && job.priority > 0) {
        let bound = bound_of(job, progress.bound);
        if is_for_slurm_alone(job) || !is_due(job, scan, bound) {
            continue;
        }
        let own_begin = UnixTime::from_epoch(mark_of(job).map_or(0, |mark| mark.original_begin_epoch));
        if own_begin > scan.at + bound {
            due.push((job, own_begin));
            continue;
        }
        let Some(planned_at) = progress.planned_at else { continue };
        let needs_cap = wants_cap(job);
        let is_for_it = |place: &Place| progress.set_apart.get(place).is_none_or(|own| *own == job.id);
        let own = waited_for.contains(&job.id).then_some(job.id);
        let free_since = *idle_since.entry((wish(job), own)).or_insert_with(|| {
            progress.idle.since(job, scan, |place| is_for_it(place) && is_open(place, needs_cap))
        });
        // Who could not run anyway is kept from nothing.
        let free_since = free_since.filter(|_| held_reason(job, scan).is_none());
        let since = free_since.into_iter().chain([planned_at]).fold(scan.at, earlier);
        let begin = since + bound;
        if job.eligible_at.is_none_or(|at| begin > at + MOVE_MIN) {
            due.push((job, begin));
        }
    }
    due
}

/// How long a job may be held back.
fn bound_of(job: &Job, bound: Duration) -> Duration {
    if mark_of(job).is_some_and(|mark| mark.session) { bound.min(SESSION_BOUND) } else { bound }
}

fn earlier(a: UnixTime, b: UnixTime) -> UnixTime {
    if b < a { b } else { a }
}

/// Whether some node could run the job, and too few of those that could have an agent that responds and has as many open devices as it
/// needs, and can set a cap where it is to have one: a release would never come.
fn is_abandoned(job: &Job, scan: &Scan, takes: impl Fn(&NodeName) -> bool) -> bool {
    let mut suitable = scan.nodes.iter().filter(|node| suits(job, node, scan.at)).peekable();
    let node_count = mark_of(job).map_or(1, |mark| usize::from(mark.node_count()));
    suitable.peek().is_some() && suitable.filter(|node| takes(&node.name)).count() < node_count
}

/// Due when between a third and two thirds of the bound are left, each job at a moment of its own: jobs that came together are
/// not renewed together, and some renewals may fail before Slurm takes over.
fn is_due(job: &Job, scan: &Scan, bound: Duration) -> bool {
    let own = UnixTime::from_epoch(mark_of(job).map_or(0, |mark| mark.original_begin_epoch));
    if own > scan.at + bound {
        return job.eligible_at.is_none_or(|at| at.epoch() != own.epoch());
    }
    let spread = f64::from(job.id.id.wrapping_add(job.id.task.unwrap_or(0)).wrapping_mul(0x9E37_79B1) >> 16);
    let share = 1.0 / 3.0 + spread / f64::from(1 << 16) / 3.0;
    let is_left_to_slurm =
        mark_of(job).is_some_and(|mark| mark.plain) && scan.at < job.submitted_at + SLURM_FIRST;
    !is_left_to_slurm && job.eligible_at.is_none_or(|at| at < scan.at + bound.mul_f64(share))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{NOW, at, job, node};
    use pillion_core::GresType;
    use pillion_slurm::{JobState, Node, NodeAvailability};

    const BOUND: Duration = Duration::from_mins(10);

    fn scan_of(job: Job) -> Scan {
        Scan::new(at(NOW), vec![job.into()], vec![node(NodeAvailability::Up)], &["shared".to_owned()], 0)
    }

    fn begin_of(job: Job, idle: &Idle, planned_at: Option<UnixTime>) -> Option<UnixTime> {
        let scan = scan_of(job);
        let progress = Progress { idle, planned_at, set_apart: &BTreeMap::new(), bound: BOUND };
        due(&scan, progress, |_, _| true).first().map(|(_, begin)| *begin)
    }

    /// It would begin in a moment.
    fn late() -> Job {
        Job { eligible_at: Some(at(NOW + 5)), ..job(JobState::Pending) }
    }

    /// n1 with one device, of which so many shards were booked then; and the job that is late.
    fn scan_at(epoch: u64, used: u32) -> Scan {
        let mut scan = scan_of(late());
        scan.at = at(epoch);
        for node in &mut scan.nodes {
            node.shards = [(GresType::new("g0"), (100, used))].into();
        }
        scan
    }

    fn renewed(job: Job) -> Option<UnixTime> {
        begin_of(job, &Idle::default(), Some(at(NOW)))
    }

    #[test]
    fn a_job_is_renewed_in_good_time_and_not_all_at_once() {
        let begins = |epoch| renewed(Job { eligible_at: Some(at(epoch)), ..job(JobState::Pending) });
        assert_eq!(begins(NOW + 401), None);
        assert_eq!(begins(NOW + 199), Some(at(NOW + 600)));
        assert_eq!(begins(NOW - 100), Some(at(NOW + 600)), "we were away: it is ours again");
        let early = (1..1000)
            .filter(|id| {
                let eligible_at = Some(at(NOW + 300));
                renewed(Job { id: SlurmJobId::plain(*id), eligible_at, ..job(JobState::Pending) }).is_some()
            })
            .count();
        assert!((400..600).contains(&early), "{early} of 1000 are due half way");
    }

    #[test]
    fn what_is_released_undone_or_held_is_not_ours_to_move() {
        assert_eq!(renewed(Job { priority: 0, ..late() }), None);
        let with = |mark| renewed(Job { mark: Ok(Some(mark)), ..late() });
        assert_eq!(with(Mark { alone: true, ..Mark::default() }), None);
        assert_eq!(with(Mark::default().leased(at(NOW), 0)), None);
        assert_eq!(renewed(Job { mark: Ok(None), ..late() }), None);
    }

    #[test]
    fn whom_only_slurm_can_place_it_starts_when_his_time_comes() {
        let asks = |features: &str, reservation: &str| {
            renewed(Job { features: features.into(), reservation: reservation.into(), ..late() })
        };
        assert_eq!(asks("a100&big", ""), Some(at(NOW + 600)));
        for features in ["a100|h100", "[rack1*2]", "(a&b)", "!slow"] {
            assert_eq!(asks(features, ""), None, "{features}");
        }
        assert_eq!(asks("", "maintenance"), None, "an admin gave it a reservation");
    }

    /// Slurm would not start it there either, and it is to share when the reservation is over.
    #[test]
    fn a_node_that_others_have_before_a_job_would_end_is_none_that_stands_free() {
        let seen = |limit: Option<u64>| {
            let mut scan = scan_of(Job { time_limit_seconds: limit, ..late() });
            for node in &mut scan.nodes {
                node.shards = [(GresType::new("g0"), (100, 0))].into();
                node.reserved_from = Some(at(NOW + 3600));
            }
            let idle = Idle::default().after(&scan_at(NOW - 601, 100)).after(&scan_at(NOW - 599, 0));
            let progress = Progress {
                idle: &idle,
                planned_at: Some(at(NOW)),
                set_apart: &BTreeMap::new(),
                bound: BOUND,
            };
            due(&scan, progress, |_, _| true).first().map(|(_, begin)| *begin)
        };
        assert_eq!(seen(Some(3600)), None, "a device stands free: Slurm starts it");
        assert_eq!((seen(Some(3601)), seen(None)), (Some(at(NOW + 600)), Some(at(NOW + 600))));
    }

    #[test]
    fn a_job_that_did_not_ask_for_co_location_is_left_to_slurm_for_a_moment() {
        let plain = |submitted: u64| Job {
            submitted_at: at(submitted),
            eligible_at: Some(at(submitted)),
            mark: Ok(Some(Mark { plain: true, ..Mark::default() })),
            ..job(JobState::Pending)
        };
        assert_eq!(renewed(plain(NOW - 4)), None);
        assert_eq!(renewed(plain(NOW - 6)), Some(at(NOW + 600)), "it waits like others, in their order");
    }

    #[test]
    fn nobody_is_held_longer_than_a_bound_beside_a_free_device() {
        let free = |epoch: u64| Idle::default().after(&scan_at(epoch - 2, 100)).after(&scan_at(epoch, 0));
        let planned = Some(at(NOW));
        assert_eq!(begin_of(late(), &free(NOW - 200), planned), Some(at(NOW + 400)));
        assert_eq!(begin_of(late(), &free(NOW - 599), planned), None, "Slurm starts it");
        let born = Idle::default().after(&scan_at(NOW - 10, 0));
        assert_eq!(
            begin_of(late(), &born, planned),
            None,
            "it may have stood free for an hour before we were started"
        );
        let excluded = Job { excluded_nodes: vec![NodeName::new("n1")], ..late() };
        assert_eq!(begin_of(excluded, &free(NOW - 599), planned), Some(at(NOW + 600)), "it cannot use it");
        let dependent = Job { has_dependency: true, ..late() };
        assert_eq!(begin_of(dependent, &free(NOW - 599), planned), Some(at(NOW + 600)), "it cannot run yet");
    }

    #[test]
    fn what_is_set_apart_for_another_does_not_stand_free() {
        let free = Idle::default().after(&scan_at(NOW - 601, 100)).after(&scan_at(NOW - 599, 0));
        let begin = |own: SlurmJobId, planned_at: u64| {
            let set_apart = [((NodeName::new("n1"), GresType::new("g0")), own)].into();
            let planned_at = Some(at(planned_at));
            let progress = Progress { idle: &free, planned_at, set_apart: &set_apart, bound: BOUND };
            due(&scan_of(late()), progress, |_, _| true).first().map(|(_, begin)| *begin)
        };
        let other = SlurmJobId::plain(4_000_000);
        assert_eq!(begin(other, NOW), Some(at(NOW + 600)), "it is for another");
        assert_eq!(begin(late().id, NOW), None, "it is for this one, and was not given to it");
        assert_eq!(begin(other, NOW - 599), None, "for a bound nobody has said so again");
    }

    #[test]
    fn who_sits_in_front_of_his_job_is_held_for_seconds() {
        let session = |epoch: u64| Job {
            eligible_at: Some(at(epoch)),
            mark: Ok(Some(Mark { session: true, ..Mark::default() })),
            ..job(JobState::Pending)
        };
        assert_eq!(renewed(session(NOW + 5)), Some(at(NOW + 20)), "it waits for others, in their order");
        assert_eq!(renewed(session(NOW + 15)), None);
        assert_eq!(begin_of(session(NOW + 5), &Idle::default(), Some(at(NOW - 20))), None, "Slurm starts it");
    }

    #[test]
    fn nobody_is_held_longer_than_a_bound_by_who_plans_nothing() {
        assert_eq!(begin_of(late(), &Idle::default(), Some(at(NOW - 100))), Some(at(NOW + 500)));
        assert_eq!(begin_of(late(), &Idle::default(), Some(at(NOW - 600))), None);
        assert_eq!(
            begin_of(late(), &Idle::default(), None),
            None,
            "we were started again and again, and planned nothing"
        );
    }

    #[test]
    fn a_job_that_only_nodes_without_an_agent_could_run_is_let_go() {
        let unserved = |job: Job, node: Node| {
            let scan = Scan::new(at(NOW), vec![job.clone().into()], vec![node], &["shared".to_owned()], 0);
            (is_abandoned(&job, &scan, |_| false), is_abandoned(&job, &scan, |_| true))
        };
        let waiting = || job(JobState::Pending);
        assert_eq!(unserved(waiting(), node(NodeAvailability::Up)), (true, false));
        let mut of_two_nodes = waiting();
        if let Ok(Some(mark)) = &mut of_two_nodes.mark {
            mark.nodes = Some(2);
        }
        assert_eq!(
            unserved(of_two_nodes, node(NodeAvailability::Up)),
            (true, true),
            "one alone has an agent"
        );
        let excluded = Job { excluded_nodes: vec![NodeName::new("n1")], ..waiting() };
        assert_eq!(
            unserved(excluded, node(NodeAvailability::Up)),
            (false, false),
            "no node could run it anyway"
        );
        let down = node(NodeAvailability::Unavailable("DOWN".into()));
        assert_eq!(unserved(waiting(), down), (false, false), "nor would Slurm start it there");
    }

    #[test]
    fn who_is_measured_under_a_cap_needs_somebody_who_sets_it() {
        let with = |tenths| {
            let mark = Mark { cap: pillion_core::CapStep::from_tenths(tenths), ..Mark::default() };
            wish(&Job { mark: Ok(Some(mark)), ..job(JobState::Pending) }).4
        };
        assert_eq!((with(3), with(10), with(0)), (true, true, false));
    }

    #[test]
    fn a_users_own_begin_time_is_kept() {
        let mark = Mark { original_begin_epoch: NOW + 5000, ..Mark::default() };
        let waiting = |epoch| Job {
            eligible_at: Some(at(epoch)),
            mark: Ok(Some(mark.clone())),
            ..job(JobState::Pending)
        };
        assert_eq!(renewed(waiting(NOW + 5000)), None);
        assert_eq!(renewed(waiting(NOW + 10)), Some(at(NOW + 5000)));
    }
}
