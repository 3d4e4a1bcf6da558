//! What operators order, and what they watch.

use clap::Args as ClapArgs;
use pillion_core::SlurmJobId;

#[derive(Debug, ClapArgs)]
pub struct DrainArgs {
    #[arg(help = "Nodes, or GPUs of them: n1, n[1-3], n1:g0, n[1-2]:g[0-3],n5", required = true)]
    pub places: Vec<String>,
    /// Why: everybody reads it, in 'nodes', 'queue' and 'explain'
    #[arg(short, long, value_name = "TEXT")]
    pub reason: String,
}

#[derive(Debug, ClapArgs)]
pub struct UndrainArgs {
    #[arg(help = "Nodes, or GPUs of them, as they were drained: n1, n[1-3], n1:g0", required = true)]
    pub places: Vec<String>,
    /// Why, for the record
    #[arg(short, long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub reason: String,
}

#[derive(Debug, ClapArgs)]
pub struct EvictArgs {
    #[arg(help = "The job: 33, or 33_2 for an array task")]
    pub job: SlurmJobId,
    /// Why: the job's user reads it, in 'why' and 'report'
    #[arg(short, long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub reason: String,
}

#[derive(Debug, ClapArgs)]
pub struct EventsArgs {
    /// From this time on [default: today]
    #[arg(short = 'S', long, value_name = "TIME")]
    pub start: Option<String>,
    /// Until this time [default: now]
    #[arg(short = 'E', long, value_name = "TIME")]
    pub end: Option<String>,
    /// Only on these nodes: n1,n[3-5]
    #[arg(short = 'N', long, value_name = "NODES", default_value = "", hide_default_value = true)]
    pub nodes: String,
    /// Only of these jobs
    #[arg(help = "Only of these jobs: 33,33_2", short, long, value_name = "JOB,..", value_delimiter = ',')]
    pub jobs: Vec<SlurmJobId>,
    /// Only of these kinds: drained, device-fault, victim
    #[arg(short, long, value_name = "KIND,..", value_delimiter = ',')]
    pub kinds: Vec<String>,
    /// At most so many, the newest
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub limit: u32,
}

#[derive(Debug, ClapArgs)]
pub struct TopArgs {
    /// Print one frame as text, and end
    #[arg(long)]
    pub once: bool,
}
