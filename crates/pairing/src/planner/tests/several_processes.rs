//! Jobs of several processes on a device: each is held to an even part of what all are admitted with, and to no cap.

use super::*;
use crate::view::Tenant;
use pillion_core::device::Mechanism;
use pillion_core::profile::WorkloadProfile;

/// Of this many processes, of which any one held so much at most, and all together `all_gib`.
fn of(name: &str, processes: u32, each: Option<u64>, all_gib: u64) -> WorkloadProfile {
    WorkloadProfile {
        process_count_peak: processes,
        process_memory_bytes_peak: each,
        ..profile(name, 0.1, 0.1, all_gib)
    }
}

/// Two jobs of these workloads on one device.
fn beside(known: Vec<WorkloadProfile>, mechanism: Mechanism) -> Plan {
    let names: Vec<String> = known.iter().map(|known| known.workload.to_string()).collect();
    let waiting = vec![job(1, &names[0]), job(2, names.last().expect("there is one"))];
    let mut view = view(vec![device("g0", mechanism)], waiting);
    view.profiles = ProfileBook::from(known);
    planned(&view)
}

#[test]
fn each_has_an_even_part_of_what_all_are_admitted_with() {
    // Uneven ones: the limit of each is enough for the largest, and counted with for all.
    let uneven = of("ranks", 4, Some(6 * GIB), 10);
    let plan = beside(vec![uneven, of("light", 1, None, 8)], Mps);
    assert_eq!(groups(&plan), [[1, 2]]);
    let member = plan.pairings[0].members.iter().find(|member| member.start.job_id.id == 1).unwrap();
    let (all, each) = (member.memory_bytes.unwrap(), member.sharing.memory_limit_bytes().unwrap());
    assert!(each > 6 * GIB && each < 7 * GIB, "{each}");
    assert!(all >= 4 * each && all < 4 * (each + 1), "what its processes may take is what is kept for it");
    let other = plan.pairings[0].members.iter().find(|member| member.start.job_id.id == 2).unwrap();
    assert_eq!(other.sharing.memory_limit_bytes(), other.memory_bytes, "one process has all");
}

#[test]
fn what_their_limits_allow_has_to_fit() {
    let uneven = |each_gib| of("ranks", 4, Some(each_gib * GIB), 20);
    let with = |each_gib| beside(vec![uneven(each_gib), of("light", 1, None, 30)], Mps);
    assert_eq!(groups(&with(9)), [[1, 2]]);
    assert_eq!(
        exclusion(&with(12), 1, 2),
        Some(Reason::MemoryDoesNotFit),
        "20 GiB together, 12 of them in one"
    );
}

#[test]
fn nobody_shares_whose_processes_nothing_can_hold() {
    let unknown = beside(vec![of("ranks", 2, None, 8)], Mps);
    assert_eq!((groups(&unknown), reason(&unknown, 1)), (vec![vec![1]], Reason::SeveralProcesses));
    let text = &unknown.pairings[0].members[0].explanation.text;
    assert!(text.contains("nothing could hold each of them"), "{text}");
    for mechanism in [Ccs, Turns] {
        let plan = beside(vec![of("ranks", 2, Some(4 * GIB), 8)], mechanism);
        assert_eq!(
            (groups(&plan), reason(&plan, 1)),
            (vec![vec![1]], Reason::SeveralProcesses),
            "{mechanism}"
        );
    }
}

#[test]
fn a_daemon_serves_so_many_and_no_more() {
    let many = |processes| beside(vec![of("ranks", processes, Some(GIB / 4), 4)], Mps);
    assert_eq!(groups(&many(24)), [[1, 2]]);
    assert_eq!(exclusion(&many(25), 1, 2), Some(Reason::SeveralProcesses), "50 are more than 48");
}

/// MPS would hold each of its processes to the cap, and all of them would have it several times.
#[test]
fn several_processes_are_given_no_cap() {
    let mut view = hog_and_victim();
    let with_processes = |processes| {
        let of_hog = |known: &WorkloadProfile| WorkloadProfile {
            process_count_peak: if known.workload.as_str() == "hog" { processes } else { 1 },
            process_memory_bytes_peak: Some(GIB),
            ..known.clone()
        };
        ProfileBook::from(hog_and_victim().profiles.iter().map(of_hog).collect::<Vec<_>>())
    };
    view.profiles = with_processes(1);
    assert_eq!(groups(&planned(&view)), [[1, 2]], "under a cap");
    view.profiles = with_processes(2);
    let plan = planned(&view);
    assert_eq!((groups(&plan), exclusion(&plan, 1, 2)), (vec![vec![1]], Some(Reason::PromiseAtRisk)));
}

#[test]
fn one_joins_several_that_run_and_is_joined_by_them() {
    let ranks = of("ranks", 3, Some(2 * GIB), 6);
    let runs =
        |name: &str, memory_gib| Tenant { memory_bytes: Some(memory_gib * GIB), ..tenant(9, name, 50) };
    for (running, waits) in [("ranks", "light"), ("light", "ranks")] {
        let mut device = device("g0", Mps);
        device.tenants = vec![runs(running, 8)];
        device.shards_free = 50;
        let mut view = view(vec![device], vec![job(1, waits)]);
        view.profiles = ProfileBook::from(vec![ranks.clone(), of("light", 1, None, 8)]);
        let plan = planned(&view);
        assert_eq!(groups(&plan), [[1]], "{waits} beside {running}");
        assert!(plan.pairings[0].joins.is_some());
    }
}
