//! What the pairs of a canary came to: how much slower jobs were beside each other, how far off it was foretold, and what that would have
//! been under the promise that the site gives to jobs that name none. Pure.

use crate::format;
use pillion_core::units::keeps_promise;
use serde::Serialize;

/// The site's own promise, as the scheduler calls it.
pub const SITE_PROMISE: &str = "policy.slowdown_ratio_max";

/// One of two that shared a device, in parts of its speed alone.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Speed {
    pub expected_fraction: Option<f64>,
    pub bound_fraction: Option<f64>,
    /// Measured; above 0.
    pub fraction: f64,
}

/// All of them together.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Verdict {
    /// How many were measured.
    pub speed_count: usize,
    /// Times alone.
    pub slowdown_ratio_median: f64,
    pub slowdown_ratio_worst: f64,
    /// By how much of the speed alone it was foretold wrongly, faster or slower; absent: nothing was foretold.
    pub speed_error_fraction_median: Option<f64>,
    pub speed_error_fraction_worst: Option<f64>,
    /// Absent: the scheduler does not tell the site's promise.
    pub site: Option<Site>,
}

/// What became of it under the site's own promise.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Site {
    pub slowdown_ratio_max: f64,
    /// Of all measured speeds.
    pub broken_count: usize,
    /// Pairs of which both bounds keep it: those that would have been put together. And the promises broken in them.
    pub admitted_pair_count: usize,
    pub admitted_broken_count: usize,
    /// The other pairs, and those of them in which both would have kept it all the same.
    pub refused_pair_count: usize,
    pub refused_kept_pair_count: usize,
}

/// `None`: no pair was measured. `pairs`: those that shared a device and were measured. `promise`: the site's own.
pub fn of(pairs: &[[Speed; 2]], promise: Option<f64>) -> Option<Verdict> {
    let speeds: Vec<&Speed> = pairs.iter().flatten().collect();
    let (slowdown_ratio_median, slowdown_ratio_worst) =
        median_and_most(speeds.iter().map(|speed| 1.0 / speed.fraction).collect())?;
    let errors = speeds.iter().filter_map(|speed| Some((speed.fraction - speed.expected_fraction?).abs()));
    let error = median_and_most(errors.collect());
    Some(Verdict {
        speed_count: speeds.len(),
        slowdown_ratio_median,
        slowdown_ratio_worst,
        speed_error_fraction_median: error.map(|(median, _)| median),
        speed_error_fraction_worst: error.map(|(_, most)| most),
        site: promise.map(|promise| site(pairs, promise)),
    })
}

fn site(pairs: &[[Speed; 2]], promise: f64) -> Site {
    let is_kept = |speed: &&Speed| keeps_promise(speed.fraction, promise);
    let is_admitted = |pair: &&[Speed; 2]| {
        pair.iter().all(|speed| speed.bound_fraction.is_some_and(|bound| keeps_promise(bound, promise)))
    };
    let (admitted, refused): (Vec<_>, Vec<_>) = pairs.iter().partition(is_admitted);
    let broken =
        |pairs: &[&[Speed; 2]]| pairs.iter().flat_map(|pair| *pair).filter(|speed| !is_kept(speed)).count();
    Site {
        slowdown_ratio_max: promise,
        broken_count: broken(&admitted) + broken(&refused),
        admitted_pair_count: admitted.len(),
        admitted_broken_count: broken(&admitted),
        refused_pair_count: refused.len(),
        refused_kept_pair_count: refused
            .iter()
            .filter(|pair| pair.iter().all(|speed| is_kept(&speed)))
            .count(),
    }
}

/// The middle one (of two in the middle the greater) and the greatest; `None` of none.
fn median_and_most(mut values: Vec<f64>) -> Option<(f64, f64)> {
    values.sort_by(f64::total_cmp);
    Some((*values.get(values.len() / 2)?, *values.last()?))
}

/// In sentences, one a line.
pub fn sentences(verdict: &Verdict) -> Vec<String> {
    let Verdict { speed_count, slowdown_ratio_median, slowdown_ratio_worst, .. } = verdict;
    let mut lines = vec![format!(
        "Beside another {} took {} as long as alone at the median, {} at the most",
        format::counted(*speed_count, "job"),
        format::ratio(Some(*slowdown_ratio_median)),
        format::ratio(Some(*slowdown_ratio_worst)),
    )];
    if verdict.speed_error_fraction_median.is_some() {
        lines.push(format!(
            "Their speeds were foretold wrongly by {} of the speed alone at the median, {} at the most",
            format::fraction(verdict.speed_error_fraction_median),
            format::fraction(verdict.speed_error_fraction_worst),
        ));
    }
    lines.extend(verdict.site.as_ref().map(site_sentence));
    lines
}

fn site_sentence(site: &Site) -> String {
    let pair_count = site.admitted_pair_count + site.refused_pair_count;
    let mut line = format!(
        "Under this site's own promise ({}) {} of {} would be together by their bounds, with {} broken",
        format::ratio(Some(site.slowdown_ratio_max)),
        site.admitted_pair_count,
        format::counted(pair_count, "pair"),
        format::counted(site.admitted_broken_count, "promise"),
    );
    if site.refused_pair_count > 0 {
        let refused = format!(
            "; of the {} that would not, {} would have kept both",
            site.refused_pair_count, site.refused_kept_pair_count
        );
        line.push_str(&refused);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn speed(expected: f64, bound: f64, fraction: f64) -> Speed {
        Speed { expected_fraction: Some(expected), bound_fraction: Some(bound), fraction }
    }

    #[test]
    fn it_says_what_was_measured_and_what_that_is_under_the_sites_own_promise() {
        let pairs = [
            // Together under 1.25x, and kept; together, and one broken; not together, and would have been kept; neither.
            [speed(0.95, 0.9, 0.93), speed(0.95, 0.85, 0.95)],
            [speed(0.9, 0.82, 0.9), speed(0.9, 0.81, 0.7)],
            [speed(0.9, 0.7, 0.9), speed(0.95, 0.9, 0.95)],
            [speed(0.6, 0.4, 0.5), speed(0.6, 0.4, 0.55)],
        ];
        let verdict = of(&pairs, Some(1.25)).unwrap();
        let site = Site {
            slowdown_ratio_max: 1.25,
            broken_count: 3,
            admitted_pair_count: 2,
            admitted_broken_count: 1,
            refused_pair_count: 2,
            refused_kept_pair_count: 1,
        };
        assert_eq!((verdict.speed_count, verdict.site), (8, Some(site)));
        assert!((verdict.slowdown_ratio_worst - 2.0).abs() < 1e-9 && verdict.slowdown_ratio_median > 1.1);
        assert!((verdict.speed_error_fraction_worst.unwrap() - 0.2).abs() < 1e-9);
        let said = sentences(&verdict);
        assert_eq!(
            said[0],
            "Beside another 8 jobs took 1.11x as long as alone at the median, 2.00x at the most"
        );
        assert_eq!(
            said[1],
            "Their speeds were foretold wrongly by 2 % of the speed alone at the median, 20 % at the most"
        );
        assert_eq!(
            said[2],
            "Under this site's own promise (1.25x) 2 of 4 pairs would be together by their bounds, with 1 promise broken; of the 2 that would not, 1 would have kept both"
        );
    }

    #[test]
    fn of_nothing_nothing_is_said() {
        assert_eq!(of(&[], Some(1.25)), None);
        let unknown = Speed { expected_fraction: None, bound_fraction: None, fraction: 0.9 };
        let verdict = of(&[[unknown; 2]], None).unwrap();
        assert_eq!((verdict.speed_error_fraction_median, verdict.site), (None, None));
        assert_eq!(sentences(&verdict).len(), 1);
        // Where nothing was foretold nobody would have been put together.
        assert_eq!(of(&[[unknown; 2]], Some(1.25)).unwrap().site.unwrap().admitted_pair_count, 0);
    }
}
