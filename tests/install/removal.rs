//! The packages go while jobs run, on the node and then on the controller: what is left is what is said to be left, and nobody waits
//! for who is not there any more.

use crate::power::is_bounded;
use crate::site::{SOON, Site};
use crate::{CONFIG, state_of};
use pillion_tests::machine::Machine;
use pillion_tests::wait::wait_until;
use std::time::Duration;

/// As short as a test can wait for it.
const BOUND_SECONDS: u64 = 60;
/// What Slurm may take to start a job whose time has come.
const SLURM_LOOKS: Duration = Duration::from_secs(20);

/// What a purge leaves on any host: Slurm's own files, empty hooks in place of those that slurm.conf names, and the stamped plugins
/// that plugstack.conf names.
const LEFT_EVERYWHERE: [&str; 11] = [
    "/etc/pillion/pillion.toml",
    "/etc/slurm/cgroup.conf",
    "/etc/slurm/gres.conf",
    "/etc/slurm/pillion",
    "/etc/slurm/pillion/epilog",
    "/etc/slurm/pillion/epilog_slurmctld",
    "/etc/slurm/pillion/prolog",
    "/etc/slurm/plugstack.conf",
    "/etc/slurm/plugstack.conf.d",
    "/etc/slurm/slurm.conf",
    "/usr/lib/pillion/pillion.so",
];
const LEFT_ON_NODE: [&str; 4] = [
    "/etc/pillion/devices.toml",
    "/usr/lib/pillion/pillion-24.11.so",
    "/var/lib/pillion-agent",
    "/var/lib/pillion-setup",
];
/// The plugin of 25.05 is of `follow_slurm`, and the agent's folder of `share_one_host`.
const LEFT_ON_CONTROLLER: [&str; 6] = [
    "/etc/slurm/job_submit.lua",
    "/usr/lib/pillion/pillion-24.11.so",
    "/usr/lib/pillion/pillion-25.05.so",
    "/var/lib/pillion",
    "/var/lib/pillion-agent",
    "/var/lib/pillion-setup",
];
/// Where anything of ours may be.
const LOOK: &str = "(find /etc/slurm /etc/pillion /usr/lib/pillion -mindepth 1; \
     find /usr/bin /var/lib -mindepth 1 -maxdepth 1 -name 'pillion*') | sort";

/// Takes the packages from a host, and then all of them that a purge takes. `left`: besides what is left everywhere.
fn purge(machine: &Machine, left: &[&str]) {
    machine.types("apt-get remove -y 'pillion-*'").unwrap();
    for name in ["/etc/slurm/pillion/prolog", "/etc/slurm/pillion.lua", "/usr/lib/pillion/pillion.so", CONFIG]
    {
        machine.types(&format!("test -e {name}")).unwrap_or_else(|_| panic!("{name} is gone"));
    }
    let learnt = "find /var/lib/pillion* -exec ls -dn {} +";
    let before = machine.types(learnt).unwrap();
    machine.types("apt-get purge -y 'pillion-*'").unwrap();
    assert_eq!(machine.types(learnt).unwrap(), before, "what was learnt, on {}", machine.name());
    let mut expected = [&LEFT_EVERYWHERE[..], left].concat();
    expected.sort_unstable();
    let there = machine.types(LOOK).unwrap();
    assert_eq!(there.lines().collect::<Vec<_>>(), expected, "left on {}", machine.name());
    for name in ["prolog", "epilog", "epilog_slurmctld"] {
        let hook = machine.types(&format!("cat /etc/slurm/pillion/{name}")).unwrap();
        assert!(hook.contains("Left by the removal"), "{hook}");
    }
}

/// The pair runs, and no node has drained.
fn nothing_is_harmed(site: &Site, pair: &[String]) {
    for job in pair {
        assert_eq!(site.job(job, "JobState"), "RUNNING", "job {job}");
    }
    site.no_node_is_lost();
}

/// The packages go while a pair runs: no job ends, no node drains, and what Slurm names is still there.
pub(crate) fn from_node(site: &Site, pair: &[String]) {
    purge(site.machine("n1"), &LEFT_ON_NODE);
    // A job of plain Slurm starts there, through the hooks that are left.
    let plain = site.controller.types("sbatch --parsable -p shared -w n1 -t 1 --wrap true").unwrap();
    site.wait_for_job(plain.trim(), "COMPLETED");
    nothing_is_harmed(site, pair);
}

/// They go from the controller as well, while a job waits in our care for a GPU that the pair has. Slurm does not notice, and the job
/// starts alone by its bound once there is room.
pub(crate) fn from_controller(site: &Site, pair: &[String]) {
    let controller = &site.controller;
    controller
        .types(&format!(
            "sed -i 's/^bound_seconds = .*/bound_seconds = {BOUND_SECONDS}/' {CONFIG} && systemctl restart pillion-scheduler"
        ))
        .unwrap();
    wait_until("heartbeat with the shorter bound", SOON, || {
        let beat = controller.types("cat /run/pillion/heartbeat || true")?;
        Ok(beat.contains(&format!("bound={BOUND_SECONDS} mode=active")))
    })
    .unwrap();
    let waiting = site.submits("--colocate=profile=left --gpus=1 -c 1 --mem=100 -t 5 --wrap true");
    assert!(site.job(&waiting, "AdminComment").starts_with("pillion1;"), "it is in our care");
    let slurmctld = state_of(controller, "slurmctld.service", "MainPID");
    purge(controller, &LEFT_ON_CONTROLLER);
    assert_eq!(state_of(controller, "slurmctld.service", "MainPID"), slurmctld);
    nothing_is_harmed(site, pair);
    assert_eq!(site.job(&waiting, "JobState"), "PENDING", "the pair has both GPUs");
    is_bounded(site, &waiting);
    controller.types(&format!("scancel {}", pair[0])).unwrap();
    wait_until("start by the bound", Duration::from_secs(BOUND_SECONDS) + SLURM_LOOKS, || {
        Ok(site.job(&waiting, "JobState") != "PENDING")
    })
    .unwrap();
    site.wait_for_job(&waiting, "COMPLETED");
    start_without_us(site);
    nothing_is_harmed(site, &pair[1..]);
}

/// slurmctld starts with a `job_submit.lua` whose module is gone, and a script that still asks for co-location runs as it is written.
fn start_without_us(site: &Site) {
    site.controller.types("systemctl restart slurmctld").unwrap();
    site.wait_for_nodes();
    let late = site.submits("--colocate=profile=late --gpus=1 -t 1 --wrap true");
    site.wait_for_job(&late, "COMPLETED");
    assert_eq!([site.job(&late, "Partition"), site.job(&late, "AdminComment")], ["gpu", ""]);
}
