//! The cluster simulation: the whole system in one thread, virtual time, from a seed. A failure prints its seed;
//! `SEED=.. cargo test -p pillion-tests --test simulation` replays it and prints what happened.

mod check;
mod faulty;
mod instances;
mod node;
mod peers;
mod scheduler;
mod users;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use world::{GRES_TYPES, Stays, World};

/// Random things a seed does before everything is healed.
const STEPS: usize = 250;
/// After that, everything must be over within this time.
const CALM_SECONDS: u64 = 3600;
/// For so long of it users still cancel jobs that share a device, one a step.
const KILLING_SECONDS: u64 = 200;
/// For so long of it jobs still come, and releases land late.
const LATE_SECONDS: u64 = 240;
const CALM_STEP_SECONDS: u64 = 20;
/// How many seeds one run tries, from which on; `SEEDS` and `FROM` override them, so that many can be tried in pieces.
const SEEDS: u64 = 500;
const FROM: u64 = 0;
/// How many seeds with instances, where nobody says.
const CUT_SEEDS: u64 = 100;
/// A run of many seeds says how far it is, each time after so many.
const TELL_SEEDS: u64 = 10_000;

async fn live(world: &mut World) {
    world.warm_up().await;
    world.sit_down().await;
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
        if world.stays.contains(&Stays::LateCalls) && calm < LATE_SECONDS {
            world.be_late();
        }
        // Every other step, until then.
        world.refuse(calm < KILLING_SECONDS && (calm / CALM_STEP_SECONDS).is_multiple_of(2));
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
    /// The most devices of one start.
    width_peak: usize,
    /// How many on both nodes started that were let go, and of these with other devices than they had waited with.
    let_go_count: usize,
    moved_count: usize,
    /// How often two starts shared several devices.
    sets_shared: usize,
    /// How often a guest was seen beside an interactive job.
    accompanied_count: usize,
    /// Starts that died with their partner and were started again.
    requeued_count: usize,
    /// Starts that were sent back for a promise.
    sent_back_count: usize,
    /// Starts of guests that made room.
    made_room_count: usize,
    /// How often the store forgot something.
    forgot_count: usize,
    /// The most starts that had instances on one node at once.
    walled_peak: usize,
    /// How often a driver refused to take instances away.
    refused_count: usize,
    /// The most who shared one instance.
    together_max: usize,
}

/// What many seeds came to.
#[derive(Default)]
struct Tally {
    seeds: u64,
    /// Seeds with jobs that shared a device, with more than two on one, with one that had several devices, and with two that shared several.
    sharing: u64,
    crowded: u64,
    wide: u64,
    /// With one that had all devices of a node.
    whole: u64,
    /// And with one on both nodes that was let go; of all of these, how many had other devices than they had waited with.
    spread: u64,
    moved: u64,
    sets: u64,
    /// Seeds with a guest beside an interactive job.
    accompanied: u64,
    requeued: u64,
    sent_back: u64,
    made_room: u64,
    forgotten: u64,
    failed: Vec<u64>,
}

impl Tally {
    fn add(&mut self, seed: u64, outcome: Result<Lived, String>) {
        self.seeds += 1;
        match outcome {
            Ok(lived) => {
                self.sharing += u64::from(lived.shared_starts >= 2);
                self.crowded += u64::from(lived.tenants_peak > 2);
                self.wide += u64::from(lived.width_peak > 1);
                self.whole += u64::from(lived.width_peak == GRES_TYPES.len());
                self.spread += u64::from(lived.let_go_count > 0);
                self.moved += lived.moved_count as u64;
                self.sets += u64::from(lived.sets_shared > 0);
                self.accompanied += u64::from(lived.accompanied_count > 0);
                self.requeued += lived.requeued_count as u64;
                self.sent_back += lived.sent_back_count as u64;
                self.made_room += lived.made_room_count as u64;
                self.forgotten += lived.forgot_count as u64;
            }
            // At once: a run of hours may be ended before its end.
            Err(error) => {
                println!("SEED={seed}: {error}");
                self.failed.push(seed);
            }
        }
        if self.seeds.is_multiple_of(TELL_SEEDS) {
            println!("{self}");
        }
    }
}

impl Tally {
    /// Whether of everything that is to be shown there was some.
    const fn is_enough(&self) -> bool {
        let seeds = self.seeds;
        self.sharing * 2 > seeds
            && self.crowded * 100 > seeds
            && self.wide * 2 > seeds
            && self.whole * 4 > seeds
            && self.spread * 4 > seeds
            && self.moved * 50 > seeds
            && self.sets * 20 > seeds
            && self.accompanied * 5 > seeds
            && self.requeued * 10 > seeds
            && self.forgotten * 2 > seeds
            && self.sent_back * 50 > seeds
            && self.made_room * 5 > seeds
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            seeds,
            sharing,
            crowded,
            wide,
            whole,
            spread,
            moved,
            sets,
            accompanied,
            requeued,
            sent_back,
            made_room,
            forgotten,
            failed,
        } = self;
        write!(
            out,
            "{seeds} seeds, {sharing} with jobs that shared a device, {crowded} with more than two on one, {wide} with one that had several, {whole} with one that had all of a node, {spread} with one on two nodes that was let go ({moved} with other devices), {sets} with two that shared several, {accompanied} with a guest beside an interactive job, {requeued} starts that died \
             with their partner and were started again, {sent_back} that were sent back, {made_room} of guests that made room; the store forgot {forgotten} times; {} failed",
            failed.len()
        )
    }
}

/// Runs one seed.
fn run_seed(seed: u64, is_verbose: bool) -> Result<Lived, String> {
    run_world(World::new(seed), is_verbose)
}

fn run_world(mut world: World, is_verbose: bool) -> Result<Lived, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    let outcome = catch_unwind(AssertUnwindSafe(|| runtime.block_on(live(&mut world))));
    if is_verbose {
        println!("{}\n{}", world.log.join("\n"), world.updates());
    }
    let World {
        shared_starts,
        tenants_peak,
        width_peak,
        let_go_count,
        moved_count,
        sets_shared,
        accompanied_count,
        requeued_count,
        sent_back_count,
        walled_peak,
        ..
    } = world;
    let made_room_count = world.made_room.len();
    let forgot_count = world.forgot_stored_at.len();
    let refused_count = world.nodes[0].instances.refused_count;
    let together_max = world.nodes[0].instances.together_max;
    outcome
        .map(|()| Lived {
            shared_starts,
            tenants_peak,
            width_peak,
            let_go_count,
            moved_count,
            sets_shared,
            accompanied_count,
            requeued_count,
            sent_back_count,
            made_room_count,
            forgot_count,
            walled_peak,
            refused_count,
            together_max,
        })
        .map_err(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned())).unwrap_or_default()
        })
}

fn number_of(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}={text}: it is to be a whole number")))
}

/// Tries the seeds that are left, one after the other.
fn try_seeds(next: &AtomicU64, end: u64, tally: &Mutex<Tally>) {
    loop {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if seed >= end {
            return;
        }
        let outcome = run_seed(seed, false);
        tally.lock().expect("nobody panics with it").add(seed, outcome);
    }
}

#[test]
fn cluster_sim() {
    if let Some(seed) = number_of("SEED") {
        let outcome = run_seed(seed, true);
        assert!(outcome.is_ok(), "SEED={seed}: {}", outcome.err().unwrap_or_default());
        return;
    }
    let from = number_of("FROM").unwrap_or(FROM);
    let end = from + number_of("SEEDS").unwrap_or(SEEDS);
    let (next, tally) = (AtomicU64::new(from), Mutex::new(Tally::default()));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| try_seeds(&next, end, &tally));
        }
    });
    let tally = tally.into_inner().expect("nobody panicked with it");
    println!("{tally}");
    assert!(
        tally.failed.is_empty(),
        "{} of {} seeds failed; replay one by SEED=..",
        tally.failed.len(),
        tally.seeds
    );
    assert!(tally.is_enough(), "a simulation in which hardly anybody shares, or dies of it, shows nothing");
}

/// The same where users want walls and devices are cut: `CUT_SEED=..` replays one.
#[test]
fn cluster_sim_in_instances() {
    if let Some(seed) = number_of("CUT_SEED") {
        let outcome = run_world(World::with_instances(seed), true);
        assert!(outcome.is_ok(), "CUT_SEED={seed}: {}", outcome.err().unwrap_or_default());
        return;
    }
    let from = number_of("FROM").unwrap_or(FROM);
    let seeds = from..from + number_of("CUT_SEEDS").unwrap_or(CUT_SEEDS);
    let (mut failed, mut walled, mut refused, mut together) = (Vec::new(), 0, 0, 0);
    for seed in seeds.clone() {
        match run_world(World::with_instances(seed), false) {
            Ok(lived) => {
                walled += u64::from(lived.walled_peak >= 2);
                refused += u64::from(lived.refused_count > 0);
                together += u64::from(lived.together_max > 1);
            }
            Err(error) => {
                println!("CUT_SEED={seed}: {error}");
                failed.push(seed);
            }
        }
    }
    let count = seeds.end - seeds.start;
    println!(
        "{count} seeds, {walled} with two or more in instances at once, {together} with two in one, {refused} in which a driver refused"
    );
    assert!(failed.is_empty(), "{failed:?} failed; replay one by CUT_SEED=..");
    assert!(
        walled * 2 > count && refused * 10 > count && together * 20 > count,
        "hardly anybody is in an instance: it shows nothing"
    );
}
