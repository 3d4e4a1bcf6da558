//! Devices that stand free by Slurm's own books, and since when: pure. The dead man's switch is held down by progress and not
//! by life: where a job could run on one of these, it is held back no longer than a bound from then on, whatever we believe
//! that we are doing (`renew`).

use crate::scan::{Scan, cpus_of_one_node, mark_of};
use pillion_core::mark::Mark;
use pillion_core::{GresType, GresTypes, NodeName, UnixTime};
use pillion_slurm::{Job, Node, NodeAvailability};
use std::collections::BTreeMap;

/// A device by node and GRES type.
pub type Place = (NodeName, GresType);

/// Devices of which Slurm has booked nothing, each with the first scan in a row that shows it so. One that was free when we
/// scanned first may have been so for ever: a scheduler that dies again and again would else hold jobs down by being born.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Idle {
    has_scanned: bool,
    since: BTreeMap<Place, UnixTime>,
}

impl Idle {
    /// Adds what this scan shows to what the ones before showed.
    #[must_use]
    pub fn after(&self, scan: &Scan) -> Self {
        let free =
            scan.nodes.iter().filter(|node| node.availability == NodeAvailability::Up).flat_map(|node| {
                let unbooked = node.shards.iter().filter(|(_, (total, used))| *total > 0 && *used == 0);
                unbooked.map(|(gres_type, _)| (node.name.clone(), gres_type.clone()))
            });
        let new = if self.has_scanned { scan.at } else { UnixTime::from_epoch(0) };
        let since = free.map(|place| {
            let since = self.since.get(&place).copied().unwrap_or(new);
            (place, since)
        });
        Self { has_scanned: true, since: since.collect() }
    }

    /// Since when as many of the `open` places of one node as this job asks for have stood free together, and that on as many
    /// nodes; `None`: they do not. A place is open where we could start somebody there; where we could not, Slurm is not to send anybody either.
    pub fn since(&self, job: &Job, scan: &Scan, is_open: impl Fn(&Place) -> bool) -> Option<UnixTime> {
        let mut by_node: BTreeMap<&NodeName, Vec<UnixTime>> = BTreeMap::new();
        // Slurm would start a job of several by itself on those alone that it waits with, and on others it would stand in front of
        // everybody without being able to start.
        let named = named(job);
        let is_open = |place: &Place| named.is_none_or(|all| all.contains(&place.1)) && is_open(place);
        for (place, since) in self.since.iter().filter(|(place, _)| is_open(place)) {
            if scan.node(&place.0).is_some_and(|node| suits(job, node, scan.at) && has_room(job, node)) {
                by_node.entry(&place.0).or_default().push(*since);
            }
        }
        let on_each = by_node.into_values().filter_map(|since| so_many_since(since, device_count(job)));
        so_many_since(on_each.collect(), node_count(job))
    }
}

/// So many are free since the last of them fell free.
fn so_many_since(mut since: Vec<UnixTime>, count: usize) -> Option<UnixTime> {
    since.sort_by(|a, b| a.seconds().total_cmp(&b.seconds()));
    since.get(count.saturating_sub(1)).copied()
}

/// How many devices of one node a job asks for.
fn device_count(job: &Job) -> usize {
    mark_of(job).map_or(1, Mark::device_count)
}

/// The devices of each of its nodes on which Slurm starts a job of several by itself.
fn named(job: &Job) -> Option<&GresTypes> {
    mark_of(job).and_then(|mark| mark.fallback.as_ref())
}

fn node_count(job: &Job) -> usize {
    mark_of(job).map_or(1, |mark| usize::from(mark.node_count()))
}

/// Whether Slurm would start the job on this node at `now` if it were empty, by what the job asks of nodes.
pub fn suits(job: &Job, node: &Node, now: UnixTime) -> bool {
    let mut features = job.features.split('&').filter(|name| !name.is_empty());
    node.availability == NodeAvailability::Up
        && node.partitions.iter().any(|partition| *partition == job.partition)
        && !job.excluded_nodes.contains(&node.name)
        && node.is_open_for(job.time_limit_seconds, now)
        && features.all(|name| node.features.iter().any(|has| has == name))
}

fn has_room(job: &Job, node: &Node) -> bool {
    cpus_of_one_node(job) <= node.cpus.saturating_sub(node.cpus_allocated)
        && job.memory_mib <= node.memory_mib.saturating_sub(node.memory_mib_allocated)
}

/// What a job's place depends on, so that jobs that ask for the same are looked up once.
pub type Wish<'a> =
    (&'a str, &'a str, &'a [NodeName], [Option<u64>; 3], bool, (usize, usize), Option<&'a GresTypes>);

/// The wish of a job.
pub fn wish(job: &Job) -> Wish<'_> {
    let amounts = [Some(u64::from(job.cpus)), Some(job.memory_mib), job.time_limit_seconds];
    let (wants_cap, count) = (wants_cap(job), (device_count(job), node_count(job)));
    let named = named(job);
    (&job.partition, &job.features, &job.excluded_nodes, amounts, wants_cap, count, named)
}

/// Whether a job is to run where caps can be set.
pub fn wants_cap(job: &Job) -> bool {
    mark_of(job).is_some_and(|mark| mark.cap.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{NOW, at, job, node, scan};
    use pillion_slurm::JobState;

    /// A scan with n1, on which so many shards of g1 are booked.
    fn scan_at(epoch: u64, used: u32) -> Scan {
        let mut seen = scan(Some(job(JobState::Pending)), NodeAvailability::Up);
        seen.at = at(epoch);
        for node in &mut seen.nodes {
            node.shards = [(GresType::new("g1"), (100, used))].into();
        }
        seen
    }

    fn since(idle: &Idle, scan: &Scan, job: &Job) -> Option<UnixTime> {
        idle.since(job, scan, |_| true)
    }

    #[test]
    fn a_device_is_free_since_the_first_scan_in_a_row() {
        let waits = job(JobState::Pending);
        let busy = Idle::default().after(&scan_at(NOW - 2, 100));
        let first = busy.after(&scan_at(NOW, 0));
        let second = first.after(&scan_at(NOW + 2, 0));
        assert_eq!(since(&second, &scan_at(NOW + 2, 0), &waits), Some(at(NOW)));
        let taken = second.after(&scan_at(NOW + 4, 40));
        assert_eq!(since(&taken, &scan_at(NOW + 4, 40), &waits), None);
        let again = taken.after(&scan_at(NOW + 6, 0));
        assert_eq!(since(&again, &scan_at(NOW + 6, 0), &waits), Some(at(NOW + 6)));
    }

    #[test]
    fn a_device_that_was_free_before_the_first_scan_may_have_been_so_for_ever() {
        let waits = job(JobState::Pending);
        let first = Idle::default().after(&scan_at(NOW, 0));
        assert_eq!(since(&first.after(&scan_at(NOW + 2, 0)), &scan_at(NOW + 2, 0), &waits), Some(at(0)));
        let taken = first.after(&scan_at(NOW + 2, 40));
        let again = taken.after(&scan_at(NOW + 4, 0));
        assert_eq!(since(&again, &scan_at(NOW + 4, 0), &waits), Some(at(NOW + 4)));
    }

    /// Or Slurm would be told to start what it cannot start, and would keep everybody behind it from starting.
    #[test]
    fn several_devices_are_free_since_the_last_of_them_is() {
        let at_with = |epoch: u64, used: [u32; 3]| {
            let mut seen = scan_at(epoch, 0);
            let names = ["g1", "g2", "g3"].into_iter().zip(used);
            let shards = names.map(|(name, used)| (GresType::new(name), (100, used)));
            seen.nodes[0].shards = shards.collect();
            seen
        };
        let wide = |text: &str| {
            let mark = Mark { fallback: Some(text.parse().unwrap()), ..Mark::default() };
            Job { mark: Ok(Some(mark)), ..job(JobState::Pending) }
        };
        let busy = Idle::default().after(&at_with(NOW - 2, [100, 100, 100]));
        let one = busy.after(&at_with(NOW, [0, 100, 100]));
        let scan = at_with(NOW + 5, [0, 0, 100]);
        let two = one.after(&scan);
        assert_eq!(since(&one, &at_with(NOW, [0, 100, 100]), &wide("g1,g2")), None);
        assert_eq!(since(&two, &scan, &job(JobState::Pending)), Some(at(NOW)));
        assert_eq!(since(&two, &scan, &wide("g1,g2")), Some(at(NOW + 5)));
        assert_eq!(since(&two, &scan, &wide("g1,g2,g3")), None);
        assert_eq!(
            since(&two, &scan, &wide("g1,g3")),
            None,
            "two are free, and not those that it waits with"
        );
        let on_nodes = |nodes| Job {
            mark: Ok(Some(Mark { nodes: Some(nodes), ..Mark::default() })),
            ..job(JobState::Pending)
        };
        let mut more = scan.clone();
        more.nodes.push(Node { name: NodeName::new("n2"), ..scan.nodes[0].clone() });
        let more = Scan::new(at(NOW + 9), Vec::new(), more.nodes, &["shared".to_owned()], 0);
        let both = two.after(&more);
        assert_eq!(since(&both, &more, &on_nodes(2)), Some(at(NOW + 9)), "since the second node has one");
        assert_eq!(since(&both, &more, &on_nodes(3)), None);
    }

    #[test]
    fn only_where_the_job_could_run_and_we_could_start_it() {
        let scan = scan_at(NOW, 0);
        let idle = Idle::default().after(&scan);
        let waits = || job(JobState::Pending);
        assert_eq!(idle.since(&waits(), &scan, |_| false), None, "its device is closed");
        let excluded = Job { excluded_nodes: vec![NodeName::new("n1")], ..waits() };
        assert_eq!(since(&idle, &scan, &excluded), None);
        let large = Job { cpus: node(NodeAvailability::Up).cpus + 1, ..waits() };
        assert_eq!(since(&idle, &scan, &large), None);
        let featured = Job { features: "none".into(), ..waits() };
        assert_eq!(since(&idle, &scan, &featured), None);
        let elsewhere = Job { partition: "other".into(), ..waits() };
        assert_eq!(since(&idle, &scan, &elsewhere), None);
        let mut down = scan.clone();
        down.nodes[0].availability = NodeAvailability::Unavailable("DOWN".into());
        assert_eq!(since(&idle.after(&down), &down, &waits()), None);
    }
}
