//! QUEUE.csv and RUNNING.csv: who waits, and who runs and may be joined.

use super::ground::{Ground, NODE, Profiles, RUNNING_ID_FIRST};
use super::table::{InvalidFile, NamedText, Row, Table};
use crate::planner::classes::Seats;
use crate::planner::copies::SHARDS_MIN;
use crate::planner::placement::shards;
use crate::view::{DeviceView, Tenant, WaitingJob};
use pillion_core::device::TENANTS_MAX;
use pillion_core::isolation::Isolation;
use pillion_core::{DecisionId, JobStart, Shards, SlowdownRatio, SlurmJobId, UnixTime, UserId, WorkloadKey};
use std::collections::BTreeMap;
use std::time::Duration;

/// The longest run that is believed, in seconds.
const SECONDS_MAX: f64 = 1e9;
/// What a queue may say besides the workload, and running jobs too.
const OPTIONAL: [&str; 3] = ["user", "duration_seconds", "max_slowdown"];
const RUNNING_OPTIONAL: [&str; 3] = ["cap_fraction", "ccs_mode", "remaining_seconds"];

/// Who runs may be joined by three, as on any device.
const SEATS: Seats = Seats { most: TENANTS_MAX, shards_min: SHARDS_MIN };

/// Users by name, numbered as they come; jobs that name none are all of one.
#[derive(Default)]
pub(super) struct Users(BTreeMap<String, u32>);

impl Users {
    fn id(&mut self, row: &Row<'_>) -> Result<UserId, InvalidFile> {
        let next = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
        let name = row.name("user")?.unwrap_or_default().to_owned();
        Ok(UserId(*self.0.entry(name).or_insert(next)))
    }
}

/// What a line says of a job, running or not.
struct Job {
    workload: WorkloadKey,
    uid: UserId,
    duration_seconds: Option<f64>,
    slowdown_ratio_max: SlowdownRatio,
}

impl Job {
    fn read(row: &Row<'_>, users: &mut Users, promise: SlowdownRatio) -> Result<Self, InvalidFile> {
        Ok(Self {
            workload: row.workload("workload")?,
            uid: users.id(row)?,
            duration_seconds: row.measured("duration_seconds")?.map(|seconds| seconds.min(SECONDS_MAX)),
            slowdown_ratio_max: row.promise("max_slowdown")?.unwrap_or(promise),
        })
    }
}

/// Reads QUEUE.csv; a job's id is its row, counted from 0, and one.
pub(super) fn read_queue(
    source: NamedText<'_>,
    profiles: &mut Profiles,
    ground: &Ground,
    users: &mut Users,
) -> Result<Vec<WaitingJob>, InvalidFile> {
    let table = Table::read(source, &["workload"], &OPTIONAL)?;
    let mut waiting = Vec::new();
    for (id, row) in (1..RUNNING_ID_FIRST).zip(table.rows()) {
        let job = Job::read(&row, users, ground.slowdown_ratio_max)?;
        let profile = ground.profile(profiles, &job.workload);
        waiting.push(WaitingJob {
            start: JobStart { job_id: SlurmJobId::plain(id), restart_count: 0 },
            uid: job.uid,
            account: "".into(),
            partition: NODE.into(),
            submitted_at: UnixTime::from_epoch(0),
            starts_alone_at: UnixTime::from_epoch(0),
            slowdown_ratio_max: job.slowdown_ratio_max,
            // Nothing declared where a peak is known; where none is, nothing is needed.
            memory_bytes_declared: profile.memory_bytes_peak.is_none().then_some(0),
            may_run_out: false,
            solo_cap: None,
            owes_runs: 0,
            use_beyond_fraction: 0.0,
            isolation: Isolation::Shared,
            workload: job.workload,
            gpu_type: None,
            device_count: 1,
            node_count: 1,
            fallback: None,
            rules: None,
            as_guest: false,
            is_plain: false,
            cpus: 0,
            memory_mib: 0,
            features: Vec::new(),
            excluded_nodes: Vec::new(),
            time_limit_seconds: None,
            duration_seconds_expected: job.duration_seconds,
            held: None,
        });
    }
    Ok(waiting)
}

/// Reads RUNNING.csv: each job on a device of its own.
pub(super) fn read_running(
    source: NamedText<'_>,
    profiles: &mut Profiles,
    ground: &Ground,
    users: &mut Users,
) -> Result<Vec<DeviceView>, InvalidFile> {
    let table = Table::read(source, &["workload"], &[&OPTIONAL[..], &RUNNING_OPTIONAL].concat())?;
    let mut devices = Vec::new();
    for (id, row) in (RUNNING_ID_FIRST..).zip(table.rows()) {
        let job = Job::read(&row, users, ground.slowdown_ratio_max)?;
        let remaining = row.amount("remaining_seconds")?.map(|seconds| seconds.min(SECONDS_MAX));
        let profile = ground.profile(profiles, &job.workload);
        // Without telemetry nothing says how much it uses, and a joiner has to find room.
        let shards: Shards = shards::of_host(shards::use_expected(profile, 0.0), SEATS);
        let tenant = Tenant {
            job_id: SlurmJobId::plain(id),
            uid: job.uid,
            account: String::new(),
            group: Some(DecisionId(u64::from(id))),
            is_running: true,
            sharing: row.sharing(ground.mechanism, "cap_fraction")?,
            shards,
            slowdown_ratio_max: job.slowdown_ratio_max,
            memory_bytes: profile.memory_bytes_peak.or(Some(0)),
            time_limit_at: None,
            // Where nothing is said of what remains, it has just begun.
            expected_end_at: remaining
                .or(job.duration_seconds)
                .or(profile.duration_seconds)
                .map(|seconds| UnixTime::from_epoch(0) + Duration::from_secs_f64(seconds)),
            workload: Some(job.workload),
            isolation: Isolation::Shared,
            first_run: None,
            rules: None,
            guest: None,
            session: None,
            set: None,
        };
        let shards_free = 100 - u32::from(shards.count());
        devices.push(DeviceView { shards_free, tenants: vec![tenant], ..ground.device(devices.len()) });
    }
    Ok(devices)
}
