//! The contention model against measurements that nobody here made: a sanity check, not a target. Skips, saying so, where
//! the data is not there (its licence keeps some of it out of this repository).
#![expect(clippy::cast_precision_loss, reason = "counts of rows")]

use pillion_core::device::Mechanism;
use pillion_core::metric::{Metric, Metrics};
use pillion_core::profile::WorkloadProfile;
use pillion_core::share::Sharing;
use pillion_core::{Fraction, WorkloadKey};
use pillion_pairing::model::{Contention, InterferenceModel, TenantInput};
use std::collections::BTreeMap;
use std::path::PathBuf;

type Row = BTreeMap<String, String>;

fn rows(name: &str) -> Option<Vec<Row>> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data").join(name);
    let Ok(mut reader) = csv::Reader::from_path(&path) else {
        pillion_test_kit::without_data(&path);
        return None;
    };
    Some(reader.deserialize().map(|row| row.expect("the data is well formed")).collect())
}

fn number(row: &Row, column: &str) -> Option<f64> {
    row.get(column)?.parse().ok()
}

fn fraction(percent: Option<f64>) -> Option<Fraction> {
    percent.map(|percent| Fraction::clamped(percent / 100.0))
}

fn kace_profile(row: &Row) -> WorkloadProfile {
    let busy = number(row, "nvsmi_sm_pct");
    // Counters per kernel: to be taken for the time in which kernels run.
    let while_busy =
        |column: &str| number(row, column).map(|percent| percent * busy.unwrap_or(100.0) / 100.0);
    let mut metrics = Metrics::default();
    metrics.set_known(Metric::GpuBusyFraction, fraction(busy));
    metrics.set_known(Metric::MemoryBandwidthFraction, fraction(while_busy("ncu_dram_throughput_pct")));
    WorkloadProfile {
        metrics,
        run_count: 1,
        ..WorkloadProfile::empty(WorkloadKey::new(row["workload"].as_str()), "v100")
    }
}

#[derive(Default)]
struct Score {
    count: usize,
    error_sum: f64,
    square_sum: f64,
    above_low: usize,
}

impl Score {
    fn add(&mut self, predicted: f64, low: f64, truth: f64) {
        self.count += 1;
        self.error_sum += predicted - truth;
        self.square_sum += (predicted - truth).powi(2);
        self.above_low += usize::from(truth >= low);
    }
    fn line(&self, name: &str) -> String {
        let count = self.count as f64;
        format!(
            "{name}: {} speeds, bias {:+.3}, rms {:.3}, above low {:.2}",
            self.count,
            self.error_sum / count,
            (self.square_sum / count).sqrt(),
            self.above_low as f64 / count
        )
    }
}

#[test]
fn admitted_pairs_on_a_v100_mostly_run_as_fast_as_predicted() {
    let (Some(solo), Some(pairs)) = (rows("kace_solo.csv"), rows("kace_pairs.csv")) else { return };
    let profiles: BTreeMap<&str, WorkloadProfile> =
        solo.iter().map(|row| (row["workload"].as_str(), kace_profile(row))).collect();
    let mut all: BTreeMap<&str, Score> = BTreeMap::new();
    for row in pairs.iter().filter(|row| row["clean"] == "1") {
        let cap = |column: &str| fraction(number(row, column)).filter(|cap| cap.value() < 1.0);
        let caps = [cap("mps_pct_a"), cap("mps_pct_b")];
        let (Some(a), Some(b)) =
            (profiles.get(row["workload_a"].as_str()), profiles.get(row["workload_b"].as_str()))
        else {
            continue;
        };
        let inputs = [a, b].map(|profile| profile);
        let tenants = [0, 1].map(|index| TenantInput {
            profile: inputs[index],
            sharing: Sharing::by(Mechanism::Mps, caps[index], None),
        });
        let Ok(estimates) = Contention.predict(&tenants, "v100") else { continue };
        let truths = ["norm_a", "norm_b"].map(|column| number(row, column).expect("measured").min(1.0));
        let is_admitted = estimates.iter().all(|estimate| estimate.speed_fraction_low >= 0.6);
        let mode = if caps[0].is_none() { "uncapped" } else { "capped" };
        for (estimate, truth) in estimates.iter().zip(truths) {
            all.entry(mode).or_default().add(estimate.speed_fraction, estimate.speed_fraction_low, truth);
            if is_admitted {
                all.entry("admitted").or_default().add(
                    estimate.speed_fraction,
                    estimate.speed_fraction_low,
                    truth,
                );
            }
        }
    }
    for (name, score) in &all {
        eprintln!("{}", score.line(name));
    }
    let admitted = &all["admitted"];
    assert!(admitted.count >= 100, "a light pair must be admitted: {}", admitted.count);
    assert!(admitted.above_low as f64 / admitted.count as f64 > 0.9, "{}", admitted.line("admitted"));
}
