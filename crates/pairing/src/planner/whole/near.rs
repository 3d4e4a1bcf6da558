//! Which of a node's free devices a job of several gets: those that reach each other best. Must not know what is free, nor for whom.
//!
//! A training of several devices passes its gradients between all of them, so the worst way counts: NVLink is ten times as fast as
//! PCIe, and between NUMA nodes devices may not reach each other's memory at all. What lies between is worth less than a node that
//! stays whole for others.

use crate::view::DeviceView;
use pillion_core::link::Link;

/// Beyond so many free devices of one model, neighbours by index are taken: there are too many sets to try.
const TRIED_MAX: usize = 16;

/// How well a set of devices reaches each other, as far as one node is worth more than another; the best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reach {
    /// All by NVLink; or there is only one.
    NvLink,
    /// All on one NUMA node.
    OneNumaNode,
    /// Some between NUMA nodes, or nobody knows.
    Anyhow,
}

/// The ways between the devices of a node, by their places on it.
pub(super) struct Ways {
    device_count: usize,
    /// By pair; `None`: not known.
    links: Vec<Option<Link>>,
    /// Whether all are the same, so that no set is better than another.
    is_uniform: bool,
}

impl Ways {
    pub(super) fn between(devices: &[&DeviceView]) -> Self {
        let device_count = devices.len();
        let way = |one: &DeviceView, other: &DeviceView| one.links.get(&other.gres_type).copied();
        let links: Vec<Option<Link>> =
            devices.iter().flat_map(|one| devices.iter().map(move |other| way(one, other))).collect();
        let mut of_pairs =
            (0..device_count).flat_map(|one| (0..one).map(move |other| one * device_count + other));
        let first = of_pairs.next().and_then(|pair| links[pair]);
        let is_uniform = of_pairs.all(|pair| links[pair] == first);
        Self { device_count, links, is_uniform }
    }

    /// The worst way of a set and the sum of all, the lower the better.
    fn of(&self, set: &[usize]) -> (usize, usize) {
        let pairs =
            set.iter().enumerate().flat_map(|(at, one)| set[..at].iter().map(move |other| (one, other)));
        let ranks = pairs.map(|(one, other)| rank(self.links[one * self.device_count + other]));
        ranks.fold((0, 0), |(worst, sum), rank| (worst.max(rank), sum + rank))
    }

    pub(super) fn reach(&self, set: &[usize]) -> Reach {
        match self.of(set).0 {
            0 => Reach::NvLink,
            worst if worst < rank(Some(Link::Sys)) => Reach::OneNumaNode,
            _ => Reach::Anyhow,
        }
    }
}

/// One that is not known is as bad as the worst.
fn rank(link: Option<Link>) -> usize {
    link.unwrap_or(Link::Sys) as usize
}

/// So many of `free` (ascending places), all of one model where that can be.
///
/// Of sets that reach each other equally well the one that lies closest together by index, for neighbours by index are mostly
/// neighbours on the node's board too; of several such the first that begins where a group of so many does, which leaves such
/// groups whole for others.
pub(super) fn choose(
    devices: &[&DeviceView],
    ways: &Ways,
    free: &[usize],
    count: usize,
) -> Option<Vec<usize>> {
    let mut models: Vec<&str> = free.iter().map(|place| devices[*place].model.as_str()).collect();
    models.sort_unstable();
    models.dedup();
    let of_model = models.iter().filter_map(|model| {
        let own: Vec<usize> = free.iter().copied().filter(|place| devices[*place].model == *model).collect();
        best(ways, &own, count)
    });
    of_model.min_by_key(|set| key(ways, set)).or_else(|| best(ways, free, count))
}

/// What the better set has less of.
fn key(ways: &Ways, set: &[usize]) -> ((usize, usize), usize, bool, usize) {
    let (first, last) = (set[0], set[set.len() - 1]);
    (ways.of(set), last - first, !first.is_multiple_of(set.len()), first)
}

fn best(ways: &Ways, free: &[usize], count: usize) -> Option<Vec<usize>> {
    if free.len() < count || count == 0 {
        return None;
    }
    if ways.is_uniform || free.len() > TRIED_MAX || count == 1 {
        return free.windows(count).min_by_key(|set| key(ways, set)).map(<[usize]>::to_vec);
    }
    let picked = |mask: u32| -> Vec<usize> {
        free.iter().enumerate().filter(|(at, _)| mask & (1 << at) != 0).map(|(_, place)| *place).collect()
    };
    let sets = (0..1_u32 << free.len()).filter(|mask| mask.count_ones() as usize == count).map(picked);
    sets.min_by_key(|set| key(ways, set))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::device;
    use pillion_core::GresType;
    use pillion_core::device::Mechanism;

    /// A node of so many devices and the ways between them.
    fn node(count: usize, way: impl Fn(usize, usize) -> Option<Link>) -> Vec<DeviceView> {
        let name = |place: usize| GresType::new(format!("g{place}"));
        let links = |own: usize| {
            let others = (0..count).filter(|other| *other != own);
            others.filter_map(|other| Some((name(other), way(own, other)?))).collect()
        };
        let one = |place: usize| DeviceView {
            gres_type: name(place),
            links: links(place),
            ..device("g0", Mechanism::Mps)
        };
        (0..count).map(one).collect()
    }

    fn chosen(node: &[DeviceView], free: &[usize], count: usize) -> (Vec<usize>, Reach) {
        let devices: Vec<&DeviceView> = node.iter().collect();
        let ways = Ways::between(&devices);
        let set = choose(&devices, &ways, free, count).unwrap();
        let reach = ways.reach(&set);
        (set, reach)
    }

    /// Two groups of four with NVLink inside, one on each NUMA node.
    #[expect(clippy::unnecessary_wraps, reason = "a way that may be unknown")]
    fn two_groups(one: usize, other: usize) -> Option<Link> {
        Some(if one / 4 == other / 4 { Link::NvLink } else { Link::Sys })
    }

    #[test]
    fn a_group_goes_before_neighbours_by_index() {
        let node = node(8, two_groups);
        let all: Vec<usize> = (0..8).collect();
        assert_eq!(chosen(&node, &all, 4), (vec![0, 1, 2, 3], Reach::NvLink));
        assert_eq!(chosen(&node, &all[3..], 2), (vec![4, 5], Reach::NvLink), "not 3 and 4");
        assert_eq!(
            chosen(&node, &[0, 3, 4, 6], 2),
            (vec![4, 6], Reach::NvLink),
            "closer together than 0 and 3"
        );
        assert_eq!(chosen(&node, &[2, 3, 4, 5], 3).1, Reach::Anyhow);
        assert_eq!(chosen(&node, &all, 8).1, Reach::Anyhow);
        assert_eq!(chosen(&node, &all, 1), (vec![0], Reach::NvLink));
    }

    #[test]
    fn devices_that_alternate_between_sockets_are_told_apart() {
        let node = node(8, |one, other| Some(if one % 2 == other % 2 { Link::Pxb } else { Link::Sys }));
        let all: Vec<usize> = (0..8).collect();
        assert_eq!(chosen(&node, &all, 4), (vec![0, 2, 4, 6], Reach::OneNumaNode));
        assert_eq!(chosen(&node, &all[1..], 2), (vec![2, 4], Reach::OneNumaNode));
    }

    #[test]
    fn where_all_are_alike_or_nobody_knows_neighbours_by_index_are_taken() {
        for (way, reach) in [(Some(Link::NvLink), Reach::NvLink), (None, Reach::Anyhow)] {
            let node = node(8, |_, _| way);
            assert_eq!(
                chosen(&node, &[1, 2, 3, 5, 6, 7], 2),
                (vec![2, 3], reach),
                "begins where a pair does"
            );
            assert_eq!(chosen(&node, &[0, 2, 4, 5], 3), (vec![2, 4, 5], reach));
        }
    }

    #[test]
    fn a_node_of_more_devices_than_can_be_tried_is_served_all_the_same() {
        let node = node(20, |one, other| Some(if one % 2 == other % 2 { Link::Node } else { Link::Sys }));
        let all: Vec<usize> = (0..20).collect();
        assert_eq!(chosen(&node, &all, 4).0.len(), 4);
    }

    proptest::proptest! {
        /// Whatever the ways and what is free: so many of those that are free, and no set that was tried by hand is nearer.
        #[test]
        fn no_window_of_neighbours_is_nearer(
            ranks in proptest::collection::vec(0_usize..7, 64), mask in 0_u16..256, count in 1_usize..5,
        ) {
            let way = |one: usize, other: usize| {
                let (low, high) = (one.min(other), one.max(other));
                Link::ALL.get(ranks[low * 8 + high]).copied()
            };
            let node = node(8, way);
            let devices: Vec<&DeviceView> = node.iter().collect();
            let ways = Ways::between(&devices);
            let free: Vec<usize> = (0..8).filter(|place| mask & (1 << place) != 0).collect();
            let set = choose(&devices, &ways, &free, count);
            proptest::prop_assert_eq!(set.is_some(), free.len() >= count);
            if let Some(set) = set {
                proptest::prop_assert!(set.len() == count && set.is_sorted() && set.iter().all(|it| free.contains(it)));
                proptest::prop_assert!(free.windows(count).all(|window| ways.of(window) >= ways.of(&set)));
            }
        }
    }
}
