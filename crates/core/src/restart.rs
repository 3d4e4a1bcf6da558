//! What a user lets be done with his job where its device memory does not suffice.

use crate::word::spelt_as_serialized;
use serde::{Deserialize, Serialize};

/// Whether a job may be started again, once, with more device memory. Each lets what those before it let.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RestartConsent {
    /// It is told, and stays as it is.
    #[default]
    No,
    /// Once it has run out of device memory for certain.
    Yes,
    /// Also before: it may be ended while it runs, where it is all but certain that it will run out.
    Early,
}

spelt_as_serialized!(RestartConsent => "consent to a restart");

impl RestartConsent {
    /// Whether it may be started again at all.
    pub const fn is_given(self) -> bool {
        match self {
            Self::No => false,
            Self::Yes | Self::Early => true,
        }
    }

    /// Whether it may be ended for that.
    pub const fn lets_end(self) -> bool {
        match self {
            Self::No | Self::Yes => false,
            Self::Early => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_lets_it_be_ended_lets_it_be_started_again_too() {
        assert_eq!("early".parse(), Ok(RestartConsent::Early));
        assert_eq!(RestartConsent::Yes.to_string(), "yes");
        for consent in [RestartConsent::No, RestartConsent::Yes, RestartConsent::Early] {
            assert!(consent.is_given() || !consent.lets_end());
        }
        assert!(RestartConsent::Yes < RestartConsent::Early);
    }
}
