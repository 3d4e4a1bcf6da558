//! The packages on machines of their own: what a stranger does with docs/quickstart.md, typed as it stands, on a site whose jobs run
//! on whole GPUs; and what is left when the packages go. Run by `tests/run install`, on the machine itself, as root.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails where it stands")]

mod own_ways;
mod role;
mod rpms;
mod site;

use pillion_tests::guide::{Block, blocks};
use pillion_tests::machine::Machine;
use pillion_tests::wait::{Look, now, wait_for, wait_until};
use site::{SLURM_CONF, SOON, Site, USER};
use std::collections::VecDeque;
use std::time::Duration;

const QUICKSTART: &str = include_str!("../../docs/quickstart.md");
/// The most that a reader is asked to type, and files that he is asked to edit.
const TYPED_LINES_MAX: usize = 25;
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
/// What Slurm may take to see that a node has lost its jobs, and one bound.
const NODE_BACK: Duration = Duration::from_mins(4);
/// What is said to be edited.
const EDITED: [(&str, &str); 1] = [(
    "PartitionName=gpu Nodes=n1,n2",
    "PartitionName=shared Nodes=n1 MaxTime=1-0 DefMemPerCPU=100\nPartitionName=gpu Nodes=n2",
)];
/// Slurm's files, and ours, that setup may change.
const CHANGED: &str = "/etc/slurm/slurm.conf /etc/slurm/gres.conf /etc/slurm/plugstack.conf /etc/slurm/job_submit.lua /etc/pillion/pillion.toml";
/// Two that get on with each other.
const WORKLOADS: [&str; 2] = ["resnet50-infer", "bert-small-batch"];
/// What a job without the flag finds, on a node that is not the pool's, without what is another's with each job.
const ENVIRONMENT: &str =
    "-w n2 --gpus=1 -t 5 --wrap 'env | sort >environment.new; mv environment.new environment'";

/// The quickstart, block after block.
struct Reader {
    blocks: VecDeque<Block>,
}

impl Reader {
    fn new() -> Self {
        let blocks: VecDeque<Block> =
            blocks(QUICKSTART).into_iter().filter(|block| block.language.starts_with("sh ")).collect();
        let lines: usize = blocks.iter().map(|block| block.lines.len()).sum();
        assert!(lines <= TYPED_LINES_MAX, "{lines} lines are to be typed");
        let edited = QUICKSTART.matches(" file to edit").count();
        assert!(edited <= 3, "{edited} files are to be edited");
        Self { blocks }
    }

    /// The next block, which begins with `first`, typed on the hosts that it is for.
    fn types(&mut self, site: &Site, first: &str) -> String {
        let block = self.next(first);
        let mut said = String::new();
        for host in block.language.split_whitespace().skip(1) {
            // The machines have no GPUs.
            let lines = block.lines.join("\n").replace("--backend nvidia", "--backend simulated");
            let typed = site.machine(host).types(&lines);
            said += &typed.unwrap_or_else(|error| panic!("{error:?}\n{}", site.logs()));
        }
        said
    }

    fn next(&mut self, first: &str) -> Block {
        let block = self.blocks.pop_front().expect("the quickstart has more steps than this");
        let begins = block.lines[0].starts_with(first);
        assert!(begins, "the next step of the quickstart is\n{}", block.lines.join("\n"));
        block
    }
}

/// What a job finds in its environment, without what is each job's own: its numbers and its times.
fn environment(site: &Site) -> String {
    let job = site.submits(ENVIRONMENT);
    site.wait_for_job(&job, "COMPLETED");
    let own =
        ["SLURM_JOB_ID=", "SLURM_JOBID=", "SLURM_JOB_START_TIME=", "SLURM_JOB_END_TIME=", "SLURM_TASK_PID="];
    let text = site.wrote("n2", "environment");
    let lines = text.lines().filter(|line| !own.iter().any(|name| line.starts_with(name)));
    let kept: Vec<&str> = lines.collect();
    assert!(kept.len() > 20, "{text}");
    kept.join("\n")
}

fn state_of(machine: &Machine, unit: &str, property: &str) -> String {
    let said = machine.types(&format!("systemctl show -P {property} {unit}")).unwrap();
    said.trim().to_owned()
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
        let said = machine
            .types("systemd-analyze verify --man=no $(ls /usr/lib/systemd/system/*pillion*) 2>&1")
            .unwrap();
        assert_eq!(said, "", "what systemd says of the units");
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
fn make_pool(site: &Site, reader: &mut Reader) {
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
    controller.edits(SLURM_CONF, &EDITED).unwrap();
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

/// Two workloads alone, and then in one pair; the two jobs of it.
fn share(site: &Site, reader: &mut Reader) -> [String; 2] {
    reader.types(site, "sed -i");
    site.wait_until_active();
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
    let pair = [("30", WORKLOADS[0]), ("20", WORKLOADS[1])].map(|(time_limit, name)| {
        let job = load(site, name, 36_000, time_limit);
        site.wait_for_job(&job, "RUNNING");
        job
    });
    let places =
        site.controller.types("pillion pairs --all --parsable2 --noheader -o node,gres,state,jobid").unwrap();
    for job in &pair {
        assert!(
            places.lines().any(|line| line == format!("n1|g0|released|{job}")),
            "job {job} shares n1:g0\n{places}"
        );
    }
    let block = reader.next("sbatch --colocate=profile=train");
    assert_eq!(block.language, "sh user");
    let said = site.controller.types_as(USER, &block.lines[1..].join("\n")).unwrap();
    assert!(pair.iter().all(|job| said.contains(job)), "{said}");
    for name in WORKLOADS {
        let seen = site.wrote("n1", &format!("{name}.env"));
        assert!(seen.contains("PILLION_DECISION="), "{seen}");
    }
    pair
}

/// The controller loses its power while a pair runs and a job waits in our care. It comes up again without a hand: the pair never
/// noticed, and who waits is released as soon as there is a GPU.
fn lose_power(site: &mut Site, pair: &[String]) {
    let waiting = load(site, "launch-bound", 36_000, "10");
    assert_eq!(site.job(&waiting, "JobState"), "PENDING", "both GPUs are taken");
    let bound = site.job(&waiting, "EligibleTime");
    // slurmctld itself writes down within seconds what it has taken.
    let saved = "test \"$(find /var/lib/slurm/slurmctld/job_state -newer /run/pillion-submitted)\"";
    site.controller.types("touch /run/pillion-submitted").unwrap();
    wait_until("Slurm to have written it down", SOON, || Ok(site.controller.types(saved).is_ok())).unwrap();
    site.controller.loses_power().unwrap();
    site.connects();
    site.wait_for_nodes();
    site.wait_for_agent();
    for job in pair {
        assert_eq!(site.job(job, "JobState"), "RUNNING", "job {job} while the controller had no power");
    }
    assert_eq!(site.job(&waiting, "JobState"), "PENDING");
    println!("held back until {bound} before, {} after", site.job(&waiting, "EligibleTime"));
    site.controller.types("pillion undrain n1:g1").unwrap();
    site.wait_for_job(&waiting, "RUNNING");
    site.controller.types(&format!("scancel {waiting}")).unwrap();
    site.wait_for_job(&waiting, "CANCELLED");
    let states = site.controller.types("sinfo -h -N -o '%N %t'").unwrap();
    assert!(!states.contains("drain") && !states.contains("down"), "{states}");
}

/// The node of the pool loses its power under the pair. It comes up again without a hand, and Slurm starts both jobs once more, as it
/// does with any, each alone on a GPU of its own; nothing of the boot before is left to keep anybody from it.
fn node_loses_power(site: &mut Site, pair: &[String]) {
    // One that has run for less than twenty seconds (BatchStartTimeout and MessageTimeout) Slurm does not miss on a node that comes up.
    wait_for("both jobs, well under way", SOON, || {
        let ran: Vec<String> = pair.iter().map(|job| site.job(job, "RunTime")).collect();
        let is_so = ran.iter().all(|time| time.as_str() > "00:00:30");
        Ok(if is_so { Look::Ready(()) } else { Look::NotYet(ran.join(", ")) })
    })
    .unwrap();
    site.node_loses_power("n1");
    let begun = now();
    wait_for("both jobs, started once more", NODE_BACK, || {
        let seen: Vec<String> = pair
            .iter()
            .map(|job| format!("{} {}", site.job(job, "JobState"), site.job(job, "Restarts")))
            .collect();
        Ok(if seen.iter().all(|it| it == "RUNNING 1") {
            Look::Ready(())
        } else {
            Look::NotYet(seen.join(", "))
        })
    })
    .unwrap_or_else(|error| panic!("{error:?}\n{}", site.logs()));
    let own: Vec<String> = pair.iter().map(|job| site.job(job, "TresPerNode")).collect();
    assert_eq!(own, ["gres/shard:100", "gres/shard:100"], "as Slurm starts them without a decision");
    println!("both ran again {} s after the node had come up", begun.elapsed().as_secs());
    site.wait_for_agent();
    let states = site.controller.types("sinfo -h -N -o '%N %t'").unwrap();
    assert!(!states.contains("drain") && !states.contains("down"), "{states}");
    let said = site.machine("n1").types("systemctl --failed --no-legend --plain").unwrap();
    assert!(!said.contains("pillion"), "{said}");
}

/// The next release comes while a pair runs, and goes again, host after host in two orders: no service is started again, no file of
/// an admin's is touched, no node drains and no job ends.
fn upgrade(site: &Site, pair: &[String]) {
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
fn remove(site: &Site, pair: &[String]) {
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

#[test]
fn a_site_is_made_by_the_quickstart_and_packages_go_without_harm() {
    let mut site = Site::new();
    let mut reader = Reader::new();
    let before = environment(&site);
    install(&site, &mut reader);
    follow_slurm(&site.controller);
    make_pool(&site, &mut reader);
    start_daemons(&site, &mut reader);
    let pair = share(&site, &mut reader);
    assert_eq!(environment(&site), before, "of a job that asked for nothing");
    lose_power(&mut site, &pair);
    node_loses_power(&mut site, &pair);
    upgrade(&site, &pair);
    remove(&site, &pair);
    assert_eq!(environment(&site), before, "of a job that asked for nothing");
    assert!(reader.blocks.is_empty(), "the quickstart has more steps than this");
}
