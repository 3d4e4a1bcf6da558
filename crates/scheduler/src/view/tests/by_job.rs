//! Rules by job stand in the view (docs/decisions/0036-policy-by-job.md).

use super::*;

#[test]
fn what_the_site_says_of_a_job_goes_by_what_slurm_says_of_it() {
    let text = "[pool]\npartitions = [\"shared\"]\n[policy]\nslowdown_ratio_max = 1.25\n[[policy.override]]\nqos = [\"free\"]\n\
                users = \"any\"\nslowdown_ratio_max = 3\n";
    let settings = crate::config::settings(&pillion_config::parse_scheduler(text).unwrap());
    let of = |job: Job| Job { qos: "free".into(), ..job };
    let waiting = |id: u32| Job { id: SlurmJobId::plain(id), ..job(JobState::Pending) };
    let jobs = vec![of(running()), of(waiting(2)), waiting(3)];
    let runs = decision(&member(MemberState::Running));
    let view =
        view_of(&World { settings, jobs, used: 40, decisions: vec![runs.clone()], ..World::default() });
    let free = view.devices[1].tenants[0].rules.unwrap();
    assert_eq!((free.from_override, free.users), (Some(1), pillion_pairing::UserPolicy::Any));
    let said = |id: u32| {
        let job = view.waiting.iter().find(|job| job.start.job_id.id == id).unwrap();
        (job.rules.unwrap().from_override, job.slowdown_ratio_max.value())
    };
    assert_eq!((said(2), said(3)), ((Some(1), 3.0), (None, 1.25)));
    let view = view_of(&World {
        jobs: vec![running(), waiting(2)],
        used: 40,
        decisions: vec![runs],
        ..World::default()
    });
    assert_eq!((view.waiting[0].rules, view.devices[1].tenants[0].rules), (None, None), "the same for all");
}
