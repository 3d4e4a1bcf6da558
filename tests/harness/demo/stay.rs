//! A demo cluster that stays up: wrappers by which its clients are used from outside the testbed, and what to do with them.

use super::steps::{self, Steps};
use super::story::Shown;
use crate::cluster::Cluster;
use crate::daemons::checkout;
use crate::error::{Result, io_error, system_error};
use crate::monitoring::configuration;
use rustix::fs::{Mode, chmod};
use std::net::SocketAddr;
use std::path::Path;

/// Programs that get a wrapper of their own.
const CLIENTS: [&str; 11] = [
    "pillion",
    "pillion-load",
    "sbatch",
    "squeue",
    "scancel",
    "scontrol",
    "sinfo",
    "srun",
    "salloc",
    "sacct",
    "sacctmgr",
];

/// How often the demo's Prometheus scrapes.
const SCRAPE_INTERVAL: &str = "2s";
/// The demo's Prometheus listens so many ports above the page.
const PROMETHEUS_STEP: u16 = 4;

/// Writes what the cluster is used with from the machine, and, last, `ready`, into the output folder, which the machine and
/// the testbed share. `shown`: what the story left to look at; `None` where none was told.
pub(super) fn hand_over(cluster: &mut Cluster, output: &Path, shown: Option<&Shown>) -> Result<()> {
    super::make_folder(&output.join("bin"))?;
    wrappers(cluster, output)?;
    if let Some(shown) = shown {
        let page = cluster.web_address()?;
        let prometheus = SocketAddr::new(page.ip(), page.port() + PROMETHEUS_STEP);
        monitoring(cluster, output, prometheus)?;
        let typed = output.strip_prefix(checkout()).unwrap_or(output).display().to_string();
        let time_scale = cluster.spec().time_scale;
        let steps = Steps { output: &typed, page, prometheus, time_scale, shown };
        write(&output.join("steps"), &steps::text(&steps))?;
    }
    write(&output.join("ready"), &format!("{}\n", cluster.root().display()))
}

/// `env.sh`, and a wrapper for each client.
fn wrappers(cluster: &Cluster, output: &Path) -> Result<()> {
    let folder = output.join("bin");
    let here = output.display();
    let root = cluster.root().display();
    let in_cluster = format!(
        "#!/bin/sh\n# in-cluster [-u USER] [COMMAND...]: runs it inside the demo's cluster; without a command, a prompt.\n\
         user=root\n\
         if [ \"${{1:-}}\" = -u ]; then user=$2; shift 2; fi\n\
         if [ $# -eq 0 ]; then set -- bash; fi\n\
         exec \"$(cat '{here}/programs')/pillion-testbed\" join --pid-file '{here}/testbed.pid' --user \"$user\" -- \\\n    \
         sh -c '. {root}/env.sh; exec \"$@\"' sh \"$@\"\n"
    );
    executable(&folder.join("in-cluster"), &in_cluster)?;
    for client in CLIENTS {
        let text =
            format!("#!/bin/sh\nexec '{here}/bin/in-cluster' -u \"${{DEMO_USER:-root}}\" {client} \"$@\"\n");
        executable(&folder.join(client), &text)?;
    }
    let env = format!(
        "# Source this: Slurm's clients and `pillion` then speak to the demo's cluster.\nPATH='{here}/bin':$PATH\n"
    );
    write(&output.join("env.sh"), &env)
}

/// What a Prometheus on the machine scrapes, the command that starts one there, and the one that asks it.
fn monitoring(cluster: &mut Cluster, output: &Path, prometheus: SocketAddr) -> Result<()> {
    let whose = ["scheduler".to_owned()].into_iter().chain(pool_nodes(cluster));
    let target = |whose: String| Ok((format!("pillion-{whose}"), cluster.metrics_address(&whose)?));
    let targets = whose.map(target).collect::<Result<Vec<_>>>()?;
    write(&output.join("prometheus.yml"), &configuration(SCRAPE_INTERVAL, &targets))?;
    let here = output.display();
    let start = format!(
        "#!/bin/sh\n\
         # demo-prometheus: a Prometheus on this machine's loopback that scrapes the demo's daemons. `deploy/demo --down` ends it.\n\
         if ! command -v prometheus >/dev/null; then\n    \
         echo 'demo-prometheus: there is no prometheus; apt-get install --no-install-recommends prometheus installs it' >&2\n    \
         exit 69\n\
         fi\n\
         cd '{here}' || exit\n\
         setsid prometheus --config.file=prometheus.yml --storage.tsdb.path=prometheus \\\n    \
         --web.listen-address={prometheus} >prometheus.log 2>&1 &\n\
         echo $! >prometheus.pid\n\
         until grep -q 'ready to receive' prometheus.log; do\n    \
         if ! kill -0 $! 2>/dev/null; then tail -n 3 prometheus.log >&2; exit 69; fi\n    \
         sleep 0.2\n\
         done\n\
         echo 'Prometheus answers at http://{prometheus} until the cluster ends.'\n"
    );
    executable(&output.join("bin/demo-prometheus"), &start)?;
    let ask = format!(
        "#!/bin/sh\n# demo-dashboards: every query of every dashboard, asked of the demo's Prometheus.\n\
         exec \"$(cat '{here}/programs')/pillion-demo\" --dashboards {prometheus}\n"
    );
    executable(&output.join("bin/demo-dashboards"), &ask)
}

fn pool_nodes(cluster: &Cluster) -> Vec<String> {
    cluster.spec().pool_nodes.iter().map(|node| node.name.clone()).collect()
}

/// Sleeps until this process is ended; whoever ends the testbed ends it.
pub(super) fn wait_for_the_end() -> ! {
    loop {
        std::thread::park();
    }
}

fn executable(path: &Path, text: &str) -> Result<()> {
    write(path, text)?;
    chmod(path, Mode::from_raw_mode(0o755))
        .map_err(system_error(format!("make {} executable", path.display())))
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).map_err(io_error("write", path))
}
