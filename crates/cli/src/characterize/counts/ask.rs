//! How a batch script asks for GPUs, so that a run of it asks in the same way for another count. Pure; `#SBATCH` lines up to the first
//! command, then the options of the command line, as sbatch reads them.

use super::campaign::Count;
use crate::characterize::script::{self, InvalidScript};

/// The option of tasks that counts those of each node.
const PER_NODE: &str = "--ntasks-per-node";

/// By which option GPUs are asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Option_ {
    /// `--gres`, with what it asks for besides.
    Gres {
        others: Vec<String>,
    },
    /// `--gpus`, `-G`.
    Gpus,
    GpusPerNode,
}

/// What a run has to repeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ask {
    option: Option_,
    /// Of the GPUs, where one is asked for.
    gpu_type: Option<String>,
    /// The option of tasks, and how many: `None` in it where there are as many as GPUs, and they go with them.
    tasks: Option<(&'static str, Option<u32>)>,
    /// It says `--colocate` itself, so that Slurm knows the option, and a run has to say no.
    is_colocated: bool,
    nodes: NodesAsked,
    /// In which it is to run, where the command line says so, and where the script does.
    partition: [Option<String>; 2],
}

/// How many nodes a script asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NodesAsked {
    Nothing,
    One,
    /// Or perhaps several.
    Several,
}

/// What a campaign over counts cannot run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum CannotAsk {
    #[error(transparent)]
    Script(#[from] InvalidScript),
    #[error("take {0} out: each run asks for its GPUs by --gres, --gpus or --gpus-per-node")]
    OtherOption(String),
    #[error("take --array out: each run is one job")]
    Array,
    #[error("take --cpus-per-gpu out: --cpus sets the CPUs of a GPU")]
    CpusPerGpu,
    #[error(
        "'{0}' is no number of GPUs that can be changed; ask for one kind of GPU, as in --gres=gpu:a100:2"
    )]
    Unclear(String),
}

/// How it asks. `has_cpus`: whether the campaign sets CPUs.
///
/// # Errors
/// [`CannotAsk`], one sentence.
pub(super) fn ask(text: &str, options: &[String], has_cpus: bool) -> Result<Ask, CannotAsk> {
    let directives = script::directives(text)?;
    let of_script = directives.map(|(_, words)| (false, words));
    let lines = of_script.chain(options.iter().map(|option| (true, words(option))));
    let (mut own_count, mut tasks) = (1, None);
    let mut found = Ask {
        option: Option_::Gres { others: Vec::new() },
        gpu_type: None,
        tasks: None,
        is_colocated: false,
        nodes: NodesAsked::Nothing,
        partition: [None, None],
    };
    let each = lines.flat_map(|(is_typed, words)| {
        script::options(&words).into_iter().map(move |(name, value)| (is_typed, name, value))
    });
    for (is_typed, name, value) in each {
        match name.as_str() {
            "--gres" => {
                let entries: Vec<&str> =
                    value.split(',').map(|entry| entry.trim_start_matches("gres/")).collect();
                let (gpus, others): (Vec<&str>, Vec<&str>) =
                    entries.into_iter().partition(|entry| *entry == "gpu" || entry.starts_with("gpu:"));
                match gpus.as_slice() {
                    [] => {}
                    [one] => {
                        (found.gpu_type, own_count) =
                            request(one.trim_start_matches("gpu").trim_start_matches(':'))?;
                    }
                    _ => return Err(CannotAsk::Unclear(value)),
                }
                found.option = Option_::Gres { others: others.into_iter().map(str::to_owned).collect() };
            }
            "--gpus" | "-G" | "--gpus-per-node" => {
                (found.gpu_type, own_count) = request(&value)?;
                found.option = if name == "--gpus-per-node" { Option_::GpusPerNode } else { Option_::Gpus };
            }
            "--gpus-per-task" | "--gpus-per-socket" => return Err(CannotAsk::OtherOption(name)),
            "--array" | "-a" => return Err(CannotAsk::Array),
            "--cpus-per-gpu" if has_cpus => return Err(CannotAsk::CpusPerGpu),
            "--ntasks" | "-n" => tasks = Some(("--ntasks", value.parse::<u32>().ok())),
            PER_NODE => tasks = Some((PER_NODE, value.parse::<u32>().ok())),
            "--nodes" | "-N" => found.nodes = nodes_asked(&value),
            "--partition" | "-p" => found.partition[usize::from(!is_typed)] = Some(value),
            "--colocate" => found.is_colocated = true,
            _ => {}
        }
    }
    // A rank a GPU: where there are more GPUs there are more ranks.
    found.tasks =
        tasks.map(|(name, count)| (name, count.filter(|count| *count != own_count || own_count == 1)));
    Ok(found)
}

impl Ask {
    /// The kind of GPU, where one is asked for.
    pub(super) fn gpu_type(&self) -> Option<&str> {
        self.gpu_type.as_deref()
    }

    /// Where it is to run, if it says so, as sbatch reads it: what is typed counts more than the environment, and that more than the
    /// script.
    pub(super) fn partition<'a>(&'a self, environment: Option<&'a str>) -> Option<&'a str> {
        let [typed, script] = &self.partition;
        typed.as_deref().or(environment).or(script.as_deref())
    }

    /// How many nodes it asks for.
    pub(super) const fn nodes(&self) -> NodesAsked {
        self.nodes
    }

    /// The options of a run, behind those of its user, so that these count.
    pub(super) fn options(&self, count: Count) -> Vec<String> {
        let Count { gpus, nodes, .. } = count;
        let of_type = self.gpu_type.as_deref().map(|kind| format!("{kind}:")).unwrap_or_default();
        let each = gpus / nodes.max(1);
        let mut options = Vec::new();
        match &self.option {
            Option_::Gres { others } => {
                let own = [format!("gpu:{of_type}{each}")];
                let all: Vec<&str> = own.iter().chain(others).map(String::as_str).collect();
                options.push(format!("--gres={}", all.join(",")));
            }
            Option_::Gpus => {
                options.push(format!("--gpus={of_type}{gpus}"));
                // As many on each: of a sum Slurm might put more on one node than on another.
                options.extend((nodes > 1).then(|| format!("--gpus-per-node={of_type}{each}")));
            }
            Option_::GpusPerNode => options.push(format!("--gpus-per-node={of_type}{each}")),
        }
        options.push(format!("--nodes={nodes}"));
        let tasks = self.tasks_of(count, &mut options);
        if let Some(cpus) = count.cpus_per_gpu {
            options.push(format!("--cpus-per-task={}", cpus.saturating_mul(gpus).div_ceil(tasks)));
        }
        if self.is_colocated {
            options.push("--colocate=no".to_owned());
        }
        options
    }

    /// How many tasks a run has, on all nodes, and what says so where the script does not.
    fn tasks_of(&self, count: Count, options: &mut Vec<String>) -> u32 {
        let Count { gpus, nodes, .. } = count;
        match self.tasks {
            Some((name, None)) => {
                let own = if name == PER_NODE { gpus / nodes.max(1) } else { gpus };
                options.push(format!("{name}={own}"));
                gpus
            }
            Some((PER_NODE, Some(tasks))) => tasks.max(1).saturating_mul(nodes),
            // Fewer than nodes leave nodes without one, and Slurm gives none for them.
            Some((name, Some(tasks))) if tasks < nodes => {
                options.push(format!("{name}={nodes}"));
                nodes
            }
            Some((_, Some(tasks))) => tasks.max(1),
            None => nodes.max(1),
        }
    }
}

/// `1`, `2`, `1-4`, `2,4`; what is none of these may be several.
fn nodes_asked(value: &str) -> NodesAsked {
    let most = value.rsplit(['-', ',']).next().unwrap_or_default();
    if most.trim() == "1" { NodesAsked::One } else { NodesAsked::Several }
}

fn words(option: &str) -> Vec<&str> {
    option.split_whitespace().collect()
}

/// `4`, `a100:4`, `a100` or nothing, which is one.
fn request(text: &str) -> Result<(Option<String>, u32), CannotAsk> {
    let unclear = || CannotAsk::Unclear(text.to_owned());
    let is_number = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let (kind, count) = match text.split(':').collect::<Vec<_>>().as_slice() {
        [""] => (None, "1"),
        [count] if is_number(count) => (None, *count),
        [kind] if !kind.contains(',') => (Some(*kind), "1"),
        [kind, count] if is_number(count) && !kind.is_empty() => (Some(*kind), *count),
        _ => return Err(unclear()),
    };
    Ok((kind.map(str::to_owned), count.parse().map_err(|_| unclear())?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(lines: &str, options: &[&str]) -> Result<Vec<String>, CannotAsk> {
        let text = format!("#!/bin/sh\n{lines}\ntrain\n#SBATCH --array=1-9\n");
        let options: Vec<String> = options.iter().map(|option| (*option).to_owned()).collect();
        ask(&text, &options, true).map(|ask| ask.options(Count { gpus: 2, nodes: 1, cpus_per_gpu: None }))
    }

    #[test]
    fn a_run_asks_as_its_script_does() {
        let same = |lines: &str, expected: &str| {
            assert_eq!(asked(lines, &[]).unwrap().join(" "), format!("{expected} --nodes=1"), "{lines}");
        };
        same("", "--gres=gpu:2");
        same("#SBATCH --gres=gpu", "--gres=gpu:2");
        same("#SBATCH -J x --gres gpu:a100:4 # four", "--gres=gpu:a100:2");
        same("#SBATCH --gres=lscratch:10,gres/gpu:a100", "--gres=gpu:a100:2,lscratch:10");
        same("#SBATCH -G4", "--gpus=2");
        same("#SBATCH -G a100:4", "--gpus=a100:2");
        same("#SBATCH --gpus-per-node=8", "--gpus-per-node=2");
        let typed = asked("#SBATCH --gres=gpu:4", &["--gres=gpu:h100:1"]).unwrap();
        assert_eq!(typed[0], "--gres=gpu:h100:2", "the command line counts");
        assert!(asked("#SBATCH --colocate=memory=4G", &[]).unwrap().contains(&"--colocate=no".to_owned()));
    }

    #[test]
    fn ranks_go_with_gpus_where_there_is_one_for_each() {
        let last = |lines: &str| asked(lines, &[]).unwrap().pop().unwrap();
        assert_eq!(last("#SBATCH --gres=gpu:4 --ntasks-per-node=4"), "--ntasks-per-node=2");
        assert_eq!(last("#SBATCH --gres=gpu:4\n#SBATCH -n 4"), "--ntasks=2");
        assert_eq!(last("#SBATCH --gres=gpu:4 -n 8"), "--nodes=1", "these are no ranks of GPUs");
        assert_eq!(last("#SBATCH --gres=gpu:1 -n 1"), "--nodes=1");
    }

    #[test]
    fn on_several_nodes_each_has_as_many_gpus_and_ranks() {
        let on_two = |lines: &str| {
            let ask = ask(&format!("#!/bin/sh\n{lines}\n"), &[], true).unwrap();
            ask.options(Count { gpus: 8, nodes: 2, cpus_per_gpu: Some(4) }).join(" ")
        };
        assert_eq!(on_two("#SBATCH --gres=gpu:a100:4"), "--gres=gpu:a100:4 --nodes=2 --cpus-per-task=16");
        assert_eq!(on_two("#SBATCH -G 4"), "--gpus=8 --gpus-per-node=4 --nodes=2 --cpus-per-task=16");
        assert_eq!(
            on_two("#SBATCH --gpus-per-node=4 --ntasks-per-node=4"),
            "--gpus-per-node=4 --nodes=2 --ntasks-per-node=4 --cpus-per-task=4"
        );
        assert_eq!(
            on_two("#SBATCH --gres=gpu:4 -n 4"),
            "--gres=gpu:4 --nodes=2 --ntasks=8 --cpus-per-task=4"
        );
        // One a node starts the ranks there (torchrun).
        assert_eq!(
            on_two("#SBATCH --gres=gpu:4 --ntasks-per-node=1"),
            "--gres=gpu:4 --nodes=2 --cpus-per-task=16"
        );
        assert_eq!(
            on_two("#SBATCH --gres=gpu:4 -n1"),
            "--gres=gpu:4 --nodes=2 --ntasks=2 --cpus-per-task=16"
        );
    }

    #[test]
    fn what_a_script_says_of_nodes_and_partition_is_known() {
        let of = |lines: &str, options: &[&str]| {
            let options: Vec<String> = options.iter().map(|option| (*option).to_owned()).collect();
            ask(&format!("#!/bin/sh\n{lines}\n"), &options, false).unwrap()
        };
        assert_eq!(of("", &[]).nodes(), NodesAsked::Nothing);
        assert_eq!(of("#SBATCH -N 1", &[]).nodes(), NodesAsked::One);
        for several in ["-N2", "--nodes=1-4", "--nodes 2", "--nodes=1,2"] {
            assert_eq!(of(&format!("#SBATCH {several}"), &[]).nodes(), NodesAsked::Several, "{several}");
        }
        let low = of("#SBATCH -p low", &[]);
        assert_eq!((low.partition(None), low.partition(Some("env"))), (Some("low"), Some("env")));
        assert_eq!(of("#SBATCH -p low", &["-phigh"]).partition(Some("env")), Some("high"));
    }

    #[test]
    fn cpus_of_a_gpu_are_those_of_its_tasks() {
        let cpus = |lines: &str| {
            let ask = ask(&format!("#!/bin/sh\n{lines}\n"), &[], true).unwrap();
            ask.options(Count { gpus: 4, nodes: 1, cpus_per_gpu: Some(8) }).pop().unwrap()
        };
        assert_eq!(cpus("#SBATCH --gres=gpu:1 -c 4"), "--cpus-per-task=32");
        assert_eq!(cpus("#SBATCH --gres=gpu:2 --ntasks=2"), "--cpus-per-task=8");
        assert_eq!(cpus("#SBATCH --gres=gpu:1 --ntasks=3"), "--cpus-per-task=11");
    }

    #[test]
    fn what_cannot_be_run_at_several_counts_says_why() {
        let why = |lines: &str| asked(lines, &[]).unwrap_err().to_string();
        assert!(why("#SBATCH --gpus-per-task=1").starts_with("take --gpus-per-task out"));
        assert_eq!(why("#SBATCH -a 1-4"), "take --array out: each run is one job");
        assert!(why("#SBATCH --cpus-per-gpu=4").starts_with("take --cpus-per-gpu out"));
        for unclear in
            ["--gres=gpu:a100:2,gpu:h100:2", "--gpus=a100:2,h100:1", "--gres=gpu:a:b:2", "-G99999999999"]
        {
            assert!(why(&format!("#SBATCH {unclear}")).contains("is no number of GPUs"), "{unclear}");
        }
        assert!(ask("train\n", &[], false).unwrap_err().to_string().contains("does not begin with '#!'"));
    }
}
