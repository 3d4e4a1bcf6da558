//! Level Zero, opened: the cards and tiles that are there, and the way that led to them.

use super::calls::Calls;
use super::read::Parts;
use crate::DeviceError;
use level_zero_sys::zes_device_handle_t;

/// By which call system management came: one way for a whole process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Modern,
    /// `zeInit`, with `ZES_ENABLE_SYSMAN=1`.
    Legacy,
}

/// One tile: what a site books as a device.
#[derive(Debug, Clone)]
pub(super) struct Tile {
    /// Tiles are numbered over all cards, in the driver's order, which is what `ZE_AFFINITY_MASK` counts by.
    pub(super) index: u32,
    /// Its number on its card.
    pub(super) number: u32,
    /// Its card, in [`Session::cards`].
    pub(super) card: usize,
    pub(super) parts: Parts,
}

#[derive(Debug, Clone)]
pub(super) struct Card {
    pub(super) handle: zes_device_handle_t,
    pub(super) tile_count: u32,
    /// The index of its first tile.
    pub(super) first_index: u32,
    pub(super) model: String,
    pub(super) uuid: [u8; 16],
    /// As Linux writes it; empty if the driver does not say.
    pub(super) pci_address: String,
}

/// Level Zero, opened.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) calls: Calls,
    pub(super) way: Way,
    pub(super) cards: Vec<Card>,
    pub(super) tiles: Vec<Tile>,
}

impl Session {
    pub(super) fn tile(&self, index: u32) -> Result<&Tile, DeviceError> {
        self.tiles.iter().find(|tile| tile.index == index).ok_or(DeviceError::NoSuchDevice { index })
    }

    pub(super) fn card(&self, tile: &Tile) -> &Card {
        &self.cards[tile.card]
    }
}
