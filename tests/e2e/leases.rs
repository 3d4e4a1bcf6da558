//! What the tests of releases share: where Pillion says that a job stands, and what Slurm's own log says was done to it.

use pillion_core::SlurmJobId;
use pillion_tests::storm::slurm_log::lines_of;
use pillion_tests::wait::{Look, wait_for, wait_until};
use pillion_tests::{Cluster, HarnessError};
use rustix::process::Signal;
use serde_json::Value;
use std::time::Duration;

type Result<T> = std::result::Result<T, HarnessError>;

/// How long a condition may take on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(90);
/// The scheduler's name among the daemons of a cluster.
pub(crate) const SCHEDULER: &str = "pillion-scheduler";

/// The fail point that leaves [`before_release`] the time to stop the scheduler there.
pub(crate) const SLOW_RELEASE: &str = "release-before-release=sleep(4000)";

/// A script that says when it starts and runs until [`let_end`].
pub(crate) const UNTIL_TOLD: &str = "echo started restarts=${SLURM_RESTART_COUNT:-0}
    while [ ! -e end ] && [ ! -e end-$SLURM_JOB_ID ]; do sleep 0.2; done; echo ended";

/// Lets a job of alice's that runs [`UNTIL_TOLD`] end.
pub(crate) fn let_end(cluster: &Cluster, job: SlurmJobId) {
    let_end_of(cluster, "alice", job);
}

/// The same of another user's.
pub(crate) fn let_end_of(cluster: &Cluster, user: &str, job: SlurmJobId) {
    std::fs::write(cluster.home(user).join(format!("end-{job}")), "").unwrap();
}

/// Why a job waits, as its user is told; whatever is said while the scheduler does not know it.
pub(crate) fn why(cluster: &Cluster, user: &str, job: SlurmJobId) -> String {
    let output = cluster.pillion_as(user, &["why", &job.to_string()]).unwrap().output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// `pillion explain` for operators; `None` while the scheduler does not know the job.
pub(crate) fn explain(cluster: &Cluster, job: SlurmJobId) -> Result<Option<Value>> {
    let output = cluster.pillion_as("root", &["explain", "--json", &job.to_string()])?.output()?;
    Ok(serde_json::from_slice(&output.stdout).ok().filter(|value: &Value| value["found"] == true))
}

/// Where a job stands in the last decision that was made for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Standing {
    /// Of the decision: planned, released, ended or abandoned.
    pub(crate) decision: String,
    /// Of the job in it: planned, released, running, ended or undone.
    pub(crate) member: String,
    /// Where it was to run.
    pub(crate) node: String,
}

/// Where a job stands; `None` where nothing was decided for it.
pub(crate) fn standing(cluster: &Cluster, job: SlurmJobId) -> Result<Option<Standing>> {
    let Some(explained) = explain(cluster, job)? else { return Ok(None) };
    let decisions = explained["decisions"].as_array().into_iter().flatten();
    let Some(last) = decisions.max_by_key(|decision| decision["decision_id"].as_u64()) else {
        return Ok(None);
    };
    let id = job.to_string();
    let member =
        last["members"].as_array().into_iter().flatten().find(|member| member["job_id"] == id.as_str());
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Ok(member.map(|member| Standing {
        decision: text(&last["state"]),
        member: text(&member["state"]),
        node: text(&last["node"]),
    }))
}

/// Waits until a job has come as far as one of these states in its last decision.
pub(crate) fn wait_for_member(cluster: &Cluster, job: SlurmJobId, states: &[&str]) -> Standing {
    let what = format!("job {job} {} in its decision", states.join(" or "));
    wait_for(&what, SOON, || {
        let found = standing(cluster, job)?;
        Ok(match found {
            Some(found) if states.contains(&found.member.as_str()) => Look::Ready(found),
            other => Look::NotYet(format!("{other:?}")),
        })
    })
    .unwrap()
}

/// Waits until no decision is planned or released for a job any more.
pub(crate) fn wait_until_settled(cluster: &Cluster, job: SlurmJobId) {
    wait_for(&format!("no active decision for job {job}"), SOON, || {
        let Some(explained) = explain(cluster, job)? else {
            return Ok(Look::NotYet("it is not known".into()));
        };
        let states: Vec<_> =
            explained["decisions"].as_array().into_iter().flatten().map(|one| one["state"].clone()).collect();
        let is_over = states.iter().all(|state| state == "ended" || state == "abandoned");
        Ok(if is_over { Look::Ready(()) } else { Look::NotYet(format!("{states:?}")) })
    })
    .unwrap();
}

/// Whether the scheduler came to a fail point of its release with this job.
pub(crate) fn stands_at(cluster: &Cluster, job: SlurmJobId, point: &str) -> bool {
    let text = std::fs::read_to_string(cluster.layout().log(&format!("{SCHEDULER}.out"))).unwrap_or_default();
    let words = [format!("job_id={job} "), format!("point=\"{point}\" ")];
    text.lines().any(|line| words.iter().all(|word| format!("{line} ").contains(word)))
}

/// Waits until it does.
pub(crate) fn wait_for_fail_point(cluster: &Cluster, job: SlurmJobId, point: &str) {
    wait_until(&format!("{point} of job {job}"), SOON, || Ok(stands_at(cluster, job, point))).unwrap();
}

/// Waits until a job is about to be released, and lets `change` make that impossible while the scheduler stands still:
/// it decided on a world that is not there any more. Returns when it was released all the same.
///
/// The scheduler runs with [`SLOW_RELEASE`]. `change` is given the node.
pub(crate) fn before_release(
    cluster: &mut Cluster,
    job: SlurmJobId,
    change: impl FnOnce(&mut Cluster, &str),
) {
    change_before_release(cluster, job, change);
    wait_until(&format!("release of job {job}"), SOON, || Ok(Journal::of(cluster, job).releases() == 1))
        .unwrap();
}

/// The same, and returns as soon as the scheduler goes on.
pub(crate) fn change_before_release(
    cluster: &mut Cluster,
    job: SlurmJobId,
    change: impl FnOnce(&mut Cluster, &str),
) {
    wait_for_fail_point(cluster, job, "release-before-release");
    let node = wait_for_member(cluster, job, &["planned"]).node;
    cluster.daemon(SCHEDULER).unwrap().signal(Signal::STOP);
    change(cluster, &node);
    let journal = Journal::of(cluster, job);
    assert_eq!(journal.releases(), 0, "job {job} was released before its node changed: {journal:?}");
    cluster.daemon(SCHEDULER).unwrap().signal(Signal::CONT);
}

/// What a user does to his jobs.
pub(crate) fn scontrol_as_alice(cluster: &Cluster, words: &[&str]) {
    cluster.program_as("alice", "scontrol").unwrap().args(words).stdout().unwrap();
}

/// What became of a job whose release was overtaken: it was refused, and its user can read that.
pub(crate) fn was_refused(cluster: &Cluster, job: SlurmJobId, why: &str) {
    wait_until(&format!("refusal of job {job}'s release"), SOON, || {
        Ok(told(cluster, job, &["dropped"]).iter().any(|text| text.contains(why)))
    })
    .unwrap();
    assert_eq!(Journal::of(cluster, job).releases(), 0, "job {job}");
}

/// What was told of a job as events of one kind, and why.
pub(crate) fn told(cluster: &Cluster, job: SlurmJobId, kinds: &[&str]) -> Vec<String> {
    let explained = explain(cluster, job).unwrap().unwrap_or_default();
    let events = explained["events"].as_array().cloned().unwrap_or_default();
    let of_kind = events.iter().filter(|event| kinds.iter().any(|kind| event["kind"] == *kind));
    of_kind.map(|event| event["detail"].as_str().unwrap_or_default().to_owned()).collect()
}

/// What `slurmctld` wrote down about one job: every start, every end, every update.
#[derive(Debug)]
pub(crate) struct Journal(Vec<String>);

impl Journal {
    /// Reads it.
    pub(crate) fn of(cluster: &Cluster, job: SlurmJobId) -> Self {
        let text = std::fs::read_to_string(cluster.layout().log("slurmctld")).unwrap();
        Self(lines_of(&text, &job.to_string()).into_iter().map(str::to_owned).collect())
    }
    fn count(&self, holds: impl Fn(&str) -> bool) -> usize {
        self.0.iter().filter(|line| holds(line)).count()
    }
    /// How often it was given nodes.
    pub(crate) fn starts(&self) -> usize {
        self.count(|line| line.contains("Started JobId=") || line.contains("Allocate JobId="))
    }
    /// How often its end was taken note of.
    pub(crate) fn ends(&self) -> usize {
        self.count(|line| line.contains("_job_complete: ") && line.ends_with(" done"))
    }
    /// How often it was released: a mark with a lease was written.
    pub(crate) fn releases(&self) -> usize {
        self.count(|line| line.contains("setting admin_comment to ") && line.contains(";lease="))
    }
    /// When it was last released, in epoch seconds.
    pub(crate) fn released_at(&self) -> Option<u64> {
        let lease = |line: &String| {
            let (_, rest) = line.split_once("setting admin_comment to ")?.1.split_once(";lease=")?;
            rest.split(|next: char| !next.is_ascii_digit()).next()?.parse().ok()
        };
        self.0.iter().rev().find_map(lease)
    }
    /// How often a release of it was taken back.
    pub(crate) fn undos(&self) -> usize {
        self.count(|line| line.contains("setting admin_comment to ") && line.contains(";alone=1"))
    }
}

/// A field of a job that holds a time, in epoch seconds; `None` while Slurm knows none.
pub(crate) fn epoch_of(cluster: &Cluster, job: SlurmJobId, field: &str) -> Option<u64> {
    let program = cluster.program("scontrol").env("SLURM_TIME_FORMAT", "%s");
    let text = program.args(["show", "job", "-o", &job.to_string()]).stdout().unwrap();
    let (_, rest) = text.split_once(&format!(" {field}="))?;
    rest.split_whitespace().next()?.parse().ok()
}
