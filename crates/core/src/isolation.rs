//! What stands between tenants of different users.

use crate::word::spelt_as_serialized;
use serde::{Deserialize, Serialize};

/// The stricter of what the site and both users want holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Isolation {
    /// What the mechanism gives: under MPS no wall.
    #[default]
    Shared,
    /// A wall: whoever is not of the same user has an instance of his own, or is not there.
    Hard,
}

spelt_as_serialized!(Isolation => "isolation");

impl Isolation {
    /// Whether it asks for nothing.
    pub const fn is_shared(&self) -> bool {
        match self {
            Self::Shared => true,
            Self::Hard => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stricter_one_is_the_greater() {
        assert_eq!(Isolation::Shared.max(Isolation::Hard), Isolation::Hard);
        assert_eq!(("hard".parse(), "soft".parse::<Isolation>().is_err()), (Ok(Isolation::Hard), true));
    }
}
