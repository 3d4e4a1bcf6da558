//! What a run teaches, and what it must not.

mod slices;

use super::*;
use crate::testing::{at, decision, member, record, start, summary};
use pillion_core::decision::MemberState;
use pillion_core::device::Mechanism;
use pillion_core::fault::{FaultSigns, StderrWords};
use pillion_core::metric::{Metric, MetricSource, Metrics};
use pillion_core::report::{JobSummary, ProgressPart};
use pillion_core::share::Sharing;
use pillion_core::{NodeName, WorkloadKey};
use pillion_pairing::Role;
use pillion_store::{Decision, JobRecord};

/// A run of `seconds`, of which `shared` were shared.
fn run(seconds: u64, shared: f64) -> MeasuredRun {
    let means = ActivityMeans(Metrics::from([(Metric::PowerWatts, 300.0), (Metric::SmActiveFraction, 0.4)]));
    MeasuredRun {
        summary: JobSummary {
            started_at: at(1000),
            ended_at: at(1000 + seconds),
            shared_seconds: shared,
            memory_bytes_peak: Some(5),
            energy_joules: Some(600.0),
            solo: ProgressPart::default(),
            shared: ProgressPart::default(),
            solo_means: Some(means),
            solo_sample_count: 10,
            ..summary(start())
        },
        node: NodeName::new("n1"),
        device_model: "h200".into(),
        device_memory_bytes: 100,
        job: JobRecord { ended_at: Some(at(1000 + seconds)), ..record(start()) },
        requeue: None,
        decision: None,
    }
}

fn mps(cap: Option<f64>) -> Sharing {
    Sharing::by(Mechanism::Mps, cap.map(Fraction::clamped), None)
}

fn limited(sharing: Sharing) -> Decision {
    let mut member = member(MemberState::Ended);
    member.plan.sharing = sharing;
    decision(&member)
}

fn learnt(runs: &[MeasuredRun]) -> Option<StoredProfile> {
    runs.iter().fold(None, |stored, run| learn(stored.clone(), run, at(5000)).1.or(stored))
}

fn near(left: Option<f64>, right: f64) {
    assert!(left.is_some_and(|left| (left - right).abs() < 1e-9), "{left:?} is not {right}");
}

#[test]
fn solo_runs_become_means_with_their_variation() {
    let profile = learnt(&[run(90, 0.0), run(110, 0.0)]).unwrap().profile;
    assert_eq!(profile.run_count, 2);
    near(profile.duration_seconds, 100.0);
    near(profile.duration_variation_fraction, 200.0_f64.sqrt() / 100.0);
    near(profile.metrics.get(Metric::PowerWatts), 300.0);
    near(profile.metrics.get(Metric::SmActiveFraction), 0.4);
    assert_eq!(profile.memory_bytes_peak, Some(5));
}

#[test]
fn memory_that_nobody_could_read_is_no_need_of_nothing() {
    let with = |memory_bytes_peak: Option<u64>| {
        let run = run(100, 0.0);
        MeasuredRun { summary: JobSummary { memory_bytes_peak, ..run.summary.clone() }, ..run }
    };
    let peak = |runs: &[MeasuredRun]| learnt(runs).unwrap().profile.memory_bytes_peak;
    assert_eq!(peak(&[with(None)]), None);
    assert_eq!(peak(&[with(Some(0))]), None, "a process that held nothing yet");
    assert_eq!(peak(&[with(Some(7)), with(None), with(Some(5))]), Some(7));
}

#[test]
fn what_several_processes_took_at_most_is_of_any_run() {
    let with = |process_count_peak, process_memory_bytes_peak: Option<u64>| {
        let run = run(100, 0.0);
        let summary = JobSummary { process_count_peak, process_memory_bytes_peak, ..run.summary.clone() };
        MeasuredRun { summary, ..run }
    };
    let told = |runs: &[MeasuredRun]| {
        let profile = learnt(runs).unwrap().profile;
        (profile.process_count_peak, profile.process_memory_bytes_peak)
    };
    assert_eq!(told(&[with(4, Some(7)), with(2, Some(9)), with(1, None)]), (4, Some(9)));
    assert_eq!(told(&[with(4, None)]), (4, None), "an older agent does not tell");
    assert_eq!(told(&[with(2, Some(0))]), (2, None));
}

#[test]
fn a_profile_never_mixes_values_of_different_quality() {
    use MetricSource::{DcgmExporter, Nvml, NvmlGpm};
    let with = |rate: f64, source: Option<MetricSource>| {
        let mut run = run(100, 0.0);
        let metric = Metric::PcieTxBytesPerSecond;
        let means = run.summary.solo_means.as_mut().expect("it was alone");
        means.0.put(metric, Measured { value: rate, source });
        run
    };
    let check = |runs: &[MeasuredRun], rate: f64, source: MetricSource| {
        let profile = learnt(runs).unwrap().profile;
        near(profile.metrics.get(Metric::PcieTxBytesPerSecond), rate);
        assert_eq!(profile.metrics.sources(), [(Metric::PcieTxBytesPerSecond, source)].into());
        near(profile.metrics.get(Metric::PowerWatts), 300.0);
    };
    check(&[with(9.0, None), with(8.0, Some(Nvml)), with(2.0, Some(NvmlGpm))], 2.0, NvmlGpm);
    check(&[with(2.0, Some(NvmlGpm)), with(8.0, Some(Nvml)), with(9.0, None)], 2.0, NvmlGpm);
    check(&[with(2.0, Some(NvmlGpm)), with(4.0, Some(DcgmExporter))], 3.0, NvmlGpm);
}

#[test]
fn every_mean_of_a_run_finds_its_place_in_the_profile() {
    let averaged = Metric::ALL.into_iter().filter(|metric| metric.mean_word().is_some());
    let means: Metrics = averaged.map(|metric| (metric, 0.01 * f64::from(metric.number()))).collect();
    let mut run = run(100, 0.0);
    run.summary.solo_means = Some(ActivityMeans(means.clone()));
    let expected = WorkloadProfile {
        metrics: means,
        run_count: 1,
        duration_seconds: Some(100.0),
        memory_bytes_peak: Some(5),
        process_count_peak: 1,
        process_memory_bytes_peak: None,
        energy_joules: Some(600.0),
        ..WorkloadProfile::empty(WorkloadKey::new("alice/w"), "h200")
    };
    assert_eq!(learnt(&[run]).unwrap().profile, expected);
}

/// A run under this cap; its job wrote this much progress.
fn capped(cap: f64, seconds: u64, progress: Option<f64>) -> MeasuredRun {
    let mut run = MeasuredRun { decision: Some(limited(mps(Some(cap)))), ..run(seconds, 0.0) };
    run.summary.solo = ProgressPart { progress, seconds: 50.0 };
    run
}

fn with_progress(progress: f64) -> MeasuredRun {
    let mut run = run(100, 0.0);
    run.summary.solo = ProgressPart { progress: Some(progress), seconds: 50.0 };
    run
}

#[test]
fn a_run_alone_under_a_cap_tells_the_speed_there() {
    let speeds = |runs: &[MeasuredRun]| {
        let profile = learnt(runs).unwrap().profile;
        profile.speed_fractions_at_cap().map(|(cap, speed)| (cap.to_string(), speed)).collect::<Vec<_>>()
    };
    // By the counter: 4 a second whole, 1 and 2 under a cap of a third or so.
    let counted = [with_progress(200.0), capped(0.3, 400, Some(50.0)), capped(0.3, 400, Some(100.0))];
    assert_eq!(speeds(&counted), [("0.3".to_owned(), 0.375)]);
    // Without one, by how long it took.
    let timed = [run(100, 0.0), capped(0.5, 125, None), capped(0.9, 100, None)];
    assert_eq!(speeds(&timed), [("0.5".to_owned(), 0.8), ("0.9".to_owned(), 1.0)]);
    let profile = learnt(&timed).unwrap().profile;
    assert_eq!((profile.run_count, profile.duration_seconds), (1, Some(100.0)), "how it runs alone stays");
}

#[test]
fn what_a_capped_run_does_not_teach_is_said() {
    let known = learnt(&[with_progress(200.0)]);
    let why = |stored: Option<StoredProfile>, run: &MeasuredRun| {
        let (lesson, profile) = learn(stored, run, at(5000));
        assert_eq!((lesson.kind, profile), (LessonKind::Nothing, None));
        lesson.detail
    };
    assert_eq!(
        why(None, &capped(0.3, 100, None)),
        "how its workload runs alone without a cap is not known yet"
    );
    assert!(why(known.clone(), &capped(0.3, 100, None)).starts_with("it wrote no progress"));
    assert_eq!(
        why(known.clone(), &capped(0.25, 100, Some(1.0))),
        "its cap was none that speeds are kept for"
    );
    let mut failed = capped(0.3, 100, Some(50.0));
    failed.job.ending = Some(Ending::Failed);
    assert_eq!(why(known, &failed), "it did not complete");
}

#[test]
fn speeds_in_another_unit_are_forgotten() {
    let timed = [run(100, 0.0), capped(0.5, 125, None), with_progress(200.0)];
    let profile = learnt(&timed).unwrap().profile;
    assert_eq!((profile.throughput_per_second, profile.speed_fractions_at_cap().count()), (Some(4.0), 0));
}

#[test]
fn every_run_has_its_lesson() {
    let solo = || run(100, 0.0);
    let kind = |run: &MeasuredRun| learn(learnt(&[solo()]), run, at(5000)).0.kind;
    assert_eq!(kind(&run(100, 0.0)), LessonKind::Alone);
    assert_eq!(kind(&capped(0.5, 125, None)), LessonKind::Capped);
    assert_eq!(kind(&run(100, 50.0)), LessonKind::Shared);
}

/// A first run that was joined after its first minutes: started with room beside it and nothing known.
fn joined_first_run() -> MeasuredRun {
    let mut host = member(MemberState::Ended);
    host.plan.role = Role::Host;
    (host.plan.memory_bytes, host.plan.estimate) = (None, None);
    let run = run(1000, 600.0);
    let summary = JobSummary { solo_sample_count: 200, ..run.summary };
    MeasuredRun { summary, decision: Some(decision(&host)), ..run }
}

/// A run of 1000 s, all of them shared, that counted so far in the last 900.
fn shared_run(progress: f64) -> MeasuredRun {
    let mut run = run(1000, 1000.0);
    run.summary.shared = ProgressPart { progress: Some(progress), seconds: 900.0 };
    run
}

#[test]
fn a_shared_run_tells_by_its_counter_how_long_it_would_have_taken_alone() {
    // Alone its workload counts one a second, and takes 100 s.
    let alone = || StoredProfile {
        profile: WorkloadProfile {
            throughput_per_second: Some(1.0),
            ..learnt(&[run(100, 0.0)]).unwrap().profile
        },
        ..learnt(&[run(100, 0.0)]).unwrap()
    };
    let (lesson, profile) = learn(Some(alone()), &shared_run(700.0), at(5000));
    let profile = profile.unwrap();
    assert_eq!(
        (lesson, profile.durations.run_count, profile.profile.run_count),
        (LessonKind::Shared.into(), 2, 1)
    );
    near(profile.profile.duration_seconds, f64::midpoint(100.0, 800.0));
    assert!(
        profile.profile.duration_variation_fraction.is_some_and(|variation| variation > 1.0),
        "{profile:?}"
    );
    // What cannot be, what failed, and what is known by minutes only teach nothing of it.
    let mut failed = shared_run(700.0);
    failed.job.ending = Some(Ending::Failed);
    let mut of_minutes = alone();
    of_minutes.profile.duration_seconds = None;
    for (stored, run) in [
        (alone(), shared_run(1e6)),
        (alone(), failed),
        (alone(), run(1000, 1000.0)),
        (of_minutes, shared_run(700.0)),
    ] {
        assert_eq!(learn(Some(stored), &run, at(5000)).1, None, "{run:?}");
    }
    assert_eq!(learn(None, &shared_run(700.0), at(5000)).1, None);
}

#[test]
fn a_first_run_that_was_joined_teaches_what_it_showed_alone() {
    let (lesson, known) = learn(None, &joined_first_run(), at(5000));
    let profile = known.expect("it was measured for minutes").profile;
    assert_eq!((lesson.kind, profile.run_count, profile.memory_bytes_peak), (LessonKind::Alone, 1, Some(5)));
    near(profile.metrics.get(Metric::SmActiveFraction), 0.4);
    // How long it takes alone nobody knows, nor what that costs.
    assert_eq!((profile.duration_seconds, profile.energy_joules), (None, None));
}

#[test]
fn the_first_whole_run_alone_takes_the_place_of_minutes() {
    let minutes = MeasuredRun {
        summary: JobSummary { memory_bytes_peak: Some(9), ..joined_first_run().summary },
        ..joined_first_run()
    };
    let profile = learnt(&[minutes.clone(), run(90, 0.0)]).unwrap().profile;
    assert_eq!((profile.run_count, profile.duration_variation_fraction), (1, None));
    near(profile.duration_seconds, 90.0);
    assert_eq!(profile.memory_bytes_peak, Some(9), "what it needed at most counts for ever");
    let profile = learnt(&[minutes, run(90, 0.0), run(110, 0.0)]).unwrap().profile;
    assert_eq!(profile.run_count, 2);
    near(profile.duration_variation_fraction, 200.0_f64.sqrt() / 100.0);
}

#[test]
fn a_joined_run_teaches_nothing_alone_where_more_is_known_or_it_failed_or_was_short() {
    let first = joined_first_run();
    let taught = |run: &MeasuredRun, known: Option<StoredProfile>| learn(known, run, at(5000)).1.is_some();
    assert!(taught(&first, None));
    assert!(!taught(&first, learnt(&[run(90, 0.0)])), "a whole run is known");
    assert!(!taught(&first, learnt(&[joined_first_run()])), "minutes are");
    let mut failed = first.clone();
    failed.job.ending = Some(Ending::Failed);
    let short = JobSummary { solo_sample_count: 29, ..first.summary.clone() };
    let short = MeasuredRun { summary: short, ..first.clone() };
    let mut known = first;
    known.decision.as_mut().unwrap().members[0].plan.memory_bytes = Some(5);
    for run in [failed, short, known] {
        assert!(!taught(&run, None));
    }
}

/// It ran under this limit, beside nobody, and failed saying that device memory ran out.
fn out_of_memory(limit_bytes: u64) -> MeasuredRun {
    let signs = FaultSigns { stderr: Some(StderrWords::Sure), ..FaultSigns::default() };
    let whole = run(100, 0.0);
    MeasuredRun {
        summary: JobSummary { signs: Some(signs), neighbours: Vec::new(), ..whole.summary },
        job: JobRecord { ending: Some(Ending::Failed), exit: Some((1, 0)), ..whole.job },
        decision: Some(limited(mps(None).limited_to(Some(limit_bytes)))),
        ..whole
    }
}

#[test]
fn a_peak_at_which_memory_ran_out_is_a_bound_and_no_peak() {
    let (lesson, stored) = learn(None, &out_of_memory(7), at(5000));
    assert_eq!(lesson, Lesson::nothing("it ran out of device memory"));
    let profile = stored.unwrap().profile;
    let found = (profile.run_count, profile.memory_bytes_peak, profile.memory_bytes_ran_out);
    assert_eq!(found, (0, None, Some(7)));
    let again = learnt(&[out_of_memory(7), out_of_memory(4), run(90, 0.0)]).unwrap().profile;
    let found = (again.run_count, again.memory_bytes_peak, again.memory_bytes_ran_out);
    assert_eq!(found, (1, Some(5), Some(7)), "the most with which it ran out");
    // Started again before anybody looked: the intent tells.
    let mut requeued = out_of_memory(7);
    requeued.job.restart_count = 1;
    assert_eq!(learn(None, &requeued, at(5000)).1, None, "nobody says how it ended");
    requeued.requeue = Some(RequeueCause::OutOfMemory { memory_bytes: 11 });
    assert_eq!(learn(None, &requeued, at(5000)).1.unwrap().profile.memory_bytes_ran_out, Some(7));
    let mut whole = out_of_memory(7);
    whole.decision = Some(limited(Sharing::TimeSliced));
    assert_eq!(learn(None, &whole, at(5000)).1, None, "it had all that there is");
}

#[test]
fn a_run_that_completes_under_a_limit_needs_no_more() {
    let under =
        |limit| MeasuredRun { decision: Some(limited(mps(None).limited_to(Some(limit)))), ..run(100, 0.0) };
    let profile = learnt(&[run(100, 0.0), under(9), under(8), under(12)]).unwrap().profile;
    assert_eq!((profile.run_count, profile.memory_bytes_completed), (4, Some(8)));
}

#[test]
fn one_run_tells_no_variation() {
    assert_eq!(learnt(&[run(90, 0.0)]).unwrap().profile.duration_variation_fraction, None);
}

#[test]
fn shared_limited_failed_and_unseen_runs_teach_nothing_about_running_alone() {
    assert!(learnt(&[run(100, 50.0)]).is_none(), "shared");
    let with = |change: fn(&mut MeasuredRun)| {
        let mut run = run(100, 0.0);
        change(&mut run);
        learnt(&[run])
    };
    assert!(with(|run| run.decision = Some(limited(mps(Some(0.5))))).is_none(), "capped");
    assert!(with(|run| run.decision = Some(limited(Sharing::Ccs { mode: 2 }))).is_none(), "half a card");
    assert!(with(|run| run.job.ending = Some(Ending::Failed)).is_none(), "failed");
    assert!(with(|run| run.summary.solo_sample_count = 2).is_none(), "hardly seen");
    assert!(with(|run| run.summary.solo_means = None).is_none(), "never seen alone");
    assert!(with(|run| run.decision = Some(limited(mps(None)))).is_some(), "joinable, and nobody came");
}

fn known(throughput: Option<f64>, seconds: f64, variation: Option<f64>) -> WorkloadProfile {
    WorkloadProfile {
        throughput_per_second: throughput,
        duration_seconds: Some(seconds),
        duration_variation_fraction: variation,
        ..WorkloadProfile::empty(WorkloadKey::new("alice/w"), "h200")
    }
}

#[test]
fn a_speed_comes_from_the_counter_first() {
    let mut shared = run(200, 200.0);
    shared.summary.shared = ProgressPart { progress: Some(160.0), seconds: 200.0 };
    let measured = measured_speed(&shared, Some(&known(Some(1.0), 100.0, None)));
    near(measured.map(|measured| measured.speed_fraction), 0.8);
    assert!(measured.is_some_and(|measured| measured.is_self_reported && measured.deviation.is_none()));
}

#[test]
fn else_from_durations_that_hardly_vary_with_the_part_alone_taken_off() {
    // 100 s of work: 40 alone, the other 60 in 80 shared seconds.
    let shared = run(120, 80.0);
    let measured = measured_speed(&shared, Some(&known(None, 100.0, Some(0.05))));
    near(measured.map(|measured| measured.speed_fraction), 0.75);
    near(measured.and_then(|measured| measured.deviation), 0.0625);
    assert!(measured.is_some_and(|measured| !measured.is_self_reported));
}

#[test]
fn else_it_is_unknown() {
    let shared = run(120, 80.0);
    assert_eq!(measured_speed(&shared, None), None, "no profile");
    assert_eq!(measured_speed(&shared, Some(&known(None, 100.0, Some(0.2)))), None, "durations vary");
    assert_eq!(measured_speed(&shared, Some(&known(None, 100.0, None))), None, "one run only");
    assert_eq!(measured_speed(&run(100, 0.0), Some(&known(Some(1.0), 100.0, None))), None, "not shared");
    let briefly = run(120, 20.0);
    assert_eq!(measured_speed(&briefly, Some(&known(None, 100.0, Some(0.05)))), None, "shared too briefly");
    let mut failed = run(120, 80.0);
    failed.job.ending = Some(Ending::Failed);
    assert_eq!(measured_speed(&failed, Some(&known(None, 100.0, Some(0.05)))), None, "cut short");
}

/// What a job says of itself is believed from a hundredth to twice its speed alone; so is what its durations say.
#[test]
fn a_speed_that_cannot_be_is_none_whoever_tells_it() {
    let counted = |progress: f64| {
        let mut shared = run(200, 100.0);
        shared.summary.shared = ProgressPart { progress: Some(progress), seconds: 100.0 };
        measured_speed(&shared, Some(&known(Some(1.0), 100.0, None))).map(|measured| measured.speed_fraction)
    };
    for (progress, speed) in
        [(500.0, None), (200.0, Some(2.0)), (1.0, Some(0.01)), (0.5, None), (201.0, None)]
    {
        assert_eq!(counted(progress), speed, "{progress} in 100 s where it makes 100 alone");
    }
    let timed =
        |solo_seconds: f64| measured_speed(&run(120, 80.0), Some(&known(None, solo_seconds, Some(0.01))));
    near(timed(100.0).map(|measured| measured.speed_fraction), 0.75);
    assert_eq!(timed(1000.0), None, "twelve times as fast beside somebody as alone");
    assert_eq!(timed(40.0), None, "it did nothing in the shared seconds");
}

/// The sums that such counters go into would be without measure, also where one of them beside another is a possible speed.
#[test]
fn a_counter_without_measure_is_none_also_where_it_keeps_its_own_pace() {
    let counted = |rate: f64| {
        let mut shared = run(200, 100.0);
        shared.summary.shared = ProgressPart { progress: Some(rate * 100.0), seconds: 100.0 };
        measured_speed(&shared, Some(&known(Some(rate), 100.0, None))).map(|measured| measured.speed_fraction)
    };
    for (rate, speed) in [(1e15, Some(1.0)), (1e16, None), (1e-8, Some(1.0)), (1e-10, None)] {
        assert_eq!(counted(rate), speed, "{rate} a second");
    }
    let throughput =
        |progress: f64| learnt(&[with_progress(progress)]).unwrap().profile.throughput_per_second;
    assert_eq!((throughput(200.0), throughput(1e18)), (Some(4.0), None), "nor does a profile learn it");
}

#[test]
fn a_run_that_has_hardly_begun_tells_little_of_one_that_lasts() {
    let with = |seconds: u64, active: f64| {
        let mut run = run(seconds, 0.0);
        let means = run.summary.solo_means.as_mut().expect("it was alone");
        means.0.put(Metric::SmActiveFraction, Measured { value: active, source: None });
        run
    };
    let active =
        |runs: &[MeasuredRun]| learnt(runs).unwrap().profile.metrics.get(Metric::SmActiveFraction).unwrap();
    // A sweep is submitted again, and most of it finds its output there.
    let mut runs: Vec<MeasuredRun> = (0..10).map(|_| with(7_200, 0.9)).collect();
    runs.extend((0..90).map(|_| with(4, 0.1)));
    assert!(active(&runs) > 0.8, "{}", active(&runs));
    // And the other way round: what ended at once is no measure of what then lasts.
    let late = [with(4, 0.1), with(7_200, 0.9)];
    assert!(active(&late) > 0.8, "{}", active(&late));
    // Short ones among their like count as they do.
    let short = [with(60, 0.2), with(60, 0.4), with(60, 0.6)];
    assert!((active(&short) - 0.4).abs() < 1e-9, "{}", active(&short));
}

#[test]
fn what_a_program_does_today_outweighs_its_years() {
    let with = |active: f64| {
        let mut run = run(700, 0.0);
        let means = run.summary.solo_means.as_mut().expect("it was alone");
        means.0.put(Metric::SmActiveFraction, Measured { value: active, source: None });
        run
    };
    let runs: Vec<MeasuredRun> = (0..500).map(|_| with(0.2)).chain((0..60).map(|_| with(0.8))).collect();
    let now = learnt(&runs).unwrap().profile.metrics.get(Metric::SmActiveFraction).unwrap();
    assert!(now > 0.6, "{now}");
}
