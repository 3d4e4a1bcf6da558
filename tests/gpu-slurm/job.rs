//! A job whose program runs one kernel over and over and says how far it is: `pillion-gpu-checks client`.

use super::SOON;
use pillion_core::SlurmJobId;
use pillion_tests::Cluster;
use pillion_tests::wait::{Look, wait_for};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// Over how long a speed is read.
const WATCH: Duration = Duration::from_secs(5);
/// What each start writes down of its environment. A job's standard input is empty, and its program ends with that: it gets one
/// that does not end.
const START: &str = "echo visible=$CUDA_VISIBLE_DEVICES pipe=$CUDA_MPS_PIPE_DIRECTORY \
     percentage=$CUDA_MPS_ACTIVE_THREAD_PERCENTAGE limit=$CUDA_MPS_PINNED_DEVICE_MEM_LIMIT > $HOME/start.$SLURM_JOB_ID\n\
     [ -p $HOME/input.$SLURM_JOB_ID ] || mkfifo $HOME/input.$SLURM_JOB_ID; exec 3<> $HOME/input.$SLURM_JOB_ID";

/// What a job asks for besides.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wants {
    /// After `--colocate=profile=WORKLOAD`.
    pub(crate) options: String,
    /// Whether it does not ask for co-location at all.
    pub(crate) is_plain: bool,
    /// Its kernel, where that is not the one that its workload is called after.
    pub(crate) kernel: Option<&'static str>,
    /// For how long it runs that one when it is started again; it does not heed SIGTERM before, as there is nothing here by
    /// which a job can be held.
    pub(crate) again_seconds: Option<u32>,
    /// Memory that its program takes beyond what its kernel needs.
    pub(crate) held_bytes: u64,
    /// Further arguments of sbatch.
    pub(crate) more: Vec<String>,
}

/// A job that was submitted.
pub(crate) struct Job {
    pub(crate) id: SlurmJobId,
    pub(crate) user: &'static str,
    pub(crate) workload: &'static str,
}

impl Job {
    pub(crate) fn submit(
        cluster: &Cluster,
        user: &'static str,
        workload: &'static str,
        seconds: u32,
        wants: &Wants,
    ) -> Self {
        let again = wants.again_seconds.map_or_else(String::new, |again| {
            format!(
                "if [ \"${{SLURM_RESTART_COUNT:-0}}\" = 0 ]; then trap '' TERM; else seconds={again}; fi\n"
            )
        });
        let script = format!(
            "#!/bin/bash\n{START}\nseconds={seconds}\n{again}\
             exec pillion-gpu-checks client --workload {} --seconds $seconds \
             --held-bytes {} <&3 > $HOME/output.$SLURM_JOB_ID 2>&1\n",
            wants.kernel.unwrap_or(workload),
            wants.held_bytes
        );
        let option = format!("--colocate=profile={workload}{}", wants.options);
        let how = if wants.is_plain { "--partition=shared" } else { &option };
        let mut arguments = vec![how, "--gres=gpu:1", "-c1", "--mem=1000", "-t5"];
        arguments.extend(wants.more.iter().map(String::as_str));
        Self { id: cluster.submit_as(user, &script, &arguments).unwrap(), user, workload }
    }

    fn file(&self, cluster: &Cluster, name: &str) -> PathBuf {
        cluster.home(self.user).join(format!("{name}.{}", self.id))
    }

    /// What its start wrote down.
    pub(crate) fn environment(&self, cluster: &Cluster) -> BTreeMap<String, String> {
        let text = wait_for("what a start writes down", SOON, || {
            Ok(match std::fs::read_to_string(self.file(cluster, "start")) {
                Ok(text) if text.ends_with('\n') => Look::Ready(text),
                _ => Look::NotYet("nothing".to_owned()),
            })
        })
        .unwrap();
        let words = text.split_whitespace().filter_map(|word| word.split_once('='));
        words.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    fn lines(&self, cluster: &Cluster) -> Vec<Value> {
        let text = std::fs::read_to_string(self.file(cluster, "output")).unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// Its program's last words.
    pub(crate) fn last_line(&self, cluster: &Cluster) -> String {
        self.lines(cluster).last().map(Value::to_string).unwrap_or_default()
    }

    /// How many multiprocessors its program was told that there are.
    pub(crate) fn multiprocessors(&self, cluster: &Cluster) -> u32 {
        let lines = self.lines(cluster);
        let ready = lines.iter().find_map(|line| line["ready"]["multiprocessors"].as_u64());
        u32::try_from(ready.expect("a program that is ready says so")).unwrap()
    }

    fn progress(&self, cluster: &Cluster) -> Option<Progress> {
        let lines = self.lines(cluster);
        let progress = lines.iter().rev().find_map(|line| line.get("progress"))?;
        Some(Progress {
            seconds: progress["seconds"].as_f64()?,
            iterations: progress["iterations"].as_f64()?,
        })
    }

    /// The speeds of this job and of others over the same seconds, in iterations a second.
    pub(crate) fn speeds_with(&self, cluster: &Cluster, others: &[&Self]) -> Vec<f64> {
        let jobs: Vec<&Self> = [self].into_iter().chain(others.iter().copied()).collect();
        let runs = |job: &Self, since: f64| {
            let what = format!("{} of {} to get on", job.workload, job.user);
            wait_for(&what, SOON, || {
                Ok(match job.progress(cluster) {
                    Some(progress) if progress.seconds > since => Look::Ready(progress),
                    _ => Look::NotYet(job.last_line(cluster)),
                })
            })
            .unwrap()
        };
        for job in &jobs {
            // The first moments are the driver's.
            runs(job, 1.0);
        }
        let begun: Vec<Progress> = jobs.iter().map(|job| runs(job, 0.0)).collect();
        // A speed is what is done in a time: there is no condition to wait for.
        std::thread::sleep(WATCH);
        let ended = jobs.iter().zip(&begun).map(|(job, begun)| runs(job, begun.seconds));
        let speed = |(ended, begun): (Progress, &Progress)| {
            (ended.iterations - begun.iterations) / (ended.seconds - begun.seconds)
        };
        ended.zip(&begun).map(speed).collect()
    }
}

/// How far a program is since it was ready.
#[derive(Debug, Clone, Copy)]
struct Progress {
    seconds: f64,
    iterations: f64,
}
