//! How many managed jobs are in which state, from the last scan and the decisions that are carried out. Pure.

use crate::scan::{Scan, held_reason, is_waiting, mark_of};
use pillion_core::SlurmJobId;
use pillion_core::decision::MemberState;
use pillion_core::device::Mechanism;
use pillion_slurm::{Job, JobState};
use pillion_store::Decision;
use std::collections::BTreeMap;

/// How a managed job stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Standing {
    Waiting,
    Held,
    Planned,
    Released,
    Alone,
    Restarted,
    Running,
}

impl Standing {
    pub(super) const ALL: [Self; 7] = [
        Self::Waiting,
        Self::Held,
        Self::Planned,
        Self::Released,
        Self::Alone,
        Self::Restarted,
        Self::Running,
    ];
    /// As the label has it.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Held => "held",
            Self::Planned => MemberState::Planned.as_str(),
            Self::Released => MemberState::Released.as_str(),
            Self::Alone => "alone",
            Self::Restarted => "restarted",
            Self::Running => "running",
        }
    }
}

/// The queue in numbers.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Queue {
    /// Jobs by state.
    pub(super) states: BTreeMap<Standing, u64>,
    /// The longest wait of one that waits for a decision, in seconds.
    pub(super) wait_seconds_max: f64,
    /// Devices that two or more jobs run on, and those jobs.
    pub(super) sharing: BTreeMap<Mechanism, (u64, u64)>,
}

pub(super) fn queue(scan: &Scan, active: &[Decision]) -> Queue {
    let members = active.iter().flat_map(|decision| &decision.members);
    let states: BTreeMap<SlurmJobId, MemberState> = members
        .filter(|member| member.state.is_active())
        .map(|member| (member.plan.start.job_id, member.state))
        .collect();
    let mut queue = Queue { sharing: sharing(active), ..Queue::default() };
    for job in scan.jobs.values() {
        let Some(state) = state(job, scan, states.get(&job.id).copied()) else { continue };
        *queue.states.entry(state).or_default() += 1;
        if state == Standing::Waiting {
            queue.wait_seconds_max = queue.wait_seconds_max.max(scan.at.seconds_since(job.submitted_at));
        }
    }
    queue
}

fn state(job: &Job, scan: &Scan, member: Option<MemberState>) -> Option<Standing> {
    let mark = mark_of(job)?;
    match (&job.state, member) {
        (JobState::Running | JobState::Suspended | JobState::Completing, _) => Some(Standing::Running),
        (JobState::Pending, Some(MemberState::Planned)) => Some(Standing::Planned),
        (JobState::Pending, Some(MemberState::Released)) => Some(Standing::Released),
        (JobState::Pending, _) if mark.alone => Some(Standing::Alone),
        (JobState::Pending, _) if is_waiting(job) => {
            let is_held = held_reason(job, scan).is_some();
            Some(if is_held { Standing::Held } else { Standing::Waiting })
        }
        (JobState::Pending, _) => Some(Standing::Restarted),
        (JobState::Ended(_) | JobState::Other(_), _) => None,
    }
}

/// Groups of which two or more members run, and devices in two or more of whose instances somebody does.
fn sharing(active: &[Decision]) -> BTreeMap<Mechanism, (u64, u64)> {
    // Of each its devices, and who runs there: a set is named by its first device.
    let mut groups: BTreeMap<_, (Mechanism, u64, u64)> = BTreeMap::new();
    for decision in active {
        let running = decision.members.iter().filter(|member| member.state == MemberState::Running).count();
        let mechanism = decision.mechanism();
        let group = (!mechanism.meets_nobody()).then_some(decision.group);
        let key = (&decision.node, decision.gres_types.first(), group);
        let count = decision.gres_types.count() as u64;
        groups.entry(key).or_insert((mechanism, count, 0)).2 += running as u64;
    }
    let mut sharing = BTreeMap::new();
    for (mechanism, count, running) in groups.into_values().filter(|(.., running)| *running > 1) {
        let (devices, jobs): &mut (u64, u64) = sharing.entry(mechanism).or_default();
        *devices += count;
        *jobs += running;
    }
    sharing
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{NOW, at, decision, job, leased, member, node, start};
    use pillion_core::mark::Mark;
    use pillion_core::{DecisionId, JobStart};
    use pillion_slurm::{Ending, NodeAvailability};

    fn jobs(jobs: Vec<Job>) -> Scan {
        let numbered = jobs.into_iter().zip(7..).map(|(job, id)| Job { id: SlurmJobId::plain(id), ..job });
        let nodes = vec![node(NodeAvailability::Up)];
        Scan::new(at(NOW), numbered.map(Into::into).collect(), nodes, &["shared".to_owned()], 0)
    }

    #[test]
    fn each_managed_job_is_in_one_state() {
        let pending = || job(JobState::Pending);
        let alone = Job { mark: Ok(Some(Mark { alone: true, ..Mark::default() })), ..pending() };
        let scan = jobs(vec![
            pending(),
            Job { submitted_at: at(NOW - 300), ..pending() },
            Job { priority: 0, ..pending() },
            alone,
            leased(pending(), NOW),
            job(JobState::Running),
            job(JobState::Ended(Ending::Completed)),
            Job { mark: Ok(None), ..pending() },
        ]);
        let planned = decision(&member(MemberState::Planned));
        let queue = queue(&scan, &[planned]);
        let all_but_released = Standing::ALL.into_iter().filter(|state| *state != Standing::Released);
        assert_eq!(queue.states, all_but_released.map(|state| (state, 1)).collect());
        assert!((queue.wait_seconds_max - 300.0).abs() < 1e-9);
    }

    #[test]
    fn a_device_is_shared_while_two_of_one_group_run() {
        let host = decision(&member(MemberState::Running));
        let mut joiner = host.clone();
        joiner.id = DecisionId(2);
        joiner.members[0].plan.start = JobStart { job_id: SlurmJobId::plain(8), ..start() };
        let shared = |all: &[Decision]| sharing(all);
        assert_eq!(shared(std::slice::from_ref(&host)), BTreeMap::new());
        assert_eq!(shared(&[host.clone(), joiner.clone()]), [(Mechanism::Mps, (1, 2))].into());
        let on_both = |one: &Decision| Decision { gres_types: "g0,g1".parse().unwrap(), ..one.clone() };
        let of_set = [on_both(&host), on_both(&joiner)];
        assert_eq!(shared(&of_set), [(Mechanism::Mps, (2, 2))].into(), "two jobs, each on two devices");
        joiner.members[0].state = MemberState::Released;
        assert_eq!(shared(&[host, joiner]), BTreeMap::new());
    }
}
