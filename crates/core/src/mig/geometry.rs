//! What one device can be cut into, and whether instances can lie on it together.

use super::MigProfile;
use crate::text::quoted;
use crate::units::Shards;
use crate::word::serialized_as_text;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// One size of instance on one device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Size {
    /// Its name.
    pub profile: MigProfile,
    /// How many memory slices it takes, from its start on.
    pub memory_slices: u8,
    /// The memory slices at which it may start.
    pub starts: Vec<u8>,
    /// How many of it there may be at once.
    pub instances_max: u8,
    /// The memory of an instance; absent where nobody has told it.
    pub memory_bytes: Option<u64>,
    /// Its streaming multiprocessors.
    pub sm_count: u32,
}

/// An instance, there or to be made: a size and the memory slice at which it starts. Written `3g.40gb@4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Slot {
    /// Its size.
    pub profile: MigProfile,
    /// Its first memory slice.
    pub start: u8,
}

/// A text that names no instance.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not an instance; they are written like 3g.40gb@4")]
pub struct InvalidSlot(pub String);

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.profile, self.start)
    }
}

impl FromStr for Slot {
    type Err = InvalidSlot;
    fn from_str(text: &str) -> Result<Self, InvalidSlot> {
        let read = || {
            let (profile, start) = text.split_once('@')?;
            let start = (0..Geometry::MEMORY_SLICES_MAX).find(|known| known.to_string() == start)?;
            Some(Self { profile: profile.parse().ok()?, start })
        };
        read().ok_or_else(|| InvalidSlot(quoted(text)))
    }
}

serialized_as_text!(Slot);

/// The sizes that a device can be cut into, the largest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<Size>", into = "Vec<Size>")]
pub struct Geometry {
    sizes: Vec<Size>,
}

/// Sizes that are those of no device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidGeometry {
    /// No size at all.
    #[error("it has no sizes")]
    Empty,
    /// More sizes than any device has.
    #[error("it has {0} sizes, at most {max} are believed", max = Geometry::SIZES_MAX)]
    TooMany(usize),
    /// A size stands there twice.
    #[error("{0} stands there twice")]
    Twice(MigProfile),
    /// An instance that takes nothing, or lies outside the device.
    #[error("{0} takes no memory slice, or lies outside the device")]
    Outside(MigProfile),
}

/// Instances that cannot lie on one device together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IllegalLayout {
    /// The device has no such size.
    #[error("the device has no {0}")]
    NoSuchSize(MigProfile),
    /// An instance of that size may not start there.
    #[error("a {} may not start at memory slice {}", .0.profile, .0.start)]
    NoSuchStart(Slot),
    /// Two take the same memory slice.
    #[error("{} at {} and {} at {} take the same memory slice", .0.profile, .0.start, .1.profile, .1.start)]
    Overlap(Slot, Slot),
    /// More instances of one size than there may be.
    #[error("there are too many {0}")]
    TooMany(MigProfile),
    /// More compute slices than the device has.
    #[error("they take {0} compute slices, more than there are")]
    ComputeSlices(u32),
}

impl Geometry {
    /// More sizes than any device has.
    pub const SIZES_MAX: usize = 32;
    /// More memory slices than any device has.
    pub const MEMORY_SLICES_MAX: u8 = 16;

    /// A device that can be cut into these.
    ///
    /// # Errors
    /// [`InvalidGeometry`] for sizes that are those of no device.
    pub fn try_new(mut sizes: Vec<Size>) -> Result<Self, InvalidGeometry> {
        if sizes.is_empty() {
            return Err(InvalidGeometry::Empty);
        }
        if sizes.len() > Self::SIZES_MAX {
            return Err(InvalidGeometry::TooMany(sizes.len()));
        }
        sizes.sort_by(|a, b| (b.profile, &b.starts).cmp(&(a.profile, &a.starts)));
        for size in &mut sizes {
            size.starts.sort_unstable();
            size.starts.dedup();
            let is_outside = |start: &u8| start.saturating_add(size.memory_slices) > Self::MEMORY_SLICES_MAX;
            if size.memory_slices == 0 || size.starts.iter().any(is_outside) {
                return Err(InvalidGeometry::Outside(size.profile));
            }
        }
        if let Some(pair) = sizes.windows(2).find(|pair| pair[0].profile == pair[1].profile) {
            return Err(InvalidGeometry::Twice(pair[0].profile));
        }
        Ok(Self { sizes })
    }
    /// All sizes, the largest first.
    pub fn sizes(&self) -> &[Size] {
        &self.sizes
    }
    /// The size of that name.
    pub fn size(&self, profile: MigProfile) -> Option<&Size> {
        self.sizes.iter().find(|size| size.profile == profile)
    }
    /// The one that is the whole device: in it an empty device rests.
    pub fn whole(&self) -> &Size {
        // One is there: `try_new` refuses none.
        &self.sizes[0]
    }
    /// The plain size of each number of compute slices, the largest first: without extras, and with the least memory.
    pub fn plain(&self) -> impl Iterator<Item = &Size> {
        self.sizes.iter().enumerate().filter_map(|(index, size)| {
            let slices = size.profile.compute_slices();
            let mut smaller = self.sizes[index + 1..].iter();
            let is_least = !smaller.any(|other| {
                other.profile.compute_slices() == slices && other.profile.extras() == size.profile.extras()
            });
            (size.profile.extras() == super::Extras::None && is_least).then_some(size)
        })
    }
    /// The part of the device that a size counts as, rounded down, in shards: 14, 28, 42, 57 and 100 of seven slices; 25, 50
    /// and 100 of an A30's four. So whatever may lie on a device together never comes to more than its 100.
    pub fn shards(&self, profile: MigProfile) -> Shards {
        let (part, whole) = (u32::from(profile.compute_slices()), u32::from(self.compute_slices()));
        let count = (100 * part / whole).clamp(1, 100);
        u8::try_from(count).ok().and_then(|count| Shards::try_new(count).ok()).unwrap_or(Shards::ALL)
    }
    /// How many compute slices the device has.
    pub fn compute_slices(&self) -> u8 {
        self.whole().profile.compute_slices()
    }
    /// Whether these can lie on the device together.
    ///
    /// # Errors
    /// [`IllegalLayout`]: why not.
    pub fn check(&self, slots: &[Slot]) -> Result<(), IllegalLayout> {
        for (index, slot) in slots.iter().enumerate() {
            let size = self.size(slot.profile).ok_or(IllegalLayout::NoSuchSize(slot.profile))?;
            if !size.starts.contains(&slot.start) {
                return Err(IllegalLayout::NoSuchStart(*slot));
            }
            if let Some(other) = slots[..index].iter().find(|other| self.overlap(**other, *slot)) {
                return Err(IllegalLayout::Overlap(*other, *slot));
            }
            let alike = slots[..=index].iter().filter(|other| other.profile == slot.profile).count();
            if alike > usize::from(size.instances_max) {
                return Err(IllegalLayout::TooMany(slot.profile));
            }
        }
        let taken: u32 = slots.iter().map(|slot| u32::from(slot.profile.compute_slices())).sum();
        if taken > u32::from(self.compute_slices()) {
            return Err(IllegalLayout::ComputeSlices(taken));
        }
        Ok(())
    }
    /// Whether two take a memory slice that is the same.
    fn overlap(&self, one: Slot, other: Slot) -> bool {
        let end = |slot: Slot| slot.start + self.size(slot.profile).map_or(1, |size| size.memory_slices);
        one.start < end(other) && other.start < end(one)
    }
}

impl TryFrom<Vec<Size>> for Geometry {
    type Error = InvalidGeometry;
    fn try_from(sizes: Vec<Size>) -> Result<Self, InvalidGeometry> {
        Self::try_new(sizes)
    }
}

impl From<Geometry> for Vec<Size> {
    fn from(geometry: Geometry) -> Self {
        geometry.sizes
    }
}
