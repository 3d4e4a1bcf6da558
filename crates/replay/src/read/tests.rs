//! Rows as sacct prints them, good and bad.

use super::*;
use crate::jobs::Ended;

const HEADER: &str = "JobIDRaw|User|Account|Partition|JobName|State|Submit|Eligible|Start|End|TimelimitRaw|Priority|NNodes|NodeList|AllocTRES|ReqTRES|TRESUsageInAve|TRESUsageInMax|TRESUsageInTot|SubmitLine|AdminComment";

fn row(id: &str, state: &str, times: [&str; 4], given: &str) -> String {
    let [submit, eligible, start, end] = times;
    format!(
        "{id}|alice|ml|gpu|train|{state}|{submit}|{eligible}|{start}|{end}|60|100|1|n[3-4]|{given}|{given}||||sbatch a.sh|"
    )
}

fn step(id: &str, used: &str) -> String {
    format!("{id}||ml||python|COMPLETED|1000|Unknown|1100|2000|||1|n3|cpu=1||{used}|{used}|{used}||")
}

fn read_lines(lines: &[String]) -> Result<(Accounting, ReadTally), ReadError> {
    let text = format!("{HEADER}\n{}\n", lines.join("\n"));
    read(text.as_bytes(), &Besides::default())
}

/// Jobs that differ in their number, from 1 on.
pub(super) fn accounting(count: u32) -> Accounting {
    let of_job = |id: u32| row(&id.to_string(), "COMPLETED", ["1000", "1010", "1100", "2000"], GPU);
    let lines: Vec<String> = (1..=count).map(of_job).collect();
    read_lines(&lines).unwrap().0
}

const GPU: &str = "cpu=4,gres/gpu:a100=1,gres/gpu=1,mem=32G,node=1";

#[test]
fn a_job_and_its_steps_are_one() {
    let lines = [
        row("7", "COMPLETED", ["1000", "1010", "1100", "2000"], GPU),
        step("7.batch", "gres/gpumem=0,gres/gpuutil=0"),
        step("7.0", "gres/gpumem=9000M,gres/gpuutil=42"),
        row("7", "TIMEOUT", ["1000", "2100", "2200", "5800"], GPU),
    ];
    let (read, tally) = read_lines(&lines).unwrap();
    assert_eq!((tally.rows, tally.dropped.len()), (4, 0), "{tally:?}");
    let [first, again] = &read.jobs[..] else { panic!("two runs of one job") };
    assert_eq!((first.seconds(), first.waited_seconds(), first.gpus), (900, 90, 1));
    assert_eq!((first.cpus, first.memory_mib, first.limit_seconds), (4, 32 << 10, Some(3600)));
    assert_eq!((first.usage.source, first.usage.memory_bytes_peak), (UsageSource::Slurm, Some(9000 << 20)));
    assert!((first.usage.busy_fraction.unwrap() - 0.42).abs() < 1e-6);
    assert_eq!(
        (first.ended, again.ended, again.usage),
        (Ended::Completed, Ended::TimeLimit, Usage::default())
    );
    assert_eq!((read.nodes.text(first.node), read.gpu_types.text(first.gpu_type.unwrap())), ("n3", "a100"));
    assert_eq!((first.workload, read.workload_count), (again.workload, 1));
}

#[test]
fn files_that_overlap_may_be_put_together() {
    let job = row("7", "COMPLETED", ["1000", "1010", "1100", "2000"], GPU);
    let used = step("7.0", "gres/gpuutil=42");
    let again = row("7", "COMPLETED", ["1000", "2100", "2200", "5800"], GPU);
    let (read, tally) =
        read_lines(&[job.clone(), used.clone(), HEADER.to_owned(), job, used, again]).unwrap();
    assert_eq!(read.jobs.iter().map(|job| job.started_at).collect::<Vec<_>>(), [1100, 2200]);
    assert_eq!(tally.set_aside.into_iter().collect::<Vec<_>>(), [(SetAside::Twice, 1)]);
    assert_eq!(tally.dropped.into_iter().collect::<Vec<_>>(), [(Fault::JobId, 1)], "the second first line");
}

#[test]
fn a_bad_row_costs_one_counted_row_and_never_the_others() {
    let good = row("9", "COMPLETED", ["1000", "1010", "1100", "2000"], GPU);
    let lines = [
        good,
        "8|too|few".to_owned(),
        row("x", "COMPLETED", ["1000", "1010", "1100", "2000"], GPU),
        row("10", "COMPLETED", ["2026-11-01T00:00:00", "1010", "1100", "2000"], GPU),
        row("11", "COMPLETED", ["1000", "1010", "2100", "2000"], GPU),
        row("12", "COMPLETED", ["1000", "1010", "1100", "2000"], "gres/gpu=many"),
        step("77.0", ""),
        row("13", "COMPLETED", ["1000", "1010", "1100", "2000"], "cpu=1,node=1"),
        row("14", "CANCELLED by 0", ["1000", "Unknown", "Unknown", "2000"], ""),
        row("15", "RUNNING", ["1000", "1010", "1100", "Unknown"], GPU),
        row("16", "FAILED", ["1000", "1010", "1100", "1100"], GPU),
        "x".repeat(ROW_BYTES_MAX + 10),
        row("17", "COMPLETED", ["1000", "1010", "1100", "2000"], GPU),
    ];
    let (read, tally) = read_lines(&lines).unwrap();
    assert_eq!((read.jobs.len(), tally.rows), (2, 13));
    let dropped: Vec<(Fault, u64)> = tally.dropped.into_iter().collect();
    let one = [
        Fault::TooLong,
        Fault::FieldCount,
        Fault::JobId,
        Fault::Time,
        Fault::TimeOrder,
        Fault::Resources,
        Fault::LostStep,
    ];
    assert_eq!(dropped, one.map(|fault| (fault, 1)));
    let aside: Vec<(SetAside, u64)> = tally.set_aside.into_iter().collect();
    assert_eq!(aside, [(SetAside::NoGpu, 2), (SetAside::StillRuns, 1), (SetAside::NoTime, 1)]);
}

#[test]
fn what_is_no_file_of_sacct_is_refused_in_one_sentence() {
    let refused = |text: &str| read(text.as_bytes(), &Besides::default()).unwrap_err().to_string();
    assert!(refused("").contains("--print-sacct"));
    assert!(refused("hello\n").contains("does not name sacct's fields"));
    assert!(refused("JobIDRaw|User|State\n").contains("the field Submit is missing"));
    assert!(refused("JobIDRaw|User|User\n").contains("the field User stands there twice"));
    assert!(refused(&format!("{HEADER}\n")).contains("it has no rows"));
    let iso = row("10", "COMPLETED", ["2026-11-01T00:00:00", "", "", ""], GPU);
    let said = refused(&format!("{HEADER}\n{iso}\n"));
    assert!(
        said.contains("of 1 rows 1 are dropped, with a time that is not in seconds since 1970"),
        "{said}"
    );
}

#[test]
fn fields_may_stand_in_any_order_between_any_delimiter() {
    let text = "State\u{1f}JobIDRaw\u{1f}AllocTRES\u{1f}Submit\u{1f}Start\u{1f}End\u{1f}User\u{1f}Cluster\n\
                COMPLETED\u{1f}5\u{1f}gres/gpu=2\u{1f}10\u{1f}20\u{1f}50\u{1f}bob\u{1f}c1\r\n";
    let (read, _) = read(text.as_bytes(), &Besides::default()).unwrap();
    assert_eq!((read.jobs[0].gpus, read.jobs[0].waited_seconds(), read.has_submit_lines), (2, 10, false));
}

#[test]
fn a_file_of_telemetry_is_believed_rather_than_slurm() {
    let telemetry = "job_id,gpu_index,sm_active_fraction,memory_bandwidth_fraction,memory_bytes_peak,power_watts_mean\n7,0,0.3,0.2,5e9,150\n";
    let telemetry = Telemetry::read(telemetry.as_bytes()).unwrap();
    let lines = [
        row("7", "COMPLETED", ["1000", "1010", "1100", "2000"], GPU),
        step("7.0", "gres/gpumem=9000M,gres/gpuutil=42"),
    ];
    let text = format!("{HEADER}\n{}\n", lines.join("\n"));
    let besides = Besides { telemetry, ..Besides::default() };
    let (read, _) = read(text.as_bytes(), &besides).unwrap();
    let usage = read.jobs[0].usage;
    assert_eq!((usage.source, usage.memory_bytes_peak), (UsageSource::Telemetry, Some(5_000_000_000)));
    assert!(usage.busy_fraction.is_some() && usage.sm_active_fraction.is_some());
}

#[test]
fn a_stored_script_tells_workloads_apart_and_the_command_line_where_there_is_none() {
    let dashes = "-".repeat(80);
    let of_job =
        |job, script| format!("Batch Script for {job}\n{dashes}\n#!/bin/sh\n#SBATCH -t {}\n{script}\n\n", 7);
    let text = [of_job("1", "a"), of_job("9_1", "a"), of_job("9_2", "b")].concat();
    let scripts = Scripts::read(text.as_bytes()).unwrap();
    let rows = [("1", "1"), ("2", "9_1"), ("3", "9_2"), ("4", "4"), ("5", "5")].map(|(raw, shown)| {
        let line = if raw == "5" { "" } else { "sbatch a.sh" };
        format!("{raw}|{shown}|alice|train|COMPLETED|10|20|50|gres/gpu=1|{line}")
    });
    let text = format!(
        "JobIDRaw|JobID|User|JobName|State|Submit|Start|End|AllocTRES|SubmitLine\n{}\n",
        rows.join("\n")
    );
    let besides = Besides { scripts, ..Besides::default() };
    let (read, _) = read(text.as_bytes(), &besides).unwrap();
    let keys: Vec<KeyKind> = read.jobs.iter().map(|job| job.key).collect();
    let by_script = KeyKind::Script;
    assert_eq!(keys, [by_script, by_script, by_script, KeyKind::SubmitLine, KeyKind::Name]);
    let workloads: Vec<u32> = read.jobs.iter().map(|job| job.workload).collect();
    assert_eq!(
        workloads,
        [0, 0, 1, 2, 3],
        "the second is a task of an array that runs the script of the first"
    );
}
