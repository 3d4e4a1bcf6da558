//! Step 3: of all candidates, those that gain most together. Jobs that have a right to a device, running hosts that may be
//! joined, and joiners are the vertices of a graph, candidates its edges. What is alike is one class of the matching, so
//! that its size grows with the workloads and not with the queue. Must not hand out devices.

mod assign;
mod budget;
mod ends;
mod groups;
mod question;

pub(crate) use ends::{outlives_job, outlives_tenants};
pub(crate) use question::{Cutoff, Partner, Question};

use crate::planner::candidates::candidate_set::CandidateSet;
use crate::planner::index::{CandidateIndex, GroupIndex, JobIndex};
use crate::planner::tries::{Tries, TryKey};
use assign::Assigner;
use budget::{Choice, Solved, Way};
use groups::{Groups, Link};
use std::collections::BTreeMap;
use typed_index_collections::TiVec;

/// How often the choice is made anew at most, because evaluating what is not in it could still change it.
const EVALUATION_ROUNDS_MAX: usize = 3;
/// So often the choice is made anew at most because more than one trial of a kind is in it.
const TRYING_ROUNDS_MAX: usize = 24;
/// So many candidates of each group are evaluated at a time.
const EVALUATED_AT_ONCE_MAX: usize = 12;

/// The partners that gain most together, within the budget of broken promises.
pub(crate) fn select(
    candidates: &mut CandidateSet<'_, '_>,
    question: &Question<'_>,
) -> BTreeMap<JobIndex, Partner> {
    // 1. What is alike is one group, so that the matching grows with the workloads.
    let groups = Groups::new(candidates.evaluator.context, question);
    // 2. Which groups could share, and what that is worth at the price of one estimate.
    let links = groups.links(candidates);
    candidates.screen();
    // 3. How often each is chosen, evaluating more where that could change the choice.
    let chosen = groups.choose_trying(candidates, &links, question);
    // 4. Back from groups to jobs, the first ones first.
    let mut assigner = Assigner::new(&groups, question);
    for (link, count) in links.iter().zip(chosen) {
        for _ in 0..count {
            assigner.assign(link.a, link.b);
        }
    }
    assigner.partners
}

impl Groups<'_, '_> {
    /// How often each link is chosen, one of each kind of trials: while more of a kind are chosen, the first is taken and the
    /// choice made anew with those that are left.
    fn choose_trying(
        &self,
        candidates: &mut CandidateSet<'_, '_>,
        links: &[Link],
        question: &Question<'_>,
    ) -> Vec<u32> {
        let mut counts: Vec<u32> =
            self.vertices.iter().map(|vertices| u32::try_from(vertices.len()).unwrap_or(u32::MAX)).collect();
        let mut tries = question.tries.clone();
        let mut taken = vec![0; links.len()];
        for round in 1.. {
            let chosen = self.choose(candidates, links, &counts, question.allowance, &tries);
            let mut limited: Vec<(f64, usize, TryKey)> = Vec::new();
            for (at, link) in links.iter().enumerate().filter(|(at, _)| chosen[*at] > 0) {
                let key = limiting(candidates, link.candidate, &tries);
                limited
                    .extend(key.map(|key| (candidates.known(link.candidate).weight.unwrap_or(0.0), at, key)));
            }
            limited.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
            let is_last = round == TRYING_ROUNDS_MAX;
            let first: Vec<usize> =
                limited.iter().filter(|(_, _, key)| tries.start(*key)).map(|(_, at, _)| *at).collect();
            let is_overdone = first.len() < limited.len() || first.iter().any(|at| chosen[*at] > 1);
            if is_overdone {
                for at in first {
                    taken[at] += 1;
                    counts[usize::from(links[at].a)] -= 1;
                    counts[usize::from(links[at].b)] -= 1;
                }
            }
            if !is_overdone || is_last {
                let is_over = |at: usize| is_overdone && limited.iter().any(|(_, other, _)| *other == at);
                for (at, count) in chosen.into_iter().enumerate().filter(|(at, _)| !is_over(*at)) {
                    taken[at] += count;
                }
                break;
            }
        }
        taken
    }

    /// How often each link is chosen. What could turn out to be good enough is evaluated, until none is left.
    fn choose(
        &self,
        candidates: &mut CandidateSet<'_, '_>,
        links: &[Link],
        counts: &[u32],
        allowance: f64,
        tries: &Tries,
    ) -> Vec<u32> {
        let mut solved = Solved::default();
        for _ in 0..EVALUATION_ROUNDS_MAX {
            let known = Known::new(candidates, links, tries);
            let near = budget::near(&mut solved, counts, &known.ways, allowance, candidates.risk_price);
            candidates.risk_price = near.risk_price;
            let promising = self.promising(candidates, links, &near.prices);
            if promising.is_empty() && budget::is_settled(&mut solved, counts, &known.ways, allowance, &near)
            {
                return known.taken(&near, links.len());
            }
            if promising.is_empty() {
                break;
            }
            candidates.evaluate(&promising);
        }
        let known = Known::new(candidates, links, tries);
        let choice = budget::choose(&mut solved, counts, &known.ways, allowance, candidates.risk_price);
        candidates.risk_price = choice.risk_price;
        known.taken(&choice, links.len())
    }

    /// The sharings that could turn out to be worth more than their two ends are now: the most promising of each group.
    fn promising(
        &self,
        candidates: &CandidateSet<'_, '_>,
        links: &[Link],
        prices: &[f64],
    ) -> Vec<CandidateIndex> {
        let mut all: Vec<(f64, GroupIndex, GroupIndex, CandidateIndex)> = Vec::new();
        for link in links {
            let Some(weight_bound) = candidates.known(link.candidate).weight_bound else { continue };
            let more = weight_bound - prices[usize::from(link.a)] - prices[usize::from(link.b)];
            if more > 0.0 {
                all.push((more, link.a, link.b, link.candidate));
            }
        }
        all.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.3.cmp(&b.3)));
        let mut seen: TiVec<GroupIndex, usize> = vec![0; self.kinds.len()].into();
        let mut promising: Vec<CandidateIndex> = Vec::new();
        for (_, a, b, candidate) in all {
            if seen[a].min(seen[b]) < EVALUATED_AT_ONCE_MAX {
                (seen[a], seen[b]) = (seen[a] + 1, seen[b] + 1);
                promising.push(candidate);
            }
        }
        promising.sort_unstable();
        promising.dedup();
        promising
    }
}

/// The kind of a trial that may be started still, one at a time.
fn limiting(candidates: &CandidateSet<'_, '_>, candidate: CandidateIndex, tries: &Tries) -> Option<TryKey> {
    let is_limited = candidates.known(candidate).is_limited;
    is_limited.then(|| candidates.try_key(candidate)).flatten().filter(|key| tries.may_start(*key))
}

/// The links that are allowed by what is known, as ways to pair.
struct Known {
    ways: Vec<Way>,
    /// The link of each.
    link_of: Vec<usize>,
}

impl Known {
    fn new(candidates: &CandidateSet<'_, '_>, links: &[Link], tries: &Tries) -> Self {
        let policy = candidates.evaluator.context.policy;
        let mut known = Self { ways: Vec::new(), link_of: Vec::new() };
        for (index, link) in links.iter().enumerate() {
            let appraisal = candidates.known(link.candidate);
            // One of its kind is tried already: what it is without a trial.
            let is_tried = appraisal.is_limited && limiting(candidates, link.candidate, tries).is_none();
            let worth = if is_tried {
                appraisal.otherwise
            } else {
                appraisal.weight.map(|weight| (weight, appraisal.risk))
            };
            if let Some((weight, risk)) = worth {
                let budget = policy.broken_budget(candidates.tenant_count(link.candidate));
                let (a, b) = (link.a.into(), link.b.into());
                known.ways.push(Way { a, b, weight, risk, budget });
                known.link_of.push(index);
            }
        }
        known
    }

    /// How often each link is taken.
    fn taken(&self, choice: &Choice, link_count: usize) -> Vec<u32> {
        let mut taken = vec![0; link_count];
        for (link, count) in self.link_of.iter().zip(&choice.counts) {
            taken[*link] = *count;
        }
        taken
    }
}
