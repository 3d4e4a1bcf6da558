//! What Slurm books and bills: hundredths of a device, by the share that a tenant is expected to use. They are not caps. What
//! was seen to be used beyond that by runs before counts as expected, where the site has it so
//! (docs/decisions/0017-shards-by-use.md).

use crate::planner::admit::SHARDS_MIN;
use pillion_core::Shards;
use pillion_core::metric::Metric;
use pillion_core::profile::WorkloadProfile;

/// Bounds of what a job that others may join is booked with, so that a joiner finds shards left.
const HOST_SHARDS: (f64, f64) = (30.0, 70.0);
/// Use assumed where nothing is known.
const USE_UNKNOWN_FRACTION: f64 = 0.5;

/// The share of the device that a workload uses alone.
fn use_fraction(profile: &WorkloadProfile) -> f64 {
    let active = profile.metrics.get(Metric::SmActiveFraction);
    active.or(profile.metrics.get(Metric::GpuBusyFraction)).unwrap_or(USE_UNKNOWN_FRACTION).max(0.01)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to 1..=100 first")]
fn shards(hundredths: f64) -> Shards {
    Shards::try_new(hundredths.round().clamp(1.0, 100.0) as u8).expect("clamped to 1..=100")
}

/// The share that a job is expected to use: what its workload uses alone, and what it was seen to use beyond.
pub(crate) fn use_expected(profile: &WorkloadProfile, beyond_fraction: f64) -> f64 {
    (use_fraction(profile) + beyond_fraction.max(0.0)).min(1.0)
}

/// What a job is booked with that starts alone and may be joined.
pub(crate) fn of_host(own_use: f64) -> Shards {
    shards((100.0 * own_use).clamp(HOST_SHARDS.0, HOST_SHARDS.1))
}

/// What two jobs are booked with that start together on a device of at most `tenants_max`, in proportion to use times speed:
/// all of it if these two are all, else what is due to two, so that joiners find shards left.
pub(crate) fn of_pair(uses: [f64; 2], tenants_max: u32) -> [Shards; 2] {
    divided(200.0 / f64::from(tenants_max.max(2)), f64::from(SHARDS_MIN), uses)
}

/// What a joiner is booked with: its part of all use, at most what is free but for the least of the
/// `joiners_left` that may come after it.
pub(crate) fn of_joiner(own_use: f64, others_use: f64, shards_free: u32, joiners_left: u32) -> Shards {
    let most = shards_free.saturating_sub(SHARDS_MIN * joiners_left).clamp(SHARDS_MIN, 100);
    let (least, most) = (f64::from(SHARDS_MIN), f64::from(most));
    shards((100.0 * own_use / (own_use + others_use)).clamp(least, most))
}

/// What two are booked with who share an instance of so many, by use: all of it, and none of them nothing.
pub(crate) fn of_pair_in(instance: Shards, uses: [f64; 2]) -> [Shards; 2] {
    divided(f64::from(instance.count()), 1.0, uses)
}

/// So many shards by use, and to none of them less than `least`.
fn divided(all: f64, least: f64, uses: [f64; 2]) -> [Shards; 2] {
    let first = (all * uses[0] / (uses[0] + uses[1])).round().clamp(least, (all - least).max(least));
    [shards(first), shards(all - first)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_books_the_whole_device_by_use() {
        assert_eq!(of_pair([0.2, 0.6], 2).map(Shards::count), [25, 75]);
        assert_eq!(of_pair([0.1, 0.1], 2).map(Shards::count), [50, 50]);
        assert_eq!(of_pair([0.001, 1.0], 2).map(Shards::count), [10, 90], "nobody gets less than ten");
    }

    #[test]
    fn a_pair_on_a_device_of_four_tenants_leaves_half_of_it() {
        assert_eq!(of_pair([0.1, 0.1], 4).map(Shards::count), [25, 25]);
        assert_eq!(of_pair([0.001, 1.0], 4).map(Shards::count), [10, 40]);
    }

    #[test]
    fn two_in_an_instance_book_what_it_is_and_no_more() {
        for (instance, uses) in [(42, [0.2, 0.6]), (14, [0.001, 1.0]), (28, [0.5, 0.5])] {
            let instance = Shards::try_new(instance).unwrap();
            let [a, b] = of_pair_in(instance, uses).map(Shards::count);
            assert_eq!((a + b, a >= 1, b >= 1), (instance.count(), true, true), "{a} and {b}");
        }
        assert_eq!(of_pair_in(Shards::try_new(42).unwrap(), [0.2, 0.4]).map(Shards::count), [14, 28]);
    }

    #[test]
    fn a_joiner_takes_at_most_what_is_free() {
        assert_eq!(of_joiner(0.9, 0.1, 40, 0).count(), 40);
        assert_eq!(of_joiner(0.9, 0.1, 40, 2).count(), 20, "two more find shards left");
        assert_eq!(of_joiner(0.9, 0.1, 15, 1).count(), 10, "nobody gets less than ten");
        assert_eq!(of_joiner(0.2, 0.6, 70, 0).count(), 25);
        assert_eq!(of_joiner(0.01, 0.9, 70, 0).count(), 10);
    }

    proptest::proptest! {
        #[test]
        fn booked_shares_never_pass_a_hundred(a in 0.01f64..1.0, b in 0.01f64..1.0) {
            let [first, second] = of_pair([a, b], 2).map(Shards::count);
            proptest::prop_assert_eq!(first + second, 100);
            proptest::prop_assert!(first >= 10 && second >= 10);
        }
    }
}
