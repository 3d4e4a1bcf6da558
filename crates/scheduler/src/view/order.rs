//! The order in which waiting jobs are served: Slurm's priority, then age. But a user whose jobs hold devices for themselves
//! alone, because they must be measured or leave room for nobody, has a budget for that: what is beyond it comes after everybody
//! else's. So new names and wishes for a whole device take no pool from those who share it; where nobody else waits they
//! cost nothing. Whether somebody could come beside a job is the planner's to say (`leaves_room`), not a number's.
//!
//! Whoever was submitted as a guest comes after all of them.
//!
//! Jobs of several devices, interactive ones, and those that did not ask for co-location, keep Slurm's order whatever they hold: they are shared by nobody,
//! and are promised nothing but that.

use super::request::{asked_gpu_type, gpu_type_names, promise, promise_of};
use super::sources::{Sources, active_members};
use crate::scan::{mark_of, workload_of};
use pillion_core::isolation::Isolation;
use pillion_core::profile::WorkloadProfile;
use pillion_core::workload::is_session;
use pillion_core::{GresType, NodeName, SlurmJobId, UserId, WorkloadKey};
use pillion_pairing::{Demands, Role, leaves_room};
use pillion_slurm::Job;
use pillion_store::{Decision, Member, NewMember};
use std::collections::{BTreeMap, BTreeSet};

/// Puts guests behind the others.
pub(super) fn ordered<'a>(jobs: Vec<&'a Job>, sources: Sources<'_>) -> Vec<&'a Job> {
    let (guests, others): (Vec<_>, Vec<_>) =
        jobs.into_iter().partition(|job| mark_of(job).is_some_and(|mark| mark.as_guest));
    let mut all = within_budgets(others, sources);
    all.append(&mut within_budgets(guests, sources));
    all
}

/// Puts what is beyond its user's budget behind the others.
fn within_budgets<'a>(mut jobs: Vec<&'a Job>, sources: Sources<'_>) -> Vec<&'a Job> {
    jobs.sort_by(|a, b| {
        let came_first = a.submitted_at.seconds().total_cmp(&b.submitted_at.seconds());
        b.priority.cmp(&a.priority).then(came_first).then(a.id.cmp(&b.id))
    });
    let users: BTreeSet<UserId> = jobs.iter().map(|job| job.uid).collect();
    if users.len() < 2 {
        return jobs;
    }
    let known = Known::new(sources);
    let mut held = known.held_alone();
    let (mut within, mut beyond) = (Vec::with_capacity(jobs.len()), Vec::new());
    for job in jobs {
        let is_whole = mark_of(job).is_some_and(|mark| mark.has_whole_devices() || mark.session);
        if !is_whole && (known.must_be_alone(job) || sources.owed.contains_key(&job.uid)) {
            let count = held.entry(job.uid).or_default();
            *count += 1;
            if *count > sources.alone_devices_max {
                beyond.push(job);
                continue;
            }
        }
        within.push(job);
    }
    within.append(&mut beyond);
    within
}

/// What is known of workloads and of the pool's devices, looked up once for the whole queue.
struct Known<'a> {
    sources: Sources<'a>,
    workloads: BTreeSet<&'a WorkloadKey>,
    profiles: BTreeMap<(&'a WorkloadKey, &'a str), &'a WorkloadProfile>,
    /// Model and memory of the devices, and whether they can be cut into instances: then others come beside whoever wants a wall.
    kinds: BTreeSet<(&'a str, u64, bool)>,
}

impl<'a> Known<'a> {
    fn new(sources: Sources<'a>) -> Self {
        let profiles = sources.profiles.iter().map(|stored| &stored.profile);
        let devices = sources.agents.values().flat_map(|agent| &agent.devices);
        Self {
            sources,
            workloads: profiles.clone().map(|profile| &profile.workload).collect(),
            profiles: profiles
                .map(|profile| ((&profile.workload, profile.device_model.as_str()), profile))
                .collect(),
            kinds: devices
                .map(|device| (device.model.as_str(), device.memory_bytes, device.geometry.is_some()))
                .collect(),
        }
    }

    /// How many devices each user's jobs hold that nobody may join.
    fn held_alone(&self) -> BTreeMap<UserId, u32> {
        let mut tenant_counts: BTreeMap<(&NodeName, &GresType), u32> = BTreeMap::new();
        for (decision, _) in active_members(self.sources.decisions) {
            for place in decision.places() {
                *tenant_counts.entry(place).or_default() += 1;
            }
        }
        // Under a cap somebody is alone to be measured, whatever its shards say.
        let mut held = BTreeMap::new();
        for (decision, Member { plan, .. }) in active_members(self.sources.decisions) {
            let is_measured = plan.estimate.is_none() && plan.sharing.cap().is_some();
            let is_single = tenant_counts.get(&(&decision.node, decision.gres_types.first())) == Some(&1);
            // Of an instance the rest of the device is for others.
            let is_whole = decision.gres_types.only().is_none()
                || self.sources.scan.is_plain(plan.start.job_id)
                || is_session(&plan.workload);
            // A guest goes where somebody needs its device.
            let is_guest = self.sources.scan.is_guest(plan.start.job_id);
            if plan.sharing.mechanism().has_instances() || is_whole || is_guest {
                continue;
            }
            if plan.role == Role::Alone || is_measured || (is_single && !self.may_be_joined(decision, plan)) {
                *held.entry(plan.uid).or_default() += 1;
            }
        }
        held
    }

    /// Whether somebody could join this tenant where it is; of a device that no agent told of nobody says no.
    fn may_be_joined(&self, decision: &Decision, plan: &NewMember) -> bool {
        let agent = self.sources.agents.get(&decision.node);
        let mut devices = agent.into_iter().flat_map(|agent| &agent.devices);
        let Some(device) = devices.find(|device| decision.gres_types.contains(&device.gres_type)) else {
            return true;
        };
        let demands = Demands {
            profile: self.profiles.get(&(&plan.workload, decision.device_model.as_str())).copied(),
            memory_bytes_declared: plan.memory_bytes,
            slowdown_ratio_max: promise(plan.slowdown_ratio_max),
            isolation: self.isolation_of(plan.start.job_id),
            ..self.said_of(self.sources.scan.jobs.get(&plan.start.job_id))
        };
        leaves_room(&demands, device.memory_bytes, self.sources.policy)
    }

    /// What the site says of a job, whatever it asks for.
    fn said_of(&self, job: Option<&Job>) -> Demands<'a> {
        let (policy, by_job) = (self.sources.policy, self.sources.by_job);
        Demands {
            profile: None,
            memory_bytes_declared: None,
            slowdown_ratio_max: policy.slowdown_ratio_max,
            isolation: Isolation::Shared,
            rules: by_job.rules(job).unwrap_or_else(|| policy.of_jobs()),
            slowdown_ratio_usual: job.map_or(policy.slowdown_ratio_max, |job| by_job.promise(job)),
        }
    }

    fn isolation_of(&self, id: SlurmJobId) -> Isolation {
        let mark = self.sources.scan.jobs.get(&id).and_then(mark_of);
        mark.map_or(Isolation::Shared, |mark| mark.isolation)
    }

    /// Whether nobody could share with a waiting job: it is to be measured, or leaves room for nobody on any device that it asks
    /// for.
    fn must_be_alone(&self, job: &Job) -> bool {
        let Some(mark) = mark_of(job) else { return false };
        let workload = workload_of(job, mark);
        if mark.cap.is_some() || !self.workloads.contains(&workload) {
            return true;
        }
        let wanted = asked_gpu_type(&mark.original_gres);
        let is_wanted = |model: &str| {
            wanted.as_ref().is_none_or(|name| gpu_type_names(model, self.sources.gpu_types).contains(name))
        };
        let policy = self.sources.policy;
        let mut kinds = self.kinds.iter().filter(|kind| is_wanted(kind.0)).peekable();
        let has_devices = kinds.peek().is_some();
        let may_be_joined = kinds.any(|&(model, memory_bytes, can_be_cut)| {
            let demands = Demands {
                profile: self.profiles.get(&(&workload, model)).copied(),
                memory_bytes_declared: mark.memory_bytes(),
                slowdown_ratio_max: promise_of(mark, self.sources.by_job.promise(job)),
                isolation: if can_be_cut { Isolation::Shared } else { mark.isolation },
                ..self.said_of(Some(job))
            };
            leaves_room(&demands, memory_bytes, policy)
        });
        has_devices && !may_be_joined
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agents::AgentState;
    use crate::context::Settings;
    use crate::device_status::Amiss;
    use crate::scan::Scan;
    use crate::testing::{self, NOW, at, decision, job, member};
    use pillion_core::decision::MemberState;
    use pillion_core::device::DeviceDescription;
    use pillion_core::mark::Mark;
    use pillion_core::metric::{Metric, Metrics};
    use pillion_core::{CapStep, Revision, SlurmJobId};
    use pillion_slurm::JobState;
    use pillion_store::{Durations, StoredProfile};

    const GIB: u64 = 1 << 30;

    /// What a user asks for with a job.
    type Wish = fn(&mut Mark);

    const NONE: Wish = |_| {};
    const EXACT: Wish = |mark| mark.slowdown_ratio_max = Some(1.0);

    /// A node with one device of 100 GiB.
    fn agent() -> AgentState {
        let device = DeviceDescription {
            model: "h100".into(),
            memory_bytes: 100 * GIB,
            ..pillion_test_kit::device(1)
        };
        testing::agent(vec![device])
    }

    /// The jobs' places in the queue, each with whose it is and what he asks for, in the order in which they are served.
    fn order(jobs: &[(u32, Wish)], held: &[Decision]) -> Vec<u32> {
        let mut waiting = Vec::new();
        for (id, (uid, wish)) in (1..).zip(jobs) {
            let mut mark = Mark { workload_digest: "w".into(), ..Mark::default() };
            wish(&mut mark);
            waiting.push(Job {
                id: SlurmJobId::plain(id),
                uid: UserId(*uid),
                submitted_at: at(NOW + u64::from(id)),
                mark: Ok(Some(mark)),
                ..job(JobState::Pending)
            });
        }
        let profile = WorkloadProfile {
            metrics: Metrics::from([(Metric::SmActiveFraction, 0.3)]),
            run_count: 9,
            ..WorkloadProfile::empty(WorkloadKey::new("alice/w"), "h100")
        };
        let known = StoredProfile {
            profile,
            durations: Durations::default(),
            run_counts_at_cap: [0; 9],
            updated_at: at(NOW),
        };
        let settings = Settings::default();
        let sources = Sources {
            revision: Revision(0),
            scan: &Scan::default(),
            decisions: held,
            agents: &[(NodeName::new("n1"), agent())].into(),
            stopped: &BTreeMap::new(),
            drains: &[],
            cooling: &BTreeMap::new(),
            profiles: &[known],
            policy: &settings.policy,
            by_job: settings.by_job(),
            owed: &BTreeMap::new(),
            charged: &crate::view::Charged::default(),
            amiss: &Amiss::default(),
            first_runs: &BTreeMap::new(),
            idle_sessions: &BTreeSet::new(),
            alone_devices_max: 2,
            gpu_types: &BTreeMap::new(),
            room_asked: &BTreeMap::new(),
            steadfast: &std::collections::BTreeSet::new(),
            watched: &std::collections::BTreeMap::new(),
            restarts_by_consent: true,
            copies: &pillion_pairing::CopyBook::default(),
            trials: None,
        };
        ordered(waiting.iter().collect(), sources).into_iter().map(|job| job.id.id).collect()
    }

    /// User 1 holds a device, in this way.
    fn held(change: impl Fn(&mut NewMember)) -> Decision {
        let running = member(MemberState::Running);
        let mut plan = NewMember { uid: UserId(1), ..running.plan.clone() };
        change(&mut plan);
        decision(&Member { plan, ..running })
    }

    /// User 1 is measured alone on a device.
    fn measured() -> Decision {
        held(|plan| plan.role = Role::Alone)
    }

    /// As it was tried: `max-slowdown=1` for each of many jobs, and a pool that nobody shares.
    #[test]
    fn who_wants_devices_for_himself_comes_last_beyond_his_budget() {
        assert_eq!(order(&[(1, EXACT), (1, EXACT), (1, EXACT), (2, NONE)], &[]), [1, 2, 4, 3]);
        let one = order(&[(1, EXACT), (1, EXACT), (2, NONE)], &[measured()]);
        assert_eq!(one, [1, 3, 2], "what he holds counts");
        let two = order(&[(1, EXACT), (1, NONE), (2, EXACT)], &[measured(), measured()]);
        assert_eq!(two, [2, 3, 1], "what may share keeps its turn");
    }

    /// As it was tried after that: nearly 1, nearly all of the memory, a cap, a new name each time.
    #[test]
    fn what_leaves_room_for_nobody_counts_in_whatever_words_it_is_asked_for() {
        let wishes: [Wish; 5] = [
            |mark| mark.slowdown_ratio_max = Some(1.001),
            |mark| mark.memory_mib = Some(100 << 10),
            |mark| mark.memory_mib = Some(90 << 10),
            |mark| mark.cap = CapStep::from_tenths(10),
            |mark| mark.workload_digest = "new".into(),
        ];
        for (index, wish) in wishes.into_iter().enumerate() {
            let order = order(&[(1, wish), (1, wish), (1, wish), (2, NONE)], &[]);
            assert_eq!(order, [1, 2, 4, 3], "wish {index}");
        }
        let wishes: [Wish; 3] =
            [|mark| mark.slowdown_ratio_max = Some(1.2), |mark| mark.memory_mib = Some(60 << 10), NONE];
        for (index, wish) in wishes.into_iter().enumerate() {
            let order = order(&[(1, wish), (1, wish), (1, wish), (2, NONE)], &[]);
            assert_eq!(order, [1, 2, 3, 4], "with wish {index} somebody could come");
        }
    }

    #[test]
    fn a_device_counts_as_held_alone_where_nobody_could_join() {
        let after = |one: Decision| order(&[(1, EXACT), (1, EXACT), (2, NONE)], &[one]);
        let (within, beyond) = ([1, 2, 3], [1, 3, 2]);
        assert_eq!(after(held(|plan| plan.slowdown_ratio_max = 1.001)), beyond);
        assert_eq!(after(held(|plan| plan.memory_bytes = Some(90 * GIB))), beyond);
        assert_eq!(after(held(|plan| plan.memory_bytes = Some(60 * GIB))), within);
        let mut shared = held(|plan| plan.slowdown_ratio_max = 1.001);
        let mut other = shared.members[0].clone();
        other.plan.uid = UserId(2);
        shared.members.push(other);
        assert_eq!(after(shared), within, "somebody is there");
    }

    #[test]
    fn guests_come_after_everybody() {
        const GUEST: Wish = |mark| mark.as_guest = true;
        assert_eq!(order(&[(1, GUEST), (1, NONE), (2, GUEST), (2, NONE)], &[]), [2, 4, 1, 3]);
        assert_eq!(order(&[(1, GUEST), (1, NONE)], &[]), [2, 1], "also after one's own");
        let beyond = order(&[(2, GUEST), (1, EXACT), (1, EXACT), (1, EXACT), (2, NONE)], &[]);
        assert_eq!(beyond, [2, 3, 5, 4, 1], "and after what is beyond a budget");
    }

    #[test]
    fn where_nobody_else_waits_a_budget_changes_nothing() {
        let held: Vec<Decision> = (0..5).map(|_| measured()).collect();
        assert_eq!(order(&[(1, EXACT), (1, NONE), (1, EXACT), (1, EXACT)], &held), [1, 2, 3, 4]);
    }
}
