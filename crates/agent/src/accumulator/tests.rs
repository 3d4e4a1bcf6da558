//! What a run adds up to, by example, and that no joule is lost or made, by property.

mod exporter;

use super::*;
use pillion_core::SlurmJobId;
use pillion_core::metric::{Metric, MetricSource, Metrics, Throttle};
use proptest::prelude::*;

const GAP_SECONDS: f64 = 10.0;

fn job(id: u32) -> JobStart {
    JobStart { job_id: SlurmJobId::plain(id), restart_count: 0 }
}

fn seen(id: u32, memory_bytes: u64) -> Sighting {
    Sighting {
        start: Some(job(id)),
        memory_bytes: Some(memory_bytes),
        process_count: 1,
        process_memory_bytes: Some(memory_bytes),
    }
}

const STRANGER: Sighting =
    Sighting { start: None, memory_bytes: Some(1), process_count: 1, process_memory_bytes: Some(1) };

/// A device that uses 100 W while anybody is on it, and whose activity is what is given.
struct Scene {
    runs: DeviceRuns,
    at: f64,
    energy_joules: f64,
}

impl Scene {
    fn new(jobs: &[u32]) -> Self {
        let mut runs = DeviceRuns::default();
        for id in jobs {
            runs.begin(job(*id), UnixTime::from_seconds(1000.0));
        }
        Self { runs, at: 1000.0, energy_joules: 50.0 }
    }

    fn sample(&mut self, sm_active: f64, sightings: &[Sighting], progress: &[(u32, f64)]) {
        self.sample_after(1.0, sm_active, sightings, progress);
    }

    fn sample_after(
        &mut self,
        seconds: f64,
        sm_active: f64,
        sightings: &[Sighting],
        progress: &[(u32, f64)],
    ) {
        self.at += seconds;
        self.energy_joules += 100.0 * seconds;
        self.sample_with(Some(self.energy_joules), sm_active, sightings, progress);
    }

    fn sample_with(
        &mut self,
        energy_joules: Option<f64>,
        sm_active: f64,
        sightings: &[Sighting],
        progress: &[(u32, f64)],
    ) {
        let mut reading = Reading::from([(Metric::SmActiveFraction, sm_active)]);
        reading.metrics.set_known(Metric::EnergyJoules, energy_joules);
        let progress = progress.iter().map(|(id, value)| (job(*id), *value)).collect();
        let at = UnixTime::from_seconds(self.at);
        self.runs.observe(&Sample { at, reading: &reading, sightings, progress: &progress }, GAP_SECONDS);
    }

    fn end(&mut self, id: u32) -> JobSummary {
        let at = UnixTime::from_seconds(self.at);
        self.runs.end(job(id), at, &GresType::new("g1")).expect("it ran")
    }
}

#[test]
fn alone_means_alone_at_both_ends() {
    let mut scene = Scene::new(&[1]);
    scene.sample(0.0, &[], &[]);
    scene.sample(0.3, &[seen(1, 10)], &[]);
    scene.sample(0.8, &[seen(1, 30)], &[]);
    scene.sample(0.6, &[seen(1, 20)], &[]);
    scene.sample(0.2, &[], &[]);
    let summary = scene.end(1);
    let means = summary.solo_means.expect("it was alone");
    assert_eq!(summary.solo_sample_count, 2, "not the intervals in which it came and went");
    assert!(
        means.0.fraction(Metric::SmActiveFraction).is_some_and(|active| (active.value() - 0.7).abs() < 1e-9)
    );
    assert_eq!(means.0.get(Metric::PowerWatts), None, "the device does not say");
    assert_eq!((summary.memory_bytes_peak, summary.process_count_peak), (Some(30), 1));
    assert_eq!(summary.energy_joules, Some(400.0), "all of the meter: nobody else held the device");
    assert!(summary.shared_seconds.abs() < 1e-9 && summary.neighbours.is_empty());
}

#[test]
fn a_peak_is_of_the_looks_at_which_memory_could_be_read() {
    let unread = |id| Sighting { memory_bytes: None, ..seen(id, 0) };
    let mut scene = Scene::new(&[1, 2, 3]);
    scene.sample(0.5, &[seen(1, 10), unread(2)], &[]);
    scene.sample(0.5, &[unread(1), unread(2)], &[]);
    assert_eq!((scene.end(1).memory_bytes_peak, scene.end(2).memory_bytes_peak), (Some(10), None));
    let never_seen = scene.end(3);
    assert_eq!((never_seen.memory_bytes_peak, never_seen.process_count_peak), (None, 0));
}

#[test]
fn who_comes_when_another_is_gone_was_alone() {
    let mut scene = Scene::new(&[1, 2]);
    scene.sample(0.0, &[seen(1, 1)], &[]);
    scene.sample(0.0, &[seen(1, 1)], &[]);
    scene.sample(0.0, &[seen(2, 1)], &[]);
    scene.sample(0.0, &[seen(2, 1)], &[]);
    for id in [1, 2] {
        let summary = scene.end(id);
        assert!(summary.shared_seconds.abs() < 1e-9 && summary.neighbours.is_empty(), "{summary:?}");
        assert_eq!(summary.solo_sample_count, 1, "not the interval in which one made room for the other");
    }
}

#[test]
fn who_was_seen_beside_another_shared_the_time_around_it() {
    let mut scene = Scene::new(&[1, 2]);
    scene.sample(0.0, &[seen(1, 1)], &[]);
    scene.sample(0.0, &[seen(1, 1), seen(2, 1)], &[]);
    scene.sample(0.0, &[seen(2, 1)], &[]);
    let (first, second) = (scene.end(1), scene.end(2));
    assert_eq!((first.shared_seconds, first.neighbours), (2.0, vec![job(2)]));
    assert_eq!((first.shared_device_seconds, second.shared_device_seconds), (Some(1.0), Some(1.0)));
    assert_eq!((second.shared_seconds, second.neighbours), (2.0, vec![job(1)]));
}

#[test]
fn means_are_over_time() {
    let mut scene = Scene::new(&[1]);
    scene.sample(0.0, &[seen(1, 1)], &[]);
    scene.sample_after(3.0, 0.4, &[seen(1, 1)], &[]);
    scene.sample_after(1.0, 0.8, &[seen(1, 1)], &[]);
    scene.sample_after(0.0, 1.0, &[seen(1, 1)], &[]);
    let active = scene
        .end(1)
        .solo_means
        .and_then(|means| means.0.fraction(Metric::SmActiveFraction))
        .expect("it was alone");
    assert!((active.value() - 0.5).abs() < 1e-9, "{active:?}");
}

/// The mean PCIe rate, and its source, of a run that saw these rates, a second each.
fn pcie_mean(rates: &[(f64, Option<MetricSource>)]) -> (f64, Option<MetricSource>) {
    let metric = Metric::PcieTxBytesPerSecond;
    let readings = rates.iter().map(|(value, source)| {
        let mut reading = Reading::default();
        reading.metrics.put(metric, Measured { value: *value, source: *source });
        reading
    });
    let Measured { value, source } = means_of(readings).0.measured(metric).expect("it was alone");
    (value, source)
}

/// The means of a run that was alone while these readings were taken, a second each.
fn means_of(readings: impl Iterator<Item = Reading>) -> ActivityMeans {
    let mut runs = DeviceRuns::default();
    runs.begin(job(1), UnixTime::from_epoch(1000));
    let mut sample = |at: u32, reading: &Reading| {
        let at = UnixTime::from_epoch(1000 + u64::from(at));
        let progress = BTreeMap::new();
        runs.observe(&Sample { at, reading, sightings: &[seen(1, 1)], progress: &progress }, GAP_SECONDS);
    };
    sample(0, &Reading::default());
    for (at, reading) in (1..).zip(readings) {
        sample(at, &reading);
    }
    let ended_at = UnixTime::from_epoch(2000);
    let summary = runs.end(job(1), ended_at, &GresType::new("g0")).expect("it ran");
    summary.solo_means.expect("it was alone")
}

/// A source of samples, and two that count.
const COARSE: Option<MetricSource> = Some(MetricSource::Nvml);
const FINE: Option<MetricSource> = Some(MetricSource::NvmlGpm);
const ALSO_FINE: Option<MetricSource> = Some(MetricSource::DcgmExporter);

fn assert_mean(rates: &[(f64, Option<MetricSource>)], expected: (f64, Option<MetricSource>)) {
    let (mean, source) = pcie_mean(rates);
    assert!((mean - expected.0).abs() < 1e-9 && source == expected.1, "{rates:?} gave {mean} of {source:?}");
}

#[test]
fn a_better_source_starts_a_mean_anew() {
    assert_mean(&[(9.0, COARSE), (7.0, COARSE), (2.0, FINE), (4.0, FINE)], (3.0, FINE));
    assert_mean(&[(9.0, None), (7.0, COARSE)], (7.0, COARSE));
}

#[test]
fn a_worse_source_is_ignored() {
    assert_mean(&[(2.0, FINE), (9.0, COARSE), (4.0, FINE), (9.0, None)], (3.0, FINE));
}

#[test]
fn of_two_equal_sources_the_first_stays() {
    assert_mean(&[(2.0, FINE), (9.0, ALSO_FINE), (4.0, FINE)], (3.0, FINE));
    assert_mean(&[(9.0, ALSO_FINE), (2.0, FINE)], (9.0, ALSO_FINE));
}

#[test]
fn one_metric_s_source_says_nothing_of_another() {
    let reading = |source, pcie| {
        let mut metrics = Metrics::from([(Metric::PcieTxBytesPerSecond, pcie)]).from_source(source);
        metrics.set(Metric::PowerWatts, 100.0);
        Reading::from(metrics.from_source(MetricSource::Nvml))
    };
    let means = means_of([reading(MetricSource::Nvml, 9.0), reading(MetricSource::NvmlGpm, 3.0)].into_iter());
    assert_eq!(
        (means.0.get(Metric::PcieTxBytesPerSecond), means.0.get(Metric::PowerWatts)),
        (Some(3.0), Some(100.0))
    );
    assert_eq!(means.0.source(Metric::PowerWatts), Some(MetricSource::Nvml));
}

#[test]
fn throttled_is_what_power_and_heat_hold_down() {
    let reading = |throttles: &[Throttle]| {
        let mut reading = Reading::default();
        reading.set_throttles(throttles.iter().copied().collect());
        reading
    };
    let readings = [
        reading(&[]),
        reading(&[Throttle::Setting]),
        reading(&[Throttle::Setting, Throttle::Heat]),
        reading(&[Throttle::PowerLimit]),
        Reading::default(),
    ];
    assert_eq!(means_of(readings.into_iter()).0.get(Metric::Throttles), Some(0.5));
    assert_eq!(means_of([Reading::default()].into_iter()).0.get(Metric::Throttles), None, "nobody says");
}

#[test]
fn every_mean_is_of_its_own_metric() {
    let own = |metric: Metric| (metric, 0.01 * f64::from(metric.number()));
    let mut reading = Reading::from(Metric::ALL.into_iter().map(own).collect::<Metrics>());
    reading.set_throttles([Throttle::Heat].into());
    let averaged = Metric::ALL.into_iter().filter(|metric| metric.mean_word().is_some());
    let mut expected: Metrics = averaged.map(own).collect();
    expected.set(Metric::Throttles, 1.0);
    assert_eq!(means_of([reading].into_iter()), ActivityMeans(expected));
}

#[test]
fn a_neighbour_ends_the_profile_and_is_named() {
    let mut scene = Scene::new(&[1, 2]);
    scene.sample(0.5, &[seen(1, 1)], &[]);
    scene.sample(0.5, &[seen(1, 1)], &[]);
    scene.sample(0.9, &[seen(1, 1), seen(2, 1)], &[]);
    scene.sample(0.9, &[seen(2, 1)], &[]);
    scene.sample(0.2, &[seen(2, 1)], &[]);
    let (first, second) = (scene.end(1), scene.end(2));
    assert_eq!(first.neighbours, [job(2)]);
    assert_eq!(second.neighbours, [job(1)]);
    assert!((first.shared_seconds - 2.0).abs() < 1e-9, "the intervals in which both were seen at some end");
    assert_eq!(first.solo_means.and_then(|means| means.0.get(Metric::SmActiveFraction)), Some(0.5));
    assert_eq!(second.solo_means.and_then(|means| means.0.get(Metric::SmActiveFraction)), Some(0.2));
    // One interval alone each, two shared in equal parts: the second's activity alone was not known yet.
    assert_eq!(first.energy_joules, Some(200.0));
    assert_eq!(second.energy_joules, Some(200.0));
}

#[test]
fn shared_energy_goes_by_activity_where_it_is_known() {
    let mut scene = Scene::new(&[1, 2]);
    scene.sample(0.0, &[seen(1, 1)], &[]);
    scene.sample(0.6, &[seen(1, 1)], &[]);
    scene.sample(0.0, &[], &[]);
    scene.sample(0.0, &[seen(2, 1)], &[]);
    scene.sample(0.2, &[seen(2, 1)], &[]);
    let energy = |scene: &Scene, id| scene.runs.runs[&job(id)].energy_joules.expect("a meter");
    let before = (energy(&scene, 1), energy(&scene, 2));
    scene.sample(0.7, &[seen(1, 1), seen(2, 1)], &[]);
    assert!((energy(&scene, 1) - before.0 - 75.0).abs() < 1e-9);
    assert!((energy(&scene, 2) - before.1 - 25.0).abs() < 1e-9);
}

proptest! {
    /// Whoever comes and goes: what tenants are booked of the time in which there were several is no more than that time, and
    /// all of it where each of them stays to the next sample.
    #[test]
    fn shared_time_is_booked_once(crowds in prop::collection::vec(prop::collection::btree_set(1_u32..5, 0..5), 2..20)) {
        let mut scene = Scene::new(&[1, 2, 3, 4]);
        for crowd in &crowds {
            let sightings: Vec<Sighting> = crowd.iter().map(|id| seen(*id, 1)).collect();
            scene.sample(0.5, &sightings, &[]);
        }
        let booked: f64 = (1..5).map(|id| scene.end(id).shared_device_seconds.expect("counted")).sum();
        let count = |is_it: &dyn Fn(&BTreeSet<u32>, &BTreeSet<u32>) -> bool| {
            crowds.windows(2).filter(|pair| is_it(&pair[0], &pair[1])).map(|_| 1.0).sum::<f64>()
        };
        let at_most = count(&|before, after| before.len() > 1 || after.len() > 1);
        let steady = count(&|before, after| before == after && after.len() > 1);
        prop_assert!(booked <= at_most + 1e-9 && booked >= steady - 1e-9, "{booked} of {steady} to {at_most}");
    }
}

#[test]
fn a_stranger_is_a_neighbour_without_a_name() {
    let mut scene = Scene::new(&[1]);
    scene.sample(0.5, &[seen(1, 1)], &[]);
    scene.sample(0.5, &[seen(1, 1), STRANGER], &[]);
    let summary = scene.end(1);
    assert!((summary.shared_seconds - 1.0).abs() < 1e-9);
    assert_eq!(summary.neighbours, []);
    assert_eq!(summary.solo_means, None);
    assert_eq!(summary.energy_joules, Some(50.0), "nobody is billed for the stranger's part");
}

#[test]
fn progress_counts_from_change_to_change() {
    let mut scene = Scene::new(&[1, 2]);
    let alone = [seen(1, 1)];
    let both = [seen(1, 1), seen(2, 1)];
    scene.sample(0.5, &alone, &[(1, 100.0)]);
    for value in [100.0, 100.0, 160.0, 160.0] {
        scene.sample(0.5, &alone, &[(1, value)]);
    }
    // Joined: the pending second alone and the first one shared go with the change that spans them.
    scene.sample(0.5, &both, &[(1, 175.0)]);
    scene.sample(0.5, &both, &[(1, 185.0)]);
    scene.sample(0.5, &both, &[(1, 195.0)]);
    scene.sample(0.5, &both, &[(1, 195.0)]);
    let summary = scene.end(1);
    assert_eq!(
        summary.solo,
        ProgressPart { progress: Some(60.0), seconds: 3.0 },
        "the start value is no progress"
    );
    assert_eq!(summary.shared, ProgressPart { progress: Some(20.0), seconds: 2.0 });
    assert_eq!(scene.end(2).solo, ProgressPart::default(), "writes no counter");
}

#[test]
fn a_counter_that_falls_starts_anew() {
    let mut scene = Scene::new(&[1]);
    for value in [10.0, 20.0, 5.0, 15.0] {
        scene.sample(0.5, &[seen(1, 1)], &[(1, value)]);
    }
    assert_eq!(scene.end(1).solo, ProgressPart { progress: Some(20.0), seconds: 2.0 });
}

#[test]
fn a_gap_counts_for_energy_only() {
    let mut scene = Scene::new(&[1]);
    scene.sample(0.5, &[seen(1, 1)], &[(1, 10.0)]);
    scene.sample_after(GAP_SECONDS * 2.0, 0.1, &[seen(1, 1)], &[(1, 90.0)]);
    scene.sample(0.5, &[seen(1, 1)], &[(1, 95.0)]);
    let summary = scene.end(1);
    assert_eq!(summary.solo_sample_count, 1);
    assert_eq!(summary.energy_joules, Some(2100.0));
    assert_eq!(summary.solo, ProgressPart { progress: Some(5.0), seconds: 1.0 });
}

#[test]
fn a_meter_that_was_reset_is_not_negative_energy() {
    let mut scene = Scene::new(&[1]);
    scene.sample(0.5, &[seen(1, 1)], &[]);
    scene.energy_joules = 0.0;
    scene.sample(0.5, &[seen(1, 1)], &[]);
    scene.sample(0.5, &[seen(1, 1)], &[]);
    assert_eq!(scene.end(1).energy_joules, Some(100.0), "known again from the reset on");
}

/// A sample at which the device's energy is as these sources would tell it, or nobody tells.
fn energy_sample(
    runs: &mut DeviceRuns,
    at: u64,
    energy: Option<(f64, MetricSource)>,
    sightings: &[Sighting],
) {
    let mut reading = Reading::default();
    if let Some((value, source)) = energy {
        reading.metrics.put(Metric::EnergyJoules, Measured { value, source: Some(source) });
    }
    let progress = BTreeMap::new();
    let at = UnixTime::from_epoch(1000 + at);
    runs.observe(&Sample { at, reading: &reading, sightings, progress: &progress }, GAP_SECONDS);
}

fn energies(runs: &DeviceRuns) -> [Option<f64>; 2] {
    [1, 2].map(|id| runs.runs[&job(id)].energy_joules)
}

#[test]
fn a_meter_that_is_not_told_at_some_looks_loses_nothing() {
    let mut runs = Scene::new(&[1, 2]).runs;
    let told = |joules| Some((joules, MetricSource::Nvml));
    energy_sample(&mut runs, 0, told(100.0), &[seen(1, 1)]);
    energy_sample(&mut runs, 1, None, &[seen(1, 1)]);
    energy_sample(&mut runs, 2, told(300.0), &[seen(1, 1)]);
    assert_eq!(energies(&runs), [Some(200.0), None]);
    // Who was there only while it was not told bears its part.
    energy_sample(&mut runs, 3, None, &[seen(1, 1), seen(2, 1)]);
    energy_sample(&mut runs, 4, told(500.0), &[seen(1, 1)]);
    assert_eq!(energies(&runs), [Some(300.0), Some(100.0)]);
}

#[test]
fn a_late_meter_that_stands_in_bills_nothing_twice() {
    let mut runs = Scene::new(&[1, 2]).runs;
    let nvml = |joules| Some((joules, MetricSource::Nvml));
    // Half a minute late, at 100 W: what it shows was billed already.
    let exporter = |joules| Some((joules - 3000.0, MetricSource::DcgmExporter));
    let alone = [seen(1, 1)];
    energy_sample(&mut runs, 0, nvml(10_000.0), &alone);
    energy_sample(&mut runs, 1, exporter(10_100.0), &alone);
    energy_sample(&mut runs, 2, nvml(10_200.0), &alone);
    assert_eq!(energies(&runs)[0], Some(200.0));
    energy_sample(&mut runs, 3, exporter(10_300.0), &alone);
    energy_sample(&mut runs, 4, exporter(10_400.0), &alone);
    energy_sample(&mut runs, 5, nvml(10_500.0), &alone);
    assert_eq!(energies(&runs)[0], Some(500.0), "each joule once");
}

#[test]
fn a_meter_that_has_not_been_told_for_an_hour_begins_again() {
    let mut runs = Scene::new(&[1, 2]).runs;
    energy_sample(&mut runs, 0, Some((100.0, MetricSource::Nvml)), &[seen(1, 1)]);
    for at in 1..=u64::from(SAMPLES_WITHOUT_METER_MAX) + 1 {
        energy_sample(&mut runs, at, None, &[]);
    }
    energy_sample(&mut runs, 4000, Some((900.0, MetricSource::Nvml)), &[seen(2, 1)]);
    energy_sample(&mut runs, 4001, Some((950.0, MetricSource::Nvml)), &[seen(2, 1)]);
    assert_eq!(energies(&runs), [None, Some(50.0)]);
}

#[test]
fn runs_survive_being_written_down() {
    let mut scene = Scene::new(&[1, 2]);
    scene.sample(0.5, &[seen(1, 1), STRANGER], &[(1, 10.0)]);
    scene.sample(0.5, &[seen(1, 1), seen(2, 5)], &[(1, 20.0)]);
    let text = serde_json::to_string(&scene.runs).unwrap();
    assert_eq!(serde_json::from_str::<DeviceRuns>(&text).unwrap(), scene.runs);
}

#[test]
fn a_run_that_an_older_agent_wrote_down_goes_on() {
    let mut scene = Scene::new(&[1]);
    scene.sample(0.5, &[seen(1, 1)], &[]);
    let mut written = serde_json::to_value(&scene.runs).unwrap();
    let run = written["runs"][0][1].as_object_mut().expect("a run");
    run.remove("activity").expect("its means");
    run.insert("means".to_owned(), serde_json::json!({"sm_active": {"sum": 1.0, "seconds": 2.0}}));
    scene.runs = serde_json::from_value(written).unwrap();
    scene.sample(0.5, &[seen(1, 1)], &[]);
    let summary = scene.end(1);
    assert_eq!((summary.energy_joules, summary.solo_sample_count), (Some(100.0), 1));
}

proptest! {
    /// Also to one that is not there at some samples: what ran on meanwhile is billed when it is there again, once.
    #[test]
    fn the_parts_sum_to_the_meter(
        samples in prop::collection::vec((0.0..=1.0_f64, any::<[bool; 3]>(), any::<bool>()), 2..40),
    ) {
        let mut scene = Scene::new(&[1, 2, 3]);
        let mut told = Vec::new();
        for (sm_active, there, has_meter) in &samples {
            let sightings: Vec<Sighting> =
                (1..=3).zip(there).filter(|(_, there)| **there).map(|(id, _)| seen(id, 1)).collect();
            scene.at += 1.0;
            scene.energy_joules += 100.0;
            let meter = has_meter.then_some(scene.energy_joules);
            told.extend(meter);
            scene.sample_with(meter, *sm_active, &sightings, &[]);
        }
        let metered = told.last().zip(told.first()).map_or(0.0, |(last, first)| last - first);
        let parts: f64 = [1, 2, 3].map(|id| scene.end(id).energy_joules.unwrap_or(0.0)).iter().sum();
        prop_assert!((parts - metered).abs() < 1e-6, "{parts} of {metered}");
    }
}
