//! Foreign text and bytes at every door: whatever is said there, nothing panics, nothing is believed that is not whole, and
//! what is understood is understood again. A short run is part of every test; `PILLION_FUZZ_SECONDS=3600` makes each target
//! go on for so long, with other values each time, and the CI sets it to a few seconds (CONTRIBUTING.md).

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails where it stands")]

#[cfg(test)]
mod claims;
#[cfg(test)]
mod files;
#[cfg(test)]
mod node;
#[cfg(test)]
mod option;
#[cfg(test)]
#[path = "../../slurm-spank/tests/support/option_line.rs"]
mod option_line;
#[cfg(test)]
mod replay;
#[cfg(test)]
mod requests;
#[cfg(test)]
mod slurm;
#[cfg(test)]
mod values;
#[cfg(test)]
mod wire;

use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use std::fmt::Debug;
use std::time::{Duration, Instant};

/// The values of a short run, which are the same each time.
const CASES: u32 = 512;

/// Holds `property` against values of `strategy`: as many as a short run has, then others until the time is over.
#[cfg(test)]
pub(crate) fn fuzz<S: Strategy>(name: &str, strategy: &S, property: impl Fn(S::Value))
where
    S::Value: Debug,
{
    fuzz_in_turns(name, CASES, strategy, property);
}

/// The same with so many at a time, where each takes long.
#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "how long it goes on is real time")]
pub(crate) fn fuzz_in_turns<S: Strategy>(name: &str, cases: u32, strategy: &S, property: impl Fn(S::Value))
where
    S::Value: Debug,
{
    let seconds = std::env::var("PILLION_FUZZ_SECONDS").ok().and_then(|text| text.parse().ok());
    let (begun, time) = (Instant::now(), Duration::from_secs(seconds.unwrap_or(0)));
    let config = || Config { cases, failure_persistence: None, ..Config::default() };
    let known = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(config(), known);
    let mut count = 0_u64;
    loop {
        let held = runner.run(strategy, |value| {
            property(value);
            Ok::<(), TestCaseError>(())
        });
        match held {
            Ok(()) => count += u64::from(cases),
            Err(TestError::Fail(why, value)) => panic!("{name}: {why}\n{value:#?}"),
            Err(TestError::Abort(why)) => panic!("{name}: {why}"),
        }
        if begun.elapsed() >= time {
            break;
        }
        runner = TestRunner::new(config());
    }
    println!("{name}: {count} values in {:.0} s", begun.elapsed().as_secs_f64());
}
