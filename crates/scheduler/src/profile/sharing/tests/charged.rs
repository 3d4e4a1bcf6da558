//! What is charged of runs that used more than their profiles say.

use super::*;
use crate::engine::Engine;
use crate::scan::Scan;
use crate::testing::{job, node as pool_node};
use pillion_core::mark::Mark;
use pillion_slurm::{Job, JobState, NodeAvailability};

/// Workload 2 of user 1002 shared with one of another user, and did far more than it is known for.
async fn shared(books_by_use: bool, is_beyond: bool) -> World {
    let mut world = World::with(Settings { books_by_use, ..Settings::default() }).await;
    let group = world.plan(None, &[1, 2]).await;
    if is_beyond {
        world.context.board_mut().strains.insert(start(2), Strain::beyond(group));
    }
    world.tell(&Told::new(1, 300, 500).beside(&[2]).at_speed(0.9), 1).await;
    world.tell(&Told::new(2, 300, 500).beside(&[1]).at_speed(0.9), 2).await;
    world.tick().await;
    world
}

/// What the next jobs are booked with beyond their profiles: one of the first user, and two of the second.
async fn next(world: &World) -> Vec<f64> {
    let waiting = |id: u32, uid: u32, digest: &str| Job {
        id: SlurmJobId::plain(id),
        uid: UserId(uid),
        mark: Ok(Some(Mark { workload_digest: digest.into(), ..Mark::default() })),
        ..job(JobState::Pending)
    };
    let waiting = [waiting(21, 1001, "1"), waiting(22, 1002, "2"), waiting(23, 1002, "new")];
    let jobs = waiting.into_iter().map(Into::into).collect();
    let nodes = vec![pool_node(NodeAvailability::Up)];
    let scan = Scan::new(at(5000), jobs, nodes, &["shared".to_owned()], 0);
    world.context.board_mut().scan = Some(Arc::new(scan));
    let (view, _) = Engine::new(Arc::clone(&world.context)).dry_run().await.unwrap().unwrap();
    let mut jobs: Vec<_> = view.waiting.iter().map(|job| (job.start, job.use_beyond_fraction)).collect();
    jobs.sort_by_key(|(start, _)| *start);
    jobs.into_iter().map(|(_, beyond)| beyond).collect()
}

/// As it was tried: a light run alone, then more of the device than that, under a new name each time.
#[tokio::test]
async fn who_was_measured_light_and_uses_more_is_charged_for_it_under_whatever_name() {
    let world = shared(true, true).await;
    assert_eq!(next(&world).await, [0.0, 0.5, 0.5], "his, and not his neighbour's");
    let events = world.store.events(SlurmJobId::plain(2)).await.unwrap();
    let told: Vec<_> = events.iter().filter(|event| event.kind == EventKind::UseExceeded).collect();
    assert_eq!(told.len(), 1, "{events:?}");
    assert!(
        !told[0].detail.contains(|letter: char| letter.is_ascii_digit()),
        "how much tells of a neighbour"
    );
}

#[tokio::test]
async fn nobody_is_charged_where_the_site_books_by_profiles_or_nothing_was_measured() {
    for (books_by_use, is_beyond) in [(false, true), (true, false)] {
        let world = shared(books_by_use, is_beyond).await;
        assert_eq!(next(&world).await, [0.0; 3], "{books_by_use} {is_beyond}");
        assert!(world.store.charges().await.unwrap().is_empty());
    }
}
