//! What the agent's looks cost a job: a loop's speed in times with and without them, alternating. With them, all devices are
//! read, and what they tell unasked is taken, once a second, as the agent does.

use crate::kernels::Workload;
use crate::ours::Ours;
use crate::report::{Findings, Measured, table};
use crate::stats::median;
use crate::tenant::{Client, Tenant};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

const ROUNDS: usize = 8;
const WARM_UP: Duration = Duration::from_secs(2);
/// Of one time with or without.
const TIME: Duration = Duration::from_millis(1500);
const PERIOD: Duration = Duration::from_secs(1);
/// The most that looks may cost.
const LIMIT: f64 = 0.005;

/// What alternating times come to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Overhead {
    /// The speed lost with the agent, of that without.
    pub fraction: f64,
    /// How sure that is: by how much two neighbouring times without it differ anyway, less what repeating makes good.
    pub uncertainty: f64,
}

/// `without` has a speed before and after each `with`. `None` of too few.
pub fn overhead(without: &[f64], with: &[f64]) -> Option<Overhead> {
    if with.is_empty() || without.len() != with.len() + 1 {
        return None;
    }
    let around = without.windows(2).map(|pair| f64::midpoint(pair[0], pair[1]));
    let lost: Vec<f64> = around.zip(with).map(|(without, with)| 1.0 - with / without).collect();
    let apart: Vec<f64> = without.windows(2).map(|pair| (pair[1] / pair[0] - 1.0).abs()).collect();
    #[expect(clippy::cast_precision_loss, reason = "a few rounds")]
    let uncertainty = median(&apart)? / (with.len() as f64).sqrt();
    Some(Overhead { fraction: median(&lost)?, uncertainty })
}

impl Overhead {
    fn verdict(self) -> &'static str {
        if self.fraction + self.uncertainty <= LIMIT {
            "below the limit"
        } else if self.fraction - self.uncertainty > LIMIT {
            "APART"
        } else {
            "not to be told from noise"
        }
    }
}

/// Measures a loop that fills the GPU, and one that waits for its driver all the time.
///
/// # Errors
/// A sentence: why the driver or the client does not work.
pub fn measure(ours: &mut Ours, environment: &[(String, String)]) -> Measured {
    let (mut rows, mut found) = (Vec::new(), Findings::default());
    // The library is open in the times without, too: what it costs once is no job's.
    ours.look()?;
    for workload in [Workload::Compute, Workload::Launch] {
        let mut tenant = Tenant::start(&Client::new(workload, environment.to_vec()))?;
        tenant.run_on(WARM_UP)?;
        let (mut without, mut with) = (vec![tenant.speed(TIME)?], Vec::new());
        for _ in 0..ROUNDS {
            with.push(speed_with(ours, &mut tenant)?);
            without.push(tenant.speed(TIME)?);
        }
        tenant.leave();
        let overhead = overhead(&without, &with).ok_or("too few times were measured")?;
        match overhead.verdict() {
            "APART" => found.apart += 1,
            "below the limit" => {}
            noise => found.skipped.push(format!("the overhead on {} is {noise}", workload.name())),
        }
        rows.push(row(workload, overhead));
    }
    let text = table(&["workload", "speed lost", "sure to", "limit", ""], rows);
    let times = format!("{ROUNDS} times of {} s with, between as many without", TIME.as_secs_f64());
    found.text = format!("{times}; medians, in hundredths of the speed.\n\n{text}");
    Ok(found)
}

fn row(workload: Workload, overhead: Overhead) -> Vec<String> {
    let hundredths = |fraction: f64| format!("{:.2}", fraction * 100.0);
    vec![
        workload.name().to_owned(),
        hundredths(overhead.fraction),
        hundredths(overhead.uncertainty),
        hundredths(LIMIT),
        overhead.verdict().to_owned(),
    ]
}

fn speed_with(ours: &mut Ours, tenant: &mut Tenant) -> Result<f64, String> {
    let (stop, stopped) = channel::<()>();
    let (mut looked, mut speed) = (Ok(()), Err(String::new()));
    std::thread::scope(|scope| {
        let looking = scope.spawn(move || {
            loop {
                ours.look()?;
                match stopped.recv_timeout(PERIOD) {
                    Err(RecvTimeoutError::Timeout) => {}
                    _ => return Ok(()),
                }
            }
        });
        speed = tenant.speed(TIME);
        drop(stop);
        looked = looking.join().unwrap_or_else(|_| Err("the looks failed".to_owned()));
    });
    looked?;
    speed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drift_is_no_overhead_and_a_loss_is() {
        let drifting: Vec<f64> = (0..9).map(|step| 1000.0 - f64::from(step)).collect();
        let between: Vec<f64> = drifting.windows(2).map(|pair| f64::midpoint(pair[0], pair[1])).collect();
        let none = overhead(&drifting, &between).unwrap();
        assert!(none.fraction.abs() < 1e-12 && none.uncertainty > 0.0003, "{none:?}");
        let slower: Vec<f64> = between.iter().map(|speed| speed * 0.99).collect();
        let lost = overhead(&drifting, &slower).unwrap();
        assert!((lost.fraction - 0.01).abs() < 1e-9, "{lost:?}");
        assert_eq!((none.verdict(), lost.verdict()), ("below the limit", "APART"));
        for noisy in [(0.006, 0.007), (-0.002, 0.01)] {
            let noisy = Overhead { fraction: noisy.0, uncertainty: noisy.1 };
            assert_eq!(noisy.verdict(), "not to be told from noise");
        }
        assert_eq!(overhead(&[1.0], &[]), None);
        assert_eq!(overhead(&[1.0, 1.0], &[1.0, 1.0]), None);
    }
}
