//! The exact answer for few vertices: the blossom algorithm, each vertex of a class for itself.

use super::graph::Graph;

/// Up to so many vertices what is not yet proven best is matched by the blossom algorithm: it takes cubic time.
pub(super) const EXACT_VERTICES_MAX: usize = 200;

/// How often each edge is taken.
pub(super) fn solve(graph: &Graph) -> Vec<i64> {
    let class_of: Vec<usize> = (0..graph.class_count())
        .filter(|class| !graph.neighbours(*class).is_empty())
        .flat_map(|class| std::iter::repeat_n(class, usize::try_from(graph.counts[class]).unwrap_or(0)))
        .collect();
    let count = class_of.len();
    let mut matrix = vec![0_i64; count * count];
    let mut first_of = vec![0..0; graph.class_count()];
    for (vertex, class) in class_of.iter().enumerate() {
        let start = if first_of[*class].is_empty() { vertex } else { first_of[*class].start };
        first_of[*class] = start..vertex + 1;
    }
    for edge in &graph.edges {
        for a in first_of[edge.a].clone() {
            for b in first_of[edge.b].clone().filter(|b| *b != a) {
                matrix[a * count + b] = edge.weight;
                matrix[b * count + a] = edge.weight;
            }
        }
    }
    let mut pairs = vec![0; graph.edges.len()];
    for (vertex, mate) in integer_blossom::max_weight_matching(&matrix, count).into_iter().enumerate() {
        if let Some(mate) = mate.filter(|mate| vertex < *mate) {
            let ends = (class_of[vertex].min(class_of[mate]), class_of[vertex].max(class_of[mate]));
            if let Ok(edge) = graph.edges.binary_search_by_key(&ends, |edge| (edge.a, edge.b)) {
                pairs[edge] += 1;
            }
        }
    }
    pairs
}
