//! What the budget of broken promises does to jobs that would be admitted by themselves, and what they are told of it.

use super::*;
use crate::model::{InterferenceModel, PredictError, SpeedEstimate, TenantInput};
use std::sync::Arc;

/// Two without caps are nearly always fast, and far too slow in one case of fourteen; of two with caps all is known.
struct FatTail;

impl InterferenceModel for FatTail {
    fn name(&self) -> &'static str {
        "fat-tail"
    }

    fn predict(&self, tenants: &[TenantInput<'_>], _: &str) -> Result<Vec<SpeedEstimate>, PredictError> {
        let is_capped = tenants.iter().any(|tenant| tenant.sharing.cap().is_some());
        let is_calm = tenants.iter().any(|tenant| tenant.profile.workload.as_str() == "light");
        let (speed, deviation) = match (tenants.len(), is_capped || is_calm) {
            (1, _) => (1.0, 0.0),
            (_, true) => (0.95, 0.01),
            (_, false) => (0.97, 0.1),
        };
        let estimate = SpeedEstimate {
            speed_fraction: speed,
            speed_fraction_deviation: deviation,
            has_heavy_tail: !is_calm,
            speed_fraction_low: speed - 1.28 * deviation,
            speed_fraction_high: 1.0,
            terms: Arc::default(),
        };
        Ok(vec![estimate; tenants.len()])
    }

    fn power_watts(&self, _: &[TenantInput<'_>], _: &str) -> Option<f64> {
        None
    }
}

fn pair(policy: &Policy) -> Plan {
    plan(&two(job(1, "half"), job(2, "half")), &FatTail, policy)
}

#[test]
fn two_too_risky_together_are_told_so_and_not_that_another_sharing_gains_more() {
    let policy = Policy { caps: false, ..Policy::default() };
    let plan = pair(&policy);
    assert_eq!(groups(&plan), [[1]], "seven in a hundred each, and the budget is 2 %");
    assert_eq!(exclusion(&plan, 1, 2), Some(Reason::BeyondBudget));
    assert_eq!(exclusion(&plan, 2, 1), Some(Reason::BeyondBudget));
    assert_eq!(
        &*plan.pairings[0].members[0].explanation.text,
        "starts alone, and others may join; beside the best partner: more promises would be at risk than the site's budget allows"
    );
    let policy = Policy { broken_budget_fraction: 0.1, ..policy };
    assert_eq!(groups(&pair(&policy)), [[1, 2]]);
}

#[test]
fn whoever_shares_with_another_was_not_passed_over_for_the_budget() {
    let policy = Policy { caps: false, ..Policy::default() };
    let waiting = vec![job(1, "half"), job(2, "half"), job(3, "light")];
    let plan = plan(&view(vec![device("g0", Mps)], waiting), &FatTail, &policy);
    assert_eq!(groups(&plan), [[1, 3]]);
    assert_eq!(exclusion(&plan, 1, 2), Some(Reason::BetterPlanElsewhere));
    assert_eq!(exclusion(&plan, 2, 1), Some(Reason::BetterPlanElsewhere));
}

#[test]
fn caps_are_tried_where_a_fast_pair_is_too_risky_without() {
    let plan = pair(&Policy::default());
    assert_eq!(groups(&plan), [[1, 2]]);
    assert!(plan.pairings[0].members.iter().any(|member| member.sharing.cap().is_some()));
}
