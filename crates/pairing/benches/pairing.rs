//! How long a plan and a training take. `tests/bench pairing` runs it; the figures are in docs/benchmarks.md.
//!
//! Policy `any`, the slowest: everybody might share with everybody.

mod generated;

use criterion::{BatchSize, BenchmarkId, Criterion, criterion_group, criterion_main};
use generated::{Workloads, observations, profiles, view};
use pillion_pairing::model::{Learned, TrainOptions, train};
use pillion_pairing::{ClusterView, Contention, InterferenceModel, Policy, ProfileBook, UserPolicy, plan};
use std::hint::black_box;
use std::time::Duration;

const WORKLOADS: Workloads = Workloads { count: 300, families: 0 };
const DEVICES: u32 = 8000;
const JOBS: u32 = 10_000;
/// Of ten devices, how many run a job that may be joined.
const BUSY: [(u32, &str); 3] = [(0, "all free"), (5, "half busy"), (10, "all busy")];

fn learned() -> Learned {
    let profiles = profiles(WORKLOADS);
    train(
        &ProfileBook::from(profiles.clone()),
        &observations(WORKLOADS, &profiles, 2000),
        &TrainOptions::default(),
    )
}

fn planned(view: &ClusterView, model: &dyn InterferenceModel) -> usize {
    let policy = Policy { users: UserPolicy::Any, ..Policy::default() };
    plan(black_box(view), model, &policy).pairings.len()
}

/// 10,000 jobs of 300 workloads on 8,000 devices of 1,000 nodes.
fn plans(criterion: &mut Criterion) {
    let learned = learned();
    let mut group = criterion.benchmark_group("plan, 10,000 jobs, 8,000 devices");
    group.sample_size(10).warm_up_time(Duration::from_millis(500));
    for (busy_of_ten, name) in BUSY {
        let view = view(WORKLOADS, JOBS, DEVICES, busy_of_ten);
        group.bench_function(BenchmarkId::new("contention", name), |bencher| {
            bencher.iter(|| planned(&view, &Contention));
        });
        group.bench_function(BenchmarkId::new("learned", name), |bencher| {
            bencher.iter(|| planned(&view, &learned));
        });
    }
    group.finish();
}

/// From 1,000 to 100,000 jobs on the same cluster.
fn growth(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("plan, 8,000 devices, half of them busy");
    group.sample_size(10).warm_up_time(Duration::from_millis(500));
    for jobs in [1000, 3000, 10_000, 30_000, 100_000] {
        let view = view(WORKLOADS, jobs, DEVICES, 5);
        group.bench_function(BenchmarkId::new("jobs", jobs), |bencher| {
            bencher.iter(|| planned(&view, &Contention));
        });
    }
    group.finish();
}

/// 10,000 observations of 300 workloads.
fn training(criterion: &mut Criterion) {
    let profiles = profiles(WORKLOADS);
    let book = ProfileBook::from(profiles.clone());
    let mut group = criterion.benchmark_group("train");
    group.sample_size(10).warm_up_time(Duration::from_millis(500));
    for count in [1000, 10_000] {
        let observations = observations(WORKLOADS, &profiles, count);
        group.bench_function(BenchmarkId::new("observations", count), |bencher| {
            bencher.iter_batched(
                || observations.clone(),
                |observations| train(&book, black_box(&observations), &TrainOptions::default()),
                BatchSize::LargeInput,
            );
        });
    }
    group.finish();
}

criterion_group!(benches, plans, growth, training);
criterion_main!(benches);
