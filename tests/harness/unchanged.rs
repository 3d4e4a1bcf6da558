//! How a cluster looks to Slurm and to its jobs, so that it can be held against itself without Pillion: everything but what differs
//! between any two looks at a cluster where nothing has changed.

use crate::cluster::Cluster;
use crate::error::Result;
use crate::wait::{Look, wait_for};
use pillion_core::SlurmJobId;
use std::time::Duration;

/// How long a job or a look may take.
const SOON: Duration = Duration::from_mins(1);
/// A job as users write them, which says what it finds in its environment, and how Slurm has it.
const LOOK: &str = "env | sort; scontrol show job $SLURM_JOB_ID -d";
/// What differs between any two jobs, or two looks at one cluster: times, process numbers, and who in slurmctld started a job.
const OF_THE_MOMENT: [&str; 20] = [
    "SLURM_JOB_START_TIME",
    "SLURM_JOB_END_TIME",
    "SLURM_TASK_PID",
    "RunTime",
    "SubmitTime",
    "EligibleTime",
    "AccrueTime",
    "StartTime",
    "EndTime",
    "LastSchedEval",
    "Scheduler",
    "AllocNode:Sid",
    "BootTime",
    "SlurmdStartTime",
    "LastBusyTime",
    "LastActiveTime",
    "CPULoad",
    "FreeMem",
    "SLUID",
    "SLURM_JOB_SLUID",
];

/// What names a job by its number.
const OF_A_JOB: [&str; 3] = ["SLURM_JOB_ID", "SLURM_JOBID", "JobId"];

/// How a cluster looks at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Looks {
    /// `slurm.conf`, byte by byte.
    conf: Vec<u8>,
    /// How Slurm says that it is set up: configuration, nodes, partitions, word by word.
    slurm: [Vec<String>; 3],
    /// Of jobs of one GPU and of two, of two users: what each finds in its environment, and its record in Slurm.
    jobs: Vec<Vec<String>>,
}

impl Looks {
    /// Looks at a cluster on which nothing else runs; starts four jobs for it.
    ///
    /// # Errors
    /// Where Slurm does not answer, or a job does not end.
    pub fn take(cluster: &Cluster) -> Result<Self> {
        let path = cluster.layout().slurm_conf();
        let conf = std::fs::read(&path).map_err(crate::error::io_error("read", &path))?;
        let slurm = slurm_looks(cluster)?;
        Ok(Self { conf, slurm, jobs: jobs_look(cluster)? })
    }

    /// Waits until Slurm looks as it did: the last jobs' ends may be still under way on their nodes.
    ///
    /// # Errors
    /// What is otherwise, where it stays so.
    pub fn wait_until_slurm_looks_so(&self, cluster: &Cluster) -> Result<()> {
        wait_for("Slurm as it was without us", SOON, || {
            let now = slurm_looks(cluster)?;
            let other = differences(&now.concat(), &self.slurm.concat());
            Ok(if now == self.slurm { Look::Ready(()) } else { Look::NotYet(format!("{other:?}")) })
        })
    }

    /// What is otherwise than here of jobs alone, whatever else runs meanwhile; starts four jobs for it.
    ///
    /// # Errors
    /// Where Slurm does not answer, or a job does not end.
    pub fn differences_of_jobs(&self, cluster: &Cluster) -> Result<Vec<String>> {
        let now = Self { jobs: jobs_look(cluster)?, ..self.clone() };
        Ok(self.differences(&now))
    }

    /// What is otherwise than here, word by word; empty where nothing is.
    pub fn differences(&self, now: &Self) -> Vec<String> {
        let words = |looks: &Self| [looks.slurm.concat(), looks.jobs.concat()].concat();
        let mut other = differences(&words(now), &words(self));
        other.extend(differences(&words(self), &words(now)).iter().map(|word| format!("without us {word}")));
        if self.conf != now.conf {
            other.push("slurm.conf".to_owned());
        }
        if other.is_empty() && self != now {
            other.push("the order of words".to_owned());
        }
        other
    }
}

/// Words of one that the other has not.
fn differences(of: &[String], from: &[String]) -> Vec<String> {
    of.iter().filter(|word| !from.contains(word)).cloned().collect()
}

/// All words of it, but for what is of the moment, and for the number of the job where it stands.
fn lasting(text: &str, job: Option<&SlurmJobId>) -> Vec<String> {
    let (number, file) =
        job.map_or_else(Default::default, |job| (job.to_string(), format!("/slurm-{job}.out")));
    let words = text.split_whitespace().filter_map(|word| {
        let (name, value) = word.split_once('=').unwrap_or(("", word));
        let is_number = OF_A_JOB.contains(&name) && value == number;
        (!OF_THE_MOMENT.contains(&name) && !is_number).then(|| word.to_owned())
    });
    words.map(|word| if job.is_some() { word.replace(&file, "/slurm-N.out") } else { word }).collect()
}

fn jobs_look(cluster: &Cluster) -> Result<Vec<Vec<String>>> {
    let mut looks = Vec::new();
    for (user, gres) in [
        ("alice", "--gres=gpu:1"),
        ("alice", "--gres=gpu:2"),
        ("bob", "--gres=gpu:1"),
        ("bob", "--gres=gpu:2"),
    ] {
        let job = cluster.submit_as(user, LOOK, &[gres, "-J", "look", "-w", "w1"])?;
        let text = cluster.finished_output(job, SOON)?;
        assert!(text.contains("SLURM_JOB_GPUS=") && text.contains("JOB_GRES="), "{text}");
        looks.push(lasting(&text, Some(&job)));
    }
    Ok(looks)
}

/// But for the time of asking, and the number of the next job.
fn slurm_looks(cluster: &Cluster) -> Result<[Vec<String>; 3]> {
    let of_the_moment = ["Configuration data as of", "NEXT_JOB_ID"];
    let mut looks = [Vec::new(), Vec::new(), Vec::new()];
    for (look, what) in looks.iter_mut().zip(["config", "nodes", "partitions"]) {
        let text = cluster.scontrol(&["show", what])?;
        let lines = text.lines().filter(|line| !of_the_moment.iter().any(|it| line.starts_with(it)));
        *look = lasting(&lines.collect::<Vec<_>>().join("\n"), None);
    }
    Ok(looks)
}
