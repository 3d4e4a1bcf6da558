//! One row of each table by who writes it in a scheduler, and many like it: what differs between rows is told apart, so that
//! indexes are as large as they are.

use crate::fixtures::{
    account, at, commit, decision, ended_job, estimate, explanation, full_member, gres, node, profile, run,
    start, summary, summary_report,
};
use crate::{faults, learning, observed, shadow};
use pillion_core::health::{DeviceFault, FaultKind};
use pillion_core::name::NameSource;
use pillion_core::profile::LessonKind;
use pillion_core::report::{ActivityMeans, JobSummary, Report, ReportBody};
use pillion_core::shadow::{ShadowFit, ShadowOutcome};
use pillion_core::{SlurmJobId, UserId, WorkloadKey, WorkloadName};
use pillion_pairing::{Candidate, Explanation, Reason, SpeedEstimate};
use pillion_slurm::Ending;
use pillion_store::postgres::PgStore;
use pillion_store::prelude::*;
use pillion_store::{
    CreditLoss, Lesson, ModelState, Naming, NewMember, NewModel, ObservedJob, Requeue, RequeueOutcome,
    RunAccount, ShadowDecision, SliceLesson,
};
use std::sync::Arc;

/// The job whose rows are copied: none of [`super::ROWS`].
const ID: u32 = 9_999;

/// Tables with what each copy `n` of a row has of its own, a decision before its members. `:at` is a time, `:key` one of 24
/// workloads, `:name` a workload that no other row has.
pub(super) const COPIED: [(&str, &str); 17] = [
    ("pairing_decision", "'decision_id', n, 'parent_revision', n, 'state', 'ended', 'created_at', :at"),
    (
        "pairing_member",
        "'decision_id', n, 'job_id', n::text, 'workload', :key, 'state', 'ended', 'ended_at', :at,
        'measured_speed_fraction', 0.5 + 1.0 / n, 'energy_joules', 1e6 + n",
    ),
    ("job", "'job_id', n::text, 'workload', :key, 'started_at', :at, 'ended_at', :at"),
    ("job_run", "'job_id', n::text, 'started_at', :at, 'ended_at', :at, 'is_judged', true"),
    ("run_account", "'job_id', n::text, 'workload', :key, 'ended_at', :at, 'mig_profile', null"),
    ("account_hour", "'hour', date_trunc('hour', now()) + n * interval '1 hour', 'workload', :key"),
    ("observed_job", "'job_id', n::text, 'inner_id', n, 'started_at', :at, 'ended_at', :at"),
    ("observed_run", "'job_id', n::text, 'started_at', :at, 'ended_at', :at"),
    ("shadow_decision", "'job_id', n::text, 'group_start', n || '+0', 'decided_at', :at, 'closed_at', :at"),
    ("use_beyond", "'uid', n, 'measured_at', :at"),
    ("credit_loss", "'loss_id', n, 'job_id', n::text, 'lost_at', :at"),
    ("job_requeue", "'job_id', n::text, 'decided_at', :at"),
    ("device_fault", "'since', :at, 'cleared_at', :at"),
    ("slice", "'workload', :name, 'measured_at', :at"),
    ("workload_profile", "'workload', :name"),
    ("workload_name", "'workload', :name, 'name', 'train-' || n"),
    // All but the newest have lost their bodies.
    ("model_version", "'version', n, 'trained_at', :at, 'body', null"),
];

/// Fills these tables.
pub(super) async fn fill(store: &PgStore) {
    write_history(store).await;
    write_observed(store).await;
    write_seldom(store).await;
    for (table, own) in COPIED {
        copy(store, table, own).await;
    }
}

async fn copy(store: &PgStore, table: &str, own: &str) {
    // A column that the database makes of others takes no value.
    let names = "select column_name::text from information_schema.columns
        where table_schema = 'public' and table_name = $1 and is_generated = 'NEVER' order by ordinal_position";
    let columns: Vec<String> =
        sqlx::query_scalar(names).bind(table).fetch_all(store.pool()).await.expect("columns");
    let own = own
        .replace(":at", "now() + n * interval '1 second'")
        .replace(":key", "'alice/' || left(md5((n % 24)::text), 16)")
        .replace(":name", "'alice/' || left(md5(n::text), 16)");
    let insert = format!(
        "insert into {table} ({}) overriding system value select made.{} from {table} as one
        cross join {} cross join lateral jsonb_populate_record(one, jsonb_build_object({own})) as made",
        columns.join(", "),
        columns.join(", made."),
        super::ROWS
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(insert)).execute(store.pool()).await.expect(table);
}

/// A member with what was considered: the partner that it has, and three others.
fn judged() -> NewMember {
    let terms = [("prior".into(), 0.25), ("workload".into(), -0.008), ("memory-pair".into(), -0.013)];
    let foretold =
        |speed_fraction| SpeedEstimate { terms: Arc::new(terms.clone().into()), ..estimate(speed_fraction) };
    let candidate = |number: u32, excluded_by: Option<Reason>| Candidate {
        partner: SlurmJobId::plain(ID + number),
        workload: WorkloadKey::new("bob/4f1e0c6b9d2a7358"),
        is_running: true,
        cap_fractions: (None, None),
        own: Some(foretold(0.81)),
        other: Some(foretold(0.93)),
        gain: Some(0.74),
        chosen: excluded_by.is_none(),
        excluded_by,
    };
    let unfit =
        Candidate { own: None, other: None, gain: None, ..candidate(4, Some(Reason::MemoryDoesNotFit)) };
    let text = "shares n1 g1 from the start: both are expected above their promise";
    let candidates =
        [candidate(1, None), candidate(2, Some(Reason::Held)), candidate(3, Some(Reason::Held)), unfit];
    let explanation = Explanation { candidates: candidates.into(), ..explanation(ID, Reason::Paired, text) };
    NewMember { estimate: Some(foretold(0.81)), explanation: Some(explanation), ..full_member(ID) }
}

/// Of a run with all that an agent reads while it is alone.
fn measured() -> JobSummary {
    JobSummary { solo_means: Some(ActivityMeans(profile("alice/w").profile.metrics)), ..summary(ID) }
}

/// A managed job, its decision, its run, and what was learnt of that.
async fn write_history(store: &PgStore) {
    store.record_jobs(&[ended_job(ID)], at(80)).await.expect("recorded");
    let decisions = commit(store, &[decision(vec![judged()])]).await;
    run(store, decisions[0], ID).await;
    store.ingest(&node(), "j", &summary_report(1, measured())).await.expect("stored");
    let slice = SliceLesson {
        device_model: "h100".to_owned(),
        profile: "1g.10gb".parse().expect("a size"),
        memory_bytes: Some(10 << 30),
        has_completed: true,
        ran_out_of_memory: false,
        speed_fraction: Some(0.5),
    };
    let account = RunAccount { use_beyond_fraction: Some(0.125), slice: Some(slice), ..account(ID) };
    let lesson = Lesson::from(LessonKind::Alone);
    store.profile_run(start(ID), &gres(), &account, &lesson, None).await.expect("profiled");
}

/// A start in an observed partition, its run, what would have been decided of it, and what was learnt of that.
async fn write_observed(store: &PgStore) {
    let ended =
        ObservedJob { ended_at: Some(at(70)), ending: Some(Ending::Completed), ..observed::observed(ID, 10) };
    store.record_observed(&[ended]).await.expect("recorded");
    let body = ReportBody::ObservedRun(Box::new(measured()));
    store.ingest(&node(), "j", &Report { sequence: 2, body }).await.expect("stored");
    let lesson = Lesson::from(LessonKind::Alone);
    store.learn_observed(start(ID), &lesson, Some(&profile("alice/w"))).await.expect("learnt");
    let decision = ShadowDecision { member: judged(), ..shadow::decision(ID, 10, Some(1)) };
    store.record_shadow(&[decision]).await.expect("recorded");
    let told = shadow::score(ShadowOutcome::Scored, Some(shadow::beside(ShadowFit::Fits)));
    store.close_shadow(&[(start(ID), told)], at(90)).await.expect("closed");
}

/// What has a row for a fault, a restart, a loss, a name or a training.
async fn write_seldom(store: &PgStore) {
    let event = faults::event("a-test", 1);
    let reason = "it ended with signal 11 while job 10001 was beside it, and g1 had Xid 31 then".to_owned();
    let requeue = Requeue { reason, ..faults::requeue(1, 0) };
    assert!(store.intend_requeue(&requeue, &event).await.expect("kept"));
    let outcome = RequeueOutcome::Requeued;
    assert!(store.settle_requeue(requeue.start, outcome, &event).await.expect("settled"));
    let fault =
        DeviceFault { kind: FaultKind::MpsFault, detail: "Xid 31 of pid 4711".to_owned(), since: at(5) };
    let condition = faults::condition("g1", vec![fault]);
    store.record_conditions(&node(), &[condition], at(5)).await.expect("recorded");
    let loss = CreditLoss {
        uid: UserId(1000),
        lost_at: at(5),
        start: start(ID),
        node: node(),
        reason: "it used 0.61 of g1's memory bandwidth, and its profile says 0.20".to_owned(),
    };
    assert!(store.lose_credit(&loss, &event).await.expect("kept"));
    let naming = Naming {
        workload: WorkloadKey::new("alice/w"),
        uid: UserId(1000),
        name: WorkloadName::safe("train").expect("a name"),
        source: NameSource::Job,
    };
    store.name_workloads(&[naming], at(3)).await.expect("named");
    let reason =
        "on 40 outcomes held out, its log score is 1.21 against 1.18; and it was trained anew".to_owned();
    let model = NewModel { reason, ..learning::model(ModelState::Rejected, 1) };
    assert!(store.add_model(&model, None).await.expect("kept").is_some());
}
