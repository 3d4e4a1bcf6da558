//! The Intel devices of a node as XPU Manager names them, where Level Zero cannot be loaded: who is there and who is on
//! them. What they do is the exporter's to say. Without Level Zero nobody can tell how a card's compute engines are divided,
//! and jobs lack it too, so that tenants are time-sliced.
//!
//! As with Level Zero a device is a tile, numbered over all cards by their places on the bus. Their number is fixed when
//! they are first named. Processes are those that the kernel shows with a file of the card open.

use super::convert;
use super::process::{self, Place};
use crate::exporter::{XpumCard, tile_uuid};
use crate::{Backend, DeviceError};
use pillion_core::GresType;
use pillion_core::device::{DeviceDescription, DeviceNotice, DeviceProcess, Mechanism, NoticeKind, Reading};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Memory of one tile by model, where XPU Manager does not say it: Intel's product specifications ("Intel Data Center GPU
/// Max Series", 128, 96 and 48 GB of memory on two, two and one tiles).
const TILE_MEMORY_GIB: [(&str, u64); 6] = [
    ("max-1550", 64),
    ("max-1550vg", 64),
    ("max-1450", 64),
    ("max-1350", 48),
    ("max-1100", 48),
    ("max-1100c", 48),
];

#[derive(Debug)]
struct Tile {
    description: DeviceDescription,
    pci_address: String,
    /// Of its card, among all.
    card: u32,
    first_index: u32,
    number: u32,
    /// How many its card has.
    siblings: u32,
}

/// The devices of all cards.
#[derive(Debug)]
pub(crate) struct Reported {
    tiles: Vec<Tile>,
    notices: Vec<DeviceNotice>,
    proc_root: PathBuf,
}

impl Reported {
    /// `why`: what kept Level Zero from being loaded.
    pub(crate) fn new(cards: &[XpumCard], why: &str, proc_root: impl Into<PathBuf>) -> Self {
        let mut tiles: Vec<Tile> = Vec::new();
        let mut first_index = 0;
        for (card, reported) in (0..).zip(cards) {
            tiles.extend(
                (0..reported.tile_count).filter_map(|number| tile(reported, card, first_index, number)),
            );
            // One that cannot be described keeps its numbers.
            first_index += reported.tile_count;
        }
        Self {
            notices: tiles
                .iter()
                .map(|tile| DeviceNotice {
                    index: tile.description.index,
                    kind: NoticeKind::NoMechanism,
                    detail: format!("its CCS mode takes Level Zero, and {why}"),
                })
                .collect(),
            tiles,
            proc_root: proc_root.into(),
        }
    }

    fn tile(&self, index: u32) -> Result<&Tile, DeviceError> {
        let found = self.tiles.iter().find(|tile| tile.description.index == index);
        found.ok_or(DeviceError::NoSuchDevice { index })
    }
}

/// A tile of a card, if it can be described.
fn tile(card: &XpumCard, card_number: u32, first_index: u32, number: u32) -> Option<Tile> {
    let index = first_index + number;
    let model = convert::model(&card.name, card.device_id.unwrap_or_default());
    let by_model = TILE_MEMORY_GIB.iter().find(|(name, _)| *name == model).map(|(_, gib)| gib << 30);
    let Some(memory_bytes) = card.tile_memory_bytes.or(by_model) else {
        tracing::warn!(device = index, model, "device is left out: nobody says how much memory it has");
        return None;
    };
    let uuid =
        if card.tile_count > 1 { tile_uuid(&card.uuid, &number.to_string()) } else { card.uuid.clone() };
    let gres_type = GresType::new(format!("g{index}"));
    let mechanism = Mechanism::TimeSliced;
    Some(Tile {
        description: DeviceDescription {
            index,
            uuid,
            model,
            memory_bytes,
            gres_type,
            mechanism,
            instances: None,
            geometry: None,
            links: BTreeMap::new(),
        },
        pci_address: card.pci_address.to_lowercase(),
        card: card_number,
        first_index,
        number,
        siblings: card.tile_count,
    })
}

impl Tile {
    /// Those of the processes on its card that are on it.
    fn processes(&self, proc_root: &Path, on_cards: &BTreeMap<String, BTreeSet<u32>>) -> Vec<DeviceProcess> {
        let Self { pci_address, card, first_index, number, siblings, .. } = self;
        let (card, first_index, tile_count) = (*card, *first_index, *siblings);
        let place = Place { pci_address, card, first_index, tile_count };
        on_cards
            .get(pci_address)
            .into_iter()
            .flatten()
            .filter_map(|pid| {
                let bytes = process::memory_on_card(proc_root, *pid, pci_address);
                process::on_tile(proc_root, *pid, bytes, &place, *number)
            })
            .collect()
    }
}

impl Backend for Reported {
    fn devices(&mut self) -> Result<Vec<DeviceDescription>, DeviceError> {
        Ok(self.tiles.iter().map(|tile| tile.description.clone()).collect())
    }

    /// Empty: the exporter fills it.
    fn read(&mut self, index: u32) -> Result<Reading, DeviceError> {
        self.tile(index).map(|_| Reading::default())
    }

    fn processes(&mut self, index: u32) -> Result<Vec<DeviceProcess>, DeviceError> {
        Ok(self.tile(index)?.processes(&self.proc_root, &process::on_cards(&self.proc_root)))
    }

    fn read_all(&mut self) -> Result<crate::DeviceStates, DeviceError> {
        // The kernel is asked once for all.
        let on_cards = process::on_cards(&self.proc_root);
        Ok(self
            .tiles
            .iter()
            .map(|tile| {
                let processes = tile.processes(&self.proc_root, &on_cards);
                (tile.description.index, Ok(crate::DeviceState { reading: Reading::default(), processes }))
            })
            .collect())
    }

    fn notices(&mut self) -> Vec<DeviceNotice> {
        std::mem::take(&mut self.notices)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pillion_core::DeviceUuid;

    fn card(address: &str, name: &str, tile_count: u32) -> XpumCard {
        XpumCard {
            uuid: DeviceUuid::new(format!("card-{address}")),
            pci_address: address.to_owned(),
            name: format!("Intel(R) Data Center GPU {name}"),
            device_id: None,
            tile_count,
            tile_memory_bytes: None,
        }
    }

    #[test]
    fn tiles_are_numbered_over_all_cards_and_one_without_a_size_keeps_its_numbers() {
        let mut flex = card("0000:29:00.0", "Flex 170", 2);
        let mut max = card("0000:3a:00.0", "Max 1550", 2);
        max.tile_memory_bytes = Some(65_000_000_000);
        let cards = [card("0000:18:00.0", "Max 1100", 1), flex.clone(), max];
        let mut reported = Reported::new(&cards, "it is not there", "/nowhere");
        let seen = |reported: &mut Reported| {
            let all = reported.devices().unwrap().into_iter();
            all.map(|it| (it.index, it.uuid.to_string(), it.model, it.memory_bytes)).collect::<Vec<_>>()
        };
        let row = |index, uuid: &str, model: &str, bytes| (index, uuid.to_owned(), model.to_owned(), bytes);
        let expected = [
            row(0, "card-0000:18:00.0", "max-1100", 48 << 30),
            row(3, "card-0000:3a:00.0.0", "max-1550", 65_000_000_000),
            row(4, "card-0000:3a:00.0.1", "max-1550", 65_000_000_000),
        ];
        assert_eq!(seen(&mut reported), expected);
        flex.tile_memory_bytes = Some(16 << 30);
        assert_eq!(seen(&mut Reported::new(&[flex], "", "/nowhere"))[0].2, "flex-170");
    }

    #[test]
    fn each_device_says_once_why_its_tenants_are_time_sliced_and_nothing_of_it_can_be_set() {
        let cards = [card("0000:18:00.0", "Max 1550", 2)];
        let mut reported = Reported::new(&cards, "libze_loader.so.1 cannot be loaded", "/nowhere");
        let notices = reported.notices();
        assert_eq!(notices.iter().map(|notice| notice.index).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(notices[0].kind, NoticeKind::NoMechanism);
        assert!(notices[0].detail.contains("libze_loader.so.1"), "{notices:?}");
        assert_eq!(reported.notices(), []);
        assert!(reported.devices().unwrap().iter().all(|device| device.mechanism == Mechanism::TimeSliced));
        assert!(reported.mps().is_none() && reported.ccs().is_none());
        let reported: &mut dyn Backend = &mut reported;
        assert!(matches!(reported.ccs_on(1).err(), Some(DeviceError::Unsupported { index: 1, .. })));
        assert!(matches!(reported.read(2), Err(DeviceError::NoSuchDevice { index: 2 })));
    }

    #[test]
    fn who_is_on_a_tile_is_the_kernels_word() {
        let root = tempfile::tempdir().unwrap();
        let file = |pid: u32, text: &str| {
            let process = root.path().join(pid.to_string());
            for folder in ["fd", "fdinfo"] {
                std::fs::create_dir_all(process.join(folder)).unwrap();
            }
            std::os::unix::fs::symlink("/dev/dri/renderD128", process.join("fd/3")).unwrap();
            std::fs::write(process.join("fdinfo/3"), text).unwrap();
        };
        file(7, "drm-pdev:\t0000:18:00.0\ndrm-client-id:\t1\ndrm-total-vram1:\t2 MiB\n");
        file(8, "drm-pdev:\t0000:99:00.0\ndrm-client-id:\t1\ndrm-total-vram1:\t2 MiB\n");
        let mut reported = Reported::new(&[card("0000:18:00.0", "Max 1550", 2)], "", root.path());
        let on = |reported: &mut Reported, index| reported.processes(index).unwrap();
        let seven = DeviceProcess { pid: 7, memory_bytes: Some(2 << 20) };
        assert_eq!((on(&mut reported, 0), on(&mut reported, 1)), (vec![], vec![seven]));
        let states = reported.read_all().unwrap();
        assert_eq!(states[1].1.as_ref().unwrap().processes, [seven]);
        let mut single = Reported::new(&[card("0000:18:00.0", "Max 1100", 1)], "", root.path());
        assert_eq!(on(&mut single, 0), [seven]);
    }
}
