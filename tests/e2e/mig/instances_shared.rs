//! Two jobs of one user in one instance of a GPU, by its MPS daemon, and another user's beside them, on real Slurm: through the death of
//! the agent, the end of one of them, and the end of all while nobody of ours lives.

use super::instances::{SOON, cluster, finds_all_of_it, held_by, submit_alone, tenant};
use pillion_core::mig::Slot;
use pillion_core::share::Sharing;
use pillion_core::{DeviceUuid, Fraction, Shards, SlurmJobId};
use pillion_device::simulated::Simulated;
use pillion_device::{MigControl as _, MpsControl as _, MpsPlace};
use pillion_tests::Cluster;
use pillion_tests::cluster::spec::NodeBackend;
use pillion_tests::wait::{Look, wait_for, wait_until};
use rustix::process::Signal;

fn shares(slot: &str, cap: Option<f64>) -> Sharing {
    let Slot { profile, start } = slot.parse().unwrap();
    let cap = cap.map(Fraction::clamped);
    Sharing::MigMps { profile, start, cap, memory_limit_bytes: Some(16 << 30) }
}

/// What a job printed behind this word.
fn told(cluster: &Cluster, job: SlurmJobId, word: &str) -> String {
    cluster.wait_for_job(job, &["RUNNING"], SOON).unwrap();
    let text = cluster.wait_for_output(job, &format!("{word} "), SOON).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(word));
    line.unwrap_or_else(|| panic!("{word}: {text}")).trim().to_owned()
}

/// The clients of a daemon, once they are so many.
fn clients(driver: &mut Simulated, place: &MpsPlace, count: usize) -> Vec<u32> {
    wait_for("its clients", SOON, || {
        let pids = driver.status(place).unwrap().map(|status| status.client_pids).unwrap_or_default();
        Ok(if pids.len() == count { Look::Ready(pids) } else { Look::NotYet(format!("{pids:?}")) })
    })
    .unwrap()
}

#[test]
fn two_of_one_user_share_an_instance_through_every_death_and_leave_nothing() {
    let mut cluster = cluster(NodeBackend::Simulated);
    let Slot { profile, start } = "3g.40gb@0".parse().unwrap();
    let shards = |count| Shards::try_new(count).unwrap();
    let tenants = [
        ("alice", shares("3g.40gb@4", Some(0.5)), shards(21)),
        ("alice", shares("3g.40gb@4", None), shards(21)),
        ("bob", Sharing::Mig { profile, start }, shards(42)),
    ];
    let work = "echo meets ${CUDA_MPS_PIPE_DIRECTORY:-nobody}\necho capped ${CUDA_MPS_ACTIVE_THREAD_PERCENTAGE:-not}\n\
                exec pillion-load gemm-hog --memory 1G --seconds 360000";
    let jobs = held_by(&cluster, 0, &tenants, &tenant(&cluster, work));
    cluster.start_agent("n1").unwrap();
    for job in &jobs {
        cluster.scontrol(&["release", &job.to_string()]).unwrap();
    }

    // Both are told one instance and its daemon, the other user another instance and none.
    let of = |word: &str| -> Vec<String> { jobs.iter().map(|job| told(&cluster, *job, word)).collect() };
    let (names, pipes, caps) = (of("told"), of("meets"), of("capped"));
    assert!(names[0].starts_with("MIG-") && names[0] == names[1] && names[1] != names[2], "{names:?}");
    assert!(pipes[0].ends_with("/mps/g0-3g.40gb@4/pipe") && pipes[0] == pipes[1], "{pipes:?}");
    assert_eq!(
        (pipes[2].as_str(), caps.as_slice()),
        ("nobody", &["50", "not", "not"].map(str::to_owned)[..])
    );
    let mut driver = Simulated::new(cluster.root().join("run/n1/devices.sock"));
    let place = MpsPlace::instance(0, DeviceUuid::new(names[0].as_str()));
    let both = clients(&mut driver, &place, 2);

    // The agent dies and another one goes on: nobody notices.
    cluster.kill_agent("n1", Signal::KILL).unwrap();
    cluster.start_agent("n1").unwrap();
    assert_eq!(clients(&mut driver, &place, 2), both);
    assert_eq!(driver.instances(0).unwrap(), [DeviceUuid::new(names[0].as_str())]);
    assert_eq!(driver.layout(0).unwrap().instances.len(), 2);

    // One ends: the other runs on, in the same instance.
    cluster.program("scancel").arg(jobs[0].to_string()).stdout().unwrap();
    let left = clients(&mut driver, &place, 1);
    assert!(both.contains(&left[0]));
    assert_eq!(cluster.job_field(jobs[1], "JobState").unwrap(), "RUNNING");

    // All of ours is dead, and all end: a job that Slurm starts alone finds the whole GPU, and nothing is left.
    cluster.kill_agent("n1", Signal::KILL).unwrap();
    let alone = submit_alone(&cluster);
    for job in &jobs[1..] {
        assert_eq!(cluster.job_field(*job, "JobState").unwrap(), "RUNNING");
        cluster.program("scancel").arg(job.to_string()).stdout().unwrap();
    }
    finds_all_of_it(&cluster, alone, "after two in one instance");
    wait_until("no daemon", SOON, || Ok(driver.instances(0).unwrap().is_empty())).unwrap();
}
