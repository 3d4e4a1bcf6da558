//! Where the site's rules are not the same for all jobs, a release holds only for the account, QOS and partition that were decided on.

use super::turns::World;
use crate::context::Settings;
use crate::job_rules::decided_on;
use pillion_core::JobStart;
use pillion_core::decision::MemberState;
use pillion_fake_slurm::FakeSettings;

async fn world() -> World {
    let text = "[pool]\npartitions = [\"shared\"]\n[[policy.override]]\nqos = [\"free\"]\nusers = \"any\"\n";
    let config = pillion_config::parse_scheduler(text).unwrap();
    let job_policy = crate::config::settings(&config).job_policy;
    World::under(FakeSettings::default(), Settings { job_policy, ..Settings::default() }).await
}

/// As the engine does that decided.
fn remember(world: &World) {
    let job = world.slurm().job(world.job).unwrap();
    let start = JobStart { job_id: world.job, restart_count: 0 };
    world.context.board_mut().decided_on.insert(start, decided_on(&job));
}

#[tokio::test]
async fn what_is_as_it_was_decided_on_is_released() {
    let world = world().await;
    remember(&world);
    world.release().tick().await.unwrap();
    assert_eq!(world.member_state().await, MemberState::Released);
    let mark = world.slurm().job(world.job).unwrap().mark.unwrap().unwrap();
    assert!(mark.decided_on.is_some());
    assert_eq!(mark.undone().decided_on, None, "it waits for another decision then");
}

/// The scheduler has not looked again: only slurmctld knows it.
#[tokio::test]
async fn who_changed_account_or_qos_since_is_not_released() {
    for (account, qos) in [("physics", "free"), ("chemistry", "normal")] {
        let world = world().await;
        remember(&world);
        assert!(world.slurm().charge_to(world.job, account, qos));
        world.release().tick().await.unwrap();
        assert_eq!(world.member_state().await, MemberState::Undone);
        let job = world.slurm().job(world.job).unwrap();
        assert_eq!(job.gres, "shard:100", "it waits as before");
        let events = world.context.store.events(world.job).await.unwrap();
        assert!(
            events[0].detail.contains("its account, QOS or partition is not what was decided on"),
            "{events:?}"
        );
    }
}

/// As after the scheduler that decided has died.
#[tokio::test]
async fn what_was_decided_on_what_nobody_remembers_is_decided_again() {
    let world = world().await;
    world.look_a_second_later().await;
    world.release().tick().await.unwrap();
    assert_eq!(world.member_state().await, MemberState::Undone);
    assert!(world.context.board().cooling.is_empty(), "by the very next plan");
}
