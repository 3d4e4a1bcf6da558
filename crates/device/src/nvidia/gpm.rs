//! NVML's GPU performance monitoring: what the whole device did between two samples. Hopper and later.
//!
//! NVML wants more than 100 ms between two samples of a device (nvml.h, `nvmlGpmSampleGet`). Whoever asks sooner is given
//! the values of the last whole interval again: None would read as a metric that stopped coming.

use super::convert::{GPM, gpm_value};
use super::trouble::Trouble;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::gpm::gpm_metrics_get;
use nvml_wrapper::{Device, GpmSample};
use pillion_core::metric::Metric;
use std::time::Duration;
use tokio::time::Instant;

/// The shortest time between two samples.
const SAMPLE_PAUSE: Duration = Duration::from_millis(100);

/// What two samples of one device say.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Rates {
    Known(Vec<(Metric, f64)>),
    /// None yet: there is one sample only.
    Pending,
    /// None: this device has no GPM, or it fails just now.
    Absent,
    /// None: we may not ask.
    Refused(String),
}

/// The samples of one device.
#[derive(Debug)]
pub(super) struct Gpm<'nvml> {
    /// Whether the device has GPM; `None` until it said so.
    is_offered: Option<bool>,
    /// The last sample.
    last: Option<GpmSample<'nvml>>,
    rates: Rates,
}

impl<'nvml> Gpm<'nvml> {
    /// Nothing is asked yet.
    pub(super) fn new() -> Self {
        Self { is_offered: None, last: None, rates: Rates::Pending }
    }

    /// Means since the call before, if that was long enough ago; else those that it gave. `sampled_at`: when the device's
    /// last sample was taken, by an earlier handle too.
    ///
    /// # Errors
    /// What concerns the whole device.
    pub(super) fn read(
        &mut self,
        device: &Device<'nvml>,
        sampled_at: &mut Option<Instant>,
    ) -> Result<Rates, Trouble> {
        match self.is_offered(device)? {
            Answer::Given(true) => {}
            Answer::Given(false) | Answer::Absent => return Ok(Rates::Absent),
            Answer::Refused(reason) => return Ok(Rates::Refused(reason)),
        }
        if sampled_at.is_some_and(|taken_at| taken_at.elapsed() <= SAMPLE_PAUSE) {
            return Ok(self.rates.clone());
        }
        let before = self.last.take();
        self.rates = Rates::Absent;
        let sample = match of_gpm(device.gpm_sample())? {
            Answer::Given(sample) => sample,
            Answer::Absent => return Ok(Rates::Absent),
            Answer::Refused(reason) => return Ok(Rates::Refused(reason)),
        };
        *sampled_at = Some(Instant::now());
        self.rates = match &before {
            None => Rates::Pending,
            Some(before) => {
                match of_gpm(gpm_metrics_get(device.nvml(), before, &sample, &GPM.map(|(id, _)| id)))? {
                    Answer::Given(answers) => {
                        let known = GPM.into_iter().zip(answers);
                        let known = known.filter_map(|((_, metric), it)| {
                            Some((metric, gpm_value(metric, it.ok()?.value)?))
                        });
                        Rates::Known(known.collect())
                    }
                    Answer::Absent => Rates::Absent,
                    Answer::Refused(reason) => Rates::Refused(reason),
                }
            }
        };
        self.last = Some(sample);
        Ok(self.rates.clone())
    }

    /// Whether the device has GPM. What it once said stands.
    fn is_offered(&mut self, device: &Device<'nvml>) -> Result<Answer<bool>, Trouble> {
        if let Some(is_offered) = self.is_offered {
            return Ok(Answer::Given(is_offered));
        }
        let answer = match device.gpm_support() {
            // Drivers from before Hopper do not know the question.
            Err(NvmlError::NotSupported | NvmlError::FailedToLoadSymbol(_)) => Answer::Given(false),
            answer => of_gpm(answer)?,
        };
        if let Answer::Given(is_offered) = answer {
            self.is_offered = Some(is_offered);
        }
        Ok(answer)
    }
}

/// What GPM says to one question.
enum Answer<T> {
    Given(T),
    /// Nothing, or not now.
    Absent,
    /// We may not ask.
    Refused(String),
}

/// An answer of GPM, which may fail alone.
fn of_gpm<T>(answer: Result<T, NvmlError>) -> Result<Answer<T>, Trouble> {
    match answer.map_err(Trouble::from) {
        Ok(value) => Ok(Answer::Given(value)),
        Err(Trouble::Refused(reason)) => Ok(Answer::Refused(reason)),
        Err(trouble) if trouble.is_of_one_value() => Ok(Answer::Absent),
        Err(trouble) => Err(trouble),
    }
}
