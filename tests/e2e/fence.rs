//! The fence in `pillion.lua`, on real Slurm: an update that carries our mark is carried out on a job that is as the mark
//! presupposes, and refused whole on any other. No daemon of ours runs here; the test writes the heartbeat, and sends as root
//! what the scheduler and `pillion rescue` would send.

use crate::leases::epoch_of;
use crate::module::beat;
use pillion_core::mark::Mark;
use pillion_core::{Clock as _, SlurmJobId, SystemClock, UnixTime};
use pillion_tests::cluster::show::Fields;
use pillion_tests::{Cluster, ClusterSpec};
use std::time::Duration;

const SOON: Duration = Duration::from_mins(1);
/// What an update may change.
const FIELDS: [&str; 8] = [
    "Partition",
    "TresPerNode",
    "ReqNodeList",
    "AdminComment",
    "EligibleTime",
    "Priority",
    "JobState",
    "Comment",
];

/// One cluster whose pool takes no job, so that what is released waits to be looked at.
struct Fence {
    cluster: Cluster,
}

impl Fence {
    fn new() -> Self {
        let cluster = Cluster::start(ClusterSpec::default()).unwrap();
        cluster.scontrol(&["update", "NodeName=n[1-2]", "State=DRAIN", "Reason=test"]).unwrap();
        Self { cluster }
    }

    /// A job of alice's that waits in the pool.
    fn job(&self) -> SlurmJobId {
        beat(&self.cluster);
        let job =
            self.cluster.submit_as("alice", "sleep 60", &["--colocate", "--gres=gpu:1", "-t5"]).unwrap();
        assert_eq!(self.cluster.job_field(job, "Partition").unwrap(), "shared");
        job
    }

    fn fields(&self, job: SlurmJobId) -> Fields {
        self.cluster.job(job).unwrap()
    }

    fn mark(&self, job: SlurmJobId) -> Mark {
        Mark::parse(&self.fields(job)["AdminComment"]).unwrap().unwrap()
    }

    /// As alice.
    fn alice(&self, arguments: &[&str]) {
        self.cluster.program_as("alice", "scontrol").unwrap().args(arguments).stdout().unwrap();
    }

    fn hold(&self, job: SlurmJobId) {
        self.alice(&["hold", &job.to_string()]);
    }

    /// As root: with this mark, and these words.
    fn update(&self, job: SlurmJobId, mark: &Mark, words: &str) -> Result<(), String> {
        let (id, mark) = (format!("JobId={job}"), format!("AdminComment={mark}"));
        let words = words.split(' ').filter(|word| !word.is_empty());
        let program = self.cluster.program("scontrol").args(["update", &id, &mark]).args(words);
        let output = program.output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "", "what succeeds says nothing");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() {
            assert_eq!(said, "");
            return Ok(());
        }
        assert_eq!(output.status.code(), Some(1), "{said}");
        Err(said)
    }

    /// The update is refused for this reason, as `scontrol` prints it, and nothing of it is applied.
    fn refused(&self, what: &str, job: SlurmJobId, mark: &Mark, words: &str, why: &str) {
        let before = self.fields(job);
        let said = self.update(job, mark, words).unwrap_err();
        let expected = format!("scontrol: error: pillion: fence 1: {why}\nUnspecified error for job {job}\n");
        assert_eq!(said, expected, "{what}");
        let after = self.fields(job);
        for name in FIELDS {
            assert_eq!(before.get(name), after.get(name), "{what}: {name}");
        }
        println!("{what:55} refused: {why}");
    }

    /// The update is carried out, and the job asks for this then.
    fn accepted(&self, what: &str, job: SlurmJobId, mark: &Mark, words: &str, gres: &str) -> Fields {
        self.update(job, mark, words).unwrap_or_else(|said| panic!("{what}: {said}"));
        let fields = self.fields(job);
        assert_eq!(
            (fields["TresPerNode"].as_str(), &fields["AdminComment"]),
            (gres, &mark.to_string()),
            "{what}"
        );
        println!("{what:55} accepted");
        fields
    }
}

fn now() -> UnixTime {
    UnixTime::from_epoch(SystemClock.now().epoch())
}

fn ago(seconds: u64) -> UnixTime {
    UnixTime::from_epoch(SystemClock.now().epoch() - seconds)
}

const PIN: &str = "Gres=shard:g1:40 ReqNodeList=n2 StartTime=now";
const UNPIN: &str = "Gres=shard:100 ReqNodeList= StartTime=now";
const LATER: &str = "StartTime=now+900";
const WHOLE: &str = "gres/shard:100";
const PART: &str = "gres/shard:g1:40";

#[test]
fn a_release_or_a_renewal_of_a_job_that_is_not_as_it_was_is_refused_whole() {
    let fence = Fence::new();
    let job = fence.job();
    let mark = fence.mark(job);
    let release = mark.leased(now(), 0);

    fence.hold(job);
    fence.refused("release of a job that its user holds", job, &release, PIN, "the job is held");
    fence.refused("renewal of a job that its user holds", job, &mark, LATER, "the job is held");
    assert_eq!(fence.fields(job)["Priority"], "0", "the hold stays");
    fence.alice(&["release", &job.to_string()]);

    fence.refused("stale release", job, &mark.leased(ago(40), 0), PIN, "the release is out of date");
    fence.refused(
        "release of another start",
        job,
        &mark.leased(now(), 1),
        PIN,
        "the job was started meanwhile",
    );
    let other = Mark { workload_digest: "0000000000000000".into(), ..mark.clone() };
    fence.refused(
        "release of another workload",
        job,
        &other.leased(now(), 0),
        PIN,
        "the job carries another mark",
    );
    fence.refused("the probe", job, &mark, "", "nothing was asked");
    fence.accepted("renewal", job, &mark, LATER, WHOLE);

    let released = fence.accepted("release", job, &mark.leased(now(), 0), PIN, PART);
    assert_eq!(released["ReqNodeList"], "n2");
    fence.refused("release of a job with a lease", job, &mark.leased(now(), 0), PIN, "the job has a lease");
    fence.refused("renewal of a job with a lease", job, &mark, LATER, "the job has a lease");

    let moved = fence.job();
    let mark = fence.mark(moved);
    fence.hold(moved);
    fence.alice(&["update", &format!("JobId={moved}"), "Partition=gpu"]);
    let outside = "the job is not in a pool";
    fence.refused("release of a job that was taken out", moved, &mark.leased(now(), 0), PIN, outside);
    fence.refused("renewal of a job that was taken out", moved, &mark, LATER, outside);
    fence.refused("undo of a job that was taken out", moved, &mark.undone(), UNPIN, outside);

    let alone = fence.job();
    let mark = fence.mark(alone);
    fence.accepted("undo without a lease", alone, &mark.undone(), UNPIN, WHOLE);
    fence.refused(
        "release of a job that is to run alone",
        alone,
        &mark.leased(now(), 0),
        PIN,
        "the job is to run alone",
    );
    fence.refused("renewal of a job that is to run alone", alone, &mark, LATER, "the job is to run alone");
}

#[test]
fn an_undo_takes_back_its_own_lease_only_and_leaves_a_hold() {
    let fence = Fence::new();
    let job = fence.job();
    let mark = fence.mark(job);
    let first = mark.leased(ago(20), 0);
    let second = mark.leased(now(), 0);
    fence.accepted("release", job, &second, PIN, PART);
    let another = "the job carries another lease";
    fence.refused("undo of an earlier lease", job, &first.undone(), UNPIN, another);
    fence.refused("undo of no lease", job, &mark.undone(), UNPIN, another);
    fence.refused(
        "undo that does not say",
        job,
        &Mark { undone_lease_epoch: None, ..second.undone() },
        UNPIN,
        another,
    );
    fence.hold(job);
    let undone = fence.accepted("undo of a held job", job, &second.undone(), UNPIN, WHOLE);
    assert_eq!(
        (undone["Priority"].as_str(), undone["ReqNodeList"].as_str()),
        ("0", "(null)"),
        "the hold stays"
    );
    fence.refused("the same undo again", job, &second.undone(), UNPIN, another);
}

#[test]
fn its_own_request_is_given_to_a_job_outside_the_pool_only() {
    let fence = Fence::new();
    let job = fence.job();
    let mark = fence.mark(job);
    let own = "Gres=gpu:1 ReqNodeList= StartTime=now";
    fence.refused("own request inside the pool", job, &mark.left(), own, "the job is in a pool");
    // An admin's own update, without a mark: it passes, and leaves the shards.
    fence.hold(job);
    let id = format!("JobId={job}");
    fence.cluster.scontrol(&["update", &id, "Partition=gpu"]).unwrap();
    assert_eq!(fence.fields(job)["TresPerNode"], WHOLE);
    let another = Mark { undone_lease_epoch: Some(5), ..mark.left() };
    fence.refused("own request, another lease", job, &another, own, "the job carries another lease");
    let fields = fence.accepted("own request outside the pool", job, &mark.left(), own, "gres/gpu:1");
    assert_eq!((fields["Partition"].as_str(), fields["Priority"].as_str()), ("gpu", "0"));
    fence.refused("own request again", job, &mark.left(), own, "the job was given back");
    fence.cluster.scontrol(&["update", &id, "Partition=shared", "Gres=shard:100"]).unwrap();
    fence.refused(
        "release of a job that was given back",
        job,
        &mark.leased(now(), 0),
        PIN,
        "the job was given back",
    );
}

#[test]
fn a_job_that_runs_or_was_requeued_is_not_released() {
    let fence = Fence::new();
    let job = fence.job();
    let mark = fence.mark(job);
    fence.cluster.scontrol(&["update", "NodeName=n[1-2]", "State=RESUME"]).unwrap();
    let first = mark.leased(now(), 0);
    fence.update(job, &first, PIN).unwrap();
    fence.cluster.wait_for_job(job, &["RUNNING"], SOON).unwrap();
    fence.refused("release of a job that runs", job, &mark.leased(now(), 0), PIN, "the job does not wait");
    fence.refused("undo of a job that runs", job, &first.undone(), UNPIN, "the job does not wait");
    fence.cluster.scontrol(&["requeue", &job.to_string()]).unwrap();
    fence.cluster.wait_for_job(job, &["PENDING"], SOON).unwrap();
    let undone = first.undone();
    fence.accepted(
        "undo after a requeue",
        job,
        &undone,
        "Gres=shard:100 ReqNodeList= StartTime=now+900",
        WHOLE,
    );
    let id = format!("JobId={job}");
    fence.cluster.scontrol(&["update", &id, "AdminComment=JS1:of-another-tool"]).unwrap();
    fence.refused(
        "release of a job without our mark",
        job,
        &mark.leased(now(), 1),
        PIN,
        "the job carries another mark",
    );
}

/// Root kills a job, requeues it and lifts the two minutes that Slurm has it wait: as an admin does, all in a second.
#[test]
fn an_admin_who_starts_a_job_again_leaves_time_to_take_its_place_back() {
    let fence = Fence::new();
    let job = fence.job();
    let first = fence.mark(job).leased(now(), 0);
    fence.cluster.scontrol(&["update", "NodeName=n[1-2]", "State=RESUME"]).unwrap();
    fence.update(job, &first, PIN).unwrap();
    fence.cluster.wait_for_job(job, &["RUNNING"], SOON).unwrap();
    let id = job.to_string();
    fence.cluster.scontrol(&["requeue", &id]).unwrap();
    // While it completes Slurm gives it the two minutes anew.
    fence.cluster.wait_for_job(job, &["PENDING"], SOON).unwrap();
    let start_now = ["update", &format!("JobId={id}"), "StartTime=now"];
    beat(&fence.cluster);
    let output = fence.cluster.program("scontrol").args(start_now).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("place of its earlier start"), "{said}");
    // It waits with the place of before, and not for so long as Slurm would have it wait.
    let fields = fence.fields(job);
    assert_eq!((&*fields["JobState"], &*fields["TresPerNode"], &*fields["Restarts"]), ("PENDING", PART, "1"));
    let eligible = epoch_of(&fence.cluster, job, "EligibleTime").unwrap();
    let waits_seconds = eligible.saturating_sub(SystemClock.now().epoch());
    assert!((10..=21).contains(&waits_seconds), "{waits_seconds} s");
    let (undone, words) = (first.undone(), "Gres=shard:100 ReqNodeList= StartTime=now+5");
    fence.accepted("undo meanwhile", job, &undone, words, WHOLE);
    fence.cluster.wait_for_job(job, &["RUNNING"], SOON).unwrap();

    // Nobody would take anything back here any more: it starts when root says.
    fence.cluster.scontrol(&["requeue", &id]).unwrap();
    let output = fence.cluster.program("scontrol").args(start_now).output().unwrap();
    assert_eq!((output.status.success(), String::from_utf8_lossy(&output.stderr).as_ref()), (true, ""));
}

#[test]
fn tasks_of_an_array_are_compared_one_by_one() {
    let fence = Fence::new();
    beat(&fence.cluster);
    let array =
        fence.cluster.submit_as("alice", "true", &["--colocate", "--gres=gpu:1", "--array=1-3"]).unwrap();
    let task = |number: u32| format!("{array}_{number}").parse::<SlurmJobId>().unwrap();
    let mark = fence.mark(task(1));
    fence.hold(task(2));
    let said = fence.update(task(2), &mark, LATER).unwrap_err();
    assert_eq!(said, format!("{array}_2: Unspecified error (pillion: fence 1: the job is held)\n"));
    fence.accepted("renewal of another task", task(3), &mark, LATER, WHOLE);
    // Of the whole array at once: each task by itself.
    let said = fence.update(array, &mark, "StartTime=now+1000").unwrap_err();
    // 26.05 puts the task in brackets.
    let said = said.replace("_[2]", "_2");
    assert_eq!(said, format!("{array}_2: Unspecified error (pillion: fence 1: the job is held)\n"));
    let begins = |number| fence.fields(task(number))["EligibleTime"].clone();
    assert!(begins(1) == begins(3) && begins(1) > begins(2), "{} {} {}", begins(1), begins(2), begins(3));
}

/// Slurm hands one description to all records of an array: what is written into it for a task that leaves the pool is not done to one
/// that has left before.
#[test]
fn a_task_that_was_taken_out_stays_as_its_user_wants_it_when_he_changes_the_array() {
    let fence = Fence::new();
    beat(&fence.cluster);
    let words = ["--colocate", "--gres=gpu:1", "--array=1-3", "-t5"];
    let array = fence.cluster.submit_as("alice", "sleep 60", &words).unwrap();
    let task = |number: u32| format!("{array}_{number}").parse::<SlurmJobId>().unwrap();
    fence.alice(&["update", &format!("JobId={}", task(2)), "StartTime=now+86400"]);
    let before = fence.fields(task(2));
    assert_eq!(before["Partition"], "gpu", "it left");
    beat(&fence.cluster);
    fence.alice(&["update", &format!("JobId={array}"), "Comment=changed"]);
    for number in 1..=3 {
        let fields = fence.fields(task(number));
        assert_eq!((&*fields["Partition"], &*fields["Comment"]), ("gpu", "changed"), "{number}");
    }
    let after = fence.fields(task(2));
    assert_eq!((&*after["JobState"], &after["EligibleTime"]), ("PENDING", &before["EligibleTime"]));
}

/// Commands on the standard input, one a line: all are carried out, and what is refused names its job.
#[test]
fn many_updates_in_one_call_are_answered_one_by_one() {
    let fence = Fence::new();
    let (job, held) = (fence.job(), fence.job());
    fence.hold(held);
    let line = |job, seconds| {
        format!("update JobId={job} StartTime=now+{seconds} AdminComment={}\n", fence.mark(job))
    };
    let input =
        [line(job, 900), line(held, 900), "update JobId=999 StartTime=now\n".to_owned(), line(job, 5000)]
            .concat();
    let before = fence.fields(held);
    let output = fence.cluster.program("scontrol").input(input + "quit\n").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let expected = format!(
        "scontrol: error: pillion: fence 1: the job is held\nUnspecified error for job {held}\n\
         Invalid job id specified for job 999\n"
    );
    assert_eq!((output.status.code(), said.as_ref()), (Some(1), expected.as_str()));
    assert_eq!(before["EligibleTime"], fence.fields(held)["EligibleTime"]);
    assert!(fence.fields(job)["EligibleTime"] > before["EligibleTime"]);
}
