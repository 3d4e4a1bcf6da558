//! What runs in instances teach: of their size, and nothing of the workload alone or beside others.

use super::*;
use crate::profile::slice::slice_lesson;
use pillion_core::fault::{FaultSigns, MemorySample, StderrWords};
use pillion_core::profile::LessonKind;
use pillion_memory_store::MemoryStore;
use pillion_store::{RequeueCause, SliceLesson};

const GIB: u64 = 1 << 30;

/// A run of `seconds` in a 1g of 10 GiB, booked 14 shards.
fn in_instance(seconds: u64) -> MeasuredRun {
    let mut decision = limited(Sharing::Mig { profile: "1g.10gb".parse().unwrap(), start: 6 });
    decision.members[0].plan.memory_bytes = Some(10 * GIB);
    decision.members[0].plan.shards = pillion_core::Shards::try_new(14).unwrap();
    MeasuredRun { decision: Some(decision), ..run(seconds, 0.0) }
}

fn steady() -> StoredProfile {
    let mut known = learnt(&[run(99, 0.0), run(101, 0.0)]).unwrap();
    known.profile.throughput_per_second = None;
    known
}

async fn lesson(run: &MeasuredRun) -> Option<SliceLesson> {
    let measured = measured_speed(run, Some(&steady().profile));
    slice_lesson(&MemoryStore::new(), run, measured).await.unwrap()
}

#[tokio::test]
async fn a_run_in_an_instance_tells_its_speed_there_and_that_it_has_room() {
    let run = in_instance(125);
    let lesson = lesson(&run).await.unwrap();
    assert_eq!((lesson.profile.to_string().as_str(), lesson.memory_bytes), ("1g.10gb", Some(10 * GIB)));
    assert_eq!((lesson.has_completed, lesson.ran_out_of_memory), (true, false));
    near(lesson.speed_fraction, 0.8);
    // Nothing of how the workload runs alone, though nobody else was there.
    let (kind, profile) = learn(None, &run, at(5000));
    assert_eq!((kind.kind, profile), (LessonKind::Nothing, None));
}

#[tokio::test]
async fn a_counter_goes_before_the_time_it_took_and_counts_all_of_the_run() {
    let mut run = in_instance(500);
    run.job.ending = Some(Ending::Cancelled);
    run.summary.solo = ProgressPart { progress: Some(300.0), seconds: 300.0 };
    run.summary.shared = ProgressPart { progress: Some(60.0), seconds: 100.0 };
    let mut profile = steady().profile;
    profile.throughput_per_second = Some(1.0);
    let measured = measured_speed(&run, Some(&profile)).unwrap();
    assert!(measured.is_self_reported && (measured.speed_fraction - 0.9).abs() < 1e-9, "{measured:?}");
    let cut_short = lesson(&run).await.unwrap();
    assert_eq!((cut_short.has_completed, cut_short.speed_fraction), (false, None), "it says nothing else");
}

#[tokio::test]
async fn only_a_sure_lack_of_memory_closes_a_size() {
    let failed = |stderr| {
        let mut run = in_instance(125);
        run.job.ending = Some(Ending::Failed);
        run.job.exit = Some((1, 0));
        let full = MemorySample {
            at: run.summary.ended_at,
            bytes: 10 * GIB,
            bytes_used: Some(10 * GIB),
            process_bytes_max: None,
        };
        run.summary.signs = Some(FaultSigns { memory: vec![full], stderr, ..FaultSigns::default() });
        run
    };
    assert!(lesson(&failed(Some(StderrWords::Sure))).await.unwrap().ran_out_of_memory);
    // Slurm has started it again by then, with more, as its user wanted it.
    let mut again = failed(Some(StderrWords::Sure));
    again.requeue = Some(RequeueCause::OutOfMemory { memory_bytes: 15 * GIB });
    again.job.restart_count += 1;
    again.job.ending = None;
    assert!(lesson(&again).await.unwrap().ran_out_of_memory);
    assert!(
        !lesson(&failed(None)).await.unwrap().ran_out_of_memory,
        "it was full, and may have failed of something else"
    );
    assert_eq!(lesson(&run(125, 0.0)).await, None, "it had no instance");
}

#[test]
fn a_run_in_an_instance_is_booked_its_part_from_begin_to_end() {
    let sums = crate::analysis::run_account(&in_instance(125), Some(0.8), None).sums;
    near(Some(sums.gpu_seconds), 17.5);
    near(Some(sums.gpu_seconds_saved), 0.8 * 125.0 - 17.5);
    assert_eq!((sums.shared_run_count, sums.promises_kept), (1, 1));
}
