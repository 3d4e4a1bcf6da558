//! The control groups that Slurm makes for the nodes of a cluster: version 1, one folder a node under each controller.
//!
//! ```text
//!   /sys/fs/cgroup/freezer/slurm_n1-a3f0/uid_2001/job_5/step_batch
//! ```
//!
//! All testbeds of a machine see the same hierarchy, and so do its own services: only folders of nodes of this cluster are touched.

use crate::error::{Result, io_error};
use crate::wait::wait_until;
use pillion_core::SlurmJobId;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where the kernel shows them.
const ROOT: &str = "/sys/fs/cgroup";
/// The controllers in which Slurm makes groups here, as `cgroup.conf` has it.
const CONTROLLERS: [&str; 2] = ["freezer", "devices"];
/// How long the kernel may take to be rid of who was killed.
const END_DEADLINE: Duration = Duration::from_secs(10);

/// Whether this machine has what [`super::spec::Containment::ControlGroups`] needs.
pub fn are_there() -> bool {
    CONTROLLERS.iter().all(|controller| Path::new(ROOT).join(controller).join("cgroup.procs").exists())
}

/// A name for a node that no other cluster of this machine has.
///
/// # Errors
/// Where the kernel gives no chance.
pub fn own_name(name: &str) -> Result<String> {
    let path = Path::new("/proc/sys/kernel/random/uuid");
    let uuid = fs::read_to_string(path).map_err(io_error("read", path))?;
    Ok(format!("{name}-{}", &uuid[..8]))
}

/// Where all processes of a job can be held still: its folder under the freezer.
pub fn freezer_of(node: &str, user_id: u32, job: SlurmJobId) -> PathBuf {
    of_node("freezer", node).join(format!("uid_{user_id}")).join(format!("job_{job}"))
}

fn of_node(controller: &str, node: &str) -> PathBuf {
    Path::new(ROOT).join(controller).join(format!("slurm_{node}"))
}

/// The folders of these nodes that are there.
fn folders(nodes: &[String]) -> impl Iterator<Item = PathBuf> {
    let all = nodes.iter().flat_map(|node| CONTROLLERS.map(|controller| of_node(controller, node)));
    all.filter(|folder| folder.exists())
}

/// Lets go whoever is held: a process that stands still is killed when it goes on.
pub(super) fn thaw(nodes: &[String]) {
    for folder in folders(nodes) {
        each_below(&folder, &mut |group| {
            let state = group.join("freezer.state");
            if state.exists() {
                let _ = fs::write(state, "THAWED");
            }
        });
    }
}

/// Removes them; nobody is in them any more.
///
/// # Errors
/// Where somebody still is.
pub(super) fn remove(nodes: &[String]) -> Result<()> {
    wait_until("end of the cluster's control groups", END_DEADLINE, || {
        for folder in folders(nodes) {
            each_below(&folder, &mut |group| drop(fs::remove_dir(group)));
        }
        Ok(folders(nodes).next().is_none())
    })
}

/// A group after all that are in it.
fn each_below(group: &Path, act: &mut impl FnMut(&Path)) {
    for entry in fs::read_dir(group).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|it| it.is_dir()) {
            each_below(&entry.path(), act);
        }
    }
    act(group);
}
