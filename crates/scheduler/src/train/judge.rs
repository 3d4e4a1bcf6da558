//! Whether a candidate takes over: pure (docs/decisions/0003-promotion-of-models.md). It need not be better, for it has
//! seen more: it must not be worse than chance explains, neither in the mean nor in the promises that it would have
//! broken.

use super::backtest::{Scored, summary};
use pillion_store::ModelScore;
use std::collections::BTreeMap;

/// The least difference of mean log scores that counts as a loss.
const LOG_SCORE_MARGIN_MIN: f64 = 0.05;
/// By how much two equally good models differ on one outcome, at least: a true normal forecast's own log score spreads by
/// 0.71 (1/√2), so a few outcomes that happen to agree prove nothing.
const LOG_SCORE_SPREAD_MIN: f64 = 0.5;
/// Outcomes that a model expects below its pessimistic bound.
const BELOW_LOW_EXPECTED: f64 = 0.1;

/// The same outcomes, as two models foretold them, in the same order.
#[derive(Debug, Default)]
pub(super) struct Duel {
    pub(super) candidate: Vec<Scored>,
    pub(super) incumbent: Vec<Scored>,
}

/// What becomes of the candidate, and why: one clause.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Verdict {
    Promote(String),
    Reject(String),
}

/// Judges by outcomes that neither had seen, if there are any, and by those that the candidate was trained on in the end: a
/// model that cannot even tell what it was taught is broken. Without a backtest, only more of the same takes over: a model
/// that `is_continuation` was made by the recipe of the one in use, and knows more.
pub(super) fn judge(held_out: &Duel, taught: &Duel, is_continuation: bool) -> Verdict {
    let few = "too few outcomes are new for a backtest";
    match (compare(held_out), compare(taught)) {
        (Some(Err(loss)), _) => Verdict::Reject(format!("on {}, {loss}", outcomes(held_out, "held out"))),
        (_, Some(Err(loss))) => {
            Verdict::Reject(format!("on {}, {loss}", outcomes(taught, "that it was trained on")))
        }
        (Some(Ok(win)), _) => Verdict::Promote(format!("on {}, {win}", outcomes(held_out, "held out"))),
        (None, _) if is_continuation => {
            Verdict::Promote(format!("{few}, and it tells what was seen no worse"))
        }
        (None, _) => Verdict::Reject(format!("{few}, and it was made in another way than the model in use")),
    }
}

fn outcomes(duel: &Duel, which: &str) -> String {
    format!("{} outcomes {which}", duel.candidate.len())
}

/// The scores to keep.
pub(super) fn scores(held_out: &Duel, incumbent_version: Option<u64>) -> ModelScore {
    let weights = weights(&held_out.candidate);
    ModelScore {
        outcome_count: u32::try_from(held_out.candidate.len()).unwrap_or(u32::MAX),
        candidate: summary(&held_out.candidate, &weights),
        incumbent: summary(&held_out.incumbent, &weights),
        incumbent_version,
    }
}

/// `Ok`: not worse. `None`: there is nothing to compare.
fn compare(duel: &Duel) -> Option<Result<String, String>> {
    let weights = weights(&duel.candidate);
    let (candidate, incumbent) = (summary(&duel.candidate, &weights)?, summary(&duel.incumbent, &weights)?);
    let gain = candidate.log_score_mean - incumbent.log_score_mean;
    let squares = duel
        .candidate
        .iter()
        .zip(&duel.incumbent)
        .zip(&weights)
        .map(|((own, other), weight)| (weight * (own.log_score - other.log_score - gain)).powi(2));
    // As many outcomes as all the weights are worth.
    let count = 1.0 / weights.iter().map(|weight| weight.powi(2)).sum::<f64>();
    let seen = squares.sum::<f64>().sqrt();
    let margin = seen.max(LOG_SCORE_SPREAD_MIN / count.sqrt()).max(LOG_SCORE_MARGIN_MIN);
    let chance = (BELOW_LOW_EXPECTED * (1.0 - BELOW_LOW_EXPECTED) / count).sqrt().max(1.0 / count);
    let below_max = incumbent.below_low_fraction.max(BELOW_LOW_EXPECTED) + chance;
    let log_scores =
        format!("its log score is {:.2} against {:.2}", candidate.log_score_mean, incumbent.log_score_mean);
    Some(if gain < -margin {
        Err(log_scores)
    } else if candidate.below_low_fraction > below_max {
        Err(format!(
            "{:.0} % lie below its pessimistic bound, against {:.0} %",
            candidate.below_low_fraction * 100.0,
            incumbent.below_low_fraction * 100.0
        ))
    } else {
        Ok(log_scores)
    })
}

/// Weights of outcomes that sum to 1. All of one user's together weigh no more than those of all others: nobody decides alone
/// which model others get.
#[expect(clippy::cast_precision_loss, reason = "counts of outcomes are far below 2^53")]
fn weights(scored: &[Scored]) -> Vec<f64> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for outcome in scored {
        *counts.entry(&outcome.user).or_default() += 1;
    }
    let mut raw = Vec::with_capacity(scored.len());
    for outcome in scored {
        let own = counts.get(outcome.user.as_str()).copied().unwrap_or(0);
        let others = scored.len() - own;
        raw.push(if others == 0 { 1.0 } else { own.min(others) as f64 / own as f64 });
    }
    let total: f64 = raw.iter().sum();
    raw.into_iter().map(|weight| weight / total).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(user: &str, log_score: f64, is_below_low: bool) -> Scored {
        Scored { user: user.to_owned(), log_score, error: 0.1, is_below_low }
    }

    /// (candidate, incumbent) log scores.
    fn duel(scores: &[(f64, f64)]) -> Duel {
        let side = |pick: fn(&(f64, f64)) -> f64| {
            scores.iter().map(|both| outcome("alice", pick(both), false)).collect()
        };
        Duel { candidate: side(|both| both.0), incumbent: side(|both| both.1) }
    }

    fn is_promoted(held_out: &Duel, taught: &Duel) -> bool {
        matches!(judge(held_out, taught, true), Verdict::Promote(_))
    }

    #[test]
    fn a_few_outcomes_that_agree_reject_nobody_and_many_do() {
        let scores = (1.18, 1.34);
        assert!(is_promoted(&Duel::default(), &duel(&[scores; 4])));
        assert!(!is_promoted(&Duel::default(), &duel(&[scores; 12])));
    }

    #[test]
    fn whoever_is_no_worse_takes_over_and_whoever_is_worse_does_not() {
        let none = Duel::default();
        assert!(is_promoted(&duel(&[(1.0, 0.5), (1.2, 0.7), (0.9, 0.2)]), &none));
        assert!(is_promoted(&duel(&[(1.0, 1.0), (1.0, 1.04), (1.0, 1.0)]), &none), "as good");
        assert!(is_promoted(&duel(&[(1.5, 0.5), (0.5, 1.6), (1.0, 1.0)]), &none), "within the noise");
        let worse = duel(&[(0.5, 1.0), (0.4, 1.1), (0.6, 1.0)]);
        let Verdict::Reject(why) = judge(&worse, &none, true) else { panic!("promoted") };
        assert_eq!(why, "on 3 outcomes held out, its log score is 0.50 against 1.03");
    }

    #[test]
    fn one_misjudged_pair_is_enough_to_take_over() {
        let taught = duel(&[(1.5, -5.0), (1.4, -3.0)]);
        let Verdict::Promote(why) = judge(&Duel::default(), &taught, true) else { panic!("rejected") };
        assert!(why.starts_with("too few outcomes are new"), "{why}");
    }

    #[test]
    fn another_recipe_has_to_pass_a_backtest() {
        let taught = duel(&[(1.5, 1.0), (1.4, 1.0)]);
        assert!(matches!(judge(&Duel::default(), &taught, false), Verdict::Reject(_)));
        assert!(matches!(judge(&duel(&[(1.1, 1.0); 3]), &taught, false), Verdict::Promote(_)));
    }

    #[test]
    fn a_model_that_cannot_tell_what_it_was_taught_is_broken() {
        let taught = duel(&[(-5.0, 1.0), (-4.0, 1.0)]);
        assert!(!is_promoted(&Duel::default(), &taught));
        assert!(!is_promoted(&duel(&[(1.0, 1.0); 3]), &taught));
    }

    #[test]
    fn more_broken_promises_weigh_more_than_a_better_mean() {
        let side = |log_score: f64, below: usize| {
            (0..20).map(|index| outcome("alice", log_score, index < below)).collect::<Vec<_>>()
        };
        let duel = |below: usize| Duel { candidate: side(1.5, below), incumbent: side(1.0, 1) };
        assert!(is_promoted(&duel(3), &Duel::default()), "chance explains it");
        let Verdict::Reject(why) = judge(&duel(8), &Duel::default(), true) else { panic!("promoted") };
        assert!(why.ends_with("40 % lie below its pessimistic bound, against 5 %"), "{why}");
    }

    #[test]
    fn one_user_never_decides_alone() {
        let mut all = Duel::default();
        for index in 0..40 {
            // A flood of outcomes of one user, which the candidate foretells; it is lost on everybody else's.
            let (user, own, other) = if index < 36 { ("mallory", 1.2, 1.0) } else { ("bob", -1.0, 1.0) };
            all.candidate.push(outcome(user, own, false));
            all.incumbent.push(outcome(user, other, false));
        }
        assert!(!is_promoted(&all, &Duel::default()));
        let sum: f64 = weights(&all.candidate).iter().sum();
        let of_mallory: f64 = weights(&all.candidate)[..36].iter().sum();
        assert!((sum - 1.0).abs() < 1e-9 && (of_mallory - 0.5).abs() < 1e-9);
    }
}
