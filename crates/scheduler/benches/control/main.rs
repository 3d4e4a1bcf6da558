//! The scale of control: the scheduler's own reconcilers over a real Postgres, beside a double of Slurm (`controller`) and of the
//! agents (`agents`), on a site of 8,000 devices with 100,000 jobs in the queue. `tests/bench control` runs it and prints what
//! was asked beside what was reached; docs/benchmarks.md has the figures. Nothing here asserts on time.

mod agents;
mod controller;
mod growth;
mod options;
mod print;
mod site;
#[path = "../../../store/tests/support/postgres.rs"]
mod support;
mod table;
mod watcher;
mod world;

use anyhow::Context as _;
use clap::Parser as _;
use controller::Controller;
use growth::Size;
use options::Options;
use pillion_core::{Clock as _, SystemClock};
use pillion_scheduler::agents::Agents;
use pillion_scheduler::context::{Context, Settings};
use pillion_scheduler::engine::Engine;
use pillion_scheduler::reconcilers;
use pillion_scheduler::watch::Watch;
use pillion_store::Store;
use pillion_store::postgres::PgStore;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use table::Result;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;
use watcher::{Seen, Watcher, memory_mib};

/// As the configuration has it where nothing is said.
const SCAN_PERIOD: Duration = Duration::from_secs(2);
/// The pool is full when no more has started for so long.
const CALM: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    let options = Options::parse();
    let filter = EnvFilter::try_from_env("PILLION_LOG").unwrap_or_else(|_| EnvFilter::new("error"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let runtime = pillion_scheduler::program::runtime();
    let measured = runtime.map_err(anyhow::Error::from).and_then(|runtime| runtime.block_on(run(&options)));
    match measured {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn context(store: &Arc<PgStore>, controller: &Arc<Controller>, options: &Options) -> Arc<Context> {
    let settings =
        Settings { bound: Duration::from_secs(u64::from(options.bound_seconds)), ..Settings::default() };
    Arc::new(Context::new(
        Arc::new(SystemClock),
        Arc::clone(controller) as Arc<dyn pillion_slurm::Slurm>,
        Arc::clone(store) as Arc<dyn Store>,
        Arc::new(Agents::default()),
        settings,
    ))
}

async fn run(options: &Options) -> anyhow::Result<()> {
    let store = support::fresh_store().await.context("there is nobody to run a Postgres as")?;
    let store = Arc::new(store);
    site::remember_workloads(store.as_ref(), options, SystemClock.now()).await?;
    let (senders, listeners): (Vec<_>, Vec<_>) =
        (0..options.nodes).map(|_| mpsc::unbounded_channel()).unzip();
    let controller = Arc::new(Controller::new(options, senders));
    let context = context(&store, &controller, options);
    let (mut tasks, stop) = (JoinSet::new(), CancellationToken::new());
    agents::connect(&mut tasks, &context, options, listeners, &stop).await?;
    {
        let (controller, stop) = (Arc::clone(&controller), stop.clone());
        tasks.spawn(async move {
            tokio::select! { () = stop.cancelled() => {} () = controller.schedule() => {} }
        });
    }
    let doubles_mib = memory_mib("VmRSS");
    let engine = Arc::new(Engine::new(Arc::clone(&context)));
    let mut watcher = Watcher::new(Arc::clone(&context), Arc::clone(&controller));
    let begun = Instant::now();
    reconcilers::spawn(&mut tasks, reconcilers::all(SCAN_PERIOD, &context, &engine), &context, &stop);
    watcher.watch(120, |_| context.board().scan.is_some()).await;
    let first_scan_seconds = begun.elapsed().as_secs_f64();
    progress(&format!("the first scan took {first_scan_seconds:.2} s; the devices fill"));
    watcher.begin();
    let size_before = Size::of(&store).await?;
    let fill = fill(&mut watcher, options).await;
    let devices_taken = controller.world().devices_taken();
    progress(&format!("{devices_taken} devices are taken after {:.0} s; churn", fill.seconds));
    let churn = churn(&mut watcher, &controller, options).await;
    let (peak_mib, now_mib) = (memory_mib("VmHWM"), memory_mib("VmRSS"));
    let (waiting, devices_taken_at_last) = {
        let world = controller.world();
        (world.waiting_count(), world.devices_taken())
    };
    let starts = fill.slurm.starts + churn.slurm.starts;
    let growth = Size::of(&store).await?.since(&size_before, starts);
    stop.cancel();
    while tasks.join_next().await.is_some() {}
    let second_scan_seconds = scan_again(&store, &controller, options).await?;
    let result = Result {
        first_scan_seconds,
        second_scan_seconds,
        fill,
        churn,
        devices_taken,
        devices_taken_at_last,
        waiting,
        doubles_mib,
        peak_mib,
        now_mib,
    };
    println!("{}\n{growth}", result.render(options));
    store.close().await;
    Ok(())
}

fn progress(line: &str) {
    eprintln!("{line}");
}

/// Until no more starts, or the time is over.
async fn fill(watcher: &mut Watcher, options: &Options) -> Seen {
    let (mut starts, mut since) = (0, Instant::now());
    let is_calm = |controller: &Controller| {
        let now = controller.world().counts.starts;
        if now != starts {
            (starts, since) = (now, Instant::now());
        }
        starts > 0 && since.elapsed() > CALM
    };
    watcher.watch(options.fill_seconds, is_calm).await;
    let mut seen = watcher.end();
    // What it took to find out that nothing comes any more is not part of it.
    let calm = since.elapsed();
    if starts > 0 && calm > CALM {
        seen.seconds -= calm.as_secs_f64();
    }
    seen
}

async fn churn(watcher: &mut Watcher, controller: &Arc<Controller>, options: &Options) -> Seen {
    let ends = controller.churn(options.churn);
    let measured = async {
        watcher.begin();
        watcher.watch(options.seconds, |_| false).await;
        watcher.end()
    };
    tokio::select! {
        () = ends => unreachable!("jobs end for as long as it is polled"),
        seen = measured => seen,
    }
}

/// The first scan of a scheduler that comes after this one: all jobs stand in the database.
async fn scan_again(
    store: &Arc<PgStore>,
    controller: &Arc<Controller>,
    options: &Options,
) -> anyhow::Result<f64> {
    let watch = Watch::new(context(store, controller, options));
    let begun = Instant::now();
    watch.tick().await?;
    Ok(begun.elapsed().as_secs_f64())
}
