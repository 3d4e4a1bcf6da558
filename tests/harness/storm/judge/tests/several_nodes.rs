//! A job on both nodes of the pool: what it has there is held against the others, and it waits only for what both have.

use super::*;

/// Makes the second job one on both nodes, of so many GPUs of each.
fn widen(facts: &mut Facts, gpu_count: u32) {
    let job = &mut facts.jobs[1];
    (job.order.node_count, job.order.gpus) = (2, gpu_count);
    job.allocations[0].nodes = vec!["n1".into(), "n2".into()];
    job.starts[0].gpus = (2..2 + gpu_count).collect();
    job.starts[0].shards = Some(100 * gpu_count);
}

/// One that nobody else stands in the way of, but for who has these of the pool's eight GPUs.
fn late(gpu_count: u32, taken: &[usize]) -> Vec<HarmKind> {
    doctored(|facts| {
        widen(facts, gpu_count);
        later(&mut facts.jobs[1], 70.0);
        for gpu in taken {
            hog(facts, *gpu);
        }
        facts.jobs.drain(2..4);
    })
}

#[test]
fn it_waits_for_what_both_nodes_have() {
    for gpu_count in [1, 2] {
        assert_eq!(late(gpu_count, &[]), [HarmKind::WaitedTooLong], "{gpu_count}");
        assert_eq!(late(gpu_count, &[0, 1, 2, 3]), [], "{gpu_count}: one node is taken");
        // The first two of one and the last of the other.
        let left = if gpu_count == 1 { vec![HarmKind::WaitedTooLong] } else { vec![] };
        assert_eq!(late(gpu_count, &[0, 1, 7]), left, "{gpu_count}: one is free of both");
    }
}

#[test]
fn what_it_has_of_its_second_node_is_held_against_others() {
    let beside = |gpu_count, gpu| {
        doctored(|facts| {
            widen(facts, gpu_count);
            let begun = facts.jobs[1].starts[0].at;
            let mut other = job(4, Kind::Whole, begun - 1.5);
            other.allocations[0].nodes = vec!["n2".into()];
            (other.starts[0].node, other.starts[0].gpus) = ("n2".into(), vec![gpu]);
            facts.jobs.push(other);
            facts.jobs.drain(2..4);
        })
    };
    assert_eq!(beside(2, 3), [HarmKind::Overbooked, HarmKind::Unplanned]);
    assert_eq!(beside(2, 0), []);
    assert_eq!(beside(1, 2), [], "of one GPU of each, which one the second is nobody tells");
}

#[test]
fn a_node_that_its_user_names_is_one_of_them() {
    let named = |node_count: usize| {
        doctored(|facts| {
            let job = &mut facts.jobs[0];
            job.done.push(done(Deed::Change(Change::ReqNode("w2")), 0.5));
            job.order.node_count = node_count;
            job.allocations[0].nodes = ["w1", "w2"][..node_count].iter().map(|name| (*name).into()).collect();
        })
    };
    assert_eq!((named(2), named(1)), (vec![], vec![HarmKind::NotAsChanged]));
}
