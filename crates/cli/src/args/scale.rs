//! How many GPUs.

use super::replay::parse_amount;
use clap::{Args as ClapArgs, ValueEnum};
use pillion_core::Fraction;
use std::path::PathBuf;

const INPUT: &str = "What ran";
const QUESTION: &str = "What is asked";

/// What may be spent on one run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum BudgetArg {
    /// GPU-hours.
    GpuHours(f64),
    /// Kilowatt-hours.
    KilowattHours(f64),
    /// Whatever --price counts in.
    Money(f64),
}

/// What runs are compared by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum MeasureArg {
    /// How long they took
    Elapsed,
    /// What they came forward a second
    Progress,
}

#[derive(Debug, ClapArgs)]
pub struct ScaleArgs {
    /// This workload: its name, or a part of it; without it all of them at a glance
    #[arg(value_name = "WORKLOAD")]
    pub workload: Option<String>,
    /// Runs, a row each.
    #[arg(
        help = "Runs, a row each (CSV): docs/scale.md names the columns; MLPerf's results and Sia's measurements are known by theirs. Without \
                this and --sacct: completed runs that the scheduler knows",
        long, value_name = "CSV", conflicts_with = "sacct",
        help_heading = INPUT
    )]
    pub from: Option<PathBuf>,
    /// What the command of 'pillion replay --print-sacct' wrote: of it the completed jobs
    #[arg(long, value_name = "FILE", help_heading = INPUT)]
    pub sacct: Option<PathBuf>,
    /// What is compared of runs that the scheduler knows: how long they took, or what each came forward a second by its own counter
    /// (`PILLION_PROGRESS`), in the pool
    #[arg(long, value_name = "WHAT", default_value = "elapsed", conflicts_with_all = ["from", "sacct"], help_heading = INPUT)]
    pub by: MeasureArg,
    /// Only runs on this model of GPU, as the file spells it
    #[arg(long, value_name = "MODEL", help_heading = INPUT)]
    pub gpu_model: Option<String>,
    /// GPUs of a node: counts that do not fill nodes are left out [default: as runs on several nodes show]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024), help_heading = INPUT)]
    pub gpus_per_node: Option<u32>,
    /// The least that a GPU may be worth, of what it is worth at the smallest measured count: break-even is the largest count that keeps it
    #[arg(long, value_name = "PART", default_value = "0.5", value_parser = parse_efficiency, help_heading = QUESTION)]
    pub efficiency: Fraction,
    /// How many GPUs are done in this time, as sbatch takes it: 90, 1:30:00, 2-00:00:00
    #[arg(long, value_name = "TIME", value_parser = parse_seconds, help_heading = QUESTION)]
    pub deadline: Option<f64>,
    /// How many GPUs may be had for this: 40gpuh, 12kwh, or 100 in what --price counts in; more than once for several
    #[arg(long, value_name = "AMOUNT", value_parser = parse_budget, help_heading = QUESTION)]
    pub budget: Vec<BudgetArg>,
    /// What a GPU-hour costs, in whatever you count in
    #[arg(long, value_name = "AMOUNT", value_parser = parse_amount, help_heading = QUESTION)]
    pub price: Option<f64>,
    /// Of how many units of progress times and costs are told, where they are told by progress a second [default: 1]
    #[arg(long, value_name = "UNITS", value_parser = parse_work, help_heading = QUESTION)]
    pub work: Option<f64>,
}

fn parse_efficiency(text: &str) -> Result<Fraction, String> {
    let part =
        text.parse().ok().filter(|part: &f64| *part > 0.0).and_then(|part| Fraction::try_new(part).ok());
    part.ok_or_else(|| "a part above 0 and up to 1 is expected; write 0.5".to_owned())
}

fn parse_work(text: &str) -> Result<f64, String> {
    let units = text.parse().ok().filter(|units: &f64| (1e-9..=1e18).contains(units));
    units.ok_or_else(|| "a number above 0 is expected; write 1e6".to_owned())
}

fn parse_budget(text: &str) -> Result<BudgetArg, String> {
    let lower = text.to_ascii_lowercase();
    let (digits, unit): (&str, fn(f64) -> BudgetArg) = if let Some(digits) = lower.strip_suffix("gpuh") {
        (digits, BudgetArg::GpuHours)
    } else if let Some(digits) = lower.strip_suffix("kwh") {
        (digits, BudgetArg::KilowattHours)
    } else {
        (&lower, BudgetArg::Money)
    };
    let amount = digits.trim().parse().ok().filter(|amount: &f64| *amount > 0.0 && *amount <= 1e12);
    amount
        .map(unit)
        .ok_or_else(|| "40gpuh, 12kwh or an amount of money (100, with --price) is expected".to_owned())
}

/// `minutes`, `minutes:seconds`, `hours:minutes:seconds`, `days-hours`, `days-hours:minutes`, `days-hours:minutes:seconds`, in seconds.
fn parse_seconds(text: &str) -> Result<f64, String> {
    let wrong = || {
        "a time above 0 as sbatch takes it is expected; write 90 (minutes), 1:30:00 or 2-00:00:00".to_owned()
    };
    let (days, clock) = match text.split_once('-') {
        Some((days, clock)) => (Some(days), clock),
        None => (None, text),
    };
    let is_number =
        |part: &str| (1..=7).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit());
    let parts: Vec<&str> = clock.split(':').collect();
    if !parts.iter().copied().chain(days).all(is_number) {
        return Err(wrong());
    }
    let number = |part: &str| part.parse::<u32>().map_or(0.0, f64::from);
    let numbers: Vec<f64> = parts.iter().map(|part| number(part)).collect();
    let clock = match (days.is_some(), numbers.as_slice()) {
        (false, [minutes]) => minutes * 60.0,
        (false, [minutes, seconds]) => minutes * 60.0 + seconds,
        (true, [hours]) => hours * 3600.0,
        (true, [hours, minutes]) => hours * 3600.0 + minutes * 60.0,
        (_, [hours, minutes, seconds]) => hours * 3600.0 + minutes * 60.0 + seconds,
        _ => return Err(wrong()),
    };
    let seconds = clock + days.map_or(0.0, number) * 86_400.0;
    if seconds > 0.0 { Ok(seconds) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_is_read_as_sbatch_reads_a_time() {
        for (text, seconds) in [
            ("90", 5400.0),
            ("1:30", 90.0),
            ("1:30:00", 5400.0),
            ("2-12", 216_000.0),
            ("1-0:30", 88_200.0),
            ("2-00:00:01", 172_801.0),
        ] {
            assert_eq!(parse_seconds(text), Ok(seconds), "{text}");
        }
        for wrong in ["", "0", "-5", "1:2:3:4", "1h", "1-", "+5", "99999999"] {
            assert!(parse_seconds(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_budget_has_its_unit_behind_it() {
        assert_eq!(parse_budget("40gpuh"), Ok(BudgetArg::GpuHours(40.0)));
        assert_eq!(parse_budget("1.5 kWh"), Ok(BudgetArg::KilowattHours(1.5)));
        assert_eq!(parse_budget("100"), Ok(BudgetArg::Money(100.0)));
        for wrong in ["", "kwh", "-3", "0gpuh", "nan", "5 hours"] {
            assert!(parse_budget(wrong).is_err(), "{wrong}");
        }
    }
}
