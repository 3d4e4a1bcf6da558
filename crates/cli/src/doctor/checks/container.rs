//! What a job sees of its node's folders: MPS clients meet their daemon in `/dev/shm`, and a job with one of its own never
//! finds it. Slurm gives jobs one by `job_container/tmpfs`, since 25.11 also by `namespace/tmpfs`, which is the same, and by
//! `namespace/linux`; all of them do so unless their file says otherwise.

use super::slurm::with_conf;
use crate::doctor::facts::{Facts, SlurmConf, TextFile};
use crate::doctor::finding::{Check, Finding};
use pillion_core::device::Mechanism;

pub(super) fn job_container(facts: &Facts) -> Vec<Finding> {
    let check = Check("job-container");
    with_conf(facts, check, |conf| {
        let Some(plugin) = Plugin::of(conf) else { return check.ok("jobs see the node's own /dev/shm") };
        let file = plugin.file(facts);
        let text = file.text.as_deref().unwrap_or_default();
        let name = plugin.name;
        let dirs = if plugin.is_linux { linux_dirs(text) } else { tmpfs_dirs(text) };
        // Slurm's default is /tmp and /dev/shm.
        let leaves_it = dirs.is_some_and(|dirs| !dirs.split(',').any(is_shared_memory))
            && !(plugin.is_linux && without_comments(text).any(|line| line.contains("/dev/shm")));
        let found =
            format!("{name} gives each job its own /dev/shm, and MPS clients do not find their daemon there");
        match (leaves_it, uses_mps(facts)) {
            (true, uses_mps) => of_other_namespaces(check, &plugin, file)
                .filter(|_| uses_mps != Some(false))
                .unwrap_or_else(|| check.ok(format!("{name} leaves /dev/shm alone"))),
            (false, Some(true)) => check.fail(found, plugin.mend(file)),
            (false, Some(false)) => check.ok(format!("{name} is on; no device here is shared by mps")),
            (false, None) => check.warn(
                format!("{found}; whether a device here is shared by mps is not known"),
                plugin.mend(file),
            ),
        }
    })
}

/// Whether some device here is shared by a mechanism with a daemon; `None` where the scheduler does not say.
fn uses_mps(facts: &Facts) -> Option<bool> {
    let status = facts.status.as_ref().ok()?;
    let mechanisms = status.agents.iter().flat_map(|agent| &agent.devices).map(|device| &device.mechanism);
    Some(mechanisms.filter_map(|word| word.parse().ok()).any(Mechanism::has_daemon))
}

/// What gives each job folders of its own.
struct Plugin<'c> {
    name: &'c str,
    is_linux: bool,
}

impl<'c> Plugin<'c> {
    fn of(conf: &'c SlurmConf) -> Option<Self> {
        let names = [conf.get("NamespaceType"), conf.get("JobContainerType")].into_iter();
        let mut known = names.filter(|name| name.ends_with("/tmpfs") || name.ends_with("/linux"));
        known.next().map(|name| Self { name, is_linux: name.ends_with("/linux") })
    }

    fn file<'f>(&self, facts: &'f Facts) -> &'f TextFile {
        if self.is_linux { &facts.namespace } else { &facts.job_container }
    }

    fn mend(&self, file: &TextFile) -> String {
        let path = file.path.display();
        if self.is_linux {
            return format!(
                "write dirs: \"/tmp\" (without /dev/shm) under defaults: in {path}, then restart every slurmd, each when no job runs there"
            );
        }
        format!("set Dirs=/tmp (without /dev/shm) in {path}, then restart every slurmd")
    }
}

/// A job with process ids or users of its own is somebody else to a daemon of the node's.
fn of_other_namespaces(check: Check, plugin: &Plugin<'_>, file: &TextFile) -> Option<Finding> {
    let text = file.text.as_deref().unwrap_or_default();
    let flag = ["CLONE_NEWPID", "CLONE_NEWUSER"]
        .into_iter()
        .find(|flag| plugin.is_linux && without_comments(text).any(|line| line.contains(flag)))?;
    Some(check.warn(
        format!(
            "{} makes jobs with {flag}: nobody has tried whether an MPS daemon takes them for its clients",
            plugin.name
        ),
        format!(
            "take {flag} out of {}, or try one job beside another on a node that is in no hurry",
            file.path.display()
        ),
    ))
}

fn is_shared_memory(dir: &str) -> bool {
    dir.trim().trim_end_matches('/') == "/dev/shm"
}

/// `Dirs=` of `job_container.conf`.
fn tmpfs_dirs(text: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let at = line.to_ascii_lowercase().find("dirs=")?;
        line.get(at + 5..)?.split_whitespace().next().map(str::to_owned)
    })
}

/// `dirs:` under `defaults:` of namespace.yaml, written as its manual does. Written otherwise, or for some nodes only, it is not
/// found, and Slurm's default is what is believed.
fn linux_dirs(text: &str) -> Option<String> {
    let mut is_default = false;
    let mut found = None;
    for line in without_comments(text).filter(|line| !line.trim().is_empty()) {
        if !line.starts_with([' ', '\t', '-']) {
            is_default = line.trim_end() == "defaults:";
        }
        // Where it stands, `dirs` does not count.
        if line.trim_start().starts_with("dir_confs:") {
            return None;
        }
        if let Some(dirs) = line.trim_start().strip_prefix("dirs:").filter(|_| is_default) {
            found = Some(dirs.trim().trim_matches(['"', '\'']).to_owned());
        }
    }
    found.filter(|dirs| !dirs.is_empty())
}

fn without_comments(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(|line| line.split('#').next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_dirs_of_the_defaults_are_believed() {
        for (text, dirs) in [
            (
                "---\ndefaults:\n  auto_base_path: true\n  dirs: \"/tmp\"\nnode_confs:\n  - nodes:\n",
                Some("/tmp"),
            ),
            ("defaults:\n  base_path: /x\n  dirs: /tmp,/var/tmp # not /dev/shm\n", Some("/tmp,/var/tmp")),
            ("defaults:\n  base_path: /x\n", None),
            (
                "defaults:\n  base_path: /x\nnode_confs:\n  - nodes: [n1]\n    options:\n      dirs: /tmp\n",
                None,
            ),
            ("defaults:\n  # dirs: /tmp\n", None),
            ("defaults: {dirs: /tmp}\n", None),
            ("defaults:\n  dirs: /tmp\n  dir_confs:\n  - path: /dev/shm\n", None),
            ("", None),
        ] {
            assert_eq!(linux_dirs(text).as_deref(), dirs, "{text}");
        }
    }
}
