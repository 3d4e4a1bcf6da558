//! Jobs that are started again in the midst of their work, beside real clients of a real MPS: whose promise breaks has its speed
//! again, and whoever needs the GPU of guests has all of it.

use crate::job::{Job, Wants};
use crate::{
    Alone, LONG_SECONDS, SOON, cluster_with, make_known, make_known_for, nothing_is_left, pair, words,
};
use pillion_tests::cluster::spec::{ADMITS_PLAIN, SharingPolicy};
use pillion_tests::wait::{Look, wait_for};
use pillion_tests::{Cluster, ClusterSpec};
use std::time::Duration;

/// A minute of progress, and what comes before and after it.
const PARTED: Duration = Duration::from_mins(2);
/// Long enough for a rate of progress.
const RATE_SECONDS: u32 = 25;
/// Longer than a promise may be broken, and than it takes to be as fast as before.
const HOST_SECONDS: u32 = 200;
const AGAIN_SECONDS: u32 = 10;
/// What a job has of its speed that nobody is beside any more.
const ITS_OWN: f64 = 0.95;

fn wait_until_sent_back(cluster: &Cluster, job: &Job, deadline: Duration) {
    wait_for("a job to be sent back", deadline, || {
        let restarts = cluster.job_field(job.id, "Restarts")?;
        // Slurm counts as soon as it was asked, and ends the job then.
        let state = cluster.job_field(job.id, "JobState")?;
        let is_out = restarts == "1" && state != "COMPLETING";
        Ok(if is_out { Look::Ready(()) } else { Look::NotYet(format!("{state}, {restarts}")) })
    })
    .unwrap_or_else(|error| panic!("{error}\n{}", words(cluster, &["events"])));
}

fn fraction(cluster: &Cluster, job: &Job, alone: Alone) -> f64 {
    job.speeds_with(cluster, &[]).remove(0) / alone.iterations_per_second
}

/// What ran under a name alone kept half of the multiprocessors busy. What runs under it beside another fills the GPU.
#[test]
fn whoever_is_not_what_he_was_goes_back_and_his_host_has_its_speed_again() {
    let cluster = cluster_with(
        SharingPolicy::SameUser,
        ClusterSpec {
            slurm_conf_extra: vec!["KillWait=6".to_owned()],
            scheduler_conf_extra: ["caps = false", "watch = \"act\"", "watch_restart_seconds = 0"]
                .map(str::to_owned)
                .to_vec(),
            ..ClusterSpec::default()
        },
    );
    let alone = make_known_for(&cluster, "alice", "bandwidth-small", RATE_SECONDS);
    make_known_for(&cluster, "alice", "compute-small", RATE_SECONDS);
    let begin = cluster.begin_together(3).unwrap();
    let [host, guest] = [
        ("bandwidth-small", Wants { options: ",max-slowdown=1.5".to_owned(), ..Wants::default() }),
        (
            "compute-small",
            Wants {
                options: ",max-slowdown=5".to_owned(),
                kernel: Some("compute"),
                again_seconds: Some(AGAIN_SECONDS),
                ..Wants::default()
            },
        ),
    ]
    .map(|(workload, wants)| {
        let wants = Wants { more: vec![begin.clone()], ..wants };
        Job::submit(&cluster, "alice", workload, HOST_SECONDS, &wants)
    });
    for job in [&host, &guest] {
        cluster.wait_for_job(job.id, &["RUNNING"], SOON).unwrap();
    }
    println!("beside whom it did not expect: {:.3} of its speed alone", fraction(&cluster, &host, alone));
    wait_until_sent_back(&cluster, &guest, PARTED);
    println!("{}", words(&cluster, &["events"]));
    let after = fraction(&cluster, &host, alone);
    println!("when it was sent back: {after:.3} of its speed alone");
    assert!(after >= ITS_OWN, "{after}");
    cluster.wait_for_job(host.id, &["COMPLETED"], 4 * SOON).unwrap();
    cluster.wait_for_job(guest.id, &["COMPLETED"], 2 * SOON).unwrap();
    assert_eq!(guest.environment(&cluster)["pipe"], "", "alone it has the GPU without MPS");
}

/// Two guests share the GPU. Somebody comes who has not asked for co-location.
#[test]
fn guests_make_room_and_come_back() {
    let cluster = cluster_with(
        SharingPolicy::SameUser,
        ClusterSpec { pool_conf_extra: vec![ADMITS_PLAIN.to_owned()], ..ClusterSpec::default() },
    );
    let of = [("alice", "compute-small"), ("alice", "bandwidth-small")];
    let alone = of.map(|(user, workload)| make_known(&cluster, user, workload));
    let guests = pair(&cluster, of, ",guest");
    let wants = Wants { is_plain: true, ..Wants::default() };
    let plain = Job::submit(&cluster, "bob", "compute-small", LONG_SECONDS / 2, &wants);
    cluster.wait_for_job(plain.id, &["RUNNING"], SOON).unwrap();
    for guest in &guests {
        wait_until_sent_back(&cluster, guest, SOON);
    }
    assert_eq!(plain.environment(&cluster)["pipe"], "", "it is told nothing");
    let has = fraction(&cluster, &plain, alone[0]);
    assert_eq!(plain.multiprocessors(&cluster), alone[0].multiprocessors);
    println!("whom they made room for: {has:.3} of its speed alone");
    assert!(has >= ITS_OWN, "{has}");
    println!("{}", words(&cluster, &["events"]));
    for guest in &guests {
        cluster.wait_for_job(guest.id, &["COMPLETED"], 3 * SOON).unwrap();
    }
    nothing_is_left(&cluster, &guests[0]);
}
