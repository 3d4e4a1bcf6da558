//! What a task has in its environment of another job's share: that of the job which submitted it (`sbatch` inside a script hands on all
//! variables). Pure: nothing here touches Slurm, a file or a socket.

use std::path::{Component, Path};

/// Set in every task that a decision was applied to; read only as a hint.
pub const DECISION_VARIABLE: &str = "PILLION_DECISION";
/// Where such a task, or one that is measured only, may write its counter.
const PROGRESS_VARIABLE: &str = "PILLION_PROGRESS";
/// The pipe directory of a daemon: ours where it is under our own directory.
const PIPE_VARIABLE: &str = "CUDA_MPS_PIPE_DIRECTORY";
/// What is set together with a pipe directory of ours.
const LIMIT_VARIABLES: [&str; 3] =
    ["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "CUDA_MPS_SM_PARTITION"];
/// Lists with commas, in which what we added stands beside what the user bound.
const BIND_VARIABLES: [&str; 4] =
    ["APPTAINER_BIND", "APPTAINER_BINDPATH", "SINGULARITY_BIND", "SINGULARITY_BINDPATH"];

/// The variables that are to go, each with what is to stay of it; `None`: nothing. What a user set for himself stays: ours is what names
/// a place under `runtime_directory`, where nobody else makes one; `%n` in that stands for any node, for the job may have come from another.
pub fn inherited(
    mut variable: impl FnMut(&str) -> Option<String>,
    runtime_directory: &Path,
) -> Vec<(&'static str, Option<String>)> {
    let (decision, progress) = (variable(DECISION_VARIABLE), variable(PROGRESS_VARIABLE));
    if decision.is_none() && progress.is_none() {
        return Vec::new();
    }
    let daemons = runtime_directory.join("mps");
    let mut left = Vec::new();
    left.extend(decision.map(|_| (DECISION_VARIABLE, None)));
    left.extend(progress.filter(|path| is_under(path, runtime_directory)).map(|_| (PROGRESS_VARIABLE, None)));
    if variable(PIPE_VARIABLE).is_some_and(|path| is_under(&path, &daemons)) {
        left.extend([PIPE_VARIABLE].into_iter().chain(LIMIT_VARIABLES).map(|name| (name, None)));
    }
    for name in BIND_VARIABLES {
        let rest = variable(name).and_then(|list| without(&list, &daemons));
        left.extend(rest.map(|rest| (name, Some(rest).filter(|rest| !rest.is_empty()))));
    }
    left
}

/// A list of binds without those of what is under `directory`; `None` where there is none.
fn without(list: &str, directory: &Path) -> Option<String> {
    let is_ours = |entry: &&str| entry.split(':').next().is_some_and(|source| is_under(source, directory));
    let (ours, rest): (Vec<&str>, Vec<&str>) = list.split(',').partition(is_ours);
    (!ours.is_empty()).then(|| rest.join(","))
}

fn is_under(path: &str, directory: &Path) -> bool {
    let mut parts = Path::new(path).components();
    let is_there = directory.components().all(|own| parts.next().is_some_and(|part| is_like(own, part)));
    is_there && parts.next().is_some()
}

/// Whether this part of a path is `own`, on whichever node.
fn is_like(own: Component<'_>, part: Component<'_>) -> bool {
    let texts = own.as_os_str().to_str().zip(part.as_os_str().to_str());
    texts.is_some_and(|(own, part)| match own.split_once("%n") {
        None => own == part,
        Some((before, after)) => part
            .strip_prefix(before)
            .and_then(|rest| rest.strip_suffix(after))
            .is_some_and(|node| !node.is_empty()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(variables: &[(&str, &str)]) -> Vec<(&'static str, Option<String>)> {
        let given = |name: &str| Some(variables.iter().find(|(it, _)| *it == name)?.1.to_owned());
        inherited(given, Path::new("/run/pillion"))
    }

    #[test]
    fn of_a_list_only_our_entry_goes() {
        let list = |list: &str| left(&[(DECISION_VARIABLE, "5"), ("SINGULARITY_BINDPATH", list)]);
        for (given, rest) in [
            ("/run/pillion/mps/g1/pipe", None),
            ("/a:/b:ro,/run/pillion/mps/g1/pipe", Some("/a:/b:ro")),
            ("/run/pillion/mps/g1/pipe:/x:ro,/a", Some("/a")),
            ("/a,/run/pillion/mps/g1/pipe,/run/pillion/mps/g2/pipe/,/b", Some("/a,/b")),
        ] {
            let expected = ("SINGULARITY_BINDPATH", rest.map(str::to_owned));
            assert_eq!(list(given), [(DECISION_VARIABLE, None), expected]);
        }
        for others in ["/run/pillion-mps/g1", "/a:/run/pillion/mps/g1", "/run/pillion/progress/7", "/run", ""]
        {
            assert_eq!(list(others), [(DECISION_VARIABLE, None)], "{others}");
        }
    }

    #[test]
    fn a_job_that_came_from_another_node_has_that_ones_directories() {
        for (directory, path, is_ours) in [
            ("/run/%n", "/run/n1/mps", true),
            ("/run/p-%n.d", "/run/p-n1.d/mps", true),
            ("/run/p-%n.d", "/run/p-.d/mps", false),
            ("/run/%n", "/run/n1", false),
            ("/run/%n", "/srv/n1/mps", false),
            ("/run/pillion", "/run//pillion/./mps", true),
        ] {
            assert_eq!(is_under(path, Path::new(directory)), is_ours, "{path} under {directory}");
        }
    }

    #[test]
    fn limits_go_with_a_daemon_of_ours_alone() {
        let (cap, decision) = (("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "40"), (DECISION_VARIABLE, "5"));
        let of = |pipe: &str| left(&[cap, decision, (PIPE_VARIABLE, pipe)]).len();
        assert_eq!(of("/run/pillion/mps/g1/pipe"), 5);
        for his in ["/tmp/nvidia-mps", "/run/pillion/mps", "run/pillion/mps/g1"] {
            assert_eq!(of(his), 1, "{his}");
        }
        assert_eq!(left(&[cap, (PIPE_VARIABLE, "/run/pillion/mps/g1/pipe")]), [], "no job of ours was there");
        assert_eq!(left(&[(PROGRESS_VARIABLE, "/home/me/counter")]), []);
    }
}
