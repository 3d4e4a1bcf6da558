//! How two devices of a node reach each other, in the words of `nvidia-smi topo -m`.

use crate::text::quoted;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The way between two devices, the nearest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Link {
    /// NVLink, over a switch or without.
    #[serde(rename = "NV")]
    NvLink,
    /// One PCIe switch at most, or one board.
    Pix,
    /// Several PCIe switches, and no host bridge.
    Pxb,
    /// A PCIe host bridge.
    Phb,
    /// Several host bridges of one NUMA node.
    Node,
    /// Between NUMA nodes.
    Sys,
}

impl Link {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::NvLink, Self::Pix, Self::Pxb, Self::Phb, Self::Node, Self::Sys];

    /// `NV`, `PIX`, `PXB`, `PHB`, `NODE`, `SYS`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NvLink => "NV",
            Self::Pix => "PIX",
            Self::Pxb => "PXB",
            Self::Phb => "PHB",
            Self::Node => "NODE",
            Self::Sys => "SYS",
        }
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A word that names no link.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no link; allowed are NV, PIX, PXB, PHB, NODE and SYS")]
pub struct UnknownLink(pub String);

impl std::str::FromStr for Link {
    type Err = UnknownLink;
    fn from_str(text: &str) -> Result<Self, UnknownLink> {
        Self::ALL.into_iter().find(|link| link.as_str() == text).ok_or_else(|| UnknownLink(quoted(text)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_read_as_it_is_written_and_they_are_in_order() {
        for link in Link::ALL {
            assert_eq!(link.to_string().parse(), Ok(link));
            assert_eq!(serde_json::to_value(link).unwrap(), link.as_str());
        }
        assert!(Link::ALL.is_sorted());
        let refused = "NV4".parse::<Link>().unwrap_err().to_string();
        assert_eq!(refused, "'NV4' is no link; allowed are NV, PIX, PXB, PHB, NODE and SYS");
    }
}
