//! XPU Manager: which cards there are, and what they are. Pure.
//!
//! Version 1 says it in the labels of every metric (`uuid`, `pci_bdf`, `pci_dev`, `dev_name`, `sub_dev`) and never how much
//! memory a card holds. Version 2 has a metric for the card (`hw_gpu_info`) and one for each memory module's size.
//!
//! Sources: as those of [`super::xpum`].

use super::text::Sample;
use super::xpum::dashed;
use pillion_core::DeviceUuid;
use std::collections::BTreeMap;

/// A card that XPU Manager tells of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XpumCard {
    /// As Level Zero's tools write it.
    pub uuid: DeviceUuid,
    /// As Linux writes it: `0000:29:00.0`.
    pub pci_address: String,
    /// The product's name.
    pub name: String,
    /// Its number on the PCI bus, where it is told: version 1 does.
    pub device_id: Option<u32>,
    /// How many tiles it has, one at least.
    pub tile_count: u32,
    /// What one tile holds, where it is told: version 2 does. The tiles of a card are alike.
    pub tile_memory_bytes: Option<u64>,
}

impl XpumCard {
    fn unnamed(uuid: DeviceUuid) -> Self {
        let (pci_address, name) = (String::new(), String::new());
        Self { uuid, pci_address, name, device_id: None, tile_count: 1, tile_memory_bytes: None }
    }
}

/// The cards of a page by their place on the PCI bus, which is the order in which the driver numbers them. One that does
/// not say where it is cannot be numbered, and is left out.
pub(super) fn cards(samples: &[Sample<'_>]) -> Vec<XpumCard> {
    let mut found: BTreeMap<DeviceUuid, XpumCard> = BTreeMap::new();
    for sample in samples {
        let is_v1 = sample.name.starts_with("xpum_");
        let (uuid, tile) = if is_v1 {
            (sample.label("uuid"), sample.label("sub_dev"))
        } else {
            (sample.label("hw_id"), sample.label("com_intel_subdevice_id"))
        };
        let Some(uuid) = uuid.filter(|_| is_v1 || sample.name.starts_with("hw_")).map(dashed) else {
            continue;
        };
        let card = found.entry(uuid.clone()).or_insert_with(|| XpumCard::unnamed(uuid));
        if let Some(address) = sample.label("pci_bdf") {
            address.clone_into(&mut card.pci_address);
        }
        let count = tile.and_then(|tile| tile.parse::<u32>().ok()?.checked_add(1));
        card.tile_count = card.tile_count.max(count.unwrap_or_default());
        if is_v1 { hear_v1(card, sample) } else { hear_v2(card, sample) }
    }
    let mut cards: Vec<XpumCard> = found.into_values().filter(|card| !card.pci_address.is_empty()).collect();
    cards.sort_by(|one, other| one.pci_address.cmp(&other.pci_address));
    cards
}

fn hear_v1(card: &mut XpumCard, sample: &Sample<'_>) {
    if let Some(name) = sample.label("dev_name") {
        name.clone_into(&mut card.name);
    }
    let number = sample.label("pci_dev").and_then(|text| text.strip_prefix("0x"));
    card.device_id = number.and_then(|digits| u32::from_str_radix(digits, 16).ok()).or(card.device_id);
}

fn hear_v2(card: &mut XpumCard, sample: &Sample<'_>) {
    match sample.name {
        "hw_gpu_info" => {
            if let Some(name) = sample.label("hw_model") {
                name.clone_into(&mut card.name);
            }
            let count = sample.label("com_intel_subdevice_count").and_then(|count| count.parse().ok());
            card.tile_count = card.tile_count.max(count.unwrap_or_default());
        }
        "hw_memory_size_bytes" if sample.label("hw_memory_location") == Some("device") => {
            card.tile_memory_bytes = bytes(sample.value).or(card.tile_memory_bytes);
        }
        _ => {}
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "`as` saturates, and it is not negative"
)]
fn bytes(value: f64) -> Option<u64> {
    (value.is_finite() && value >= 1.0).then_some(value as u64)
}

#[cfg(test)]
mod tests {
    use super::super::text::samples;
    use super::*;

    const V1: &str = include_str!("../../tests/data/xpum-1.2.txt");
    const V2: &str = include_str!("../../tests/data/xpumd-2.0.txt");

    fn read(page: &str) -> Vec<XpumCard> {
        cards(&samples(page).unwrap())
    }

    #[test]
    fn both_versions_say_what_a_card_is() {
        let card = XpumCard {
            uuid: DeviceUuid::new("00000000-0000-0029-0000-002f0bd58086"),
            pci_address: "0000:29:00.0".to_owned(),
            name: "Intel(R) Data Center GPU Max 1550".to_owned(),
            device_id: Some(0x0bd5),
            tile_count: 2,
            tile_memory_bytes: None,
        };
        assert_eq!(read(V1), std::slice::from_ref(&card));
        assert_eq!(read(V2), [XpumCard { device_id: None, tile_memory_bytes: Some(64 << 30), ..card }]);
    }

    #[test]
    fn cards_stand_in_the_order_of_the_bus_and_one_without_a_place_is_left_out() {
        let page = "xpum_power_watts{uuid=\"b\",pci_bdf=\"0000:3a:00.0\"} 1\n\
                    xpum_power_watts{uuid=\"c\",pci_bdf=\"0000:18:00.0\"} 1\n\
                    xpum_power_watts{uuid=\"a\"} 1\n\
                    node_load1{uuid=\"d\",pci_bdf=\"0000:01:00.0\"} 1\n";
        let uuids: Vec<DeviceUuid> = read(page).into_iter().map(|card| card.uuid).collect();
        assert_eq!(uuids, [DeviceUuid::new("c"), DeviceUuid::new("b")]);
    }

    #[test]
    fn a_card_without_tiles_has_one() {
        let page = "hw_gpu_info{hw_id=\"a\",hw_model=\"Intel(R) Data Center GPU Max 1100\",pci_bdf=\"0000:18:00.0\"} 1\n\
                    hw_memory_size_bytes{hw_id=\"a\",hw_memory_location=\"system\"} 1e12\n\
                    hw_memory_size_bytes{hw_id=\"a\",hw_memory_location=\"device\"} NaN\n";
        let all = read(page);
        assert_eq!((all[0].tile_count, all[0].tile_memory_bytes), (1, None));
    }
}
