//! Draws a storm from a seed; pure: the same seed, starts and minutes give the same plan.

use super::options::Options;
use super::plan::{
    Act, After, Array, Broken, Change, Deed, Disk, Fault, GPUS_MAX, How, KNOWN, Kind, Moment, Order,
    POOL_NODES, Part, Plan, USERS, WHOLE_NODES, Work,
};
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

/// A user submits up to so many at once: only what waits together is planned together.
const BURST_MAX: u32 = 10;
/// Within so many seconds.
const BURST_SECONDS: f64 = 1.5;
/// From a submission to its release with an idle device: a look at the queue, a plan, the agent's answer. What is done to a
/// job in this time hits the moment between plan and release.
const RELEASE_SECONDS: std::ops::Range<f64> = 0.2..3.0;
/// Nothing is broken before.
const FAULTS_FROM_SECONDS: f64 = 10.0;
/// From the begin of one fault to that of the next, on average.
const FAULT_EVERY_SECONDS: f64 = 18.0;

/// Draws all of it.
pub fn draw(options: &Options) -> Plan {
    let seconds = f64::from(options.minutes) * 60.0;
    // A stream each, so that a storm without faults is the same storm.
    let stream = |number: u64| {
        let mut chance = ChaCha8Rng::seed_from_u64(options.seed);
        chance.set_stream(number);
        chance
    };
    let orders = orders(options.starts, seconds, &mut stream(0));
    let acts = acts(&orders, seconds, &mut stream(1));
    let faults = if options.faults { faults(seconds, &mut stream(2)) } else { Vec::new() };
    Plan { orders, acts, faults, seconds }
}

fn orders(starts: u32, seconds: f64, chance: &mut ChaCha8Rng) -> Vec<Order> {
    let mut orders = Vec::new();
    let mut drawn = 0;
    while drawn < starts {
        let user = pick(&USERS, chance);
        let begin = chance.random_range(0.0..seconds);
        for _ in 0..chance.random_range(1..=BURST_MAX) {
            if drawn >= starts {
                break;
            }
            let mut order = order(user, begin + chance.random_range(0.0..BURST_SECONDS), chance);
            if let Some(array) = &mut order.array {
                array.tasks = array.tasks.min(starts - drawn);
            }
            drawn += order.array.map_or(1, |array| array.tasks);
            orders.push(order);
        }
    }
    orders.sort_by(|first, second| first.at.total_cmp(&second.at));
    for number in 0..orders.len() {
        orders[number].number = number;
        if chance.random_bool(0.08) {
            orders[number].after = after(&orders[..number], orders[number].user, chance);
        }
    }
    orders
}

fn order(user: &'static str, at: f64, chance: &mut ChaCha8Rng) -> Order {
    let kind = match chance.random_range(0..100) {
        0..25 => Kind::Plain,
        25..37 => Kind::Whole,
        37..70 => Kind::Known,
        70..82 => Kind::Guest,
        _ => Kind::First,
    };
    let array = chance.random_bool(0.06).then(|| {
        let tasks = chance.random_range(2..=6);
        Array { tasks, throttle: chance.random_range(1..=tasks) }
    });
    let gpus = if kind != Kind::Guest && chance.random_bool(0.12) { GPUS_MAX } else { 1 };
    let node_count = if kind != Kind::Guest && array.is_none() && chance.random_bool(0.04) { 2 } else { 1 };
    // What uses simulated devices uses one.
    let uses_none = kind == Kind::Plain || gpus > 1 || node_count > 1;
    Order { number: 0, at, user, kind, work: work(uses_none, chance), gpus, node_count, array, after: None }
}

/// Mostly 0.5 to 10 s of wall time, as many short ones as long ones; some up to 25 s.
fn work(uses_none: bool, chance: &mut ChaCha8Rng) -> Work {
    let seconds: f64 = if chance.random_bool(0.12) {
        chance.random_range(10.0..25.0)
    } else {
        0.5 * 20_f64.powf(chance.random_range(0.0..1.0))
    };
    if uses_none || seconds < 1.5 {
        return Work::Sleep { milliseconds: whole(seconds * 1000.0) };
    }
    Work::Load { name: pick(&KNOWN, chance), seconds: whole(seconds * 60.0) }
}

fn after(earlier: &[Order], user: &str, chance: &mut ChaCha8Rng) -> Option<After> {
    let own: Vec<usize> =
        earlier.iter().filter(|order| order.user == user).map(|order| order.number).rev().take(8).collect();
    let other = *own.choose(chance)?;
    Some(match chance.random_range(0..3) {
        0 => After::Ok(other),
        1 => After::Any(other),
        _ => After::Singleton(chance.random_range(0..2)),
    })
}

fn acts(orders: &[Order], seconds: f64, chance: &mut ChaCha8Rng) -> Vec<Act> {
    let mut acts = Vec::new();
    for order in orders {
        acts_on(order, seconds, chance, &mut acts);
    }
    acts.sort_by(|first, second| first.at.total_cmp(&second.at));
    acts
}

fn acts_on(order: &Order, seconds: f64, chance: &mut ChaCha8Rng, acts: &mut Vec<Act>) {
    let task =
        order.array.filter(|_| chance.random_bool(0.5)).map(|array| chance.random_range(0..array.tasks));
    let mut add = |by_root: bool, (moment, pause): (Moment, f64), deed: Deed| {
        let at = order.at + pause;
        acts.push(Act { at, moment, by_root, number: order.number, task, deed });
        at
    };
    if chance.random_bool(0.25) {
        for _ in 0..chance.random_range(1..=2) {
            let when = pause(chance);
            let wanted = change(chance);
            // Without one of two nodes it would wait for ever.
            if order.node_count == 1 || !matches!(wanted, Change::ExcNode(_)) {
                add(false, when, Deed::Change(wanted));
            }
        }
    }
    if chance.random_bool(0.1) {
        let by_root = chance.random_bool(0.3);
        let held = add(by_root, pause(chance), Deed::Hold);
        // Some are held until the storm is over.
        let until = if chance.random_bool(0.85) { chance.random_range(3.0..40.0) } else { seconds };
        let pause = (held + until).min(seconds + 3.0) - order.at;
        // Root may release what a user holds; a user cannot release what root holds.
        let released_by_root = by_root || chance.random_bool(0.15);
        add(released_by_root, (Moment::Drawn, pause), Deed::Release);
    }
    if chance.random_bool(0.08) {
        add(chance.random_bool(0.2), pause(chance), Deed::Cancel);
    }
    if chance.random_bool(0.08) {
        let deed = if chance.random_bool(0.3) { Deed::Requeue } else { Deed::RequeueNow };
        let when = (Moment::Drawn, chance.random_range(2.0..10.0));
        add(chance.random_bool(0.3), when, deed);
    }
}

/// From a submission to what is done to it.
fn pause(chance: &mut ChaCha8Rng) -> (Moment, f64) {
    match chance.random_range(0..100) {
        0..50 => (Moment::Drawn, chance.random_range(RELEASE_SECONDS)),
        50..72 => (Moment::AtRelease, 0.1),
        72..87 => (Moment::Drawn, chance.random_range(0.0..0.2)),
        _ => (Moment::Drawn, chance.random_range(3.0..12.0)),
    }
}

fn change(chance: &mut ChaCha8Rng) -> Change {
    match chance.random_range(0..100) {
        0..18 => Change::StartNow,
        18..26 => Change::StartIn(chance.random_range(1..8)),
        26..38 => Change::Partition("gpu"),
        38..48 => Change::Gpus(chance.random_range(1..=2)),
        48..56 => Change::TimeLimit(chance.random_range(3..=8)),
        56..62 => Change::Nice(chance.random_range(1..50)),
        62..72 => Change::Comment,
        72..84 => Change::Bogus,
        84..89 => Change::ReqNode(pick(&WHOLE_NODES, chance)),
        89..93 => Change::ExcNode(pick(&WHOLE_NODES, chance)),
        93..97 => Change::Memory(chance.random_range(100..300)),
        _ => Change::Name,
    }
}

fn faults(seconds: f64, chance: &mut ChaCha8Rng) -> Vec<Fault> {
    let mut faults: Vec<Fault> = Vec::new();
    let mut at = FAULTS_FROM_SECONDS;
    while at < seconds {
        let lasts = match chance.random_range(0..10) {
            0 => chance.random_range(40.0..75.0),
            1..4 => chance.random_range(8.0..25.0),
            _ => chance.random_range(0.5..8.0),
        };
        let fault = Fault { at, until: (at + lasts).min(seconds), broken: broken(chance) };
        // What is broken already is not broken once more before it was mended and had time to come up.
        let is_broken = |other: &Fault| touches(other.broken, fault.broken) && other.until + 5.0 > fault.at;
        if !faults.iter().any(is_broken) {
            faults.push(fault);
        }
        at += chance.random_range(0.2..2.0) * FAULT_EVERY_SECONDS * 0.9;
    }
    faults
}

/// Whether two faults are about one thing, so that mending the one would disturb the other.
fn touches(first: Broken, second: Broken) -> bool {
    let (first, second) = (subjects(first), subjects(second));
    first.iter().any(|subject| second.contains(subject))
}

fn subjects(broken: Broken) -> Vec<String> {
    match broken {
        Broken::Process(Part::Scheduler | Part::Postgres, _)
        | Broken::Full(Disk::Scheduler)
        | Broken::SecondScheduler => vec!["scheduler".to_owned()],
        Broken::Process(Part::Agent(node), _) | Broken::Full(Disk::Agent(node)) => {
            vec![format!("agent {node}")]
        }
        Broken::Process(Part::Driver(node), _) => vec![format!("driver {node}")],
        Broken::Process(Part::Slurmctld, _) => vec!["slurmctld".to_owned()],
        Broken::Process(Part::Slurmd(node), _) | Broken::Drain(node) => vec![format!("node {node}")],
        Broken::Clock { node, .. } => vec![format!("agent {node}"), format!("node {node}")],
        // A slurmctld that is killed a moment later forgets that it was taken back.
        Broken::Reserve(node) => vec![format!("node {node}"), "slurmctld".to_owned()],
    }
}

fn broken(chance: &mut ChaCha8Rng) -> Broken {
    let how = pick(&[How::Kill, How::Freeze, How::Stop], chance);
    let node = pick(&POOL_NODES, chance);
    match chance.random_range(0..100) {
        0..24 => Broken::Process(Part::Scheduler, how),
        24..38 => Broken::Process(Part::Agent(node), how),
        38..48 => Broken::Process(Part::Postgres, how),
        48..58 => Broken::Process(Part::Slurmctld, how),
        58..66 => Broken::Process(Part::Slurmd(node), how),
        66..74 => Broken::Process(Part::Driver(node), How::Freeze),
        74..80 => Broken::Drain(node),
        80..84 => Broken::Reserve(node),
        84..90 => Broken::Full(Disk::Scheduler),
        90..93 => Broken::Full(Disk::Agent(node)),
        93..97 => Broken::Clock { node, ahead_seconds: pick(&[-60, -15, 15, 60], chance) },
        _ => Broken::SecondScheduler,
    }
}

fn pick<T: Copy>(of: &[T], chance: &mut ChaCha8Rng) -> T {
    of[chance.random_range(0..of.len())]
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "seconds of a job, above zero")]
fn whole(number: f64) -> u32 {
    number.round() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn storm(seed: u64, faults: bool) -> Plan {
        draw(&Options { starts: 1000, minutes: 20, seed, faults, ..Options::default() })
    }

    #[test]
    fn a_seed_gives_one_storm_and_faults_change_nothing_else() {
        assert_eq!(storm(7, true), storm(7, true));
        assert_ne!(storm(7, true).orders, storm(8, true).orders);
        let (with, without) = (storm(7, true), storm(7, false));
        assert_eq!((with.orders, with.acts), (without.orders, without.acts));
        assert!(without.faults.is_empty());
    }

    #[test]
    fn a_storm_has_as_many_starts_as_asked_and_something_of_everything() {
        let plan = storm(7, true);
        let starts: u32 = plan.orders.iter().map(|order| order.array.map_or(1, |array| array.tasks)).sum();
        assert_eq!(starts, 1000);
        for kind in [Kind::Plain, Kind::Whole, Kind::Known, Kind::First] {
            let of_kind = || plan.orders.iter().filter(|order| order.kind == kind);
            assert!(of_kind().count() > 70, "{kind:?}");
            assert!(of_kind().any(|order| order.gpus == 2), "{kind:?}");
            assert!(of_kind().any(|order| order.node_count == 2 && order.array.is_none()), "{kind:?}");
        }
        let guests: Vec<&Order> = plan.orders.iter().filter(|order| order.kind == Kind::Guest).collect();
        assert!(guests.len() > 40 && guests.iter().all(|order| order.gpus == 1), "{}", guests.len());
        for order in &plan.orders {
            if let Some(After::Ok(other) | After::Any(other)) = order.after {
                assert!(other < order.number && plan.orders[other].user == order.user);
            }
        }
        let deeds: std::collections::BTreeSet<String> =
            plan.acts.iter().map(|act| act.deed.to_string()).collect();
        for deed in ["cancel", "hold", "release", "requeue", "requeue, StartTime=now", "Features=bogus"] {
            assert!(deeds.contains(deed), "{deed} is missing");
        }
        assert!(plan.acts.iter().any(|act| act.moment == Moment::AtRelease));
        assert!(plan.faults.len() > 30, "{}", plan.faults.len());
        assert!(plan.faults.iter().all(|fault| fault.until <= plan.seconds));
    }
}
