//! `pillion replay`: what last month would have looked like, from files. Nothing of the site is changed, and nothing asked but, with
//! `--prometheus`, that. Settings run side by side; what each of them does is `pillion-replay`'s.

mod anonymise;
mod prometheus;
mod show;

use crate::args::{ReplayAction, ReplayArgs};
use crate::error::CliError;
use crate::output::{Answer, Block, Table, json};
use indicatif::{ProgressBar, ProgressStyle};
use pillion_replay::read::{Besides, ReadError, ReadTally, SacctCommand, Scripts, Telemetry, read};
use pillion_replay::site::{self, GpuMemory, NodeShape, Nodes};
use pillion_replay::{Accounting, Carbon, Options, Outcome, Replay, Task};
use rayon::prelude::*;
use serde::Serialize;
use std::cell::Cell;
use std::fs::File;
use std::io::{BufReader, Read as _};
use std::path::Path;

/// Steps of the bar for each simulation.
const STEPS: u32 = 1000;
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
    if args.print_queries {
        return Ok(prometheus::queries());
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
    let scripts = args.scripts.as_deref().map(scripts).transpose()?.unwrap_or_default();
    let carbon = args.carbon.as_deref().map(carbon).transpose()?;
    let besides = Besides { telemetry, scripts };
    let (mut accounting, mut tally) = read_sacct(file, &besides)?;
    drop(besides);
    if let Some(url) = &args.prometheus {
        let (telemetry, missing) = prometheus::telemetry(url, &accounting)?;
        accounting.learn(&telemetry);
        tally.besides = missing;
    }
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
    let bar = ProgressBar::new(tasks.len() as u64 * u64::from(STEPS))
        .with_style(style("{percent} % of the simulations {wide_bar} {eta} left"));
    let outcomes = tasks.into_par_iter().map(|task| watched(replay, task, &bar)).collect();
    bar.finish_and_clear();
    outcomes
}

/// One of them, which moves the bar as it goes.
fn watched(replay: &Replay, task: Task, bar: &ProgressBar) -> Outcome {
    let shown = Cell::new(0);
    let show = |steps: u64| bar.inc(steps.saturating_sub(shown.replace(steps)));
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of so many steps")]
    let outcome = replay.run(task, &|part| show((part * f64::from(STEPS)) as u64));
    show(u64::from(STEPS));
    outcome
}

/// A file of sacct, with a bar that shows how far it is read.
pub(super) fn read_sacct(path: &Path, besides: &Besides) -> Result<(Accounting, ReadTally), CliError> {
    let file = open(path)?;
    let length = file.metadata().map_or(0, |metadata| metadata.len());
    let bar = ProgressBar::new(length).with_style(style("{bytes}/{total_bytes} read {wide_bar} {eta} left"));
    let found = read(BufReader::with_capacity(BUFFER_BYTES, bar.wrap_read(file)), besides);
    bar.finish_and_clear();
    found.map_err(|error| of_reading(error, path))
}

/// Scripts of a file, or of a folder: each file of it is one, and is named by its job, whatever stands behind a dot.
fn scripts(path: &Path) -> Result<Scripts, CliError> {
    if !path.is_dir() {
        let file = BufReader::with_capacity(BUFFER_BYTES, open(path)?);
        return Scripts::read(file).map_err(|error| of_reading(error, path));
    }
    let mut scripts = Scripts::default();
    for entry in std::fs::read_dir(path).map_err(CliError::file("read", path))? {
        let file = entry.map_err(CliError::file("read", path))?.path();
        // A folder in it or a pipe is no script.
        if file.is_file() {
            let mut script = Vec::new();
            let most = Scripts::BYTES_MAX as u64 + 1;
            open(&file)?.take(most).read_to_end(&mut script).map_err(CliError::file("read", &file))?;
            let stem = file.file_name().unwrap_or_default().to_string_lossy();
            scripts.add(stem.split('.').next().unwrap_or_default(), &script);
        }
    }
    if scripts.is_empty() { Err(of_reading(ReadError::Scripts, path)) } else { Ok(scripts) }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// A file; `-` is what comes in.
fn open(path: &Path) -> Result<File, CliError> {
    let from = if path == Path::new("-") { Path::new("/dev/stdin") } else { path };
    File::open(from).map_err(CliError::file("read", path))
}

/// What `scontrol show nodes` printed. Reasons and comments in it may be in any encoding.
fn nodes(path: &Path) -> Result<Nodes, CliError> {
    let mut text = Vec::new();
    open(path)?.read_to_end(&mut text).map_err(CliError::file("read", path))?;
    site::read_nodes(&String::from_utf8_lossy(&text))
        .map_err(|error| CliError::Data(format!("{}: {error}", path.display())))
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
        let nodes = nodes(path)?;
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
