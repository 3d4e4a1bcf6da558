//! What an exporter says is of a time of its own.

use super::*;

/// A sample at which an exporter says that so much is active, as a mean of so many seconds; the library says half is busy.
fn sample(runs: &mut DeviceRuns, at: f64, (active, reach_seconds): (f64, f64), sightings: &[Sighting]) {
    let mut reading = Reading::default();
    let source = MetricSource::DcgmExporter;
    reading.metrics.put(Metric::SmActiveFraction, Measured { value: active, source: Some(source) });
    reading.metrics.put(Metric::GpuBusyFraction, Measured { value: 0.5, source: Some(MetricSource::Nvml) });
    reading.set_reach(source, reach_seconds);
    let (at, progress) = (UnixTime::from_seconds(at), BTreeMap::new());
    runs.observe(&Sample { at, reading: &reading, sightings, progress: &progress }, GAP_SECONDS);
}

#[test]
fn what_it_says_of_the_time_before_a_job_is_not_the_jobs() {
    let mut runs = DeviceRuns::default();
    for id in [1, 2] {
        runs.begin(job(id), UnixTime::from_seconds(1000.0));
    }
    let (alone, both) = ([seen(1, 10)], [seen(1, 10), seen(2, 10)]);
    // It comes at the second sample. What is told at the third is half of it, and at the sixth all of it.
    let steps = [(0.0, &[][..]), (0.0, &alone), (0.3, &alone), (0.3, &alone), (0.3, &alone)];
    let later = [(0.9, &alone[..]), (0.9, &alone), (0.9, &alone), (0.8, &both)];
    // When the other has gone, what was measured of both is told for a while.
    let again =
        [(1.0, &alone[..]), (1.0, &alone), (1.0, &alone), (1.0, &alone), (1.0, &alone), (0.9, &alone)];
    for (second, (active, sightings)) in (1_u32..).zip([&steps[..], &later, &again].concat()) {
        // It collects every three seconds: its page of now is of the three before it was collected.
        let reach_seconds = f64::from(second % 3) + 3.0;
        sample(&mut runs, 1000.0 + f64::from(second), (active, reach_seconds), sightings);
    }
    let summary = runs.end(job(1), UnixTime::from_seconds(1016.0), &GresType::new("g1")).expect("it ran");
    let means = summary.solo_means.expect("it was alone");
    assert!((means.0.get(Metric::SmActiveFraction).expect("measured") - 0.9).abs() < 1e-9, "{means:?}");
    assert_eq!(
        means.0.get(Metric::GpuBusyFraction),
        Some(0.5),
        "what is asked at each sample counts from the first"
    );
}

#[test]
fn nobody_was_alone_while_nobody_looked() {
    let mut runs = DeviceRuns::default();
    runs.begin(job(1), UnixTime::from_seconds(0.0));
    let alone = [seen(1, 10)];
    for second in 1..=40 {
        sample(&mut runs, f64::from(second), (0.3, 2.0), &alone);
    }
    // The agent was away, and somebody else came and went.
    for second in 340..=345 {
        sample(&mut runs, f64::from(second), (0.9, 90.0), &alone);
    }
    let summary = runs.end(job(1), UnixTime::from_seconds(346.0), &GresType::new("g1")).expect("it ran");
    let active =
        summary.solo_means.and_then(|means| means.0.get(Metric::SmActiveFraction)).expect("measured");
    assert!((active - 0.3).abs() < 1e-9, "{active}");
}
