//! What could be saved at most on the queue of `peers`, by who knows every speed: any two jobs may be together at any time, two a
//! device, each with any cap, and nobody slower than promised. By the simulation itself, which no plan may look into.

use anyhow::Context as _;
use pillion_device::simulated::contention::{Seat, evaluate};
use pillion_device::simulated::hardware::{self, Hardware};
use pillion_device::simulated::workload::{self, Placed};
use pillion_tests::peers::Order;
use std::collections::{BTreeMap, BTreeSet};

/// Hours of the jobs alone, and what is saved of them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Bound {
    pub(crate) alone_hours: f64,
    /// Everybody may share.
    pub(crate) saved_hours: f64,
    /// The same where each first run of a workload is alone.
    pub(crate) saved_hours_first_alone: f64,
}

/// The bound of a queue on devices of this model.
pub(crate) fn bound(orders: &[Order], device_model: &str, slowdown_ratio_max: f64) -> anyhow::Result<Bound> {
    let hardware = hardware::by_name(device_model).context("the device model")?;
    let mut placed: BTreeMap<&str, Placed> = BTreeMap::new();
    for order in orders {
        let (name, batch) = order.load.split_once(" --batch-size ").unwrap_or((order.load, ""));
        placed.insert(order.load, workload::find(name, batch.parse().ok())?.on(&hardware));
    }
    let mut ways: BTreeMap<[&str; 2], Vec<[f64; 2]>> = BTreeMap::new();
    for (a, of_a) in &placed {
        for (b, of_b) in &placed {
            ways.insert([*a, *b], speeds(&hardware, [of_a, of_b], 1.0 / slowdown_ratio_max));
        }
    }
    let alone: f64 = orders.iter().map(|order| f64::from(order.work_seconds)).sum();
    let everybody = vec![true; orders.len()];
    let mut seen = BTreeSet::new();
    let not_first: Vec<bool> = orders.iter().map(|order| !seen.insert(order.workload.as_str())).collect();
    Ok(Bound {
        alone_hours: alone / 3600.0,
        saved_hours: saved_seconds(orders, &ways, &everybody) / 3600.0,
        saved_hours_first_alone: saved_seconds(orders, &ways, &not_first) / 3600.0,
    })
}

/// The speeds of two, under each pair of caps that keeps both promises.
fn speeds(hardware: &Hardware, tenants: [&Placed; 2], speed_min: f64) -> Vec<[f64; 2]> {
    let mut kept = Vec::new();
    for cap_a in 1..=10 {
        for cap_b in 1..=10 {
            let caps = [cap_a, cap_b].map(|tenths| f64::from(tenths) / 10.0);
            let seats = [0, 1].map(|at| Seat {
                cycle: tenants[at].cycle.clone(),
                engine: 0,
                context: 0,
                units_max: caps[at] * hardware.units(),
            });
            let settled = evaluate(hardware, 1, &seats);
            let speeds = [0, 1].map(|at| settled.shares[at].cycles_per_second * tenants[at].cycle_seconds);
            if speeds.iter().all(|speed| *speed >= speed_min) {
                kept.push(speeds);
            }
        }
    }
    kept
}

/// The most that matching those saves who may share.
fn saved_seconds(orders: &[Order], ways: &BTreeMap<[&str; 2], Vec<[f64; 2]>>, may_share: &[bool]) -> f64 {
    let count = orders.len();
    let mut weights = vec![0_i64; count * count];
    for a in 0..count {
        for b in (0..count).filter(|b| *b != a && may_share[a] && may_share[*b]) {
            let work = [a, b].map(|at| f64::from(orders[at].work_seconds));
            let best = ways[&[orders[a].load, orders[b].load]].iter().map(|speeds| saved(work, *speeds));
            #[expect(clippy::cast_possible_truncation, reason = "some thousand seconds")]
            let best = best.fold(0.0_f64, f64::max) as i64;
            weights[a * count + b] = weights[a * count + b].max(best);
            weights[b * count + a] = weights[a * count + b];
        }
    }
    let mates = integer_blossom::max_weight_matching(&weights, count);
    let pairs = mates
        .iter()
        .enumerate()
        .filter_map(|(a, mate)| mate.filter(|b| *b > a).map(|b| weights[a * count + b]));
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let sum = pairs.sum::<i64>() as f64;
    sum
}

/// Seconds of a device that two save: together until one is done, then the other alone.
fn saved([work_a, work_b]: [f64; 2], [a, b]: [f64; 2]) -> f64 {
    let together = (work_a / a).min(work_b / b);
    let rest = (work_a - a * together).max(0.0) + (work_b - b * together).max(0.0);
    work_a + work_b - together - rest
}

/// What is said of it.
pub(crate) fn sentence(bound: &Bound) -> String {
    let Bound { alone_hours, saved_hours, saved_hours_first_alone } = *bound;
    format!(
        "At most, knowing every speed and with any two together at any time: {saved_hours:.1} of {alone_hours:.1} h ({:.0} %); where each \
         workload runs alone once: {saved_hours_first_alone:.1} h ({:.0} %).",
        100.0 * saved_hours / alone_hours,
        100.0 * saved_hours_first_alone / alone_hours
    )
}
