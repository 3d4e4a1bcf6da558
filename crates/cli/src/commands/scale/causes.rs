//! Why counts take what they take, on a terminal: what devices did, into what the overhead falls apart, and which rank is not as the
//! others are.

use super::amounts::{quantity, time};
use crate::format::{self, fraction};
use crate::output::{Block, Table};
use pillion_scale::{Cause, OddRank, Oddity};

const COLUMNS: [&str; 9] = [
    ">GPUS",
    ">RUNS",
    ">LEAST_BUSY",
    ">MEAN_BUSY",
    ">MOST_BUSY",
    ">LINKS",
    ">IDLE_RANKS",
    ">COMMUNICATION",
    ">REST",
];

/// Nothing where no run was watched.
pub(super) fn blocks(causes: &[Cause]) -> Vec<Block> {
    if causes.is_empty() {
        return Vec::new();
    }
    let mut table = Table::new(&COLUMNS);
    for cause in causes {
        table.push(line(cause));
    }
    let mut blocks = vec![
        Block::Line(
            "Overhead by what devices did; busy: the part of the run in which a device computed".to_owned(),
        ),
        Block::Table(table, 0),
    ];
    let of_cause = |cause: &Cause| {
        let gpus = format::counted(cause.gpus as usize, "GPU");
        cause
            .odd_ranks
            .iter()
            .map(move |odd| Block::Line(format::clean(&sentence(&gpus, odd))))
            .collect::<Vec<_>>()
    };
    blocks.extend(causes.iter().flat_map(of_cause));
    blocks.push(Block::Line(String::new()));
    blocks
}

fn line(cause: &Cause) -> Vec<String> {
    let seconds = |part: Option<f64>| part.map(time).unwrap_or_default();
    vec![
        cause.gpus.to_string(),
        cause.runs.to_string(),
        fraction(Some(cause.least_active_fraction)),
        fraction(Some(cause.mean_active_fraction)),
        fraction(Some(cause.most_active_fraction)),
        cause
            .link_bytes_per_second
            .map(|bytes| format!("{} MB/s", quantity(bytes / 1e6)))
            .unwrap_or_default(),
        seconds(cause.idle_ranks_seconds),
        seconds(cause.communication_seconds),
        seconds(cause.rest_seconds),
    ]
}

fn sentence(gpus: &str, odd: &OddRank) -> String {
    let OddRank { node, device, oddity, active_fraction, others_fraction } = odd;
    let (own, others) = (fraction(Some(*active_fraction)), fraction(Some(*others_fraction)));
    match oddity {
        Oddity::Idle => format!("{gpus}: {device} on {node} did nothing ({own} busy, the others {others})"),
        Oddity::Slow => {
            format!(
                "{gpus}: the slow rank is {device} on {node} ({own} busy): the others ({others}) wait for it"
            )
        }
        Oddity::Light => format!(
            "{gpus}: {device} on {node} does less than the others ({own} busy, they {others}): it has less to do, or waits for its input"
        ),
    }
}
