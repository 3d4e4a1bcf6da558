//! Packages come in a next release, and go back, while jobs run.

use crate::site::Site;
use crate::{CHANGED, CONFIG, SCHEDULER, state_of};

/// Every order of controller, node and submit host, half of them to come in and half to go back in.
const THERE: [[&str; 3]; 3] =
    [["controller", "n2", "n1"], ["n1", "controller", "n2"], ["n2", "n1", "controller"]];
const BACK: [[&str; 3]; 3] =
    [["controller", "n1", "n2"], ["n1", "n2", "controller"], ["n2", "controller", "n1"]];

/// The next release comes while a pair runs, and goes again, host after host: no service is started again, Slurm's no more than ours,
/// no file of an admin's is touched, no node drains and no job ends.
pub(crate) fn upgrade(site: &Site, pair: &[String]) {
    // As the quickstart has it of a host from which jobs are submitted.
    site.machine("n2").types("apt-get install -y pillion-spank pillion-client").unwrap();
    for machine in site.machines() {
        machine
            .types(
                "echo 'deb [trusted=yes] file:///srv/pillion/next ./' >/etc/apt/sources.list.d/next.list && apt-get update",
            )
            .unwrap();
    }
    let first = concat!(env!("CARGO_PKG_VERSION"), "-1");
    let back = format!(
        "apt-get install -y --allow-downgrades \
         $(dpkg-query -W -f '${{db:Status-Status}} ${{Package}}={first}\n' 'pillion-*' | sed -n 's/^installed //p')"
    );
    for (there_order, back_order) in THERE.iter().zip(&BACK) {
        for name in there_order {
            renewed(site, name, pair, "-2", "apt-get upgrade -y");
        }
        for name in back_order {
            renewed(site, name, pair, "-1", &back);
        }
    }
}

/// Types it on a host whose packages are then of this release, and whose services are the same processes.
fn renewed(site: &Site, name: &str, pair: &[String], release: &str, line: &str) {
    let machine = site.machine(name);
    let services: &[&str] = match name {
        "controller" => &[SCHEDULER, "slurmctld.service"],
        "n1" => &["pillion-agent.service", "slurmd.service"],
        _ => &["slurmd.service"],
    };
    let of_daemons = || {
        let pids: Vec<String> = services.iter().map(|unit| state_of(machine, unit, "MainPID")).collect();
        (pids, machine.types(&format!("sha256sum {CONFIG} {CHANGED} 2>/dev/null || true")).unwrap())
    };
    let before = of_daemons();
    assert!(before.0.iter().all(|pid| pid != "0"), "{name} runs {services:?}: {before:?}");
    machine.types(line).unwrap();
    let versions = "dpkg-query -W -f '${db:Status-Status} ${Version}\n' 'pillion-*' | sed -n 's/^installed //p' | sort -u";
    let versions = machine.types(versions).unwrap();
    assert!(versions.lines().count() == 1 && versions.trim().ends_with(release), "{name}: {versions}");
    assert_eq!(of_daemons(), before, "{name}");
    for job in pair {
        assert_eq!(site.job(job, "JobState"), "RUNNING", "job {job} while {name} is renewed");
    }
    site.no_node_is_lost();
}
