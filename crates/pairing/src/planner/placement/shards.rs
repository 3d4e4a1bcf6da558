//! What Slurm books and bills: hundredths of a device, by the share that a tenant is expected to use. They are not caps. What
//! was seen to be used beyond that by runs before counts as expected, where the site has it so
//! (docs/decisions/0017-shards-by-use.md).

use crate::planner::classes::Seats;
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

/// What a job is booked with that starts alone and may be joined: others of so many find their least.
pub(crate) fn of_host(own_use: f64, seats: Seats) -> Shards {
    let others = f64::from(seats.shards_min * seats.most.saturating_sub(1));
    let left = (100.0 - others).max(f64::from(seats.shards_min));
    shards((100.0 * own_use).clamp(HOST_SHARDS.0.min(left), HOST_SHARDS.1.min(left)))
}

/// What two jobs are booked with that start together, in proportion to use times speed: all of the device if these two are all who
/// may be there, else what is due to two, so that joiners find shards left.
pub(crate) fn of_pair(uses: [f64; 2], seats: Seats) -> [Shards; 2] {
    divided(200.0 / f64::from(seats.most.max(2)), f64::from(seats.shards_min), uses)
}

/// What a joiner is booked with: its part of all use, at most what is free but for the least of those that may come after it.
/// `taken`: the seats that are, its own among them.
pub(crate) fn of_joiner(own_use: f64, others_use: f64, shards_free: u32, taken: u32, seats: Seats) -> Shards {
    let left = seats.shards_min * seats.most.saturating_sub(taken);
    let most = shards_free.saturating_sub(left).clamp(seats.shards_min, 100);
    let (least, most) = (f64::from(seats.shards_min), f64::from(most));
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
    use crate::planner::copies;

    fn at_most(most: u32) -> Seats {
        Seats { most, shards_min: copies::shards_min(most > 4) }
    }

    #[test]
    fn a_pair_books_the_whole_device_by_use() {
        assert_eq!(of_pair([0.2, 0.6], at_most(2)).map(Shards::count), [25, 75]);
        assert_eq!(of_pair([0.1, 0.1], at_most(2)).map(Shards::count), [50, 50]);
        assert_eq!(
            of_pair([0.001, 1.0], at_most(2)).map(Shards::count),
            [10, 90],
            "nobody gets less than ten"
        );
    }

    #[test]
    fn a_pair_on_a_device_of_four_tenants_leaves_half_of_it() {
        assert_eq!(of_pair([0.1, 0.1], at_most(4)).map(Shards::count), [25, 25]);
        assert_eq!(of_pair([0.001, 1.0], at_most(4)).map(Shards::count), [10, 40]);
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
        assert_eq!(of_joiner(0.9, 0.1, 40, 2, at_most(2)).count(), 40);
        assert_eq!(of_joiner(0.9, 0.1, 40, 2, at_most(4)).count(), 20, "two more find shards left");
        assert_eq!(of_joiner(0.9, 0.1, 15, 2, at_most(3)).count(), 10, "nobody gets less than ten");
        assert_eq!(of_joiner(0.2, 0.6, 70, 2, at_most(2)).count(), 25);
        assert_eq!(of_joiner(0.01, 0.9, 70, 2, at_most(2)).count(), 10);
    }

    #[test]
    fn who_may_be_joined_by_copies_leaves_each_of_them_its_least() {
        let of_host = |own_use, most| of_host(own_use, at_most(most)).count();
        assert_eq!([2, 3, 4].map(|most| of_host(0.9, most)), [70; 3], "up to four as ever");
        assert_eq!([2, 3, 4].map(|most| of_host(0.1, most)), [30; 3]);
        assert_eq!([8, 12, 16].map(|most| of_host(0.9, most)), [58, 34, 10]);
        assert_eq!([8, 12, 16].map(|most| of_host(0.1, most)), [30, 30, 10]);
        assert_eq!(of_pair([0.1, 0.1], at_most(16)).map(Shards::count), [6, 7]);
    }

    proptest::proptest! {
        #[test]
        fn so_many_always_find_shards_and_never_book_more_than_a_device(
            most in 2..=16_u32, uses in proptest::collection::vec(0.0..1.0_f64, 16), is_pair in proptest::bool::ANY
        ) {
            let seats = at_most(most);
            let mut booked: Vec<u32> = if is_pair {
                of_pair([uses[0].max(0.01), uses[1].max(0.01)], seats).map(|own| own.count().into()).to_vec()
            } else {
                vec![of_host(uses[0], seats).count().into()]
            };
            for taken in if is_pair { 3 } else { 2 }..=most {
                let held: u32 = booked.iter().sum();
                proptest::prop_assert!(held + seats.shards_min <= 100, "{booked:?} of {most}");
                let own_use = uses[taken as usize - 1].max(0.01);
                let joiner = of_joiner(own_use, f64::from(held) / 100.0, 100 - held, taken, seats);
                booked.push(joiner.count().into());
            }
            proptest::prop_assert!(booked.iter().sum::<u32>() <= 100, "{booked:?} of {most}");
            proptest::prop_assert!(booked.iter().all(|own| *own >= seats.shards_min), "{booked:?}");
        }

        #[test]
        fn booked_shares_never_pass_a_hundred(a in 0.01f64..1.0, b in 0.01f64..1.0) {
            let [first, second] = of_pair([a, b], at_most(2)).map(Shards::count);
            proptest::prop_assert_eq!(first + second, 100);
            proptest::prop_assert!(first >= 10 && second >= 10);
        }
    }
}
