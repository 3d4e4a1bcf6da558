//! A site before anybody has heard of Pillion: slurmctld on one machine, slurmd on two, whole GPUs, and a user.

use pillion_tests::machine::{Machine, MachineSpec, connect, connect_again};
use pillion_tests::wait::{Look, wait_for, wait_until};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long Slurm may take for anything that is not waiting for a minute of its own.
pub(crate) const SOON: Duration = Duration::from_mins(2);
/// Who submits.
pub(crate) const USER: &str = "alice";
pub(crate) const SLURM_CONF: &str = "/etc/slurm/slurm.conf";
/// Three machines, the first of which is the controller.
pub(crate) struct Site {
    pub(crate) controller: Machine,
    pub(crate) nodes: Vec<Machine>,
    /// Where the machines' logs lie.
    folder: tempfile::TempDir,
}

impl Site {
    /// Boots them and starts Slurm.
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let machine = |name, kind, gpu_count| machine(folder.path(), name, kind, gpu_count);
        let controller = machine("controller", "controller", 0);
        let nodes = vec![machine("n1", "node", 2), machine("n2", "node", 2)];
        let site = Self { controller, nodes, folder };
        site.connects();
        site.start_slurm();
        site
    }

    /// The machines reach each other.
    pub(crate) fn connects(&self) {
        connect(&self.machines().collect::<Vec<_>>()).unwrap();
    }

    /// A node loses its power, and comes again.
    pub(crate) fn node_loses_power(&mut self, name: &str) {
        let node = self.nodes.iter_mut().find(|node| node.name() == name).unwrap();
        node.loses_power().unwrap();
        connect_again(&self.machines().collect::<Vec<_>>(), name).unwrap();
    }

    pub(crate) fn machines(&self) -> impl Iterator<Item = &Machine> {
        std::iter::once(&self.controller).chain(&self.nodes)
    }

    pub(crate) fn machine(&self, name: &str) -> &Machine {
        self.machines().find(|machine| machine.name() == name).unwrap_or_else(|| panic!("there is no {name}"))
    }

    fn start_slurm(&self) {
        for machine in self.machines() {
            machine.types(&format!("useradd --create-home --uid 2001 --shell /bin/bash {USER}")).unwrap();
            machine.writes(SLURM_CONF, include_str!("slurm.conf")).unwrap();
            let gres =
                "NodeName=n1 Name=gpu File=/dev/nvidia[0-1]\nNodeName=n2 Name=gpu File=/dev/nvidia[0-1]\n";
            machine.writes("/etc/slurm/gres.conf", gres).unwrap();
            machine.writes("/etc/slurm/cgroup.conf", "CgroupPlugin=disabled\n").unwrap();
        }
        self.controller.types("systemctl restart slurmctld").unwrap();
        for node in &self.nodes {
            // It began at boot, before it could know of its cluster.
            node.types("systemctl restart slurmd").unwrap();
        }
        self.wait_for_nodes();
    }

    pub(crate) fn wait_for_nodes(&self) {
        wait_for("nodes that have spoken", SOON, || {
            // Of one that is drained `sinfo` does not show whether it has: `UNKNOWN+DRAIN` does, which Slurm resumes nowhere.
            let said = self
                .controller
                .types("sinfo -h -N -o '%N %t'; scontrol show node -o | grep -o ' State=[^ ]*'");
            let said = said.unwrap_or_default();
            let is_up = said.contains("n1")
                && !said.contains("unk")
                && !said.contains("UNKNOWN")
                && !said.contains(['*', '~']);
            Ok(if is_up { Look::Ready(()) } else { Look::NotYet(said) })
        })
        .unwrap_or_else(|error| panic!("{error:?}\n{}", self.logs()));
    }

    /// Slurm again, with what stands in its files: in the order of the quickstart.
    pub(crate) fn restarts_slurm(&self) {
        self.controller.types("systemctl restart slurmctld").unwrap();
        for node in &self.nodes {
            node.types("systemctl restart slurmd").unwrap();
        }
        self.wait_for_nodes();
        self.controller.types("systemctl restart slurmctld").unwrap();
        self.wait_for_nodes();
    }

    /// Until the scheduler knows both devices of the pool's node.
    pub(crate) fn wait_for_agent(&self) {
        wait_for("agent with two devices", SOON, || {
            let said = self.controller.types("pillion nodes --parsable2 --noheader 2>&1 || true")?;
            Ok(if said.matches("h200").count() == 2 { Look::Ready(()) } else { Look::NotYet(said) })
        })
        .unwrap_or_else(|error| panic!("{error:?}\n{}", self.logs()));
    }

    /// What the controller has of Slurm's files, on all nodes.
    pub(crate) fn bring_slurm_files(&self, names: &[&str]) {
        for name in names {
            let text = self.controller.types(&format!("cat /etc/slurm/{name}")).unwrap();
            for node in &self.nodes {
                node.writes(&format!("/etc/slurm/{name}"), &text).unwrap();
            }
        }
    }

    /// What alice submits: the number of the job.
    pub(crate) fn submits(&self, line: &str) -> String {
        let said = self.controller.types_as(USER, &format!("sbatch --parsable {line}")).unwrap();
        said.trim().to_owned()
    }

    /// A field of a job as Slurm has it.
    pub(crate) fn job(&self, job: &str, field: &str) -> String {
        let said = self.controller.types(&format!("scontrol show job {job}")).unwrap();
        let value = said.split_whitespace().find_map(|word| word.strip_prefix(field)?.strip_prefix('='));
        value.unwrap_or_default().to_owned()
    }

    pub(crate) fn wait_for_job(&self, job: &str, state: &str) {
        wait_for(&format!("job {job} that is {state}"), SOON, || {
            let seen = self.job(job, "JobState");
            Ok(if seen == state { Look::Ready(()) } else { Look::NotYet(seen) })
        })
        .unwrap_or_else(|error| panic!("{error:?}\n{}", self.logs()));
    }

    /// No node is drained or down; one with jobs that is being drained is `drng`.
    pub(crate) fn no_node_is_lost(&self) {
        let states = self.controller.types("sinfo -h -N -o '%N %t'").unwrap();
        assert!(!["drain", "drng", "down"].iter().any(|state| states.contains(state)), "{states}");
    }

    pub(crate) fn wait_until_active(&self) {
        wait_until("heartbeat of an active scheduler", SOON, || {
            Ok(self.controller.types("cat /run/pillion/heartbeat || true")?.contains("mode=active"))
        })
        .unwrap_or_else(|error| panic!("{error:?}\n{}", self.logs()));
    }

    /// What stands in a file of alice's home on a node.
    pub(crate) fn wrote(&self, node: &str, name: &str) -> String {
        self.machine(node).types(&format!("cat /home/{USER}/{name} 2>/dev/null || true")).unwrap()
    }

    /// What a failure is understood by.
    pub(crate) fn logs(&self) -> String {
        let folder = self.folder.path().display();
        let told: Vec<String> = self.machines().map(tell).collect();
        format!("the machines' own logs are in {folder}\n{}", told.join(""))
    }
}

/// One machine, with our packages at `/srv/pillion`.
pub(crate) fn machine(folder: &Path, name: &str, kind: &str, gpu_count: usize) -> Machine {
    let (layers, shared) = (given("PILLION_MACHINES"), given("PILLION_PACKAGES"));
    let (name, kind, folder) = (name.to_owned(), kind.to_owned(), folder.to_owned());
    Machine::boot(MachineSpec { name, kind, gpu_count, layers, shared, folder }).unwrap()
}

/// The ends of a machine's logs.
fn tell(machine: &Machine) -> String {
    let said = machine.types(
        "systemctl --failed --no-pager --plain; tail -n 15 /var/log/slurm/* 2>/dev/null || true;
         for units in 'slurm*' 'pillion*'; do journalctl --no-pager -n 40 -u \"$units\" | cut -c1-400; done",
    );
    format!("--- {}\n{}\n", machine.name(), said.unwrap_or_else(|error| error.to_string()))
}

/// A folder that `tests/run install` names.
pub(crate) fn given(variable: &str) -> PathBuf {
    let value =
        std::env::var(variable).unwrap_or_else(|_| panic!("{variable} is not set: run `tests/run install`"));
    Path::new(&value).to_owned()
}
