use super::*;
use pillion_core::Fraction;
use pillion_core::metric::{Metric, MetricSource};
use proptest::prelude::*;

const SECOND: Duration = Duration::from_secs(1);
const KEEP: Duration = Duration::from_secs(90);

#[expect(
    clippy::disallowed_methods,
    reason = "an Instant cannot be made otherwise; all of a test's are counted from it"
)]
fn start() -> Instant {
    Instant::now()
}

fn device() -> DeviceUuid {
    DeviceUuid::new("GPU-1")
}

fn histories() -> Histories {
    Histories::new(MetricSource::DcgmExporter, KEEP)
}

fn page(values: &[(Metric, f64)], totals: &[(Metric, f64)], stamp_millis: Option<i64>) -> Page {
    let seen = Seen {
        values: values.iter().copied().collect(),
        totals: totals.iter().copied().collect(),
        stamp_millis,
    };
    [(device(), seen)].into()
}

fn lost_and_back(histories: &mut Histories) -> Vec<NoticeKind> {
    histories.notices().into_iter().map(|notice| notice.kind).collect()
}

#[test]
fn a_page_that_repeats_itself_holds_for_a_while_and_then_no_more() {
    let (t0, mut all) = (start(), histories());
    let said = page(&[(Metric::PowerWatts, 40.0)], &[], None);
    for second in 0..=90 {
        all.take(said.clone(), t0 + second * SECOND);
        assert_eq!(
            all.readings(t0 + second * SECOND)[&device()].metrics.get(Metric::PowerWatts),
            Some(40.0),
            "{second}"
        );
    }
    assert!(all.notices().is_empty());
    all.take(said.clone(), t0 + 91 * SECOND);
    assert!(all.readings(t0 + 91 * SECOND).is_empty());
    let notices = all.notices();
    assert_eq!(notices.len(), 1);
    assert_eq!(notices[0].kind, NoticeKind::MetricLost(Metric::PowerWatts));
    assert_eq!(notices[0].detail, "the exporter said nothing new of the device for 91 s");
    all.readings(t0 + 92 * SECOND);
    assert!(all.notices().is_empty(), "told once");
}

#[test]
fn one_value_that_moves_shows_that_all_were_collected_anew() {
    let (t0, mut all) = (start(), histories());
    for round in 0..10_u32 {
        let now = t0 + round * 30 * SECOND;
        let values = [(Metric::PowerWatts, 40.0), (Metric::EnergyJoules, f64::from(round))];
        all.take(page(&values, &[], None), now);
        assert_eq!(all.readings(now)[&device()].metrics.get(Metric::PowerWatts), Some(40.0), "{round}");
    }
}

#[test]
fn a_time_of_measurement_that_moves_is_something_new() {
    let (t0, mut all) = (start(), histories());
    for round in 0..10_u32 {
        let now = t0 + round * 60 * SECOND;
        all.take(page(&[(Metric::PowerWatts, 40.0)], &[], Some(i64::from(round))), now);
        assert_eq!(all.readings(now)[&device()].metrics.get(Metric::PowerWatts), Some(40.0), "{round}");
    }
}

#[test]
fn a_metric_that_a_new_page_leaves_out_is_lost_at_once_and_told_when_it_is_back() {
    let (t0, mut all) = (start(), histories());
    let with = |energy| page(&[(Metric::SmActiveFraction, 0.5), (Metric::EnergyJoules, energy)], &[], None);
    all.take(with(1.0), t0);
    all.readings(t0);
    assert_eq!(lost_and_back(&mut all), []);

    all.take(page(&[(Metric::EnergyJoules, 2.0)], &[], None), t0 + SECOND);
    let reading = all.readings(t0 + SECOND).remove(&device()).unwrap();
    assert_eq!(
        (reading.metrics.fraction(Metric::SmActiveFraction), reading.metrics.get(Metric::EnergyJoules)),
        (None, Some(2.0))
    );
    let notices = all.notices();
    assert_eq!(notices[0].kind, NoticeKind::MetricLost(Metric::SmActiveFraction));
    assert!(notices.len() == 1 && notices[0].detail.contains("profiling is paused"), "{notices:?}");

    all.take(with(3.0), t0 + 2 * SECOND);
    assert_eq!(
        all.readings(t0 + 2 * SECOND)[&device()].metrics.fraction(Metric::SmActiveFraction),
        Fraction::try_new(0.5).ok()
    );
    assert_eq!(lost_and_back(&mut all), [NoticeKind::MetricBack(Metric::SmActiveFraction)]);
}

#[test]
fn a_device_that_is_not_mentioned_any_more_has_no_reading() {
    let (t0, mut all) = (start(), histories());
    let said = page(&[(Metric::PowerWatts, 40.0)], &[], None);
    all.take(said.clone(), t0);
    all.readings(t0);
    all.take(Page::new(), t0 + SECOND);
    assert!(all.readings(t0 + SECOND).is_empty());
    assert_eq!(all.notices()[0].detail, "the exporter does not mention the device any more");
    all.take(said, t0 + 2 * SECOND);
    assert_eq!(all.readings(t0 + 2 * SECOND).len(), 1);
    assert_eq!(lost_and_back(&mut all), [NoticeKind::MetricBack(Metric::PowerWatts)]);
}

fn sent(histories: &mut Histories, now: Instant) -> Option<f64> {
    histories
        .readings(now)
        .remove(&device())
        .and_then(|reading| reading.metrics.get(Metric::PcieTxBytesPerSecond))
}

#[test]
fn a_rate_is_of_what_was_counted_since_the_page_before_and_holds_until_the_next() {
    let (t0, mut all) = (start(), histories());
    let counted = |bytes, energy| {
        page(&[(Metric::EnergyJoules, energy)], &[(Metric::PcieTxBytesPerSecond, bytes)], None)
    };
    all.take(counted(1000.0, 1.0), t0);
    assert_eq!(sent(&mut all, t0), None, "one sample is no rate");
    for second in 1..10 {
        all.take(counted(1000.0, 1.0), t0 + second * SECOND);
    }
    let now = t0 + 10 * SECOND;
    all.take(counted(6000.0, 2.0), now);
    assert_eq!(sent(&mut all, now), Some(500.0));
    assert_eq!(sent(&mut all, now + 5 * SECOND), Some(500.0));
    all.take(counted(6000.0, 3.0), t0 + 20 * SECOND);
    assert_eq!(sent(&mut all, t0 + 20 * SECOND), Some(0.0), "collected anew, and nothing was sent");
    all.take(counted(10.0, 4.0), t0 + 30 * SECOND);
    assert_eq!(sent(&mut all, t0 + 30 * SECOND), None, "counted from the beginning again");
}

#[test]
fn a_rate_is_by_the_exporters_clock_where_it_tells_its_time() {
    let (t0, mut all) = (start(), histories());
    let counted = |bytes, stamp| page(&[], &[(Metric::PcieTxBytesPerSecond, bytes)], Some(stamp));
    all.take(counted(1000.0, 50_000), t0);
    all.take(counted(6000.0, 55_000), t0 + 7 * SECOND);
    assert_eq!(sent(&mut all, t0 + 7 * SECOND), Some(1000.0));
}

proptest! {
    /// Whatever comes when: nothing older than its time is given, and every loss and return is told in turn.
    #[test]
    fn nothing_old_is_given_and_losses_and_returns_alternate(
        steps in prop::collection::vec((0..200_u32, prop::option::of(0..4_u8)), 1..60),
    ) {
        let (t0, mut all) = (start(), histories());
        let (mut now, mut changed_at, mut last, mut is_lost, mut was_given) = (t0, t0, None, false, false);
        for (wait, said) in steps {
            now += wait * SECOND;
            if said != last {
                changed_at = now;
                last = said;
            }
            let next = said.map_or_else(Page::new, |watts| page(&[(Metric::PowerWatts, f64::from(watts))], &[], None));
            all.take(next, now);
            let given = all.readings(now).remove(&device()).and_then(|reading| reading.metrics.get(Metric::PowerWatts));
            let wanted = last.filter(|_| now - changed_at <= KEEP).map(f64::from);
            prop_assert_eq!(given, wanted);
            let expected = match (was_given, is_lost, given.is_some()) {
                (true, false, false) => vec![NoticeKind::MetricLost(Metric::PowerWatts)],
                (_, true, true) => vec![NoticeKind::MetricBack(Metric::PowerWatts)],
                _ => vec![],
            };
            prop_assert_eq!(lost_and_back(&mut all), expected);
            was_given |= given.is_some();
            is_lost = was_given && given.is_none();
        }
    }
}

#[test]
fn a_value_is_of_the_time_since_the_page_before() {
    let (t0, mut all) = (start(), histories());
    let mut reach = |second: u32, watts: f64| {
        let now = t0 + second * SECOND;
        all.take(page(&[(Metric::PowerWatts, watts)], &[], None), now);
        all.readings(now)[&device()].reach_seconds(Some(MetricSource::DcgmExporter))
    };
    // What it said first may be of any time.
    assert_eq!((reach(0, 40.0), reach(29, 40.0)), (90.0, 119.0));
    assert_eq!((reach(30, 90.0), reach(45, 90.0)), (30.0, 45.0));
    assert_eq!((reach(60, 91.0), reach(61, 92.0)), (30.0, 1.0));
}
