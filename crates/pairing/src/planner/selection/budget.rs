//! The budget of broken promises over a whole plan: of all that share, no more than a fraction may be expected to run
//! slower than promised. A price on the risk is found by bisection around the matching, so that what gains most for its
//! risk is kept. Knows classes, weights and risks only.

use crate::matching::{ClassMatching, Edge, match_classes};
use rustc_hash::FxHashMap;

/// Up to so many ways of pairing the price is found exactly; above, a few rounds have to do.
const WAYS_EXACT_MAX: usize = 2000;
/// Up to so many ways, swaps are tried: with few pairs a price is too coarse.
const WAYS_SWAPPED_MAX: usize = 60;
/// Rounds of bisection: for few ways, and for many.
const ROUNDS_MAX: (usize, usize) = (40, 12);
/// A price is good enough where it leaves this part of the budget unused: for a choice, and to see what is worth evaluating.
const UNUSED_FRACTION_MAX: (f64, f64) = (0.02, 0.1);
/// By how much a price is raised or lowered first: one that was good for a like question, and a first guess.
const NEAR_STEP: f64 = 1.05;
const FAR_STEP: f64 = 4.0;
/// Sums of risks are compared with this tolerance.
const TOLERANCE: f64 = 1e-9;

/// A way to pair one of class `a` with one of class `b`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Way {
    pub(crate) a: usize,
    pub(crate) b: usize,
    /// What it gains.
    pub(crate) weight: f64,
    /// How many of its tenants are expected to run slower than promised.
    pub(crate) risk: f64,
    /// How many broken promises its tenants may cost together.
    pub(crate) budget: f64,
}

impl Way {
    fn excess(&self) -> f64 {
        self.risk - self.budget
    }

    /// What it gains where an expected broken promise beyond the budget costs so much.
    fn value(&self, risk_price: f64) -> f64 {
        self.weight - risk_price * self.excess()
    }

    fn rate(&self) -> f64 {
        rate(self.weight, self.excess())
    }
}

/// What is gained for each promise that is expected to break beyond the budget.
fn rate(weight: f64, excess: f64) -> f64 {
    if excess <= 0.0 { f64::INFINITY } else { weight / excess }
}

/// How often each way is chosen.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Choice {
    /// How many pairs of each way.
    pub(crate) counts: Vec<u32>,
    /// What one more of each class would gain at most, with the risk priced.
    pub(crate) prices: Vec<f64>,
    /// The price of an expected broken promise.
    pub(crate) risk_price: f64,
}

/// What was chosen at prices of the last question: as long as evaluating changes no weight, the same is asked again, and each answer
/// costs a matching.
#[derive(Debug, Default)]
pub(crate) struct Solved {
    counts: Vec<u32>,
    ways: Vec<Way>,
    /// By the bits of the price.
    choices: FxHashMap<u64, Choice>,
}

impl Solved {
    /// The question, with what is known of it.
    fn question<'q>(
        &'q mut self,
        counts: &'q [u32],
        ways: &'q [Way],
        allowance: f64,
        unused_fraction_max: f64,
    ) -> Question<'q> {
        if self.counts != counts || self.ways != ways {
            *self = Self { counts: counts.to_vec(), ways: ways.to_vec(), choices: FxHashMap::default() };
        }
        Question { counts, ways, allowance, unused_fraction_max, choices: &mut self.choices }
    }
}

/// Pairs classes so that they gain most within the budget. `allowance` is what the budget is more (or less) than the sum
/// of what the ways bring along; `risk_price` the price that a question like this one came to, 0 if there was none.
pub(crate) fn choose(
    solved: &mut Solved,
    counts: &[u32],
    ways: &[Way],
    allowance: f64,
    risk_price: f64,
) -> Choice {
    let mut question = solved.question(counts, ways, allowance, UNUSED_FRACTION_MAX.0);
    let is_exact = ways.len() <= WAYS_EXACT_MAX;
    let first = question.at(if is_exact { 0.0 } else { risk_price });
    if question.is_fine(&first) {
        return first;
    }
    let (within, beyond) = question.bisected(first, is_exact);
    let mut choice = question.filled(within, &beyond);
    if ways.len() <= WAYS_SWAPPED_MAX {
        while let Some(better) = question.swapped(&choice.counts) {
            choice.counts = better;
        }
    }
    choice
}

/// Prices near those of the choice: they show what is still to be evaluated.
pub(crate) fn near(
    solved: &mut Solved,
    counts: &[u32],
    ways: &[Way],
    allowance: f64,
    risk_price: f64,
) -> Choice {
    if ways.len() <= WAYS_EXACT_MAX {
        return choose(solved, counts, ways, allowance, risk_price);
    }
    let mut question = solved.question(counts, ways, allowance, UNUSED_FRACTION_MAX.1);
    let first = question.at(risk_price);
    if question.is_fine(&first) { first } else { question.bisected(first, false).0 }
}

/// Whether [`choose`] would choose the same, asked with this price.
pub(crate) fn is_settled(
    solved: &mut Solved,
    counts: &[u32],
    ways: &[Way],
    allowance: f64,
    choice: &Choice,
) -> bool {
    solved.question(counts, ways, allowance, UNUSED_FRACTION_MAX.0).is_fine(choice)
}

struct Question<'q> {
    counts: &'q [u32],
    ways: &'q [Way],
    allowance: f64,
    /// Which part of the budget may be left unused.
    unused_fraction_max: f64,
    /// What was chosen at prices that were tried already, by their bits.
    choices: &'q mut FxHashMap<u64, Choice>,
}

impl Question<'_> {
    /// The best with each expected broken promise priced.
    fn at(&mut self, price: f64) -> Choice {
        if let Some(known) = self.choices.get(&price.to_bits()) {
            return known.clone();
        }
        let choice = self.matched(price);
        self.choices.insert(price.to_bits(), choice.clone());
        choice
    }

    fn matched(&self, price: f64) -> Choice {
        let edges: Vec<Edge> =
            self.ways.iter().map(|way| Edge { a: way.a, b: way.b, weight: way.value(price) }).collect();
        let ClassMatching { pairs, prices, .. } = match_classes(self.counts, &edges);
        // Of parallel ways the matching took the best.
        let mut best: FxHashMap<(usize, usize), usize> = FxHashMap::default();
        for (index, way) in self.ways.iter().enumerate() {
            let kept = best.entry((way.a.min(way.b), way.a.max(way.b))).or_insert(index);
            if way.value(price) > self.ways[*kept].value(price) {
                *kept = index;
            }
        }
        let mut counts = vec![0; self.ways.len()];
        for pair in pairs {
            counts[best[&(pair.a, pair.b)]] = pair.count;
        }
        Choice { counts, prices, risk_price: price }
    }

    /// What is expected to break beyond the budget.
    fn excess(&self, counts: &[u32]) -> f64 {
        let sum: f64 =
            self.ways.iter().zip(counts).map(|(way, count)| way.excess() * f64::from(*count)).sum();
        sum - self.allowance
    }

    fn weight(&self, counts: &[u32]) -> f64 {
        self.ways.iter().zip(counts).map(|(way, count)| way.weight * f64::from(*count)).sum()
    }

    /// Whether the budget is kept, and hardly anything of it left that could be used.
    fn is_fine(&self, choice: &Choice) -> bool {
        let used = self.ways.iter().zip(&choice.counts);
        let budget: f64 = used.map(|(way, count)| way.budget * f64::from(*count)).sum();
        let excess = self.excess(&choice.counts);
        let is_used_up = choice.risk_price == 0.0 || excess >= -self.unused_fraction_max * budget;
        excess <= TOLERANCE && is_used_up
    }

    /// The best choice that was found within the budget, and the one next to it beyond.
    fn bisected(&mut self, first: Choice, is_exact: bool) -> (Choice, Choice) {
        let rounds = if is_exact { ROUNDS_MAX.0 } else { ROUNDS_MAX.1 };
        let average = self.weight(&first.counts) / self.excess(&first.counts).abs().max(TOLERANCE);
        let mut search =
            Search { first_guess: average / FAR_STEP, step: NEAR_STEP, within: None, beyond: None };
        if first.risk_price == 0.0 {
            search.step = FAR_STEP;
        }
        let mut choice = first;
        for round in 0.. {
            let is_enough = !is_exact && self.is_fine(&choice);
            let excess = self.excess(&choice.counts);
            search.add(choice, excess);
            let Some(price) = search.next().filter(|_| !is_enough && round < rounds) else { break };
            choice = self.at(price);
        }
        // Nobody shares where nothing was found within the budget.
        let within = match search.within {
            Some((choice, _)) => choice,
            None => Choice {
                counts: vec![0; self.ways.len()],
                prices: vec![0.0; self.counts.len()],
                risk_price: average,
            },
        };
        (within.clone(), search.beyond.map_or(within, |(choice, _)| choice))
    }

    /// Takes from what is beyond the budget as much as fits: the two differ in chains of exchanges that can be had one by
    /// one, those first that gain most for their risk.
    fn filled(&self, mut within: Choice, beyond: &Choice) -> Choice {
        let mut chains = self.chains(&within.counts, &beyond.counts);
        chains.retain(|chain| chain.weight > 0.0);
        chains.sort_by(|a, b| b.rate().total_cmp(&a.rate()).then_with(|| a.changes.cmp(&b.changes)));
        let mut excess = self.excess(&within.counts);
        for chain in chains {
            if excess + chain.excess <= TOLERANCE {
                excess += chain.excess;
                for (way, change) in chain.changes {
                    within.counts[way] = within.counts[way].saturating_add_signed(change);
                }
            }
        }
        within
    }

    /// A better choice, with up to two pairs given up and others in their place.
    fn swapped(&self, counts: &[u32]) -> Option<Vec<u32>> {
        let taken: Vec<usize> = (0..counts.len()).filter(|way| counts[*way] > 0).collect();
        let mut order: Vec<usize> = (0..self.ways.len()).filter(|way| self.ways[*way].weight > 0.0).collect();
        order.sort_by(|a, b| {
            let [own, other] = [a, b].map(|way| self.ways[*way].rate());
            other.total_cmp(&own).then_with(|| a.cmp(b))
        });
        let none = [None].into_iter();
        let give_up: Vec<Option<usize>> = none.chain(taken.into_iter().map(Some)).collect();
        for (at, one) in give_up.iter().enumerate() {
            for other in &give_up[at..] {
                let mut without = counts.to_vec();
                for way in one.iter().chain(other) {
                    without[*way] = without[*way].saturating_sub(1);
                }
                for first in &order {
                    let mut tried = without.clone();
                    self.add(&mut tried, std::iter::once(*first).chain(order.iter().copied()));
                    let is_within = self.excess(&tried) <= TOLERANCE;
                    if is_within && self.weight(&tried) > self.weight(counts) + TOLERANCE {
                        return Some(tried);
                    }
                }
            }
        }
        None
    }

    /// Takes of these ways, in their order, one each while there are vertices and the budget lasts.
    fn add(&self, counts: &mut [u32], order: impl Iterator<Item = usize>) {
        let mut left: Vec<u32> = self.counts.to_vec();
        for (way, count) in self.ways.iter().zip(counts.iter()) {
            left[way.a] -= count;
            left[way.b] -= count;
        }
        let mut excess = self.excess(counts);
        for index in order {
            let way = &self.ways[index];
            let is_free = if way.a == way.b { left[way.a] > 1 } else { left[way.a] > 0 && left[way.b] > 0 };
            if is_free && excess + way.excess() <= TOLERANCE {
                counts[index] += 1;
                excess += way.excess();
                left[way.a] -= 1;
                left[way.b] -= 1;
            }
        }
    }

    /// What leads from one choice to another, in parts that do not touch each other.
    fn chains(&self, from: &[u32], to: &[u32]) -> Vec<Chain> {
        let mut vertices = Vertices::new(self.counts, self.ways, from, to);
        let mut changes: Vec<(usize, i32, usize)> = Vec::new();
        for (way, (before, after)) in from.iter().zip(to).enumerate() {
            let change = if after >= before { 1 } else { -1 };
            for _ in 0..before.abs_diff(*after) {
                let vertex = vertices.join(&self.ways[way], change);
                changes.push((way, change, vertex));
            }
        }
        let mut chains: FxHashMap<usize, Chain> = FxHashMap::default();
        for (way, change, vertex) in changes {
            let chain = chains.entry(vertices.root(vertex)).or_default();
            chain.weight += f64::from(change) * self.ways[way].weight;
            chain.excess += f64::from(change) * self.ways[way].excess();
            chain.changes.push((way, change));
        }
        chains.into_values().collect()
    }
}

/// The search for the price at which the budget is just kept. Prices may lie far apart, so that their logarithms are
/// compared.
struct Search {
    first_guess: f64,
    step: f64,
    /// The lowest price within the budget and the highest beyond it, and what is in excess of the budget.
    within: Option<(Choice, f64)>,
    beyond: Option<(Choice, f64)>,
}

impl Search {
    fn add(&mut self, choice: Choice, excess: f64) {
        let (side, other) = if excess <= TOLERANCE {
            (&mut self.within, &mut self.beyond)
        } else {
            (&mut self.beyond, &mut self.within)
        };
        // Twice on one side: the other end counts half, or it would never be moved.
        if let Some((_, far)) = other.as_mut().filter(|_| side.is_some()) {
            *far *= 0.5;
        }
        *side = Some((choice, excess));
    }

    /// The price to try next; `None` = it is found.
    fn next(&mut self) -> Option<f64> {
        let [low, high] = [&self.beyond, &self.within].map(|side| Some(side.as_ref()?.0.risk_price));
        let step = self.step;
        match (low, high) {
            (Some(low), Some(high)) if high - low < 1e-9 * high => None,
            (Some(low), Some(high)) if low > 0.0 => {
                let (above, below) = (self.beyond.as_ref()?.1, -self.within.as_ref()?.1);
                let part = (above / (above + below).max(TOLERANCE)).clamp(0.1, 0.9);
                Some((low.ln() + part * (high / low).ln()).exp())
            }
            (Some(_), Some(high)) => Some(high / FAR_STEP),
            (None, Some(0.0)) => None,
            (None, Some(_)) if step > FAR_STEP * FAR_STEP => Some(0.0),
            (low, high) => {
                self.step *= step;
                Some(match (low, high) {
                    (_, Some(high)) => high / step,
                    (Some(low), _) if low > 0.0 => low * step,
                    _ => self.first_guess,
                })
            }
        }
    }
}

/// Changes that depend on each other.
#[derive(Debug, Clone, Default)]
struct Chain {
    weight: f64,
    excess: f64,
    changes: Vec<(usize, i32)>,
}

impl Chain {
    fn rate(&self) -> f64 {
        rate(self.weight, self.excess)
    }
}

/// The vertices of all classes that are paired differently, each for itself, joined where a change touches both.
struct Vertices {
    first: Vec<usize>,
    count: Vec<usize>,
    /// Of each class: how many ends of pairs that are given up have a vertex, and of new ones.
    given_up: Vec<usize>,
    new: Vec<usize>,
    parent: Vec<usize>,
}

impl Vertices {
    fn new(counts: &[u32], ways: &[Way], from: &[u32], to: &[u32]) -> Self {
        let mut count: Vec<usize> = counts.iter().map(|count| *count as usize).collect();
        let mut given_up = vec![0; counts.len()];
        for ((way, before), after) in ways.iter().zip(from).zip(to) {
            let unchanged = *before.min(after) as usize;
            for class in [way.a, way.b] {
                count[class] -= unchanged;
                given_up[class] += before.saturating_sub(*after) as usize;
            }
        }
        let mut first = vec![0; counts.len()];
        for class in 1..counts.len() {
            first[class] = first[class - 1] + count[class - 1];
        }
        let all = first.last().map_or(0, |last| last + count[counts.len() - 1]);
        // New pairs come behind those that are given up, so that they meet only where all vertices are needed.
        Self { first, count, new: given_up, given_up: vec![0; counts.len()], parent: (0..all).collect() }
    }

    /// Gives both ends of a pair a vertex, and joins the two; gives one of them.
    fn join(&mut self, way: &Way, change: i32) -> usize {
        let (one, other) = (self.vertex(way.a, change), self.vertex(way.b, change));
        let (one_root, other_root) = (self.root(one), self.root(other));
        self.parent[one_root.max(other_root)] = one_root.min(other_root);
        one
    }

    /// The next vertex of a class, for a pair that is new or given up.
    fn vertex(&mut self, class: usize, change: i32) -> usize {
        let next = if change > 0 { &mut self.new[class] } else { &mut self.given_up[class] };
        *next += 1;
        self.first[class] + (*next - 1) % self.count[class]
    }

    fn root(&mut self, mut vertex: usize) -> usize {
        while self.parent[vertex] != vertex {
            self.parent[vertex] = self.parent[self.parent[vertex]];
            vertex = self.parent[vertex];
        }
        vertex
    }
}

#[cfg(test)]
mod tests;
