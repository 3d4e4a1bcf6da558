//! What a test does on a cluster: submit as a user, look at jobs and nodes, wait for them.

use super::Cluster;
use super::show::{Fields, parse_fields};
use crate::daemons::user_environment;
use crate::error::{HarnessError, Result, io_error};
use crate::process::Program;
use crate::testbed;
use crate::wait::{Look, wait_for};
use pillion_core::SlurmJobId;
use serde_json::Value;
use std::path::PathBuf;
use std::time::Duration;

/// What `sbatch` answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Submission {
    /// The job, unless it was refused.
    pub job: Option<SlurmJobId>,
    /// What it printed for the user on its standard error.
    pub said: String,
}

/// Where a job's output went, and what is in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobOutput {
    /// The file.
    pub path: PathBuf,
    /// Its text so far.
    pub text: String,
}

impl Cluster {
    /// The home of a user on this cluster.
    pub fn home(&self, user: &str) -> PathBuf {
        if user == "root" { self.layout.path("home") } else { self.layout.path("home").join(user) }
    }

    /// A program run by a user, in the user's home, with nothing in the environment but what a login gives.
    ///
    /// # Errors
    /// Where there is no such user.
    pub fn program_as(&self, user: &str, name: &str) -> Result<Program> {
        let home = self.home(user);
        let (devices, socket) = user_environment(self.root());
        let program = Program::new(name)
            .env(devices, socket)
            .env("PATH", testbed::search_path())
            .env("SLURM_CONF", self.layout.slurm_conf())
            .env("LC_ALL", "C.UTF-8")
            .env("TZ", "UTC")
            .env("HOME", &home)
            .env("USER", user)
            .folder(home);
        Ok(if user == "root" { program } else { program.identity(testbed::identity_of(user)?) })
    }

    /// Submits a script by `sbatch` and returns the job.
    ///
    /// `script`: the whole text; a `#!` line is put before it where it has none. `arguments`: options of `sbatch`.
    ///
    /// # Errors
    /// [`HarnessError::Refused`] with what `sbatch` said.
    pub fn submit_as(&self, user: &str, script: &str, arguments: &[&str]) -> Result<SlurmJobId> {
        let submission = self.try_submit_as(user, script, arguments)?;
        submission
            .job
            .ok_or_else(|| HarnessError::Refused(format!("sbatch refused the job: {}", submission.said)))
    }

    /// An option with which jobs begin at one moment, so many seconds from now, and are planned together. Each `now+N` is a
    /// moment of its own, in whole seconds: two that are submitted at once may begin a second apart.
    ///
    /// # Errors
    /// Where `date` cannot be run.
    pub fn begin_together(&self, seconds: u32) -> Result<String> {
        let date = self.program("date").args(["-d", &format!("{seconds} seconds"), "+--begin=%FT%T"]);
        Ok(date.stdout()?.trim().to_owned())
    }

    /// Submits a script, where a refusal is an answer too.
    ///
    /// # Errors
    /// Where `sbatch` cannot be run.
    pub fn try_submit_as(&self, user: &str, script: &str, arguments: &[&str]) -> Result<Submission> {
        let script =
            if script.starts_with("#!") { script.to_owned() } else { format!("#!/bin/bash\n{script}\n") };
        let program = self.program_as(user, "sbatch")?.arg("--parsable").args(arguments).input(script);
        let output = program.output()?;
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        let printed = String::from_utf8_lossy(&output.stdout);
        let job = printed
            .trim()
            .split(';')
            .next()
            .and_then(|id| id.parse().ok())
            .filter(|_| output.status.success());
        Ok(Submission { job, said })
    }

    /// What `pillion` tells root, as JSON.
    ///
    /// # Errors
    /// Where it fails, with what it said.
    pub fn pillion_json(&self, arguments: &[&str]) -> Result<Value> {
        let text = self.pillion_as("root", arguments)?.arg("--json").stdout()?;
        serde_json::from_str(&text).map_err(|error| {
            HarnessError::Refused(format!("'pillion {}' says no JSON: {error}", arguments.join(" ")))
        })
    }

    /// The profiles that are remembered.
    ///
    /// # Errors
    /// As [`Cluster::pillion_json`].
    pub fn profiles(&self) -> Result<Vec<Value>> {
        Ok(self.pillion_json(&["profile"])?["profiles"].as_array().cloned().unwrap_or_default())
    }

    /// `scontrol` as root.
    ///
    /// # Errors
    /// Where it fails, with what it said.
    pub fn scontrol(&self, arguments: &[&str]) -> Result<String> {
        self.program("scontrol").args(arguments).stdout()
    }

    /// `squeue` as root, one line a job in the given format.
    ///
    /// # Errors
    /// Where it fails.
    pub fn squeue(&self, format: &str) -> Result<Vec<String>> {
        let text = self
            .program("squeue")
            .args(["--noheader", "--array", "--states=all", "--format", format])
            .stdout()?;
        Ok(text.lines().map(|line| line.trim().to_owned()).collect())
    }

    /// `scontrol show job -d` of one job.
    ///
    /// # Errors
    /// Where Slurm does not know it.
    pub fn job(&self, job: SlurmJobId) -> Result<Fields> {
        self.scontrol(&["show", "job", "-d", "-o", &job.to_string()])
            .map(|text| parse_fields(text.trim_end()))
    }

    /// One field of a job; empty where the job has none of that name.
    ///
    /// # Errors
    /// Where Slurm does not know the job.
    pub fn job_field(&self, job: SlurmJobId, field: &str) -> Result<String> {
        Ok(self.job(job)?.remove(field).unwrap_or_default())
    }

    /// Waits until a job is in one of the states, as `scontrol` writes them.
    ///
    /// # Errors
    /// A timeout that says in which state it was and why.
    pub fn wait_for_job(&self, job: SlurmJobId, states: &[&str], deadline: Duration) -> Result<Fields> {
        let what = format!("job {job} in {}", states.join(" or "));
        wait_for(&what, deadline, || {
            let fields = self.job(job)?;
            let of = |name: &str| fields.get(name).cloned().unwrap_or_default();
            let seen = format!("{} ({}), begins {}", of("JobState"), of("Reason"), of("StartTime"));
            let is_there = states.contains(&of("JobState").as_str());
            Ok(if is_there { Look::Ready(fields) } else { Look::NotYet(seen) })
        })
    }

    /// Waits until a node's state begins with `state`: `IDLE`, `MIXED`, `DOWN`, `IDLE+DRAIN`.
    ///
    /// # Errors
    /// A timeout that says in which state it was.
    pub fn wait_for_node(&self, node: &str, state: &str, deadline: Duration) -> Result<Fields> {
        let what = format!("node {node} in {state}");
        wait_for(&what, deadline, || {
            let fields = self.node(node)?;
            let seen = fields.get("State").cloned().unwrap_or_default();
            Ok(if seen.starts_with(state) && !seen.ends_with('*') {
                Look::Ready(fields)
            } else {
                Look::NotYet(seen)
            })
        })
    }

    /// `scontrol show node -d` of one node.
    ///
    /// # Errors
    /// Where Slurm does not know it.
    pub fn node(&self, node: &str) -> Result<Fields> {
        self.scontrol(&["show", "node", "-d", "-o", node]).map(|text| parse_fields(text.trim_end()))
    }

    /// What a job printed so far.
    ///
    /// # Errors
    /// Where Slurm does not know the job, or its file is not there yet.
    pub fn job_output(&self, job: SlurmJobId) -> Result<JobOutput> {
        let path = PathBuf::from(self.job_field(job, "StdOut")?);
        let bytes = std::fs::read(&path).map_err(io_error("read", &path))?;
        Ok(JobOutput { path, text: String::from_utf8_lossy(&bytes).into_owned() })
    }

    /// Waits until a job has printed `part` and returns all that it printed so far. A job that Slurm calls `RUNNING` may
    /// not have begun yet.
    ///
    /// # Errors
    /// A timeout with what it printed instead.
    pub fn wait_for_output(&self, job: SlurmJobId, part: &str, deadline: Duration) -> Result<String> {
        wait_for(&format!("'{part}' in the output of job {job}"), deadline, || {
            let text = self.job_output(job).map(|output| output.text).unwrap_or_default();
            Ok(if text.contains(part) { Look::Ready(text) } else { Look::NotYet(format!("'{text}'")) })
        })
    }

    /// Waits until a job has ended and returns what it printed.
    ///
    /// # Errors
    /// A timeout, or where it ended otherwise than `COMPLETED`.
    pub fn finished_output(&self, job: SlurmJobId, deadline: Duration) -> Result<String> {
        let ends = ["COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED"];
        let fields = self.wait_for_job(job, &ends, deadline)?;
        let text = self.job_output(job).map(|output| output.text)?;
        match fields.get("JobState").map(String::as_str) {
            Some("COMPLETED") => Ok(text),
            state => Err(HarnessError::Refused(format!("job {job} ended {}: {text}", state.unwrap_or("?")))),
        }
    }
}
