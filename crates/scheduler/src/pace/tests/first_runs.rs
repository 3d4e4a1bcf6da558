//! Hosts of which nothing is stored: first runs that were joined.

use super::*;
use crate::first_runs::seen::FirstRunSeen;
use pillion_pairing::FirstRun;

impl World {
    /// The host is a first run: nothing is stored of it, and it went up and down by so much before it was joined.
    fn of_first_run(guest: Is, drift_fraction: f64) -> Self {
        let host = Is { run_count: 0, ..PLAIN };
        let mut world = Self::new(Watch::Act, &[host, guest]);
        world.begin_first_run(0, drift_fraction);
        world.let_in(2);
        world
    }

    fn begin_first_run(&mut self, index: usize, drift_fraction: f64) {
        let unseen = FirstRun::unseen(workload(index), "h100");
        let profile = WorkloadProfile { throughput_per_second: Some(RATE), ..unseen.profile.clone() };
        let first = FirstRun { profile, drift_fraction: Some(drift_fraction), ..unseen };
        let seen = FirstRunSeen { first, joinable_since: Some(at(NOW)) };
        self.context.board_mut().first_runs.insert(self.start(index), Arc::new(seen));
    }
}

/// Nothing is stored of it; it is held against what was seen of it before the guest came.
#[tokio::test]
async fn a_first_run_that_was_joined_has_its_promise_followed() {
    let mut world = World::of_first_run(PLAIN, 0.02);
    world.pass_for(80, &[Some(0.7), Some(1.0)]).await;
    assert_eq!(world.kinds(0).await, ["promise-breaking"]);
    assert_eq!(world.intended().await[0].start, world.start(1));
    let mut restless = World::of_first_run(PLAIN, 0.15);
    restless.pass_for(80, &[Some(0.7), Some(1.0)]).await;
    assert!(restless.kinds(0).await.is_empty(), "it was never steadier by itself");
}

/// What the board held is gone with the scheduler, and what the guest's decision says of the host is not.
#[tokio::test]
async fn a_scheduler_that_is_started_again_follows_the_promise_of_a_joined_first_run_too() {
    let host = Is { run_count: 0, ..PLAIN };
    let mut world = World::new(Watch::Act, &[host, PLAIN]);
    world.pass_for(80, &SLOWED).await;
    assert!(world.kinds(0).await.is_empty(), "nothing is known of it");
    let mut world = World::new(Watch::Act, &[host, PLAIN]);
    let unseen = FirstRun::unseen(workload(0), "h100");
    let profile = WorkloadProfile { throughput_per_second: Some(RATE), ..unseen.profile.clone() };
    let first = FirstRun { profile, drift_fraction: Some(0.02), ..unseen };
    let mut active = Vec::clone(&world.context.board().active);
    for member in &mut active[0].members[..1] {
        (member.plan.memory_bytes, member.plan.estimate) = (None, None);
    }
    active[0].first_run = Some(Box::new(first));
    world.context.board_mut().active = Arc::new(active);
    world.pass_for(80, &SLOWED).await;
    assert_eq!(world.kinds(0).await, ["promise-breaking"]);
    assert_eq!(world.intended().await[0].start, world.start(1));
}

/// Its guest came to it by minutes of measurement, so its user's word is taken: at the first reading, and of one user once an hour.
#[tokio::test]
async fn the_word_of_a_first_runs_user_sends_a_stranger_away_once_an_hour() {
    let stranger = Is { uid: 1001, ..PLAIN };
    let mut world = World::of_first_run(stranger, 0.02);
    world.pass_for(80, &SLOWED).await;
    assert_eq!(world.intended().await.len(), 1);
    let believed = world.context.board().believed.clone();
    assert_eq!(believed.keys().collect::<Vec<_>>(), [&UserId(1000)]);

    for (since_seconds, is_sent) in [(3_000, false), (4_000, true)] {
        let mut again = World::of_first_run(stranger, 0.02);
        again.context.board_mut().believed.insert(UserId(1000), at(NOW - since_seconds));
        again.pass_for(80, &SLOWED).await;
        assert_eq!(!again.intended().await.is_empty(), is_sent, "{since_seconds} s later");
    }

    let mut late = World::of_first_run(stranger, 0.02);
    late.pass_for(80, &[Some(1.0), Some(1.0)]).await;
    late.pass_for(1_500, &[Some(0.1), Some(1.0)]).await;
    assert_eq!(late.kinds(0).await, ["promise-breaking"]);
    assert!(late.intended().await.is_empty(), "it did too much by then");
}

#[tokio::test]
async fn what_one_users_own_jobs_do_to_each_other_is_no_word_of_another() {
    let mut world = World::of_first_run(PLAIN, 0.02);
    world.pass_for(80, &SLOWED).await;
    assert_eq!(world.intended().await.len(), 1);
    assert!(world.context.board().believed.is_empty());
}
