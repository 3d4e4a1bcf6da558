//! Why something that an agent reported is not believed, as the label of a metric and for a person.

/// Why something that an agent reported is not believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Doubt {
    /// Slurm knows of no such start.
    UnknownStart,
    /// Slurm says that it ran elsewhere.
    OtherNode,
    /// The node has no such device.
    OtherDevice,
    /// No decision gave this start to this node.
    OtherShare,
    /// It is dated outside the times that Slurm gives.
    Times,
    /// More energy than a device can draw.
    Energy,
    /// More memory than the device has.
    Memory,
    /// More seconds than there were.
    Seconds,
    /// A reading that no device gives.
    Reading,
    /// It cannot be read at all.
    Unreadable,
}

impl Doubt {
    /// All of them, in the order of their words.
    pub(crate) const ALL: [Self; 10] = [
        Self::Energy,
        Self::Memory,
        Self::OtherDevice,
        Self::OtherNode,
        Self::OtherShare,
        Self::Reading,
        Self::Seconds,
        Self::Times,
        Self::UnknownStart,
        Self::Unreadable,
    ];

    /// As the label has it.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::UnknownStart => "unknown-start",
            Self::OtherNode => "other-node",
            Self::OtherDevice => "other-device",
            Self::OtherShare => "other-share",
            Self::Times => "times",
            Self::Energy => "energy",
            Self::Memory => "memory",
            Self::Seconds => "seconds",
            Self::Reading => "reading",
            Self::Unreadable => "unreadable",
        }
    }

    /// For a person.
    pub(crate) const fn phrase(self) -> &'static str {
        match self {
            Self::UnknownStart => "Slurm knows of no such start",
            Self::OtherNode => "Slurm says that it ran on another node",
            Self::OtherDevice => "the node announced no such device",
            Self::OtherShare => "no decision gave that start to this node",
            Self::Times => "it is dated outside the times that Slurm gives",
            Self::Energy => "it tells of more energy than a device can draw",
            Self::Memory => "it tells of more memory than the device has",
            Self::Seconds => "it tells of more seconds than there were",
            Self::Reading => "no device gives such a reading",
            Self::Unreadable => "it cannot be read",
        }
    }
}
