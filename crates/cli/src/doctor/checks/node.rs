//! Each node beside its devices, as its agent saw it when it connected.

use crate::doctor::facts::Facts;
use crate::doctor::finding::{Check, Finding};
use crate::format::listed;
use pillion_core::setup::{LoadedPlugin, SetupFault, SetupFaultKind};

const AGAIN: &str = "then restart pillion-agent, which looks again";

/// The plugin, the directories and what the mechanisms stand on.
pub(super) fn setup(facts: &Facts) -> Vec<Finding> {
    let check = Check("node-setup");
    let Ok(status) = &facts.status else { return vec![check.skip("the scheduler does not answer")] };
    let connected = status.agents.iter().filter(|agent| agent.connected);
    let (mut wrong, mut unreported, mut reported) = (Vec::new(), Vec::new(), 0);
    for agent in connected {
        let Some(setup) = agent.node_setup() else {
            unreported.push(&agent.node);
            continue;
        };
        reported += 1;
        wrong.extend(setup.faults.iter().map(|fault| of_fault(check, &agent.node, fault)));
        wrong.extend(setup.plugins.iter().filter_map(|plugin| of_plugin(check, facts, &agent.node, plugin)));
    }
    if !unreported.is_empty() && wrong.is_empty() {
        let names = listed(unreported);
        return vec![
            check.skip(format!("the agents of {names} are of an earlier release, which does not tell")),
        ];
    }
    check.ok_unless(
        wrong,
        format!("{reported} nodes have the plugin, the directories and the programs that they need"),
    )
}

fn of_fault(check: Check, node: &str, fault: &SetupFault) -> Finding {
    let found = format!("node {node}: {}", fault.detail);
    let (is_fatal, mend) = mend_of(fault.kind);
    if fault.kind == SetupFaultKind::NoDevices {
        return check.fail(found, mend);
    }
    let mend = format!("{mend}; {AGAIN}");
    if is_fatal { check.fail(found, mend) } else { check.warn(found, mend) }
}

/// Whether it is fatal, and what to do about it.
const fn mend_of(kind: SetupFaultKind) -> (bool, &'static str) {
    match kind {
        SetupFaultKind::NoPlugin => (
            true,
            "add 'optional pillion.so' to plugstack.conf there: without it jobs start uncapped and unshared",
        ),
        SetupFaultKind::PluginRequired => {
            (true, "write 'optional' there: a required plugin that fails drains the node")
        }
        SetupFaultKind::DirectoryOpen => {
            (true, "chmod o-w it there: anybody could put a socket or an MPS daemon of his own in its place")
        }
        SetupFaultKind::DirectoryClosed => {
            (true, "chmod 755 it there: a program that does not reach its MPS daemon runs without any limit")
        }
        SetupFaultKind::NoMps => (
            true,
            "install NVIDIA's control program there or name it in mps.control_binary, or set mps.enabled = false",
        ),
        SetupFaultKind::NoPersistence => (
            false,
            "systemctl enable --now nvidia-persistenced there: without it the driver lets an idle GPU go, and forgets its \
             settings and its energy counter",
        ),
        SetupFaultKind::MpsUnscoped => (
            false,
            "see that dbus runs there and busctl (systemd) is installed; a daemon that is there already stays where it is until its \
             last job has left. Set no MemoryMax or TasksMax for pillion-agent.service meanwhile: it would be the daemons' too",
        ),
        SetupFaultKind::MigFilesRemade => (
            true,
            "write 'options nvidia NVreg_ModifyDeviceFiles=0' into a file of /etc/modprobe.d there, see that udev makes /dev/nvidia*, \
             and reboot it; until then no instance is given to anybody, for others could come into it",
        ),
        SetupFaultKind::MigOff => (
            false,
            "from Hopper on mig.toggle = true lets the agent turn it on; for an Ampere drain the node, stop pillion-agent and all \
             that has the GPU open (DCGM, nvidia-persistenced), and 'nvidia-smi -i GPU -mig 1'. Until then it is shared as GPUs without MIG are",
        ),
        SetupFaultKind::MigHeld => (
            false,
            "where instances are not given up ('pillion nodes' says held) or MIG is not turned on, stop it there, or start it for other \
             GPUs only",
        ),
        SetupFaultKind::FabricDown => (
            true,
            "systemctl enable --now nvidia-fabricmanager there, of the driver's own version: a GPU whose MIG mode is turned over leaves \
             the fabric, and without it no program can use the GPU that is whole again (CUDA error 802, system not yet initialized)",
        ),
        SetupFaultKind::HookMissing => (
            true,
            "install the script of deploy/slurm/hooks there: a hook that cannot be run drains the node",
        ),
        SetupFaultKind::ModeFixed => (
            true,
            "see that pillion-agent runs as root there and that /sys is not mounted read-only for it (systemctl cat)",
        ),
        SetupFaultKind::NoDevices => (
            true,
            "see that the vendor's driver runs there (nvidia-smi, xpu-smi) and that its library is installed, or name \
             it in nvidia.library or intel.library; until then jobs run there as without Pillion, and the agent \
             goes on looking by itself",
        ),
        SetupFaultKind::ProgressUnbounded => (
            false,
            "systemctl start run-pillion-progress.mount there, beside the unit of the agent (deploy/systemd); where runtime_directory \
             is another one, mount a small tmpfs at progress in it",
        ),
        SetupFaultKind::Other => (false, "install the same release there and here to be told what it is"),
    }
}

fn of_plugin(check: Check, facts: &Facts, node: &str, plugin: &LoadedPlugin) -> Option<Finding> {
    let path = &plugin.path;
    if let Some(why) = &plugin.error {
        return Some(check.fail(
            format!("node {node}: {path}: {why}; jobs start there uncapped and unshared"),
            format!("install the pillion.so that was built for the Slurm of that node, {AGAIN}"),
        ));
    }
    let (built_for, slurm) = (plugin.built_for.as_ref()?, facts.version.as_ref().ok()?);
    let release = format!("{}.{:02}", slurm.major, slurm.minor);
    (*built_for != release).then(|| {
        check.warn(
            format!("node {node}: {path} was built for Slurm {built_for}, and slurmctld is {slurm}"),
            format!(
                "install the pillion.so for {release} there, unless slurmd there is of {built_for} still: a plugin of another \
                 release is not loaded; {AGAIN}"
            ),
        )
    })
}
