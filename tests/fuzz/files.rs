//! What people and browsers write: the CSV files of `pillion plan` and `pillion backtest`, and the addresses of the page.

use crate::fuzz;
use crate::values::{bytes_like, text_like};
use pillion_core::SlowdownRatio;
use pillion_core::device::Mechanism;
use pillion_pairing::files::{self, FileOptions, NamedText, PlanFiles};
use pillion_web::address::{Filters, Page};

const SOLO: &str = "workload,family,sm_active_fraction,memory_bandwidth_fraction,memory_bytes_peak,power_watts_mean\n\
                    bert-large,bert,0.92,0.55,18e9,290\nrecsys,,0.12,0.08,6e9,\n\"a b\",x,0,1,,1e3\n";
const QUEUE: &str =
    "workload,duration_seconds,max_slowdown\nbert-large,3600,\nrecsys,3600,1.02\nbert-large,,2\n";
const PAIRS: &str = "workload_a,workload_b,cap_fraction_a,cap_fraction_b,speed_fraction_a,speed_fraction_b,power_watts,fits,\
                     device,mechanism,observations,speed_sd\n\
                     bert-large,recsys,,,0.93,0.95,305,1,h100,,6,0.02\nrecsys,recsys,0.5,0.5,,,,0,h100,mps,,\n";

fn options() -> FileOptions {
    FileOptions {
        device_model: None,
        mechanism: Mechanism::Mps,
        device_memory_bytes: Some(85_899_345_920),
        slowdown_ratio_max: SlowdownRatio::try_promise(1.25).unwrap(),
    }
}

/// What is wrong is told on one line, which cannot write over a terminal.
fn assert_readable(error: &str) {
    assert!(!error.is_empty() && error.lines().count() == 1, "{error:?}");
}

#[test]
fn plans() {
    let examples = [SOLO, QUEUE, PAIRS].map(|text| text.as_bytes().to_vec());
    let [solo, queue, pairs] = examples.map(|example| bytes_like(vec![example]));
    fuzz("plan", &(solo, queue, pairs), |(solo, queue, pairs)| {
        let named = |name: &'static str, bytes| NamedText { name, bytes };
        let read = files::read(
            &PlanFiles {
                solo: named("SOLO.csv", &solo),
                queue: named("QUEUE.csv", &queue),
                history: Some(named("PAIRS.csv", &pairs)),
                running: None,
                allow: None,
            },
            &options(),
        );
        if let Err(error) = read {
            assert_readable(&error.to_string());
        }
    });
}

#[test]
fn backtests() {
    let [solo, pairs] = [SOLO, PAIRS].map(|text| bytes_like(vec![text.as_bytes().to_vec()]));
    fuzz("backtest", &(solo, pairs), |(solo, pairs)| {
        let named = |name: &'static str, bytes| NamedText { name, bytes };
        if let Err(error) =
            files::read_measured(named("SOLO.csv", &solo), Some(named("PAIRS.csv", &pairs)), &options())
        {
            assert_readable(&error.to_string());
        }
    });
}

#[test]
fn addresses() {
    let examples = [
        "/",
        "/gains",
        "/jobs/33_2",
        "/workloads/alice%2Fbert",
        "/nodes/n1",
        "/decisions/18446744073709551615",
        "/style.css",
        "//x",
        "/jobs/%ff",
    ];
    fuzz("addresses", &text_like(&examples), |path| {
        let Some(page) = Page::parse(&path) else { return };
        let written = page.path();
        assert_eq!(Page::parse(&written).as_ref(), Some(&page), "{path} {written}");
        assert!(
            written.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"' && byte != b'<'),
            "{written}"
        );
    });
    let queries =
        ["user=alice&from=now-1day", "a=1&a=2", "workload=%3Cscript%3E", "from=2026-11-23T10:00:00&to="];
    fuzz("filters", &text_like(&queries), |query| {
        let Some(filters) = Filters::parse(&query) else { return };
        let address = filters.address(&Page::Gains, &[]);
        assert!(
            address.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"' && byte != b'<'),
            "{address}"
        );
    });
}
