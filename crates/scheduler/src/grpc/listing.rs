//! Rows of the operator's answers from domain types: pure, and what a caller may not see is left out here. Names of workloads
//! are filled in afterwards (`naming`).

use super::auth::Caller;
use super::role;
use crate::job_rules::ByJob;
use crate::rules::{Rule, RuleOrigin};
use crate::scan::{Scan, held_reason, is_waiting, mark_of, workload_of};
use pillion_api as api;
use pillion_auth::Refused;
use pillion_core::decision::MemberState;
use pillion_core::device::Reading;
use pillion_core::health::DeviceFault;
use pillion_core::mark::Mark;
use pillion_core::metric::Metric;
use pillion_core::profile::WorkloadProfile;
use pillion_core::text::quoted;
use pillion_core::{
    DecisionId, GresTypes, NodeName, SlowdownRatio, SlurmJobId, UnixTime, UserId, WorkloadKey,
};
use pillion_pairing::Plan;
use pillion_pairing::mig::SliceRecord;
use pillion_slurm::{Job, JobState};
use pillion_store::{
    Account, Decision, Event, GroupBy, JobRecord, Member, ModelVersion, RunFilter, Score, Sums, Tenant,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Where text that is empty stands for none.
pub(super) fn some_text(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

/// A time; Slurm and the store write 1970 where there is none.
pub(super) fn known(time: UnixTime) -> Option<f64> {
    Some(time.seconds()).filter(|seconds| *seconds > 0.0)
}

/// A time that a request names; 0 = it names none.
pub(super) fn asked_time(seconds: f64) -> Option<UnixTime> {
    (seconds > 0.0).then(|| UnixTime::from_seconds(seconds))
}

/// A decision, as the caller may see it. `users` names the users of its jobs where known.
pub(super) fn decision(
    decision: &Decision,
    users: &BTreeMap<SlurmJobId, String>,
    caller: Caller,
) -> api::Decision {
    api::Decision {
        decision_id: decision.id.0,
        group_id: decision.group.0,
        state: decision.state.to_string(),
        node: decision.node.to_string(),
        gres_type: decision.gres_types.to_string(),
        device_model: decision.device_model.clone(),
        mechanism: decision.mechanism().to_string(),
        created_at_seconds: decision.created_at.seconds(),
        members: decision.members.iter().map(|one| member(one, users, caller)).collect(),
        gain: decision.gain,
        abandoned_reason: decision.abandoned_reason.clone(),
    }
}

/// A member of a decision, as the caller may see it.
pub(super) fn member(member: &Member, users: &BTreeMap<SlurmJobId, String>, caller: Caller) -> api::Member {
    let plan = &member.plan;
    if !caller.may_see(plan.uid) {
        // That somebody is there, and what is left for one's own job: no more.
        return api::Member {
            role: role::role_word(plan.role).to_owned(),
            state: member.state.to_string(),
            cap_fraction: plan.sharing.cap().map(f64::from),
            ccs_mode: plan.sharing.ccs_mode().map(u32::from),
            mig_slot: plan.sharing.mig_slot().map(String::from),
            shards: u32::from(plan.shards.count()),
            ..api::Member::default()
        };
    }
    api::Member {
        job_id: Some(plan.start.job_id.to_string()),
        restart_count: plan.start.restart_count,
        user: users.get(&plan.start.job_id).cloned(),
        workload: some_text(plan.workload.to_string()),
        role: role::role_of(plan.role, &plan.workload).to_owned(),
        state: member.state.to_string(),
        cap_fraction: plan.sharing.cap().map(f64::from),
        ccs_mode: plan.sharing.ccs_mode().map(u32::from),
        mig_slot: plan.sharing.mig_slot().map(String::from),
        shards: u32::from(plan.shards.count()),
        memory_limit_bytes: plan.sharing.memory_limit_bytes(),
        predicted_speed_fraction: plan.estimate.as_ref().map(|estimate| estimate.speed_fraction),
        predicted_speed_fraction_low: plan.estimate.as_ref().map(|estimate| estimate.speed_fraction_low),
        measured_speed_fraction: member.measured_speed_fraction,
        slowdown_ratio_max: Some(plan.slowdown_ratio_max),
        started_at_seconds: member.started_at.map(UnixTime::seconds),
        ended_at_seconds: member.ended_at.map(UnixTime::seconds),
        solo_duration_seconds: plan.solo_duration_seconds,
        energy_joules: member.energy_joules,
        workload_name: None,
    }
}

/// Every workload that a plan names.
pub(super) fn workloads_of(plan: &Plan) -> impl Iterator<Item = &WorkloadKey> {
    let members = plan.pairings.iter().flat_map(|pairing| &pairing.members);
    let explained = members.clone().map(|member| &member.explanation).chain(&plan.left_waiting);
    let candidates = explained.flat_map(|explanation| explanation.candidates.iter());
    members.map(|member| &member.workload).chain(candidates.map(|candidate| &candidate.workload))
}

/// A model: nothing in it is anybody's.
pub(super) fn model(model: ModelVersion) -> api::Model {
    api::Model {
        version: model.version,
        state: model.state.as_str().to_owned(),
        kind: model.kind,
        trained_at_seconds: model.trained_at.seconds(),
        observation_count: model.observation_count,
        outcome_count: model.score.outcome_count,
        candidate: model.score.candidate.map(model_score),
        incumbent: model.score.incumbent.map(model_score),
        incumbent_version: model.score.incumbent_version,
        reason: model.reason,
    }
}

fn model_score(score: Score) -> api::ModelScore {
    let Score { log_score_mean, error_mean, below_low_fraction } = score;
    api::ModelScore { log_score_mean, error_mean, below_low_fraction }
}

/// What is wrong with a device, as the caller may see it: details name who is on it, jobs of others and all.
pub(super) fn fault(fault: &DeviceFault, caller: Caller) -> DeviceFault {
    if caller.is_operator { fault.clone() } else { fault.for_everybody() }
}

/// What a device does.
pub(super) fn activity(reading: &Reading) -> api::Activity {
    api::Activity {
        sm_active_fraction: reading.metrics.fraction(Metric::SmActiveFraction).map(f64::from),
        gpu_busy_fraction: reading.metrics.fraction(Metric::GpuBusyFraction).map(f64::from),
        memory_bytes_used: reading.metrics.bytes(Metric::MemoryBytesUsed),
        power_watts: reading.metrics.get(Metric::PowerWatts),
    }
}

/// Something that happened to a job or a node.
pub(super) fn event_row(event: Event) -> api::Event {
    api::Event {
        at_seconds: event.at.seconds(),
        kind: event.kind.to_string(),
        job_id: event.job_id.map(|id| id.to_string()),
        node: event.node.map(|node| node.to_string()),
        detail: event.detail,
    }
}

/// The row of a job that does not wait any more.
pub(super) fn past_job(record: &JobRecord) -> api::QueueJob {
    let state = match record.ending {
        Some(ending) => ending.as_str().to_owned(),
        None if record.started_at.is_some() => "running".to_owned(),
        None => "waiting".to_owned(),
    };
    api::QueueJob {
        job_id: record.id.to_string(),
        user: record.user.clone(),
        account: record.account.clone(),
        partition: record.partition.clone(),
        workload: some_text(record.workload.to_string()),
        workload_name: None,
        submitted_at_seconds: known(record.submitted_at),
        starts_alone_at_seconds: None,
        state,
        reason: String::new(),
        slowdown_ratio_max: record.slowdown_ratio_max,
    }
}

/// Which runs a request means, and how they are put together; of others' only where the caller may see all.
pub(super) fn run_filter(
    request: api::AccountRequest,
    caller: Caller,
) -> Result<(RunFilter, GroupBy), tonic::Status> {
    let api::AccountRequest {
        since_seconds,
        until_seconds,
        user,
        account,
        partition,
        workload,
        nodes,
        group_by,
        utc_offset_seconds,
        scaling_runs_max: _,
    } = request;
    let uid = caller.only_uid()?;
    let grouping = GroupBy::parse(&group_by, utc_offset_seconds).ok_or_else(|| {
        tonic::Status::invalid_argument(format!(
            "'{}' is nothing to group by; allowed are user, account, partition, workload, node, instance and day",
            quoted(&group_by)
        ))
    })?;
    let filter = RunFilter {
        since: UnixTime::from_seconds(since_seconds),
        until: UnixTime::from_seconds(until_seconds),
        user: some_text(user),
        account: some_text(account),
        partition: some_text(partition),
        workload: some_text(workload),
        nodes: nodes.into_iter().map(NodeName::new).collect(),
        uid,
    };
    Ok((filter, grouping))
}

/// A group of runs.
pub(super) fn account_row(account: Account) -> api::AccountRow {
    let Account { key, sums } = account;
    let Sums {
        run_count,
        shared_run_count,
        gpu_seconds,
        shared_seconds,
        unmeasured_seconds,
        gpu_seconds_saved,
        energy_joules,
        energy_joules_saved,
        promises_kept,
        promises_broken,
        sent_back_run_count,
    } = sums;
    api::AccountRow {
        key,
        run_count,
        shared_run_count,
        gpu_seconds,
        shared_seconds,
        unmeasured_seconds,
        // Of less than nothing and nothing the sum is 0.0.
        gpu_seconds_saved: gpu_seconds_saved + 0.0,
        energy_joules,
        energy_joules_saved: energy_joules_saved + 0.0,
        promises_kept,
        promises_broken,
        sent_back_run_count,
        workload_name: None,
    }
}

pub(super) fn rule(rule: Rule) -> api::PolicyRule {
    let Rule { key, value, origin, meaning } = rule;
    let (origin, file, line) = match origin {
        RuleOrigin::Default => ("default", None, None),
        RuleOrigin::File { path, line } => ("file", Some(path), u32::try_from(line).ok()),
        RuleOrigin::BuiltIn => ("built-in", None, None),
        RuleOrigin::Agents => ("agents", None, None),
    };
    api::PolicyRule { key, value, origin: origin.to_owned(), file, line, meaning }
}

/// What the last plan said of each job that it left waiting.
pub(super) type Reasons = BTreeMap<SlurmJobId, Arc<str>>;

/// Jobs under management that Slurm has not started.
pub(super) fn managed_waiting(scan: &Scan) -> impl Iterator<Item = &Job> {
    scan.jobs.values().filter(|job| job.state == JobState::Pending && mark_of(job).is_some())
}

/// Who was not let in.
pub(super) fn refused(refused: Vec<Refused>) -> Vec<api::RefusedPeer> {
    let refused = refused.into_iter().map(|Refused { who, address, why, at, count }| api::RefusedPeer {
        who,
        address: address.to_string(),
        why,
        at_seconds: at.seconds(),
        count,
    });
    refused.collect()
}

/// Who looks, and what Slurm lets him see of others' jobs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shown {
    pub(super) caller: Caller,
    /// `PrivateData=jobs`: that others have jobs at all is not told.
    pub(super) hides_jobs: bool,
}

impl Shown {
    /// Whether he may know of a job of this user that it is there.
    pub(super) fn may_know_of(self, owner: UserId) -> bool {
        !self.hides_jobs || self.caller.may_see(owner)
    }
}

/// Jobs that wait for a decision or for Slurm to carry one out.
pub(super) fn queue(
    scan: &Scan,
    tenants: &[Tenant],
    reasons: &Reasons,
    by_job: ByJob<'_>,
    shown: Shown,
) -> Vec<api::QueueJob> {
    let placements: BTreeMap<SlurmJobId, Placement> =
        tenants.iter().map(|tenant| (tenant.job_id, Placement::from(tenant))).collect();
    let mut jobs: Vec<&Job> = managed_waiting(scan).collect();
    jobs.sort_by(|a, b| {
        b.priority.cmp(&a.priority).then(a.submitted_at.seconds().total_cmp(&b.submitted_at.seconds()))
    });
    let jobs = jobs.into_iter();
    jobs.filter_map(|job| queue_job(job, scan, placements.get(&job.id), reasons, by_job, shown)).collect()
}

/// The row of one job that waits, with the active decisions that name it.
pub(super) fn queue_row(
    job: &Job,
    scan: &Scan,
    decisions: &[Decision],
    reasons: &Reasons,
    by_job: ByJob<'_>,
    shown: Shown,
) -> Option<api::QueueJob> {
    let placement = decisions.iter().find_map(|decision| {
        let mut members = decision.members.iter();
        let member = members.find(|member| member.plan.start.job_id == job.id && member.state.is_active())?;
        Some(Placement {
            decision_id: decision.id,
            node: decision.node.clone(),
            gres_types: decision.gres_types.clone(),
            state: member.state,
        })
    });
    queue_job(job, scan, placement.as_ref(), reasons, by_job, shown)
}

/// Where a job is to start, or starts, by a decision of ours.
struct Placement {
    decision_id: DecisionId,
    node: NodeName,
    gres_types: GresTypes,
    state: MemberState,
}

impl From<&Tenant> for Placement {
    fn from(tenant: &Tenant) -> Self {
        Self {
            decision_id: tenant.decision_id,
            node: tenant.node.clone(),
            gres_types: tenant.gres_types.clone(),
            state: tenant.state,
        }
    }
}

fn queue_job(
    job: &Job,
    scan: &Scan,
    placement: Option<&Placement>,
    reasons: &Reasons,
    by_job: ByJob<'_>,
    shown: Shown,
) -> Option<api::QueueJob> {
    if !shown.may_know_of(job.uid) {
        return None;
    }
    let is_visible = shown.caller.may_see(job.uid);
    let mark = mark_of(job)?;
    let (state, reason) = match placement {
        Some(Placement { decision_id, node, gres_types: gres_type, state }) => {
            (state.to_string(), format!("decision {decision_id} on {node} {gres_type}"))
        }
        None if mark.alone && mark.has_whole_devices() => {
            ("alone".to_owned(), "starts as soon as Slurm finds its GPUs free".to_owned())
        }
        None if mark.alone => ("alone".to_owned(), "runs alone as soon as Slurm finds a free GPU".to_owned()),
        None if is_waiting(job) => {
            let reason = held_reason(job, scan).or_else(|| reasons.get(&job.id).map(ToString::to_string));
            ("waiting".to_owned(), reason.unwrap_or_else(|| "not looked at yet".to_owned()))
        }
        None => ("restarted".to_owned(), "is being put back to its own request".to_owned()),
    };
    Some(api::QueueJob {
        job_id: job.id.to_string(),
        user: job.user.to_string(),
        account: job.account.to_string(),
        partition: job.partition.to_string(),
        workload: is_visible.then(|| workload_of(job, mark).to_string()),
        workload_name: None,
        submitted_at_seconds: known(job.submitted_at),
        starts_alone_at_seconds: job.eligible_at.and_then(known),
        state,
        reason: if is_visible { reason } else { String::new() },
        slowdown_ratio_max: promised(mark, by_job.promise(job), by_job.policy.share_wide),
    })
}

/// Who shares with nobody is promised nothing. `shares_wide`: jobs of several devices of a node share them.
fn promised(mark: &Mark, of_site: SlowdownRatio, shares_wide: bool) -> Option<f64> {
    let may_share = !mark.has_whole_devices() || shares_wide && !mark.plain && mark.nodes.is_none();
    may_share.then(|| mark.slowdown_ratio_max.unwrap_or_else(|| of_site.value()))
}

/// A profile, with what became of its workload's runs in instances.
pub(super) fn profile_with(profile: &WorkloadProfile, slices: &[SliceRecord]) -> api::Profile {
    let of_it = |record: &&SliceRecord| {
        (&record.workload, &record.device_model) == (&profile.workload, &profile.device_model)
    };
    let slices = slices.iter().filter(of_it).map(|record| api::ProfileSlice {
        profile: record.profile.to_string(),
        completed_count: record.completed_count,
        out_of_memory_count: record.out_of_memory_count,
        speed_fraction: record.speed_fraction,
    });
    api::Profile { slices: slices.collect(), ..api::Profile::from(profile) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{decision as a_decision, member as a_member};
    use pillion_core::decision::MemberState;
    use pillion_core::{JobStart, WorkloadKey};

    /// A pair of alice (1000) and bob (1001).
    fn pair() -> Decision {
        let host = a_member(MemberState::Running);
        let mut joiner = host.clone();
        joiner.plan.start = JobStart { job_id: SlurmJobId::plain(8), restart_count: 0 };
        joiner.plan.uid = UserId(1001);
        joiner.plan.workload = WorkloadKey::new("bob/secret");
        Decision { members: vec![host.clone(), joiner], ..a_decision(&host) }
    }

    fn shown(uid: Option<u32>, is_operator: bool) -> Vec<api::Member> {
        let users =
            [(SlurmJobId::plain(7), "alice".to_owned()), (SlurmJobId::plain(8), "bob".to_owned())].into();
        decision(&pair(), &users, Caller { uid: uid.map(UserId), is_operator }).members
    }

    #[test]
    fn who_shares_with_nobody_is_promised_nothing() {
        let site = SlowdownRatio::try_promise(1.25).unwrap();
        let of = |text: &str| promised(&Mark::parse(text).unwrap().unwrap(), site, false);
        assert_eq!(of("pillion1;w=a;s=1.1"), Some(1.1));
        assert_eq!(of("pillion1;w=a"), Some(1.25));
        for text in ["pillion2;w=a;s=1.1;at=g0,g1", "pillion2;w=a;plain=1", "pillion2;w=a;nodes=2"] {
            assert_eq!(of(text), None, "{text}");
        }
        let shares_wide = |text: &str| promised(&Mark::parse(text).unwrap().unwrap(), site, true);
        assert_eq!(shares_wide("pillion2;w=a;s=1.1;at=g0,g1"), Some(1.1));
        for text in ["pillion2;w=a;plain=1;at=g0,g1", "pillion2;w=a;nodes=2;at=g0,g1"] {
            assert_eq!(shares_wide(text), None, "{text}");
        }
    }

    #[test]
    fn a_user_sees_of_his_partner_neither_job_nor_name_nor_workload() {
        let members = shown(Some(1000), false);
        assert_eq!((members[0].user.as_deref(), members[0].job_id.as_deref()), (Some("alice"), Some("7")));
        let partner = format!("{:?}", members[1]);
        assert!(!partner.contains("bob") && !partner.contains("\"8\""), "{partner}");
        assert_eq!(members[1].energy_joules, None);
        let limits =
            (members[1].slowdown_ratio_max, members[1].solo_duration_seconds, members[1].memory_limit_bytes);
        assert_eq!(limits, (None, None, None));
    }

    #[test]
    fn where_slurm_keeps_jobs_private_a_user_sees_his_own_waiting_jobs_only() {
        use crate::testing::{job, scan};
        let waiting = job(JobState::Pending);
        let scan = scan(Some(waiting.clone()), pillion_slurm::NodeAvailability::Up);
        let count = |uid: u32, is_operator, hides_jobs| {
            let shown = Shown { caller: Caller { uid: Some(UserId(uid)), is_operator }, hides_jobs };
            queue(&scan, &[], &Reasons::new(), crate::context::Settings::default().by_job(), shown).len()
        };
        let (owner, other) = (waiting.uid.0, waiting.uid.0 + 1);
        assert_eq!((count(owner, false, true), count(other, false, true), count(0, true, true)), (1, 0, 1));
        assert_eq!(count(other, false, false), 1, "as squeue shows it");
    }

    #[test]
    fn an_operator_sees_both_and_a_stranger_none() {
        assert_eq!(shown(None, true)[1].workload.as_deref(), Some("bob/secret"));
        let is_hidden = |member: &api::Member| member.workload.is_none() && member.job_id.is_none();
        assert!(shown(None, false).iter().all(is_hidden));
    }

    #[test]
    fn what_is_lost_by_nothing_has_no_sign() {
        let sums = Sums { gpu_seconds_saved: -0.0, energy_joules_saved: -0.0, ..Sums::default() };
        let row = account_row(Account { key: String::new(), sums });
        assert!(row.gpu_seconds_saved.is_sign_positive() && row.energy_joules_saved.is_sign_positive());
    }
}
