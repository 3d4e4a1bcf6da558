//! Everything that agents and schedulers say to each other, from bytes to words and back.

use crate::fuzz;
use crate::values::bytes_like;
use pillion_core::device::{DeviceDescription, Reading, TenantUse};
use pillion_core::fault::{FaultSigns, MemorySample, StderrWords, XidSeen};
use pillion_core::health::{DeviceCondition, DeviceFault, FaultKind};
use pillion_core::metric::{Metric, Metrics};
use pillion_core::report::{
    ActivityMeans, AgentHello, DeviceSample, DeviceSamples, EndOrder, EndOutcome, EndResult, FromAgent,
    JobSummary, Launch, ProgressPart, Report, ReportBody, ShareResult, ToAgent,
};
use pillion_core::setup::{NodeSetup, SetupFault, SetupFaultKind};
use pillion_core::share::Share;
use pillion_core::share::Sharing;
use pillion_core::{DecisionId, Fraction, GresType, JobStart, Shards, SlurmJobId, UnixTime, UserId};
use pillion_proto::v1 as wire;
use prost::Message as _;
use std::collections::BTreeMap;

const JOB: JobStart = JobStart { job_id: SlurmJobId::array_task(33, 2), restart_count: 1 };

fn at(seconds: u64) -> UnixTime {
    UnixTime::from_epoch(1_795_000_000 + seconds)
}

fn g0() -> GresType {
    GresType::new("g0")
}

fn condition() -> DeviceCondition {
    let fault = DeviceFault { kind: FaultKind::MpsDied, detail: "client 7".into(), since: at(1) };
    DeviceCondition {
        gres_type: g0(),
        faults: vec![fault],
        sources: BTreeMap::new(),
        instances_empty: Vec::new(),
    }
}

fn hello() -> FromAgent {
    let device = DeviceDescription { memory_bytes: 1 << 37, gres_type: g0(), ..pillion_test_kit::device(0) };
    let fault = SetupFault { kind: SetupFaultKind::NoDevices, detail: "none".into() };
    FromAgent::Hello(AgentHello {
        journal_id: "0123".into(),
        devices: vec![device],
        sent_at: at(0),
        decision_ids: vec![DecisionId(7)],
        conditions: vec![condition()],
        setup: Some(NodeSetup { faults: vec![fault], ..NodeSetup::default() }),
        ..pillion_test_kit::hello("n1")
    })
}

fn summary() -> ReportBody {
    let memory =
        MemorySample { at: at(9), bytes: 1 << 37, bytes_used: Some(1 << 36), process_bytes_max: None };
    ReportBody::JobSummary(Box::new(JobSummary {
        start: JOB,
        gres_type: g0(),
        started_at: at(0),
        ended_at: at(10),
        shared_seconds: 4.0,
        shared_device_seconds: Some(2.0),
        memory_bytes_peak: Some(1 << 33),
        process_count_peak: 2,
        process_memory_bytes_peak: Some(1 << 30),
        energy_joules: Some(1234.5),
        solo: ProgressPart { progress: Some(30.0), seconds: 6.0 },
        shared: ProgressPart { progress: None, seconds: 0.0 },
        solo_means: Some(ActivityMeans(Metrics::from([
            (Metric::PowerWatts, 290.0),
            (Metric::SmActiveFraction, 0.5),
        ]))),
        solo_sample_count: 6,
        neighbours: vec![JobStart { job_id: SlurmJobId::plain(34), restart_count: 0 }],
        signs: Some(FaultSigns {
            memory: vec![memory],
            process_bytes_limit: Some(1 << 34),
            was_over_limit: true,
            stderr: Some(StderrWords::Vague),
            xids: vec![XidSeen { at: at(9), code: 79, is_own: Some(true) }],
        }),
    }))
}

fn samples() -> ReportBody {
    let tenant = TenantUse {
        job_id: JOB.job_id,
        restart_count: 1,
        memory_bytes: Some(1 << 33),
        process_count: 2,
        progress: Some(7.0),
    };
    let reading = Reading::from([(Metric::PowerWatts, 290.0), (Metric::SmActiveFraction, 1.0)]);
    ReportBody::Samples(DeviceSamples {
        recorded_at: at(5),
        samples: vec![DeviceSample { gres_type: g0(), reading, tenants: vec![tenant] }],
    })
}

/// As of an agent that observes.
fn observed_run() -> ReportBody {
    let ReportBody::JobSummary(run) = summary() else { unreachable!("it is one") };
    ReportBody::ObservedRun(run)
}

fn launch() -> ReportBody {
    ReportBody::Launch(Launch {
        at: at(0),
        start: JOB,
        step_id: 0xffff_fffb,
        decision_id: Some(DecisionId(7)),
        gres_types: vec![g0()],
        profile_name: Some("bert".into()),
    })
}

fn from_agents() -> Vec<FromAgent> {
    let report = |body| FromAgent::Report(Report { sequence: 5, body });
    let result = ShareResult {
        decision_id: DecisionId(7),
        start: JOB,
        error: Some("no such device".into()),
        revoked: false,
    };
    vec![
        hello(),
        report(summary()),
        report(samples()),
        report(launch()),
        report(observed_run()),
        FromAgent::ShareResult(result),
        FromAgent::Conditions(vec![condition()]),
        FromAgent::EndResult(EndResult { start: JOB, outcome: EndOutcome::Ended { client_count: 2 } }),
    ]
}

fn to_agents() -> Vec<ToAgent> {
    let share = Share {
        decision_id: DecisionId(7),
        start: JOB,
        uid: UserId(1000),
        gres_types: g0().into(),
        sharing: Sharing::Mps { cap: Some(Fraction::clamped(0.6)), memory_limit_bytes: Some(1 << 33) },
        shards: Shards::try_new(60).unwrap(),
        memory_bytes: None,
        is_session: false,
        is_plain: false,
    };
    let revoke = ToAgent::Revoke { decision_id: DecisionId(7), start: JOB };
    let end = ToAgent::End { start: JOB, order: EndOrder::End { delay_seconds: 28.0 } };
    vec![ToAgent::Ack(5), ToAgent::Prepare(share), revoke, ToAgent::Poke, end]
}

#[test]
fn what_agents_say() {
    let examples = from_agents().into_iter().map(|said| wire::AgentMessage::from(said).encode_to_vec());
    fuzz("agents", &bytes_like(examples.collect()), |bytes| {
        let Ok(message) = wire::AgentMessage::decode(bytes.as_slice()) else { return };
        let Ok(said) = FromAgent::try_from(message) else { return };
        let again = FromAgent::try_from(wire::AgentMessage::from(said.clone()));
        assert_eq!(again.ok(), Some(said), "what was believed can be said again");
    });
}

#[test]
fn what_schedulers_say() {
    let examples = to_agents().into_iter().map(|said| wire::SchedulerMessage::from(said).encode_to_vec());
    fuzz("schedulers", &bytes_like(examples.collect()), |bytes| {
        let Ok(message) = wire::SchedulerMessage::decode(bytes.as_slice()) else { return };
        let Ok(said) = ToAgent::try_from(message) else { return };
        let again = ToAgent::try_from(wire::SchedulerMessage::from(said.clone()));
        assert_eq!(again.ok(), Some(said), "what was believed can be said again");
    });
}
