//! Packages come in a next release and go, while jobs run.

use crate::site::Site;
use crate::{CHANGED, CONFIG, SCHEDULER, state_of};

/// The next release comes while a pair runs, and goes again, host after host in two orders: no service is started again, no file of
/// an admin's is touched, no node drains and no job ends.
pub(crate) fn upgrade(site: &Site, pair: &[String]) {
    for machine in site.machines() {
        machine
            .types(
                "echo 'deb [trusted=yes] file:///srv/pillion/next ./' >/etc/apt/sources.list.d/next.list && apt-get update",
            )
            .unwrap();
    }
    for name in ["n1", "controller", "n2"] {
        renewed(site, name, pair, "-2", "apt-get upgrade -y");
    }
    let first = concat!(env!("CARGO_PKG_VERSION"), "-1");
    let back = format!(
        "dpkg-query -W -f '${{db:Status-Status}} ${{Package}}={first}\n' 'pillion-*' | sed -n 's/^installed //p'"
    );
    for name in ["controller", "n2", "n1"] {
        renewed(site, name, pair, "-1", &format!("apt-get install -y --allow-downgrades $({back})"));
    }
}

/// Types it on a host whose packages are then of this release, and whose services are the same processes.
fn renewed(site: &Site, name: &str, pair: &[String], release: &str, line: &str) {
    let machine = site.machine(name);
    let of_daemons = || {
        let pid = |unit: &str| state_of(machine, unit, "MainPID");
        let files = format!("sha256sum {CONFIG} {CHANGED} 2>/dev/null || true");
        (pid(SCHEDULER), pid("pillion-agent.service"), machine.types(&files).unwrap())
    };
    let before = of_daemons();
    assert!(name == "n2" || (before.0 == "0") != (before.1 == "0"), "{name} has one of ours: {before:?}");
    machine.types(line).unwrap();
    let versions = "dpkg-query -W -f '${db:Status-Status} ${Version}\n' 'pillion-*' | sed -n 's/^installed //p' | sort -u";
    let versions = machine.types(versions).unwrap();
    assert!(versions.lines().count() == 1 && versions.trim().ends_with(release), "{name}: {versions}");
    assert_eq!(of_daemons(), before, "{name}");
    for job in pair {
        assert_eq!(site.job(job, "JobState"), "RUNNING", "job {job} while {name} is renewed");
    }
    let states = site.controller.types("sinfo -h -N -o '%N %t'").unwrap();
    assert!(!states.contains("drain") && !states.contains("down"), "{states}");
}

/// The packages go while a pair runs: no job ends, no node drains, and what Slurm names is still there.
pub(crate) fn remove(site: &Site, pair: &[String]) {
    let node = site.machine("n1");
    node.types("apt-get remove -y 'pillion-*'").unwrap();
    for name in ["/etc/slurm/pillion/prolog", "/etc/slurm/pillion.lua", "/usr/lib/pillion/pillion.so", CONFIG]
    {
        node.types(&format!("test -e {name}")).unwrap_or_else(|_| panic!("{name} is gone"));
    }
    node.types("apt-get purge -y 'pillion-*'").unwrap();
    let hook = node.types("cat /etc/slurm/pillion/prolog").unwrap();
    assert!(hook.contains("Left by the removal"), "{hook}");
    for kept in [CONFIG, "/var/lib/pillion-agent"] {
        node.types(&format!("test -e {kept}")).unwrap_or_else(|_| panic!("{kept} is gone"));
    }
    // A job of plain Slurm starts there, through the hooks that are left.
    let plain = site.controller.types("sbatch --parsable -p shared -w n1 -t 1 --wrap true").unwrap();
    site.wait_for_job(plain.trim(), "COMPLETED");
    let state = site.controller.types("sinfo -h -N -n n1 -o %t").unwrap();
    assert!(!state.contains("drain"), "{state}");
    for job in pair {
        assert_eq!(site.job(job, "JobState"), "RUNNING", "job {job}");
    }
}
