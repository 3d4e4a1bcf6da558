//! Who somebody is, once that is proven.

use crate::limits::{CONNECTIONS_PER_ADDRESS_MAX, CONNECTIONS_PER_IDENTITY_MAX};
use pillion_core::{NodeName, UserId};

/// Who somebody was proven to be.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Identity {
    /// The agent of this node.
    Agent(NodeName),
    /// A user, by uid.
    User(UserId),
    /// Whoever runs something on this machine (`auth.method = "none"`).
    Nobody,
}

impl Identity {
    /// How many connections it may have at once.
    pub(crate) const fn connections_max(&self) -> usize {
        match self {
            // As root operators come, and scripts of the site.
            Self::User(UserId(0)) | Self::Nobody => CONNECTIONS_PER_ADDRESS_MAX,
            Self::Agent(_) | Self::User(_) => CONNECTIONS_PER_IDENTITY_MAX,
        }
    }
}

impl std::fmt::Display for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Agent(node) => write!(f, "the agent of {node}"),
            Self::User(uid) => write!(f, "uid {}", uid.0),
            Self::Nobody => f.write_str("this machine"),
        }
    }
}
