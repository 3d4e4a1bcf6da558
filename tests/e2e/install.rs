//! The admin guide, typed as it stands: every block of commands in its order, on the hosts that it is for, from a Slurm without
//! Pillion to a job that shares, and out again. What the guide says in words between them is done here by name.

use crate::rides::SOON;
use pillion_core::SlurmJobId;
use pillion_tests::cluster::spec::JobSubmit;
use pillion_tests::guide::{Block, blocks, typed};
use pillion_tests::host::{Host, SLURM_FOLDER};
use pillion_tests::services::{daemon_name, systemctl};
use pillion_tests::wait::wait_until;
use pillion_tests::{Cluster, ClusterSpec};
use std::collections::VecDeque;
use std::time::Duration;

const GUIDE: &str = include_str!("../../docs/admin-guide.md");
const HEARTBEAT: &str = "/run/pillion/heartbeat";
const SLURM_CONF: &str = "/etc/slurm/slurm.conf";
/// What an admin does by hand: the pool's nodes leave the partition in which they were.
const BEFORE: &str = "PartitionName=gpu Nodes=w1,w2,w3";
const AFTER: &str = "PartitionName=gpu Nodes=w3";
/// Slurm forgets ended jobs once a minute.
const FORGOTTEN: Duration = Duration::from_mins(3);
const CONFIG: &str = "/etc/pillion/pillion.toml";

/// A site before it installs anything: whole GPUs only, three nodes, of which two will be the pool.
struct Site {
    cluster: Cluster,
    controller: Host,
    nodes: Vec<Host>,
    blocks: VecDeque<Block>,
    /// Its Slurm, `26.05`: the guide stamps the plugin for 24.11.
    slurm: String,
}

impl Site {
    fn new() -> Self {
        let spec = ClusterSpec {
            pool_nodes: Vec::new(),
            whole_gpu_node_count: 3,
            gpus_per_node: 1,
            job_submit: JobSubmit::Absent,
            spank: false,
            hooks: false,
            // It is waited for until Slurm has forgotten the pool's jobs.
            slurm_conf_extra: vec!["MinJobAge=60".to_owned()],
            ..ClusterSpec::default()
        };
        let mut cluster = Cluster::start(spec).unwrap();
        let controller = Host::new(&cluster, "controller").unwrap();
        let names = cluster.spec().node_names();
        let nodes: Vec<Host> = names.iter().map(|name| Host::new(&cluster, name).unwrap()).collect();
        // From here on each daemon sees its own host.
        systemctl(&mut cluster, &controller, &["restart", "slurmctld"]).unwrap();
        for node in &nodes {
            systemctl(&mut cluster, node, &["restart", "slurmd"]).unwrap();
        }
        let said = controller.types(&cluster, "slurmctld -V").unwrap();
        let release = said.split_whitespace().last().unwrap_or_default();
        let slurm = release.splitn(3, '.').take(2).collect::<Vec<_>>().join(".");
        let is_typed = |block: &Block| ["sh", "console", "toml"].contains(&block.language.as_str());
        let blocks = blocks(GUIDE).into_iter().filter(is_typed).collect();
        Self { cluster, controller, nodes, blocks, slurm }
    }

    /// The next block of the guide, which begins with `first`.
    fn block(&mut self, first: &str) -> Vec<String> {
        let block = self.blocks.pop_front().expect("the guide has more steps than this");
        let named = |line: &String| {
            line.replace("n[1-2]", "w[1-2]").replace("-w n1", "-w w1").replace("24.11", &self.slurm)
        };
        let lines: Vec<String> = block.lines.iter().map(named).collect();
        assert!(lines[0].starts_with(first), "the next step of the guide is\n{}", lines.join("\n"));
        lines
    }

    fn at_controller(&self, line: &str) -> String {
        self.controller.types(&self.cluster, line).unwrap()
    }

    /// A line of `systemctl`, on the hosts that its remark names.
    fn serve(&mut self, line: &str, hosts: &[&str]) {
        let command = line.split('#').next().unwrap_or_default();
        let words: Vec<&str> = command.split_whitespace().skip(1).collect();
        for host in self.nodes.iter().chain([&self.controller]).filter(|host| hosts.contains(&host.name())) {
            systemctl(&mut self.cluster, host, &words).unwrap();
        }
    }

    /// A block whose services are started by the last lines of it.
    fn install_service(&mut self, lines: &[String], hosts: &[&str]) {
        for line in lines {
            if line.starts_with("systemctl ") {
                self.serve(line, hosts);
                continue;
            }
            for host in
                self.nodes.iter().chain([&self.controller]).filter(|host| hosts.contains(&host.name()))
            {
                let said = host.types(&self.cluster, line).unwrap();
                assert_eq!(said, "", "`{line}` has something to say");
                if line.contains("# then edit [agent]") {
                    let name = format!("node_name = \"{}\"", host.name());
                    host.edits(CONFIG, &[("#node_name = \"n1\"", &name)]).unwrap();
                }
            }
        }
    }

    fn wait_for_heartbeat(&self, mode: &str) {
        wait_until(&format!("heartbeat of a scheduler that is {mode}"), SOON, || {
            let text = self.controller.on(|| Ok(std::fs::read_to_string(HEARTBEAT).unwrap_or_default()))?;
            Ok(text.lines().next().is_some_and(|line| line.ends_with(&format!(" mode={mode}"))))
        })
        .unwrap();
    }

    fn wait_for_nodes(&self) {
        wait_until("nodes that have spoken", SOON, || {
            let said = self.controller.types(&self.cluster, "sinfo -h -N -o %t")?;
            Ok(!said.contains("unk") && !said.contains('*'))
        })
        .unwrap();
    }

    /// A block that is typed on one host after the other, whole.
    fn all_type(&mut self, first: &str, hosts: impl Fn(&Self) -> Vec<&Host>) {
        let lines = self.block(first).join("\n");
        for host in hosts(self) {
            host.types(&self.cluster, &lines).unwrap();
        }
    }
}

/// Programs, plugin and lua, everywhere; nothing changes for anybody.
fn install_programs(site: &mut Site) {
    site.all_type("install -m 755 target/release/{pillion,", |site| vec![&site.controller]);
    site.all_type("install -m 755 target/release/pillion-agent", |site| site.nodes.iter().collect());
    site.all_type("mkdir -p /usr/lib/pillion", |site| site.nodes.iter().chain([&site.controller]).collect());
    let said = site.at_controller("sbatch --help | grep -- --colocate");
    assert!(said.contains("--colocate"), "{said}");
}

/// The diff of Slurm's files, the module, and the conversion of the nodes; the self-test at its end.
fn convert_nodes(site: &mut Site) {
    let lines = site.block("# pillion slurm-conf");
    let (_, command) = typed(&lines[0]).unwrap();
    let device = site.cluster.layout().device_file(0).display().to_string();
    let command = command.replace("slurm-conf", &format!("slurm-conf --devices {device}"));
    site.at_controller(&format!("{command} 2>by-hand"));
    let by_hand = site.at_controller("cat by-hand");
    assert!(by_hand.contains("PartitionName=gpu"), "who else has the pool's nodes is not said: {by_hand}");

    let lines = site.block("scontrol update NodeName=w[1-2] State=DRAIN");
    for line in &lines {
        match line.split_once('#').map(|(_, remark)| remark.trim()) {
            Some("change slurm.conf and gres.conf on all hosts") => {
                for host in site.nodes.iter().chain([&site.controller]) {
                    host.types(&site.cluster, &format!("patch -p1 -d {SLURM_FOLDER} <pillion.diff")).unwrap();
                    host.edits(SLURM_CONF, &[(BEFORE, AFTER)]).unwrap();
                }
            }
            Some("controller" | "again") => site.serve(line, &["controller"]),
            Some("n1, n2") => site.serve(line, &["w1", "w2"]),
            _ => drop(site.at_controller(line)),
        }
    }

    let lines = site.block("sinfo -N");
    site.at_controller(&lines[0]);
    site.wait_for_nodes();
    site.at_controller(&lines[1]);
    site.at_controller(&lines[2]);
    let said = site.at_controller(&lines[3]);
    let count = |state: &str| said.matches(state).count();
    assert_eq!((count("RUNNING"), count("PENDING")), (2, 1), "{said}");
    site.at_controller("scancel -u root");
}

/// A server that the site has already, in the place of the private one.
fn use_own_postgres(site: &mut Site) {
    let folder = "/var/lib/postgresql/site";
    let bin = site.at_controller("ls -d /usr/lib/postgresql/*/bin | tail -n 1").trim().to_owned();
    site.at_controller("install -d -o postgres -m 755 /run/postgresql /var/lib/postgresql");
    let init = "--auth-local=peer --auth-host=scram-sha-256";
    site.at_controller(&format!("runuser -u postgres -- {bin}/initdb {init} {folder} >/dev/null"));
    let server = site.controller.program(&site.cluster, &format!("{bin}/postgres"));
    let server = server.args(["-D", folder, "-c", "listen_addresses=127.0.0.1"]).folder("/");
    let server = server.identity(pillion_tests::testbed::identity_of("postgres").unwrap());
    site.controller.on(|| site.cluster.start_daemon("postgres@controller", &server)).unwrap();
    wait_until("answer of the site's PostgreSQL", SOON, || {
        let said =
            site.controller.types(&site.cluster, &format!("{bin}/pg_isready -h /run/postgresql || true"))?;
        Ok(said.contains("accepting"))
    })
    .unwrap();
    let lines = site.block("# on the database server; roles.sql lies");
    // PostgreSQL's user need not be let into a checkout.
    site.at_controller(&lines[1].replace("-f roles.sql", "< deploy/postgres/roles.sql"));
    site.at_controller(&lines[2]);
    // Typed twice, as it asks for it.
    site.at_controller(&format!("printf '%s\\n' word word | {}", lines[3]));
    site.at_controller(&lines[4]);
    let (_, written) = lines[5].split_once("database.url = ").unwrap();
    let written = written.replace("PASSWORD@db.example.org", "word@127.0.0.1");
    site.controller
        .edits(
            CONFIG,
            &[("#url = \"postgres://pillion:PASSWORD@db.example.org/pillion\"", &format!("url = {written}"))],
        )
        .unwrap();
    site.serve("systemctl restart pillion-scheduler", &["controller"]);
    wait_until("scheduler on the site's PostgreSQL", SOON, || {
        let said = site.controller.types(&site.cluster, "pillion status --json || true")?;
        Ok(said.contains("as configured by database.url"))
    })
    .unwrap();
}

/// Scheduler and agents, still off; doctor finds nothing that is broken.
fn start_daemons(site: &mut Site) {
    let lines = site.block("install -D -m 640 -o root -g slurm");
    site.install_service(&lines, &["controller"]);
    site.wait_for_heartbeat("off");
    use_own_postgres(site);

    let lines = site.block("install -D -m 640 deploy/pillion.toml.example");
    site.install_service(&lines, &["w1", "w2"]);
    let devices = site.block("socket = ").join("\n");
    let program = pillion_tests::daemons::built("pillion-simulated-device").unwrap().display().to_string();
    for node in &site.nodes[..2] {
        let text = devices.replace("\"n1\"", &format!("\"{}\"", node.name()));
        let path = "/etc/pillion/devices.toml";
        node.writes(path, &text).unwrap();
        let program = node.program(&site.cluster, &program).args(["--config", path]);
        let name = daemon_name("devices", node);
        node.on(|| site.cluster.start_daemon(&name, &program)).unwrap();
    }
    wait_until("two agents with a device each", SOON, || {
        Ok(site
            .controller
            .types(&site.cluster, "pillion nodes --parsable2 --noheader")?
            .matches("h200")
            .count()
            == 2)
    })
    .unwrap();

    let lines = site.block("# pillion doctor");
    let said =
        site.at_controller(&format!("{} || true", typed(&lines[0]).unwrap().1.split('#').next().unwrap()));
    let failed: Vec<&str> = said.lines().filter(|line| line.starts_with("FAIL")).collect();
    assert_eq!(failed, Vec::<&str>::new(), "{said}");
}

/// An agent on the controller too: whichever of the two is started, started again or stopped, the other goes on, and each finds
/// its files where it left them.
fn share_one_host(site: &mut Site) {
    site.at_controller("install -m 755 target/release/pillion-agent /usr/bin/");
    site.at_controller("install -m 644 deploy/systemd/pillion-agent.service /etc/systemd/system/");
    site.controller.edits(CONFIG, &[("#node_name = \"n1\"", "node_name = \"controller\"")]).unwrap();
    for line in ["enable --now pillion-agent", "restart pillion-scheduler", "restart pillion-agent"] {
        site.serve(&format!("systemctl {line}"), &["controller"]);
        wait_until("agent on the controller", SOON, || {
            Ok(site.controller.types(&site.cluster, "test -S /run/pillion/agent.sock && echo up || true")?
                == "up\n")
        })
        .unwrap();
        check_one_host(site, line);
    }
    site.serve("systemctl stop pillion-agent", &["controller"]);
    check_one_host(site, "stop pillion-agent");
}

/// The scheduler answers, still writes its heartbeat, and owns its folder and no more.
fn check_one_host(site: &Site, after: &str) {
    let owners = site.at_controller("cd /run/pillion && stat -c '%n %U %a' . scheduler");
    assert_eq!(owners, ". root 755\nscheduler slurm 755\n", "after {after}");
    let epoch = || -> pillion_tests::error::Result<Option<u64>> {
        let text = site.controller.types(&site.cluster, &format!("cat {HEARTBEAT} || true"))?;
        Ok(text.split_whitespace().find_map(|word| word.strip_prefix("epoch=")?.parse().ok()))
    };
    let before = epoch().unwrap();
    wait_until(&format!("newer heartbeat after {after}"), SOON, || Ok(epoch()? > before)).unwrap();
    // By the socket in its usual place, as anybody.
    let said = site.at_controller("runuser -u alice -- pillion status");
    assert!(said.contains("off"), "after {after}: {said}");
}

/// The first job that shares, seen by its user and by root; and the page.
fn switch_on(site: &mut Site) {
    site.controller.edits(CONFIG, &[("mode = \"off\"", "mode = \"active\"")]).unwrap();
    site.serve("systemctl restart pillion-scheduler", &["controller"]);
    site.wait_for_heartbeat("active");
    let lines = site.block("sbatch --colocate");
    let said = site.at_controller(&lines[0]);
    let job: SlurmJobId = said.trim().trim_start_matches("Submitted batch job ").parse().unwrap();
    let output = format!("slurm-{job}.out");
    wait_until("what the job finds in its environment", SOON, || {
        Ok(site
            .controller
            .types(&site.cluster, &format!("cat {output} 2>/dev/null || true"))?
            .contains("PILLION_"))
    })
    .unwrap();
    let said = site.at_controller(&lines[1].replace("JOB", &job.to_string()));
    assert!(said.contains(&job.to_string()), "{said}");
    site.at_controller(&format!("scancel {job}"));

    let page = site
        .block("[web]")
        .iter()
        .find_map(|line| line.strip_prefix("listen_address = \"")?.split('"').next().map(str::to_owned))
        .unwrap();
    site.controller
        .edits(CONFIG, &[("#listen_address = \"127.0.0.1:6821\"", &format!("listen_address = \"{page}\""))])
        .unwrap();
    site.serve("systemctl restart pillion-scheduler", &["controller"]);
    site.wait_for_heartbeat("active");
    let (address, port) = page.split_once(':').unwrap();
    let ask = format!(
        "exec 3<>/dev/tcp/{address}/{port}; printf 'GET /queue HTTP/1.0\\r\\nHost: localhost\\r\\n\\r\\n' >&3; head -n 1 <&3"
    );
    wait_until("page", SOON, || {
        // Nobody listens for a moment after a start.
        let said = site.controller.types(&site.cluster, &format!("({ask}) 2>&1 || true"))?;
        Ok(said.contains("200 OK"))
    })
    .unwrap();
}

/// Off, and the old lines again: jobs run as before.
fn take_out(site: &mut Site) {
    let lines = site.block("sed -i");
    let (edit, restart) = lines[0].split_once(" && ").unwrap();
    site.at_controller(edit);
    site.serve(restart, &["controller"]);
    site.wait_for_heartbeat("off");
    // Where slurmctld remembers a job whose partition is gone, it ends at its second start (24.11.5: signal 11).
    wait_until("jobs of the pool that are forgotten", FORGOTTEN, || {
        Ok(site.controller.types(&site.cluster, "squeue -h -t all -p shared")?.trim().is_empty())
    })
    .unwrap();
    let everywhere = format!("patch -R -p1 -d {SLURM_FOLDER} <pillion.diff");
    for host in site.nodes.iter().chain([&site.controller]) {
        host.edits(SLURM_CONF, &[(AFTER, BEFORE)]).unwrap();
        host.types(&site.cluster, &everywhere).unwrap();
    }
    site.at_controller("scontrol update NodeName=w[1-2] State=DRAIN Reason=pillion");
    site.serve("systemctl restart slurmctld", &["controller"]);
    site.serve("systemctl restart slurmd", &["w1", "w2"]);
    site.serve("systemctl restart slurmctld", &["controller"]);
    site.wait_for_nodes();
    site.at_controller("scontrol update NodeName=w[1-2] State=RESUME");
    let said = site.at_controller("srun -w w1 --gpus=1 bash -c 'echo $SLURM_JOB_PARTITION'");
    assert_eq!(said.trim(), "gpu");
}

#[test]
fn a_site_is_installed_by_the_admin_guide_and_taken_back() {
    let mut site = Site::new();
    install_programs(&mut site);
    convert_nodes(&mut site);
    start_daemons(&mut site);
    share_one_host(&mut site);
    switch_on(&mut site);
    take_out(&mut site);
    assert!(site.blocks.is_empty(), "the guide has more steps than this");
    site.cluster.stop().unwrap();
}
