//! `pillion scale`: how many GPUs a training is worth, from files of runs, or from the runs that the scheduler knows. Nothing is
//! changed; what is said of runs is `pillion-scale`'s.

mod amounts;
mod causes;
mod observed;
mod plot;
mod show;
mod summary;

use super::replay::read_sacct;
use crate::args::{BudgetArg, ScaleArgs};
use crate::client::{Target, connect};
use crate::error::CliError;
use crate::format;
use crate::output::Answer;
use pillion_core::Fraction;
use pillion_core::units::JOULES_PER_KILOWATT_HOUR;
use pillion_replay::read::{Besides, ReadTally};
use pillion_scale::answers::Budget;
use pillion_scale::read::{ReadError, Tally, read};
use pillion_scale::{EFFICIENCY_USUAL, History, Measure, NodeShape, Table, Watched, Workload, of_accounting};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

/// What was read, and what of it was not used.
#[derive(Debug, Clone, Default, Serialize)]
struct Input {
    /// Rows of the file.
    rows: u64,
    /// Runs that count.
    runs: usize,
    /// What was not taken, by cause: `rows not in UTF-8`.
    left_out: Vec<LeftOut>,
    /// There are more rows, which are older; of files all are read.
    is_cut: bool,
}

#[derive(Debug, Clone, Serialize)]
struct LeftOut {
    count: u64,
    cause: String,
}

impl LeftOut {
    fn new(count: u64, cause: String) -> Self {
        Self { count, cause }
    }
}

/// What one run may cost, and how it was asked.
struct Asked {
    budget: Budget,
    words: String,
}

/// Does what was asked for.
///
/// # Errors
/// [`CliError::File`]; [`CliError::Data`] in one sentence for a file that makes no sense, a workload that is not in it, or one of which
/// nothing can be said; [`CliError::Usage`] for questions that do not fit it; as [`crate::client::answer`] where the scheduler is asked.
pub async fn make(args: &ScaleArgs, address: &Target) -> Result<Answer, CliError> {
    let budgets = budgets(args)?;
    let Found { history, input, watched } = match (&args.from, &args.sacct) {
        (Some(path), _) => read_csv(path)?,
        (None, Some(path)) => of_accounts(path)?,
        (None, None) => {
            observed::fetch(&mut connect(address).await?, args.workload.as_deref(), args.by).await?
        }
    };
    let Some(name) = &args.workload else {
        if args.deadline.is_some() || !budgets.is_empty() || args.work.is_some() {
            let other = "--deadline, --budget and --work are asked of one workload: name it (without them 'pillion scale' lists all)";
            return Err(CliError::Usage(other.to_owned()));
        }
        return Ok(summary::answer(&history, &input, args));
    };
    let workload = match (&args.from, &args.sacct) {
        // The scheduler has found it already, by its name or its key.
        (None, None) => of_models(history.workloads.iter().collect(), name, args)?,
        _ => of_models(history.named(name), name, args)?,
    };
    if workload.measure == Measure::Elapsed && args.work.is_some() {
        return Err(CliError::Usage(
            "--work: this workload's times are of whole runs; only progress a second has units".to_owned(),
        ));
    }
    if workload.measure == Measure::Progress
        && args.work.is_none()
        && (args.deadline.is_some() || !budgets.is_empty())
    {
        return Err(CliError::Usage(
            "say with --work of how many units of progress the deadline or the budget is".to_owned(),
        ));
    }
    let shape = args.gpus_per_node.map_or_else(|| NodeShape::seen(&workload.runs), NodeShape::of);
    let table = Table::of(workload.measure, &workload.runs, shape, args.work.unwrap_or(1.0))
        .map_err(|refusal| CliError::Data(format!("{}: {refusal}", workload.name)))?;
    let watched = watched.get(&(workload.name.clone(), workload.gpu_model.clone()));
    let causes = pillion_scale::causes(&table, watched.map_or(&[], Vec::as_slice));
    let questions =
        show::Questions { efficiency: args.efficiency, deadline_seconds: args.deadline, budgets: &budgets };
    Ok(show::answer(workload, &table, &input, &questions, &causes))
}

/// What the runs of a campaign say; `None` until two counts are measured.
pub(crate) fn of_campaign(workload: &Workload) -> Option<Answer> {
    let shape = NodeShape::seen(&workload.runs);
    let table = Table::of(workload.measure, &workload.runs, shape, 1.0).ok()?;
    let runs = workload.runs.len();
    let input =
        Input { rows: u64::try_from(runs).unwrap_or(u64::MAX), runs, left_out: Vec::new(), is_cut: false };
    let efficiency = Fraction::try_new(EFFICIENCY_USUAL).ok()?;
    let questions = show::Questions { efficiency, deadline_seconds: None, budgets: &[] };
    Some(show::answer(workload, &table, &input, &questions, &[]))
}

fn budgets(args: &ScaleArgs) -> Result<Vec<Asked>, CliError> {
    let budget = |asked: &BudgetArg| match *asked {
        BudgetArg::GpuHours(hours) => {
            Ok(Asked { budget: Budget::GpuHours(hours), words: format!("{hours} GPU-hours") })
        }
        BudgetArg::KilowattHours(hours) => Ok(Asked {
            budget: Budget::Joules(hours * JOULES_PER_KILOWATT_HOUR),
            words: format!("{hours} kWh"),
        }),
        BudgetArg::Money(amount) => {
            let price = args.price.filter(|price| *price > 0.0).ok_or_else(|| {
                CliError::Usage(format!(
                    "--budget {amount}: an amount of money needs --price, above 0, for a GPU-hour; or write {amount}gpuh or {amount}kwh"
                ))
            })?;
            Ok(Asked { budget: Budget::GpuHours(amount / price), words: format!("{amount} at your price") })
        }
    };
    args.budget.iter().map(budget).collect()
}

/// The one of these workloads, which are called so, that is meant.
fn of_models<'h>(
    mut found: Vec<&'h Workload>,
    name: &str,
    args: &ScaleArgs,
) -> Result<&'h Workload, CliError> {
    if found.is_empty() {
        return Err(CliError::Data(format!(
            "there is no workload '{name}' in it; leave the name out to see which there are"
        )));
    }
    if let Some(model) = &args.gpu_model {
        let models = format::listed(found.iter().map(|it| model_name(&it.gpu_model)));
        found.retain(|it| it.gpu_model.eq_ignore_ascii_case(model));
        if found.is_empty() {
            return Err(CliError::Data(format!("'{name}' did not run on '{model}'; it ran on {models}")));
        }
    }
    match *found.as_slice() {
        [only] => Ok(only),
        ref several => {
            let names = several.iter().map(|it| match it.gpu_model.as_str() {
                "" => it.name.clone(),
                model => format!("{} on {model}", it.name),
            });
            Err(CliError::Data(format!(
                "'{name}' is several: {}; write one name whole, and --gpu-model where the same ran on several",
                format::listed(names)
            )))
        }
    }
}

fn model_name(model: &str) -> &str {
    if model.is_empty() { "a model that is not known" } else { model }
}

/// What was found.
#[derive(Default)]
struct Found {
    history: History,
    input: Input,
    /// What devices did in the runs of a workload on a model of GPU, the newest first; of files nothing is known of that.
    watched: BTreeMap<(String, String), Vec<Watched>>,
}

fn of_accounts(path: &Path) -> Result<Found, CliError> {
    let (accounting, tally) = read_sacct(path, &Besides::default())?;
    let (jobs, history) = (accounting.jobs.len(), of_accounting(&accounting));
    let input = of_sacct(&tally, jobs, &history);
    if history.workloads.is_empty() {
        let path = path.display();
        return Err(CliError::Data(format!("{path}: none of the {jobs} jobs in it is COMPLETED")));
    }
    Ok(Found { history, input, ..Found::default() })
}

fn read_csv(path: &Path) -> Result<Found, CliError> {
    let file = File::open(path).map_err(CliError::file("read", path))?;
    let (history, tally) = read(BufReader::new(file)).map_err(|error| match error {
        ReadError::Io(source) => CliError::file("read", path)(source),
        other => CliError::Data(format!("{}: {other}", path.display())),
    })?;
    let Tally { rows, dropped } = tally;
    let left_out =
        dropped.into_iter().map(|(fault, count)| LeftOut::new(count, format!("rows {}", fault.text())));
    let input = Input { rows, runs: runs(&history), left_out: left_out.collect(), is_cut: false };
    Ok(Found { history, input, ..Found::default() })
}

fn of_sacct(tally: &ReadTally, jobs: usize, history: &History) -> Input {
    let runs = runs(history);
    let rows =
        tally.dropped.iter().map(|(fault, count)| LeftOut::new(*count, format!("rows {}", fault.text())));
    let set_aside =
        tally.set_aside.iter().map(|(why, count)| LeftOut::new(*count, format!("jobs {}", why.text())));
    let mut left_out: Vec<LeftOut> = rows.chain(set_aside).collect();
    if jobs > runs {
        let count = u64::try_from(jobs - runs).unwrap_or(u64::MAX);
        left_out.push(LeftOut::new(count, "jobs that did not end as COMPLETED".to_owned()));
    }
    Input { rows: tally.rows, runs, left_out, is_cut: false }
}

fn runs(history: &History) -> usize {
    history.workloads.iter().map(|workload| workload.runs.len()).sum()
}
