//! Tenants of several devices.

use super::*;

#[test]
fn they_are_followed_on_the_first_of_them() {
    let host = Decision { gres_types: "g0,g1".parse().unwrap(), ..decision(&member(MemberState::Running)) };
    let mut joiner = host.clone();
    joiner.members[0].plan.start = JobStart { job_id: SlurmJobId::plain(8), restart_count: 0 };
    let active = [host, joiner];
    let mut shared = crate::credit::shared_devices(&active);
    assert_eq!(shared.len(), 2, "they meet on both");
    shared.retain(is_told_of);
    let places: Vec<&str> = shared.keys().map(|(_, device)| device.as_str()).collect();
    assert_eq!(places, ["g0"], "a gang has one counter");
}
