//! Files in, answers out; what is wrong with a file is named.

use super::input::DEVICE_MODEL_UNNAMED;
use super::*;
use crate::model::{Contention, TrainOptions, train};
use crate::plan::Reason;
use crate::policy::{Policy, UserPolicy};
use pillion_core::SlowdownRatio;
use pillion_core::device::Mechanism;
use proptest::prelude::*;

const SOLO: &str = "workload,family,sm_active_fraction,memory_bandwidth_fraction,memory_bytes_peak\n\
                    light,l,0.1,0.05,8e9\nhalf,h,0.5,0.2,8e9\nheavy,h,0.97,0.3,\nvague,v,,,\n";

fn options() -> FileOptions {
    FileOptions {
        device_model: Some("v100".to_owned()),
        mechanism: Mechanism::Mps,
        device_memory_bytes: None,
        slowdown_ratio_max: SlowdownRatio::try_promise(1.25).unwrap(),
    }
}

/// The files of a test, by their content.
#[derive(Default, Clone, Copy)]
struct Texts<'t> {
    solo: Option<&'t str>,
    queue: &'t str,
    history: Option<&'t str>,
    running: Option<&'t str>,
    allow: Option<&'t str>,
}

impl Texts<'_> {
    fn read(&self) -> Result<FromFiles, InvalidFile> {
        self.read_as(Mechanism::Mps)
    }

    fn read_as(&self, mechanism: Mechanism) -> Result<FromFiles, InvalidFile> {
        let files = PlanFiles {
            solo: NamedText::new("SOLO.csv", self.solo.unwrap_or(SOLO)),
            queue: NamedText::new("QUEUE.csv", self.queue),
            history: self.history.map(|text| NamedText::new("PAIRS.csv", text)),
            running: self.running.map(|text| NamedText::new("RUNNING.csv", text)),
            allow: self.allow.map(|text| NamedText::new("ALLOW.csv", text)),
        };
        read(&files, &FileOptions { mechanism, ..options() })
    }

    /// What the contention model makes of them.
    fn answered(&self) -> Answer {
        answer(&self.read().unwrap(), &Contention, &Policy::default(), false)
    }

    fn error(&self) -> String {
        self.read().unwrap_err().to_string()
    }
}

#[test]
fn cards_have_modes_and_nothing_else_has() {
    let running = |text, mechanism| {
        let texts = Texts { queue: "workload\nlight\n", running: Some(text), ..Texts::default() };
        texts.read_as(mechanism).map(|files| {
            files.view.devices.iter().find_map(|device| device.tenants.first()?.sharing.ccs_mode())
        })
    };
    assert_eq!(running("workload\nlight\n", Mechanism::Mps).unwrap(), None);
    assert_eq!(running("workload\nlight\n", Mechanism::Ccs).unwrap(), Some(2));
    assert_eq!(running("workload,ccs_mode\nlight,4\n", Mechanism::Ccs).unwrap(), Some(4));
    for (text, mechanism, expected) in [
        (
            "workload,ccs_mode\nlight,3\n",
            Mechanism::Ccs,
            "line 2, column ccs_mode: '3' where 1, 2, 4 or nothing was expected",
        ),
        (
            "workload,ccs_mode\nlight,2\n",
            Mechanism::Mps,
            "column ccs_mode: '2' where no value (only ccs has modes) was expected",
        ),
    ] {
        let message = running(text, mechanism).unwrap_err().to_string();
        assert!(message.contains(expected), "{message:?} lacks {expected:?}");
    }
}

fn rows(answer: &Answer) -> Vec<Vec<Option<u32>>> {
    answer.pairings.iter().map(|pairing| pairing.members.iter().map(|member| member.row).collect()).collect()
}

#[test]
fn light_jobs_share_and_the_rest_is_alone_with_a_reason() {
    let answer =
        Texts { queue: "workload\nlight\nvague\nlight\nunheard-of\n", ..Texts::default() }.answered();
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
    let answer = Texts { queue: "workload,max_slowdown\nheavy,1.2\nheavy,\n", ..Texts::default() }.answered();
    assert_eq!(answer.pairings, []);
    let reasons: Vec<Reason> = answer.alone.iter().map(|job| job.reason).collect();
    assert_eq!(reasons, [Reason::PromiseAtRisk; 2]);
}

#[test]
fn a_running_job_is_joined() {
    let running = Some("workload,cap_fraction,remaining_seconds\nlight,0.5,300\n");
    let answer = Texts { queue: "workload\nlight\n", running, ..Texts::default() }.answered();
    let members = &answer.pairings[0].members;
    assert_eq!((members[0].running_row, members[0].row), (Some(0), None));
    assert_eq!((members[1].running_row, members[1].row), (None, Some(0)));
    assert_eq!(members[0].cap_fraction.map(f64::from), Some(0.5));
    assert!(answer.alone.is_empty());
}

#[test]
fn users_of_the_queue_count() {
    let files =
        Texts { queue: "workload,user\nlight,alice\nlight,bob\n", ..Texts::default() }.read().unwrap();
    let shared = |users| {
        let policy = Policy { users, ..Policy::default() };
        answer(&files, &Contention, &policy, false).pairings.len()
    };
    assert_eq!((shared(UserPolicy::SameUser), shared(UserPolicy::Any)), (0, 1));
}

#[test]
fn what_may_not_be_chosen_is_not() {
    let queue = "workload\nlight\nlight\nlight\nhalf\n";
    let allow = "workload_a,workload_b,cap_fraction_a,cap_fraction_b\nhalf,light,,0.5\n";
    let answer = Texts { queue, allow: Some(allow), ..Texts::default() }.answered();
    let members: Vec<(&str, Option<f64>)> = answer.pairings[0]
        .members
        .iter()
        .map(|member| (member.workload.as_str(), member.cap_fraction.map(f64::from)))
        .collect();
    assert_eq!((answer.pairings.len(), members), (1, vec![("light", Some(0.5)), ("half", None)]));
}

#[test]
fn a_workload_needs_no_solo_run_and_a_device_no_name() {
    let history = "workload_a,workload_b,cap_fraction_a,cap_fraction_b,speed_fraction_a,speed_fraction_b,power_watts,fits,\
                   device,mechanism,observations,speed_sd\n\
                   light,known-together,,0.4,0.97,1.02,,1,,,4,0.02\n\
                   light,light,1,,,,0,0,k80,none,,\n";
    let files =
        Texts { queue: "workload\nby-name\n", history: Some(history), ..Texts::default() }.read().unwrap();
    let named: Vec<&str> = files.view.profiles.iter().map(|profile| profile.workload.as_str()).collect();
    assert_eq!(named, ["by-name", "half", "heavy", "known-together", "light", "vague"]);
    assert!(
        files.view.profiles.iter().all(|profile| profile.run_count == 1 && profile.device_model == "v100")
    );
    let [first, second] = &files.observations[..] else { panic!("{:?}", files.observations) };
    assert_eq!((first.device_model.as_str(), first.mechanism(), first.fits), ("v100", Mechanism::Mps, true));
    assert_eq!((first.run_count, first.speed_fraction_deviation, first.power_watts), (4.0, Some(0.02), None));
    assert_eq!(first.tenants[1].sharing.cap().map(f64::from), Some(0.4));
    assert_eq!(first.tenants[1].speed_fraction, Some(1.02));
    assert_eq!(
        (second.device_model.as_str(), second.mechanism(), second.fits),
        ("k80", Mechanism::TimeSliced, false)
    );
    assert_eq!(second.tenants[0].sharing.cap(), None, "1 is no cap");
    assert_eq!((second.run_count, second.power_watts), (1.0, None), "nothing draws no power");
    let answer = answer(&files, &Contention, &Policy::default(), false);
    assert_eq!((answer.model.observations, answer.model.observations_elsewhere), (1, 1));
}

#[test]
fn the_device_is_the_one_that_all_of_the_history_names() {
    let device_of = |devices: [&str; 2], named: Option<&str>| {
        let row = |device: &str| format!("a,b,1,1,1,{device}\n");
        let text = format!(
            "workload_a,workload_b,speed_fraction_a,speed_fraction_b,fits,device\n{}{}",
            row(devices[0]),
            row(devices[1])
        );
        let options = FileOptions { device_model: named.map(str::to_owned), ..options() };
        let solo = NamedText::new("SOLO.csv", SOLO);
        read_measured(solo, Some(NamedText::new("PAIRS.csv", &text)), &options).unwrap().device_model
    };
    assert_eq!(device_of(["p100", "p100"], None), "p100");
    assert_eq!(device_of(["p100", "k80"], None), DEVICE_MODEL_UNNAMED);
    assert_eq!(device_of(["p100", ""], None), DEVICE_MODEL_UNNAMED, "the rows that name none are of another");
    assert_eq!(device_of(["p100", "p100"], Some("k80")), "k80");
}

#[test]
fn candidates_say_what_was_chosen_and_what_excluded_the_rest() {
    let queue = "workload,max_slowdown\nlight,\nlight,\nlight,1.3\nheavy,1.01\nheavy,1.01\n";
    let files = Texts { queue, running: Some("workload\nheavy\n"), ..Texts::default() }.read().unwrap();
    let answer = answer(&files, &Contention, &Policy::default(), true);
    let candidates = answer.candidates.as_ref().unwrap();
    let shown: Vec<String> = candidates
        .iter()
        .map(|one| {
            let names: Vec<&str> = one.members.iter().map(|member| member.workload.as_str()).collect();
            format!("{} x{} {:?}", names.join("+"), one.chosen_count, one.excluded_by)
        })
        .collect();
    assert!(shown.contains(&"light+light x1 None".to_owned()), "{shown:#?}");
    assert!(shown.contains(&"heavy+heavy x0 Some(PromiseAtRisk)".to_owned()), "{shown:#?}");
    let chosen: usize = candidates.iter().map(|one| one.chosen_count).sum();
    assert_eq!(chosen, answer.pairings.len(), "every pairing is one of them");
    for one in candidates {
        assert_eq!(one.excluded_by.is_none(), one.chosen_count > 0, "{one:?}");
        assert!(
            one.members.windows(2).all(|pair| pair[0].is_running || pair[0].workload <= pair[1].workload)
        );
    }
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
            "SOLO.csv, line 2, column duration_seconds: 'soon' where a number from 0 to 1e15",
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
        let message = Texts { solo: Some(solo), queue, ..Texts::default() }.error();
        assert!(message.contains(expected), "{message:?} lacks {expected:?}");
        assert!(!message.contains('\n'));
    }
}

#[test]
fn what_is_wrong_with_the_other_files_is_named_too() {
    let texts = Texts { queue: "workload\nlight\n", ..Texts::default() };
    let running = |text| Texts { running: Some(text), ..texts }.error();
    let history = |rows: &str| {
        let header = "workload_a,workload_b,speed_fraction_a,speed_fraction_b,fits,mechanism,observations\n";
        Texts { history: Some(&format!("{header}{rows}")), ..texts }.error()
    };
    let allow = |text| Texts { allow: Some(text), ..texts }.error();
    let cases = [
        (
            running("workload,cap_fraction\nlight,0\n"),
            "RUNNING.csv, line 2, column cap_fraction: '0' where a number above 0, at most 1 was expected",
        ),
        (
            running("workload,remaining_seconds\nlight,-1\n"),
            "RUNNING.csv, line 2, column remaining_seconds: '-1' where a number from 0 to 1e15 was expected",
        ),
        (history("a,b,1,1,yes,,\n"), "PAIRS.csv, line 2, column fits: 'yes' where 0 or 1 was expected"),
        (history("a,b,1,1,,,\n"), "PAIRS.csv, line 2, column fits: nothing where 0 or 1 was expected"),
        (
            history("a,b,1,1,1,mps,\n\na,b,1,11,1,,\n"),
            "PAIRS.csv, line 4, column speed_fraction_b: '11' where a number from 0 to 10 was expected",
        ),
        (history("a,,1,1,1,,\n"), "PAIRS.csv, line 2, column workload_b: nothing where a name was expected"),
        (
            history("a,b,1,1,1,MPS,\n"),
            "PAIRS.csv, line 2, column mechanism: 'MPS' where mps, ccs, none or nothing was expected",
        ),
        (
            history("a,b,1,1,1,,0\n"),
            "PAIRS.csv, line 2, column observations: '0' where a number of 1 or more was expected",
        ),
        (
            history("a,\"b\n,1,1,1,,1\na,b,1,1,1,,1\n"),
            "PAIRS.csv, line 2, column 2: a line of 2 fields where one of 7 was expected",
        ),
        (
            allow("workload_a,workload_b\na,b\n"),
            "ALLOW.csv, line 1, column cap_fraction_a: no such column where it was expected",
        ),
        (
            allow("workload_a,workload_b,cap_fraction_a,cap_fraction_b\r\na,b,,\r\na,b,1.5,\r\n"),
            "ALLOW.csv, line 3, column cap_fraction_a: '1.5' where a number above 0, at most 1 was expected",
        ),
    ];
    for (message, expected) in cases {
        assert_eq!(message, expected);
    }
}

#[test]
fn what_is_no_utf_8_is_named_where_it_stands() {
    let with = |queue: &[u8]| {
        let files = PlanFiles {
            solo: NamedText::new("SOLO.csv", SOLO),
            queue: NamedText { name: "QUEUE.csv", bytes: queue },
            history: None,
            running: None,
            allow: None,
        };
        read(&files, &options()).unwrap_err().to_string()
    };
    let found = "bytes that are no UTF-8 where UTF-8 was expected";
    assert_eq!(
        with(b"workload,user\nlight,bob\nlight,J\xfcrgen\n"),
        format!("QUEUE.csv, line 3, column user: {found}")
    );
    assert_eq!(with(b"\xff\xfew\0o\0"), format!("QUEUE.csv, line 1, column 1: {found}"));
    assert_eq!(
        with(b"workload\n\"light\nlight\"\n"),
        "QUEUE.csv, line 2, column workload: 'light\\nlight' where a name on one line, without control characters \
         was expected"
    );
}

const NAMES: [&str; 6] = ["light", "half", "heavy", "vague", "together", "new"];
const CAPS: [&str; 4] = ["", "0.5", "0.25", "1"];

fn a_name() -> impl Strategy<Value = &'static str> {
    prop::sample::select(NAMES.to_vec())
}

fn a_cap() -> impl Strategy<Value = &'static str> {
    prop::sample::select(CAPS.to_vec())
}

fn a_queue() -> impl Strategy<Value = Vec<&'static str>> {
    prop::collection::vec(a_name(), 0..30)
}

/// Rows of PAIRS.csv.
fn a_history() -> impl Strategy<Value = String> {
    let device = prop::sample::select(vec!["", "v100", "k80"]);
    let row = (a_name(), a_name(), a_cap(), a_cap(), 0.0..1.1_f64, 0.0..1.1_f64, 0..2_u8, device);
    let line = row.prop_map(|(a, b, cap_a, cap_b, speed_a, speed_b, fits, device)| {
        format!("{a},{b},{cap_a},{cap_b},{speed_a},{speed_b},{fits},{device}\n")
    });
    let header =
        "workload_a,workload_b,cap_fraction_a,cap_fraction_b,speed_fraction_a,speed_fraction_b,fits,device\n";
    prop::collection::vec(line, 0..12).prop_map(move |lines| format!("{header}{}", lines.concat()))
}

/// Rows of ALLOW.csv.
fn an_allow() -> impl Strategy<Value = Vec<[&'static str; 4]>> {
    prop::collection::vec((a_name(), a_name(), a_cap(), a_cap()).prop_map(|(a, b, c, d)| [a, b, c, d]), 0..20)
}

fn allow_text(rows: &[[&str; 4]]) -> String {
    let lines: Vec<String> = rows.iter().map(|row| row.join(",") + "\n").collect();
    format!("workload_a,workload_b,cap_fraction_a,cap_fraction_b\n{}", lines.concat())
}

/// Whether one of the rows, in either order, is this combination.
fn is_allowed(rows: &[[&str; 4]], members: &[AnswerMember]) -> bool {
    let cap = |text: &str| text.parse::<f64>().ok().filter(|cap| *cap < 1.0);
    let own: Vec<(&str, Option<f64>)> =
        members.iter().map(|one| (one.workload.as_str(), one.cap_fraction.map(f64::from))).collect();
    rows.iter().any(|[a, b, cap_a, cap_b]| {
        let (first, second) = ((*a, cap(cap_a)), (*b, cap(cap_b)));
        own == [first, second] || own == [second, first]
    })
}

fn check_rows(answer: &Answer, count: usize) -> Result<(), TestCaseError> {
    let members = || answer.pairings.iter().flat_map(|pairing| &pairing.members);
    let mut rows: Vec<u32> =
        members().filter_map(|one| one.row).chain(answer.alone.iter().map(|job| job.row)).collect();
    rows.sort_unstable();
    prop_assert_eq!(rows, (0..u32::try_from(count).unwrap()).collect::<Vec<_>>());
    let mut running: Vec<u32> = members().filter_map(|one| one.running_row).collect();
    let joined = running.len();
    running.sort_unstable();
    running.dedup();
    prop_assert_eq!(running.len(), joined, "nobody is joined twice");
    Ok(())
}

proptest! {
    #[test]
    fn every_row_stands_once_and_nothing_is_chosen_that_is_not_allowed(
        names in a_queue(),
        history in prop::option::of(a_history()),
        running in prop::option::of(prop::collection::vec((a_name(), a_cap()), 0..6)),
        allow in prop::option::of(an_allow()),
    ) {
        let queue = format!("workload\n{}\n", names.join("\n"));
        let running = running.map(|jobs| {
            let lines: Vec<String> = jobs.iter().map(|(name, cap)| format!("{name},{cap}\n")).collect();
            format!("workload,cap_fraction\n{}", lines.concat())
        });
        let allow_text = allow.as_deref().map(allow_text);
        let texts = Texts {
            solo: None,
            queue: &queue,
            history: history.as_deref(),
            running: running.as_deref(),
            allow: allow_text.as_deref(),
        };
        let files = texts.read().unwrap();
        let learned = train(&files.view.profiles, &files.observations, &TrainOptions::default());
        let answer = answer(&files, &learned, &Policy::default(), true);
        check_rows(&answer, names.len())?;
        let chosen: usize = answer.candidates.iter().flatten().map(|one| one.chosen_count).sum();
        prop_assert_eq!(chosen, answer.pairings.len());
        for pairing in allow.iter().flat_map(|_| &answer.pairings) {
            prop_assert!(is_allowed(allow.as_deref().unwrap_or_default(), &pairing.members), "{:?}", pairing);
        }
        for one in answer.pairings.iter().flat_map(|pairing| &pairing.members) {
            prop_assert!(0.0 <= one.speed_fraction_low && one.speed_fraction_low <= one.speed_fraction, "{:?}", one);
            prop_assert!(one.speed_fraction <= one.speed_fraction_high && one.speed_fraction_high.is_finite());
        }
    }

    #[test]
    fn odd_bytes_give_one_line_and_no_panic(
        solo in prop_oneof!["\\PC{0,60}", "[a-z,\"\n0-9.]{0,60}"],
        queue in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        let files = PlanFiles {
            solo: NamedText::new("SOLO.csv", &solo),
            queue: NamedText { name: "QUEUE.csv", bytes: &queue },
            history: Some(NamedText::new("PAIRS.csv", &solo)),
            running: None,
            allow: Some(NamedText { name: "ALLOW.csv", bytes: &queue }),
        };
        for error in [
            read(&files, &options()).err(),
            read(&PlanFiles { solo: NamedText::new("SOLO.csv", SOLO), history: None, ..files }, &options()).err(),
        ] {
            prop_assert!(!error.map(|error| error.to_string()).unwrap_or_default().chars().any(char::is_control));
        }
    }
}
