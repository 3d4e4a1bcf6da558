//! Jobs that were submitted as guests: they run where nobody else needs the GPU, make room where somebody does, and come back.

use crate::faults::wait_for_event;
use crate::leases::{Journal, SOON, UNTIL_TOLD, let_end_of, scontrol_as_alice, why};
use pillion_core::SlurmJobId;
use pillion_core::device::Mechanism;
use pillion_tests::cluster::spec::{ADMITS_PLAIN, PoolNode};
use pillion_tests::wait::{Look, wait_for, wait_until};
use pillion_tests::{Cluster, ClusterSpec};
use rustix::process::Signal;

const REQUEST: [&str; 4] = ["-c1", "--mem=100", "-t10", "--gres=gpu:1"];

/// One node of four GPUs, into which whoever does not ask for co-location may come too.
fn start(bound_seconds: u64) -> Cluster {
    let spec = ClusterSpec {
        pool_nodes: vec![PoolNode::new("n1", "h200", Mechanism::Mps)],
        pool_conf_extra: vec![ADMITS_PLAIN.to_owned()],
        bound_seconds,
        ..ClusterSpec::default()
    };
    let mut cluster = Cluster::start(spec).unwrap();
    cluster.start_pillion().unwrap();
    cluster
}

fn guest(cluster: &Cluster, more: &[&str]) -> SlurmJobId {
    let arguments = [&["--colocate=guest"], &REQUEST[..], more].concat();
    let submission = cluster.try_submit_as("alice", UNTIL_TOLD, &arguments).unwrap();
    assert!(
        submission.said.contains("waits as a guest for a GPU that nobody else needs"),
        "{}",
        submission.said
    );
    submission.job.unwrap()
}

fn plain(cluster: &Cluster, request: &str) -> SlurmJobId {
    let arguments = ["-p", "shared", "-c1", "--mem=100", "-t10", request];
    let submission = cluster.try_submit_as("bob", UNTIL_TOLD, &arguments).unwrap();
    assert_eq!(submission.said, "");
    submission.job.unwrap()
}

/// Guests on all four GPUs.
fn full_of_guests(cluster: &Cluster) -> [SlurmJobId; 4] {
    let guests = [(); 4].map(|()| guest(cluster, &[]));
    for job in guests {
        cluster.wait_for_job(job, &["RUNNING"], SOON).unwrap();
    }
    guests
}

fn restarts(cluster: &Cluster, job: SlurmJobId) -> String {
    cluster.job_field(job, "Restarts").unwrap()
}

/// Which of them were started again.
fn gone(cluster: &Cluster, guests: &[SlurmJobId]) -> Vec<SlurmJobId> {
    guests.iter().copied().filter(|job| restarts(cluster, *job) != "0").collect()
}

#[test]
fn guests_make_room_for_whoever_needs_it_and_come_back() {
    let cluster = start(600);
    let guests = full_of_guests(&cluster);
    // 1. Whoever did not ask for co-location gets two GPUs of one node.
    let wide = plain(&cluster, "--gres=gpu:2");
    cluster.wait_for_job(wide, &["RUNNING"], SOON).unwrap();
    let went = gone(&cluster, &guests);
    assert_eq!(went.len(), 2, "{went:?}");
    for job in &went {
        let told = wait_for_event(&cluster, *job, "made-room");
        assert!(told.starts_with("it is a guest, and somebody else needs its GPU"), "{told}");
        println!("{}", why(&cluster, "alice", *job));
    }
    // 2. And so does a job with --colocate.
    let arguments = [&["--colocate=profile=other"], &REQUEST[..]].concat();
    let colocated = cluster.submit_as("bob", UNTIL_TOLD, &arguments).unwrap();
    cluster.wait_for_job(colocated, &["RUNNING"], SOON).unwrap();
    let went = gone(&cluster, &guests);
    assert_eq!(went.len(), 3, "{went:?}");
    // 3. No guest goes for a guest.
    let late = guest(&cluster, &[]);
    wait_for("the reason why it waits", SOON, || {
        let told = why(&cluster, "alice", late);
        Ok(if told.contains("wholly free") || told.contains("in the queue come first") {
            Look::Ready(())
        } else {
            Look::NotYet(told)
        })
    })
    .unwrap();
    for job in &went {
        let fields = cluster.job(*job).unwrap();
        let mark = &fields["AdminComment"];
        assert!(
            mark.contains(";guest=1;") && !mark.contains("lease=") && !mark.contains("alone=1"),
            "{mark}"
        );
        assert_eq!((fields["JobState"].as_str(), fields["Restarts"].as_str()), ("PENDING", "1"));
        assert_ne!(fields["Priority"], "0");
    }
    // 4. They run again when nobody else needs the GPUs.
    for (user, job) in [("bob", wide), ("bob", colocated)] {
        let_end_of(&cluster, user, job);
    }
    // In whatever order: who has just gone is left alone for a moment, and the late one may be before him.
    let mut waiting: Vec<(SlurmJobId, u32)> = went.iter().map(|job| (*job, 1)).chain([(late, 0)]).collect();
    while !waiting.is_empty() {
        let place = wait_for("one of the guests to run", 2 * SOON, || {
            let states = waiting.iter().map(|(job, _)| cluster.job_field(*job, "JobState"));
            let states = states.collect::<Result<Vec<String>, _>>()?;
            let runs = states.iter().position(|state| state == "RUNNING");
            Ok(runs.map_or_else(|| Look::NotYet(states.join(", ")), Look::Ready))
        })
        .unwrap();
        let (job, restarts) = waiting.remove(place);
        let_end_of(&cluster, "alice", job);
        let printed = cluster.finished_output(job, SOON).unwrap();
        let begun = format!("started restarts={restarts}");
        assert!(printed.contains(&begun) && printed.ends_with("ended\n"), "{printed}");
    }
    println!("{}", cluster.pillion_as("root", &["events"]).unwrap().stdout().unwrap());
}

#[test]
fn what_cannot_be_a_guest_is_left_as_it_is() {
    let cluster = start(600);
    let arguments = [&["--colocate=guest", "--no-requeue", "-p", "gpu"], &REQUEST[..]].concat();
    let submission = cluster.try_submit_as("alice", "echo ran", &arguments).unwrap();
    assert!(submission.said.contains("leave out --no-requeue"), "{}", submission.said);
    // Whatever the cluster does with others.
    let job = guest(&cluster, &[]);
    assert_eq!(cluster.job_field(job, "Requeue").unwrap(), "1");
}

/// A cluster whose guests have a QOS of their own. Alice may use it, and one more; bob may use neither.
fn start_with_guest_qos() -> Cluster {
    let spec = ClusterSpec {
        pool_nodes: vec![PoolNode::new("n1", "h200", Mechanism::Mps)],
        accounting: true,
        module_options: vec!["guest_qos = \"scavenger\"".to_owned()],
        bound_seconds: 600,
        ..ClusterSpec::default()
    };
    let mut cluster = Cluster::start(spec).unwrap();
    cluster.start_pillion().unwrap();
    for words in ["add qos scavenger", "add qos high", "modify user alice set qos+=scavenger,high"] {
        cluster.program("sacctmgr").arg("-i").args(words.split(' ')).stdout().unwrap();
    }
    cluster
}

/// Runs a job of a user to its end: it has this QOS while it runs, and is charged to it.
fn runs_with_qos(cluster: &Cluster, user: &str, job: SlurmJobId, qos: &str) {
    let fields = cluster.wait_for_job(job, &["RUNNING"], SOON).unwrap();
    assert_eq!(
        (fields["QOS"].as_str(), fields["Partition"].as_str()),
        (qos, "shared"),
        "job {job} of {user}"
    );
    let_end_of(cluster, user, job);
    cluster.finished_output(job, SOON).unwrap();
    wait_until(&format!("job {job} in the account of QOS {qos}"), SOON, || {
        let words = ["--noheader", "--allocations", "--parsable2", "--format=State,QOS", "-j"];
        let told = cluster.program("sacct").args(words).arg(job.to_string()).stdout()?;
        Ok(told.trim() == format!("COMPLETED|{qos}"))
    })
    .unwrap();
}

#[test]
fn guests_have_the_qos_of_guests_unless_they_name_another() {
    let cluster = start_with_guest_qos();
    runs_with_qos(&cluster, "alice", guest(&cluster, &[]), "scavenger");
    runs_with_qos(&cluster, "alice", guest(&cluster, &["--qos=high"]), "high");
    let arguments = [&["--colocate"], &REQUEST[..]].concat();
    let colocated = cluster.submit_as("alice", UNTIL_TOLD, &arguments).unwrap();
    runs_with_qos(&cluster, "alice", colocated, "normal");
    // Who may not use it is told so by Slurm, and has no job; with a QOS of his own he is a guest all the same.
    let arguments = [&["--colocate=guest"], &REQUEST[..]].concat();
    let refused = cluster.try_submit_as("bob", UNTIL_TOLD, &arguments).unwrap();
    println!("{}", refused.said);
    assert!(refused.job.is_none() && refused.said.contains("Invalid qos specification"), "{}", refused.said);
    assert_eq!(cluster.program("squeue").args(["--noheader", "--user=bob"]).stdout().unwrap(), "");
    let arguments = [&["--colocate=guest", "--qos=normal"], &REQUEST[..]].concat();
    runs_with_qos(&cluster, "bob", cluster.submit_as("bob", UNTIL_TOLD, &arguments).unwrap(), "normal");
}

#[test]
fn whoever_acts_while_a_guest_makes_room_is_heard() {
    let mut cluster = start(20);
    let guests = full_of_guests(&cluster);
    // 1. Its user holds it while it waits once more.
    let one = plain(&cluster, "--gres=gpu:1");
    cluster.wait_for_job(one, &["RUNNING"], SOON).unwrap();
    let [held] = gone(&cluster, &guests)[..] else { panic!("{:?}", gone(&cluster, &guests)) };
    scontrol_as_alice(&cluster, &["hold", &held.to_string()]);
    // 2. An admin forbids one to be started again, and another goes in its place.
    let stays = guests.iter().copied().filter(|job| *job != held).max().unwrap();
    let root = cluster.program_as("root", "scontrol").unwrap();
    root.args(["update", &format!("JobId={stays}"), "Requeue=0"]).stdout().unwrap();
    let two = plain(&cluster, "--gres=gpu:1");
    cluster.wait_for_job(two, &["RUNNING"], 3 * SOON).unwrap();
    assert_eq!((restarts(&cluster, stays).as_str(), restarts(&cluster, held).as_str()), ("0", "1"));
    let other = gone(&cluster, &guests).into_iter().find(|job| *job != held).expect("another went");
    // 3. All of us die: who waits once more is started by Slurm at its bound, and who is held is not.
    cluster.kill_scheduler(Signal::KILL).unwrap();
    cluster.kill_agent("n1", Signal::KILL).unwrap();
    for job in [one, two] {
        let_end_of(&cluster, "bob", job);
    }
    cluster.wait_for_job(other, &["RUNNING"], 4 * SOON).unwrap();
    assert_eq!(cluster.job_field(held, "JobState").unwrap(), "PENDING");
    assert_eq!(cluster.job_field(held, "Priority").unwrap(), "0", "a hold is its user's");
    assert_eq!(Journal::of(&cluster, other).releases(), 1, "Slurm started it, not we");
}
