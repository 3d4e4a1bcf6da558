//! What was considered, for `--candidates`: an entry for each way of sharing that differs in workloads, caps or rule, so
//! that it grows with the workloads and not with the queue.

use super::alone::Alone;
use super::pairings::AnswerPairing;
use crate::plan::Reason;
use crate::planner::considered::Considered;
use pillion_core::Fraction;
use serde::Serialize;
use std::collections::BTreeMap;

/// A way of sharing that was considered, under the caps that suit it best.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AnswerCandidate {
    /// Who would share: the running one first, else in the order of their names.
    pub members: Vec<CandidateMember>,
    /// Sum of speed fractions less one; `null` where a rule forbade it before anything was estimated.
    pub gain: Option<f64>,
    /// The rule that excluded it; `null` = it was chosen.
    pub excluded_by: Option<Reason>,
    /// How many pairings of the plan are of it.
    pub chosen_count: usize,
}

/// One that would share.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CandidateMember {
    /// What it runs.
    pub workload: String,
    /// Whether it runs already.
    pub is_running: bool,
    /// Its cap; `null` = none.
    pub cap_fraction: Option<Fraction>,
    /// Expected speed over solo speed.
    pub speed_fraction: Option<f64>,
    /// The truth lies above it with the probability `model.interval`.
    pub speed_fraction_low: Option<f64>,
    /// The truth lies below it with the probability `model.interval`.
    pub speed_fraction_high: Option<f64>,
}

/// What tells a candidate from others: for each member whether it runs, its workload and its cap; and the rule.
type Key = (Vec<Part>, Option<Reason>);
/// Running ones first, then by name, then by cap, none last.
type Part = (bool, String, u64);

fn part(is_running: bool, workload: &str, cap_fraction: Option<Fraction>) -> Part {
    // The bits of numbers that are not negative are in the order of the numbers.
    (!is_running, workload.to_owned(), cap_fraction.unwrap_or(Fraction::ONE).value().to_bits())
}

/// The candidates in the order of their names, and how often the plan chose each.
pub(super) fn candidates(
    considered: &[Considered],
    pairings: &[AnswerPairing],
    alone: &[Alone],
) -> Vec<AnswerCandidate> {
    let mut found: BTreeMap<Key, AnswerCandidate> = BTreeMap::new();
    for one in considered {
        let (parts, members) = members(one);
        let passed_over = if one.is_beyond_budget && are_left(one, pairings, alone) {
            Reason::BeyondBudget
        } else {
            Reason::BetterPlanElsewhere
        };
        found.entry((parts, one.excluded_by)).or_insert_with(|| AnswerCandidate {
            members,
            gain: (!one.estimates.is_empty()).then_some(one.gain),
            excluded_by: one.excluded_by.or(Some(passed_over)),
            chosen_count: 0,
        });
    }
    for pairing in pairings {
        let mut parts: Vec<Part> = pairing
            .members
            .iter()
            .map(|member| part(member.running_row.is_some(), &member.workload, member.cap_fraction))
            .collect();
        parts.sort();
        if let Some(chosen) = found.get_mut(&(parts, None)) {
            chosen.excluded_by = None;
            chosen.chosen_count += 1;
        }
    }
    found.into_values().collect()
}

/// Whether jobs and hosts that run the same as all of its members are left without anybody to share with.
fn are_left(one: &Considered, pairings: &[AnswerPairing], alone: &[Alone]) -> bool {
    let (running, waiting) = one.workloads.split_at(one.running_count);
    let mut joined = pairings.iter().flat_map(|pairing| &pairing.members);
    let is_joined = joined.any(|member| {
        member.running_row.is_some() && running.iter().any(|host| host.as_str() == member.workload)
    });
    let are_alone = waiting.iter().all(|workload| {
        let needed = waiting.iter().filter(|other| *other == workload).count();
        alone.iter().filter(|job| job.workload == workload.as_str()).count() >= needed
    });
    are_alone && !is_joined
}

fn members(one: &Considered) -> (Vec<Part>, Vec<CandidateMember>) {
    let mut all: Vec<(Part, CandidateMember)> = Vec::new();
    for (at, (workload, cap_fraction)) in one.workloads.iter().zip(&one.caps).enumerate() {
        let estimate = one.estimates.get(at);
        let member = CandidateMember {
            workload: workload.as_str().to_owned(),
            is_running: at < one.running_count,
            cap_fraction: *cap_fraction,
            speed_fraction: estimate.map(|own| own.speed_fraction),
            speed_fraction_low: estimate.map(|own| own.speed_fraction_low),
            speed_fraction_high: estimate.map(|own| own.speed_fraction_high),
        };
        all.push((part(member.is_running, &member.workload, member.cap_fraction), member));
    }
    all.sort_by(|a, b| a.0.cmp(&b.0));
    all.into_iter().unzip()
}
