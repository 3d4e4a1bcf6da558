//! Draws a queue from a seed: the same seed and number give the same queue.

use crate::testbed::USERS;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

/// What is run: names of the catalogue of simulated workloads, as `pillion-load` takes them.
const LOADS: [&str; WORKLOAD_COUNT] = [
    "resnet50-train",
    "resnet50-infer",
    "bert-finetune",
    "bert-small-batch",
    "llama-infer",
    "llama-finetune",
    "unet3d-train",
    "gromacs",
    "spmv-bandwidth",
    "stencil-cache",
    "launch-bound",
    "gemm-hog",
    "graph-walk",
    "diffusion-train",
    "hash-probe",
    "ResNet-50 --batch-size 2",
    "ResNet-50 --batch-size 16",
    "ResNet-50 --batch-size 64",
    "BERT-Base --batch-size 2",
    "BERT-Base --batch-size 8",
    "BERT-Base --batch-size 32",
    "Llama3.1-8B --batch-size 4",
    "Llama3.1-8B --batch-size 64",
    "3D U-Net --batch-size 2",
];

/// How many workloads come again and again.
const WORKLOAD_COUNT: usize = 24;
/// Jobs whose workload nobody has run before.
const NEW_FRACTION: f64 = 0.25;
/// What is asked for, over what the devices could do one job each: a queue, but no endless one.
const LOAD_RATIO: f64 = 1.25;
/// How long a job works if alone, in seconds of the simulated machine: as many short ones as long ones, by orders of magnitude.
const WORK_SECONDS: std::ops::RangeInclusive<f64> = 1200.0..=4800.0;

/// One job of the queue.
#[derive(Debug, Clone, PartialEq)]
pub struct Order {
    /// Seconds of the simulated machine since the first could be submitted.
    pub at_seconds: f64,
    /// Whose.
    pub user: &'static str,
    /// The workload's name, one for all its runs: `--colocate=profile=`.
    pub workload: String,
    /// What `pillion-load` is asked for.
    pub load: &'static str,
    /// How long it works if alone, in seconds of the simulated machine.
    pub work_seconds: u32,
}

/// A queue of so many jobs for so many devices; `again` tells apart the new workloads of one queue from those of another.
pub fn draw(seed: u64, count: usize, devices: u32, again: u32) -> Vec<Order> {
    let mut chance = ChaCha8Rng::seed_from_u64(seed);
    let mut at_seconds = 0.0;
    let mut orders = Vec::with_capacity(count);
    for number in 0..count {
        let place = chance.random_range(0..WORKLOAD_COUNT);
        // A workload is one user's, and takes about as long each time.
        let usual = WORK_SECONDS.start() * (WORK_SECONDS.end() / WORK_SECONDS.start()).powf(part(place));
        let seconds = usual * chance.random_range(0.9..1.1);
        let is_new = chance.random_bool(NEW_FRACTION);
        let (user, workload) = if is_new {
            (*USERS.choose(&mut chance).unwrap_or(&USERS[0]), format!("new-{again}-{number}"))
        } else {
            (USERS[place % USERS.len()], format!("known-{place}"))
        };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "some thousand seconds")]
        let work_seconds = seconds.round() as u32;
        orders.push(Order { at_seconds, user, workload, load: LOADS[place], work_seconds });
        // The next one comes after an exponentially distributed time.
        let mean = seconds / (f64::from(devices) * LOAD_RATIO);
        at_seconds -= mean * chance.random_range(f64::MIN_POSITIVE..1.0_f64).ln();
    }
    orders
}

/// Where in the range of lengths a workload lies, scattered over all of them.
fn part(place: usize) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "below 24")]
    let scattered = ((place * 7) % WORKLOAD_COUNT) as f64;
    #[expect(clippy::cast_precision_loss, reason = "24")]
    let last = (WORKLOAD_COUNT - 1) as f64;
    scattered / last
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_same_seed_gives_the_same_queue_and_another_one_another() {
        assert_eq!(draw(1, 50, 16, 0), draw(1, 50, 16, 0));
        assert_ne!(draw(1, 50, 16, 0), draw(2, 50, 16, 0));
    }

    #[test]
    fn it_is_a_queue_of_several_users_two_dozen_workloads_and_a_quarter_of_new_ones() {
        let orders = draw(7, 2000, 16, 0);
        let is_new = |order: &&Order| order.workload.starts_with("new-");
        let new = orders.iter().filter(is_new).count();
        assert!((440..560).contains(&new), "{new}");
        let known: BTreeSet<&str> =
            orders.iter().filter(|order| !is_new(order)).map(|order| order.workload.as_str()).collect();
        assert_eq!(known.len(), WORKLOAD_COUNT);
        assert!(orders.iter().map(|order| order.user).collect::<BTreeSet<_>>().len() > 2);
        assert!(orders.is_sorted_by(|first, second| first.at_seconds <= second.at_seconds));
        // More is asked for than devices could do one job each, and not without end.
        let work: f64 = orders.iter().map(|order| f64::from(order.work_seconds)).sum();
        let ratio = work / (16.0 * orders.last().unwrap().at_seconds);
        assert!((1.1..1.4).contains(&ratio), "{ratio}");
    }

    #[test]
    fn a_second_queue_has_the_same_jobs_and_its_own_new_workloads() {
        let (first, second) = (draw(3, 200, 16, 0), draw(3, 200, 16, 1));
        for (one, other) in first.iter().zip(&second) {
            assert_eq!((one.load, one.work_seconds, one.user), (other.load, other.work_seconds, other.user));
            assert_eq!(one.workload == other.workload, one.workload.starts_with("known-"));
        }
    }

    #[test]
    fn each_load_is_in_the_catalogue() {
        for load in LOADS {
            let (name, batch) = load.split_once(" --batch-size ").unwrap_or((load, ""));
            let is_known = pillion_device::simulated::workload::catalogue().iter().any(|entry| {
                entry.name == name && entry.batch_size.map_or(String::new(), |size| size.to_string()) == batch
            });
            assert!(is_known, "{load}");
        }
    }
}
