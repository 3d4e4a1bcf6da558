//! The cluster simulation: the whole system in one thread, virtual time, from a seed. A failure prints its seed;
//! `SEED=.. cargo test -p pillion-tests --test simulation` replays it and prints what happened.

mod check;
mod faulty;
mod node;
mod scheduler;
mod users;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};
use world::World;

/// Random things a seed does before everything is healed.
const STEPS: usize = 250;
/// After that, everything must be over within this time.
const CALM_SECONDS: u64 = 3600;
/// For so long of it users still cancel jobs that share a device, one a step.
const KILLING_SECONDS: u64 = 200;
const CALM_STEP_SECONDS: u64 = 20;
/// How many seeds one run tries; `SEEDS` overrides it.
const SEEDS: u64 = 500;

async fn live(world: &mut World) {
    world.warm_up().await;
    for _ in 0..STEPS {
        world.step().await;
        world.check().await;
    }
    world.heal();
    let mut calm = 0;
    while !world.unfinished().is_empty() {
        assert!(calm < CALM_SECONDS, "never ended: {:?}", world.unfinished());
        if calm < KILLING_SECONDS {
            world.kill_a_tenant();
        }
        world.run_for(CALM_STEP_SECONDS).await;
        calm += CALM_STEP_SECONDS;
    }
    world.check_released_once();
    world.check_requeued();
}

/// What one seed came to.
struct Lived {
    /// The most starts that shared devices at once.
    shared_starts: usize,
    /// The most tenants of one device.
    tenants_peak: usize,
    /// Starts that died with their partner and were started again.
    requeued_count: usize,
}

/// Runs one seed.
fn run_seed(seed: u64, is_verbose: bool) -> Result<Lived, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    let mut world = World::new(seed);
    let outcome = catch_unwind(AssertUnwindSafe(|| runtime.block_on(live(&mut world))));
    if is_verbose {
        println!("{}\n{}", world.log.join("\n"), world.updates());
    }
    let World { shared_starts, tenants_peak, requeued_count, .. } = world;
    outcome.map(|()| Lived { shared_starts, tenants_peak, requeued_count }).map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned())).unwrap_or_default()
    })
}

#[test]
fn cluster_sim() {
    if let Ok(seed) = std::env::var("SEED") {
        let seed = seed.parse().expect("SEED is a number");
        let outcome = run_seed(seed, true);
        assert!(outcome.is_ok(), "SEED={seed}: {}", outcome.err().unwrap_or_default());
        return;
    }
    let seeds = std::env::var("SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(SEEDS);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let failures: Vec<(u64, String)> = std::thread::scope(|scope| {
        let part =
            |thread| move || (thread..seeds).step_by(threads).map(|seed| (seed, run_seed(seed, false)));
        let workers: Vec<_> = (0..)
            .take(threads)
            .map(|thread| scope.spawn(move || part(thread)().collect::<Vec<_>>()))
            .collect();
        let outcomes: Vec<_> =
            workers.into_iter().flat_map(|worker| worker.join().expect("panics are caught")).collect();
        let lived = || outcomes.iter().filter_map(|(_, outcome)| outcome.as_ref().ok());
        let sharing = lived().filter(|lived| lived.shared_starts >= 2).count();
        let crowded = lived().filter(|lived| lived.tenants_peak > 2).count();
        let requeued: usize = lived().map(|lived| lived.requeued_count).sum();
        println!(
            "{seeds} seeds, {sharing} with jobs that shared a device, {crowded} with more than two on one, {requeued} starts \
             that died with their partner and were started again"
        );
        let enough = lived().count() < outcomes.len()
            || (sharing as u64 * 2 > seeds && crowded as u64 * 100 > seeds && requeued as u64 * 10 > seeds);
        assert!(enough, "a simulation in which hardly anybody shares, or dies of it, shows nothing");
        outcomes.into_iter().filter_map(|(seed, outcome)| outcome.err().map(|error| (seed, error))).collect()
    });
    for (seed, error) in &failures {
        println!("SEED={seed}: {error}");
    }
    assert!(failures.is_empty(), "{} of {seeds} seeds failed; replay one by SEED=..", failures.len());
}
