//! One field at a time: numbers into units, text into identifiers, each error naming its field.

use pillion_core::device::{Mechanism, UnknownMechanism};
use pillion_core::gres_types::InvalidGresTypes;
use pillion_core::ids::{InvalidJobId, InvalidJobStart};
use pillion_core::mig::{InvalidGeometry, InvalidMigProfile, InvalidSlot};
use pillion_core::share::InvalidSharing;
use pillion_core::text;
use pillion_core::units::OutOfRange;
use pillion_core::{Fraction, JobStart, UnixTime};

/// The greatest quantity that is believed, of any unit: sums of any number of them stay finite.
pub(super) const QUANTITY_MAX: f64 = 1e18;

/// The most devices of a node, and of whatever else there is one a device.
pub(super) use pillion_core::gres_types::DEVICES_MAX;
/// The most tenants of a device at one moment, shares that an agent holds, and faults or plugins of a node.
pub(super) const TENANTS_MAX: usize = 256;
/// The most neighbours of a run, and looks and errors that are kept of its end.
pub(super) const NEIGHBOURS_MAX: usize = 1_024;

/// A field that holds no value of its unit.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum InvalidField {
    /// Text that must not be empty.
    #[error("{0} is empty")]
    Empty(&'static str),
    /// Devices that no job can have together.
    #[error(transparent)]
    Devices(#[from] InvalidGresTypes),
    /// A part of each of several devices, by a mechanism that shares each by itself.
    #[error("a share of {0} is of parts of several devices; only mps shares several as one")]
    PartsOfSeveral(String),
    /// Text that is no name.
    #[error("{field} is '{text}'; allowed are letters, digits and ._-+:/, at most 128")]
    Name {
        /// The field's name on the wire.
        field: &'static str,
        /// What it held, as far as it is told.
        text: String,
    },
    /// A list that is too long.
    #[error("{field} has {count} entries; allowed are {most}")]
    TooMany {
        /// The field's name on the wire.
        field: &'static str,
        /// How many it had.
        count: usize,
        /// How many it may have.
        most: usize,
    },
    /// A quantity below zero, beyond all measure, or no number at all.
    #[error("{field} is {value}; allowed are numbers from 0 to 1e18")]
    Quantity {
        /// The field's name on the wire.
        field: &'static str,
        /// What it held.
        value: f64,
    },
    /// A number outside its unit.
    #[error("{field} is out of range")]
    Range {
        /// The field's name on the wire.
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
    /// The word names no mechanism.
    #[error("invalid mechanism")]
    Mechanism(#[from] UnknownMechanism),
    /// No way to share.
    #[error(transparent)]
    Sharing(#[from] InvalidSharing),
    /// No instance.
    #[error("invalid mig_slot")]
    Slot(#[from] InvalidSlot),
    /// No size of instance.
    #[error("invalid mig_sizes")]
    Profile(#[from] InvalidMigProfile),
    /// Sizes that no device can be cut into.
    #[error("invalid mig_sizes")]
    Geometry(#[from] InvalidGeometry),
    /// A number of slices that no device has.
    #[error("{field} is {value}; allowed are 0 to 255")]
    Slices {
        /// The field's name on the wire.
        field: &'static str,
        /// What it held.
        value: u32,
    },
}

/// The most letters of a name: of a node, as Slurm has them, a device, a model, a release.
const NAME_CHARS_MAX: usize = 128;
/// The most letters of a sentence: a driver's words, a path.
const WORDS_CHARS_MAX: usize = 512;

/// A name that must be there, of letters that need no care anywhere.
pub(super) fn name(field: &'static str, text: String) -> Result<String, InvalidField> {
    if text.is_empty() {
        Err(InvalidField::Empty(field))
    } else if text::is_identifier(&text, NAME_CHARS_MAX) {
        Ok(text)
    } else {
        Err(InvalidField::Name { field, text: text::quoted(&text) })
    }
}

/// What people call something, such as a model or a release: one short line.
pub(super) fn title(field: &'static str, text: &str) -> Result<String, InvalidField> {
    if text.is_empty() { Err(InvalidField::Empty(field)) } else { Ok(text::shown(text, NAME_CHARS_MAX)) }
}

/// A sentence for people: one line.
pub(super) fn words(text: &str) -> String {
    text::shown(text, WORDS_CHARS_MAX)
}

/// A list that is not too long.
pub(super) fn few<T>(field: &'static str, list: Vec<T>, most: usize) -> Result<Vec<T>, InvalidField> {
    if list.len() <= most { Ok(list) } else { Err(InvalidField::TooMany { field, count: list.len(), most }) }
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

/// A moment, in seconds since 1970.
pub(super) fn time(field: &'static str, seconds: f64) -> Result<UnixTime, InvalidField> {
    quantity(field, seconds).map(UnixTime::from_seconds)
}

/// A number of slices or instances.
pub(super) fn slices(field: &'static str, value: u32) -> Result<u8, InvalidField> {
    u8::try_from(value).map_err(|_| InvalidField::Slices { field, value })
}

/// How a device is shared.
pub(super) fn mechanism(word: &str) -> Result<Mechanism, InvalidField> {
    Ok(word.parse()?)
}

/// A start of a job, from its two parts on the wire.
pub(super) fn start(job_id: &str, restart_count: u32) -> Result<JobStart, InvalidField> {
    Ok(JobStart { job_id: job_id.parse()?, restart_count })
}
