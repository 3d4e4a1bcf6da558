//! The energy counter against power, integrated: both read by our backend, ten times a second, over one long and even load.

use crate::kernels::Workload;
use crate::ours::Ours;
use crate::programs::now;
use crate::report::{Findings, Measured};
use crate::tenant::{Client, Tenant};
use crate::values::{Pair, Tolerance, compared};
use pillion_core::metric::Metric;
use std::time::Duration;

/// Power is a mean over a second on many models: it must have come up.
const WARM_UP: Duration = Duration::from_secs(3);
const TIME: Duration = Duration::from_secs(21);
const PERIOD: Duration = Duration::from_millis(100);
/// Of the integral.
const TOLERANCE: f64 = 0.03;
/// Points farther apart than this leave a hole in the integral.
const GAP_SECONDS_MAX: f64 = 0.5;
const SECONDS_MIN: f64 = 20.0;

/// One look: when, and what was read.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// Since the first look.
    pub seconds: f64,
    /// The counter.
    pub energy_joules: Option<f64>,
    /// The power.
    pub power_watts: Option<f64>,
}

/// What the counter and the integral say of one time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Energies {
    /// How long.
    pub seconds: f64,
    /// The counter's difference.
    pub counted_joules: f64,
    /// Power over time, by trapezoids.
    pub integrated_joules: f64,
}

/// Both energies between the first and the last point.
///
/// # Errors
/// A sentence: what the points lack.
pub fn energies(points: &[Point]) -> Result<Energies, String> {
    let whole = |point: &Point| Some((point.seconds, point.energy_joules?, point.power_watts?));
    let points: Vec<_> = points.iter().filter_map(whole).collect();
    let (Some((from, first, _)), Some((to, last, _))) = (points.first(), points.last()) else {
        return Err("the GPU tells no energy, or no power".to_owned());
    };
    let steps = points.windows(2).map(|pair| (pair[1].0 - pair[0].0, f64::midpoint(pair[0].2, pair[1].2)));
    if let Some((gap, _)) = steps.clone().find(|(seconds, _)| *seconds > GAP_SECONDS_MAX) {
        return Err(format!("readings were {gap:.1} s apart: that is no integral"));
    }
    let seconds = to - from;
    if seconds < SECONDS_MIN {
        return Err(format!("{seconds:.1} s of readings are too few"));
    }
    let integrated_joules = steps.map(|(seconds, watts)| seconds * watts).sum();
    Ok(Energies { seconds, counted_joules: last - first, integrated_joules })
}

/// Reads under an even load, without MPS.
///
/// # Errors
/// A sentence: why the driver or the client does not work.
pub fn measure(ours: &mut Ours, environment: &[(String, String)]) -> Measured {
    let mut tenant = Tenant::start(&Client::new(Workload::Compute, environment.to_vec()))?;
    tenant.run_on(WARM_UP)?;
    let (begun, mut points) = (now(), Vec::new());
    while begun.elapsed() < TIME {
        let reading = ours.reading()?;
        let seconds = begun.elapsed().as_secs_f64();
        points.push(Point {
            seconds,
            energy_joules: reading.metrics.get(Metric::EnergyJoules),
            power_watts: reading.metrics.get(Metric::PowerWatts),
        });
        std::thread::sleep(PERIOD);
    }
    tenant.run_on(Duration::from_millis(500))?;
    tenant.leave();
    Ok(judged(energies(&points), points.len()))
}

/// What is missing is skipped: old models have no counter.
fn judged(energies: Result<Energies, String>, count: usize) -> Findings {
    match energies {
        Err(reason) => Findings { skipped: vec![reason], ..Findings::default() },
        Ok(Energies { seconds, counted_joules, integrated_joules }) => {
            let pair = Pair {
                name: "energy_joules".to_owned(),
                ours: Some(counted_joules),
                theirs: Some(integrated_joules),
                tolerance: Tolerance::Fraction(TOLERANCE),
            };
            let (table, apart) = compared(&[pair]);
            let text = format!(
                "Over {seconds:.1} s of `compute`, in {count} readings; the other is power over time, by \
                 trapezoids.\n\n{table}"
            );
            (text, apart).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten a second, of a power that rises evenly from 300 to 500 W.
    fn rising(count: u32) -> Vec<Point> {
        let seconds = f64::from(count) / 10.0;
        let at = |step: u32| {
            let part = f64::from(step) / f64::from(count);
            let seconds = seconds * part;
            let watts = 300.0 + 200.0 * part;
            let energy = 1e6 + seconds * f64::midpoint(300.0, watts);
            Point { seconds, energy_joules: Some(energy), power_watts: Some(watts) }
        };
        (0..=count).map(at).collect()
    }

    #[test]
    fn trapezoids_are_exact_where_power_changes_evenly() {
        let found = energies(&rising(250)).unwrap();
        assert!((found.integrated_joules - 10_000.0).abs() < 1e-6, "{found:?}");
        assert!((found.counted_joules - 10_000.0).abs() < 1e-6, "{found:?}");
        let mut points = rising(250);
        points[100].power_watts = None;
        let found = energies(&points).unwrap();
        assert!((found.integrated_joules - 10_000.0).abs() < 1e-6, "one look without power is bridged");
    }

    #[test]
    fn three_hundredths_are_the_limit() {
        let apart = |factor: f64| {
            let energies = Energies { seconds: 21.0, counted_joules: 1e4 * factor, integrated_joules: 1e4 };
            judged(Ok(energies), 210).apart
        };
        assert_eq!([apart(1.029), apart(0.971), apart(1.031), apart(0.96)], [0, 0, 1, 1]);
    }

    #[test]
    fn holes_and_short_times_are_no_measurement() {
        let mut points = rising(250);
        points.drain(50..60);
        assert!(energies(&points).unwrap_err().contains("apart"));
        assert!(energies(&rising(100)).unwrap_err().contains("too few"));
        for point in &mut points {
            point.energy_joules = None;
        }
        let reason = energies(&points).unwrap_err();
        assert!(reason.contains("no energy"), "{reason}");
        assert_eq!(judged(Err(reason.clone()), 0).skipped, [reason]);
    }
}
