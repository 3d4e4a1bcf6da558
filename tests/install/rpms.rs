//! The RPMs, by rpm itself: installed, upgraded while one of ours runs, and removed. On a machine that is Debian's otherwise, so what
//! they depend on is not looked at; what they bring and what their scripts do is.

use crate::site::machine;
use crate::{DEVICES, UNITS, state_of, verify_units};
use pillion_tests::machine::Machine;

const DEVICE: &str = "pillion-simulated-device.service";

fn rpm(machine: &Machine, line: &str) -> String {
    machine.types(&format!("rpm --nodeps {line} 2>&1")).unwrap()
}

/// All of them are there, of this release, and as they were packed.
fn are_whole(machine: &Machine, release: u32) {
    let there = machine.types("rpm -qa --qf '%{NAME} %{RELEASE}\\n' 'pillion-*' | sort").unwrap();
    let names = ["agent", "client", "common", "scheduler", "slurm", "spank"];
    let expected: Vec<String> = names.iter().map(|name| format!("pillion-{name} {release}")).collect();
    assert_eq!(there.lines().collect::<Vec<_>>(), expected);
    let changed = machine.types("rpm -V --nodeps $(rpm -qa 'pillion-*') 2>&1 || true").unwrap();
    // What an admin has changed of a configuration file is told, and nothing else.
    let told: Vec<&str> =
        changed.lines().filter(|line| !line.ends_with(" c /etc/slurm/pillion.lua")).collect();
    assert_eq!(told, Vec::<&str>::new());
}

#[test]
fn rpms_install_upgrade_and_go() {
    let folder = tempfile::tempdir().unwrap();
    let machine = machine(folder.path(), "n1", "node", 2);
    rpm(&machine, "-i /srv/pillion/*.rpm");
    are_whole(&machine, 1);
    verify_units(&machine);
    for unit in UNITS {
        // RPM has no triggers of others' files: this one watches in their stead.
        let is_on = unit == "pillion-spank-follow.path";
        assert_eq!(state_of(&machine, unit, "UnitFileState") == "enabled", is_on, "{unit}");
        assert_eq!(state_of(&machine, unit, "ActiveState") == "active", is_on, "{unit}");
    }
    let linked = machine.types("readlink /usr/lib/pillion/pillion.so").unwrap();
    assert!(linked.starts_with("pillion-24.11"), "{linked}");

    machine.types("echo '-- ours' >>/etc/slurm/pillion.lua").unwrap();
    machine.writes("/etc/pillion/devices.toml", DEVICES).unwrap();
    machine.types(&format!("systemctl enable --now {DEVICE}")).unwrap();
    let before = state_of(&machine, DEVICE, "MainPID");
    assert_ne!(before, "0");
    rpm(&machine, "-U /srv/pillion/next/*.rpm");
    are_whole(&machine, 2);
    verify_units(&machine);
    assert_eq!(state_of(&machine, DEVICE, "MainPID"), before, "an upgrade starts nothing again");
    assert_eq!(state_of(&machine, DEVICE, "UnitFileState"), "enabled");
    assert_eq!(machine.types("tail -n 1 /etc/slurm/pillion.lua").unwrap(), "-- ours\n");
    assert_eq!(state_of(&machine, "pillion-spank-follow.path", "ActiveState"), "active");

    machine.types("echo Prolog=/etc/slurm/pillion/prolog >>/etc/slurm/slurm.conf").unwrap();
    rpm(&machine, "-e $(rpm -qa 'pillion-*')");
    let hook = machine.types("cat /etc/slurm/pillion/prolog").unwrap();
    assert!(hook.contains("Left by the removal"), "{hook}");
    machine.types("test -e /etc/pillion/devices.toml && test ! -e /usr/bin/pillion").unwrap();
    machine.types("test ! -e /usr/lib/pillion/pillion.so && test ! -e /usr/lib/systemd/system/pillion-agent.service").unwrap();
    assert_eq!(state_of(&machine, DEVICE, "MainPID"), before, "they are the hardware of jobs that run");
}
