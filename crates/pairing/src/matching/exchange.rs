//! What stayed alone after rounding, though it is worth something: shifted along alternating ways (pair here, part
//! there) to where it costs less, or until two of them meet and are paired. Which of them meet is chosen by the exact
//! matching of those few.
//!
//! The cost of a way is the slack of the pairs that it makes: what their two ends are priced above what they weigh.

use super::exact::EXACT_VERTICES_MAX;
use super::graph::Graph;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// How often the ways are looked for anew at most.
const ROUNDS_MAX: usize = 12;

/// One step of a way: `from` is paired with one of the class that gives up its mate, who is alone then.
#[derive(Debug, Clone, Copy)]
struct Step {
    from: usize,
    made: usize,
    parted: usize,
}

/// From where one stays alone, the cheapest ways to every class where it could be alone instead.
struct Reach {
    cost: Vec<i64>,
    last_step: Vec<Option<Step>>,
}

/// A way to end it: the last pair between the shifted one and another that is alone; absent = only shifted.
struct Ending {
    shifted_to: usize,
    last_pair: Option<usize>,
}

struct Exchange<'e> {
    graph: &'e Graph,
    prices: &'e [i64],
    /// By class, the edges that are taken.
    taken: Vec<Vec<usize>>,
}

/// Improves a matching. `prices` as in `Relaxed`.
pub(super) fn improve(graph: &Graph, prices: &[i64], pairs: &mut Vec<i64>) {
    for _ in 0..ROUNDS_MAX {
        if graph.is_near_enough(pairs, prices) || !improve_once(graph, prices, pairs) {
            return;
        }
    }
}

/// Whether anything was won.
fn improve_once(graph: &Graph, prices: &[i64], pairs: &mut Vec<i64>) -> bool {
    let mut alone: Vec<usize> = Vec::new();
    for (class, count) in graph.unpaired(pairs).into_iter().enumerate() {
        if prices[class] > 0 {
            alone.extend(std::iter::repeat_n(class, usize::try_from(count).unwrap_or(0)));
        }
    }
    // The dearest first, where they are more than can be matched exactly.
    alone.sort_by_key(|class| (Reverse(prices[*class]), *class));
    alone.truncate(EXACT_VERTICES_MAX);
    let exchange = Exchange { graph, prices, taken: taken(graph, pairs) };
    let dearest = alone.first().map_or(0, |class| prices[*class]);
    let reaches: Vec<Reach> =
        alone.iter().map(|class| exchange.reach(*class, prices[*class] + dearest)).collect();
    let endings = exchange.endings(&alone, &reaches);
    let mut has_won = false;
    for (start, ending) in endings {
        let before = graph.weight(pairs);
        let mut tried = pairs.clone();
        if exchange.go(&reaches[start], &ending, &mut tried) && graph.weight(&tried) > before {
            *pairs = tried;
            has_won = true;
        }
    }
    has_won
}

fn taken(graph: &Graph, pairs: &[i64]) -> Vec<Vec<usize>> {
    let mut taken = vec![Vec::new(); graph.class_count()];
    for (index, edge) in graph.edges.iter().enumerate().filter(|(index, _)| pairs[*index] > 0) {
        taken[edge.a].push(index);
        if edge.a != edge.b {
            taken[edge.b].push(index);
        }
    }
    taken
}

impl Exchange<'_> {
    /// Twice what the two ends of an edge are priced above its weight.
    fn slack(&self, edge: usize) -> i64 {
        let edge = &self.graph.edges[edge];
        self.prices[edge.a] + self.prices[edge.b] - 2 * edge.weight
    }

    /// Everything that is reached for less than `limit`.
    fn reach(&self, start: usize, limit: i64) -> Reach {
        let mut reach =
            Reach { cost: vec![i64::MAX; self.prices.len()], last_step: vec![None; self.prices.len()] };
        let mut open = BinaryHeap::from([(Reverse(0), Reverse(start))]);
        reach.cost[start] = 0;
        while let Some((Reverse(cost), Reverse(from))) = open.pop() {
            if cost > reach.cost[from] {
                continue;
            }
            for neighbour in self.graph.neighbours(from) {
                let cost = cost + self.slack(neighbour.edge);
                if cost >= limit {
                    continue;
                }
                for parted in &self.taken[neighbour.class] {
                    let edge = &self.graph.edges[*parted];
                    let left = if edge.a == neighbour.class { edge.b } else { edge.a };
                    if *parted != neighbour.edge && cost < reach.cost[left] {
                        reach.cost[left] = cost;
                        reach.last_step[left] = Some(Step { from, made: neighbour.edge, parted: *parted });
                        open.push((Reverse(cost), Reverse(left)));
                    }
                }
            }
        }
        reach
    }

    /// Who is shifted, and to what end, so that most is won.
    fn endings(&self, alone: &[usize], reaches: &[Reach]) -> Vec<(usize, Ending)> {
        let count = alone.len();
        let by_itself: Vec<(i64, usize)> =
            alone.iter().zip(reaches).map(|(class, reach)| self.cheapest_place(*class, reach)).collect();
        let mut meetings = vec![None; count * count];
        let mut weights = vec![0_i64; count * count];
        for (start, reach) in reaches.iter().enumerate() {
            for other in (0..count).filter(|other| *other != start) {
                let Some((cost, edge)) = self.meeting(reach, alone[other]) else { continue };
                let wins = self.prices[alone[start]] + self.prices[alone[other]] - cost;
                // What each could win by itself is lost when they meet.
                let wins = wins - by_itself[start].0 - by_itself[other].0;
                if wins > weights[start * count + other] {
                    let (there, back) = (start * count + other, other * count + start);
                    (weights[there], weights[back]) = (wins, wins);
                    (meetings[there], meetings[back]) = (Some((start, edge)), Some((start, edge)));
                }
            }
        }
        let mates = integer_blossom::max_weight_matching(&weights, count);
        let mut endings = Vec::new();
        for (at, mate) in mates.into_iter().enumerate() {
            match mate.and_then(|mate| meetings[at * count + mate]) {
                Some((start, (shifted_to, edge))) if start == at => {
                    endings.push((at, Ending { shifted_to, last_pair: Some(edge) }));
                }
                None if by_itself[at].0 > 0 => {
                    endings.push((at, Ending { shifted_to: by_itself[at].1, last_pair: None }));
                }
                _ => {}
            }
        }
        endings
    }

    /// Where one is alone at the least price, and what is won by that.
    fn cheapest_place(&self, class: usize, reach: &Reach) -> (i64, usize) {
        let places = (0..self.prices.len()).filter(|place| reach.cost[*place] < i64::MAX);
        let wins = places.map(|place| (self.prices[class] - reach.cost[place] - self.prices[place], place));
        wins.max_by_key(|(wins, place)| (*wins, Reverse(*place))).unwrap_or((0, class))
    }

    /// The cheapest way to one that is alone in class `other`: its cost, and from where over which edge it is met.
    fn meeting(&self, reach: &Reach, other: usize) -> Option<(i64, (usize, usize))> {
        let neighbours = self.graph.neighbours(other).iter();
        let reached = neighbours.filter(|neighbour| reach.cost[neighbour.class] < i64::MAX);
        let ways = reached.map(|neighbour| {
            (reach.cost[neighbour.class] + self.slack(neighbour.edge), (neighbour.class, neighbour.edge))
        });
        ways.min()
    }

    /// Goes a way; `false` = a pair would have to part that is not there any more.
    fn go(&self, reach: &Reach, ending: &Ending, pairs: &mut [i64]) -> bool {
        let mut steps = Vec::new();
        let mut here = ending.shifted_to;
        while let Some(step) = reach.last_step[here] {
            steps.push(step);
            here = step.from;
        }
        for step in steps.iter().rev() {
            pairs[step.made] += 1;
            pairs[step.parted] -= 1;
        }
        if let Some(edge) = ending.last_pair {
            pairs[edge] += 1;
        }
        let unpaired = self.graph.unpaired(pairs);
        pairs.iter().all(|count| *count >= 0) && unpaired.iter().all(|count| *count >= 0)
    }
}
