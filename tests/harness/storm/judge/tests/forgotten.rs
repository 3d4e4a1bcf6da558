//! What slurmctld forgot, or will never do, is laid at nobody's door.

use super::*;

#[test]
fn a_number_that_was_given_twice_says_nothing_of_how_long_either_was_there() {
    let given_again = |shares_number| {
        doctored(|facts| {
            // Its start has no end of its own, and what the log has of its number goes on for long.
            let first = &mut facts.jobs[1];
            first.shares_number = shares_number;
            (first.starts[0].ended_at, first.starts[0].exit) = (None, None);
            first.allocations[0].until = Some(60.0);
            facts.jobs.push(job(4, Kind::First, 20.0));
        })
    };
    assert_eq!(given_again(true), [HarmKind::EndedWrong]);
    assert_eq!(given_again(false), [HarmKind::EndedWrong, HarmKind::Overbooked, HarmKind::Unplanned]);
}

#[test]
fn who_is_requeued_by_its_user_after_its_dependency_was_lost_waits_for_ever_on_plain_slurm_too() {
    let left = |awaited: &str, reason: &str| {
        doctored(|facts| {
            facts.jobs[1].accounts[0].state = awaited.into();
            facts.jobs[1].done.push(done(Deed::Cancel, 4.0));
            waiting(&mut facts.jobs[2]);
            facts.jobs[2].left.as_mut().unwrap().reason = reason.into();
            facts.jobs[2].order.after = Some(After::Ok(1));
        })
    };
    assert_eq!(left("CANCELLED", "DependencyNeverSatisfied"), []);
    assert_eq!(left("CANCELLED", "BadConstraints"), [HarmKind::NeverRan]);
    assert!(left("COMPLETED", "DependencyNeverSatisfied").contains(&HarmKind::NeverRan));
}
