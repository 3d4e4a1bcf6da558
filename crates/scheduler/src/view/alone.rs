//! Jobs that Slurm starts by itself, and those that it has started: of none of these there is a decision.

use super::{Turns, active_members, waiting_job};
use crate::idle::suits;
use crate::scan::{Scan, cpus_of_one_node, has_features_of_slurm, held_reason, mark_of};
use crate::view::Sources;
use pillion_core::{GresType, JobStart, NodeName, SlurmJobId, UnixTime};
use pillion_pairing::AloneClaim;
use pillion_slurm::{Job, JobState, Node, updates};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Who becomes eligible within this is about to: as long as the longest pause after an update of ours.
const BEGINS_SOON: Duration = Duration::from_secs(updates::RESTART_PAUSE.as_secs() + 1);
/// For so long a job on several nodes that was let go may take to start before others are looked for.
const LET_GO_ONCE_MORE_SECONDS: u64 = 30;

/// Jobs that Slurm itself starts on a whole device, or on several, as soon as it can.
pub(super) fn alone_claims(planned: &BTreeSet<SlurmJobId>, sources: Sources<'_>) -> Vec<AloneClaim> {
    let scan = sources.scan;
    let mut places = Places::new(scan);
    let mut claims = Vec::new();
    for job in scan.jobs.values().filter(|job| job.state == JobState::Pending) {
        let Some(mark) = mark_of(job).filter(|mark| mark.alone) else { continue };
        // Also one that was put back or let go a moment ago, and becomes eligible in another.
        let begins = job.eligible_at.is_none_or(|at| at <= scan.at + BEGINS_SOON);
        if !begins || held_reason(job, scan).is_some() || planned.contains(&job.id) {
            continue;
        }
        // Where no node could run it, nothing that is free is any use to it.
        let Some(required_nodes) = places.of(job) else { continue };
        let has_waited = |(epoch, _)| scan.at.epoch().saturating_sub(epoch) > LET_GO_ONCE_MORE_SECONDS;
        let waits = mark
            .let_go
            .filter(|let_go| has_waited(*let_go))
            .and_then(|_| waiting_job(job, &mut Turns::default(), sources));
        claims.push(AloneClaim {
            job_id: job.id,
            required_nodes,
            gres_types: mark.fallback.clone(),
            node_count: mark.node_count(),
            cpus: cpus_of_one_node(job),
            memory_mib: job.memory_mib,
            waits: waits.map(Box::new),
        });
    }
    claims
}

/// What of a job says on which nodes it may run.
type Asked<'a> = (&'a str, &'a str, [&'a [NodeName]; 2], (u32, u64, Option<u64>));

/// Where jobs can run by what they ask of nodes. Many ask for the same.
struct Places<'a> {
    scan: &'a Scan,
    known: BTreeMap<Asked<'a>, Option<Vec<NodeName>>>,
}

impl<'a> Places<'a> {
    const fn new(scan: &'a Scan) -> Self {
        Self { scan, known: BTreeMap::new() }
    }

    /// Empty: on every node. `None`: on none that is up.
    fn of(&mut self, job: &'a Job) -> Option<Vec<NodeName>> {
        let Job { partition, features, excluded_nodes, required_nodes, .. } = job;
        let amounts = (cpus_of_one_node(job), job.memory_mib, job.time_limit_seconds);
        let named: [&[NodeName]; 2] = [excluded_nodes, required_nodes];
        let asked = (partition.as_str(), features.as_str(), named, amounts);
        self.known.entry(asked).or_insert_with(|| can_run_on(job, self.scan)).clone()
    }
}

fn can_run_on(job: &Job, scan: &Scan) -> Option<Vec<NodeName>> {
    // Features that only Slurm understands: its user wrote them afterwards. They leave any node.
    let without = has_features_of_slurm(job).then(|| Job { features: "".into(), ..job.clone() });
    let job = without.as_ref().unwrap_or(job);
    let is_named = |name: &NodeName| job.required_nodes.is_empty() || job.required_nodes.contains(name);
    let is_large_enough =
        |node: &Node| cpus_of_one_node(job) <= node.cpus && job.memory_mib <= node.memory_mib;
    let nodes = scan.nodes.iter();
    let nodes =
        nodes.filter(|node| is_named(&node.name) && suits(job, node, scan.at) && is_large_enough(node));
    let nodes: Vec<NodeName> = nodes.map(|node| node.name.clone()).collect();
    match nodes.len() {
        0 => None,
        count if count == scan.nodes.len() => Some(Vec::new()),
        _ => Some(nodes),
    }
}

/// The device that a job is on, where Slurm was told which, and when it ends; `None` = nobody knows.
type Stay = (Option<GresType>, Option<UnixTime>);

/// When the jobs end, by their time limits, that run without a decision.
pub(super) struct StartedAlone<'a> {
    by_node: BTreeMap<&'a NodeName, Vec<Stay>>,
}

impl<'a> StartedAlone<'a> {
    pub(super) fn of(sources: Sources<'a>) -> Self {
        let planned: BTreeSet<JobStart> =
            active_members(sources.decisions).map(|(_, member)| member.plan.start).collect();
        let holds =
            |job: &Job| matches!(job.state, JobState::Running | JobState::Suspended | JobState::Completing);
        let mut by_node: BTreeMap<&NodeName, Vec<Stay>> = BTreeMap::new();
        let holders = sources.scan.jobs.values().filter(|job| holds(job));
        for job in holders.filter(|job| !planned.contains(&job.start())) {
            for (gres_type, _) in job.shards() {
                for node in &job.nodes {
                    by_node.entry(node).or_default().push((gres_type.clone(), ends_at(job)));
                }
            }
        }
        Self { by_node }
    }

    /// When the last of them ends who are on this device; of those whom Slurm gave whichever was free, one may be there.
    pub(super) fn until(&self, node: &NodeName, gres_type: &GresType) -> Option<UnixTime> {
        let here = self.by_node.get(node)?;
        let is_named = here.iter().any(|(own, _)| own.as_ref() == Some(gres_type));
        let own = here.iter().filter(|(own, _)| match own {
            Some(own) => own == gres_type,
            None => !is_named,
        });
        let ends: Option<Vec<UnixTime>> = own.map(|(_, end)| *end).collect();
        ends?.into_iter().max_by(|a, b| a.seconds().total_cmp(&b.seconds()))
    }
}

/// When Slurm ends a job that runs; `None` = never, or it does not say.
fn ends_at(job: &Job) -> Option<UnixTime> {
    let limit = Duration::from_secs(job.time_limit_seconds?);
    job.ended_at.or_else(|| Some(job.started_at? + limit))
}
