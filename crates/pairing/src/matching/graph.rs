//! The question in whole numbers: classes, the edges between them, and what an answer to it is worth.

/// A loss of no more than this part of the bound is left as it is: estimates are coarser by far.
pub(super) const LOSS_FRACTION_MAX: f64 = 2e-4;
/// Weights become whole numbers up to this: deterministic, finer than any estimate, and sums of paths fit.
const WHOLE_WEIGHT_MAX: f64 = 1e12;

/// A pair that pays.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Edge {
    /// The class of one of the two.
    pub a: usize,
    /// The class of the other; may be the same.
    pub b: usize,
    /// What is won by each such pair; edges of 0 or less are never taken.
    pub weight: f64,
}

impl Edge {
    /// Whether it wins anything, and there are two whom it could pair.
    fn pays(&self, counts: &[u32]) -> bool {
        let [of_a, of_b] = [self.a, self.b].map(|class| counts.get(class).copied().unwrap_or(0));
        let are_two = of_a > 0 && of_b > 0 && (self.a != self.b || of_a > 1);
        are_two && self.weight > 0.0 && self.weight.is_finite()
    }
}

/// One end of an edge, seen from the other.
#[derive(Debug, Clone, Copy)]
pub(super) struct Neighbour {
    pub(super) class: usize,
    pub(super) edge: usize,
}

/// Two different or equal classes that pay, the lower first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct WholeEdge {
    pub(super) a: usize,
    pub(super) b: usize,
    pub(super) weight: i64,
}

/// The question in whole numbers.
pub(super) struct Graph {
    pub(super) counts: Vec<i64>,
    /// Sorted by their ends, each once, all of positive weight.
    pub(super) edges: Vec<WholeEdge>,
    /// The neighbours of each class, by where its own begin.
    neighbours: Vec<Neighbour>,
    first_neighbour: Vec<usize>,
    /// By how much weights were multiplied.
    pub(super) scale: f64,
}

impl Graph {
    #[expect(clippy::cast_possible_truncation, reason = "scaled to at most 1e12")]
    pub(super) fn new(counts: &[u32], edges: &[Edge]) -> Self {
        let paying = edges.iter().filter(|edge| edge.pays(counts));
        let heaviest = paying.clone().map(|edge| edge.weight).fold(0.0, f64::max);
        let scale = if heaviest > 0.0 { WHOLE_WEIGHT_MAX / heaviest } else { 1.0 };
        let whole = paying.map(|edge| WholeEdge {
            a: edge.a.min(edge.b),
            b: edge.a.max(edge.b),
            weight: (edge.weight * scale).round() as i64,
        });
        let mut edges: Vec<WholeEdge> = whole.filter(|edge| edge.weight > 0).collect();
        edges.sort_unstable_by_key(|edge| (edge.a, edge.b, std::cmp::Reverse(edge.weight)));
        edges.dedup_by_key(|edge| (edge.a, edge.b));
        Self::whole(counts.iter().map(|count| i64::from(*count)).collect(), edges, scale)
    }

    fn whole(counts: Vec<i64>, edges: Vec<WholeEdge>, scale: f64) -> Self {
        let (neighbours, first_neighbour) = adjacency(counts.len(), &edges);
        Self { counts, edges, neighbours, first_neighbour, scale }
    }

    /// The same classes, of some vertices and edges only; the edges sorted as they are here.
    pub(super) fn part(&self, counts: Vec<i64>, edges: Vec<WholeEdge>) -> Self {
        Self::whole(counts, edges, self.scale)
    }

    pub(super) fn class_count(&self) -> usize {
        self.counts.len()
    }

    pub(super) fn neighbours(&self, class: usize) -> &[Neighbour] {
        &self.neighbours[self.first_neighbour[class]..self.first_neighbour[class + 1]]
    }

    /// How many vertices have an edge at all.
    pub(super) fn vertex_count(&self) -> usize {
        let touched = (0..self.class_count()).filter(|class| !self.neighbours(*class).is_empty());
        touched.map(|class| usize::try_from(self.counts[class]).unwrap_or(usize::MAX)).sum()
    }

    /// How many of each class are paired with nobody. `pairs` counts the pairs of each edge.
    pub(super) fn unpaired(&self, pairs: &[i64]) -> Vec<i64> {
        let mut unpaired = self.counts.clone();
        for (edge, count) in self.edges.iter().zip(pairs) {
            unpaired[edge.a] -= count;
            unpaired[edge.b] -= count;
        }
        unpaired
    }

    pub(super) fn weight(&self, pairs: &[i64]) -> i128 {
        self.edges.iter().zip(pairs).map(|(edge, count)| i128::from(edge.weight) * i128::from(*count)).sum()
    }

    /// Twice the upper bound that these prices prove: a pair weighs no more than its two ends are priced.
    pub(super) fn bound(&self, prices: &[i64]) -> i128 {
        self.counts.iter().zip(prices).map(|(count, price)| i128::from(*count) * i128::from(*price)).sum()
    }

    pub(super) fn is_proven_best(&self, pairs: &[i64], prices: &[i64]) -> bool {
        2 * self.weight(pairs) >= self.bound(prices)
    }

    /// Whether what could still be won is not worth the time.
    #[expect(clippy::cast_precision_loss, reason = "compared roughly")]
    pub(super) fn is_near_enough(&self, pairs: &[i64], prices: &[i64]) -> bool {
        let bound = self.bound(prices);
        (bound - 2 * self.weight(pairs)) as f64 <= LOSS_FRACTION_MAX * bound as f64
    }
}

/// The neighbours of all classes one after the other, and where those of each begin.
fn adjacency(class_count: usize, edges: &[WholeEdge]) -> (Vec<Neighbour>, Vec<usize>) {
    let mut ends: Vec<(usize, Neighbour)> = Vec::with_capacity(2 * edges.len());
    for (index, edge) in edges.iter().enumerate() {
        ends.push((edge.a, Neighbour { class: edge.b, edge: index }));
        if edge.a != edge.b {
            ends.push((edge.b, Neighbour { class: edge.a, edge: index }));
        }
    }
    let mut first = vec![0; class_count + 1];
    for (class, _) in &ends {
        first[class + 1] += 1;
    }
    for class in 0..class_count {
        first[class + 1] += first[class];
    }
    let mut next = first.clone();
    let mut neighbours = vec![Neighbour { class: 0, edge: 0 }; ends.len()];
    for (class, neighbour) in ends {
        neighbours[next[class]] = neighbour;
        next[class] += 1;
    }
    (neighbours, first)
}
