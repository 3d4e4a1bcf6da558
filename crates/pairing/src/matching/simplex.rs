//! The transportation problem, by the network simplex method: how much each row sends to each column so that the sum of
//! weights is greatest, where a row need not send and a column need not take all it could.
//!
//! Source: Kovacs, Minimum-cost flow algorithms: an experimental evaluation, Optimization Methods and Software 2015,
//! section 4 (block search; strongly feasible trees, so that it ends). Ours differs: no arc has a capacity, and a root
//! that takes what rows keep and gives what columns lack makes the first tree feasible.

const NONE: u32 = u32::MAX;

/// What one row may send to one column.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arc {
    pub(super) row: u32,
    pub(super) column: u32,
    pub(super) weight: i64,
}

/// The best transport.
pub(super) struct Transport {
    /// Positive amounts, by arc.
    pub(super) amounts: Vec<(usize, i64)>,
    /// At least 0; of a row and a column together no less than the weight of their arc, and 0 for what is not used up.
    pub(super) row_prices: Vec<i64>,
    pub(super) column_prices: Vec<i64>,
}

/// The tree of a basic solution. Each node but the root, which is the last, hangs on its parent by one arc.
struct Tree {
    /// In terms of nodes: rows, then columns, then the root. Those with the root come last.
    arcs: Vec<(u32, u32, i64)>,
    parent: Vec<u32>,
    depth: Vec<u32>,
    first_child: Vec<u32>,
    next_sibling: Vec<u32>,
    previous_sibling: Vec<u32>,
    /// The arc to the parent.
    arc: Vec<usize>,
    /// Whether that arc leads to the parent.
    is_upward: Vec<bool>,
    amount: Vec<i64>,
    potential: Vec<i64>,
}

/// Solves it. All rows and columns have something to send or to take.
pub(super) fn solve(rows: &[i64], columns: &[i64], arcs: &[Arc]) -> Transport {
    let mut tree = Tree::new(rows, columns, arcs);
    let block = tree.arcs.len().isqrt().max(16);
    let mut next = 0;
    while let Some(entering) = tree.entering(&mut next, block) {
        tree.pivot(entering);
    }
    let root = rows.len() + columns.len();
    let mut amounts: Vec<(usize, i64)> = (0..root).map(|node| (tree.arc[node], tree.amount[node])).collect();
    amounts.retain(|(arc, amount)| *arc < arcs.len() && *amount > 0);
    amounts.sort_unstable();
    let at_root = tree.potential[root];
    Transport {
        amounts,
        row_prices: tree.potential[..rows.len()].iter().map(|potential| potential - at_root).collect(),
        column_prices: tree.potential[rows.len()..root].iter().map(|potential| at_root - potential).collect(),
    }
}

fn index(number: usize) -> u32 {
    u32::try_from(number).expect("far fewer classes than 2^32")
}

impl Tree {
    /// All on the root: nothing is sent. No amount is 0, so the tree is strongly feasible.
    fn new(rows: &[i64], columns: &[i64], arcs: &[Arc]) -> Self {
        let root = rows.len() + columns.len();
        let between = arcs.iter().map(|arc| (arc.row, index(rows.len()) + arc.column, arc.weight));
        let with_root = (0..root).map(|node| {
            if node < rows.len() { (index(node), index(root), 0) } else { (index(root), index(node), 0) }
        });
        let mut tree = Self {
            arcs: between.chain(with_root).collect(),
            parent: vec![index(root); root + 1],
            depth: vec![1; root + 1],
            first_child: vec![NONE; root + 1],
            next_sibling: vec![NONE; root + 1],
            previous_sibling: vec![NONE; root + 1],
            arc: (arcs.len()..=arcs.len() + root).collect(),
            is_upward: (0..=root).map(|node| node < rows.len()).collect(),
            amount: rows.iter().chain(columns).copied().chain([0]).collect(),
            potential: vec![0; root + 1],
        };
        tree.parent[root] = NONE;
        tree.depth[root] = 0;
        for node in (0..root).rev() {
            tree.hang(index(node), index(root));
        }
        tree
    }

    /// The reduced weight of an arc: what more of it wins, if positive.
    fn wins(&self, (source, target, weight): (u32, u32, i64)) -> i64 {
        weight - self.potential[source as usize] + self.potential[target as usize]
    }

    /// The best arc of the next block that has one that wins.
    fn entering(&self, next: &mut usize, block: usize) -> Option<usize> {
        let mut best = (0, None);
        let mut seen = 0;
        let mut left_in_block = block;
        while seen < self.arcs.len() {
            let stop = self.arcs.len().min(*next + left_in_block.min(self.arcs.len() - seen));
            for (offset, arc) in self.arcs[*next..stop].iter().enumerate() {
                let wins = self.wins(*arc);
                if wins > best.0 {
                    best = (wins, Some(*next + offset));
                }
            }
            seen += stop - *next;
            left_in_block -= stop - *next;
            *next = if stop == self.arcs.len() { 0 } else { stop };
            if left_in_block == 0 {
                if best.1.is_some() {
                    break;
                }
                left_in_block = block;
            }
        }
        best.1
    }

    /// Sends as much as possible over the entering arc and back through the tree; the arc that runs dry leaves.
    fn pivot(&mut self, entering: usize) {
        let (source, target, _) = self.arcs[entering];
        let wins = self.wins(self.arcs[entering]);
        let apex = self.apex(source, target);
        let (leaving, amount, is_source_side) = self.leaving(source, target, apex);
        self.send(source, target, apex, amount);
        let (inside, outside) = if is_source_side { (source, target) } else { (target, source) };
        self.turn(inside, leaving);
        let at = inside as usize;
        self.arc[at] = entering;
        self.is_upward[at] = is_source_side;
        self.amount[at] = amount;
        self.hang(inside, outside);
        self.shift(inside, if is_source_side { wins } else { -wins });
    }

    fn apex(&self, mut a: u32, mut b: u32) -> u32 {
        while a != b {
            if self.depth[a as usize] >= self.depth[b as usize] {
                a = self.parent[a as usize];
            } else {
                b = self.parent[b as usize];
            }
        }
        a
    }

    /// The node whose arc runs dry, how much that allows, and whether it is on the source's side. Of several the last on the
    /// way from the apex over the entering arc: the tree stays strongly feasible.
    fn leaving(&self, source: u32, target: u32, apex: u32) -> (u32, i64, bool) {
        let mut least = (NONE, i64::MAX, true);
        let mut node = source;
        while node != apex {
            let at = node as usize;
            if self.is_upward[at] && self.amount[at] < least.1 {
                least = (node, self.amount[at], true);
            }
            node = self.parent[at];
        }
        node = target;
        while node != apex {
            let at = node as usize;
            if !self.is_upward[at] && self.amount[at] <= least.1 {
                least = (node, self.amount[at], false);
            }
            node = self.parent[at];
        }
        least
    }

    fn send(&mut self, source: u32, target: u32, apex: u32, amount: i64) {
        for (start, is_source_side) in [(source, true), (target, false)] {
            let mut node = start;
            while node != apex {
                let at = node as usize;
                let change = if self.is_upward[at] == is_source_side { -amount } else { amount };
                self.amount[at] += change;
                node = self.parent[at];
            }
        }
    }

    /// Cuts the subtree of `top` off and makes `inside` its top.
    fn turn(&mut self, inside: u32, top: u32) {
        let mut node = inside;
        let (mut arc, mut is_upward, mut amount) = (usize::MAX, true, 0);
        let mut below = NONE;
        loop {
            let at = node as usize;
            let parent = self.parent[at];
            self.unhang(node);
            std::mem::swap(&mut self.arc[at], &mut arc);
            std::mem::swap(&mut self.is_upward[at], &mut is_upward);
            std::mem::swap(&mut self.amount[at], &mut amount);
            if below != NONE {
                // The arc that led up from below now leads down to here.
                self.is_upward[at] = !self.is_upward[at];
                self.hang(node, below);
            }
            if node == top {
                return;
            }
            below = node;
            node = parent;
        }
    }

    fn unhang(&mut self, node: u32) {
        let at = node as usize;
        let (previous, next) = (self.previous_sibling[at], self.next_sibling[at]);
        if previous == NONE {
            self.first_child[self.parent[at] as usize] = next;
        } else {
            self.next_sibling[previous as usize] = next;
        }
        if next != NONE {
            self.previous_sibling[next as usize] = previous;
        }
    }

    fn hang(&mut self, node: u32, parent: u32) {
        let (at, above) = (node as usize, parent as usize);
        let first = self.first_child[above];
        self.parent[at] = parent;
        self.previous_sibling[at] = NONE;
        self.next_sibling[at] = first;
        if first != NONE {
            self.previous_sibling[first as usize] = node;
        }
        self.first_child[above] = node;
    }

    /// Shifts the potentials of a subtree and sets its depths anew.
    fn shift(&mut self, top: u32, shift: i64) {
        let mut node = top;
        loop {
            let at = node as usize;
            self.potential[at] += shift;
            self.depth[at] = self.depth[self.parent[at] as usize] + 1;
            if self.first_child[at] != NONE {
                node = self.first_child[at];
                continue;
            }
            while node != top && self.next_sibling[node as usize] == NONE {
                node = self.parent[node as usize];
            }
            if node == top {
                return;
            }
            node = self.next_sibling[node as usize];
        }
    }
}
