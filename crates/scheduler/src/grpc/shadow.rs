//! What would have been done, and what came of the jobs: sums over recorded decisions, as the command line prints them. Pure.

use super::auth::Caller;
use crate::shadow::calibration::{Calibration, calibration, saved_seconds_low};
use pillion_api as api;
use pillion_core::UnixTime;
use pillion_core::reason::Reason;
use pillion_core::shadow::ShadowOutcome;
use pillion_pairing::Role;
use pillion_store::{ForetoldSpeed, ShadowFilter, ShadowSums};
use std::collections::BTreeMap;
use std::time::Duration;
use tonic::Status;

/// Which decisions are asked for: everybody's, or the caller's own.
///
/// # Errors
/// Where the stretch of time ends before it begins, or nobody knows who asks.
pub(super) fn filter(request: &api::ShadowRequest, caller: Caller) -> Result<ShadowFilter, Status> {
    let since = UnixTime::from_seconds(request.since_seconds);
    let until = UnixTime::from_seconds(request.until_seconds);
    if until <= since {
        return Err(Status::invalid_argument("the stretch of time ends before it begins"));
    }
    let uid = if caller.is_operator { None } else { caller.uid };
    if uid.is_none() && !caller.is_operator {
        return Err(Status::permission_denied("nobody knows who asks"));
    }
    Ok(ShadowFilter { since, until, uid })
}

/// For how long what was measured in the pool counts.
const CALIBRATION_TIME: Duration = Duration::from_hours(30 * 24);

/// Since when; `None`: the caller is not told of others' jobs.
pub(super) fn calibrated_since(filter: &ShadowFilter) -> Option<UnixTime> {
    filter.uid.is_none().then(|| filter.until - CALIBRATION_TIME)
}

/// What was measured in the pool of speeds that were foretold, and what by that would have been saved.
pub(super) fn calibrated(speeds: &[ForetoldSpeed], sums: &[ShadowSums]) -> Option<api::ShadowCalibration> {
    let Calibration {
        speed_count,
        above_bound_count,
        promises_broken,
        promises_broken_expected,
        stretch_ratio,
    } = calibration(speeds);
    (speed_count > 0).then(|| api::ShadowCalibration {
        speed_count,
        above_bound_count,
        promises_broken,
        promises_broken_expected,
        stretch_ratio,
        saved_gpu_hours_low: stretch_ratio.map(|stretch| saved_seconds_low(sums, stretch) / 3600.0),
    })
}

/// Adds up.
pub(super) fn answer(
    sums: &[ShadowSums],
    filter: &ShadowFilter,
    mode: &str,
    partitions: &[String],
) -> api::ShadowResponse {
    let mut answer = api::ShadowResponse {
        since_seconds: filter.since.seconds(),
        until_seconds: filter.until.seconds(),
        mode: mode.to_owned(),
        partitions: partitions.to_vec(),
        ..api::ShadowResponse::default()
    };
    let (mut alone, mut unscored, mut fits) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    let (mut overlap, mut durations) = <(api::ShadowBelief, api::ShadowBelief)>::default();
    for sum in sums {
        answer.start_count += sum.count;
        answer.gpu_hours += sum.held_seconds / 3600.0;
        match sum.outcome {
            None => answer.open_count += sum.count,
            Some(ShadowOutcome::Scored) => {
                count_belief(&mut durations, sum.is_duration_as_believed, sum.count);
            }
            Some(_) => {}
        }
        if sum.role != Role::Joiner {
            *alone.entry((sum.reason.to_string(), why(sum.reason))).or_default() += sum.count;
            continue;
        }
        answer.paired_count += sum.count;
        answer.promise_count += sum.promise_count;
        answer.promises_at_risk += sum.broken_expected;
        match (sum.outcome, sum.fit) {
            (Some(ShadowOutcome::Scored), Some(fit)) => {
                answer.scored_count += sum.count;
                *fits.entry((fit.to_string(), fit.text())).or_default() += sum.count;
                count_belief(&mut overlap, sum.is_overlap_as_believed, sum.count);
                answer.overlap_hours_believed += sum.overlap_seconds_believed / 3600.0;
                answer.overlap_hours += sum.overlap_seconds / 3600.0;
                answer.saved_gpu_hours_low += sum.saved_seconds_low / 3600.0;
                answer.saved_gpu_hours += sum.saved_seconds / 3600.0;
                answer.over_limit_count += sum.over_limit_count;
            }
            (Some(outcome), _) => {
                *unscored.entry((outcome.to_string(), outcome.text())).or_default() += sum.count;
            }
            (None, _) => *unscored.entry(("open".to_owned(), "not over yet")).or_default() += sum.count,
        }
    }
    answer.alone = counts(alone);
    answer.unscored = counts(unscored);
    answer.fits = counts(fits);
    (answer.overlap, answer.durations) = (Some(overlap), Some(durations));
    answer
}

/// Why somebody would have had a GPU without coming to anybody.
fn why(reason: Reason) -> &'static str {
    match reason {
        Reason::AloneJoinable => "others could have joined it",
        Reason::Paired => "another would have begun with it",
        other => other.text(),
    }
}

fn count_belief(belief: &mut api::ShadowBelief, is_as_believed: Option<bool>, count: u32) {
    let counted = match is_as_believed {
        Some(true) => &mut belief.as_believed_count,
        Some(false) => &mut belief.otherwise_count,
        None => &mut belief.unknown_count,
    };
    *counted += count;
}

/// The most frequent first.
fn counts(counted: BTreeMap<(String, &'static str), u32>) -> Vec<api::ShadowCount> {
    let counts = counted.into_iter().map(|((kind, text), count)| api::ShadowCount {
        kind,
        text: text.to_owned(),
        count,
    });
    let mut counts: Vec<api::ShadowCount> = counts.collect();
    counts.sort_by_key(|one| std::cmp::Reverse(one.count));
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{NOW, at};
    use pillion_core::UserId;
    use pillion_core::shadow::ShadowFit;

    fn sum(role: Role, reason: Reason, outcome: Option<ShadowOutcome>, count: u32) -> ShadowSums {
        ShadowSums {
            role,
            reason,
            outcome,
            fit: None,
            is_duration_as_believed: None,
            is_overlap_as_believed: None,
            count,
            promise_count: 0,
            broken_expected: 0.0,
            over_limit_count: 0,
            held_seconds: 3600.0,
            overlap_seconds_believed: 0.0,
            overlap_seconds: 0.0,
            saved_seconds_low: 0.0,
            saved_seconds: 0.0,
        }
    }

    #[test]
    fn what_was_scored_stands_apart_from_what_nobody_saw_the_end_of() {
        let scored = ShadowSums {
            fit: Some(ShadowFit::Fits),
            is_overlap_as_believed: Some(false),
            is_duration_as_believed: Some(true),
            promise_count: 4,
            broken_expected: 0.3,
            saved_seconds_low: 1800.0,
            saved_seconds: 3600.0,
            overlap_seconds: 7200.0,
            ..sum(Role::Joiner, Reason::Joined, Some(ShadowOutcome::Scored), 2)
        };
        let open = ShadowSums {
            promise_count: 2,
            broken_expected: 0.2,
            ..sum(Role::Joiner, Reason::Joined, None, 1)
        };
        let sums = [
            sum(Role::Alone, Reason::UnknownWorkload, Some(ShadowOutcome::Scored), 5),
            scored,
            open,
            sum(Role::Joiner, Reason::Paired, Some(ShadowOutcome::NeverRan), 3),
        ];
        let filter = ShadowFilter { since: at(NOW - 10), until: at(NOW), uid: None };
        let answer = answer(&sums, &filter, "shadow", &["gpu".to_owned()]);
        assert_eq!(
            (answer.start_count, answer.open_count, answer.paired_count, answer.scored_count),
            (11, 1, 6, 2)
        );
        assert!(
            (answer.saved_gpu_hours_low - 0.5).abs() < 1e-9 && (answer.saved_gpu_hours - 1.0).abs() < 1e-9
        );
        assert_eq!(answer.promise_count, 6);
        assert!((answer.promises_at_risk - 0.5).abs() < 1e-9);
        let told = |counts: &[api::ShadowCount]| {
            counts.iter().map(|one| (one.kind.clone(), one.count)).collect::<Vec<_>>()
        };
        assert_eq!(told(&answer.unscored), [("never-ran".to_owned(), 3), ("open".to_owned(), 1)]);
        assert_eq!(told(&answer.fits), [("fits".to_owned(), 2)]);
        assert_eq!(told(&answer.alone), [("unknown-workload".to_owned(), 5)]);
        let overlap = answer.overlap.unwrap();
        assert_eq!((overlap.as_believed_count, overlap.otherwise_count), (0, 2));
        let durations = answer.durations.unwrap();
        assert_eq!((durations.as_believed_count, durations.unknown_count), (2, 5));
    }

    #[test]
    fn a_user_is_told_of_his_own_and_a_stranger_of_nothing() {
        let request = api::ShadowRequest { since_seconds: 1.0, until_seconds: 2.0 };
        let of =
            |uid: Option<u32>, is_operator| filter(&request, Caller { uid: uid.map(UserId), is_operator });
        assert_eq!(of(Some(7), false).unwrap().uid, Some(UserId(7)));
        assert_eq!(of(Some(0), true).unwrap().uid, None);
        assert!(of(None, false).is_err());
        let empty = api::ShadowRequest { since_seconds: 2.0, until_seconds: 2.0 };
        assert!(filter(&empty, Caller { uid: None, is_operator: true }).is_err());
    }
}
