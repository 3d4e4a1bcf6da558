//! Who plays: the jobs of the demo, each as a user would write it. Data only.

/// How long each job works when it is alone, in seconds of the simulated machine.
pub(super) const WORK_SECONDS: u32 = 480;

/// The maker of the devices that a job asks for, which is also the feature of their node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Maker {
    /// Shared by MPS.
    Nvidia,
    /// Shared by CCS modes.
    Intel,
}

impl Maker {
    /// The node's feature.
    pub(super) const fn feature(self) -> &'static str {
        match self {
            Self::Nvidia => "nvidia",
            Self::Intel => "intel",
        }
    }
}

/// One job of the demo.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    /// Whose.
    pub(super) user: &'static str,
    /// Its job name, by which the demo calls the workload.
    pub(super) name: &'static str,
    /// What `pillion-load` is asked for.
    pub(super) load: &'static str,
    /// Where it runs.
    pub(super) maker: Maker,
    /// The value of `--colocate`; empty for none.
    pub(super) colocate: &'static str,
}

const fn part(user: &'static str, name: &'static str, load: &'static str, maker: Maker) -> Part {
    Part { user, name, load, maker, colocate: "" }
}

/// In the order in which they are submitted.
pub(super) const CAST: [Part; 11] = [
    // Alice's long computation may be slowed: she would rather have it start.
    Part { colocate: "=max-slowdown=2", ..part("alice", "gemm-hog", "gemm-hog", Maker::Nvidia) },
    part("alice", "bert-small-batch", "bert-small-batch", Maker::Nvidia),
    part("alice", "gromacs", "gromacs", Maker::Nvidia),
    part("bob", "llama-infer", "llama-infer", Maker::Nvidia),
    part("bob", "spmv-bandwidth", "spmv-bandwidth", Maker::Nvidia),
    part("bob", "stencil-cache", "stencil-cache", Maker::Nvidia),
    part("bob", "llama-finetune", "llama-finetune", Maker::Nvidia),
    part("alice", "ResNet-50-b2", "ResNet-50 --batch-size 2", Maker::Intel),
    part("bob", "ResNet-50-b2", "ResNet-50 --batch-size 2", Maker::Intel),
    part("alice", "BERT-Base-b8", "BERT-Base --batch-size 8", Maker::Intel),
    part("bob", "Llama3.1-8B-b64", "Llama3.1-8B --batch-size 64", Maker::Intel),
];

impl Part {
    /// The batch script.
    pub(super) fn script(&self) -> String {
        let Self { user: _, name, load, maker, colocate } = self;
        format!(
            "#!/bin/bash\n#SBATCH --job-name={name} --gpus=1 --constraint={feature} --time=10\n\
             #SBATCH --colocate{colocate}\n\
             echo \"began $EPOCHREALTIME\"\n\
             env | grep -E '^(CUDA_|ZE|PILLION_DECISION)' | sort\n\
             pillion-load {load} --seconds {WORK_SECONDS}\n\
             echo \"ended $EPOCHREALTIME\"\n",
            feature = maker.feature()
        )
    }

    /// How the demo calls the workload: `alice/gromacs`.
    pub(super) fn title(&self) -> String {
        format!("{}/{}", self.user, self.name)
    }
}

/// A script as it is shown: what only the demo wants left out, and the one new line pointed at.
pub(super) fn shown(script: &str) -> String {
    let is_shown = |line: &&str| line.starts_with('#') || line.starts_with("pillion-load");
    let lines = script.lines().filter(is_shown).map(|line| {
        let note = if line.starts_with("#SBATCH --colocate") { "      <- the one new line" } else { "" };
        format!("    {line}{note}")
    });
    lines.collect::<Vec<_>>().join("\n")
}
