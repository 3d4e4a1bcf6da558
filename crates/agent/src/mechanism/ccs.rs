//! Intel's compute command streamers: a card is cut into 1, 2 or 4 equal parts, in one mode for all who run on it. Each
//! process asks for the mode by its environment; two that ask for different ones would block each other.

use super::variable::Variable;
use pillion_core::device::DeviceDescription;

/// How many devices (tiles) one card of a model has, as sites book them: a tile a device, in the order of the cards.
pub(crate) fn tiles_per_card(model: &str) -> u32 {
    if model == "max-1550" { 2 } else { 1 }
}

/// The variables of a tenant. `COMPOSITE` makes an index stand for a card, and `card.tile` for one tile of it, whatever
/// the driver's version (in `FLAT` they differ on what an index means to `ZEX_NUMBER_OF_CCS`); what the mask leaves is
/// number 0, whatever its number before.
pub(crate) fn environment(mode: u8, device: &DeviceDescription) -> Vec<Variable> {
    let tiles = tiles_per_card(&device.model);
    let mask = match tiles {
        1 => device.index.to_string(),
        _ => format!("{}.{}", device.index / tiles, device.index % tiles),
    };
    vec![
        ("ZE_FLAT_DEVICE_HIERARCHY".to_owned(), "COMPOSITE".to_owned()),
        ("ZE_AFFINITY_MASK".to_owned(), mask),
        ("ZEX_NUMBER_OF_CCS".to_owned(), format!("0:{mode}")),
    ]
}
