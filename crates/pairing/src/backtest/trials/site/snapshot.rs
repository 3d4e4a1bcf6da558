//! What the planner sees of the site.

use super::{BOUND_SECONDS, Begins, Device, Seat, Site};
use crate::trials::{TrialBook, TrialKind};
use crate::view::{ClusterView, DeviceView, Tenant, WaitingJob};
use pillion_core::isolation::Isolation;
use pillion_core::share::Sharing;
use pillion_core::{DecisionId, GresType, Shards, UnixTime};
use std::collections::BTreeSet;
use std::time::Duration;

impl Site<'_> {
    /// What the planner sees: who waits, who runs alone, and the book. And of each group the device.
    pub(super) fn snapshot(&self) -> (ClusterView, Vec<usize>) {
        let may_be_joined = |device: &Device| match device.seats[..] {
            [seat] => {
                let job = &self.jobs[seat.job];
                !job.has_gone_back && !matches!(job.begins, Begins::Runs { seen: None, .. })
            }
            _ => false,
        };
        let hosts: Vec<usize> =
            (0..self.devices.len()).filter(|place| may_be_joined(&self.devices[*place])).collect();
        let mut devices: Vec<DeviceView> = Vec::new();
        for (group, place) in (0..).zip(&hosts) {
            let seat = self.devices[*place].seats[0];
            let free = &self.view.devices[0];
            let tenant = self.tenant(seat, group);
            devices.push(DeviceView {
                gres_type: GresType::new(format!("r{place}")),
                shards_free: 100 - u32::from(tenant.shards.count()),
                tenants: vec![tenant],
                ..free.clone()
            });
        }
        devices.extend(self.view.devices.iter().take(self.waiting.len()).cloned());
        let waiting = self.waiting.iter().map(|job| {
            let mut waiting: WaitingJob = self.view.waiting[*job].clone();
            waiting.starts_alone_at =
                UnixTime::from_epoch(0) + Duration::from_secs_f64((BOUND_SECONDS - self.now).max(0.0));
            waiting
        });
        let open = self.devices.iter().filter_map(|device| {
            device.pair.as_ref().filter(|pair| pair.verdict_at.is_some())?;
            let [a, b] = device.seats[..] else { return None };
            let workloads = [a, b].map(|seat| self.key(seat.job).clone());
            Some(TrialKind::new(self.truth.device_model.clone(), self.truth.mechanism, workloads))
        });
        let view = ClusterView {
            taken_at: UnixTime::from_epoch(0),
            devices,
            waiting: waiting.collect(),
            trials: TrialBook {
                open: open.collect(),
                verdicts: self.verdicts.clone(),
                watched: Vec::new(),
                records: vec![self.record.clone()],
                excluded: BTreeSet::new(),
            },
            revision: self.view.revision,
            nodes: self.view.nodes.clone(),
            alone_claims: Vec::new(),
            copies: crate::CopyBook::default(),
            slices: crate::mig::SliceBook::default(),
            profiles: self.view.profiles.clone(),
        };
        (view, hosts)
    }

    fn tenant(&self, seat: Seat, group: u64) -> Tenant {
        let (job, waiting) = (&self.jobs[seat.job], &self.view.waiting[seat.job]);
        let left = Duration::from_secs_f64(job.left_seconds.max(1.0));
        let first_run = match &job.begins {
            Begins::Waits => None,
            Begins::Runs { seen, .. } => seen.clone(),
        };
        Tenant {
            job_id: waiting.start.job_id,
            uid: waiting.uid,
            account: String::new(),
            workload: Some(waiting.workload.clone()),
            group: Some(DecisionId(group)),
            is_running: true,
            sharing: Sharing::by(self.truth.mechanism, seat.cap, None),
            isolation: Isolation::Shared,
            shards: Shards::try_new(if first_run.is_some() { 50 } else { 40 }).unwrap_or(Shards::ALL),
            slowdown_ratio_max: waiting.slowdown_ratio_max,
            memory_bytes: first_run.is_none().then_some(0),
            first_run,
            rules: None,
            guest: None,
            session: None,
            set: None,
            time_limit_at: None,
            expected_end_at: Some(UnixTime::from_epoch(0) + left),
        }
    }
}
