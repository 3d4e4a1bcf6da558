//! A demo cluster that stays up: wrappers by which its clients are used from outside the testbed.

use crate::cluster::Cluster;
use crate::error::{Result, io_error, system_error};
use rustix::fs::{Mode, chmod};
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

/// Writes `env.sh`, `bin/` and, last, `ready` into the output folder, which the machine and the testbed share.
pub(super) fn hand_over(cluster: &Cluster, output: &Path) -> Result<()> {
    let folder = output.join("bin");
    super::make_folder(&folder)?;
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
    write(&output.join("env.sh"), &env)?;
    write(&output.join("ready"), &format!("{root}\n"))
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
