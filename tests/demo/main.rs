//! The demo that is kept up, by somebody who has never seen Pillion: types what it prints, and finds what it promises. Runs on
//! the machine itself, where the demo makes its own testbed: `tests/run slurm`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails where it stands")]

mod browser;
mod kept;
mod result;
mod testbeds;

use browser::{between, document, text};
use kept::{Kept, Typed, output};
use pillion_tests::monitoring::{Server, UNTOLD_BY_SIMULATED, dashboards};
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

/// Until the job has ended and what it used is known; the report says so by its energy.
const UNTIL_REPORTED: &str = "until pillion report $JOB | grep -q Energy; do sleep 1; done";
const README: &str = include_str!("../../README.md");

#[test]
fn a_newcomer_who_types_what_the_demo_prints_finds_what_it_promises() {
    let demo = Kept::start();
    result::check(&kept::result());
    check_readme(&demo);
    check_pages(&demo);
    check_typed(&demo.type_all(|line| line.starts_with("pillion report").then_some(UNTIL_REPORTED)));
    check_prometheus(&demo);
    let (page, prometheus) = (demo.page(), demo.prometheus());
    demo.down();
    for gone in [page, prometheus] {
        assert!(TcpStream::connect(gone).is_err(), "somebody still answers at {gone}");
    }
    assert_eq!(processes_that_name(&output().display().to_string()), Vec::<String>::new());
    let left: Vec<String> = std::fs::read_dir(output())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    assert_eq!(left, ["result.json"], "what is for reading stays, and nothing else");
}

/// The README shows the same commands.
fn check_readme(demo: &Kept) {
    let block = between(README, "```sh\ndeploy/demo --keep\n", "```");
    let shown: Vec<&str> = block.lines().collect();
    assert_eq!(shown, demo.commands(), "README.md shows what the demo prints");
}

/// What the commands print answers the questions.
fn check_typed(typed: &[Typed]) {
    let said = |command: &str| {
        let found = typed.iter().find(|typed| typed.line.starts_with(command));
        &found.unwrap_or_else(|| panic!("'{command}' is no step")).printed
    };
    for one in typed {
        assert_eq!(one.code, "0", "{one:#?}");
    }
    let why = said("pillion why");
    assert!(why.contains("Because") && why.contains("no device is wholly free"), "{why}");
    let report = said("pillion report");
    for fact in ["of alice", "Ran", "GPU memory", "Energy", "Advice"] {
        assert!(report.contains(fact), "no {fact} in {report}");
    }
    let healthy = said("pillion doctor");
    assert!(
        healthy.contains("with which the scheduler runs") && healthy.contains("findings: 0 failed"),
        "{healthy}"
    );
    let gained = said("pillion acct");
    assert!(gained.contains("GPU_TIME") && !gained.contains("-0.00"), "{gained}");
    let seen = said("demo-dashboards");
    for query in dashboards().unwrap().iter().flat_map(pillion_tests::monitoring::Dashboard::queries) {
        assert!(seen.contains(&query.place), "{} is not shown: {seen}", query.place);
    }
}

/// The page, through the forward: which pair gained most, and why two were not paired.
fn check_pages(demo: &Kept) {
    let root = format!("http://{}", demo.page());
    let heatmap = document(&format!("{root}/heatmap"));
    let best = between(&heatmap, "id=\"best\"", "</section>");
    let first = between(best, "<li>", "</li>");
    let paired = pairs(&kept::result());
    let named: BTreeSet<String> =
        text(between(first, ">", "</a>")).split(" with ").map(str::to_owned).collect();
    assert!(paired.contains(&named), "'{named:?}' is none of {paired:?}");
    let gains: Vec<f64> = best
        .split("<li>")
        .skip(1)
        .map(|one| number(&text(between(one, "gain <strong>", "</strong>"))))
        .collect();
    assert!(gains[0] > 0.0 && gains.is_sorted_by(|a, b| a >= b), "{gains:?}");
    let pairings = document(&format!("{root}{}", between(first, "href=\"", "\"").replace("&amp;", "&")));
    assert!(pairings.contains("/decisions/"), "{pairings}");

    let at = between(&demo.steps, &format!("{root}/decisions/"), "\n").trim().to_owned();
    let promised = between(&demo.steps, "      why ", ":");
    let (alone, partner) = promised.split_once(" was not paired with ").unwrap();
    let shown = |name: &str| name.replace('/', "/ ");
    let decision = document(&format!("{root}/decisions/{at}"));
    let considered = between(&decision, "Partners considered, best first", "</table>");
    let row = considered.split("<tr").map(text).find(|row| row.contains(&shown(partner)));
    let row = row.unwrap_or_else(|| panic!("{partner} was not considered: {}", text(considered)));
    assert!(text(&decision).contains(&shown(alone)) && row.ends_with(')'), "no rule in '{row}'");

    assert_eq!(status(demo, "localhost"), 200);
    assert_eq!(status(demo, "evil.example"), 421, "a name that somebody bound to this machine");
}

/// Every query of every dashboard, and every alert rule.
fn check_prometheus(demo: &Kept) {
    let server = Server(demo.prometheus());
    let mut wrong = server.check_dashboards_and_rules().unwrap();
    wrong.retain(|line| !line.contains(UNTOLD_BY_SIMULATED));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The workloads that shared, two and two, for a trial or not.
fn pairs(result: &Value) -> Vec<BTreeSet<String>> {
    let jobs = result["jobs"].as_array().unwrap();
    let workload = |id: &Value| {
        let job = jobs.iter().find(|job| job["job_id"] == *id).unwrap();
        format!("{}/{}", job["user"].as_str().unwrap(), job["workload"].as_str().unwrap())
    };
    let members = |pairing: &Value| pairing["jobs"].as_array().unwrap().iter().map(workload).collect();
    let tried = |trial: &Value| {
        let user = trial["user"].as_str().unwrap();
        let names = trial["workloads"].as_array().unwrap().iter();
        names.map(|name| format!("{user}/{}", name.as_str().unwrap())).collect()
    };
    let tried = result["trials"].as_array().unwrap().iter().map(tried);
    result["pairings"].as_array().unwrap().iter().map(members).chain(tried).collect()
}

fn number(text: &str) -> f64 {
    let plain = text.trim_end_matches('%').trim().replace('−', "-");
    plain.parse().unwrap_or_else(|error| panic!("'{text}': {error}"))
}

/// How the page answers whoever asks for it by this name.
fn status(demo: &Kept, host: &str) -> u16 {
    let mut stream = TcpStream::connect(demo.page()).unwrap();
    write!(stream, "GET / HTTP/1.0\r\nHost: {host}\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split(' ').nth(1).unwrap().parse().unwrap()
}

/// Command lines of processes that hold a text, or run in the folder of that name.
fn processes_that_name(part: &str) -> Vec<String> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let command = |entry: std::fs::DirEntry| {
        let command = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let folder = std::fs::read_link(entry.path().join("cwd")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command).replace('\0', " ");
        (command.contains(part) || folder.starts_with(part)).then_some(command)
    };
    entries.filter_map(command).collect()
}
