//! `pillion replay`: what last month would have looked like, from files. Nothing of the site is asked or changed. Settings run
//! side by side; what each of them does is `pillion-replay`'s.

mod anonymise;
mod show;

use crate::args::{ReplayAction, ReplayArgs};
use crate::error::CliError;
use crate::output::{Answer, Block, Table, json};
use indicatif::{ParallelProgressIterator as _, ProgressBar, ProgressStyle};
use pillion_replay::read::{ReadError, ReadTally, SacctCommand, Telemetry, read};
use pillion_replay::site::{self, GpuMemory, NodeShape};
use pillion_replay::{Accounting, Carbon, Options, Outcome, Replay};
use rayon::prelude::*;
use serde::Serialize;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

/// What is read of a file at once.
const BUFFER_BYTES: usize = 1 << 20;

/// Does what was asked for.
///
/// # Errors
/// [`CliError::File`]; [`CliError::Data`] in one sentence for a file that makes no sense; [`CliError::Usage`] where the nodes are missing.
pub fn make(args: &ReplayArgs) -> Result<Answer, CliError> {
    if let Some(ReplayAction::Anonymise(order)) = &args.action {
        return anonymise::make(order);
    }
    if args.print_sacct {
        return print_sacct(args);
    }
    let Some(file) = &args.sacct else {
        return Err(CliError::Usage("name the file that the command of --print-sacct wrote".to_owned()));
    };
    let (shapes, nodes_left_out) = shapes(args)?;
    let memory = GpuMemory::of(&args.gpu_memory).map_err(|error| CliError::Usage(error.to_string()))?;
    let telemetry = match &args.telemetry {
        Some(path) => Telemetry::read(open(path)?).map_err(|error| of_reading(error, path))?,
        None => Telemetry::default(),
    };
    let carbon = args.carbon.as_deref().map(carbon).transpose()?;
    let (accounting, tally) = read_sacct(file, &telemetry)?;
    drop(telemetry);
    let options = Options { carbon, ..options(args, accounting.jobs.len()) };
    let replay = Replay::new(accounting, shapes, memory, options)
        .map_err(|error| CliError::Data(error.to_string()))?;
    let report = replay.report(&tally, &run(&replay));
    if let Some(path) = &args.html {
        std::fs::write(path, pillion_replay::report::html(&report)).map_err(CliError::file("write", path))?;
    }
    Ok(show::answer(&report, nodes_left_out, args.html.as_deref()))
}

/// Every setting, side by side.
fn run(replay: &Replay) -> Vec<Outcome> {
    let tasks = replay.tasks();
    let bar = ProgressBar::new(tasks.len() as u64)
        .with_style(style("{pos}/{len} simulations {wide_bar} {eta} left"));
    let outcomes = tasks.into_par_iter().progress_with(bar.clone()).map(|task| replay.run(task)).collect();
    bar.finish_and_clear();
    outcomes
}

/// A file of sacct, with a bar that shows how far it is read.
pub(super) fn read_sacct(path: &Path, telemetry: &Telemetry) -> Result<(Accounting, ReadTally), CliError> {
    let file = open(path)?;
    let length = file.metadata().map_or(0, |metadata| metadata.len());
    let bar = ProgressBar::new(length).with_style(style("{bytes}/{total_bytes} read {wide_bar} {eta} left"));
    let found = read(BufReader::with_capacity(BUFFER_BYTES, bar.wrap_read(file)), telemetry);
    bar.finish_and_clear();
    found.map_err(|error| of_reading(error, path))
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

fn open(path: &Path) -> Result<File, CliError> {
    File::open(path).map_err(CliError::file("read", path))
}

fn of_reading(error: ReadError, path: &Path) -> CliError {
    match error {
        ReadError::Io(source) => CliError::file("read", path)(source),
        other => CliError::Data(format!("{}: {other}", path.display())),
    }
}

/// The nodes, and how many of the file are left out for they cannot be read.
fn shapes(args: &ReplayArgs) -> Result<(Vec<NodeShape>, usize), CliError> {
    if let Some(path) = &args.nodes {
        let text = std::fs::read_to_string(path).map_err(CliError::file("read", path))?;
        let nodes = site::read_nodes(&text)
            .map_err(|error| CliError::Data(format!("{}: {error}", path.display())))?;
        return Ok((nodes.shapes, nodes.unread));
    }
    if args.shape.is_empty() {
        let missing = "the nodes are missing: give what 'scontrol show nodes' prints with --nodes, or their number and shape with \
                       --shape (16x4:a100:64:512)";
        return Err(CliError::Usage(missing.to_owned()));
    }
    let mut shapes = Vec::new();
    for (at, shape) in args.shape.iter().enumerate() {
        let nodes = site::parse_shape(shape).map_err(|error| CliError::Usage(error.to_string()))?;
        // Two of one type have names of their own.
        shapes.extend(
            nodes.into_iter().map(|node| NodeShape { name: format!("{}-{}", at + 1, node.name), ..node }),
        );
    }
    Ok((shapes, 0))
}

fn carbon(text: &str) -> Result<Carbon, CliError> {
    if let Ok(grams) = text.parse() {
        let wrong =
            || CliError::Usage("--carbon: grams a kilowatt-hour are from 0 to 5000; write 320".to_owned());
        return Carbon::constant(grams).ok_or_else(wrong);
    }
    let path = Path::new(text);
    let rows = std::fs::read_to_string(path).map_err(CliError::file("read", path))?;
    Carbon::parse(&rows).map_err(|error| CliError::Data(format!("{}: {error}", path.display())))
}

fn options(args: &ReplayArgs, job_count: usize) -> Options {
    let mut options = Options::usual(job_count);
    if !args.pool.is_empty() {
        options.pools.clone_from(&args.pool);
    }
    if !args.adoption.is_empty() {
        options.adoptions.clone_from(&args.adoption);
    }
    options.policy.users = args.users.into();
    options.policy.tenants_max = args.max_tenants;
    if let Some(promise) = args.max_slowdown {
        options.policy.slowdown_ratio_max = promise;
    }
    options.mechanism = args.mechanism;
    options.seeds = args.seeds.unwrap_or(options.seeds);
    options.plan_seconds = args.plan_seconds.map_or(options.plan_seconds, f64::from);
    options.order = args.order.map(Into::into);
    options.idle_watts = args.idle_watts;
    options.price_per_gpu_hour = args.price;
    options
}

#[derive(Serialize)]
struct PrintedCommand<'a> {
    command: &'a str,
    fields_left_out: Vec<&'static str>,
}

fn print_sacct(args: &ReplayArgs) -> Result<Answer, CliError> {
    let available = match &args.fields {
        Some(path) => Some(std::fs::read_to_string(path).map_err(CliError::file("read", path))?),
        None => None,
    };
    let command = SacctCommand::new(available.as_deref(), &args.start, &args.end);
    let command = command.map_err(|error| CliError::Data(error.to_string()))?;
    let text = command.to_string();
    let fields_left_out: Vec<&'static str> =
        command.left_out().map(pillion_replay::read::Field::name).collect();
    let mut parsable = Table::new(&["COMMAND"]);
    parsable.push(vec![text.clone()]);
    let json = json::render(&PrintedCommand { command: &text, fields_left_out });
    Ok(Answer { blocks: vec![Block::Verbatim(text)], parsable, json })
}
