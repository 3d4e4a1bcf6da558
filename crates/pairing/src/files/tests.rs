//! Files in, answers out; what is wrong with a file is named.

use super::*;
use crate::model::Contention;
use crate::plan::Reason;
use crate::planner::plan;
use crate::policy::{Policy, UserPolicy};
use proptest::prelude::*;

const SOLO: &str = "workload,family,sm_active_fraction,memory_bandwidth_fraction,memory_bytes_peak\n\
                    light,l,0.1,0.05,8e9\nheavy,h,0.97,0.3,\nvague,v,,,\n";

fn options() -> FileOptions {
    FileOptions {
        device_model: "v100".to_owned(),
        mechanism: Mechanism::Mps,
        device_memory_bytes: None,
        slowdown_ratio_max: SlowdownRatio::try_promise(1.25).unwrap(),
    }
}

fn read(solo: &str, queue: &str, running: Option<&str>) -> Result<ClusterView, InvalidFile> {
    let named = |name, text| NamedText { name, text };
    let files = PlanFiles {
        solo: named("SOLO.csv", solo),
        queue: named("QUEUE.csv", queue),
        running: running.map(|text| named("RUNNING.csv", text)),
    };
    view(&files, &options())
}

fn answered(queue: &str, running: Option<&str>) -> Answer {
    let view = read(SOLO, queue, running).unwrap();
    answer(&plan(&view, &Contention, &Policy::default()), &Contention)
}

fn rows(answer: &Answer) -> Vec<Vec<Option<u32>>> {
    answer.pairings.iter().map(|pairing| pairing.members.iter().map(|member| member.row).collect()).collect()
}

#[test]
fn light_jobs_share_and_the_rest_is_alone_with_a_reason() {
    let answer = answered("workload\nlight\nvague\nlight\nunheard-of\n", None);
    assert_eq!(rows(&answer), [[Some(0), Some(2)]]);
    let alone: Vec<(u32, Reason)> = answer.alone.iter().map(|job| (job.row, job.reason)).collect();
    assert_eq!(alone, [(1, Reason::UnknownWorkload), (3, Reason::UnknownWorkload)]);
    let json = serde_json::to_value(&answer).unwrap();
    assert_eq!(json["model"]["interval"], 0.9);
    assert_eq!(json["pairings"][0]["members"][0]["cap_fraction"], serde_json::Value::Null);
    assert_eq!(json["alone"][0]["reason"], "unknown-workload");
}

#[test]
fn two_that_hog_stay_alone() {
    let answer = answered("workload,max_slowdown\nheavy,1.2\nheavy,\n", None);
    assert_eq!(answer.pairings, []);
    let reasons: Vec<Reason> = answer.alone.iter().map(|job| job.reason).collect();
    assert_eq!(reasons, [Reason::PromiseAtRisk; 2]);
}

#[test]
fn a_running_job_is_joined() {
    let answer =
        answered("workload\nlight\n", Some("workload,cap_fraction,remaining_seconds\nlight,0.5,300\n"));
    let members = &answer.pairings[0].members;
    assert_eq!((members[0].running_row, members[0].row), (Some(0), None));
    assert_eq!((members[1].running_row, members[1].row), (None, Some(0)));
    assert_eq!(members[0].cap_fraction.map(f64::from), Some(0.5));
    assert!(answer.alone.is_empty());
}

#[test]
fn users_of_the_queue_count() {
    let view = read(SOLO, "workload,user\nlight,alice\nlight,bob\n", None).unwrap();
    let shared = |users| {
        let policy = Policy { users, ..Policy::default() };
        answer(&plan(&view, &Contention, &policy), &Contention).pairings.len()
    };
    assert_eq!((shared(UserPolicy::SameUser), shared(UserPolicy::Any)), (0, 1));
}

#[test]
fn what_is_wrong_is_named_with_file_line_and_column() {
    let queue = "workload\nlight\n";
    let cases = [
        (
            "workload,sm_active_fraction\na,0.5\nb,1.5\n",
            queue,
            "SOLO.csv, line 3, column sm_active_fraction: '1.5' where a number from 0 to 1",
        ),
        (
            "workload,duration_seconds\na,soon\n",
            queue,
            "SOLO.csv, line 2, column duration_seconds: 'soon' where a number of 0 or more",
        ),
        ("workload\na\na\n", queue, "SOLO.csv, line 3, column workload: 'a' where each workload once"),
        (
            "workload,colour\na,red\n",
            queue,
            "SOLO.csv, line 1, column 2: 'colour' where one of workload, family",
        ),
        ("workload,family,family\n", queue, "SOLO.csv, line 1, column 3: 'family' again"),
        ("family\na\n", queue, "SOLO.csv, line 1, column workload: no such column"),
        ("", queue, "SOLO.csv, line 1, column 1: nothing where a header with workload"),
        (SOLO, "workload,user\nlight\n", "QUEUE.csv, line 2, column 1: a line of 1 fields where one of 2"),
        (SOLO, "workload,user\n,bob\n", "QUEUE.csv, line 2, column workload: nothing where a name"),
        (
            SOLO,
            "workload,max_slowdown\nlight,0.5\n",
            "QUEUE.csv, line 2, column max_slowdown: '0.5' where a number from 1 to 10",
        ),
        (SOLO, "workload,max_slowdown\nlight,NaN\n", "'NaN' where a number from 1 to 10"),
    ];
    for (solo, queue, expected) in cases {
        let message = read(solo, queue, None).unwrap_err().to_string();
        assert!(message.contains(expected), "{message:?} lacks {expected:?}");
        assert!(!message.contains('\n'));
    }
    let message = read(SOLO, queue, Some("workload,cap_fraction\nlight,0\n")).unwrap_err().to_string();
    assert!(
        message.contains("RUNNING.csv, line 2, column cap_fraction: '0' where a number above 0, at most 1"),
        "{message}"
    );
}

proptest! {
    #[test]
    fn every_row_stands_once(names in prop::collection::vec(prop::sample::select(vec!["light", "heavy", "vague", "new"]), 0..30)) {
        let answer = answered(&format!("workload\n{}\n", names.join("\n")), Some("workload\nlight\nheavy\n"));
        let paired = answer.pairings.iter().flat_map(|pairing| pairing.members.iter().filter_map(|member| member.row));
        let mut rows: Vec<u32> = paired.chain(answer.alone.iter().map(|job| job.row)).collect();
        rows.sort_unstable();
        prop_assert_eq!(rows, (0..u32::try_from(names.len()).unwrap()).collect::<Vec<_>>());
    }

    #[test]
    fn odd_bytes_give_one_line_and_no_panic(solo in "\\PC{0,60}|[a-z,\"\n0-9.]{0,60}", queue in "[\"\u{0}-\u{7f},\n]{0,40}") {
        if let Err(error) = read(&solo, &queue, None) {
            prop_assert!(!error.to_string().chars().any(char::is_control));
        }
    }
}
