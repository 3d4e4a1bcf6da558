//! Jobs whose programs run in containers: what they do on devices is known as that of any job, where it is observed and in the pool, and
//! they see there what they are given. Namespaces by hand everywhere; Apptainer where the root has it, and in Debian sid's it must
//! (`tests/run slurm --suite sid containers::`).

use crate::rides::{KNOWN_SECONDS, SOON, decisions, member_of, script, submit};
use pillion_core::SlurmJobId;
use pillion_core::device::Mechanism;
use pillion_tests::cluster::spec::PoolNode;
use pillion_tests::testbed::BIN_DIR;
use pillion_tests::wait::{Look, wait_for};
use pillion_tests::{Cluster, ClusterSpec};
use serde_json::Value;
use std::time::Duration;

const WORK: &str = "bert-small-batch";
const PROFILED: Duration = Duration::from_mins(2);

/// Something that runs a program in a container, as a shell function.
struct Container {
    name: &'static str,
    inside: String,
}

/// Those that can be had here, for a user's jobs.
fn containers(cluster: &Cluster, user: &str) -> Vec<Container> {
    let by_hand = "unshare --user --map-root-user --pid --mount --fork --mount-proc --kill-child \"$@\"";
    let mut all = vec![Container { name: "namespaces", inside: by_hand.to_owned() }];
    if !has_apptainer() {
        let debian = std::fs::read_to_string("/etc/debian_version").unwrap_or_default();
        assert!(!debian.trim().ends_with("/sid"), "Debian sid has Apptainer, and its root here has not");
        println!("no Apptainer in this root: namespaces alone");
        return all;
    }
    make_images(cluster, user);
    for (name, options, image) in [
        ("apptainer", "", "image"),
        ("apptainer-pid", "--pid --ipc", "image.sif"),
        ("apptainer-root", "--fakeroot", "image"),
    ] {
        // What is on a real node by --nv: the way to the devices, and here also the program.
        let inside = format!(
            "apptainer --silent exec {options} \
             --bind {BIN_DIR},${{PILLION_SIMULATED_DEVICE//%n/$SLURMD_NODENAME}}${{PILLION_PROGRESS:+,$PILLION_PROGRESS}} \
             $HOME/{image} \"$@\""
        );
        all.push(Container { name, inside });
    }
    all
}

fn has_apptainer() -> bool {
    std::path::Path::new("/usr/bin/apptainer").exists()
}

/// A folder with a shell and what our programs are linked to, and the same as one file.
fn make_images(cluster: &Cluster, user: &str) {
    let made = format!(
        "set -e; mkdir -p image/{{proc,sys,dev,tmp,run,etc,root,home,var/tmp,usr/bin,usr/lib64}}; cd image\n\
         ln -s usr/bin bin; ln -s usr/lib lib; ln -s usr/lib64 lib64; cp /etc/passwd /etc/group etc/; touch etc/hosts etc/localtime etc/resolv.conf\n\
         cp -L /usr/bin/bash /usr/bin/ls usr/bin/\n\
         for program in /usr/bin/bash /usr/bin/ls {BIN_DIR}/pillion-load; do\n\
         for library in $(ldd $program | grep -oE '/[^ )]+'); do cp -L --parents $library .; done; done\n\
         cd ..; apptainer --silent build image.sif image"
    );
    cluster.program_as(user, "bash").unwrap().args(["-c", &made]).stdout().unwrap();
}

impl Container {
    /// A script whose function `inside` runs its arguments in the container.
    fn script(&self, work: &str) -> String {
        script(&format!("inside() {{ {}; }}\n{work}", self.inside))
    }
}

/// What `pillion report` says of a job.
fn report(cluster: &Cluster, user: &str, job: SlurmJobId) -> Value {
    let words = ["report", &job.to_string(), "--json"];
    let output = cluster.pillion_as(user, &words).unwrap().output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap_or_default()
}

/// The agents say that every process on a device is a job's.
fn nobody_is_an_outsider(cluster: &Cluster) {
    let text = cluster.pillion_as("root", &["nodes", "--json"]).unwrap().stdout().unwrap();
    assert!(!text.contains("outsider"), "{text}");
}

#[test]
fn an_observed_run_in_a_container_is_its_jobs_on_each_of_its_devices() {
    let mut cluster = Cluster::start(ClusterSpec::observed(2)).unwrap();
    cluster.start_observing().unwrap();
    let mut containers = containers(&cluster, "alice");
    containers.push(Container { name: "bare", inside: "\"$@\"".to_owned() });
    let work = format!(
        "for gpu in ${{SLURM_JOB_GPUS//,/ }}; do SLURM_JOB_GPUS=$gpu CUDA_VISIBLE_DEVICES=$gpu \
         inside {BIN_DIR}/pillion-load {WORK} --seconds 1200 & done; wait"
    );
    let submitted = containers.iter().map(|container| {
        let name = format!("--job-name={}", container.name);
        cluster.submit_as("alice", &container.script(&work), &["--gres=gpu:2", &name]).unwrap()
    });
    let jobs: Vec<SlurmJobId> = submitted.collect();
    for (job, container) in jobs.iter().zip(&containers) {
        let printed = cluster.finished_output(*job, PROFILED).unwrap();
        assert_eq!(printed.matches("\"speed_fraction_mean\"").count(), 2, "{}: {printed:?}", container.name);
        nobody_is_an_outsider(&cluster);
    }
    let profiles = jobs.iter().map(|job| {
        // The workload on two devices is one of its own.
        let told = report(&cluster, "alice", *job);
        let key = told["job"]["workload"].as_str().unwrap().replace("alice/", "alice/2x-");
        wait_for("a profile of each", PROFILED, || {
            let text = cluster.pillion_as("alice", &["profile", "--json"])?.stdout()?;
            let told: Value = serde_json::from_str(&text).unwrap_or_default();
            let own =
                told["profiles"].as_array().and_then(|rows| rows.iter().find(|row| row["workload"] == key));
            Ok(own.map_or(Look::NotYet(text), |own| Look::Ready(own.clone())))
        })
        .unwrap()
    });
    let mut profiles: Vec<Value> = profiles.collect();
    // As what the same run without a container was like, which was the last.
    let bare = profiles.pop().unwrap();
    for (row, container) in profiles.iter().zip(&containers) {
        // The start of a container counts as its run's, at idle power, and takes seconds on a busy machine, of the twenty of a run.
        let differs_by = [
            ("sm_active_fraction", 0.2),
            ("power_watts_mean", 0.2),
            ("memory_bytes_peak", 0.2),
            ("energy_joules", 0.4),
        ];
        for (field, most) in differs_by {
            let ratio = row[field].as_f64().unwrap() / bare[field].as_f64().unwrap();
            assert!(
                (ratio - 1.0).abs() < most,
                "{}, {field}, {ratio:.2} of the bare run: {row:#}",
                container.name
            );
        }
    }
    cluster.stop_observing().unwrap();
}

#[test]
fn in_the_pool_a_container_has_its_share_and_counts_its_progress() {
    let spec = ClusterSpec {
        pool_nodes: vec![PoolNode::new("n1", "h200", Mechanism::Mps)],
        ..ClusterSpec::default()
    };
    let mut cluster = Cluster::start(spec).unwrap();
    cluster.start_pillion().unwrap();
    for container in containers(&cluster, "alice") {
        let work = |seconds: u32| {
            container.script(&format!(
                "inside bash -c 'ls -d $CUDA_MPS_PIPE_DIRECTORY $PILLION_PROGRESS && exec {BIN_DIR}/pillion-load {WORK} --seconds {seconds}'"
            ))
        };
        let run =
            |seconds: u32, more: &[&str]| submit(&cluster, "alice", container.name, &work(seconds), more);
        let alone = run(KNOWN_SECONDS, &[]);
        let printed = cluster.finished_output(alone, SOON).unwrap();
        wait_for("what the run alone taught", SOON, || {
            let told = report(&cluster, "alice", alone);
            let is_known = told["lesson_kind"] == "alone";
            Ok(if is_known { Look::Ready(()) } else { Look::NotYet(format!("{printed:?} {told:#}")) })
        })
        .unwrap();
        let begin = cluster.begin_together(3).unwrap();
        let both = [run(900, &[&begin]), run(900, &[&begin])];
        for job in both {
            let printed = cluster.finished_output(job, PROFILED).unwrap();
            for seen in ["/pipe", "/progress/"] {
                assert!(
                    printed.lines().any(|line| line.starts_with('/') && line.contains(seen)),
                    "{}: {printed:?}",
                    container.name
                );
            }
            nobody_is_an_outsider(&cluster);
        }
        let all = decisions(&cluster);
        let groups =
            both.map(|job| member_of(&all, job, 0).map(|(decision, _)| decision["group_id"].clone()));
        assert!(groups[0].is_some() && groups[0] == groups[1], "{}: {groups:?}", container.name);
        for job in both {
            let told = wait_for("what the run beside another was like", SOON, || {
                let told = report(&cluster, "alice", job);
                let is_there = told["lesson_kind"] == "shared";
                Ok(if is_there { Look::Ready(told) } else { Look::NotYet(format!("{told:#}")) })
            })
            .unwrap();
            assert_eq!(told["neighbour_count"], 1, "{told:#}");
            assert!(
                told["speed_fraction"].as_f64().is_some_and(|speed| speed > 0.5),
                "by its counter: {told:#}"
            );
        }
    }
}
