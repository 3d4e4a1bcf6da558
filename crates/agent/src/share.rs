//! What a share means for a task: its environment, made from the decision alone; and the table of shares that the node
//! holds, which outlives the agent. Row 6 of the way of a job. Knows nothing of sockets, drivers or the scheduler.

use crate::disk;
use crate::mechanism::{self, Variable};
use pillion_core::device::DeviceDescription;
use pillion_core::share::{Share, Sharing};
use pillion_core::{DecisionId, DeviceUuid, GresType, JobStart, Shards, UserId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// The decision that the task runs under, for the user's own log.
pub const DECISION_VARIABLE: &str = "PILLION_DECISION";
/// Where the task may write its counter.
pub const PROGRESS_VARIABLE: &str = "PILLION_PROGRESS";

/// Where a task finds what is made for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharePaths {
    /// Its progress file, where one could be made.
    pub progress: Option<PathBuf>,
    /// The pipe directory of the MPS daemon of its devices, or of its instance.
    pub mps_pipe_directory: PathBuf,
    /// The name of its own SM partition there, where it has one.
    pub mps_partition: Option<String>,
    /// The name of its instance, where it has one.
    pub instance: Option<DeviceUuid>,
}

/// The variables that carry out `share` on its `devices`, in a fixed order.
///
/// `none` leaves the choice of the devices as Slurm made it.
pub fn environment(share: &Share, devices: &[DeviceDescription], paths: &SharePaths) -> Vec<Variable> {
    let mut variables = match share.sharing {
        Sharing::Mps { cap, memory_limit_bytes } => {
            let SharePaths { mps_pipe_directory, mps_partition, .. } = paths;
            let visible: Vec<&DeviceUuid> = devices.iter().map(|device| &device.uuid).collect();
            let limits = (cap, memory_limit_bytes);
            mechanism::mps::environment(limits, &visible, mps_pipe_directory, mps_partition.as_deref())
        }
        Sharing::MigMps { cap, memory_limit_bytes, .. } => match &paths.instance {
            Some(instance) => {
                let limits = (cap, memory_limit_bytes);
                mechanism::mps::environment(limits, &[instance], &paths.mps_pipe_directory, None)
            }
            // Of one that is not there nothing is said.
            None => Vec::new(),
        },
        Sharing::Ccs { mode } => {
            devices.first().map(|device| mechanism::ccs::environment(mode, device)).unwrap_or_default()
        }
        Sharing::Mig { .. } => paths.instance.as_ref().map(mechanism::mig::environment).unwrap_or_default(),
        Sharing::TimeSliced => Vec::new(),
    };
    variables.extend(profiling(paths.progress.as_deref()));
    variables.push((DECISION_VARIABLE.to_owned(), share.decision_id.to_string()));
    variables
}

/// The variables that nobody but us sets for a job, if not by mistake. Not those by which Slurm itself chooses devices.
const OWN_VARIABLES: [&str; 7] = [
    "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
    "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
    "CUDA_MPS_SM_PARTITION",
    "CUDA_MPS_PIPE_DIRECTORY",
    "ZEX_NUMBER_OF_CCS",
    PROGRESS_VARIABLE,
    DECISION_VARIABLE,
];

/// What a task that shares a device must not inherit, beside what is `set` for it: a job that was submitted from inside
/// another one brings that one's limits. A job that has all of its device may run an MPS daemon of its own: nothing.
pub fn stale(share: &Share, set: &[Variable]) -> Vec<String> {
    let is_shared = share.mechanism().is_set_up() || share.shards != Shards::ALL;
    let own = OWN_VARIABLES.into_iter().filter(|own| is_shared && !set.iter().any(|(name, _)| name == own));
    own.map(str::to_owned).collect()
}

/// What a container must see at its own path: without the pipe directory a program in it runs beside MPS, without a cap.
pub fn container_bind(share: &Share, paths: &SharePaths) -> Option<String> {
    share.mechanism().has_daemon().then(|| paths.mps_pipe_directory.display().to_string())
}

/// The variables of a task that is only measured.
pub fn profiling(progress: Option<&Path>) -> Vec<Variable> {
    progress.map(|path| (PROGRESS_VARIABLE.to_owned(), path.display().to_string())).into_iter().collect()
}

/// Whether a share was decided for what Slurm has started: the same user, whose job may have been given the number of another,
/// and no more shards, where they are known. More is a job that was put back to run alone before we heard of it: it is given a
/// whole device, and no limit of a sharing that did not come about.
pub fn is_for(share: &Share, uid: UserId, shards_booked: Option<u32>) -> bool {
    let is_larger = shards_booked.is_some_and(|booked| booked > share.shards_booked());
    share.uid == uid && !is_larger
}

/// The shares of this node, one a start, each change on disk before it is answered.
#[derive(Debug, Clone)]
pub struct ShareTable {
    path: PathBuf,
    shares: BTreeMap<JobStart, Held>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Held {
    #[serde(flatten)]
    share: Share,
    #[serde(flatten)]
    own: Own,
}

/// What of its device is one tenant's own: its tasks need the names from the moment an agent answers.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Own {
    /// Its SM partition.
    #[serde(default)]
    pub mps_partition: Option<String>,
    /// Its instance.
    #[serde(default)]
    pub instance: Option<DeviceUuid>,
}

impl ShareTable {
    /// The table of an earlier agent, or an empty one.
    pub fn open(path: PathBuf) -> Self {
        let shares: Vec<Held> = disk::read_or_default(&path);
        Self { path, shares: shares.into_iter().map(|held| (held.share.start, held)).collect() }
    }

    /// That of a node on which nothing is shared: no file is read or written.
    pub fn none() -> Self {
        Self { path: PathBuf::new(), shares: BTreeMap::new() }
    }

    /// The share of a start.
    pub fn get(&self, start: JobStart) -> Option<&Share> {
        self.shares.get(&start).map(|held| &held.share)
    }

    /// What of its device is a start's own.
    pub fn own(&self, start: JobStart) -> Own {
        self.shares.get(&start).map(|held| held.own.clone()).unwrap_or_default()
    }

    pub fn all(&self) -> impl Iterator<Item = &Share> {
        self.shares.values().map(|held| &held.share)
    }

    /// The shares on one device.
    pub fn on_device<'a>(&'a self, gres_type: &'a GresType) -> impl Iterator<Item = &'a Share> {
        self.all().filter(move |share| share.gres_types.contains(gres_type))
    }

    /// The decisions that are carried out here.
    pub fn decision_ids(&self) -> Vec<DecisionId> {
        self.all().map(|share| share.decision_id).collect()
    }

    /// Remembers a share, with what is its own.
    ///
    /// # Errors
    /// If it cannot be written; then it is not remembered.
    pub fn insert(&mut self, share: Share, own: Own) -> io::Result<()> {
        let start = share.start;
        let before = self.shares.insert(start, Held { share, own });
        self.write().inspect_err(|_| {
            match before {
                Some(before) => self.shares.insert(start, before),
                None => self.shares.remove(&start),
            };
        })
    }

    /// Forgets a share. A disk that refuses this leaves a stale share, which the scheduler revokes by name.
    pub fn remove(&mut self, start: JobStart) -> Option<Share> {
        let Held { share, .. } = self.shares.remove(&start)?;
        if let Err(error) = self.write() {
            tracing::warn!(path = %self.path.display(), %error, "shares cannot be written");
        }
        Some(share)
    }

    /// This start has this now. A disk that refuses this leaves the names from before.
    pub fn set_own(&mut self, start: JobStart, own: Own) {
        match self.shares.get_mut(&start) {
            Some(held) if held.own != own => held.own = own,
            _ => return,
        }
        if let Err(error) = self.write() {
            tracing::warn!(path = %self.path.display(), %error, "shares cannot be written");
        }
    }

    fn write(&self) -> io::Result<()> {
        disk::replace(&self.path, &self.shares.values().collect::<Vec<_>>(), true)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use pillion_core::device::Mechanism;
    use pillion_core::{Fraction, Shards, SlurmJobId, UserId};

    pub(crate) fn device(mechanism: Mechanism) -> DeviceDescription {
        DeviceDescription {
            model: if mechanism == Mechanism::Ccs { "max-1550".into() } else { "h200".into() },
            memory_bytes: 1 << 37,
            mechanism,
            ..pillion_test_kit::device(3)
        }
    }

    pub(crate) fn share(job: u32, mechanism: Mechanism) -> Share {
        Share {
            decision_id: DecisionId(7),
            start: JobStart { job_id: SlurmJobId::plain(job), restart_count: 0 },
            uid: UserId(1000),
            gres_types: GresType::new("g3").into(),
            sharing: Sharing::by(mechanism, None, Some(2)),
            shards: Shards::ALL,
            memory_bytes: None,
            is_session: false,
            is_plain: false,
        }
    }

    pub(crate) fn capped(job: u32, cap: f64) -> Share {
        let sharing = Sharing::by(Mechanism::Mps, Some(Fraction::clamped(cap)), None);
        Share { sharing, ..share(job, Mechanism::Mps) }
    }

    fn paths() -> SharePaths {
        SharePaths {
            progress: Some(PathBuf::from("/run/pillion/progress/33+0")),
            mps_pipe_directory: PathBuf::from("/run/pillion/mps/g3/pipe"),
            mps_partition: None,
            instance: None,
        }
    }

    fn written(share: &Share) -> Vec<String> {
        let variables = environment(share, &[device(share.mechanism())], &paths());
        variables.into_iter().map(|(name, value)| format!("{name}={value}")).collect()
    }

    #[test]
    fn alone_only_the_profile_is_made() {
        assert_eq!(
            written(&share(33, Mechanism::TimeSliced)),
            ["PILLION_PROGRESS=/run/pillion/progress/33+0", "PILLION_DECISION=7"]
        );
    }

    #[test]
    fn mps_names_the_device_the_pipe_and_the_limits() {
        let share = share(33, Mechanism::Mps);
        assert_eq!(
            written(&share)[..2],
            ["CUDA_VISIBLE_DEVICES=GPU-3", "CUDA_MPS_PIPE_DIRECTORY=/run/pillion/mps/g3/pipe"]
        );
        assert_eq!(written(&share).len(), 4, "no cap, no limit");
        assert_eq!(container_bind(&share, &paths()).as_deref(), Some("/run/pillion/mps/g3/pipe"));
        assert_eq!(container_bind(&self::share(33, Mechanism::Ccs), &paths()), None);
        let limited = capped(33, 0.55);
        let limited = Share { sharing: limited.sharing.limited_to(Some((8 << 30) + 5)), ..limited };
        assert_eq!(
            written(&limited)[2..4],
            ["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=55", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=8192M"]
        );
        assert_eq!(written(&capped(33, 0.07))[2], "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=7");
        assert_eq!(written(&capped(33, 1.0 / 3.0))[2], "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=33.33");
    }

    #[test]
    fn ccs_names_card_and_tile_and_the_mode_of_what_is_left() {
        assert_eq!(
            written(&share(33, Mechanism::Ccs))[..3],
            ["ZE_FLAT_DEVICE_HIERARCHY=COMPOSITE", "ZE_AFFINITY_MASK=1.1", "ZEX_NUMBER_OF_CCS=0:2"]
        );
    }

    #[test]
    fn a_tenant_of_an_instance_is_told_its_name_and_of_no_daemon() {
        let slot: pillion_core::mig::Slot = "1g.18gb@6".parse().unwrap();
        let sharing = Sharing::Mig { profile: slot.profile, start: slot.start };
        let tenant = Share { sharing, ..share(33, Mechanism::TimeSliced) };
        let set =
            |instance| environment(&tenant, &[device(Mechanism::Mps)], &SharePaths { instance, ..paths() });
        let own = set(Some(DeviceUuid::new("MIG-5")));
        assert_eq!(own[0], ("CUDA_VISIBLE_DEVICES".to_owned(), "MIG-5".to_owned()));
        assert!(
            stale(&tenant, &own).contains(&"CUDA_MPS_PIPE_DIRECTORY".to_owned()),
            "of whoever submitted it"
        );
        assert_eq!(container_bind(&tenant, &paths()), None);
        assert_eq!(set(None)[0].0, PROGRESS_VARIABLE, "of one that is not there nothing is said");
    }

    #[test]
    fn who_shares_an_instance_is_told_its_name_its_daemon_and_his_part_of_it() {
        let slot: pillion_core::mig::Slot = "3g.71gb@4".parse().unwrap();
        let sharing = Sharing::MigMps {
            profile: slot.profile,
            start: slot.start,
            cap: Some(Fraction::clamped(0.4)),
            memory_limit_bytes: Some(30 << 30),
        };
        let tenant = Share { sharing, ..share(33, Mechanism::TimeSliced) };
        let pipe = PathBuf::from("/run/pillion/mps/g3-3g.71gb@4/pipe");
        let told = |instance| {
            let paths = SharePaths { instance, mps_pipe_directory: pipe.clone(), ..paths() };
            let set = environment(&tenant, &[device(Mechanism::Mps)], &paths);
            assert_eq!(container_bind(&tenant, &paths), Some(pipe.display().to_string()));
            set.into_iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>()
        };
        let expected = [
            "CUDA_VISIBLE_DEVICES=MIG-5",
            "CUDA_MPS_PIPE_DIRECTORY=/run/pillion/mps/g3-3g.71gb@4/pipe",
            "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=40",
            "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=30720M",
        ];
        assert_eq!(told(Some(DeviceUuid::new("MIG-5")))[..4], expected);
        assert!(
            !told(None).iter().any(|it| it.starts_with("CUDA")),
            "of one that is not there nothing is said"
        );
    }

    #[test]
    fn a_partition_stands_in_for_the_percentage() {
        let tenant = capped(33, 0.5);
        let paths = SharePaths { mps_partition: Some("GPU-3/Dx4".to_owned()), ..paths() };
        let variables = environment(&tenant, &[device(Mechanism::Mps)], &paths);
        let names: Vec<&str> = variables.iter().map(|(name, _)| name.as_str()).collect();
        assert!(!names.contains(&"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"), "{names:?}");
        assert!(variables.contains(&("CUDA_MPS_SM_PARTITION".to_owned(), "GPU-3/Dx4".to_owned())));
    }

    #[test]
    fn the_table_outlives_the_agent() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("shares.json");
        let mut table = ShareTable::open(path.clone());
        table.insert(share(33, Mechanism::Mps), Own::default()).unwrap();
        let own =
            Own { mps_partition: Some("GPU-3/Dx4".to_owned()), instance: Some(DeviceUuid::new("MIG-1")) };
        table.insert(share(34, Mechanism::Mps), own.clone()).unwrap();
        table.remove(share(33, Mechanism::Mps).start);
        let table = ShareTable::open(path);
        assert_eq!(table.all().collect::<Vec<_>>(), [&share(34, Mechanism::Mps)]);
        assert_eq!(table.on_device(&GresType::new("g0")).count(), 0);
        assert_eq!(table.own(share(34, Mechanism::Mps).start), own);
    }

    #[test]
    fn a_table_from_before_partitions_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("shares.json");
        let tenant = capped(33, 0.5);
        disk::replace(&path, &[&tenant], false).unwrap();
        let table = ShareTable::open(path);
        assert_eq!(table.get(tenant.start), Some(&tenant));
        assert_eq!(table.own(tenant.start), Own::default());
    }

    #[test]
    fn a_tenant_inherits_nothing_from_the_job_that_submitted_it() {
        let shared = share(33, Mechanism::Mps);
        let set = environment(&shared, &[device(Mechanism::Mps)], &paths());
        let expected = [
            "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
            "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
            "CUDA_MPS_SM_PARTITION",
            "ZEX_NUMBER_OF_CCS",
        ];
        assert_eq!(stale(&shared, &set), expected);
        let card = share(33, Mechanism::Ccs);
        let set = environment(&card, &[device(Mechanism::Ccs)], &SharePaths { progress: None, ..paths() });
        let expected = [&expected[..3], &["CUDA_MPS_PIPE_DIRECTORY", "PILLION_PROGRESS"]].concat();
        assert_eq!(stale(&card, &set), expected);
        let whole = Share { shards: Shards::ALL, ..share(33, Mechanism::TimeSliced) };
        assert!(stale(&whole, &[]).is_empty(), "its own daemon is its own");
        let in_turns = Share { shards: Shards::try_new(50).unwrap(), ..whole };
        assert_eq!(stale(&in_turns, &[]), OWN_VARIABLES);
    }

    #[test]
    fn what_cannot_be_written_is_not_remembered() {
        let mut table = ShareTable::open(PathBuf::from("/proc/nowhere/shares.json"));
        assert!(table.insert(share(33, Mechanism::Mps), Own::default()).is_err());
        assert_eq!(table.get(share(33, Mechanism::Mps).start), None);
    }
}
