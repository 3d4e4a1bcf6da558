//! All that we ask of a Slurm, of jobs of every kind: this one is understood as those were whose words are kept (`tests/fixtures/recorded`).
//! With `PILLION_RECORD=FOLDER` what it printed is kept there.

use pillion_core::SlurmJobId;
use pillion_core::device::Mechanism;
use pillion_fake_slurm::{reading, tape};
use pillion_slurm::Slurm as _;
use pillion_tests::cluster::spec::{JobSubmit, PoolNode};
use pillion_tests::wait::wait_until;
use pillion_tests::{Cluster, ClusterSpec};
use std::path::PathBuf;
use std::time::Duration;

const SOON: Duration = Duration::from_mins(1);
const EXPECTED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/recorded/reading.txt");
/// Who is started anew is set back, which Slurm does two minutes later.
const REQUEUED: u32 = 1;
const SUSPENDED: u32 = 2;
const CANCELLED: [u32; 2] = [11, 19];
const OVER: [u32; 3] = [9, 10, 11];
/// In the order of their numbers, from 1; a het job has two of them.
const JOBS: &[&[&str]] = &[
    &["--gres=shard:g0:100", "-wn1"],
    &["--gres=shard:g1:40", "-wn1"],
    &["--gres=shard:g1:40,lscratch:100", "-wn1", "-n1", "-c2", "--mem-per-cpu=500M", "--no-requeue"],
    &["--gres=shard:100", "--begin=now+1hour", "-t30", "--mem=1536M", "-xn2", "-Cfast&h100", "-wn1"],
    &["--gres=shard:g1:20", "-N2", "-J", "x JobId=1 JobState=FAILED;7"],
    &["--gres=shard:g0:100", "-a1-7:2%2", "-xn1"],
    &["-pshared,urgent", "--gres=shard:100", "-dafterok:1"],
    &["--gres=shard:100", "-H"],
    &["--wrap=true"],
    &["--wrap=exit 3"],
    &["-Jcancelled"],
    &["-pgpu", "--gpus=1"],
    &[
        "-pshared",
        "--begin=now+3hours",
        "--gres=shard:10",
        ":",
        "-pshared",
        "--begin=now+3hours",
        "--gres=shard:20",
    ],
    &["--reservation=maint", "--gres=shard:10"],
    &["-t1-12:30:15", "--begin=now+2hours"],
    &["-H", "--mem=0"],
    &["-H", "-a3,9"],
    &["--begin=now+1day"],
];

/// A private cluster of Slurm alone.
fn cluster() -> Cluster {
    let node = |name: &str| PoolNode::new(name, "h200", Mechanism::Mps);
    Cluster::start(ClusterSpec {
        pool_nodes: vec![node("n1").with_features(&["fast", "h100"]), node("n2").with_features(&["slow"])],
        whole_gpu_node_count: 1,
        gpus_per_node: 2,
        gres_extra: vec!["lscratch:500".to_owned()],
        cpus_per_node: 16,
        memory_mib_per_node: 8000,
        job_submit: JobSubmit::Absent,
        spank: false,
        hooks: false,
        slurm_conf_extra: vec![
            "PartitionName=urgent Nodes=n1,n2 DefCpuPerGPU=2 DefMemPerGPU=1000".to_owned(),
        ],
        ..ClusterSpec::default()
    })
    .unwrap()
}

/// Submits all, and does to some what is done to them.
fn submit(cluster: &Cluster) {
    let reservation = ["StartTime=now+3days", "Duration=60", "Nodes=n1,n2", "Users=root"];
    let create = ["create", "reservation", "ReservationName=maint"];
    cluster.scontrol(&[&create[..], &reservation[..]].concat()).unwrap();
    for own in JOBS {
        let mut options = vec!["--parsable", "--output=/dev/null", "-t60"];
        for (kind, usual) in [("-p", "-pshared"), ("--mem", "--mem=100M"), ("--wrap", "--wrap=sleep 1000")] {
            if !own.iter().any(|option| option.starts_with(kind)) {
                options.push(usual);
            }
        }
        options.extend(own.iter().copied());
        cluster.program("sbatch").args(options).stdout().unwrap();
    }
    let id = SlurmJobId::plain;
    for number in [REQUEUED, SUSPENDED, CANCELLED[0]] {
        cluster.wait_for_job(id(number), &["RUNNING"], SOON).unwrap();
    }
    cluster.scontrol(&["requeue", &REQUEUED.to_string()]).unwrap();
    cluster.scontrol(&["suspend", &SUSPENDED.to_string()]).unwrap();
    for number in CANCELLED {
        cluster.program("scancel").arg(number.to_string()).stdout().unwrap();
    }
    for number in OVER {
        cluster.wait_for_job(id(number), &["COMPLETED", "FAILED", "CANCELLED"], SOON).unwrap();
    }
    // Until Slurm has looked at it, who waits has no reason yet.
    wait_until("all reasons to be known", SOON, || {
        Ok(!cluster.squeue("%T %r")?.iter().any(|line| line == "PENDING None"))
    })
    .unwrap();
}

/// The shell of a cancelled job may outlive its child for a moment, and tells of that one's end then: no matter of how Slurm is read.
fn as_ended_at_once(read: &str) -> String {
    let mut lines: Vec<String> = read.lines().map(str::to_owned).collect();
    for line in lines.iter_mut().filter(|line| line.contains("Ended(Cancelled)")) {
        *line = line.replace("exit Some((143, 0))", "exit Some((0, 15))");
    }
    lines.join("\n")
}

#[tokio::test]
async fn this_slurm_is_understood_as_those_that_were_recorded() {
    let cluster = cluster();
    submit(&cluster);
    let folders = ["recorder", "player"].map(|name| cluster.layout().path(name));
    for folder in &folders {
        std::fs::create_dir_all(folder).unwrap();
    }
    let slurm = tape::recorder(&folders[0], cluster.layout().slurm_conf()).unwrap();
    let version = slurm.version().await.unwrap();
    let read = reading::reading(&slurm).await;
    let kept = tape::tape(&folders[0]).unwrap();
    let read = read.unwrap_or_else(|error| panic!("{error}\n{kept}"));
    if let Some(folder) = std::env::var_os("PILLION_RECORD") {
        std::fs::write(PathBuf::from(folder).join(format!("{version}.json")), &kept).unwrap();
    }
    // As it is, to be looked at and kept.
    println!("{version}\n{read}");
    let played = tape::player(&kept, &folders[1]).unwrap();
    assert_eq!(played.version().await.unwrap(), version);
    assert_eq!(reading::reading(&played).await.unwrap(), read);
    let expected = std::fs::read_to_string(EXPECTED).unwrap();
    reading::assert_reads(&expected, &as_ended_at_once(&read), &version.to_string());
}
