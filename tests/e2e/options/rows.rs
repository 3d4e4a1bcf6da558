//! The rows: every option of `sbatch` that has to do with what a job gets, and what `--colocate` makes of it.

/// What becomes of a row with `--colocate`.
pub(super) enum Outcome {
    /// The field that named the GPU, the request in it, and the other GRES, as the mark keeps them.
    Managed(&'static str, &'static str, &'static str),
    /// A part of the sentence that says why; empty where there is nothing to say.
    Untouched(&'static str),
}
use Outcome::{Managed, Untouched};

/// Whether a row's job starts once its partition is open.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Then {
    Runs,
    /// What it gets depends on what is free: only that it ran is compared.
    RunsSomehow,
    /// Only the pool has what it asks for.
    RunsManaged,
    Waits,
}
use Then::{Runs, RunsManaged, RunsSomehow, Waits};

pub(super) type Row = (&'static str, Outcome, Then);

/// GPUs of one node, in every way to say it, or of each of several; and what goes well with that.
pub(super) static MANAGED: [Row; 44] = [
    ("--gres=gpu:1 -N2", Managed("node", "gpu:1", ""), Runs),
    ("--gres=gpu:4,lscratch:9 -N2 -n4 -c2", Managed("node", "gpu:4", "lscratch:9"), Runs),
    ("--gres=gpu:2", Managed("node", "gpu:2", ""), Runs),
    ("--gpus=2 -N1", Managed("job", "gpu:2", ""), Runs),
    ("--gpus-per-node=3", Managed("node", "gpu:3", ""), Runs),
    ("--gpus-per-task=2 -n1", Managed("task", "gpu:2", ""), Runs),
    (
        "--gres=gpu:2,lscratch:9 --cpus-per-gpu=2 --mem-per-gpu=1G",
        Managed("node", "gpu:2", "lscratch:9"),
        Runs,
    ),
    ("--gpus=2 -N1 --array=3-4", Managed("job", "gpu:2", ""), Runs),
    ("--gpus=2 -N1 -x n2", Managed("job", "gpu:2", ""), Runs),
    ("--gpus=2 -N1 -C fast", Managed("job", "gpu:2", ""), Runs),
    ("--gpus=2 -N1 --begin=now+1hour", Managed("job", "gpu:2", ""), Waits),
    ("--gpus=2 -N1 --dependency=afterany:1", Managed("job", "gpu:2", ""), Runs),
    ("--gres=gpu:h200:4 -N1 -n4", Managed("node", "gpu:h200:4", ""), RunsManaged),
    ("--gres=gpu:1", Managed("node", "gpu:1", ""), Runs),
    ("--gres=gpu", Managed("node", "gpu", ""), Runs),
    ("--gpus=1", Managed("job", "gpu:1", ""), Runs),
    ("-G1 -N1 -n4", Managed("job", "gpu:1", ""), Runs),
    ("--gpus-per-node=1", Managed("node", "gpu:1", ""), Runs),
    ("--gpus-per-task=1 -n1", Managed("task", "gpu:1", ""), Runs),
    ("--gpus-per-socket=1 --sockets-per-node=1", Managed("socket", "gpu:1", ""), Runs),
    ("--tres-per-task=cpu=2,gres/gpu=1 -n1", Managed("task", "gpu:1", ""), Runs),
    ("--gres=gpu:h200:1", Managed("node", "gpu:h200:1", ""), RunsManaged),
    ("--gpus=h200:1", Managed("job", "gpu:h200:1", ""), RunsManaged),
    ("--gres=gpu:1,lscratch:100", Managed("node", "gpu:1", "lscratch:100"), Runs),
    ("--gpus=1 --gres=lscratch:7", Managed("job", "gpu:1", "lscratch:7"), Runs),
    ("--gres=gpu:1 -c4", Managed("node", "gpu:1", ""), Runs),
    ("--gpus=1 --cpus-per-gpu=3", Managed("job", "gpu:1", ""), Runs),
    ("--gpus=1 --mem-per-gpu=2G", Managed("job", "gpu:1", ""), Runs),
    ("--gres=gpu:1 --mem=512", Managed("node", "gpu:1", ""), Runs),
    ("--gres=gpu:1 --mem-per-cpu=300 -c2", Managed("node", "gpu:1", ""), Runs),
    ("--gres=gpu:1 -x n2", Managed("node", "gpu:1", ""), Runs),
    ("--gres=gpu:1 -C fast", Managed("node", "gpu:1", ""), Runs),
    ("--gres=gpu:1 -s", Managed("node", "gpu:1", ""), Runs),
    ("--gres=gpu:1 -t3 --nice=5 --no-requeue", Managed("node", "gpu:1", ""), Runs),
    ("--gres=gpu:1 -J name --comment=word", Managed("node", "gpu:1", ""), Runs),
    ("--gres=gpu:1 --gres-flags=disable-binding", Managed("node", "gpu:1", ""), Runs),
    ("--gres=gpu:1 --signal=USR1@30 --mail-type=END", Managed("node", "gpu:1", ""), Runs),
    ("--gres=gpu:1 --open-mode=append --chdir=/tmp", Managed("node", "gpu:1", ""), Runs),
    ("--gres=gpu:1 -p gpu", Managed("node", "gpu:1", ""), Runs),
    ("--gres=gpu:1 --export=NONE", Managed("node", "gpu:1", ""), Runs),
    ("--gres=gpu:1 --ntasks-per-node=1 --mincpus=2", Managed("node", "gpu:1", ""), Runs),
    ("--gres=gpu:1 --array=3-4", Managed("node", "gpu:1", ""), Runs),
    ("--gres=gpu:1 --begin=now+1hour", Managed("node", "gpu:1", ""), Waits),
    ("--gres=gpu:1 --dependency=afterany:1", Managed("node", "gpu:1", ""), Runs),
];

/// An unknown number of nodes; or something that a shared GPU, or shards of several, cannot give.
pub(super) static UNTOUCHED: [Row; 36] = [
    ("", Untouched("no GPU"), Runs),
    ("--gres=lscratch:5", Untouched("no GPU"), Runs),
    ("--gpus-per-task=2 -n2 -N1", Untouched("--ntasks=1"), Runs),
    // On the one node that is left: of two, Slurm might take a GPU of each, and the step asks for both of one.
    ("--gpus=2 -x w2", Untouched("from several nodes"), Runs),
    ("--gpus=4 -x w2", Untouched("from several nodes"), Runs),
    ("--gres=gpu:2 -N1 --exclusive", Untouched("--exclusive"), Runs),
    ("--gpus=2 -N1 -w w1", Untouched("-w"), Runs),
    ("--gpus-per-socket=2 --sockets-per-node=1", Untouched("by socket"), Runs),
    // Never started: Slurm would count its GPUs by the one task of the step.
    ("--gpus=2 -n2 -N1 --ntasks-per-gpu=1 --begin=now+1hour", Untouched("--ntasks-per-gpu"), Waits),
    ("--gres=gpu:g0:1,gpu:g1:1", Untouched("more than one place"), Runs),
    ("--gpus=1 --gres=gpu:1", Untouched("more than one place"), Runs),
    ("--gres=gpu:g1:1", Untouched("no GPU of that type"), Runs),
    ("--gpus-per-task=1 -n2", Untouched("more than one node"), RunsSomehow),
    ("--gpus-per-task=1 -n2 -N1", Untouched("--ntasks=1"), Runs),
    ("--gpus-per-socket=1 --sockets-per-node=1 -N2", Untouched("asked for by node"), Runs),
    ("--gres=gpu:1 -n4", Untouched("--nodes=1"), Runs),
    ("--gres=gpu:1 -N1-2", Untouched("--nodes=1"), RunsSomehow),
    ("--gres=gpu:1 --exclusive", Untouched("--exclusive"), Runs),
    ("--gres=gpu:1 --exclusive=user", Untouched("--exclusive"), Runs),
    ("--gres=gpu:1 -w w1", Untouched("-w"), Runs),
    ("--gres=gpu:1 -C old", Untouched("features of -C"), Runs),
    ("--gres=gpu:1 -C old|fast", Untouched("features of -C"), Runs),
    ("--gres=gpu:1 -H", Untouched("held"), Waits),
    ("--gres=gpu:1 --reservation=later", Untouched("reservation"), Waits),
    ("--gres=gpu:1 --deadline=now+1hour -t2", Untouched("--deadline"), Runs),
    ("--gres=gpu:1 --gres-flags=enforce-binding", Untouched("enforce-binding"), RunsSomehow),
    ("--gpus=1 -n1 --gpu-bind=closest", Untouched("--gpu-bind"), Runs),
    ("--gpus=1 -n1 --gpu-freq=low", Untouched("--gpu-freq"), Runs),
    ("--gpus=1 -n1 -N1 --ntasks-per-gpu=1", Untouched("--ntasks-per-gpu"), Runs),
    ("--gres=gpu:1 --batch=old -C old", Untouched("--batch"), Runs),
    ("--gres=gpu:1 -N1 -n40", Untouched("too few CPUs"), Runs),
    ("--gres=gpu:1 -p whole", Untouched("exclusive to one user"), Runs),
    ("--gres=gpu:1 -p gpu,brief", Untouched("write --time"), Runs),
    ("--gres=gpu:1 -t30:00:00 -p long", Untouched("shorter time limit"), Runs),
    ("--gres=gpu:1 : --gres=gpu:1", Untouched("heterogeneous"), Runs),
    ("--gres=gpu:1 --colocate=no", Untouched(""), Runs),
];

/// What Slurm knows since 25.11.
pub(super) static SINCE_25_11: [Row; 1] =
    [("--gres=gpu:1 --requeue=expedite", Untouched("--requeue=expedite"), Runs)];

/// Refused for everybody but root, with a part of what is said.
pub(super) static REFUSED: [(&str, &str); 16] = [
    (
        "--gres=gpu:1 --colocate=maybe",
        "unknown setting 'maybe'; allowed are yes, no, guest, session, max-slowdown=R",
    ),
    ("--gres=gpu:1 --colocate=max-slowdown=0.5", "write a number from 1 to 10"),
    ("--gres=gpu:1 --colocate=max-slowdown=fast", "write a number from 1 to 10"),
    ("--gres=gpu:1 --colocate=memory=lots", "such as 8G"),
    ("--gres=gpu:1 --colocate=memory=17T", "at most 16T"),
    ("--gres=gpu:1 --colocate=profile=", "1 to 64 letters"),
    ("--gres=gpu:1 --colocate=profile=a,profile=b", "given twice"),
    ("--gres=gpu:1 --colocate=profile=a;b", "may hold only"),
    ("--gres=gpu:1 -p shared", "write --colocate"),
    ("--gres=gpu:1 -p gpu,shared", "write --colocate"),
    ("--gpus=2 -p shared --colocate", "write --colocate"),
    ("--gres=shard:1", "shards are given out by Pillion alone"),
    ("--gres=shard:g1:10 -p shared --colocate", "shards are given out by Pillion alone"),
    // Slurm itself refuses these two, before anybody is asked.
    ("--gres=gpu:1,shard:g1:1 -p shared --colocate", "Invalid generic resource"),
    ("--tres-per-task=gres/shard=1 -n1 -p shared", "shards are given out by Pillion alone"),
    ("--gres=SHARD:1 -p shared", "Invalid generic resource"),
];
