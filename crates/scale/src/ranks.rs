//! Why a count scales as it does: what each device of a run did, and into what the overhead falls apart by it.
//!
//! ```text
//! overhead = T(n) - T(1) / n          a: part of the time in which a device computes; a1: at the smallest count
//!   idle ranks     (most a - mean a) T(n)                       the others wait for the busiest
//!   communication  (1 - most a) T(n) - (1 - a1) T(1) / n        all wait at once, and more goes over the links
//!   rest           what is left: more computing than was divided, input, whatever telemetry does not tell
//! ```
//!
//! Each part is at least nothing, and the parts add up to the overhead. A device that computes and sends at the same time counts as computing, so what is
//! told of communication is the least that it can be.

use crate::curve::number;
use crate::table::{Row, Source, Table};
use serde::Serialize;

/// A rank that computes less than this does nothing.
const IDLE_FRACTION: f64 = 0.05;
/// A rank is named where all others are on one side of it, so far away: a twentieth is noise of the meters.
const ODD_GAP_FRACTION: f64 = 0.1;
/// Links carry more at a count where a device sends so many times what it sent at the smallest, and at least so much.
const LINKS_RATIO: f64 = 1.5;
const LINKS_BYTES_PER_SECOND: f64 = 1e6;

/// What one device of a run did.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Rank {
    /// Where it is.
    pub node: String,
    /// Which of the node's devices.
    pub device: String,
    /// The part of the time in which its compute units worked.
    pub active_fraction: Option<f64>,
    /// Over NVLink and PCIe, in both directions; `None` where it does not say.
    pub link_bytes_per_second: Option<f64>,
}

/// One run as its devices tell of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Watched {
    /// GPUs that the run had.
    pub gpus: u32,
    /// Those that were watched.
    pub ranks: Vec<Rank>,
}

/// What is odd about a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Oddity {
    /// It does nothing.
    Idle,
    /// It computes longer than all others, which wait for it.
    Slow,
    /// It computes less than all others: it has less to do, or waits for something that they do not.
    Light,
}

/// A rank that is not as the others are.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OddRank {
    /// Where it is.
    pub node: String,
    /// Which of the node's devices.
    pub device: String,
    /// What is odd about it.
    pub oddity: Oddity,
    /// The part of the time in which it computes, and the mean of all others.
    pub active_fraction: f64,
    /// Of the others.
    pub others_fraction: f64,
}

/// Why a count takes what it takes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cause {
    /// Which count.
    pub gpus: u32,
    /// From how many runs, of all devices of which something is known.
    pub runs: usize,
    /// The part of the time in which a device computes: of the least busy one, the mean, and of the busiest.
    pub least_active_fraction: f64,
    /// The mean of all.
    pub mean_active_fraction: f64,
    /// Of the busiest one.
    pub most_active_fraction: f64,
    /// What a device sends and receives over NVLink and PCIe, the mean.
    pub link_bytes_per_second: Option<f64>,
    /// Of the overhead: while some wait for others. `None` at the smallest count, where nothing is compared.
    pub idle_ranks_seconds: Option<f64>,
    /// While all wait at once, and more goes over the links than at the smallest count; `None` where nobody counts what goes over them.
    pub communication_seconds: Option<f64>,
    /// What is left.
    pub rest_seconds: Option<f64>,
    /// Ranks that are not as the others are, in the newest run of which that can be said.
    pub odd_ranks: Vec<OddRank>,
}

/// What the runs of one count did, put together.
struct Mean {
    runs: usize,
    least: f64,
    /// Of all of its devices.
    middle: f64,
    most: f64,
    links: Option<f64>,
    odd_ranks: Vec<OddRank>,
}

/// Why each measured count of a table takes what it takes, as far as runs were watched whole. `watched`: the newest first.
pub fn causes(table: &Table, watched: &[Watched]) -> Vec<Cause> {
    let measured: Vec<(&Row, Option<Mean>)> = table
        .rows
        .iter()
        .filter(|row| row.source == Source::Measured)
        .map(|row| (row, mean(watched, row.gpus)))
        .collect();
    let Some((first, base)) = measured.first() else { return Vec::new() };
    let causes = measured.iter().filter_map(|(row, of_count)| {
        let of_count = of_count.as_ref()?;
        let base = base.as_ref().filter(|_| row.gpus > first.gpus);
        Some(cause(row, of_count, base.map(|base| (*first, base))))
    });
    causes.collect()
}

fn cause(row: &Row, of_count: &Mean, base: Option<(&Row, &Mean)>) -> Cause {
    let parts = base.map(|(first, base)| parts(row, of_count, first, base));
    Cause {
        gpus: row.gpus,
        runs: of_count.runs,
        least_active_fraction: of_count.least,
        mean_active_fraction: of_count.middle,
        most_active_fraction: of_count.most,
        link_bytes_per_second: of_count.links,
        idle_ranks_seconds: parts.map(|(idle, ..)| idle),
        communication_seconds: parts.and_then(|(_, communication, _)| communication),
        rest_seconds: parts.map(|(.., rest)| rest),
        odd_ranks: of_count.odd_ranks.clone(),
    }
}

/// Idle ranks, communication and the rest, in seconds.
fn parts(row: &Row, of_count: &Mean, first: &Row, base: &Mean) -> (f64, Option<f64>, f64) {
    let (time, overhead) = (row.time_seconds.expected, row.overhead_seconds.max(0.0));
    let divided = first.time_seconds.expected * f64::from(first.gpus) / f64::from(row.gpus);
    let idle = ((of_count.most - of_count.middle) * time).clamp(0.0, overhead);
    let waits = ((1.0 - of_count.most) * time - (1.0 - base.most) * divided).clamp(0.0, overhead - idle);
    let communication = of_count.links.map(|links| {
        let is_more =
            links >= LINKS_BYTES_PER_SECOND && base.links.is_none_or(|base| links >= LINKS_RATIO * base);
        if is_more { waits } else { 0.0 }
    });
    (idle, communication, overhead - idle - communication.unwrap_or(0.0))
}

fn mean(watched: &[Watched], gpus: u32) -> Option<Mean> {
    let known: Vec<(&Watched, Vec<f64>)> = watched
        .iter()
        .filter(|run| run.gpus == gpus && run.ranks.len() == gpus as usize)
        .filter_map(|run| {
            let active: Option<Vec<f64>> = run.ranks.iter().map(|rank| rank.active_fraction).collect();
            Some((run, active?))
        })
        .collect();
    let runs = known.len();
    let average = |of_run: &dyn Fn(&[f64]) -> f64| {
        known.iter().map(|(_, active)| of_run(active)).sum::<f64>() / number(runs)
    };
    if runs == 0 {
        return None;
    }
    let links: Vec<f64> = known.iter().filter_map(|(run, _)| links(run)).collect();
    Some(Mean {
        runs,
        least: average(&|active| active.iter().copied().fold(f64::INFINITY, f64::min)),
        middle: average(&|active| active.iter().sum::<f64>() / number(active.len())),
        most: average(&|active| active.iter().copied().fold(0.0, f64::max)),
        links: (!links.is_empty()).then(|| links.iter().sum::<f64>() / number(links.len())),
        odd_ranks: known
            .iter()
            .map(|(run, active)| odd_ranks(&run.ranks, active))
            .find(|odd| !odd.is_empty())
            .unwrap_or_default(),
    })
}

/// The mean over its devices, where all of them tell.
fn links(run: &Watched) -> Option<f64> {
    let all: Option<Vec<f64>> = run.ranks.iter().map(|rank| rank.link_bytes_per_second).collect();
    all.map(|all| all.iter().sum::<f64>() / number(all.len()))
}

/// Those that do nothing; else the one that stands furthest away from all others. Of two ranks the busier one is what the other waits for.
fn odd_ranks(ranks: &[Rank], active: &[f64]) -> Vec<OddRank> {
    let odd = |at: usize, oddity: Oddity| {
        let others: f64 = active.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, it)| it).sum();
        OddRank {
            node: ranks[at].node.clone(),
            device: ranks[at].device.clone(),
            oddity,
            active_fraction: active[at],
            others_fraction: others / number(active.len() - 1),
        }
    };
    if active.len() < 2 {
        return Vec::new();
    }
    let idle: Vec<usize> = (0..active.len()).filter(|at| active[*at] < IDLE_FRACTION).collect();
    if !idle.is_empty() {
        // Where none computes nothing is odd about any of them.
        let all = idle.len() == active.len();
        return if all { Vec::new() } else { idle.into_iter().map(|at| odd(at, Oddity::Idle)).collect() };
    }
    let mut order: Vec<usize> = (0..active.len()).collect();
    order.sort_by(|one, other| active[*one].total_cmp(&active[*other]));
    let (lightest, busiest) = (order[0], order[order.len() - 1]);
    let above = active[busiest] - active[order[order.len() - 2]];
    let below = active[order[1]] - active[lightest];
    if above.max(below) < ODD_GAP_FRACTION {
        Vec::new()
    } else if above >= below {
        vec![odd(busiest, Oddity::Slow)]
    } else {
        vec![odd(lightest, Oddity::Light)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Measure, Run};
    use crate::shape::NodeShape;

    fn table(times: &[(u32, f64)]) -> Table {
        let run = |(gpus, seconds): &(u32, f64)| Run {
            nodes: Some(1),
            gpus: *gpus,
            cpus: None,
            seconds: *seconds,
            power_watts: None,
        };
        let runs: Vec<Run> = times.iter().map(run).collect();
        Table::of(Measure::Elapsed, &runs, NodeShape::of(4), 1.0).unwrap()
    }

    fn watched(active: &[f64], links: Option<f64>) -> Watched {
        let rank = |(at, active): (usize, &f64)| Rank {
            node: "n1".to_owned(),
            device: format!("g{at}"),
            active_fraction: Some(*active),
            link_bytes_per_second: links,
        };
        let ranks: Vec<Rank> = active.iter().enumerate().map(rank).collect();
        Watched { gpus: u32::try_from(ranks.len()).unwrap(), ranks }
    }

    fn close(told: Option<f64>, expected: f64) -> bool {
        told.is_some_and(|told| (told - expected).abs() < 1e-9)
    }

    #[test]
    fn a_slow_rank_is_named_and_what_the_others_wait_for_it_is_idle_time() {
        // 100 s of work; of four ranks three compute 25 s and one 40, for which they wait.
        let told = causes(
            &table(&[(1, 100.0), (4, 40.0)]),
            &[watched(&[1.0], None), watched(&[0.625, 0.625, 1.0, 0.625], None)],
        );
        let [one, four] = told.as_slice() else { panic!("{told:?}") };
        assert_eq!((one.idle_ranks_seconds, one.odd_ranks.len()), (None, 0));
        // 15 s of overhead; the mean rank waits 11.25 s, and the slow one has 3.75 s more than its part for each.
        assert!(close(four.idle_ranks_seconds, 11.25) && close(four.rest_seconds, 3.75), "{four:?}");
        assert_eq!(four.communication_seconds, None, "nobody counts what goes over the links");
        let [odd] = four.odd_ranks.as_slice() else { panic!("{four:?}") };
        assert_eq!((odd.node.as_str(), odd.device.as_str(), odd.oddity), ("n1", "g2", Oddity::Slow));
        assert!((odd.others_fraction - 0.625).abs() < 1e-9);
        assert!(
            (four.least_active_fraction - 0.625).abs() < 1e-9
                && (four.most_active_fraction - 1.0).abs() < 1e-9
        );
    }

    #[test]
    fn all_waiting_at_once_is_communication_where_more_goes_over_the_links() {
        // 100 s alone; each of two computes 50 s and waits 20.
        let (times, active) = (table(&[(1, 100.0), (2, 70.0)]), 50.0 / 70.0);
        let of = |base: Option<f64>, links: Option<f64>| {
            causes(&times, &[watched(&[1.0], base), watched(&[active, active], links)]).pop().unwrap()
        };
        let busy = of(Some(1e7), Some(4e9));
        assert!(close(busy.communication_seconds, 20.0) && close(busy.rest_seconds, 0.0), "{busy:?}");
        let silent = of(Some(1e9), Some(1e9));
        assert!(close(silent.communication_seconds, 0.0) && close(silent.rest_seconds, 20.0), "{silent:?}");
        let unknown = of(None, None);
        assert_eq!(unknown.communication_seconds, None);
        assert!(close(unknown.rest_seconds, 20.0));
    }

    #[test]
    fn ranks_that_do_nothing_and_those_that_do_less_are_named() {
        let odd = |active: &[f64]| {
            let told = odd_ranks(&watched(active, None).ranks, active);
            told.into_iter().map(|odd| (odd.device, odd.oddity)).collect::<Vec<_>>()
        };
        let name = |at: usize| format!("g{at}");
        assert_eq!(odd(&[0.9, 0.0, 0.01, 0.9]), [(name(1), Oddity::Idle), (name(2), Oddity::Idle)]);
        assert_eq!(odd(&[0.9, 0.5, 0.92, 0.9]), [(name(1), Oddity::Light)]);
        assert_eq!(odd(&[0.6, 0.9]), [(name(1), Oddity::Slow)]);
        assert_eq!(odd(&[0.8, 0.85, 0.82]), []);
        assert_eq!(odd(&[0.0, 0.0]), [], "none of them computes");
        assert_eq!(odd(&[0.5]), []);
    }

    #[test]
    fn a_run_that_was_not_watched_whole_tells_nothing() {
        let mut half = watched(&[0.5, 0.5], None);
        half.gpus = 4;
        assert_eq!(causes(&table(&[(1, 100.0), (4, 40.0)]), &[half]), []);
        let mut unread = watched(&[0.5], None);
        unread.ranks[0].active_fraction = None;
        assert_eq!(causes(&table(&[(1, 100.0), (4, 40.0)]), &[unread]), []);
    }

    #[test]
    fn the_parts_add_up_to_the_overhead_and_none_is_below_nothing() {
        for (first, second, time) in [(1.0, 0.2, 49.0), (0.3, 0.9, 70.0), (0.9, 0.9, 120.0), (0.1, 1.0, 55.0)]
        {
            let told = causes(
                &table(&[(1, 100.0), (2, time)]),
                &[watched(&[first], Some(0.0)), watched(&[first, second], Some(1e9))],
            );
            let two = told.last().unwrap();
            let parts =
                [two.idle_ranks_seconds, two.communication_seconds, two.rest_seconds].map(Option::unwrap);
            assert!(parts.iter().all(|part| *part >= -1e-9), "{parts:?}");
            assert!((parts.iter().sum::<f64>() - (time - 50.0).max(0.0)).abs() < 1e-9, "{parts:?}");
        }
    }
}
