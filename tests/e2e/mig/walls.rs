//! One GPU that the scheduler has cut for seven jobs of three users who want walls, on real Slurm, with everything of ours alive: what
//! jobs find inside, what they outgrow, and what an agent that is killed meanwhile finds again.

use crate::faults::wait_for_event;
use crate::rides::{SOON, decisions, load, make_known_for, member_of, script, starts, submit};
use pillion_core::SlurmJobId;
use pillion_core::device::Mechanism;
use pillion_core::mig::Slot;
use pillion_device::MigControl as _;
use pillion_device::simulated::Simulated;
use pillion_tests::cluster::spec::{PoolNode, SharingPolicy};
use pillion_tests::wait::{Look, wait_for};
use pillion_tests::{Cluster, ClusterSpec};
use rustix::process::Signal;
use std::collections::BTreeSet;

/// The profile of each user's jobs, and what runs under it: tiny kernels, for which the device waits.
const LIGHT: [(&str, &str); 1] = [("light", "launch-bound")];
const USERS: [&str; 3] = ["alice", "bob", "carol"];
/// Of a user who takes a slow slice rather than wait.
const LOOSE: &str = "light,max-slowdown=2.5";
/// In seconds of the simulated machine.
const ALONE_SECONDS: u32 = 600;
/// The place of the first instance of the next size, in which two of the smallest lie; its shards.
const NEXT: (&str, [u8; 2], &str) = ("2g.20gb@0", [0, 1], "28");

/// One of seven that run at once.
struct Tenant {
    job: SlurmJobId,
    user: &'static str,
}

fn cluster() -> Cluster {
    let mut cluster = Cluster::start(ClusterSpec {
        pool_nodes: vec![PoolNode { is_cut: true, ..PoolNode::new("n1", "h100", Mechanism::Mps) }],
        whole_gpu_node_count: 0,
        gpus_per_node: 1,
        policy: SharingPolicy::Any,
        // Longer than all of them together take: nobody is started alone for having waited.
        bound_seconds: 600,
        scheduler_conf_extra: vec!["isolation = \"hard\"".to_owned()],
        ..ClusterSpec::default()
    })
    .unwrap();
    cluster.start_pillion().unwrap();
    cluster
}

impl Tenant {
    /// The value that each of its starts found for `CUDA_VISIBLE_DEVICES`, as it wrote it down.
    fn told(&self, cluster: &Cluster) -> Vec<String> {
        let path = cluster.home(self.user).join(format!("told.{}", self.job));
        std::fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
    }

    /// Tells it to go: `outgrow` or `leave`.
    fn tell(&self, cluster: &Cluster, word: &str) {
        std::fs::write(cluster.home(self.user).join(format!("{word}.{}", self.job)), "").unwrap();
    }
}

/// Writes down what it was told, and works in an instance of the smallest size until it is told to leave, or to need more than that has.
const WORK: &str = "echo \"$CUDA_VISIBLE_DEVICES\" >>$HOME/told.$SLURM_JOB_ID\n\
     pillion-load launch-bound --seconds 360000 &\n\
     while [ ! -e $HOME/outgrow.$SLURM_JOB_ID ] && [ ! -e $HOME/leave.$SLURM_JOB_ID ]; do sleep 0.1; done\n\
     kill $!\nwait $!\n\
     [ -e $HOME/outgrow.$SLURM_JOB_ID ] || exit 0\n\
     exec pillion-load launch-bound --seconds 300 --memory 12G";

/// Seven at once, the first with its user's consent to be started again with more memory.
fn seven(cluster: &Cluster) -> Vec<Tenant> {
    let begin = cluster.begin_together(3).unwrap();
    let consent = format!("{LOOSE},restart=yes");
    let submit = |place: usize| {
        let user = USERS[place % USERS.len()];
        let profile = if place == 0 { consent.as_str() } else { LOOSE };
        Tenant { job: submit(cluster, user, profile, &script(WORK), &[&begin]), user }
    };
    (0..7).map(submit).collect()
}

/// Waits until all of them run while the driver shows a program in the instance of each; gives these in the order of the tenants.
fn at_once(cluster: &Cluster, tenants: &[Tenant]) -> Vec<Slot> {
    let mut driver = Simulated::new(cluster.root().join("run/n1/devices.sock"));
    wait_for("seven at once, each in an instance of its own", SOON, || {
        let told: Vec<String> = tenants.iter().filter_map(|tenant| tenant.told(cluster).pop()).collect();
        let states = cluster.squeue("%i %T")?;
        let runs = |tenant: &&Tenant| states.contains(&format!("{} RUNNING", tenant.job));
        let running = tenants.iter().filter(runs).count();
        let layout = driver.layout(0).unwrap();
        let held = |name: &String| {
            let mut held = layout.instances.iter().filter(|instance| !instance.pids.is_empty());
            let own = held.find(|instance| instance.compute.iter().any(|own| own.uuid.to_string() == *name));
            own.map(|instance| instance.slot)
        };
        let slots: Vec<Slot> = told.iter().filter_map(held).collect();
        let is_apart = slots.iter().collect::<BTreeSet<_>>().len() == tenants.len();
        let seen = format!("{running} run, told {told:?}, {layout:?}");
        Ok(if running == tenants.len() && is_apart { Look::Ready(slots) } else { Look::NotYet(seen) })
    })
    .unwrap()
}

/// Each has one of the smallest size, and can ask why.
fn are_told_why(cluster: &Cluster, tenants: &[Tenant]) {
    for Tenant { job, user } in tenants {
        let start = &starts(cluster, user, *job)[0];
        assert_eq!((start["shards"].as_str(), start["cap"].as_str()), ("14", ""), "{start:?}");
        let why = cluster.pillion_as(user, &["explain", &job.to_string()]).unwrap().stdout().unwrap();
        assert!(why.contains("own-instance"), "{why}");
    }
    let all: Vec<String> = (0..tenants.len()).map(|start| format!("1g.10gb@{start}")).collect();
    let nodes = cluster.pillion_as("root", &["nodes"]).unwrap().stdout().unwrap();
    assert!(nodes.contains(&format!("n1 g0: cut for its tenants: {}\n", all.join(", "))), "{nodes}");
}

/// Lets the first outgrow its instance, and another that has not consented, where an instance of the next size could be; whoever else
/// is there leaves. Gives who has not consented, and those who stay.
fn outgrow<'t>(cluster: &Cluster, tenants: &'t [Tenant], slots: &[Slot]) -> (&'t Tenant, Vec<&'t Tenant>) {
    let others = tenants.iter().zip(slots).skip(1);
    let (there, stay): (Vec<_>, Vec<_>) = others.partition(|(_, slot)| NEXT.1.contains(&slot.start));
    let [(silent, _), leave @ ..] = there.as_slice() else { panic!("{slots:?}") };
    tenants[0].tell(cluster, "outgrow");
    silent.tell(cluster, "outgrow");
    for (tenant, _) in leave {
        tenant.tell(cluster, "leave");
        cluster.wait_for_job(tenant.job, &["COMPLETED"], SOON).unwrap();
    }
    (*silent, stay.into_iter().map(|(tenant, _)| tenant).collect())
}

/// While the others stay, its second start is in an instance of the next size.
fn has_the_next_size(cluster: &Cluster, consents: &Tenant) {
    let again = wait_for("its second start", SOON, || {
        let all = starts(cluster, consents.user, consents.job);
        Ok(all.get(1).cloned().map_or_else(|| Look::NotYet(format!("{all:?}")), Look::Ready))
    })
    .unwrap();
    assert_eq!(again["shards"], NEXT.2, "{again:?}");
    let all = decisions(cluster);
    let (_, member) = member_of(&all, consents.job, 1).expect("it was decided on again");
    assert_eq!(member["mig_slot"], NEXT.0, "{member}");
}

#[test]
fn seven_jobs_of_three_users_have_an_instance_each_and_who_outgrows_it_gets_a_larger_one_by_consent() {
    let mut cluster = cluster();
    make_known_for(&cluster, ALONE_SECONDS, &USERS.map(|user| (user, LIGHT)));
    let tenants = seven(&cluster);
    let slots = at_once(&cluster, &tenants);
    are_told_why(&cluster, &tenants);
    let consents = &tenants[0];
    let (silent, stay) = outgrow(&cluster, &tenants, &slots);
    for tenant in [consents, silent] {
        wait_for_event(&cluster, tenant.job, "out-of-memory");
    }
    wait_for_event(&cluster, consents.job, "requeued");
    has_the_next_size(&cluster, consents);

    // The others never notice that the agent dies, and it finds all of them again.
    cluster.kill_agent("n1", Signal::KILL).unwrap();
    cluster.start_agent("n1").unwrap();
    for tenant in stay {
        assert_eq!(cluster.job_field(tenant.job, "JobState").unwrap(), "RUNNING");
        tenant.tell(&cluster, "leave");
    }
    for tenant in &tenants {
        let (job, is_silent) = (tenant.job, tenant.job == silent.job);
        let state = if is_silent { "FAILED" } else { "COMPLETED" };
        let fields = cluster.wait_for_job(job, &[state], SOON).unwrap();
        let start_count = if job == consents.job { 2 } else { 1 };
        assert_eq!(fields["Restarts"], (start_count - 1).to_string(), "job {job}");
        // By its name each start had an instance of its own.
        let told: BTreeSet<String> = tenant.told(&cluster).into_iter().collect();
        assert!(told.len() == start_count && told.iter().all(|name| name.starts_with("MIG-")), "{told:?}");
    }
    // Whoever comes next has all of it.
    let alone = submit(&cluster, "dave", "heavy", &load("gemm-hog", 240), &[]);
    let printed = cluster.finished_output(alone, SOON).unwrap();
    let outcome: serde_json::Value = serde_json::from_str(printed.lines().last().unwrap()).unwrap();
    assert!(outcome["speed_fraction_mean"].as_f64().unwrap() > 0.9, "{printed}");
}
