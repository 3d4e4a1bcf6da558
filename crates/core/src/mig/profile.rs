//! The names of sizes of instances, as NVIDIA prints them: `3g.40gb`, `1g.10gb+me`.

use crate::text::quoted;
use crate::word::serialized_as_text;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A size of instance, by its name. Drivers and boards differ in the gigabytes that they write, so a name is compared with
/// those of the same device only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MigProfile {
    compute_slices: u8,
    memory_gigabytes: u16,
    extras: Extras,
}

/// What an instance has, or lacks, beside its slices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Extras {
    /// What its size has.
    #[default]
    None,
    /// The media engines.
    Media,
    /// All media engines of the device.
    AllMedia,
    /// Graphics.
    Graphics,
    /// No media engines.
    NoMedia,
}

impl Extras {
    const ALL: [Self; 5] = [Self::None, Self::Media, Self::AllMedia, Self::Graphics, Self::NoMedia];

    /// As it ends the name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Media => "+me",
            Self::AllMedia => "+me.all",
            Self::Graphics => "+gfx",
            Self::NoMedia => "-me",
        }
    }
}

/// A text that names no size of instance.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a MIG profile; they are written like 3g.40gb or 1g.10gb+me")]
pub struct InvalidMigProfile(pub String);

impl MigProfile {
    /// More compute slices than any device has.
    pub const COMPUTE_SLICES_MAX: u8 = 8;

    /// `None` for a number of slices that no device has, and for no memory.
    pub const fn new(compute_slices: u8, memory_gigabytes: u16, extras: Extras) -> Option<Self> {
        if compute_slices == 0 || compute_slices > Self::COMPUTE_SLICES_MAX || memory_gigabytes == 0 {
            return None;
        }
        Some(Self { compute_slices, memory_gigabytes, extras })
    }
    /// How many compute slices it has.
    pub const fn compute_slices(self) -> u8 {
        self.compute_slices
    }
    /// The gigabytes of its name; how much memory it has, its [`Size`](super::Size) says.
    pub const fn memory_gigabytes(self) -> u16 {
        self.memory_gigabytes
    }
    /// What it has beside its slices.
    pub const fn extras(self) -> Extras {
        self.extras
    }
}

impl fmt::Display for MigProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { compute_slices, memory_gigabytes, extras } = self;
        write!(f, "{compute_slices}g.{memory_gigabytes}gb{}", extras.as_str())
    }
}

impl FromStr for MigProfile {
    type Err = InvalidMigProfile;
    fn from_str(text: &str) -> Result<Self, InvalidMigProfile> {
        read(text).ok_or_else(|| InvalidMigProfile(quoted(text)))
    }
}

fn read(text: &str) -> Option<MigProfile> {
    let (compute_slices, rest) = text.split_once("g.")?;
    let (gigabytes, extras) = rest.split_once("gb")?;
    let extras = Extras::ALL.into_iter().find(|known| known.as_str() == extras)?;
    MigProfile::new(number(compute_slices)?, number(gigabytes)?, extras)
}

/// A number as it is printed: no sign, no zero before it, so that each profile has one name.
fn number<N: FromStr>(text: &str) -> Option<N> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    if is_plain { text.parse().ok() } else { None }
}

serialized_as_text!(MigProfile);
