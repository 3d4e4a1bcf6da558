//! The table of behaviours on the double itself.

use crate::behaviours::{Bed, behaviours};
use crate::{FakeJob, FakeNode, FakePartition, FakeSettings, FakeSlurm};
use async_trait::async_trait;
use pillion_core::{GresType, NodeName, SlurmJobId, UnixTime};
use pillion_slurm::{Reservation, Slurm};
use std::sync::Mutex;
use std::time::Duration;

/// The fake.
struct FakeBed {
    slurm: FakeSlurm,
    now: Mutex<UnixTime>,
}

impl FakeBed {
    fn new() -> Self {
        let now = UnixTime::from_epoch(1_800_000_000);
        let node = |name: &str, features: &[&str]| FakeNode {
            cpus: 8,
            memory_mib: 8000,
            features: features.iter().map(|&feature| feature.to_owned()).collect(),
            other_gres: [("lscratch".to_owned(), 500)].into(),
            ..FakeNode::pool(name, 2)
        };
        let nodes = vec![node("n1", &["fast", "h100"]), node("n2", &["slow"])];
        assert_eq!(
            nodes[0].devices.keys().cloned().collect::<Vec<_>>(),
            [GresType::new("g0"), GresType::new("g1")]
        );
        let partitions = ["shared", "urgent"].map(|name| FakePartition::new(name, &["n1", "n2"])).to_vec();
        // Slurm by itself: what pillion.lua refuses is held against the real one elsewhere.
        let settings = FakeSettings { is_fenced: false, ..FakeSettings::default() };
        Self { slurm: FakeSlurm::new(settings, nodes, partitions, now), now: Mutex::new(now) }
    }
}

#[async_trait]
impl Bed for FakeBed {
    fn slurm(&self) -> &dyn Slurm {
        &self.slurm
    }
    fn now(&self) -> UnixTime {
        *self.now.lock().unwrap()
    }
    async fn submit(&self, job: FakeJob) -> SlurmJobId {
        self.slurm.submit(job)
    }
    async fn cancel(&self, job: SlurmJobId) {
        self.slurm.cancel(job);
    }
    async fn hold(&self, job: SlurmJobId) {
        assert!(self.slurm.hold(job));
    }
    async fn release(&self, job: SlurmJobId) {
        assert!(self.slurm.release_hold(job));
    }
    async fn drain(&self, node: &str, on: bool) {
        self.slurm.set_node_flag(&NodeName::new(node), on.then_some("DRAIN"));
    }
    async fn reserve(&self, node: Option<(&str, UnixTime)>) {
        let reservation = node.map(|(node, starts_at)| Reservation {
            nodes: vec![NodeName::new(node)],
            starts_at,
            ends_at: starts_at + Duration::from_hours(1),
        });
        self.slurm.set_reservations(reservation.into_iter().collect());
    }
    async fn wait(&self) {
        let now = self.now() + Duration::from_millis(100);
        *self.now.lock().unwrap() = now;
        self.slurm.tick(now);
        assert_eq!(self.slurm.overbooked(), Vec::<String>::new());
    }
}

#[tokio::test]
async fn the_double_behaves_as_slurm_does() {
    behaviours(&FakeBed::new()).await;
}
