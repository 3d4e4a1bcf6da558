//! What is waited for memory whose bandwidth neighbours take. Caps do not keep it apart: a loop over memory reaches all of the
//! bandwidth with half of the compute units. Whoever reads at all waits as the neighbours come near to all of it, be it ever so
//! little that it needs itself; what is far from that is hardly felt.
//!
//! The constants are of pairs that caps keep apart. Two loops on an H200: beside 0.55 of the bandwidth 0.84 of the speed alone under the
//! cap, beside 0.75 of it 0.68, beside 0.88 of it 0.58. KACE's workloads on a V100: beside 0.75 of it 0.87, and as much for who takes
//! 0.06 as for who takes 0.3; who takes less than 0.02 loses nothing.

/// How much is waited, and how late that begins.
const WAIT: f64 = 0.27;
const EXPONENT: i32 = 4;
const CAPACITY: f64 = 1.1;
/// More of its nominal bandwidth no memory gives.
const REACHED_MAX: f64 = 0.95;
/// Who takes less of the bandwidth than this is seldom there to wait.
const WAITS_ALWAYS_FRACTION: f64 = 0.06;

/// The time of a tenant that takes the part `own` of the bandwidth alone, beside others that take the part `others`, over its time
/// alone, 1 or more; grows with both.
pub(super) fn delay(own: f64, others: f64) -> f64 {
    let others = others.clamp(0.0, REACHED_MAX);
    let is_there = (own / WAITS_ALWAYS_FRACTION).clamp(0.0, 1.0);
    1.0 + is_there * WAIT * others.powi(EXPONENT) / (CAPACITY - others)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_reads_waits_for_whoever_takes_nearly_all() {
        let speed = |others| 1.0 / delay(0.13, others);
        assert!(speed(0.5) > 0.95, "{}", speed(0.5));
        assert!((0.7..0.9).contains(&speed(0.75)), "{}", speed(0.75));
        assert!((0.5..0.65).contains(&speed(0.88)), "{}", speed(0.88));
        assert!(delay(0.001, 0.9) < 1.03, "who does not read does not wait");
    }

    #[test]
    fn two_that_take_all_do_together_what_one_does() {
        assert!((1.7..2.1).contains(&delay(0.9, 0.9)));
    }
}
