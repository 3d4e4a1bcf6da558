//! Who waits for a verdict: of two who could be tried, but of whose kind (or of as many kinds as may be) one pair is being tried,
//! one starts alone and may be joined, and the other waits until the watch has read. Never beyond its bound, never after it went
//! back, never where no verdict is to come.

use crate::plan::Reason;
use crate::planner::candidates::{Evaluation, Evaluator};
use crate::planner::index::{ClassIndex, DeviceIndex, JobIndex, KindIndex};
use crate::planner::placement::{Placement, Start};
use crate::planner::trial::Trials;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

/// A sharing must be worth so many times what the wait costs.
const WORTH_OF_WAIT_MIN: f64 = 2.0;

/// A place that somebody could join later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Host {
    /// Starts alone now.
    Starting(ClassIndex, KindIndex),
    /// Runs alone on a device like this one.
    Running(DeviceIndex),
}

/// Takes back what starts alone now and had better wait for a verdict.
pub(crate) fn hold(evaluator: &Evaluator<'_, '_>, trials: &Trials<'_>, placement: &mut Placement) {
    let context = evaluator.context;
    let is_tried = |start: &Start| start.evaluation.as_ref().is_some_and(|found| found.is_limited());
    // Where there are very many ways, trials go one by one without anybody waiting.
    if !context.is_thorough || !(trials.has_open() || placement.starts.iter().any(is_tried)) {
        return;
    }
    let mut hosts = running_hosts(evaluator, placement);
    let mut held: BTreeSet<JobIndex> = BTreeSet::new();
    for start in placement.starts.iter().filter(|start| start.evaluation.is_none()) {
        let [job] = start.jobs[..] else { continue };
        let best =
            if may_wait(evaluator, trials, job) { best_host(evaluator, trials, &hosts, job) } else { None };
        if let Some(host) = best {
            held.insert(job);
            hosts.entry(host).and_modify(|count| *count -= 1);
        } else {
            let host = Host::Starting(context.class_of[job], context.kind_of[start.device]);
            *hosts.entry(host).or_insert(0) += 1;
        }
    }
    placement.starts.retain(|start| start.evaluation.is_some() || !held.contains(&start.jobs[0]));
    placement.left.extend(held.into_iter().map(|job| (job, Reason::AwaitsVerdict)));
}

/// Devices on which one job runs alone that nobody joins now, by what is alike.
fn running_hosts(evaluator: &Evaluator<'_, '_>, placement: &Placement) -> BTreeMap<Host, usize> {
    let context = evaluator.context;
    let joined: BTreeSet<DeviceIndex> =
        placement.starts.iter().filter(|start| start.is_join).map(|start| start.device).collect();
    let mut hosts = BTreeMap::new();
    for (device, view) in context.devices.iter_enumerated() {
        if view.tenants.len() == 1 && !joined.contains(&device) && context.open_node(device).is_some() {
            *hosts.entry(Host::Running(context.alike[device])).or_insert(0) += 1;
        }
    }
    hosts
}

/// Whether a job can wait for one verdict more.
fn may_wait(evaluator: &Evaluator<'_, '_>, trials: &Trials<'_>, job: JobIndex) -> bool {
    let waiting = &evaluator.context.jobs[job];
    let verdict_at =
        evaluator.context.view.taken_at + Duration::from_secs_f64(trials.policy.trial_seconds.max(0.0));
    trials.may_try(waiting.start.job_id)
        && waiting.start.restart_count == 0
        && verdict_at <= waiting.starts_alone_at
}

/// Whom it would best be tried with.
fn best_host(
    evaluator: &Evaluator<'_, '_>,
    trials: &Trials<'_>,
    hosts: &BTreeMap<Host, usize>,
    job: JobIndex,
) -> Option<Host> {
    let class = evaluator.context.class_of[job];
    let mut least = WORTH_OF_WAIT_MIN * evaluator.cost_of_wait(trials.policy.trial_seconds);
    let mut best = None;
    for (host, _) in hosts.iter().filter(|(_, count)| **count > 0) {
        let found: Rc<Evaluation> = match *host {
            Host::Starting(other, kind) => evaluator.pair(other, class, kind),
            Host::Running(device) => evaluator.join(class, device),
        };
        if found.is_limited() && found.weight > least {
            least = found.weight;
            best = Some(*host);
        }
    }
    best
}
