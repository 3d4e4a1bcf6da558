//! The real Slurm, through its own programs: one call for all jobs, one for all nodes, one update for many jobs.
//!
//! Decides nothing and retries nothing: the reconciler that calls is the retry. Must not know Postgres, gRPC or devices.

use crate::gpu_defaults::GpuDefaults;
use crate::parse::held::{self, HeldDevices};
use crate::parse::squeue::Excluded;
use crate::parse::{queue, scontrol, squeue};
use crate::partition::Partition;
use crate::process::{Runner, nonce};
use crate::reservation::Reservation;
use crate::throttles::Throttles;
use crate::types::{
    Job, JobState, JobUpdate, JobsScan, NAMED_JOBS_MAX, Node, Privacy, Requeued, SCRIPT_BYTES_MAX, Slurm,
    SlurmError,
};
use crate::version::SlurmVersion;
use async_trait::async_trait;
use pillion_core::{SlurmJobId, UnixTime};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Mutex;

/// Jobs named in one `scontrol update`: at 6 ms each it ends well within the deadline.
const UPDATE_JOBS_MAX: usize = 200;

/// How to reach Slurm.
#[derive(Debug, Clone)]
pub struct CommandSettings {
    /// Where its programs are; `None` = on the `PATH`.
    pub binary_directory: Option<PathBuf>,
    /// `SLURM_CONF`; `None` = that of our own environment, or Slurm's default.
    pub conf: Option<PathBuf>,
    /// The longest that one program may run.
    pub timeout: Duration,
}

impl Default for CommandSettings {
    fn default() -> Self {
        Self { binary_directory: None, conf: None, timeout: Duration::from_secs(10) }
    }
}

/// Slurm by `squeue` and `scontrol`.
#[derive(Debug)]
pub struct CommandSlurm {
    runner: Runner,
    throttles: Mutex<Throttles>,
    /// Whether this squeue has said that it knows no `ExcNodes`.
    asks_excluded_apart: AtomicBool,
    /// One for each set of partitions that is asked for: what the last answer of one held says nothing of another's.
    readers: std::sync::Mutex<BTreeMap<String, queue::Reader>>,
}

impl CommandSlurm {
    /// Runs nothing yet.
    pub fn new(settings: CommandSettings) -> Self {
        let CommandSettings { binary_directory, conf, timeout } = settings;
        let runner = Runner { binary_directory, conf, timeout };
        let (throttles, readers) = (Mutex::default(), std::sync::Mutex::default());
        Self { runner, throttles, asks_excluded_apart: AtomicBool::new(false), readers }
    }

    /// The controller's configuration, as `scontrol show config` names it (`SLURM_VERSION`, `MinJobAge`, ..).
    ///
    /// # Errors
    /// [`SlurmError`] where scontrol fails.
    pub async fn config(&self) -> Result<BTreeMap<String, String>, SlurmError> {
        Ok(scontrol::config(&self.scontrol(&["show", "config"]).await?))
    }

    /// Whether a controller answers, primary or backup.
    ///
    /// # Errors
    /// [`SlurmError`] where scontrol cannot be run; a controller that is down is `Ok(false)`.
    pub async fn ping(&self) -> Result<bool, SlurmError> {
        match self.scontrol(&["ping"]).await {
            Ok(text) => Ok(text.lines().any(|line| line.trim_end().ends_with(" is UP"))),
            Err(SlurmError::Failed { .. } | SlurmError::Unavailable { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// What `squeue` says of these jobs in a format; nothing where it knows none of them any more.
    async fn squeue_of(&self, jobs: &[SlurmJobId], format: &str) -> Result<String, SlurmError> {
        if jobs.is_empty() {
            return Ok(String::new());
        }
        let ids: Vec<String> = jobs.iter().take(NAMED_JOBS_MAX).map(ToString::to_string).collect();
        let arguments = ["-a", "-r", "--local", "-h", "-t", "all", "-O", format, "-j", &ids.join(",")];
        let arguments: Vec<String> = arguments.iter().map(|&argument| argument.to_owned()).collect();
        match self.runner.run("squeue", &arguments).await {
            Err(SlurmError::Failed { detail, .. }) if detail.contains("Invalid job id") => Ok(String::new()),
            answer => answer,
        }
    }

    /// Reads the queue as this squeue can be asked for it.
    async fn queue(&self, partitions: &str) -> Result<JobsScan, SlurmError> {
        if !self.asks_excluded_apart.load(Ordering::Relaxed) {
            match self.records(partitions, Excluded::Within).await {
                Err(SlurmError::Misunderstood { detail, .. }) if detail.contains("ExcNodes") => {
                    tracing::info!(
                        "this squeue knows no ExcNodes, so excluded nodes are asked for beside the queue"
                    );
                    self.asks_excluded_apart.store(true, Ordering::Relaxed);
                }
                answer => return answer,
            }
        }
        let mut scan = self.records(partitions, Excluded::Apart).await?;
        self.fill_excluded(partitions, &mut scan).await?;
        Ok(scan)
    }

    async fn records(&self, partitions: &str, excluded: Excluded) -> Result<JobsScan, SlurmError> {
        let nonce = nonce();
        let arguments = queue_arguments(["-O", &squeue::format_option(&nonce, excluded)], partitions);
        let mut answer = self.readers().entry(partitions.to_owned()).or_default().answer(&nonce);
        self.runner.run_pieces("squeue", &arguments, |piece| answer.push(piece)).await?;
        Ok(self.readers().entry(partitions.to_owned()).or_default().finish(answer))
    }

    /// Fills in the nodes that jobs exclude, asked for after the queue: whoever changed them meanwhile is heard.
    async fn fill_excluded(&self, partitions: &str, scan: &mut JobsScan) -> Result<(), SlurmError> {
        let nonce = nonce();
        let arguments = queue_arguments(["-o", &squeue::excluded_format_option(&nonce)], partitions);
        let text = self.runner.run("squeue", &arguments).await?;
        let mut known = squeue::excluded_nodes(&text, &nonce);
        let mut readers = self.readers();
        let reader = readers.entry(partitions.to_owned()).or_default();
        let mut jobs = Vec::with_capacity(scan.jobs.len());
        for job in scan.jobs.drain(..) {
            match known.remove(&job.id) {
                Some(nodes) if nodes == job.excluded_nodes => jobs.push(job),
                Some(excluded_nodes) => {
                    let job = Arc::new(Job { excluded_nodes, ..job.as_ref().clone() });
                    reader.keep(&job);
                    jobs.push(job);
                }
                // Slurm may have forgotten it by now, and where it could run is over.
                None if matches!(job.state, JobState::Completing | JobState::Ended(_)) => jobs.push(job),
                // Excluding nothing is not what no answer means.
                None => scan.dropped_line_count += 1,
            }
        }
        scan.jobs = jobs;
        Ok(())
    }

    /// What no cluster is without: an empty answer is no answer.
    fn some<T>(items: Vec<T>, expected: &'static str) -> Result<Vec<T>, SlurmError> {
        if items.is_empty() {
            return Err(SlurmError::Unreadable { program: "scontrol".to_owned(), expected });
        }
        Ok(items)
    }

    async fn scontrol(&self, arguments: &[&str]) -> Result<String, SlurmError> {
        let arguments: Vec<String> = arguments.iter().map(|&argument| argument.to_owned()).collect();
        self.runner.run("scontrol", &arguments).await
    }

    fn readers(&self) -> MutexGuard<'_, BTreeMap<String, queue::Reader>> {
        self.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fills in the throttles of arrays; only waiting jobs of ours are asked for.
    async fn fill_throttles(&self, partitions: &str, scan: &mut JobsScan) {
        let of_arrays = scan.jobs.iter().filter(|job| is_array_task_of_ours(job));
        let waiting = of_arrays.filter(|job| job.state == JobState::Pending);
        let arrays: BTreeSet<u32> = waiting.map(|job| job.id.id).collect();
        let mut throttles = self.throttles.lock().await;
        throttles.ask(&self.runner, &arrays).await;
        let mut readers = self.readers();
        let reader = readers.entry(partitions.to_owned()).or_default();
        for job in scan.jobs.iter_mut().filter(|job| is_array_task_of_ours(job)) {
            let array_throttle = throttles.of(job.id.id);
            if job.array_throttle != array_throttle {
                *job = Arc::new(Job { array_throttle, ..job.as_ref().clone() });
                reader.keep(job);
            }
        }
    }
}

#[async_trait]
impl Slurm for CommandSlurm {
    async fn version(&self) -> Result<SlurmVersion, SlurmError> {
        let config = self.config().await?;
        let version = config.get("SLURM_VERSION").and_then(|text| scontrol::version(text));
        version.ok_or(SlurmError::Unreadable {
            program: "scontrol".to_owned(),
            expected: "SLURM_VERSION = 24.11.5",
        })
    }

    async fn privacy(&self) -> Result<Privacy, SlurmError> {
        Ok(Privacy::parse(self.config().await?.get("PrivateData").map_or("", String::as_str)))
    }

    async fn gpu_defaults(&self) -> Result<BTreeMap<String, GpuDefaults>, SlurmError> {
        let config = self.config().await?;
        let of_cluster = config.get("JobDefaults").map_or("", String::as_str);
        let partitions = self.partitions().await?;
        let words = partitions.iter().map(|one| (&*one.name, &*one.job_defaults));
        Ok(GpuDefaults::by_partition(words, of_cluster))
    }

    async fn kill_wait(&self) -> Result<Duration, SlurmError> {
        let config = self.config().await?;
        let kill_wait = config.get("KillWait").and_then(|text| scontrol::seconds(text));
        kill_wait
            .ok_or(SlurmError::Unreadable { program: "scontrol".to_owned(), expected: "KillWait = 30 sec" })
    }

    async fn jobs(&self, partitions: &[String]) -> Result<JobsScan, SlurmError> {
        partitions.iter().try_for_each(|name| checked("partition", name))?;
        let partitions = partitions.join(",");
        let mut scan = self.queue(&partitions).await?;
        if scan.dropped_line_count > 0 {
            tracing::warn!(scan.dropped_line_count, "squeue printed records that do not parse whole");
        }
        self.fill_throttles(&partitions, &mut scan).await;
        Ok(scan)
    }

    async fn nodes(&self) -> Result<Vec<Node>, SlurmError> {
        let (nodes, dropped_line_count) =
            scontrol::nodes(&self.scontrol(&["show", "node", "-d", "-o"]).await?);
        if dropped_line_count > 0 {
            tracing::warn!(dropped_line_count, "scontrol printed nodes that cannot be read");
        }
        Self::some(nodes, "NodeName=.. lines")
    }

    async fn reservations(&self) -> Result<Vec<Reservation>, SlurmError> {
        // Where there is none it says so in a sentence.
        let text = self.scontrol(&["show", "reservation", "-o"]).await?;
        let (reservations, dropped_line_count) = scontrol::reservations(&text);
        if dropped_line_count > 0 {
            tracing::warn!(dropped_line_count, "scontrol printed reservations that cannot be read");
        }
        Ok(reservations)
    }

    async fn partitions(&self) -> Result<Vec<Partition>, SlurmError> {
        let (partitions, dropped_line_count) =
            scontrol::partitions(&self.scontrol(&["show", "partition", "-o"]).await?);
        if dropped_line_count > 0 {
            tracing::warn!(dropped_line_count, "scontrol printed partitions that cannot be read");
        }
        Self::some(partitions, "PartitionName=.. lines")
    }

    async fn update(&self, jobs: &[SlurmJobId], update: &JobUpdate) -> Result<(), SlurmError> {
        let changes = update_arguments(update)?;
        let mut first_error = None;
        for chunk in jobs.chunks(UPDATE_JOBS_MAX) {
            let ids: Vec<String> = chunk.iter().map(ToString::to_string).collect();
            let mut arguments = vec!["update".to_owned(), format!("JobId={}", ids.join(","))];
            arguments.extend(changes.iter().cloned());
            // One job that Slurm refuses does not keep the others waiting, neither within a call nor across calls.
            let result = self.runner.run("scontrol", &arguments).await;
            first_error = first_error.or(result.err());
        }
        first_error.map_or(Ok(()), Err)
    }

    async fn update_each(&self, updates: &[(SlurmJobId, JobUpdate)]) -> Result<u64, SlurmError> {
        let mut refused_count = 0;
        for chunk in updates.chunks(UPDATE_JOBS_MAX) {
            let mut lines = Vec::with_capacity(chunk.len());
            for (job, update) in chunk {
                lines.push(format!("update JobId={job} {}", update_arguments(update)?.join(" ")));
            }
            refused_count += self.runner.run_lines("scontrol", &lines).await?;
        }
        Ok(refused_count)
    }

    async fn allows_requeue(&self, job: SlurmJobId) -> Result<bool, SlurmError> {
        let job = job.to_string();
        let arguments = ["-a", "-r", "--local", "-h", "-t", "all", "-O", "Requeue:", "-j", &job];
        let arguments: Vec<String> = arguments.iter().map(|&argument| argument.to_owned()).collect();
        let text = self.runner.run("squeue", &arguments).await?;
        squeue::allows_requeue(&text)
            .ok_or(SlurmError::Unreadable { program: "squeue".to_owned(), expected: "Requeue: 0 or 1" })
    }

    async fn job_names(&self, jobs: &[SlurmJobId]) -> Result<BTreeMap<SlurmJobId, String>, SlurmError> {
        let nonce = nonce();
        let text = self.squeue_of(jobs, &squeue::names_format_option(&nonce)).await?;
        Ok(squeue::names(&text, &nonce))
    }

    async fn node_counts(&self, jobs: &[SlurmJobId]) -> Result<BTreeMap<SlurmJobId, u32>, SlurmError> {
        let nonce = nonce();
        let text = self.squeue_of(jobs, &squeue::node_counts_format_option(&nonce)).await?;
        Ok(squeue::node_counts(&text, &nonce))
    }

    async fn held_devices(&self, jobs: &[u32]) -> Result<BTreeMap<u32, HeldDevices>, SlurmError> {
        let (nonce, jobs) = (nonce(), &jobs[..jobs.len().min(NAMED_JOBS_MAX)]);
        if jobs.is_empty() {
            return Ok(BTreeMap::new());
        }
        let lines = held::questions(jobs, &nonce);
        let text = self.runner.ask_lines("scontrol", &["-d", "-o"], &lines).await?;
        Ok(held::held_devices(&text, jobs, &nonce))
    }

    async fn batch_script(&self, job: u32) -> Result<Option<Vec<u8>>, SlurmError> {
        let arguments = ["write", "batch_script", &job.to_string(), "-"].map(str::to_owned);
        let mut script = Vec::new();
        let mut is_short = true;
        let answer = self.runner.run_pieces("scontrol", &arguments, |piece| {
            is_short &= script.len() + piece.len() <= SCRIPT_BYTES_MAX;
            if is_short {
                script.extend_from_slice(piece);
            }
        });
        match answer.await {
            Ok(()) => Ok(Some(script).filter(|script| is_short && !script.is_empty())),
            // One of salloc or srun, or one that is over.
            Err(SlurmError::Failed { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn submit_line(&self, job: u32) -> Result<Option<String>, SlurmError> {
        let arguments =
            ["-a", "-X", "-n", "-P", "-j", &job.to_string(), "-o", "SubmitLine"].map(str::to_owned);
        match self.runner.run("sacct", &arguments).await {
            Ok(text) => Ok(Some(text.trim().to_owned()).filter(|line| !line.is_empty())),
            // Where nobody keeps accounts, or sacct is not installed.
            Err(SlurmError::Failed { .. } | SlurmError::Spawn { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn requeue(&self, job: SlurmJobId, which: Requeued) -> Result<(), SlurmError> {
        let job = job.to_string();
        let done = match which {
            Requeued::Over => self.scontrol(&["requeue", &job]).await,
            Requeued::Running => self.scontrol(&["requeue", "Incomplete", &job]).await,
        };
        done.map(drop)
    }
}

/// What squeue is asked of all jobs of these partitions, comma-separated; none: of all.
fn queue_arguments(format: [&str; 2], partitions: &str) -> Vec<String> {
    let of_partitions = if partitions.is_empty() { vec![] } else { vec!["-p", partitions] };
    let all = ["-a", "-r", "--local", "-h", "-t", "all"].into_iter().chain(format).chain(of_partitions);
    all.map(str::to_owned).collect()
}

/// The words of an update in Slurm's own order.
fn update_arguments(update: &JobUpdate) -> Result<Vec<String>, SlurmError> {
    let JobUpdate { gres, required_nodes, partition, admin_comment, start_time } = update;
    let mut arguments = Vec::new();
    for (argument, value) in [
        ("Gres", gres),
        ("ReqNodeList", required_nodes),
        ("Partition", partition),
        ("AdminComment", admin_comment),
    ] {
        let Some(value) = value else { continue };
        if !(value.is_empty() && matches!(argument, "ReqNodeList" | "AdminComment")) {
            checked(argument, value)?;
        }
        arguments.push(format!("{argument}={value}"));
    }
    arguments.extend(start_time.map(|time| format!("StartTime={}", utc_text(time))));
    if arguments.is_empty() {
        return Err(invalid("update", "", "at least one change"));
    }
    Ok(arguments)
}

fn is_array_task_of_ours(job: &Job) -> bool {
    job.id.task.is_some() && matches!(job.mark, Ok(Some(_)))
}

/// A value must be one plain word: nothing that a program could take for a second argument, and no newline.
fn checked(argument: &'static str, value: &str) -> Result<(), SlurmError> {
    let is_plain = value.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"=,.:_-;/[]+%@".contains(&byte));
    if value.is_empty() || value.starts_with('-') || value.len() > 16_384 || !is_plain {
        return Err(invalid(argument, value, "1 to 16384 letters, digits and =,.:_-;/[]+%@, no '-' first"));
    }
    Ok(())
}

fn invalid(argument: &'static str, value: &str, allowed: &'static str) -> SlurmError {
    SlurmError::InvalidArgument {
        argument,
        value: value.chars().take(60).collect::<String>().escape_debug().to_string(),
        allowed,
    }
}

/// A time as Slurm reads it under `TZ=UTC0`. A time that is past means now to Slurm, but the epoch itself means "no
/// change": the year 2000 stands for all that lies before it.
fn utc_text(time: UnixTime) -> String {
    const YEAR_2000_EPOCH: u64 = 946_684_800;
    let epoch = time.epoch().max(YEAR_2000_EPOCH);
    let (days, seconds) = (epoch / 86_400, epoch % 86_400);
    let (year, month, day) = civil(days);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}",
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60
    )
}

/// The Gregorian date of a day since 1970-01-01, counted in years that begin in March so that the leap day is last.
const fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400;
    (if month <= 2 { year + 1 } else { year }, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_update_says_the_gres_first_and_the_begin_time_last() {
        let update = JobUpdate {
            gres: Some("shard:g1:40,lscratch:100".to_owned()),
            required_nodes: Some("n2".to_owned()),
            partition: Some("shared".to_owned()),
            admin_comment: Some("pillion1;lease=5".to_owned()),
            start_time: Some(UnixTime::from_epoch(1_795_255_200)),
        };
        assert_eq!(
            update_arguments(&update).unwrap(),
            [
                "Gres=shard:g1:40,lscratch:100",
                "ReqNodeList=n2",
                "Partition=shared",
                "AdminComment=pillion1;lease=5",
                "StartTime=2026-11-21T10:00:00"
            ]
        );
        let clear = JobUpdate { required_nodes: Some(String::new()), ..JobUpdate::default() };
        assert_eq!(update_arguments(&clear).unwrap(), ["ReqNodeList="]);
    }

    #[test]
    fn times_are_utc_and_never_the_epoch() {
        for (epoch, text) in [
            (0, "2000-01-01T00:00:00"),
            (951_782_400, "2000-02-29T00:00:00"),
            (1_709_251_199, "2024-02-29T23:59:59"),
            (1_767_225_599, "2025-12-31T23:59:59"),
            (4_107_542_400, "2100-03-01T00:00:00"),
        ] {
            assert_eq!(utc_text(UnixTime::from_epoch(epoch)), text);
        }
    }

    #[test]
    fn what_is_not_one_plain_word_never_reaches_a_command_line() {
        for value in ["", "a b", "a\nb", "-x", "a\0", "é", "a'b", "$(x)", &"a".repeat(20_000)] {
            let update = JobUpdate { gres: Some(value.to_owned()), ..JobUpdate::default() };
            let error = update_arguments(&update).unwrap_err();
            assert!(matches!(error, SlurmError::InvalidArgument { argument: "Gres", .. }), "{value:?}");
            assert!(!error.is_transient() && !error.to_string().contains('\n'));
        }
        assert!(update_arguments(&JobUpdate::default()).is_err());
    }
}
