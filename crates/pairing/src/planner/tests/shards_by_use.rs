//! What jobs are booked with whose runs used more than their profiles say.

use super::*;

fn beyond(id: u32, workload: &str, use_beyond_fraction: f64) -> WaitingJob {
    WaitingJob { use_beyond_fraction, ..job(id, workload) }
}

/// The shards of all who start, in the order of jobs.
fn shards(plan: &Plan) -> Vec<u8> {
    let mut members: Vec<_> = plan.pairings.iter().flat_map(|pairing| &pairing.members).collect();
    members.sort_by_key(|member| member.start);
    members.iter().map(|member| member.shards.count()).collect()
}

#[test]
fn who_used_more_than_his_profile_says_is_booked_with_more() {
    let plan = planned(&two(beyond(1, "light", 0.0), job(2, "light")));
    assert_eq!((groups(&plan), shards(&plan)), (vec![vec![1, 2]], vec![50, 50]), "as their profiles say");
    // Of 0.1 and 0.3, at the same speed.
    let plan = planned(&two(beyond(1, "light", 0.2), job(2, "light")));
    assert_eq!((groups(&plan), shards(&plan)), (vec![vec![1, 2]], vec![75, 25]));
    let plan = planned(&two(beyond(1, "light", 0.9), beyond(2, "light", -0.5)));
    assert_eq!(shards(&plan), [90, 10], "and nobody with less than his profile says");
}

#[test]
fn a_host_and_a_joiner_are_booked_so_too() {
    let alone = |beyond_fraction| view(vec![device("g0", Mps)], vec![beyond(1, "half", beyond_fraction)]);
    assert_eq!(shards(&planned(&alone(0.0))), [50]);
    assert_eq!(shards(&planned(&alone(0.15))), [65]);
    assert_eq!(shards(&planned(&alone(1.0))), [70], "a joiner finds shards left");
    let joining = |beyond_fraction| {
        let running = device_with("g0", Mps, tenant(9, "light", 7200));
        view(vec![running], vec![beyond(1, "light", beyond_fraction)])
    };
    // Beside forty shards: 10 of 50, and 40 of 80.
    assert_eq!(shards(&planned(&joining(0.0))), [20]);
    assert_eq!(shards(&planned(&joining(0.3))), [50]);
    assert_eq!(shards(&planned(&joining(9.0))), [60], "no more than is free");
}
