//! Agent and scheduler on one host, by systemd itself: both have `/run/pillion`, and neither start nor stop nor removal of one takes
//! from it what is the other's.

use crate::site::{SOON, USER};
use pillion_tests::machine::Machine;
use pillion_tests::wait::wait_until;

/// What is done to the two, in both orders, and whether the agent runs afterwards.
const DONE: [(&str, bool); 7] = [
    ("systemctl enable --now pillion-agent", true),
    ("systemctl restart pillion-scheduler", true),
    ("systemctl restart pillion-agent", true),
    (
        "systemctl stop pillion-scheduler && systemctl restart pillion-agent && systemctl start pillion-scheduler",
        true,
    ),
    (
        "systemctl stop pillion-agent && systemctl restart pillion-scheduler && systemctl start pillion-agent",
        true,
    ),
    ("systemctl stop pillion-agent", false),
    ("apt-get purge -y pillion-agent", false),
];

/// An agent comes to the host of a scheduler that is off, and goes again.
pub(crate) fn share_one_host(controller: &Machine) {
    controller.types("apt-get install -y pillion-agent").unwrap();
    for (line, has_agent) in DONE {
        controller.types(line).unwrap();
        if has_agent {
            wait_until(&format!("agent after {line}"), SOON, || {
                Ok(controller
                    .types("systemctl is-active pillion-agent && test -S /run/pillion/agent.sock")
                    .is_ok())
            })
            .unwrap();
        }
        is_served(controller, line);
    }
}

/// The scheduler answers, still writes its heartbeat, and owns its folder and no more.
fn is_served(controller: &Machine, after: &str) {
    let owners = controller.types("cd /run/pillion && stat -c '%n %U %a' . scheduler").unwrap();
    assert_eq!(owners, ". root 755\nscheduler slurm 755\n", "after {after}");
    let epoch = || -> pillion_tests::error::Result<Option<u64>> {
        let text = controller.types("cat /run/pillion/heartbeat")?;
        Ok(text.split_whitespace().find_map(|word| word.strip_prefix("epoch=")?.parse().ok()))
    };
    let before = epoch().unwrap();
    wait_until(&format!("newer heartbeat after {after}"), SOON, || Ok(epoch()? > before)).unwrap();
    // By the socket in its usual place, as anybody.
    let said = controller.types_as(USER, "pillion status").unwrap();
    assert!(said.contains("off"), "after {after}: {said}");
}
