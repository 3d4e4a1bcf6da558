//! What plain Slurm does to jobs, or forgets of them, is laid at nobody's door.

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

/// As a storm had it: killed ten seconds after its start, slurmctld gave some hundred numbers twice.
#[test]
fn what_slurm_has_of_a_number_that_was_given_twice_may_be_the_others() {
    let unaccounted = |shares_number, exit| {
        doctored(|facts| {
            let job = &mut facts.jobs[1];
            (job.shares_number, job.starts[0].exit) = (shares_number, Some(exit));
            job.accounts.clear();
        })
    };
    assert_eq!(unaccounted(true, 0), []);
    assert_eq!(unaccounted(false, 0), [HarmKind::EndedWrong]);
    assert_eq!(unaccounted(true, 1), [HarmKind::EndedWrong], "that it failed it says itself");
    let refused = |shares_number, said: &str| {
        doctored(|facts| {
            facts.jobs[1].shares_number = shares_number;
            let job = &mut facts.jobs[2];
            (job.name, job.said) = (String::new(), said.to_owned());
            job.order.after = Some(After::Ok(1));
        })
    };
    let said = "sbatch: error: Batch job submission failed: Job dependency problem";
    assert!(!refused(true, said).contains(&HarmKind::Refused));
    assert!(refused(false, said).contains(&HarmKind::Refused));
    assert!(refused(true, "pillion: no").contains(&HarmKind::Refused));
}

#[test]
fn a_start_that_slurm_forgot_and_made_again_elsewhere_is_on_one_node_only() {
    let again_on = |node: &str| {
        doctored(|facts| {
            let job = &mut facts.jobs[1];
            (job.order.gpus, job.allocations[0].until) = (2, Some(40.0));
            let again = Start { at: 12.5, ended_at: Some(17.0), node: node.into(), ..job.starts[0].clone() };
            job.starts.push(Start { gpus: vec![1], ..again });
        })
    };
    assert!(!again_on("n9").contains(&HarmKind::Overbooked));
    assert!(again_on("n1").contains(&HarmKind::Overbooked));
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

#[test]
fn a_credential_that_slurm_takes_back_is_ours_only_where_we_moved_the_begin_time() {
    let failed = |uid: u32| {
        doctored(|facts| {
            facts.slurm_uid = 64_030;
            facts.jobs[1].accounts[0].state = "FAILED".into();
            let lines = [
                "Requeuing JobId=101".to_owned(),
                format!("_slurm_rpc_update_job: complete JobId=101 uid={uid} usec=195"),
                "Killing non-startable batch JobId=101: Job credential revoked".to_owned(),
            ];
            facts.log.insert("101".into(), lines.into());
        })
    };
    assert_eq!((failed(60_001), failed(64_030)), (vec![], vec![HarmKind::EndedWrong]));
}

#[test]
fn what_plain_slurm_may_have_done_is_told_apart() {
    let broken = |part, how| {
        let mut facts = calm();
        facts.jobs[1].accounts[0].state = "FAILED".into();
        let span = Span { from: 4.0, until: 5.0 };
        facts.outages.push(Outage { broken: Broken::Process(part, how), span });
        let verdict = judge(&facts);
        (verdict.harms.len(), verdict.excused.len())
    };
    assert_eq!(broken(Part::Slurmctld, How::Kill), (0, 1));
    assert_eq!(broken(Part::Slurmctld, How::Stop), (1, 0), "after TERM it forgets nothing");
    assert_eq!(broken(Part::Slurmd("n1"), How::Freeze), (0, 1));
    assert_eq!(broken(Part::Slurmd("n2"), How::Kill), (1, 0), "it ran on the other node");
    assert_eq!(broken(Part::Scheduler, How::Kill), (1, 0));
}

#[test]
fn who_waits_for_a_job_that_slurm_harmed_is_told_apart_too() {
    let told = |how, reason: &str| {
        let mut facts = calm();
        facts.jobs[1].accounts[0].state = "FAILED".into();
        let span = Span { from: 4.0, until: 5.0 };
        facts.outages.push(Outage { broken: Broken::Process(Part::Slurmctld, how), span });
        // Long after it, one waits for that job, and another began before the first had.
        let (mut behind, mut next) = (job(20, Kind::Known, 300.0), job(21, Kind::Known, 300.0));
        behind.order.after = Some(After::Any(1));
        waiting(&mut behind);
        behind.left.as_mut().unwrap().reason = reason.into();
        next.order.after = Some(After::Any(20));
        facts.jobs.extend([behind, next]);
        let verdict = judge(&facts);
        (verdict.harms.len(), verdict.excused.len())
    };
    assert_eq!(told(How::Kill, "Dependency"), (0, 3));
    assert_eq!(told(How::Kill, "BadConstraints"), (2, 1), "that is nothing to do with whom it waits for");
    assert_eq!(told(How::Stop, "Dependency").1, 0);
}

#[test]
fn a_job_whose_device_did_not_answer_fails_on_plain_slurm_too() {
    let frozen = |node, exit| {
        doctored(|facts| {
            let job = &mut facts.jobs[1];
            job.starts[0].exit = Some(exit);
            job.accounts[0].state = "FAILED".into();
            let span = Span { from: job.starts[0].at - 1.0, until: job.starts[0].at + 60.0 };
            let broken = Broken::Process(Part::Driver(node), How::Freeze);
            facts.outages.push(Outage { broken, span });
        })
    };
    assert!(!frozen("n1", 1).contains(&HarmKind::EndedWrong));
    assert!(frozen("n2", 1).contains(&HarmKind::EndedWrong), "another node's");
}

#[test]
fn nodes_that_a_running_job_keeps_are_not_those_that_it_asks_for() {
    let changed = |is_there: bool| {
        doctored(|facts| {
            let job = &mut facts.jobs[1];
            job.done.push(done(Deed::Change(Change::ReqNode("w1")), 1.0));
            let span = job.done[0].span;
            let before = Allocation {
                at: span.from - 0.5,
                until: Some(span.until + 0.5),
                ..job.allocations[0].clone()
            };
            if is_there {
                job.allocations.insert(0, before);
            }
        })
    };
    assert!(!changed(true).contains(&HarmKind::NotAsChanged));
    assert_eq!(changed(false), [HarmKind::NotAsChanged]);
}

#[test]
fn a_record_of_a_job_that_was_registered_anew_is_no_end() {
    let with = |state: &str| {
        doctored(|facts| {
            let accounts = &mut facts.jobs[1].accounts;
            accounts[0].state = state.into();
            accounts.push(Account { state: "PENDING".into(), ..Account::default() });
        })
    };
    assert_eq!((with("COMPLETED"), with("REQUEUED")), (vec![], vec![HarmKind::EndedWrong]));
}
