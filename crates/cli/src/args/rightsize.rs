//! `pillion rightsize`: whose workloads, and how often they must have run.

use clap::Args as ClapArgs;

#[derive(Debug, ClapArgs)]
pub struct RightsizeArgs {
    /// Only this user's workloads
    #[arg(short, long, default_value = "", hide_default_value = true)]
    pub user: String,
    /// Only what ran so often at least, alone
    #[arg(long, value_name = "COUNT", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: u32,
    /// Print a text for each user instead, to be sent by mail
    #[arg(long, conflicts_with_all = ["json", "parsable2", "columns"])]
    pub mail: bool,
}
