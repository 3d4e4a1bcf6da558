//! What a report says, and what it does not say.

use crate::options::{Options, PoolSize};
use crate::read::{Besides, ReadTally, read};
use crate::site::{GpuMemory, parse_shape};
use crate::{Replay, ReplayError, Report};
use pillion_core::Fraction;
use std::fmt::Write as _;

/// Two hundred jobs of two users, a light and a heavy one each, every ten minutes one; each starts `wait_seconds` late.
fn replay_of(wait_seconds: u64, shape: &str) -> Result<Replay, ReplayError> {
    let mut text =
        "JobIDRaw|User|JobName|State|Submit|Start|End|TimelimitRaw|AllocTRES|ReqTRES|TRESUsageInMax|SubmitLine\n"
            .to_owned();
    for job in 1..=200_u64 {
        let (submit, seconds) = (1_790_812_800 + job * 600, 1800);
        let start = submit + wait_seconds;
        let (user, class) = (job % 2, job / 2 % 2);
        let given = "cpu=4,gres/gpu:a100=1,mem=16G";
        let row = format!(
            "{job}|u{user}|c{class}|COMPLETED|{submit}|{start}|{}|60|{given}|{given}||sbatch {class}.sh",
            start + seconds
        );
        let _ = writeln!(text, "{row}");
        let busy = if class == 0 { 10 } else { 30 };
        let _ = writeln!(
            text,
            "{job}.0||x|COMPLETED|{submit}|{start}|{}||||gres/gpumem=4000M,gres/gpuutil={busy}|",
            start + seconds
        );
    }
    let (accounting, _) = read(text.as_bytes(), &Besides::default()).unwrap();
    let mut options = Options::usual(accounting.jobs.len());
    options.pools = vec![PoolSize::Part(Fraction::clamped(0.5)), PoolSize::Nodes(1)];
    options.adoptions = vec![Fraction::ONE];
    options.policy.users = pillion_pairing::UserPolicy::Any;
    options.price_per_gpu_hour = Some(2.0);
    Replay::new(
        accounting,
        parse_shape(shape).unwrap(),
        GpuMemory::of(&["a100=80".to_owned()]).unwrap(),
        options,
    )
}

fn report_of(wait_seconds: u64) -> Report {
    let replay = replay_of(wait_seconds, "2x4:a100").unwrap();
    let outcomes: Vec<_> = replay.tasks().into_iter().map(|task| replay.run(task, &|_| ())).collect();
    replay.report(&ReadTally::default(), &outcomes)
}

#[test]
fn what_is_saved_has_a_low_and_is_worth_what_the_site_says() {
    let report = report_of(0);
    let [setting] = &report.settings[..] else {
        panic!("both sizes are one node of two, and one of them is enough")
    };
    let saved = setting.gpu_hours_saved;
    assert!(saved.low <= saved.expected && saved.expected <= saved.high && saved.expected > 0.0, "{saved:?}");
    // Nothing can be saved beyond the half of what shares.
    assert!(
        saved.expected < 50.0 && (setting.managed_gpu_hours.expected - 100.0).abs() < 1e-6,
        "{setting:?}"
    );
    assert!((setting.price_saved.unwrap().expected - 2.0 * saved.expected).abs() < 1e-6);
    assert!(setting.energy_kilowatt_hours_saved.is_none() && setting.energy_source.contains("--idle-watts"));
    assert!(setting.waits.is_some() && setting.stranded_jobs.expected < 1e-9);
    let waste = report.waste;
    assert!(
        (waste.busy_gpu_hours.below_25_percent - 50.0).abs() < 1.0
            && waste.memory_gpu_hours.below_25_percent > 99.0
    );
    assert_eq!(report.confidence.repetition.value, Some(1.0));
    assert_eq!(report.confidence.calibration.value, Some(1.0));
}

#[test]
fn nothing_is_said_of_waits_that_the_simulator_does_not_know() {
    let report = report_of(5 * 3600);
    assert!(!report.queue.is_near && report.queue.error_fraction > 0.9, "{:?}", report.queue);
    assert!(report.settings.iter().all(|setting| setting.waits.is_none()));
    assert!(report.settings[0].gpu_hours_saved.expected > 0.0, "GPU-hours do not depend on waits");
    assert!(super::html(&report).contains("nothing is said of waits"));
}

#[test]
fn jobs_and_nodes_of_different_clusters_are_refused() {
    assert_eq!(replay_of(0, "2x4:h100").err(), Some(ReplayError::NoJobFits));
}

#[test]
fn a_page_holds_foreign_names_as_text() {
    let mut report = report_of(0);
    report.input.gpu_types_without_memory = vec!["<script>alert(1)</script>".to_owned()];
    let page = super::html(&report);
    assert!(page.contains("&lt;script&gt;") && !page.contains("<script"), "{page}");
}

#[test]
fn the_page_says_first_what_it_comes_to_and_no_nothing_has_a_sign() {
    let page = super::html(&report_of(0));
    assert!(page.contains("GPU-hours</b> would have been saved, as if there had been "), "{page}");
    let mut report = report_of(0);
    for setting in &mut report.settings {
        setting.gpu_hours_saved = crate::Estimate { low: -0.3, expected: 7.0, high: 14.0 };
    }
    let page = super::html(&report);
    assert!(page.contains("It is not certain that sharing would have saved anything"), "{page}");
    assert!(page.contains(", it would have been 7 (0 to 14) GPU-hours."), "{page}");
    assert_eq!(report.input.wide_gpu_hours.to_bits(), 0.0_f64.to_bits(), "nobody is no less than nothing");
}

#[test]
fn who_waits_longer_most_is_named_with_a_low_and_who_hardly_does_is_not() {
    let by = |low: f64, expected: f64, high: f64| crate::Estimate { low, expected, high };
    let users = [("a", by(50.0, 59.0, 68.0)), ("b", by(-10.0, 70.0, 150.0)), ("c", by(600.0, 900.0, 1200.0))];
    let more: Vec<_> = users.map(|(user, more)| (user.to_owned(), more)).to_vec();
    let less = more.iter().map(|(user, more)| (user.clone(), more.negated())).collect();
    let named: Vec<String> = super::most(more).map(|(user, _)| user).collect();
    assert_eq!((named, super::most(less).count()), (vec!["c".to_owned(), "b".to_owned()], 0));
    assert_eq!(by(-10.0, 70.0, 150.0).negated(), by(-150.0, -70.0, 10.0));
}
