//! What a driver tells of its device, held against the table: the driver is right, and what it says otherwise is worth a line.

use super::{Geometry, MigProfile, Size};
use std::fmt;

/// Something that a driver says otherwise than the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Difference {
    /// A size that the driver does not have.
    Missing(MigProfile),
    /// A size that the table does not have.
    Unlisted(MigProfile),
    /// The starts of a size, those of the table first.
    Starts(MigProfile, Vec<u8>, Vec<u8>),
    /// A number of a size, that of the table first.
    Number {
        /// Which size.
        profile: MigProfile,
        /// What is counted.
        what: &'static str,
        /// What the table says.
        listed: u64,
        /// What the driver says.
        told: u64,
    },
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(profile) => write!(f, "the driver has no {profile}"),
            Self::Unlisted(profile) => write!(f, "the driver has {profile}, which is not in the table"),
            Self::Starts(profile, listed, told) => {
                write!(f, "{profile} may start at {told:?}; the table says {listed:?}")
            }
            Self::Number { profile, what, listed, told } => {
                write!(f, "{profile} has {told} {what}; the table says {listed}")
            }
        }
    }
}

/// What to go by on a device of this model, and where the driver says something else than the table: what the driver tells where
/// it tells anything, else the table.
pub fn resolve(told: Option<Geometry>, model: &str) -> (Option<Geometry>, Vec<Difference>) {
    match (told, Geometry::of_model(model)) {
        (Some(told), Some(listed)) => {
            let found = differences(listed, &told);
            (Some(told), found)
        }
        (Some(told), None) => (Some(told), Vec::new()),
        (None, listed) => (listed.cloned(), Vec::new()),
    }
}

/// Where what a driver tells is not what is listed. A number that the table does not know is no difference.
pub fn differences(listed: &Geometry, told: &Geometry) -> Vec<Difference> {
    let listed_sizes = listed.sizes().iter();
    let of_listed = listed_sizes.flat_map(|size| match told.size(size.profile) {
        Some(told) => of_size(size, told),
        None => vec![Difference::Missing(size.profile)],
    });
    let unlisted = told.sizes().iter().filter(|size| listed.size(size.profile).is_none());
    of_listed.chain(unlisted.map(|size| Difference::Unlisted(size.profile))).collect()
}

fn of_size(listed: &Size, told: &Size) -> Vec<Difference> {
    let profile = listed.profile;
    let numbers = [
        ("memory slices", Some(listed.memory_slices.into()), Some(told.memory_slices.into())),
        ("instances at most", Some(listed.instances_max.into()), Some(told.instances_max.into())),
        ("bytes of memory", listed.memory_bytes, told.memory_bytes),
        ("SMs", Some(listed.sm_count.into()), Some(told.sm_count.into())),
    ];
    let mut found: Vec<Difference> = numbers
        .into_iter()
        .filter_map(|(what, listed, told)| Some((what, listed?, told?)))
        .filter(|(_, listed, told)| listed != told)
        .map(|(what, listed, told)| Difference::Number { profile, what, listed, told })
        .collect();
    if listed.starts != told.starts {
        found.push(Difference::Starts(profile, listed.starts.clone(), told.starts.clone()));
    }
    found
}
