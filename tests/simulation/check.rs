//! What must hold after every step of the simulation: the invariants of `core::invariant`, and the dead man's switch.

use crate::users::{OUTSIDE, STRICT};
use crate::world::sessions::SESSION_BOUND_SECONDS;
use crate::world::{BOUND_SECONDS, World};
use pillion_core::device::TENANTS_MAX;
use pillion_core::invariant::{Occupant, Violation, check_occupants};
use pillion_core::mark::Mark;
use pillion_core::{GresType, JobStart, NodeName};
use pillion_fake_slurm::FakeCall;
use pillion_scheduler::scan::{Scan, mark_of};
use pillion_scheduler::view::occupants;
use pillion_slurm::{JobState, Slurm};
use pillion_store::prelude::*;
use pillion_store::{Decision, RequeueCause};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Every so many checks the whole journal is read for releases.
const JOURNAL_CHECK_INTERVAL: u64 = 32;

impl World {
    /// Holds the world against the invariants.
    pub(crate) async fn check(&mut self) {
        assert_eq!(self.slurm.overbooked(), Vec::<String>::new());
        self.see_who_is_sent_back();
        self.check_count += 1;
        if self.check_count.is_multiple_of(JOURNAL_CHECK_INTERVAL) {
            self.check_released_once();
            self.check_requeued();
        }
        self.check_users();
        self.check_waiting();
        self.check_neighbours().await;
        self.check_instances();
    }

    /// Instances lie apart, outlive their tenants, and are nobody's for no longer than their driver wants.
    fn check_instances(&mut self) {
        for node in &self.nodes {
            let walled = node.walled();
            node.instances.check(&node.devices, &walled, node.is_agent_alive);
            self.walled_peak = self.walled_peak.max(walled.len());
        }
    }

    /// What users did stands.
    fn check_users(&self) {
        self.line.users.lock().expect("nobody panics with it").check(&self.slurm);
    }

    /// a lease is written at most once for a start.
    pub(crate) fn check_released_once(&self) {
        let mut released = BTreeSet::new();
        for (number, call) in self.slurm.journal().iter().enumerate() {
            // What Slurm has forgotten was never released; what the store has, may be released again where it still waits.
            if matches!(call, FakeCall::Forgot { .. }) || self.forgot_stored_at.contains(&number) {
                released.clear();
            }
            let FakeCall::Update { ok: true, jobs, update, .. } = call else { continue };
            let mark = update.admin_comment.as_deref().and_then(|text| Mark::parse(text).ok().flatten());
            let Some((mark, job_id)) = mark.zip(jobs.first().copied()) else { continue };
            if let (Some(_), Some(restart_count)) = (mark.lease_epoch, mark.lease_restart_count) {
                let start = JobStart { job_id, restart_count };
                assert!(released.insert(start), "{}", Violation::ReleasedTwice(start));
            }
        }
    }

    /// Who is to go back stands in the store between any two ticks.
    fn see_who_is_sent_back(&mut self) {
        for requeue in self.store.requeues_under_way() {
            if requeue.cause == RequeueCause::SentBack {
                self.sent_back.entry(requeue.start.job_id).or_insert(requeue.start);
            }
            if requeue.cause == RequeueCause::MadeRoom {
                assert!(
                    self.guests.contains(&requeue.start.job_id),
                    "{} makes room and is no guest",
                    requeue.start
                );
                self.made_room.insert(requeue.start);
            }
        }
    }

    /// Nobody is requeued but who died with his partner or was to be sent back, and he once; from then on he runs alone. A guest is no
    /// exception to anything but this: it makes room as often as it has to, and comes back as a guest.
    pub(crate) fn check_requeued(&mut self) {
        let mut requeued = BTreeSet::new();
        for (number, call) in self.slurm.journal().iter().enumerate() {
            // Whose requeue nobody remembers is a job like any other.
            if matches!(call, FakeCall::Forgot { .. }) || self.forgot_stored_at.contains(&number) {
                requeued.clear();
            }
            let FakeCall::Requeue { ok: true, job, .. } = call else { continue };
            let is_interactive = self.works.get(job).is_some_and(|work| work.is_interactive);
            assert!(!is_interactive, "{job} is interactive, and was requeued");
            if self.guests.contains(job) {
                // As often as somebody needs its device.
                let made_room = self.made_room.iter().any(|start| start.job_id == *job);
                let is_known = made_room || self.victims.contains_key(job);
                assert!(is_known, "{job} was requeued, and was not to make room");
                continue;
            }
            let is_known = self.victims.contains_key(job) || self.sent_back.contains_key(job);
            assert!(is_known, "{job} was requeued, had not died of its partner, and was not sent back");
            assert!(requeued.insert(*job), "{job} was requeued twice");
        }
        // A process of a start that Slurm was just told to requeue is there until its node has ended it.
        let is_start = |start: JobStart| self.slurm.job(start.job_id).is_some_and(|job| job.start() == start);
        let running = self.nodes.iter().flat_map(|node| &node.running).filter(|run| is_start(run.start));
        for run in running.filter(|run| requeued.contains(&run.start.job_id)) {
            let ended = [&self.victims, &self.sent_back].map(|ended| ended.get(&run.start.job_id));
            let ended = ended.into_iter().flatten().min().expect("it was requeued for one of them");
            let is_later = run.start.restart_count > ended.restart_count;
            assert!(is_later && !run.is_shared(), "{} is not alone", run.start);
        }
        let sent_back = requeued.iter().filter(|job| self.sent_back.contains_key(job)).count();
        self.sent_back_count = self.sent_back_count.max(sent_back);
        self.requeued_count = self.requeued_count.max(requeued.len() - sent_back);
    }

    /// The dead man's switch: nobody waits with a begin time further away than his own or one bound from now.
    fn check_waiting(&self) {
        for job in self.slurm.open_jobs().into_iter().filter(|job| job.state == JobState::Pending) {
            let id = job.id;
            let mark = job.mark.as_ref().ok().and_then(Option::as_ref);
            let own = mark.map_or(0, |mark| mark.original_begin_epoch);
            // Who sits in front of his job waits for us no longer than this. Out of the pool it begins when its user wants.
            let is_hurried = self.is_session(id) && job.partition != OUTSIDE;
            let bound = if is_hurried { SESSION_BOUND_SECONDS } else { BOUND_SECONDS };
            // Slurm itself lets no job begin for two minutes after a requeue.
            let floor =
                if is_hurried && job.restart_count == 0 { own } else { own.max(self.requeue_floor()) };
            let latest = (self.now + Duration::from_secs(bound + 2)).epoch().max(floor);
            assert!(
                job.eligible_at.is_none_or(|at| at.epoch() <= latest),
                "{id} may begin only at {:?}, latest allowed {latest}",
                job.eligible_at
            );
        }
    }

    fn requeue_floor(&self) -> u64 {
        (self.now + Duration::from_secs(123)).epoch()
    }

    /// P-2, P-3, R-2 over what runs; a start without a decision must not have got a mechanism.
    async fn check_neighbours(&mut self) {
        let answer = self.store.active_decisions().await;
        let is_answered = answer.is_ok();
        let decisions = answer.unwrap_or_default();
        let jobs = self.slurm.open_jobs().into_iter().map(Into::into).collect();
        let nodes = self.slurm.nodes().await.unwrap_or_default();
        let scan = Scan::new(self.now, jobs, nodes, &["shared".to_owned()], 0);
        let planned: Vec<_> = occupants(&scan, &decisions);
        let with_decision: Vec<_> = planned.into_iter().filter(|occupant| occupant.group.is_some()).collect();
        let device_of = |node: &NodeName, gres_type: &GresType| {
            let node = self.nodes.iter().find(|other| other.name == *node)?;
            node.devices.iter().find(|device| device.gres_type == *gres_type)
        };
        assert_eq!(check_occupants(&with_decision, device_of), Vec::new());
        if !self.settings.job_policy.is_uniform() {
            check_strict(&with_decision, &scan);
        }
        let members = decisions.iter().flat_map(|decision| &decision.members);
        let workloads: BTreeMap<_, _> =
            members.map(|member| (member.plan.start.job_id, &member.plan.workload)).collect();
        let mut tenants: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for occupant in &with_decision {
            let workload = workloads.get(&occupant.job_id);
            // Whoever has an instance to himself meets nobody.
            let met = occupant.instance.is_none().then_some(workload);
            tenants.entry((&occupant.node, &occupant.gres_type)).or_default().push(met);
        }
        self.check_sessions(&with_decision);
        for (place, all) in &tenants {
            let all: Vec<_> = all.iter().flatten().collect();
            let are_copies = all.windows(2).all(|two| two[0] == two[1]);
            assert!(all.len() <= TENANTS_MAX as usize || are_copies, "{place:?}: {all:?}");
        }
        self.check_sets(&with_decision);
        // A store that fails says nothing.
        if is_answered {
            self.check_remembered(&scan, &decisions);
        }
        self.tenants_peak = tenants.into_values().map(|all| all.len()).fold(self.tenants_peak, usize::max);
        for node in &self.nodes {
            let shared = node.running.iter().filter(|run| run.is_shared()).count();
            self.shared_starts = self.shared_starts.max(shared);
        }
    }
}

impl World {
    /// Who runs as it was decided stands in the store as a tenant, where he runs, or the next plan gives his place to others and nobody
    /// judges what comes of it.
    fn check_remembered(&self, scan: &Scan, decisions: &[Decision]) {
        let mut active = BTreeMap::new();
        for decision in decisions {
            let members = decision.members.iter().filter(|member| member.state.is_active());
            active.extend(members.map(|member| (member.plan.start, decision)));
        }
        for job in scan.jobs.values().filter(|job| job.state == JobState::Running) {
            let lease = mark_of(job).filter(|mark| mark.lease_restart_count == Some(job.restart_count));
            let Some(released_at) = lease.and_then(|mark| mark.lease_epoch) else { continue };
            // Of what was released before that the store may know nothing.
            if self.forgot_stored.is_some_and(|at| released_at <= at.epoch()) {
                continue;
            }
            let start = job.start();
            let Some(decision) = active.get(&start) else {
                panic!("{start} runs as it was decided, and its decision was dropped");
            };
            let devices = self.slurm.devices_of(job.id);
            let is_there = devices.iter().all(|(node, gres_types)| {
                *node == decision.node
                    && gres_types.iter().all(|one| decision.gres_types.iter().any(|own| own == one))
            });
            assert!(is_there, "{start} runs on {devices:?}, and was decided for {decision:?}");
        }
    }

    /// Beside an interactive job there are guests only.
    fn check_sessions(&mut self, occupants: &[Occupant]) {
        let sessions = occupants.iter().filter(|one| self.is_session(one.job_id));
        let mut accompanied = 0;
        for session in sessions {
            let place = (&session.node, &session.gres_type);
            let is_beside =
                |one: &&Occupant| one.job_id != session.job_id && (&one.node, &one.gres_type) == place;
            for other in occupants.iter().filter(is_beside) {
                assert!(
                    self.guests.contains(&other.job_id),
                    "{} is beside {}, which is interactive, and is no guest",
                    other.job_id,
                    session.job_id
                );
                accompanied += 1;
            }
        }
        self.accompanied_count += accompanied;
    }

    /// Whoever shares one of several devices shares all of them, with the same.
    fn check_sets(&mut self, occupants: &[Occupant]) {
        let mut devices: BTreeMap<_, BTreeSet<&GresType>> = BTreeMap::new();
        for one in occupants {
            devices.entry((&one.node, one.job_id)).or_default().insert(&one.gres_type);
        }
        for (at, one) in occupants.iter().enumerate() {
            let beside = occupants[at + 1..].iter();
            for other in beside.filter(|other| (&other.node, &other.gres_type) == (&one.node, &one.gres_type))
            {
                let [own, theirs] = [one, other].map(|own| &devices[&(&own.node, own.job_id)]);
                assert_eq!(own, theirs, "{} and {} share a device, and not all", one.job_id, other.job_id);
                self.sets_shared += usize::from(own.len() > 1);
            }
        }
    }
}

/// Nobody who runs under the strict QOS is beside another user: his user cannot change it while he runs, and what he was decided on
/// when he waited under another was not released.
fn check_strict(occupants: &[Occupant], scan: &Scan) {
    let is_strict = |one: &Occupant| scan.jobs.get(&one.job_id).is_some_and(|job| job.qos == STRICT);
    for (at, one) in occupants.iter().enumerate() {
        for other in &occupants[at + 1..] {
            let is_beside = (&one.node, &one.gres_type) == (&other.node, &other.gres_type);
            let is_forbidden = one.uid != other.uid && (is_strict(one) || is_strict(other));
            assert!(
                !(is_beside && is_forbidden),
                "{} is beside {}, against the rules of a QOS",
                one.job_id,
                other.job_id
            );
        }
    }
}
