//! A job that asks for nothing of ours, on a node that is not the pool's: what it finds, and what Slurm records of it. Both are to
//! be the same whatever is installed beside it, and when that is gone.

use crate::site::Site;

/// What it finds in its script and in a step of it.
const ENVIRONMENT: &str = "-w n2 --gpus=1 -t 5 \
     --wrap '(env | sort; echo in a step; srun env | sort) >environment.new; mv environment.new environment'";
/// Of these, what is another's with each job or step: its number, its times, its processes and their ports.
const VARIABLES_OF_ONE_RUN: [&str; 7] = [
    "SLURM_JOB_ID=",
    "SLURM_JOBID=",
    "SLURM_JOB_START_TIME=",
    "SLURM_JOB_END_TIME=",
    "SLURM_TASK_PID=",
    "SLURM_SRUN_COMM_PORT=",
    "SLURM_STEP_LAUNCHER_PORT=",
];
/// Fields of a record that are another's with each job: its number, its times, which of Slurm's two schedulers came to it first.
const FIELDS_OF_ONE_RUN: [&str; 12] = [
    "JobId",
    "SubmitTime",
    "EligibleTime",
    "AccrueTime",
    "StartTime",
    "EndTime",
    "RunTime",
    "LastSchedEval",
    "Scheduler",
    "AllocNode:Sid",
    "StdOut",
    "StdErr",
];

/// What such a job is, in words that are the same for each: its environment, and its record.
pub(crate) fn plain_job(site: &Site) -> [String; 2] {
    [environment(site), record(site)]
}

/// What a job finds in its environment, without what is its own alone.
fn environment(site: &Site) -> String {
    let job = site.submits(ENVIRONMENT);
    site.wait_for_job(&job, "COMPLETED");
    let text = site.wrote("n2", "environment");
    let lines = text.lines().filter(|line| !VARIABLES_OF_ONE_RUN.iter().any(|name| line.starts_with(name)));
    let kept: Vec<&str> = lines.collect();
    let (script, step) = text.split_once("in a step\n").expect("the step ran");
    let is_told = |text: &str, name: &str| text.lines().any(|line| line.starts_with(name));
    assert!(is_told(script, "SLURM_JOB_GPUS=") && is_told(step, "SLURM_STEP_ID=0"), "{text}");
    kept.join("\n")
}

/// What Slurm records of a job, without what is its own alone.
fn record(site: &Site) -> String {
    let job = site.submits("-w n2 --gpus=1 -t 5 -J plain --wrap 'srun true'");
    site.wait_for_job(&job, "COMPLETED");
    let said = site.controller.types(&format!("scontrol show job -d {job}")).unwrap();
    assert!(said.contains(" TimeLimit=00:05:00 "), "{said}");
    let is_kept = |word: &&str| {
        let name = word.split('=').next().unwrap_or_default();
        !FIELDS_OF_ONE_RUN.contains(&name)
    };
    said.split_whitespace().filter(is_kept).collect::<Vec<_>>().join("\n")
}
