//! Every message survives the wire, bytes included, and what cannot be is refused with a sentence that names the field.

use pillion_core::device::{DeviceDescription, Mechanism, MigInstance, MigPlacement, Reading, TenantUse};
use pillion_core::fault::{FaultSigns, MemorySample, StderrWords, XidSeen};
use pillion_core::health::{DeviceCondition, DeviceFault, FaultKind};
use pillion_core::link::Link;
use pillion_core::metric::{Measured, Metric, MetricSource, Metrics, Throttle, Unit};
use pillion_core::mig::{Geometry, Slot};
use pillion_core::report::{
    ActivityMeans, AgentHello, DeviceSample, DeviceSamples, END_DELAY_SECONDS_MAX, EndOrder, EndOutcome,
    EndResult, FromAgent, JobSummary, Launch, ProgressPart, Report, ReportBody, ShareResult, ToAgent,
};
use pillion_core::setup::{LoadedPlugin, NodeSetup, SetupFault, SetupFaultKind};
use pillion_core::share::{Share, Sharing};
use pillion_core::{
    DecisionId, DeviceUuid, Fraction, GresType, JobStart, NodeName, Shards, SlurmJobId, UnixTime, UserId,
};
use pillion_proto::v1 as wire;
use proptest::option;
use proptest::prelude::*;
use prost::Message as _;
use std::collections::{BTreeMap, BTreeSet};

fn starts() -> impl Strategy<Value = JobStart> {
    (1..=u32::MAX, option::of(any::<u32>()), any::<u32>())
        .prop_map(|(id, task, restart_count)| JobStart { job_id: SlurmJobId { id, task }, restart_count })
}

fn quantities() -> impl Strategy<Value = f64> {
    prop_oneof![Just(0.0), 0.0..1e15]
}

fn fractions() -> impl Strategy<Value = Fraction> {
    (0.0..=1.0).prop_map(Fraction::clamped)
}

fn names() -> impl Strategy<Value = String> {
    "[a-z0-9._-]{1,12}"
}

fn throttles() -> impl Strategy<Value = BTreeSet<Throttle>> {
    let all = [Throttle::PowerLimit, Throttle::Heat, Throttle::PowerBrake, Throttle::Setting];
    prop::collection::btree_set(prop::sample::select(all.to_vec()), 0..=4)
}

fn sources() -> impl Strategy<Value = MetricSource> {
    prop::sample::select(MetricSource::ALL.to_vec())
}

/// A value that its metric can have.
fn values_of(metric: Metric) -> BoxedStrategy<f64> {
    match metric.unit() {
        Unit::Fraction => (0.0..=1.0).boxed(),
        Unit::Bytes => (0..1_u32 << 31).prop_map(f64::from).boxed(),
        Unit::Joules | Unit::Watts | Unit::BytesPerSecond | Unit::Hertz => quantities().boxed(),
    }
}

fn metrics_of(all: Vec<Metric>) -> BoxedStrategy<Metrics> {
    let values: Vec<_> =
        all.iter().map(|metric| (option::of(values_of(*metric)), option::of(sources()))).collect();
    let metrics = move |values: Vec<(Option<f64>, Option<MetricSource>)>| {
        let mut metrics = Metrics::default();
        for (metric, (value, source)) in all.iter().zip(values) {
            if let Some(value) = value {
                metrics.put(*metric, Measured { value, source });
            }
        }
        metrics
    };
    values.prop_map(metrics).boxed()
}

fn readings() -> impl Strategy<Value = Reading> {
    // What holds the clock down has a value of its own.
    let all = Metric::ALL.into_iter().filter(|metric| *metric != Metric::Throttles).collect();
    (metrics_of(all), option::of(throttles())).prop_map(|(metrics, throttles)| {
        let mut reading = Reading::from(metrics);
        if let Some(throttles) = throttles {
            reading.set_throttles(throttles);
            reading.metrics.tag_untagged(MetricSource::Sysman);
        }
        reading
    })
}

fn means() -> impl Strategy<Value = ActivityMeans> {
    let all = Metric::ALL.into_iter().filter(|metric| metric.mean_word().is_some()).collect();
    metrics_of(all).prop_map(ActivityMeans)
}

prop_compose! {
    fn tenants()(
        start in starts(), memory_bytes in any::<Option<u64>>(), process_count in any::<u32>(), progress in option::of(quantities()),
    ) -> TenantUse {
        TenantUse { job_id: start.job_id, restart_count: start.restart_count, memory_bytes, process_count, progress }
    }
}

prop_compose! {
    fn samples()(
        at in quantities(),
        samples in prop::collection::vec((names(), readings(), prop::collection::vec(tenants(), 0..3)), 0..4),
    ) -> DeviceSamples {
        let samples = samples
            .into_iter()
            .map(|(name, reading, tenants)| DeviceSample { gres_type: GresType::new(name), reading, tenants })
            .collect();
        DeviceSamples { recorded_at: UnixTime::from_seconds(at), samples }
    }
}

fn parts() -> impl Strategy<Value = ProgressPart> {
    (option::of(quantities()), quantities())
        .prop_map(|(progress, seconds)| ProgressPart { progress, seconds })
}

prop_compose! {
    fn signs()(
        memory in prop::collection::vec((quantities(), any::<u64>(), any::<Option<u64>>(), any::<Option<u64>>()), 0..3),
        (process_bytes_limit, was_over_limit) in (any::<Option<u64>>(), any::<bool>()),
        stderr in option::of(prop::sample::select(vec![StderrWords::Silent, StderrWords::Vague, StderrWords::Sure])),
        xids in prop::collection::vec((quantities(), any::<u64>(), any::<Option<bool>>()), 0..3),
    ) -> FaultSigns {
        let sample = |(at, bytes, bytes_used, process_bytes_max)| {
            MemorySample { at: UnixTime::from_seconds(at), bytes, bytes_used, process_bytes_max }
        };
        let xid = |(at, code, is_own)| XidSeen { at: UnixTime::from_seconds(at), code, is_own };
        FaultSigns {
            memory: memory.into_iter().map(sample).collect(), process_bytes_limit, was_over_limit, stderr,
            xids: xids.into_iter().map(xid).collect(),
        }
    }
}

prop_compose! {
    fn summaries()(
        (start, gres_type, started, ended) in (starts(), names(), quantities(), quantities()),
        (shared_seconds, memory_bytes_peak, process_count_peak) in (quantities(), any::<Option<u64>>(), any::<u32>()),
        process_memory_bytes_peak in any::<Option<u64>>(),
        (energy_joules, solo, shared) in (option::of(quantities()), parts(), parts()),
        shared_device_seconds in option::of(quantities()),
        (solo_means, solo_sample_count) in (option::of(means()), any::<u32>()),
        (neighbours, signs) in (prop::collection::vec(starts(), 0..4), option::of(signs())),
    ) -> JobSummary {
        JobSummary {
            start, gres_type: GresType::new(gres_type), started_at: UnixTime::from_seconds(started),
            ended_at: UnixTime::from_seconds(ended), shared_seconds, shared_device_seconds, memory_bytes_peak,
            process_count_peak, process_memory_bytes_peak, energy_joules,
            solo, shared, solo_means, solo_sample_count, neighbours, signs,
        }
    }
}

prop_compose! {
    fn launches()(
        at in quantities(), start in starts(), step_id in any::<u32>(), decision in any::<Option<u64>>(),
        gres in prop::collection::vec(names(), 0..3), profile_name in prop::option::of("[A-Za-z0-9._-]{1,64}"),
    ) -> Launch {
        let (gres_types, decision_id) = (gres.into_iter().map(GresType::new).collect(), decision.map(DecisionId));
        Launch { at: UnixTime::from_seconds(at), start, step_id, decision_id, gres_types, profile_name }
    }
}

fn reports() -> impl Strategy<Value = Report> {
    let bodies = prop_oneof![
        samples().prop_map(ReportBody::Samples),
        summaries().prop_map(|summary| ReportBody::JobSummary(Box::new(summary))),
        launches().prop_map(ReportBody::Launch),
        summaries().prop_map(|run| ReportBody::ObservedRun(Box::new(run))),
    ];
    (1..=u64::MAX, bodies).prop_map(|(sequence, body)| Report { sequence, body })
}

fn mechanisms() -> impl Strategy<Value = Mechanism> {
    prop_oneof![Just(Mechanism::Mps), Just(Mechanism::Ccs), Just(Mechanism::TimeSliced)]
}

fn fault_kinds() -> impl Strategy<Value = FaultKind> {
    use FaultKind::{
        Divided, Gone, Held, MetricLost, ModeHeld, MpsDied, MpsFault, NoMechanism, NoPartitions, OneUser,
        Other, Overused, Unreadable,
    };
    prop::sample::select(vec![
        Divided,
        Gone,
        Held,
        MetricLost,
        ModeHeld,
        MpsDied,
        MpsFault,
        NoMechanism,
        NoPartitions,
        OneUser,
        Other,
        Overused,
        Unreadable,
    ])
}

prop_compose! {
    fn conditions()(
        gres_type in names(),
        faults in prop::collection::vec((fault_kinds(), "[a-zäö:' ]{0,8}", quantities()), 0..3),
        reading in readings(),
        instances_empty in prop::collection::vec(slots(), 0..3),
    ) -> DeviceCondition {
        let fault = |(kind, detail, since)| DeviceFault { kind, detail, since: UnixTime::from_seconds(since) };
        let faults = faults.into_iter().map(fault).collect();
        DeviceCondition { gres_type: GresType::new(gres_type), faults, sources: reading.metrics.sources(), instances_empty }
    }
}

prop_compose! {
    fn setups()(
        faults in prop::collection::vec((any::<bool>(), "[a-z ]{0,8}"), 0..3),
        plugins in prop::collection::vec((names(), option::of("[0-9.]{1,5}"), option::of(names())), 0..3),
    ) -> NodeSetup {
        let kind = |is_open| if is_open { SetupFaultKind::DirectoryOpen } else { SetupFaultKind::NoMps };
        let fault = |(is_open, detail)| SetupFault { kind: kind(is_open), detail };
        let plugin = |(path, built_for, error)| LoadedPlugin { path, built_for, error };
        NodeSetup {
            faults: faults.into_iter().map(fault).collect(),
            plugins: plugins.into_iter().map(plugin).collect(),
        }
    }
}

prop_compose! {
    fn instances()(
        (uuid, profile) in (names(), names()),
        (gpu_instance_id, compute_instance_id, sm_count, memory_bytes) in any::<(u32, u32, u32, u64)>(),
        placement in option::of(any::<(u32, u32)>()),
    ) -> MigInstance {
        MigInstance {
            uuid: DeviceUuid::new(uuid), gpu_instance_id, compute_instance_id, profile, sm_count, memory_bytes,
            placement: placement.map(|(start, size)| MigPlacement { start, size }),
        }
    }
}

/// What a device can be cut into; of one that is known, or of a driver that says fewer sizes.
fn slots() -> impl Strategy<Value = Slot> {
    let slots = ["1g.10gb@6", "3g.40gb@4", "7g.80gb@0"];
    prop::sample::select(slots.to_vec()).prop_map(|slot| slot.parse().expect("an instance"))
}

fn geometries() -> impl Strategy<Value = Geometry> {
    let known: Vec<&str> = Geometry::models().collect();
    (prop::sample::select(known), 1_usize..8).prop_map(|(model, count)| {
        let sizes = Geometry::of_model(model).expect("it is known").sizes();
        Geometry::try_new(sizes[..count.min(sizes.len())].to_vec()).expect("a part of one")
    })
}

fn links() -> impl Strategy<Value = BTreeMap<u32, Link>> {
    prop::collection::btree_map(any::<u32>(), prop::sample::select(Link::ALL.to_vec()), 0..3)
}

prop_compose! {
    fn hellos()(
        (protocol_version, node, agent_version, journal_id) in (any::<u32>(), names(), "[0-9a-z. +-]{0,8}", names()),
        devices in prop::collection::vec(
            (
                any::<u32>(), names(), names(), any::<u64>(), names(), mechanisms(),
                option::of(prop::collection::vec(instances(), 0..3)), option::of(geometries()), links(),
            ),
            0..4,
        ),
        (sent, decisions) in (quantities(), prop::collection::vec(any::<u64>(), 0..3)),
        conditions in prop::collection::vec(conditions(), 0..3),
        (setup, observes) in (option::of(setups()), any::<bool>()),
    ) -> AgentHello {
        let devices = devices
            .into_iter()
            .map(|(index, uuid, model, memory_bytes, gres, mechanism, instances, geometry, links)| DeviceDescription {
                index, uuid: DeviceUuid::new(uuid), model, memory_bytes, gres_type: GresType::new(gres), mechanism, instances, geometry,
                links,
            })
            .collect();
        AgentHello {
            protocol_version, node: NodeName::new(node), agent_version, journal_id, devices, sent_at: UnixTime::from_seconds(sent),
            decision_ids: decisions.into_iter().map(DecisionId).collect(), conditions, setup, observes,
        }
    }
}

fn results() -> impl Strategy<Value = ShareResult> {
    (any::<u64>(), starts(), option::of("[a-z ]{1,30}"), any::<bool>()).prop_map(
        |(id, start, error, revoked)| ShareResult { decision_id: DecisionId(id), start, error, revoked },
    )
}

prop_compose! {
    fn shares()(
        (id, start, uid, gres, mechanism) in (any::<u64>(), starts(), any::<u32>(), names(), mechanisms()),
        cap_fraction in option::of(fractions()),
        ccs_mode in option::of(prop_oneof![Just(1_u8), Just(2), Just(4)]),
        memory_limit_bytes in any::<Option<u64>>(),
        shards in 1..=100_u8,
        (profile, slice) in (prop::sample::select(vec!["1g.5gb", "3g.40gb", "1g.10gb+me", "7g.141gb"]), 0_u8..8),
    ) -> Share {
        let profile = profile.parse().expect("a name");
        let sharing = match mechanism {
            Mechanism::Mig => Sharing::Mig { profile, start: slice },
            Mechanism::MigMps => Sharing::MigMps { profile, start: slice, cap: cap_fraction, memory_limit_bytes },
            Mechanism::Mps | Mechanism::Ccs | Mechanism::TimeSliced => {
                Sharing::by(mechanism, cap_fraction, ccs_mode).limited_to(memory_limit_bytes)
            }
        };
        Share {
            decision_id: DecisionId(id), start, uid: UserId(uid), gres_types: GresType::new(gres).into(),
            sharing, shards: Shards::try_new(shards).expect("in range"),
            memory_bytes: sharing.memory_limit_bytes().filter(|limit| limit % 2 == 1).map(|limit| limit.saturating_mul(2)), is_session: slice % 2 == 1, is_plain: slice % 4 < 2,
        }
    }
}

fn from_agent() -> impl Strategy<Value = FromAgent> {
    prop_oneof![
        hellos().boxed().prop_map(FromAgent::Hello),
        reports().boxed().prop_map(FromAgent::Report),
        results().prop_map(FromAgent::ShareResult),
        prop::collection::vec(conditions(), 0..3).prop_map(FromAgent::Conditions),
        (starts(), outcomes())
            .prop_map(|(start, outcome)| FromAgent::EndResult(EndResult { start, outcome })),
    ]
}

fn to_agent() -> impl Strategy<Value = ToAgent> {
    prop_oneof![
        any::<u64>().prop_map(ToAgent::Ack),
        shares().prop_map(ToAgent::Prepare),
        (any::<u64>(), starts())
            .prop_map(|(id, start)| ToAgent::Revoke { decision_id: DecisionId(id), start }),
        Just(ToAgent::Poke),
        (starts(), orders()).prop_map(|(start, order)| ToAgent::End { start, order }),
    ]
}

fn orders() -> impl Strategy<Value = EndOrder> {
    let end = (0.0..=END_DELAY_SECONDS_MAX).prop_map(|delay_seconds| EndOrder::End { delay_seconds });
    prop_oneof![Just(EndOrder::Hold), end, Just(EndOrder::LetGo)]
}

fn outcomes() -> impl Strategy<Value = EndOutcome> {
    let ended = (1..=u32::MAX).prop_map(|client_count| EndOutcome::Ended { client_count });
    let not_held =
        ("[a-z ]{1,30}", any::<bool>(), any::<bool>()).prop_map(|(why, outlasts_sigterm, is_of_it_alone)| {
            EndOutcome::NotHeld { why, outlasts_sigterm, is_of_it_alone }
        });
    prop_oneof![Just(EndOutcome::Held), not_held, ended]
}

proptest! {
    #[test]
    fn what_an_agent_says_survives_the_wire(message in from_agent()) {
        let bytes = wire::AgentMessage::from(message.clone()).encode_to_vec();
        let back = wire::AgentMessage::decode(bytes.as_slice()).expect("our own bytes");
        prop_assert_eq!(FromAgent::try_from(back), Ok(message));
    }

    #[test]
    fn what_the_scheduler_says_survives_the_wire(message in to_agent()) {
        let bytes = wire::SchedulerMessage::from(message.clone()).encode_to_vec();
        let back = wire::SchedulerMessage::decode(bytes.as_slice()).expect("our own bytes");
        prop_assert_eq!(ToAgent::try_from(back), Ok(message));
    }

    #[test]
    fn foreign_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(message) = wire::AgentMessage::decode(bytes.as_slice()) {
            let _ = FromAgent::try_from(message);
        }
        if let Ok(message) = wire::SchedulerMessage::decode(bytes.as_slice()) {
            let _ = ToAgent::try_from(message);
        }
    }
}

/// The whole chain of an error, as it is logged.
fn refused<T: std::fmt::Debug, E: std::error::Error>(result: Result<T, E>) -> String {
    pillion_core::report(&result.expect_err("must be refused"))
}

fn samples_with(sample: wire::DeviceSample) -> wire::Report {
    let samples = wire::DeviceSamples { recorded_at_seconds: 1.0, samples: vec![sample] };
    wire::Report { sequence: 1, body: Some(wire::report::Body::Samples(samples)) }
}

/// What a job writes of its progress is its user's word: it costs him his speed, and nobody what was measured.
#[test]
fn a_progress_that_is_none_is_left_out_of_what_its_agent_tells() {
    let wire = |progress: f64| wire::JobSummary {
        job_id: "33".into(),
        gres_type: "g1".into(),
        memory_bytes_peak: Some(7),
        progress_solo: Some(progress),
        progress_shared: Some(3.0),
        ..Default::default()
    };
    for progress in [f64::INFINITY, f64::NAN, -1.0, 2e307] {
        let summary = JobSummary::try_from(wire(progress)).expect("the rest is told");
        assert_eq!((summary.solo.progress, summary.shared.progress), (None, Some(3.0)), "{progress}");
        assert_eq!(summary.memory_bytes_peak, Some(7));
        let tenant = wire::TenantUse { job_id: "33".into(), progress: Some(progress), ..Default::default() };
        assert_eq!(TenantUse::try_from(tenant).expect("the rest is told").progress, None, "{progress}");
    }
}

fn hello() -> wire::Hello {
    wire::Hello { node: "n1".into(), journal_id: "j".into(), ..Default::default() }
}

/// A name goes into logs, labels, pages and rows.
#[test]
fn a_name_of_other_than_letters_is_refused_and_told_in_one_short_line() {
    let node = |node: &str| refused(AgentHello::try_from(wire::Hello { node: node.into(), ..hello() }));
    for name in ["n1\n2026 ERROR forged", "n1\x1b[2J", "n 1", "<n1>", "n\u{202e}1", &"n".repeat(60_000_000)] {
        let error = node(name);
        assert!(error.contains("node is '") && error.len() < 300, "{}", &error[..300.min(error.len())]);
        assert!(!error.contains(['\n', '\x1b', '\u{202e}']), "{error:?}");
    }
    assert!(node("").contains("node is empty"));
    let told = wire::Launch { job_id: "33\n".repeat(1_000_000), ..Default::default() };
    assert!(refused(pillion_core::report::Launch::try_from(told)).len() < 500);
    let device = wire::Device { mechanism: "x".repeat(1_000_000), ..device() };
    assert!(refused(DeviceDescription::try_from(device)).len() < 500);
}

fn device() -> wire::Device {
    wire::Device { uuid: "GPU-1".into(), model: "h100".into(), gres_type: "g1".into(), ..Default::default() }
}

#[test]
fn a_list_that_no_node_has_is_refused_and_a_sentence_is_cut_into_one_line() {
    let devices = vec![wire::Device { mechanism: "mps".into(), ..device() }; 65];
    let error = refused(AgentHello::try_from(wire::Hello { devices, ..hello() }));
    assert!(error.contains("devices has 65 entries; allowed are 64"), "{error}");
    let fault =
        wire::DeviceFault { kind: "gone".into(), detail: "a\nb".repeat(1_000_000), since_seconds: 1.0 };
    let condition =
        wire::DeviceCondition { gres_type: "g1".into(), faults: vec![fault], ..Default::default() };
    let told = DeviceCondition::try_from(condition).expect("a fault");
    assert!(told.faults[0].detail.starts_with("a\\nb") && told.faults[0].detail.len() < 2_000);
    let neighbours = vec!["33+0".to_owned(); 100_000];
    let summary =
        wire::JobSummary { job_id: "33".into(), gres_type: "g1".into(), neighbours, ..Default::default() };
    assert_eq!(JobSummary::try_from(summary).expect("a summary").neighbours.len(), 1_024);
}

fn earlier_sources() -> Vec<wire::SourcedMetrics> {
    let group = |source: wire::MetricSource, metrics: &[wire::Metric]| wire::SourcedMetrics {
        source: source.into(),
        metrics: metrics.iter().map(|metric| (*metric).into()).collect(),
    };
    vec![
        group(wire::MetricSource::Nvml, &[wire::Metric::PowerWatts, wire::Metric::Throttles]),
        group(wire::MetricSource::NvmlGpm, &[wire::Metric::SmActiveFraction, wire::Metric::StallFraction]),
    ]
}

/// The wire of before had a field for each metric, and the sources apart.
#[test]
fn a_sample_of_an_earlier_agent_is_read() {
    let told = wire::DeviceSample {
        gres_type: "g1".into(),
        energy_joules: Some(12.5),
        power_watts: Some(350.5),
        sm_active_fraction: Some(0.25),
        memory_bytes_used: Some(7 << 30),
        nvlink_rx_bytes_per_second: Some(5.0),
        throttles: Some(wire::Throttles { kinds: vec![wire::Throttle::Heat.into()] }),
        sources: earlier_sources(),
        ..Default::default()
    };
    let told = wire::DeviceSample::decode(told.encode_to_vec().as_slice()).expect("bytes");
    let reading = DeviceSample::try_from(told).expect("a sample").reading;
    let mut expected = Metrics::from([(Metric::PowerWatts, 350.5), (Metric::Throttles, 1.0)]);
    expected.tag_untagged(MetricSource::Nvml);
    expected.set(Metric::SmActiveFraction, 0.25);
    expected.tag_untagged(MetricSource::NvmlGpm);
    expected.set(Metric::EnergyJoules, 12.5);
    expected.set(Metric::NvlinkRxBytesPerSecond, 5.0);
    expected.set_bytes(Metric::MemoryBytesUsed, 7 << 30);
    assert_eq!((reading.throttles(), &reading.metrics), (Some(&[Throttle::Heat].into()), &expected));
}

#[test]
fn means_of_an_earlier_agent_are_read() {
    let told = wire::ActivityMeans {
        power_watts: Some(350.5),
        sm_active_fraction: Some(0.25),
        throttled_fraction: Some(0.125),
        sources: earlier_sources(),
        ..Default::default()
    };
    let summary = wire::JobSummary {
        job_id: "33".into(),
        gres_type: "g1".into(),
        solo_means: Some(told),
        ..Default::default()
    };
    let summary = wire::JobSummary::decode(summary.encode_to_vec().as_slice()).expect("bytes");
    let means = JobSummary::try_from(summary).expect("a summary").solo_means.expect("it was alone");
    let mut expected = Metrics::from([(Metric::PowerWatts, 350.5), (Metric::Throttles, 0.125)]);
    expected.tag_untagged(MetricSource::Nvml);
    expected.set(Metric::SmActiveFraction, 0.25);
    expected.tag_untagged(MetricSource::NvmlGpm);
    assert_eq!(means, ActivityMeans(expected));
}

#[test]
fn what_cannot_be_is_refused_by_name() {
    let sample = wire::DeviceSample { gres_type: "g1".into(), ..Default::default() };
    let busy = wire::DeviceSample { sm_active_fraction: Some(1.5), ..sample.clone() };
    assert_eq!(
        refused(Report::try_from(samples_with(busy))),
        "invalid samples: invalid sample of device 'g1': sm_active_fraction is out of range: 1.5 is not a fraction: \
         allowed are 0 to 1"
    );
    let negative = wire::DeviceSample { energy_joules: Some(f64::NAN), ..sample.clone() };
    assert!(refused(Report::try_from(samples_with(negative))).contains("energy_joules is NaN"));
    let huge = wire::DeviceSample { power_watts: Some(2e307), ..sample.clone() };
    assert!(refused(Report::try_from(samples_with(huge))).contains("allowed are numbers from 0 to 1e18"));
    let clock = wire::DeviceSample { sm_clock_hertz: Some(-1.0), ..sample.clone() };
    assert!(refused(Report::try_from(samples_with(clock))).contains("sm_clock_hertz is -1"));
    let tenant = wire::TenantUse { job_id: "33;rm".into(), ..Default::default() };
    let tenants = wire::DeviceSample { tenants: vec![tenant], ..sample };
    assert!(refused(Report::try_from(samples_with(tenants))).contains("'33;rm' is not a Slurm job id"));
    assert!(
        refused(Report::try_from(wire::Report { sequence: 9, body: None })).contains("report 9 has no body")
    );
    assert!(refused(Report::try_from(wire::Report::default())).contains("sequence 0"));
    let share = wire::PrepareShare::from(Share {
        decision_id: DecisionId(7),
        start: JobStart { job_id: SlurmJobId::plain(33), restart_count: 0 },
        uid: UserId(1000),
        gres_types: GresType::new("g1").into(),
        sharing: Sharing::Ccs { mode: 2 },
        shards: Shards::ALL,
        memory_bytes: None,
        is_session: false,
        is_plain: false,
    });
    for (wrong, why) in [
        (wire::PrepareShare { shards: 256, ..share.clone() }, "256 is not a shard count"),
        (wire::PrepareShare { shards: 101, ..share.clone() }, "101 is not a shard count"),
        (wire::PrepareShare { shards: 0, ..share.clone() }, "0 is not a shard count"),
        (wire::PrepareShare { ccs_mode: Some(3), ..share.clone() }, "ccs_mode is 3; allowed are 1, 2 and 4"),
        (
            wire::PrepareShare { ccs_mode: Some(300), ..share.clone() },
            "ccs_mode is 300; allowed are 1, 2 and 4",
        ),
        (wire::PrepareShare { ccs_mode: None, ..share.clone() }, "a ccs share needs a mode"),
        (wire::PrepareShare { mechanism: "mps2".into(), ..share.clone() }, "'mps2' is not a mechanism"),
        (
            wire::PrepareShare { mechanism: "mig".into(), ..share.clone() },
            "a share of an instance needs its place",
        ),
        (wire::PrepareShare { mig_slot: Some("3g".into()), ..share.clone() }, "'3g' is not an instance"),
        (wire::PrepareShare { gres_type: String::new(), ..share.clone() }, "gres_type is empty"),
    ] {
        assert!(refused(Share::try_from(wrong)).contains(why), "{why}");
    }
}
