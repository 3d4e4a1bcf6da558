//! The words of the demo in the shadow. Knows no cluster.

use super::{command, heading, indented};
use pillion_core::SlurmJobId;

/// The first time that anybody sees these jobs.
pub(in crate::demo) fn first_runs() {
    println!(
        "\nReal Slurm with one node of four whole GPUs, as it was: nothing of Pillion stands in its configuration. Only the GPUs are\n\
         simulated, and work goes 60 times faster than in life."
    );
    heading(
        1,
        "alice and bob run what they always run; bob has also forgotten a job that sleeps. Agents look, and change nothing.",
    );
    command(
        "alice",
        "sbatch --gres=gpu:1 images.sh        # and so on, twice: four workloads, of which nothing is known yet",
    );
}

/// The second time.
pub(in crate::demo) fn again() {
    heading(
        2,
        "Now they run them again, all at once: more jobs than GPUs. The planner decides, and nothing of it is done.",
    );
}

/// What would have been done.
pub(in crate::demo) fn report(text: &str) {
    heading(3, "What would have been done, held against what ran.");
    command("root", "pillion shadow report -S now-1hour");
    print!("{}", indented(text));
}

/// Of one of them.
pub(in crate::demo) fn why(job: SlurmJobId, text: &str) {
    command("alice", &format!("pillion why {job}                       # users ask about their own jobs"));
    print!("{}", indented(text));
}

/// Who holds what he does not use.
pub(in crate::demo) fn idle(text: &str) {
    heading(4, "What is held without work.");
    command("root", "pillion idle --for 1m");
    print!("{}", indented(text));
}

/// What of Slurm and of jobs is otherwise.
pub(in crate::demo) fn unchanged() {
    heading(
        5,
        "slurm.conf, what Slurm says of itself, and the environment and record of jobs of both users, with Pillion and without.",
    );
    println!("  No word is otherwise.");
}
