//! One field at a time: numbers into units, text into identifiers, each error naming its field.

use pillion_core::device::UnknownMechanism;
use pillion_core::ids::{InvalidJobId, InvalidJobStart};
use pillion_core::units::OutOfRange;
use pillion_core::{Fraction, JobStart, UnixTime};

/// The greatest quantity that is believed, of any unit: sums of any number of them stay finite.
pub(super) const QUANTITY_MAX: f64 = 1e18;

/// A field that holds no value of its unit.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum InvalidField {
    /// Text that must not be empty.
    #[error("{0} is empty")]
    Empty(&'static str),
    /// A quantity below zero, beyond all measure, or no number at all.
    #[error("{field} is {value}; allowed are numbers from 0 to 1e18")]
    Quantity {
        /// The field.
        field: &'static str,
        /// What it held.
        value: f64,
    },
    /// A number outside its unit.
    #[error("{field} is out of range")]
    Range {
        /// The field.
        field: &'static str,
        /// What it held, and what is allowed.
        source: OutOfRange,
    },
    /// No job id.
    #[error("invalid job_id")]
    Job(#[from] InvalidJobId),
    /// No start of a job.
    #[error("invalid start")]
    Start(#[from] InvalidJobStart),
    /// No mechanism.
    #[error("invalid mechanism")]
    Mechanism(#[from] UnknownMechanism),
    /// A CCS mode that no card has.
    #[error("ccs_mode is {0}; allowed are 1, 2 and 4")]
    CcsMode(u32),
}

/// Text that must be there.
pub(super) fn text(field: &'static str, text: String) -> Result<String, InvalidField> {
    if text.is_empty() { Err(InvalidField::Empty(field)) } else { Ok(text) }
}

/// A quantity from 0 up.
pub(super) fn quantity(field: &'static str, value: f64) -> Result<f64, InvalidField> {
    if is_quantity(value) { Ok(value) } else { Err(InvalidField::Quantity { field, value }) }
}

fn is_quantity(value: f64) -> bool {
    (0.0..=QUANTITY_MAX).contains(&value)
}

/// What a job wrote of its own progress: its user's word, and no reason to lose what the agent measured beside it. What is
/// none is as good as not written.
pub(super) fn progress(value: Option<f64>) -> Option<f64> {
    value.filter(|value| is_quantity(*value))
}

/// A quantity that may be unknown.
pub(super) fn known_quantity(field: &'static str, value: Option<f64>) -> Result<Option<f64>, InvalidField> {
    value.map(|value| quantity(field, value)).transpose()
}

/// A fraction that may be unknown.
pub(super) fn fraction(field: &'static str, value: Option<f64>) -> Result<Option<Fraction>, InvalidField> {
    value
        .map(|value| Fraction::try_new(value).map_err(|source| InvalidField::Range { field, source }))
        .transpose()
}

/// A moment.
pub(super) fn time(field: &'static str, seconds: f64) -> Result<UnixTime, InvalidField> {
    quantity(field, seconds).map(UnixTime::from_seconds)
}

/// A start of a job, from its two parts on the wire.
pub(super) fn start(job_id: &str, restart_count: u32) -> Result<JobStart, InvalidField> {
    Ok(JobStart { job_id: job_id.parse()?, restart_count })
}
