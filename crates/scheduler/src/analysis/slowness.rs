//! What made a run slow, if it was: its neighbour, itself, or the device's power and heat. Pure.
//!
//! Judged against the workload's own runs alone, and within the run: where a progress counter tells how fast it went alone
//! and beside others, the neighbour answers for the difference between the two and for nothing else.

/// A speed from here on is not slow: the spread of equal runs is of this size.
const SPEED_SLOW: f64 = 0.95;
/// How many of its own standard deviations a run's duration must be longer than usual to count as slow.
const DEVIATIONS: f64 = 2.0;
/// Progress over a shorter time says nothing.
const PHASE_SECONDS_MIN: f64 = 10.0;
/// More of the time than usual in which the clock was held down, to be named as a cause.
const THROTTLED_MORE: f64 = 0.1;

/// What is known of one run. Fractions 0..=1 unless said otherwise; rates in the job's own unit a second.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct RunSeen {
    /// How long it ran; `None` where it did not run to its end.
    pub completed_seconds: Option<f64>,
    /// The part of it beside others.
    pub shared_fraction: f64,
    /// Speed beside others over speed alone, as measured for its decision; above 1 by noise.
    pub shared_speed_fraction: Option<f64>,
    /// Rate while alone, and over how many seconds.
    pub rate_alone: Option<(f64, f64)>,
    /// Rate beside others, and over how many seconds.
    pub rate_shared: Option<(f64, f64)>,
    /// The part of the time in which power or heat held the clock down.
    pub throttled_fraction: Option<f64>,
    /// What its workload's runs alone are like.
    pub usual: Usual,
}

/// How the workload usually runs alone.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Usual {
    /// Mean duration.
    pub seconds: Option<f64>,
    /// Standard deviation of the duration over its mean.
    pub variation_fraction: Option<f64>,
    /// Progress a second, in the units in which its programs report it.
    pub rate: Option<f64>,
    /// The part of the time in which power or heat held the clock down.
    pub throttled_fraction: Option<f64>,
}

/// Whom it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlowKind {
    /// The job beside it.
    Neighbour,
    /// The job itself: a phase, an input, or a wait for something else than the GPU.
    OwnPhase,
    /// Power or heat held the device's clock down.
    Throttling,
}

impl SlowKind {
    /// As written on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Neighbour => "neighbour",
            Self::OwnPhase => "own-phase",
            Self::Throttling => "throttling",
        }
    }
}

/// A cause with its evidence, one sentence.
#[derive(Debug, Clone, PartialEq)]
pub struct SlowCause {
    /// Whom it was.
    pub kind: SlowKind,
    /// What shows it.
    pub evidence: String,
}

/// How fast the whole run went against the workload's runs alone, above 1 if faster; `None` where nothing tells.
pub fn speed_fraction(run: &RunSeen) -> Option<f64> {
    speed_by_rate(run).or_else(|| speed_by_duration(run))
}

fn speed_by_rate(run: &RunSeen) -> Option<f64> {
    let parts = [run.rate_alone, run.rate_shared].into_iter().flatten();
    let (progress, seconds) =
        parts.fold((0.0, 0.0), |sum, (rate, seconds)| (sum.0 + rate * seconds, sum.1 + seconds));
    (seconds >= PHASE_SECONDS_MIN).then_some(progress / seconds / positive(run.usual.rate)?)
}

fn speed_by_duration(run: &RunSeen) -> Option<f64> {
    Some(positive(run.usual.seconds)? / positive(run.completed_seconds)?)
}

fn positive(value: Option<f64>) -> Option<f64> {
    value.filter(|value| *value > 0.0)
}

/// What made it slow, the greatest part first; empty where it was not slow, or nothing tells.
pub fn slow_causes(run: &RunSeen) -> Vec<SlowCause> {
    let throttled = throttling(run);
    let neighbour = neighbour_speed(run).filter(|speed| *speed < SPEED_SLOW);
    let alone = speed_alone(run).filter(|speed| *speed < SPEED_SLOW);
    // Without counters the whole duration is all there is: what no neighbour explains is the run's own.
    let whole = speed_by_duration(run).filter(|speed| is_slow(run, *speed));
    let mut causes = Vec::new();
    if let Some(speed) = neighbour {
        let part = percent(run.shared_fraction);
        let evidence = format!(
            "beside its neighbour it went at {} of its speed alone, for {part} of its time",
            percent(speed)
        );
        causes.push((run.shared_fraction * (1.0 - speed), SlowCause { kind: SlowKind::Neighbour, evidence }));
    }
    let is_slow_by_itself = alone.is_some() || (whole.is_some() && run.shared_fraction == 0.0);
    if let Some(evidence) = throttled.filter(|_| is_slow_by_itself || whole.is_some() || neighbour.is_some())
    {
        let weight = if is_slow_by_itself { 1.0 } else { 0.0 };
        causes.push((weight, SlowCause { kind: SlowKind::Throttling, evidence }));
    } else if let Some(speed) = alone {
        let evidence = format!(
            "while it had the GPU to itself it went at {} of its usual speed: this run does something else than the ones \
             before, or waits for something else than the GPU",
            percent(speed)
        );
        causes.push((
            (1.0 - run.shared_fraction) * (1.0 - speed),
            SlowCause { kind: SlowKind::OwnPhase, evidence },
        ));
    } else if let Some(speed) = whole.filter(|_| run.shared_fraction == 0.0) {
        let evidence = format!(
            "it never shared the GPU and still took {:.2} times as long as its runs before",
            1.0 / speed
        );
        causes.push((1.0 - speed, SlowCause { kind: SlowKind::OwnPhase, evidence }));
    }
    causes.sort_by(|a, b| b.0.total_cmp(&a.0));
    causes.into_iter().map(|(_, cause)| cause).collect()
}

/// Speed beside others over speed alone: within this run where it tells, else against the runs before.
fn neighbour_speed(run: &RunSeen) -> Option<f64> {
    if run.shared_fraction <= 0.0 {
        return None;
    }
    let alone = positive(settled_rate(run.rate_alone));
    let within = settled_rate(run.rate_shared).zip(alone).map(|(shared, alone)| shared / alone);
    within.or(run.shared_speed_fraction)
}

/// A rate that was counted for long enough to mean something.
fn settled_rate(part: Option<(f64, f64)>) -> Option<f64> {
    part.filter(|(_, seconds)| *seconds >= PHASE_SECONDS_MIN).map(|(rate, _)| rate)
}

/// Its rate while alone over its usual one.
fn speed_alone(run: &RunSeen) -> Option<f64> {
    let (rate, _) = run.rate_alone.filter(|(_, seconds)| *seconds >= PHASE_SECONDS_MIN)?;
    Some(rate / positive(run.usual.rate)?)
}

fn is_slow(run: &RunSeen, speed: f64) -> bool {
    let usual_spread = DEVIATIONS * run.usual.variation_fraction.unwrap_or(0.0);
    speed < SPEED_SLOW.min(1.0 / (1.0 + usual_spread))
}

fn throttling(run: &RunSeen) -> Option<String> {
    let held = run.throttled_fraction?;
    let usual = run.usual.throttled_fraction;
    let is_more = held >= usual.unwrap_or(0.0) + THROTTLED_MORE;
    let before =
        usual.map_or_else(String::new, |usual| format!(", and for {} in its runs before", percent(usual)));
    is_more
        .then(|| format!("power or heat held the GPU's clock down for {} of its time{before}", percent(held)))
}

fn percent(fraction: f64) -> String {
    format!("{:.0} %", fraction * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const USUAL: Usual = Usual {
        seconds: Some(1000.0),
        variation_fraction: Some(0.03),
        rate: Some(10.0),
        throttled_fraction: Some(0.02),
    };

    fn kinds(run: &RunSeen) -> Vec<&'static str> {
        slow_causes(run).iter().map(|cause| cause.kind.as_str()).collect()
    }

    #[test]
    fn a_run_as_usual_has_no_cause() {
        let run = RunSeen { completed_seconds: Some(1040.0), usual: USUAL, ..RunSeen::default() };
        assert_eq!((kinds(&run), speed_fraction(&run)), (vec![], Some(1000.0 / 1040.0)));
        assert_eq!(slow_causes(&RunSeen::default()), []);
        assert_eq!(speed_fraction(&RunSeen::default()), None);
        let unsteady = Usual { variation_fraction: Some(0.2), ..USUAL };
        assert_eq!(
            kinds(&RunSeen { completed_seconds: Some(1300.0), usual: unsteady, ..RunSeen::default() }),
            [""; 0]
        );
    }

    #[test]
    fn the_neighbour_answers_for_the_shared_part_only() {
        let run = RunSeen {
            completed_seconds: Some(1300.0),
            shared_fraction: 0.75,
            shared_speed_fraction: Some(0.8),
            usual: USUAL,
            ..RunSeen::default()
        };
        let causes = slow_causes(&run);
        assert_eq!(causes.len(), 1);
        assert_eq!(
            causes[0].evidence,
            "beside its neighbour it went at 80 % of its speed alone, for 75 % of its time"
        );
        // As slow alone as together: it was not the neighbour, whatever the runs before say.
        let own = RunSeen { rate_alone: Some((8.0, 100.0)), rate_shared: Some((8.0, 100.0)), ..run };
        assert_eq!(kinds(&own), ["own-phase"]);
        // A counter over a few seconds says nothing.
        let short = RunSeen { rate_alone: Some((2.0, 3.0)), rate_shared: Some((8.0, 100.0)), ..run };
        assert_eq!(kinds(&short), ["neighbour"]);
    }

    #[test]
    fn both_are_named_the_greater_first() {
        let run = RunSeen {
            shared_fraction: 0.5,
            rate_alone: Some((6.0, 500.0)),
            rate_shared: Some((5.4, 500.0)),
            usual: USUAL,
            ..RunSeen::default()
        };
        assert_eq!(kinds(&run), ["own-phase", "neighbour"]);
        assert!(speed_fraction(&run).is_some_and(|speed| (speed - 0.57).abs() < 1e-9));
    }

    #[test]
    fn throttling_is_named_where_it_is_more_than_usual_and_the_run_was_slow() {
        let slow = RunSeen { completed_seconds: Some(1500.0), usual: USUAL, ..RunSeen::default() };
        assert_eq!(kinds(&slow), ["own-phase"]);
        let hot = RunSeen { throttled_fraction: Some(0.4), ..slow };
        let causes = slow_causes(&hot);
        assert_eq!(causes.len(), 1);
        assert_eq!(
            causes[0].evidence,
            "power or heat held the GPU's clock down for 40 % of its time, and for 2 % in its runs before"
        );
        assert_eq!(kinds(&RunSeen { throttled_fraction: Some(0.1), ..slow }), ["own-phase"], "hardly more");
        assert_eq!(kinds(&RunSeen { completed_seconds: Some(1000.0), ..hot }), [""; 0], "it was not slow");
    }

    proptest! {
        /// Whatever was measured, nobody is blamed who cannot have been it, and nothing is said that is no number.
        #[test]
        fn nobody_is_blamed_without_cause(
            seconds in proptest::option::of(0.0..1e6_f64), shared in 0.0..=1.0_f64,
            speed in proptest::option::of(0.0..3.0_f64), alone in proptest::option::of((0.0..20.0_f64, 0.0..1e4_f64)),
            beside in proptest::option::of((0.0..20.0_f64, 0.0..1e4_f64)), hot in proptest::option::of(0.0..=1.0_f64),
        ) {
            let run = RunSeen {
                completed_seconds: seconds, shared_fraction: shared, shared_speed_fraction: speed, rate_alone: alone,
                rate_shared: beside, throttled_fraction: hot, usual: USUAL,
            };
            for cause in slow_causes(&run) {
                prop_assert!(!cause.evidence.contains("NaN") && !cause.evidence.contains("inf"), "{}", cause.evidence);
                if cause.kind == SlowKind::Neighbour {
                    prop_assert!(shared > 0.0);
                }
            }
            let unshared = RunSeen { shared_fraction: 0.0, ..run };
            prop_assert!(slow_causes(&unshared).iter().all(|cause| cause.kind != SlowKind::Neighbour));
        }
    }
}
