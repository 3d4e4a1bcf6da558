//! What came of the jobs, held against what was decided in the shadow. Pure. Begins, ends and memory are measured; how fast anybody would
//! have gone beside others nobody can know: speeds stay what was predicted.

use super::standing::{Ran, Standing, Standings};
use super::view::{begins_at, own_speed};
use pillion_core::UnixTime;
use pillion_core::shadow::{ShadowFit, ShadowOutcome};
use pillion_store::{ShadowBeside, ShadowDecision, ShadowScore};
use std::time::Duration;

/// A time is as believed within this part of it, or within [`NEAR_SECONDS`].
const NEAR_FRACTION: f64 = 0.25;
const NEAR_SECONDS: f64 = 60.0;
/// Two that do not fit are found out after five minutes, and both start again: as a replay has it.
const UNFIT_SECONDS: f64 = 300.0;

/// What a decision is held against.
#[derive(Clone, Copy)]
pub(crate) struct Truth<'a> {
    pub(crate) standings: &'a Standings<'a>,
    /// All decisions of its group, in the order in which they were made, closed ones too.
    pub(crate) group: &'a [ShadowDecision],
    /// The partitions that are observed now.
    pub(crate) partitions: &'a [String],
}

/// What came of a decision; `None`: not all whom it is about are over.
pub(crate) fn score(decision: &ShadowDecision, truth: Truth<'_>) -> Option<ShadowScore> {
    let is_observed = decision.partition.split(',').any(|name| truth.partitions.iter().any(|it| it == name));
    if !is_observed {
        return Some(closed(ShadowOutcome::NotObserved));
    }
    let own = match truth.standings.of(decision.start()) {
        Standing::Waits => return None,
        Standing::Gone => return Some(closed(ShadowOutcome::NeverRan)),
        Standing::Ran(ran) => ran,
    };
    let mut others = Vec::new();
    for neighbour in &decision.beside {
        match truth.standings.of(neighbour.start) {
            Standing::Waits => return None,
            Standing::Gone => return Some(closed(ShadowOutcome::PartnerNeverRan)),
            Standing::Ran(ran) => others.push(ran),
        }
    }
    let held_seconds = over(&own)?;
    if !others.iter().all(|ran| over(ran).is_some()) {
        return None;
    }
    let beside = match others.first() {
        Some(host) => Some(beside(decision, &own, host, truth)?),
        None => None,
    };
    let believed = decision.member.solo_duration_seconds;
    Some(ShadowScore {
        outcome: ShadowOutcome::Scored,
        held_seconds,
        is_duration_as_believed: believed.map(|believed| is_near(held_seconds, believed)),
        beside,
    })
}

fn closed(outcome: ShadowOutcome) -> ShadowScore {
    ShadowScore { outcome, held_seconds: 0.0, is_duration_as_believed: None, beside: None }
}

/// How long it ran, once nothing more is to come of it.
fn over(ran: &Ran) -> Option<f64> {
    ran.seconds().filter(|_| ran.is_settled)
}

fn is_near(seconds: f64, believed: f64) -> bool {
    (seconds - believed).abs() <= (believed * NEAR_FRACTION).max(NEAR_SECONDS)
}

/// `None`: somebody who came to the same device before may have been there still, and is not over.
fn beside(decision: &ShadowDecision, own: &Ran, host: &Ran, truth: Truth<'_>) -> Option<ShadowBeside> {
    let begun = begins_at(decision, truth.standings)?;
    let host_speed = decision.beside.first().map_or(1.0, |host| host.estimate.lasting_speed_fraction());
    let own_seconds = left_at(own, begun, decision.is_with_host);
    let host_seconds = left_at(host, begun, true);
    let own_speed = own_speed(decision);
    let overlap_seconds = (host_seconds / host_speed).min(own_seconds / own_speed).max(0.0);
    let fit = fit(decision, [own, host], begun, truth)?;
    // What the host had done, and what both did until it was found out.
    let lost = begun.seconds_since(host.started_at) + UNFIT_SECONDS.min(overlap_seconds);
    let (saved_seconds_low, saved_seconds) = match fit {
        _ if overlap_seconds <= 0.0 => (0.0, 0.0),
        ShadowFit::Fits | ShadowFit::Near => {
            (overlap_seconds * decision.gain_low, overlap_seconds * decision.gain)
        }
        // Nobody knows whether they would have fitted: nothing is claimed for certain.
        ShadowFit::Unknown => {
            (0.0_f64.min(overlap_seconds * decision.gain_low), overlap_seconds * decision.gain)
        }
        ShadowFit::Short => (-lost, -lost),
    };
    let is_over_limit = decision.time_limit_seconds.is_some_and(|limit| {
        #[expect(clippy::cast_precision_loss, reason = "time limits are far below 2^53 seconds")]
        let limit = limit as f64;
        // Only while it is beside somebody is it slowed.
        own_seconds + overlap_seconds * (1.0 - own_speed) > limit
    });
    Some(ShadowBeside {
        fit,
        overlap_seconds,
        is_overlap_as_believed: decision.overlap_seconds_believed.map(|it| is_near(overlap_seconds, it)),
        saved_seconds_low,
        saved_seconds,
        is_over_limit,
    })
}

/// Of how long it ran in truth, what is left at a moment; all of it, where its part of the story begins there whenever that was.
fn left_at(ran: &Ran, begun: UnixTime, is_from_its_start: bool) -> f64 {
    let all = ran.seconds().unwrap_or(0.0);
    if is_from_its_start { all - begun.seconds_since(ran.started_at) } else { all }
}

/// Whether the memory of all who would have been there in its time would have sufficed.
fn fit(
    decision: &ShadowDecision,
    [own, host]: [&Ran; 2],
    begun: UnixTime,
    truth: Truth<'_>,
) -> Option<ShadowFit> {
    let mut peaks = vec![own.memory_bytes_peak, host.memory_bytes_peak];
    let until = begun + span(left_at(own, begun, decision.is_with_host) / own_speed(decision));
    let earlier = truth.group.iter().take_while(|other| other.start() != decision.start());
    for other in earlier.filter(|other| decision.beside[0].start != other.start()) {
        let standing = truth.standings.of(other.start());
        let Some(ran) = standing.ran() else {
            // One that waits may be there one day: it came before, and the memory is its.
            if matches!(standing, Standing::Waits) {
                return None;
            }
            continue;
        };
        let other_begun = begins_at(other, truth.standings)?;
        let other_left = left_at(ran, other_begun, !other.is_joiner() || other.is_with_host);
        over(ran)?;
        let other_until = other_begun + span(other_left / own_speed(other));
        if other_begun < until && begun < other_until {
            peaks.push(ran.memory_bytes_peak);
        }
    }
    let Some(peaks) = peaks.into_iter().collect::<Option<Vec<u64>>>() else {
        return Some(ShadowFit::Unknown);
    };
    if decision.device_memory_bytes == 0 {
        return Some(ShadowFit::Unknown);
    }
    let all = peaks.into_iter().fold(0, u64::saturating_add);
    #[expect(clippy::cast_precision_loss, reason = "memory is far below 2^53 bytes")]
    let fill = all as f64 / decision.device_memory_bytes as f64;
    Some(match fill {
        fill if fill > 1.0 => ShadowFit::Short,
        fill if fill > ShadowFit::NEAR_FRACTION => ShadowFit::Near,
        _ => ShadowFit::Fits,
    })
}

fn span(seconds: f64) -> Duration {
    Duration::from_secs_f64(if seconds.is_finite() { seconds.clamp(0.0, 1e9) } else { 0.0 })
}
