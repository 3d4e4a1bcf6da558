//! What holds of every queue, and a few by hand.

use super::*;
use proptest::prelude::*;

fn node(gpus: u32) -> QueueNode {
    QueueNode { partitions: None, gpu_type: None, gpus, cpus: 64, memory_mib: 1 << 20 }
}

fn demand(gpus: u32, nodes: u32, limit_seconds: Option<u64>) -> Demand {
    Demand { partition: 0, gpu_type: None, nodes, gpus, cpus: 1, memory_mib: 0, limit_seconds }
}

fn job(eligible_at: u64, seconds: u64, class: usize) -> QueueJob {
    QueueJob { eligible_at, seconds, class, order: eligible_at }
}

#[test]
fn a_short_job_slips_into_the_gap_and_a_long_one_does_not() {
    let nodes = [node(2)];
    let demands =
        [demand(1, 1, Some(100)), demand(2, 1, Some(100)), demand(1, 1, Some(50)), demand(1, 1, Some(500))];
    // One GPU is taken until 100; a job of two waits for it; a short one fits before, a long one does not.
    let jobs = [job(0, 100, 0), job(10, 100, 1), job(20, 300, 3), job(30, 50, 2)];
    assert_eq!(starts(&nodes, &demands, &jobs), [Some(0), Some(100), Some(200), Some(30)]);
}

#[test]
fn what_nobody_limits_is_waited_for_and_keeps_no_place() {
    let nodes = [node(2)];
    let demands = [demand(1, 1, None), demand(2, 1, None)];
    let jobs = [job(0, 100, 0), job(10, 10, 1), job(20, 10, 0)];
    // Nobody knows when the first ends, so the third does not wait for the second.
    assert_eq!(starts(&nodes, &demands, &jobs), [Some(0), Some(100), Some(20)]);
}

#[test]
fn partitions_types_and_sizes_are_kept() {
    let nodes = [
        QueueNode { partitions: Some(BTreeSet::from([1])), gpu_type: Some(7), ..node(4) },
        QueueNode { partitions: Some(BTreeSet::from([2])), ..node(4) },
    ];
    let demands = [
        Demand { partition: 1, ..demand(4, 1, None) },
        Demand { partition: 1, gpu_type: Some(8), ..demand(1, 1, None) },
        Demand { partition: 2, ..demand(5, 1, None) },
        Demand { partition: 2, ..demand(1, 2, None) },
    ];
    assert_eq!(possible(&nodes, &demands), [true, false, false, false]);
    assert_eq!(starts(&nodes, &demands, &[job(5, 1, 1), job(5, 1, 0)]), [None, Some(5)]);
}

#[test]
fn who_has_priority_goes_first_whoever_came_before() {
    let demands = [demand(1, 1, None)];
    let jobs =
        [job(0, 100, 0), QueueJob { order: 9, ..job(1, 10, 0) }, QueueJob { order: 3, ..job(2, 10, 0) }];
    assert_eq!(starts(&[node(1)], &demands, &jobs), [Some(0), Some(110), Some(100)]);
}

/// The same without anything that spares work: each look asks for every class where it finds what it asks for, and what is kept
/// is found by giving back one end after the other.
fn starts_plainly(nodes: &[QueueNode], demands: &[Demand], jobs: &[QueueJob]) -> Vec<Option<u64>> {
    let possible = possible(nodes, demands);
    let mut queue = Queue::new(nodes, demands, jobs);
    let mut arrivals: VecDeque<usize> = (0..jobs.len()).collect();
    let mut waiting: BTreeSet<OrderKey> = BTreeSet::new();
    let (mut now, mut looked_at) = (0, None);
    loop {
        let arrival = arrivals.front().map(|job| jobs[*job].eligible_at);
        let end = queue.ends.peek().map(|Reverse((at, _))| *at);
        let Some(next) = [arrival, end].into_iter().flatten().min() else { return queue.started };
        now = next.max(looked_at.map_or(now, |at| at + LOOK_SECONDS)).max(now);
        looked_at = Some(now);
        while let Some(Reverse((_, job))) = queue.ends.peek().copied().filter(|Reverse((at, _))| *at <= now) {
            queue.ends.pop();
            queue.end(job);
        }
        while let Some(job) = arrivals.pop_front_if(|job| jobs[*job].eligible_at <= now) {
            waiting.extend(possible[jobs[job].class].then_some((jobs[job].order, job)));
        }
        look_plainly(&mut queue, &mut waiting, now);
    }
}

fn look_plainly(queue: &mut Queue<'_>, waiting: &mut BTreeSet<OrderKey>, now: u64) {
    let mut kept: BTreeMap<u32, Option<Reservation>> = BTreeMap::new();
    let mut blocked: BTreeSet<u32> = BTreeSet::new();
    let mut passed_over: BTreeSet<usize> = BTreeSet::new();
    for key in waiting.clone() {
        let class = queue.jobs[key.1].class;
        let demand = &queue.demands[class];
        // Nobody overtakes one who asks for the same.
        if passed_over.contains(&class) {
            continue;
        }
        if queue.capacity.find(demand, class, None).is_some() {
            for partition in blocked.clone() {
                kept.entry(partition).or_insert_with(|| kept_plainly(queue, waiting, partition, now));
            }
        }
        let ends_at = demand.limit_seconds.map(|seconds| now.saturating_add(seconds));
        let found = queue.capacity.find(demand, class, Some(&Limits { kept: &kept, ends_at }));
        let Some(parts) = found else {
            blocked.insert(demand.partition);
            passed_over.insert(class);
            continue;
        };
        waiting.remove(&key);
        queue.start(key.1, class, parts, now);
    }
}

fn kept_plainly(
    queue: &Queue<'_>,
    waiting: &BTreeSet<OrderKey>,
    partition: u32,
    now: u64,
) -> Option<Reservation> {
    let of_partition = waiting.iter().map(|(_, job)| queue.jobs[*job].class);
    let mut of_partition = of_partition.filter(|class| queue.demands[*class].partition == partition);
    let class =
        of_partition.find(|class| queue.capacity.find(&queue.demands[*class], *class, None).is_none())?;
    let mut then = queue.capacity.clone();
    for (at, job) in queue.latest_ends.iter().take_while(|(at, _)| *at < u64::MAX) {
        then.give_back(&queue.parts[job]);
        if let Some(parts) = then.find(&queue.demands[class], class, None) {
            then.take(&parts);
            return Some(Reservation::new((*at).max(now), &parts, &then));
        }
    }
    None
}

prop_compose! {
    fn world()(
        gpus in prop::collection::vec(1u32..5, 1..5),
        demands in prop::collection::vec((1u32..5, 1u32..3, prop::option::of(1u64..400)), 1..5),
        raw in prop::collection::vec((0u64..500, 1u64..300, any::<prop::sample::Index>(), 0u64..4), 1..60),
    ) -> (Vec<QueueNode>, Vec<Demand>, Vec<QueueJob>) {
        let nodes = gpus.into_iter().map(node).collect();
        let demands: Vec<Demand> = demands.into_iter().map(|(gpus, nodes, limit)| demand(gpus, nodes, limit)).collect();
        let mut jobs: Vec<QueueJob> = raw.into_iter().map(|(at, seconds, class, order)| {
            QueueJob { eligible_at: at, seconds, class: class.index(demands.len()), order }
        }).collect();
        jobs.sort_by_key(|job| job.eligible_at);
        (nodes, demands, jobs)
    }
}

proptest! {
    #[test]
    fn what_spares_work_changes_nobodys_start((nodes, demands, jobs) in world()) {
        prop_assert_eq!(starts(&nodes, &demands, &jobs), starts_plainly(&nodes, &demands, &jobs));
    }

    #[test]
    fn no_node_is_overbooked_and_all_work_is_done((nodes, demands, jobs) in world()) {
        let started = starts(&nodes, &demands, &jobs);
        let possible = possible(&nodes, &demands);
        let mut changes = Vec::new();
        for (job, start) in jobs.iter().zip(&started) {
            // Whoever can run at all runs once, never before its time.
            prop_assert_eq!(start.is_some(), possible[job.class]);
            let Some(start) = *start else { continue };
            prop_assert!(start >= job.eligible_at);
            let held = i64::from(demands[job.class].gpus * demands[job.class].nodes);
            changes.push((start + job.seconds, 0, -held));
            changes.push((start, 1, held));
        }
        changes.sort_unstable();
        let all: i64 = nodes.iter().map(|node| i64::from(node.gpus)).sum();
        let mut held = 0;
        for (_, _, change) in changes {
            held += change;
            prop_assert!(held <= all, "{held} of {all} GPUs are held");
        }
    }

    #[test]
    fn nobody_waits_in_front_of_an_idle_cluster((nodes, demands, jobs) in world()) {
        let started = starts(&nodes, &demands, &jobs);
        // The last to start waits for somebody who runs, or for the next look at the queue.
        for (job, start) in jobs.iter().zip(&started) {
            let Some(start) = *start else { continue };
            let others_run = jobs.iter().zip(&started).any(|(other, began)| {
                began.is_some_and(|began| began < start && began + other.seconds + LOOK_SECONDS >= start)
            });
            prop_assert!(others_run || start <= job.eligible_at + LOOK_SECONDS, "{start} {job:?}");
        }
    }
}
