//! `pillion shadow`: what would have been done, and what came of it.

use clap::{Args as ClapArgs, Subcommand};

#[derive(Debug, ClapArgs)]
pub struct ShadowArgs {
    /// What to tell.
    #[command(subcommand)]
    pub action: ShadowAction,
}

/// What to tell of decisions that were only recorded.
#[derive(Debug, Subcommand)]
pub enum ShadowAction {
    /// What would have been decided in a stretch of time: who would have shared, whether they fit, what it would have saved and risked
    Report(ShadowReportArgs),
}

#[derive(Debug, ClapArgs)]
pub struct ShadowReportArgs {
    /// Of starts that were decided on from this time on [default: today]
    #[arg(short = 'S', long, value_name = "TIME")]
    pub start: Option<String>,
    /// Until this time [default: now]
    #[arg(short = 'E', long, value_name = "TIME")]
    pub end: Option<String>,
}
