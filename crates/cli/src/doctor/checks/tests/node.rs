//! Nodes that are not set up as they should be, as their agents tell it.

use super::{Broken, FAIL, Facts, Status, WARN, status_of};
use pillion_core::setup::SetupFaultKind;
use pillion_proto::v1::{NodeSetup, SetupFault};

fn setup_of(facts: &mut Facts) -> &mut NodeSetup {
    status_of(facts).agents[0].setup.as_mut().expect("told")
}

fn break_by(facts: &mut Facts, kind: SetupFaultKind, detail: &str) {
    setup_of(facts).faults.push(SetupFault { kind: kind.to_string(), detail: detail.to_owned() });
}

pub(super) const BROKEN: [Broken; 17] = [
    ("node-setup", FAIL, "node n1: /etc/slurm/plugstack.conf does not load", "optional pillion.so", |f| {
        break_by(f, SetupFaultKind::NoPlugin, "/etc/slurm/plugstack.conf does not load pillion.so");
    }),
    ("node-setup", FAIL, "node n1: /etc/slurm/plugstack.conf loads", "write 'optional'", |f| {
        break_by(
            f,
            SetupFaultKind::PluginRequired,
            "/etc/slurm/plugstack.conf loads pillion.so as 'required'",
        );
    }),
    ("node-setup", FAIL, "everybody may write into /run/pillion (mode 777)", "chmod o-w", |f| {
        break_by(f, SetupFaultKind::DirectoryOpen, "everybody may write into /run/pillion (mode 777)");
    }),
    ("node-setup", FAIL, "users may not enter /run/pillion (mode 700)", "chmod 755", |f| {
        break_by(f, SetupFaultKind::DirectoryClosed, "users may not enter /run/pillion (mode 700)");
    }),
    ("node-setup", FAIL, "there is no /usr/bin/nvidia-cuda-mps-control", "mps.control_binary", |f| {
        let detail = "there is no /usr/bin/nvidia-cuda-mps-control: devices are shared by time slices";
        break_by(f, SetupFaultKind::NoMps, detail);
    }),
    (
        "node-setup",
        WARN,
        "nvidia-persistenced does not run",
        "systemctl enable --now nvidia-persistenced",
        |f| {
            let detail = "there is no /run/nvidia-persistenced/socket: nvidia-persistenced does not run";
            break_by(f, SetupFaultKind::NoPersistence, detail);
        },
    ),
    ("node-setup", FAIL, "open to everybody; it needs NVreg_ModifyDeviceFiles=0", "/etc/modprobe.d", |f| {
        let detail = "no instance can be one user's alone: its driver makes its device files anew by itself, open to everybody; it \
                      needs NVreg_ModifyDeviceFiles=0";
        break_by(f, SetupFaultKind::MigFilesRemade, detail);
    }),
    ("node-setup", WARN, "g0 (a100-40) is not cut: MIG is off", "nvidia-smi -i GPU -mig 1", |f| {
        let detail = "g0 (a100-40) is not cut: MIG is off there, or waits for a reset";
        break_by(f, SetupFaultKind::MigOff, detail);
    }),
    ("node-setup", WARN, "g0 may not be cut: nv-hostengine", "start it for other GPUs only", |f| {
        let detail = "g0 may not be cut: nv-hostengine (process 812) has /dev/nvidia0 open";
        break_by(f, SetupFaultKind::MigHeld, detail);
    }),
    (
        "node-setup",
        FAIL,
        "hang on NVSwitches (/dev/nvidia-nvswitchctl), and nvidia-fabricmanager does not run",
        "systemctl enable --now nvidia-fabricmanager",
        |f| {
            let detail = "its GPUs hang on NVSwitches (/dev/nvidia-nvswitchctl), and nvidia-fabricmanager does not run";
            break_by(f, SetupFaultKind::FabricDown, detail);
        },
    ),
    ("node-setup", FAIL, "gt0/ccs_mode may not be written: Read-only file system", "read-only", |f| {
        let detail =
            "/sys/class/drm/card0/device/tile0/gt0/ccs_mode may not be written: Read-only file system";
        break_by(f, SetupFaultKind::ModeFixed, detail);
    }),
    (
        "node-setup",
        FAIL,
        "node n1: Prolog=/etc/slurm/pillion/prolog: there is no such file",
        "deploy/slurm/hooks",
        |f| {
            let detail = "Prolog=/etc/slurm/pillion/prolog: there is no such file";
            break_by(f, SetupFaultKind::HookMissing, detail);
        },
    ),
    (
        "node-setup",
        FAIL,
        "libnvidia-ml.so.1 cannot be loaded: no such file",
        "the agent goes on looking",
        |f| {
            let detail = "no device can be shared here: libnvidia-ml.so.1 cannot be loaded: no such file";
            break_by(f, SetupFaultKind::NoDevices, detail);
            status_of(f).agents[0].devices.clear();
        },
    ),
    (
        "node-setup",
        WARN,
        "node n1: /run/pillion/progress is no file system of its own",
        "systemctl start run-pillion-progress.mount",
        |f| {
            let detail =
                "/run/pillion/progress is no file system of its own: jobs can fill the one that it lies on";
            break_by(f, SetupFaultKind::ProgressUnbounded, detail);
        },
    ),
    (
        "node-setup",
        WARN,
        "there is no /usr/bin/busctl: MPS daemons stay in the agent's control group",
        "see that dbus runs there",
        |f| {
            let detail = "there is no /usr/bin/busctl: MPS daemons stay in the agent's control group";
            break_by(f, SetupFaultKind::MpsUnscoped, detail);
        },
    ),
    (
        "node-setup",
        WARN,
        "pillion.so was built for Slurm 23.11, and slurmctld is 24.11.5",
        "for 24.11 there",
        |f| {
            setup_of(f).plugins[0].built_for = "23.11".to_owned();
        },
    ),
    (
        "node-setup",
        FAIL,
        "pillion.so: there is no such file; jobs start there",
        "install the pillion.so",
        |f| {
            setup_of(f).plugins[0].built_for = String::new();
            setup_of(f).plugins[0].error = "there is no such file".to_owned();
        },
    ),
];

#[test]
fn a_controller_that_is_no_node_needs_no_hooks_of_nodes() {
    let mut facts = super::sound();
    facts.hooks[0].file.text = Err("there is no such file".to_owned());
    let of_hooks = |facts: &Facts| {
        let findings = super::examine(facts);
        findings.into_iter().find(|finding| finding.check == "hooks").expect("it speaks").status
    };
    assert_eq!(of_hooks(&facts), Status::Skip);
    for agent in &mut status_of(&mut facts).agents {
        agent.setup = None;
    }
    assert_eq!(of_hooks(&facts), Status::Fail);
}

#[test]
fn what_an_earlier_agent_does_not_tell_is_passed_over() {
    let mut facts = super::sound();
    for agent in &mut status_of(&mut facts).agents {
        agent.setup = None;
    }
    let findings = super::examine(&facts);
    let finding = findings.iter().find(|finding| finding.check == "node-setup").expect("it speaks");
    assert_eq!(finding.status, Status::Skip);
    assert!(finding.found.contains("the agents of n1,n2"), "{finding:?}");
}
