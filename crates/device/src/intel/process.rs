//! On which tile of a card a process is. Level Zero lists processes by card; tiles are what sites book.
//!
//! The kernel's word comes first: a process's open files of the card say what they hold in each memory region
//! (`Documentation/gpu/drm-usage-stats.rst`; `drm-total-vram1` with xe, `drm-total-local1` with i915). Where the kernel does
//! not say, the process's own `ZE_AFFINITY_MASK` does: by a wrong one it would be counted on the other tile of its card,
//! where it could as well run.

use pillion_core::device::DeviceProcess;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// More files of one process are not looked through.
const FILES_MAX: usize = 4096;

/// The place that a process's tiles are asked for.
#[derive(Debug, Clone)]
pub(super) struct Place<'a> {
    /// Of the card, as Linux writes it.
    pub(super) pci_address: &'a str,
    /// The card's number among all.
    pub(super) card: u32,
    /// The index of its first tile.
    pub(super) first_index: u32,
    /// How many tiles it has.
    pub(super) tile_count: u32,
}

/// The process `pid` as it is on `tile`, if it is there. `memory_bytes`: what it has on the whole card, where that is known.
pub(super) fn on_tile(
    proc_root: &Path,
    pid: u32,
    memory_bytes: Option<u64>,
    place: &Place<'_>,
    tile: u32,
) -> Option<DeviceProcess> {
    let with = |memory_bytes| Some(DeviceProcess { pid, memory_bytes });
    if place.tile_count == 1 {
        return with(memory_bytes);
    }
    let process = proc_root.join(pid.to_string());
    if let Some(by_tile) = kernel_says(&process, place.pci_address) {
        let bytes = by_tile.get(&tile).copied().filter(|bytes| *bytes > 0)?;
        return with(Some(bytes));
    }
    let environment = std::fs::read(process.join("environ")).unwrap_or_default();
    match tiles_of_mask(&environment, place) {
        Some(tiles) if !tiles.is_empty() => {
            let bytes = memory_bytes.filter(|_| tiles.len() == 1);
            if tiles.contains(&tile) { with(bytes) } else { None }
        }
        // On the card, but on which tile nobody knows: it may be on each.
        _ => with(None),
    }
}

/// The processes that have a file of any card open, by the card's PCI address: what Level Zero would list. Ourselves not.
pub(super) fn on_cards(proc_root: &Path) -> BTreeMap<String, BTreeSet<u32>> {
    let mut found: BTreeMap<String, BTreeSet<u32>> = BTreeMap::new();
    let entries = std::fs::read_dir(proc_root).into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    for pid in pids.filter(|pid| *pid != std::process::id()) {
        for fdinfo in card_files(&proc_root.join(pid.to_string())) {
            let address = fdinfo.lines().find_map(|line| line.strip_prefix("drm-pdev:"));
            if let Some(address) = address {
                found.entry(address.trim().to_owned()).or_default().insert(pid);
            }
        }
    }
    found
}

/// Bytes that a process holds on a whole card, where the kernel says so.
pub(super) fn memory_on_card(proc_root: &Path, pid: u32, pci_address: &str) -> Option<u64> {
    kernel_says(&proc_root.join(pid.to_string()), pci_address).map(|by_tile| by_tile.values().sum())
}

/// What the kernel says of each file of a card that a process has open.
fn card_files(process: &Path) -> impl Iterator<Item = String> {
    let process = process.to_owned();
    let entries = std::fs::read_dir(process.join("fdinfo")).into_iter().flatten().flatten();
    entries.take(FILES_MAX).filter_map(move |entry| {
        let target = std::fs::read_link(process.join("fd").join(entry.file_name())).ok()?;
        target.starts_with("/dev/dri").then(|| std::fs::read_to_string(entry.path()).unwrap_or_default())
    })
}

/// Bytes by tile, from all files of the card that the process has open; `None` if none tells memory by region.
fn kernel_says(process: &Path, pci_address: &str) -> Option<BTreeMap<u32, u64>> {
    let mut clients = BTreeMap::new();
    for text in card_files(process) {
        if let Some((client, by_tile)) = client_memory(&text, pci_address) {
            // A file that was inherited or passed on is the same client.
            clients.insert(client, by_tile);
        }
    }
    let mut all = None;
    for by_tile in clients.into_values() {
        let all: &mut BTreeMap<u32, u64> = all.get_or_insert_default();
        for (tile, bytes) in by_tile {
            *all.entry(tile).or_default() += bytes;
        }
    }
    all
}

/// The client's number and its bytes by tile, if this is a file of that card and tells memory by region.
fn client_memory(fdinfo: &str, pci_address: &str) -> Option<(u64, BTreeMap<u32, u64>)> {
    let (mut is_ours, mut client, mut by_tile) = (false, None, BTreeMap::new());
    for (key, value) in fdinfo.lines().filter_map(|line| line.split_once(':')) {
        let value = value.trim();
        if key == "drm-pdev" {
            is_ours = value == pci_address;
        } else if key == "drm-client-id" {
            client = value.parse().ok();
        } else if let Some(region) = key.strip_prefix("drm-total-") {
            let tile = region.strip_prefix("vram").or_else(|| region.strip_prefix("local"));
            if let Some((tile, bytes)) = tile.and_then(|tile| tile.parse().ok()).zip(bytes(value)) {
                by_tile.insert(tile, bytes);
            }
        }
    }
    (is_ours && !by_tile.is_empty()).then_some((client?, by_tile))
}

/// `12 KiB`, `1 MiB` or bytes without a unit.
fn bytes(text: &str) -> Option<u64> {
    let (number, unit) = text.split_once(' ').unwrap_or((text, ""));
    let unit: u64 = match unit {
        "" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(unit)
}

/// A variable of an environment as the kernel shows it: `NAME=value`, a zero after each.
fn variable<'a>(environment: &'a [u8], name: &str) -> Option<&'a str> {
    let entries = environment.split(|byte| *byte == 0);
    let mut texts = entries.filter_map(|entry| std::str::from_utf8(entry).ok());
    texts.find_map(|entry| entry.strip_prefix(name)?.strip_prefix('='))
}

/// The tiles of this card that a process's environment leaves it; `None` if it has no mask.
fn tiles_of_mask(environment: &[u8], place: &Place<'_>) -> Option<BTreeSet<u32>> {
    let mask = variable(environment, "ZE_AFFINITY_MASK")?;
    let is_composite = variable(environment, "ZE_FLAT_DEVICE_HIERARCHY") == Some("COMPOSITE");
    let mut tiles = BTreeSet::new();
    for entry in mask.split(',').map(str::trim) {
        match (is_composite, entry.split_once('.')) {
            (true, Some((card, tile))) if card.parse() == Ok(place.card) => {
                tiles.extend(tile.parse::<u32>().ok());
            }
            (true, None) if entry.parse() == Ok(place.card) => tiles.extend(0..place.tile_count),
            // FLAT: tiles are numbered over all cards, and an entry of two numbers is passed over.
            (false, None) => {
                let tile = entry.parse::<u32>().ok().and_then(|index| index.checked_sub(place.first_index));
                tiles.extend(tile);
            }
            _ => {}
        }
    }
    tiles.retain(|tile| *tile < place.tile_count);
    Some(tiles)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: Place<'static> =
        Place { pci_address: "0000:18:00.0", card: 1, first_index: 2, tile_count: 2 };

    fn process(root: &Path, environment: &str, files: &[(&str, &str)]) {
        let process = root.join("42");
        for folder in ["fd", "fdinfo"] {
            std::fs::create_dir_all(process.join(folder)).unwrap();
        }
        std::fs::write(process.join("environ"), environment).unwrap();
        for (number, (target, text)) in files.iter().enumerate() {
            std::os::unix::fs::symlink(target, process.join("fd").join(number.to_string())).unwrap();
            std::fs::write(process.join("fdinfo").join(number.to_string()), text).unwrap();
        }
    }

    fn tiles(environment: &str) -> Option<Vec<u32>> {
        tiles_of_mask(environment.as_bytes(), &PLACE).map(|tiles| tiles.into_iter().collect())
    }

    #[test]
    fn a_mask_names_tiles_by_card_or_over_all_cards() {
        let composite = |mask: &str| {
            tiles(&format!("A=b\0ZE_FLAT_DEVICE_HIERARCHY=COMPOSITE\0ZE_AFFINITY_MASK={mask}\0"))
        };
        assert_eq!(composite("1.1"), Some(vec![1]));
        assert_eq!(composite("0.0,1.0"), Some(vec![0]));
        assert_eq!(composite("1"), Some(vec![0, 1]));
        assert_eq!(composite("0"), Some(vec![]));
        assert_eq!(composite("1.7,x"), Some(vec![]), "no such tile");
        assert_eq!(tiles("ZE_AFFINITY_MASK=3\0"), Some(vec![1]));
        assert_eq!(tiles("ZE_AFFINITY_MASK=2,3\0"), Some(vec![0, 1]));
        assert_eq!(tiles("ZE_AFFINITY_MASK=0,1.1\0"), Some(vec![]));
        assert_eq!(tiles("PATH=/bin\0"), None);
    }

    #[test]
    fn the_kernel_knows_best() {
        let root = tempfile::tempdir().unwrap();
        let text = |client: u32, pdev: &str, first: &str, second: &str| {
            format!(
                "pos:\t0\ndrm-driver:\txe\ndrm-pdev:\t{pdev}\ndrm-client-id:\t{client}\ndrm-total-gtt:\t9 MiB\n\
                 drm-total-vram0:\t{first}\ndrm-total-vram1:\t{second}\n"
            )
        };
        let (ours, twice, other) = (
            text(5, "0000:18:00.0", "0", "3 MiB"),
            text(6, "0000:18:00.0", "0", "1 KiB"),
            text(7, "0000:3a:00.0", "8 MiB", "8 MiB"),
        );
        let files = [
            ("/dev/dri/renderD128", ours.as_str()),
            ("/dev/dri/renderD128", ours.as_str()),
            ("/dev/dri/card0", twice.as_str()),
            ("/dev/dri/renderD129", other.as_str()),
            ("/tmp/forged", ours.as_str()),
        ];
        process(root.path(), "ZE_AFFINITY_MASK=2\0", &files);
        let on = |tile| on_tile(root.path(), 42, Some(99), &PLACE, tile).map(|process| process.memory_bytes);
        assert_eq!((on(0), on(1)), (None, Some(Some((3 << 20) + 1024))), "whatever the mask says");
    }

    #[test]
    fn i915_calls_its_regions_local() {
        let text =
            "drm-pdev: 0000:18:00.0\ndrm-client-id: 1\ndrm-total-local0: 2 KiB\ndrm-total-system0: 7\n";
        assert_eq!(client_memory(text, "0000:18:00.0"), Some((1, BTreeMap::from([(0, 2048)]))));
        assert_eq!(client_memory("drm-pdev: 0000:18:00.0\ndrm-client-id: 1\n", "0000:18:00.0"), None);
    }

    #[test]
    fn the_mask_stands_in_where_the_kernel_is_silent_and_else_it_may_be_on_each() {
        let root = tempfile::tempdir().unwrap();
        process(root.path(), "ZE_AFFINITY_MASK=3\0", &[("/dev/dri/card0", "drm-driver:\ti915\n")]);
        let on =
            |pid, tile| on_tile(root.path(), pid, Some(99), &PLACE, tile).map(|process| process.memory_bytes);
        assert_eq!((on(42, 0), on(42, 1)), (None, Some(Some(99))));
        assert_eq!((on(43, 0), on(43, 1)), (Some(None), Some(None)), "gone, or without a mask");
        let alone = Place { tile_count: 1, ..PLACE };
        let process = DeviceProcess { pid: 43, memory_bytes: Some(99) };
        assert_eq!(on_tile(root.path(), 43, Some(99), &alone, 0), Some(process));
    }
}
