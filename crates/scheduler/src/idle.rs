//! Devices that stand free by Slurm's own books, and since when: pure. The dead man's switch is held down by progress and not
//! by life: where a job could run on one of these, it is held back no longer than a bound from then on, whatever we believe
//! that we are doing (`renew`).

use crate::scan::{Scan, mark_of};
use pillion_core::{GresType, NodeName, UnixTime};
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

    /// Since when one of the `open` places that this job could run on has stood free; `None`: none does. A place is open
    /// where we could start somebody there; where we could not, Slurm is not to send anybody either.
    pub fn since(&self, job: &Job, scan: &Scan, is_open: impl Fn(&Place) -> bool) -> Option<UnixTime> {
        let here = self.since.iter().filter(|(place, _)| is_open(place));
        let usable = here.filter(|((name, _), _)| {
            scan.node(name).is_some_and(|node| suits(job, node) && has_room(job, node))
        });
        usable.map(|(_, since)| *since).min_by(|a, b| a.seconds().total_cmp(&b.seconds()))
    }
}

/// Whether Slurm would ever start the job on this node, by what the job asks of nodes.
pub fn suits(job: &Job, node: &Node) -> bool {
    let mut features = job.features.split('&').filter(|name| !name.is_empty());
    node.availability == NodeAvailability::Up
        && node.partitions.iter().any(|partition| *partition == job.partition)
        && !job.excluded_nodes.contains(&node.name)
        && features.all(|name| node.features.iter().any(|has| has == name))
}

fn has_room(job: &Job, node: &Node) -> bool {
    job.cpus <= node.cpus.saturating_sub(node.cpus_allocated)
        && job.memory_mib <= node.memory_mib.saturating_sub(node.memory_mib_allocated)
}

/// What a job's place depends on, so that jobs that ask for the same are looked up once.
pub type Wish<'a> = (&'a str, &'a str, &'a [NodeName], u32, u64, bool);

/// The wish of a job.
pub fn wish(job: &Job) -> Wish<'_> {
    (&job.partition, &job.features, &job.excluded_nodes, job.cpus, job.memory_mib, wants_cap(job))
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
