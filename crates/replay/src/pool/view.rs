//! The pool at one moment as Pillion's planner sees it.

use super::{Device, Pool, Seat};
use pillion_core::isolation::Isolation;
use pillion_core::{DecisionId, GresType, JobStart, NodeName, Revision, SlurmJobId, UnixTime, UserId};
use pillion_pairing::mig::SliceBook;
use pillion_pairing::{
    ClusterView, CopyBook, DeviceView, NodeView, ProfileBook, Tenant, TrialBook, UserPolicy, WaitingJob,
};
use rustc_hash::FxHashSet;

/// The one partition of the pool.
const PARTITION: &str = "pool";
/// How many of those that wait are planned at once, from the head of the queue for each type of GPU: for each device that somebody
/// could come to a few, and no more than so many.
const WAITING_MAX: usize = 100;
const WAITING_LEAST: usize = 8;
const WAITING_PER_DEVICE: usize = 4;
/// Nobody joins where fewer than ten shards are left.
const SHARDS_TAKEN_MAX: u32 = 90;
/// A job's bound: when Slurm would start it alone by itself.
const BOUND_SECONDS: f64 = 600.0;

/// What those that wait need of one type of GPU.
#[derive(Debug, Clone, Default)]
struct Wanted {
    job_count: usize,
    cpus_max: u32,
    memory_mib_max: u64,
    /// Those that could be beside others, and whose they are.
    sharer_count: usize,
    users: FxHashSet<u32>,
    accounts: FxHashSet<u32>,
    /// How many devices were found free that are large enough for all of them.
    free_count: usize,
}

/// The number of a job in the planner's words; 0 is none.
pub(super) fn job_id(job: usize) -> SlurmJobId {
    SlurmJobId::plain(u32::try_from(job + 1).expect("a file has fewer jobs than 2^32"))
}

/// The job of that number.
pub(super) fn job_of(id: SlurmJobId) -> usize {
    id.id as usize - 1
}

impl Pool<'_> {
    /// `None`: there is no device that anybody could come to, and nothing to plan.
    pub(super) fn view(&self) -> Option<ClusterView> {
        let mut open = vec![0_usize; self.setting.gpu_types.len()];
        for device in self.devices.iter().filter(|device| self.has_room(device)) {
            open[device.gpu_type as usize] += 1;
        }
        let looked_at = |open: &usize| match open {
            0 => 0,
            open => (WAITING_LEAST + WAITING_PER_DEVICE * open).min(WAITING_MAX),
        };
        let waiting = self.waiting.first(&open.iter().map(looked_at).collect::<Vec<usize>>());
        if waiting.is_empty() {
            return None;
        }
        let devices = self.useful_devices(&waiting);
        let mut nodes: Vec<usize> = devices.iter().map(|device| device.node).collect();
        nodes.dedup();
        let seated = devices.iter().flat_map(|device| device.seats.iter().map(|seat| seat.job));
        let mut present: Vec<u32> =
            waiting.iter().copied().chain(seated).map(|job| self.jobs[job].kind).collect();
        present.sort_unstable();
        present.dedup();
        let profiles: Vec<_> = present
            .into_iter()
            .filter_map(|kind| self.known[kind as usize].as_ref())
            .filter(|known| known.profile.run_count > 0)
            .map(|known| known.profile.clone())
            .collect();
        Some(ClusterView {
            revision: Revision(0),
            taken_at: UnixTime::from_seconds(self.now),
            nodes: nodes.into_iter().map(|node| node_view(&self.nodes[node])).collect(),
            devices: devices.into_iter().map(|device| self.device_view(device)).collect(),
            waiting: waiting.into_iter().map(|job| self.waiting_job(job)).collect(),
            alone_claims: Vec::new(),
            profiles: ProfileBook::from(profiles),
            trials: TrialBook::default(),
            copies: CopyBook::default(),
            slices: SliceBook::default(),
        })
    }

    /// Devices that somebody of these could come to. Of the free ones of each type as many as wait for it where the largest of them
    /// could run, and as many again; of those with room those on which somebody runs beside whom one of them may be. A plan over all
    /// of them would say the same of the others.
    fn useful_devices(&self, waiting: &[usize]) -> Vec<&Device> {
        let mut wanted = vec![Wanted::default(); self.setting.gpu_types.len()];
        for job in waiting {
            self.want(&mut wanted, *job);
        }
        let mut useful = Vec::new();
        for device in &self.devices {
            let (node, wanted) = (&self.nodes[device.node], &mut wanted[device.gpu_type as usize]);
            if device.seats.is_empty() {
                let is_for_all =
                    node.cpus_free >= wanted.cpus_max && node.memory_mib_free >= wanted.memory_mib_max;
                wanted.free_count += usize::from(is_for_all);
                if wanted.free_count <= 2 * wanted.job_count {
                    useful.push(device);
                }
            } else if self.has_room(device) && self.may_be_beside(device, wanted) {
                useful.push(device);
            }
        }
        useful
    }

    fn want(&self, wanted: &mut [Wanted], number: usize) {
        let job = &self.jobs[number];
        let wanted = &mut wanted[self.work.kind(job).gpu_type as usize];
        wanted.job_count += 1;
        wanted.cpus_max = wanted.cpus_max.max(job.cpus);
        wanted.memory_mib_max = wanted.memory_mib_max.max(job.memory_mib);
        // Who is not known has his device to himself.
        if self.known[job.kind as usize].is_some() && !self.goes_alone.contains(&number) {
            wanted.sharer_count += 1;
            wanted.users.insert(job.user);
            wanted.accounts.insert(job.account);
        }
    }

    /// Whether the site would let one of those that wait be beside the first that runs there.
    fn may_be_beside(&self, device: &Device, wanted: &Wanted) -> bool {
        let host = &self.jobs[device.seats[0].job];
        match self.setting.policy.users {
            UserPolicy::Any => wanted.sharer_count > 0,
            UserPolicy::SameUser => wanted.users.contains(&host.user),
            UserPolicy::SameAccount => {
                wanted.users.contains(&host.user)
                    || (host.account != self.setting.no_account && wanted.accounts.contains(&host.account))
            }
        }
    }

    /// Whether somebody could still come to a device.
    fn has_room(&self, device: &Device) -> bool {
        let taken: u32 = device.seats.iter().map(|seat| u32::from(seat.shards.count())).sum();
        let tenants_max = self.setting.policy.tenants_max as usize;
        taken <= SHARDS_TAKEN_MAX && device.seats.len() < tenants_max && device.unfit_at.is_none()
    }

    fn device_view(&self, device: &Device) -> DeviceView {
        let taken: u32 = device.seats.iter().map(|seat| u32::from(seat.shards.count())).sum();
        let model = &self.setting.gpu_types[device.gpu_type as usize];
        DeviceView {
            node: NodeName::new(self.nodes[device.node].name.as_str()),
            gres_type: GresType::new(device.gres.as_str()),
            model: model.name.clone(),
            gpu_types: vec![model.name.clone()],
            memory_bytes: model.memory_bytes.unwrap_or(0),
            mechanism: self.setting.mechanism,
            shards_free: 100_u32.saturating_sub(taken),
            tenants: device.seats.iter().map(|seat| self.tenant(device, seat)).collect(),
            blocked: None,
            // MIG is not replayed: no accounting says how fast a job would be in a slice.
            geometry: None,
            is_shape_held: false,
            instances_empty: Vec::new(),
            alone_until: None,
            links: std::collections::BTreeMap::new(),
        }
    }

    fn tenant(&self, device: &Device, seat: &Seat) -> Tenant {
        let job = &self.jobs[seat.job];
        let solo = self.known[job.kind as usize].as_ref().and_then(|known| known.profile.duration_seconds);
        Tenant {
            job_id: job_id(seat.job),
            uid: UserId(job.user),
            account: self.account_of(job.account),
            workload: Some(self.work.kind(job).key.clone()),
            group: Some(DecisionId(device.group)),
            is_running: true,
            sharing: seat.sharing,
            shards: seat.shards,
            slowdown_ratio_max: self.setting.policy.slowdown_ratio_max,
            memory_bytes: seat.memory_bytes,
            time_limit_at: job.limit_seconds.map(|seconds| UnixTime::from_seconds(seat.started_at + seconds)),
            expected_end_at: solo
                .map(|seconds| UnixTime::from_seconds((seat.started_at + seconds).max(self.now))),
            isolation: Isolation::Shared,
            first_run: None,
            rules: None,
            guest: None,
            session: None,
            set: None,
        }
    }

    fn waiting_job(&self, number: usize) -> WaitingJob {
        let job = &self.jobs[number];
        WaitingJob {
            start: JobStart { job_id: job_id(number), restart_count: 0 },
            uid: UserId(job.user),
            account: self.account_of(job.account).into(),
            partition: PARTITION.into(),
            workload: self.work.kind(job).key.clone(),
            submitted_at: UnixTime::from_seconds(job.eligible_at),
            starts_alone_at: UnixTime::from_seconds(job.eligible_at + BOUND_SECONDS),
            slowdown_ratio_max: self.setting.policy.slowdown_ratio_max,
            memory_bytes_declared: None,
            may_run_out: false,
            solo_cap: None,
            // Whoever did not fit beside another is started again alone.
            owes_runs: u32::from(self.goes_alone.contains(&number)),
            use_beyond_fraction: 0.0,
            isolation: Isolation::Shared,
            gpu_type: Some(self.setting.gpu_types[self.work.kind(job).gpu_type as usize].name.clone()),
            device_count: 1,
            node_count: 1,
            fallback: None,
            rules: None,
            as_guest: false,
            is_plain: false,
            cpus: job.cpus,
            memory_mib: job.memory_mib,
            features: Vec::new(),
            excluded_nodes: Vec::new(),
            time_limit_seconds: job.limit_seconds.map(whole),
            duration_seconds_expected: None,
            held: None,
        }
    }

    /// Accounts are compared by text, and nobody else sees them.
    fn account_of(&self, account: u32) -> String {
        if account == self.setting.no_account { String::new() } else { account.to_string() }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a whole number of seconds, from sacct"
)]
fn whole(seconds: f64) -> u64 {
    seconds as u64
}

fn node_view(node: &super::PoolNode) -> NodeView {
    NodeView {
        name: NodeName::new(node.name.as_str()),
        blocked: None,
        cpus: node.cpus,
        memory_mib: node.memory_mib,
        cpus_free: node.cpus_free,
        memory_mib_free: node.memory_mib_free,
        features: Vec::new(),
        partitions: vec![PARTITION.to_owned()],
        open_seconds: None,
    }
}
