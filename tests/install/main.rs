//! The packages on machines of their own: what a stranger does with docs/quickstart.md, typed as it stands, on a site whose jobs run
//! on whole GPUs; and what is left when the packages go. Run by `tests/run install`, on the machine itself, as root.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails where it stands")]

mod one_host;
mod own_jobs;
mod own_ways;
mod plain_job;
mod power;
mod quickstart;
mod releases;
mod removal;
mod role;
mod rpms;
mod site;

use own_jobs::OwnJobs;
use pillion_tests::machine::Machine;
use pillion_tests::wait::{Look, wait_for, wait_until};
use plain_job::plain_job;
use quickstart::{Reader, edit_slurm_conf};
use site::{SOON, Site, USER};

const CONFIG: &str = "/etc/pillion/pillion.toml";
const SCHEDULER: &str = "pillion-scheduler.service";
/// Every unit that the packages bring, and what may be enabled of it.
const UNITS: [&str; 5] = [
    SCHEDULER,
    "pillion-rescue.timer",
    "pillion-agent.service",
    "pillion-simulated-device.service",
    "pillion-spank-follow.path",
];
/// Fast enough that a run alone counts after half a minute of real time (`policy.solo_seconds_min`).
const DEVICES: &str = "socket = \"/run/pillion/simulated-device.sock\"\n[machine]\nnode = \"n1\"\ntime_scale = 60.0\n\
     [[machine.devices]]\nmodel = \"h200\"\nmechanism = \"none\"\n[[machine.devices]]\nmodel = \"h200\"\nmechanism = \"none\"\n";
/// Slurm's files, and ours, that setup may change.
const CHANGED: &str = "/etc/slurm/slurm.conf /etc/slurm/gres.conf /etc/slurm/plugstack.conf /etc/slurm/job_submit.lua /etc/pillion/pillion.toml";
/// The most that systemd may say of the agent's unit; of the file alone less is asked (`tests/hardening.rs`).
const EXPOSURE_MAX: f64 = 5.0;
/// Two that get on with each other.
const WORKLOADS: [&str; 2] = ["resnet50-infer", "bert-small-batch"];

fn state_of(machine: &Machine, unit: &str, property: &str) -> String {
    let said = machine.types(&format!("systemctl show -P {property} {unit}")).unwrap();
    said.trim().to_owned()
}

/// Nothing is said of the units that packages have brought.
fn verify_units(machine: &Machine) {
    let verify = "systemd-analyze verify --man=no $(ls /usr/lib/systemd/system/*pillion*) 2>&1";
    assert_eq!(machine.types(verify).unwrap(), "", "what systemd says of the units on {}", machine.name());
}

/// How far systemd sees a unit shut in that is loaded, drop-ins and all: of 10, and 5 and above is "medium".
fn exposure(machine: &Machine, unit: &str) -> f64 {
    let said = machine.types(&format!("systemd-analyze security --no-pager {unit}")).unwrap();
    let level =
        said.rsplit_once("Overall exposure level for ").and_then(|(_, rest)| rest.split_whitespace().nth(1));
    level.and_then(|level| level.parse().ok()).unwrap_or_else(|| panic!("{said}"))
}

/// The packages alone: nothing runs, nothing is enabled, no file of Slurm's has changed, and systemd takes the units.
fn install(site: &Site, reader: &mut Reader) {
    let files = "cd /etc/slurm && find . -type f ! -path '*pillion*' -exec sha256sum {} + | sort";
    let before: Vec<String> = site.machines().map(|machine| machine.types(files).unwrap()).collect();
    reader.types(site, "echo 'deb ");
    reader.types(site, "apt-get install -y pillion-scheduler");
    reader.types(site, "apt-get install -y pillion-agent");
    reader.types(site, "apt-get install -y pillion-slurm");
    for (machine, before) in site.machines().zip(before) {
        assert_eq!(machine.types(files).unwrap(), before, "Slurm's files on {}", machine.name());
    }
    for machine in [&site.controller, &site.nodes[0]] {
        let states = machine.types("systemctl list-unit-files --no-legend 'pillion*'").unwrap();
        assert!(!states.contains("enabled "), "{states}");
        for unit in UNITS {
            assert_eq!(state_of(machine, unit, "ActiveState"), "inactive", "{unit} on {}", machine.name());
        }
        verify_units(machine);
        // The trigger or the installation itself stamped it.
        let linked = machine.types("readlink /usr/lib/pillion/pillion.so").unwrap();
        let slurm = machine.types("sinfo -V").unwrap();
        let version = linked.trim().trim_start_matches("pillion-").trim_end_matches(".so");
        assert!(slurm.contains(&format!(" {version}.")), "{linked} {slurm}");
    }
}

/// What dpkg does when a Slurm comes and goes: the plugin is stamped for it, and what was there before stays.
fn follow_slurm(machine: &Machine) {
    let copies = "cd /usr/lib/pillion && echo pillion-*.so && readlink pillion.so";
    assert_eq!(machine.types(copies).unwrap(), "pillion-24.11.so\npillion-24.11.so\n");
    machine.types(include_str!("slurm_of_ones_own")).unwrap();
    let two = "pillion-24.11.so pillion-25.05.so\npillion-24.11.so\n";
    assert_eq!(machine.types(copies).unwrap(), two, "the link stays with the Slurm that it is of");
    machine.types("dpkg --remove site-slurm").unwrap();
    assert_eq!(machine.types(copies).unwrap(), two, "of a Slurm that may still run");
    // Where nobody tells, as with RPM, a unit watches: a site builds the next one beside it, and turns its link, in one go.
    machine.types("systemctl start pillion-spank-follow.path").unwrap();
    machine
        .types(
            "mkdir -p /opt/slurm/25.05.3/lib && mv /tmp/site-slurm/opt/slurm/lib/slurm /opt/slurm/25.05.3/lib/ && \
             ln -s 25.05.3 /opt/slurm/current",
        )
        .unwrap();
    let links_to = |copy: &str| {
        wait_until(&format!("{copy} for plugstack.conf"), SOON, || {
            Ok(machine.types("readlink /usr/lib/pillion/pillion.so")?.trim() == copy)
        })
        .unwrap();
    };
    links_to("pillion-25.05.so");
    machine.types("rm -r /opt/slurm").unwrap();
    links_to("pillion-24.11.so");
    machine.types("systemctl stop pillion-spank-follow.path").unwrap();
}

/// What is in the files that setup changes.
fn files_of_setup(machine: &Machine) -> String {
    let shown =
        format!("for file in {CHANGED}; do ls -ln --time-style=+ $file; cat $file; done 2>&1 || true");
    machine.types(&shown).unwrap()
}

/// The same, and what it enables.
fn of_setup(machine: &Machine) -> String {
    let units = "systemctl is-enabled pillion-scheduler.service pillion-rescue.timer pillion-agent.service 2>&1 || true";
    files_of_setup(machine) + &machine.types(units).unwrap()
}

/// What is wrong is said in one sentence, and nothing is changed.
fn refused(machine: &Machine, line: &str, why: &str) {
    let before = of_setup(machine);
    let said = machine.types(&format!("{line} 2>&1 || echo refused")).unwrap();
    assert!(said.contains(why) && said.ends_with("refused\n"), "{line}: {said}");
    assert_eq!(of_setup(machine), before, "{line}");
}

/// Who is not root, a name that is none, and a disk that is full: nothing is changed. Looking is anybody's.
fn refuse_what_cannot_be(controller: &Machine) {
    let setup = "pillion setup controller --nodes n1";
    refused(controller, &format!("runuser -u {USER} -- {setup} --yes"), "run this as root");
    refused(controller, &format!("{setup} --partition 'a b' --yes"), "is no name of a partition");
    refused(controller, "pillion setup controller --yes", "say which nodes are to be the pool");
    let kept = "/var/lib/pillion-setup";
    controller
        .types(&format!("mkdir -p {kept} && mount -t tmpfs -o size=4k,nr_inodes=64 none {kept}"))
        .unwrap();
    refused(controller, &format!("{setup} --yes"), "cannot write /var/lib/pillion-setup");
    controller.types(&format!("umount {kept}")).unwrap();
    let shown = controller.types_as(USER, setup).unwrap();
    assert!(shown.contains("+Prolog=/etc/slurm/pillion/prolog"), "{shown}");
}

/// Slurm's own files by setup, and Slurm started again in its order.
fn make_pool(site: &Site, reader: &mut Reader, own: &OwnJobs) {
    let controller = &site.controller;
    refused(
        controller,
        "pillion setup controller --nodes n1 --yes",
        "has nodes of the pool: take n1 out of it",
    );
    refused(
        site.machine("n1"),
        "pillion setup controller --nodes n1 --yes",
        "names controller as SlurmctldHost",
    );
    refused(site.machine("n1"), "pillion setup node --backend nvidia --yes", "gives n1 no shards");
    edit_slurm_conf(controller);
    refuse_what_cannot_be(controller);
    let before = of_setup(controller);
    reader.types(site, "pillion setup controller --nodes n1");
    assert_eq!(of_setup(controller), before, "it only shows");
    reader.types(site, "scontrol update NodeName=n1 State=DRAIN");
    // Back, and on again: as if nothing had been.
    let after = of_setup(controller);
    assert_ne!(after, before);
    controller.types("pillion setup controller --undo --yes 2>&1").unwrap();
    assert_eq!(of_setup(controller), before, "after an undo");
    refused(controller, "pillion setup controller --undo --yes", "there is nothing to undo");
    controller
        .types(
            "(pillion setup controller --nodes n1 --yes && pillion setup controller --nodes n1 --yes) 2>&1",
        )
        .unwrap();
    assert_eq!(of_setup(controller), after, "done again");
    own.leave_the_drained_node(site);
    site.bring_slurm_files(&["slurm.conf", "gres.conf", "plugstack.conf"]);
    reader.types(site, "systemctl restart slurmctld");
    reader.types(site, "systemctl restart slurmd");
    site.wait_for_nodes();
    reader.types(site, "systemctl restart slurmctld");
    site.wait_for_nodes();
    reader.types(site, "scontrol update NodeName=n1 State=RESUME");
}

/// Waits until the scheduler's unit has failed, which is never started again; what it said.
fn fails_for_good(controller: &Machine) -> String {
    wait_until("end of a scheduler that lacks what it needs", SOON, || {
        Ok(state_of(controller, SCHEDULER, "ActiveState") == "failed")
    })
    .unwrap();
    assert_eq!(state_of(controller, SCHEDULER, "NRestarts"), "0");
    assert_eq!(state_of(controller, SCHEDULER, "ExecMainStatus"), "78");
    controller.types("journalctl -u pillion-scheduler -o cat --no-pager").unwrap()
}

/// A statement to the private database, tried until it answers.
fn asked(statement: &str) -> String {
    let psql = format!(
        "PGPASSWORD=$(cat /var/lib/pillion/postgres/password) psql -qh /var/lib/pillion/postgres -U pillion postgres -c \"{statement}\""
    );
    format!("for try in $(seq 100); do {psql} 2>/dev/null && break; sleep 0.2; done")
}

/// Without PostgreSQL: one failed unit, one sentence, and no restarts.
fn fail_without_postgres(site: &Site) {
    let controller = &site.controller;
    controller
        .types("systemctl stop pillion-scheduler; mv /usr/lib/postgresql /usr/lib/postgresql.away")
        .unwrap();
    controller.types("systemctl start pillion-scheduler").unwrap();
    let said = fails_for_good(controller);
    assert!(said.contains("PostgreSQL"), "{said}");
    controller.types("mv /usr/lib/postgresql.away /usr/lib/postgresql; systemctl reset-failed").unwrap();
}

/// A database that a later release has had: one failed unit, one sentence, no restarts; and the copy of before, as
/// docs/upgrade.md has it.
fn fail_on_newer_schema(site: &Site) {
    let controller = &site.controller;
    let later = "insert into _sqlx_migrations (version, description, success, checksum, execution_time) \
        values (99991231235959, 'of a later release', true, '', 1)";
    controller
        .types(
            "systemctl stop pillion-scheduler && cp -a /var/lib/pillion/postgres /var/lib/pillion/postgres.before
             systemctl start pillion-scheduler",
        )
        .unwrap();
    // Its database answers before it has looked at the schema.
    wait_until("a scheduler that runs", SOON, || Ok(controller.types("pillion status").is_ok())).unwrap();
    controller.types(&format!("{} && systemctl restart pillion-scheduler", asked(later))).unwrap();
    let said = fails_for_good(controller);
    assert!(said.contains("migration 99991231235959"), "{said}");
    assert_eq!(said.matches("newer than this program").count(), 1, "{said}");
    controller
        .types(
            "rm -r /var/lib/pillion/postgres && mv /var/lib/pillion/postgres.before /var/lib/pillion/postgres
             systemctl reset-failed",
        )
        .unwrap();
}

fn start_daemons(site: &Site, reader: &mut Reader) {
    fail_without_postgres(site);
    site.controller.types("systemctl start pillion-scheduler").unwrap();
    fail_on_newer_schema(site);
    site.controller.types("systemctl start pillion-scheduler").unwrap();
    let user = site.controller.types("ps -o user= -C pillion-scheduler").unwrap();
    assert_eq!(user.trim(), "slurm", "the scheduler runs as SlurmUser");

    let node = site.machine("n1");
    node.writes("/etc/pillion/devices.toml", DEVICES).unwrap();
    node.types("systemctl enable --now pillion-simulated-device").unwrap();
    reader.types(site, "pillion setup node");
    site.wait_for_agent();
    let exposure = exposure(node, "pillion-agent.service");
    assert!(exposure <= EXPOSURE_MAX, "the agent that runs is at {exposure}");
    let said = reader.types(site, "pillion doctor");
    assert!(!said.contains("FAIL"), "{said}");
}

/// A job of a workload that may share, for so many seconds of the simulated machine.
fn load(site: &Site, name: &str, seconds: u32, time_limit: &str) -> String {
    site.submits(&format!(
        "--colocate=profile={name},max-slowdown=1.5 --gpus=1 -c 1 --mem=100 -t {time_limit} \
         --wrap 'env | sort >{name}.env; exec pillion-load {name} --seconds {seconds}'"
    ))
}

/// Two workloads alone, and then in one pair, whose jobs work for so many seconds of the simulated machine; the two jobs of it.
fn pair(site: &Site, seconds: u32) -> [String; 2] {
    // Forty seconds of real time each, beside each other on the two GPUs.
    let alone: Vec<String> = WORKLOADS.iter().map(|name| load(site, name, 2400, "30")).collect();
    for job in &alone {
        site.wait_for_job(job, "COMPLETED");
    }
    wait_for("profiles of both", SOON, || {
        let said = site.controller.types("pillion profile --noheader --parsable2")?;
        Ok(if said.lines().count() == 2 { Look::Ready(()) } else { Look::NotYet(said) })
    })
    .unwrap();
    // Whoever wants to run now has to share the other one.
    site.controller.types("pillion drain --reason test n1:g1").unwrap();
    // Who joins has to end before his host does.
    let pair = [("60", WORKLOADS[0]), ("50", WORKLOADS[1])].map(|(time_limit, name)| {
        let job = load(site, name, seconds, time_limit);
        site.wait_for_job(&job, "RUNNING");
        job
    });
    let places = places(site);
    for job in &pair {
        assert!(
            places.lines().any(|line| line == format!("n1|g0|released|{job}")),
            "job {job} shares n1:g0\n{places}"
        );
    }
    pair
}

/// Where the jobs of all decisions are or were, and what became of these, a line each: `n1|g0|released|14`.
fn places(site: &Site) -> String {
    site.controller.types("pillion pairs --all --parsable2 --noheader -o node,gres,state,jobid").unwrap()
}

/// As the quickstart has it: two that share, and one more that asks.
fn share(site: &Site, reader: &mut Reader) -> [String; 2] {
    reader.types(site, "sed -i");
    site.wait_until_active();
    let pair = pair(site, 144_000);
    let block = reader.next("sbatch --colocate=profile=train");
    assert_eq!(block.language, "sh user");
    let said = site.controller.types_as(USER, &block.lines.join("\n")).unwrap();
    assert!(pair.iter().all(|job| said.contains(job)), "{said}");
    let train = said.lines().next().and_then(|line| line.strip_prefix("Submitted batch job ")).expect(&said);
    assert_eq!(site.job(train, "Partition"), "shared", "it waits in the pool");
    assert!(site.job(train, "AdminComment").starts_with("pillion1;"), "it is in our care");
    site.controller.types(&format!("scancel {train}")).unwrap();
    site.wait_for_job(train, "CANCELLED");
    for name in WORKLOADS {
        let seen = site.wrote("n1", &format!("{name}.env"));
        assert!(seen.contains("PILLION_DECISION="), "{seen}");
    }
    pair
}

#[test]
fn a_site_is_made_by_the_quickstart_and_packages_go_without_harm() {
    let mut site = Site::new();
    let mut reader = Reader::new();
    let own = OwnJobs::new(&site);
    let before = plain_job(&site);
    install(&site, &mut reader);
    assert_eq!(plain_job(&site), before, "packages alone change nothing");
    follow_slurm(&site.controller);
    make_pool(&site, &mut reader, &own);
    own.go_on(&site, "Slurm was started again with a pool");
    start_daemons(&site, &mut reader);
    one_host::share_one_host(&site.controller);
    let pair = share(&site, &mut reader);
    assert_eq!(plain_job(&site), before, "of a job that asked for nothing");
    power::lose_power(&mut site, &pair);
    power::node_loses_power(&mut site, &pair);
    own.go_on(&site, "whole machines lost their power");
    releases::upgrade(&site, &pair);
    own.go_on(&site, "an upgrade");
    assert_eq!(plain_job(&site), before, "of a job that asked for nothing");
    removal::from_node(&site, &pair);
    assert_eq!(plain_job(&site), before, "of a job that asked for nothing");
    removal::from_controller(&site, &pair);
    own.go_on(&site, "the packages went");
    assert_eq!(plain_job(&site), before, "of a job that asked for nothing");
    reader.ends();
}
