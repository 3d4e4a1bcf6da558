//! The CCS mode of a tile: into how many equal parts its compute engines are cut.
//!
//! Under i915 each process asks for its mode by `ZEX_NUMBER_OF_CCS`, and nothing takes root. Under xe the mode is a file,
//! `/sys/class/drm/cardN/device/tileT/gtG/ccs_mode`: decimal text, a divisor of `num_cslices` beside it, and `EBUSY` while
//! anybody has a file of the card open, our own Level Zero library not excepted (Linux,
//! `drivers/gpu/drm/xe/xe_gt_ccs_mode.c`). Setting it resets the tile's compute engines.

use crate::DeviceError;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// The modes that Pillion plans with.
const MODES: [u8; 3] = [1, 2, 4];

/// Which kernel driver a card has, as far as it matters here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kernel {
    /// Processes choose the mode.
    I915,
    /// The mode is a file below this card's directory.
    Xe(PathBuf),
}

/// The kernel driver of the card at `pci_address`; `None` if there is no such card, or it has another driver.
pub(super) fn kernel(sysfs_root: &Path, pci_address: &str) -> Option<Kernel> {
    let card = cards(sysfs_root).into_iter().find(|card| {
        let place = card.join("device").canonicalize();
        place.is_ok_and(|place| place.file_name().is_some_and(|name| name == pci_address))
    })?;
    match driver(&card)?.as_str() {
        "i915" => Some(Kernel::I915),
        "xe" => Some(Kernel::Xe(card)),
        _ => None,
    }
}

/// The directories of the cards.
fn cards(sysfs_root: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(sysfs_root.join("class/drm")).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_name().to_str().and_then(|name| number_after("card", name)).is_some())
        .map(|entry| entry.path())
        .collect()
}

/// The kernel driver of a card.
fn driver(card: &Path) -> Option<String> {
    let driver = std::fs::read_link(card.join("device/driver")).ok()?;
    Some(driver.file_name()?.to_str()?.to_owned())
}

/// The number in the name of a card or a tile: 3 of `card3`.
fn number_after(kind: &str, name: &str) -> Option<u32> {
    name.strip_prefix(kind)?.parse().ok()
}

/// The files of all cards' CCS modes: those of xe, for under i915 each process chooses.
pub fn mode_paths(sysfs_root: &Path) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    for card in cards(sysfs_root).into_iter().filter(|card| driver(card).as_deref() == Some("xe")) {
        for entry in std::fs::read_dir(card.join("device")).into_iter().flatten().flatten() {
            if let Some(tile) = entry.file_name().to_str().and_then(|name| number_after("tile", name)) {
                paths.extend(mode_files(&card, tile).into_iter().map(|file| file.path));
            }
        }
    }
    paths.sort();
    paths
}

/// The file of one compute engine's mode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ModeFile {
    path: PathBuf,
    slices: u8,
}

/// The files of one tile's mode: one a part of the tile that has several compute slices.
pub(super) fn mode_files(card: &Path, tile: u32) -> Vec<ModeFile> {
    let tile = card.join("device").join(format!("tile{tile}"));
    let mut files: Vec<ModeFile> = std::fs::read_dir(tile)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("gt"))
        .filter_map(|entry| {
            let slices = number(&entry.path().join("num_cslices")).ok()?;
            let path = entry.path().join("ccs_mode");
            (slices > 1 && path.exists()).then_some(ModeFile { path, slices })
        })
        .collect();
    files.sort_by(|one, other| one.path.cmp(&other.path));
    files
}

fn number(path: &Path) -> io::Result<u8> {
    let text = std::fs::read_to_string(path)?;
    text.trim().parse().map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it holds no number"))
}

/// The mode of a tile, if its files agree on one that Pillion knows.
pub(super) fn mode(files: &[ModeFile]) -> Option<u8> {
    let mut modes = files.iter().map(|file| number(&file.path).ok());
    let first = modes.next()??;
    (modes.all(|mode| mode == Some(first)) && MODES.contains(&first)).then_some(first)
}

/// Checks a mode before anything is asked of anybody.
///
/// # Errors
/// [`DeviceError::Refused`] if it is not 1, 2 or 4.
pub(super) fn check(index: u32, mode: u8) -> Result<(), DeviceError> {
    if MODES.contains(&mode) {
        return Ok(());
    }
    let reason = format!("{mode} is no CCS mode; allowed are 1, 2 and 4");
    Err(DeviceError::Refused { index, reason })
}

/// Files of this card that this process has open.
pub(super) fn held_by_us(proc_root: &Path, card: &Path) -> Vec<PathBuf> {
    let nodes: Vec<PathBuf> = std::fs::read_dir(card.join("device/drm"))
        .into_iter()
        .flatten()
        .flatten()
        .map(|node| Path::new("/dev/dri").join(node.file_name()))
        .collect();
    let open = std::fs::read_dir(proc_root.join("self/fd")).into_iter().flatten().flatten();
    open.filter_map(|file| std::fs::read_link(file.path()).ok())
        .filter(|target| nodes.contains(target))
        .collect()
}

/// Sets the mode of a tile of `index`. `held` says what this process has open of the card; `close` lets go of it, and says
/// whether every thread of this process could.
///
/// # Errors
/// [`DeviceError::Busy`] while others have the card open; [`DeviceError::NotReady`] while a thread of ours that hangs does;
/// [`DeviceError::Refused`] if we cannot let go of it, are not root, or the card has no such mode.
pub(super) fn set(
    index: u32,
    files: &[ModeFile],
    mode: u8,
    held: impl Fn() -> Vec<PathBuf>,
    close: impl FnOnce() -> bool,
) -> Result<(), DeviceError> {
    if let Some(file) = files.iter().find(|file| file.slices % mode != 0) {
        let reason = format!("it has {} compute slices, which mode {mode} does not divide", file.slices);
        return Err(DeviceError::Refused { index, reason });
    }
    if !held().is_empty() {
        let all_let_go = close();
        if let Some(still) = held().first() {
            if !all_let_go {
                let reason = format!("a call of ours that hangs keeps {} open", still.display());
                return Err(DeviceError::NotReady { index, reason });
            }
            let reason = format!(
                "the Level Zero library of this process keeps {} open, and xe changes the CCS mode of no card that is; \
                 set it before the agent starts, or use a Level Zero loader with zesInit",
                still.display()
            );
            return Err(DeviceError::Refused { index, reason });
        }
    }
    set_all(files, mode).map_err(|(path, error)| refusal(index, mode, path, &error))
}

/// Writes all files of a tile, or leaves each as it was: half of a tile in another mode would be in none that Pillion plans
/// with.
fn set_all(files: &[ModeFile], mode: u8) -> Result<(), (&Path, io::Error)> {
    let mut undo = Vec::new();
    for file in files {
        let before = number(&file.path);
        if let Err(error) = write(&file.path, mode) {
            for (path, before) in undo {
                if let Err(second) = write(path, before) {
                    let path = path.display();
                    tracing::warn!(%path, error = %second, "half of a tile is in another CCS mode");
                }
            }
            return Err((&file.path, error));
        }
        undo.extend(before.ok().map(|before| (file.path.as_path(), before)));
    }
    Ok(())
}

fn write(path: &Path, mode: u8) -> io::Result<()> {
    let mut file = std::fs::OpenOptions::new().write(true).truncate(true).open(path)?;
    file.write_all(mode.to_string().as_bytes())
}

fn refusal(index: u32, mode: u8, path: &Path, error: &io::Error) -> DeviceError {
    let reason = format!("setting CCS mode {mode} in {}: {error}", path.display());
    match error.kind() {
        io::ErrorKind::ResourceBusy => DeviceError::Busy { index, reason },
        io::ErrorKind::NotFound => DeviceError::Unsupported { index, reason },
        io::ErrorKind::PermissionDenied => {
            DeviceError::Refused { index, reason: format!("{reason}; run the agent as root") }
        }
        _ => DeviceError::Refused { index, reason },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::os::unix::fs::symlink;

    const PCI: &str = "0000:18:00.0";

    /// A directory tree like sysfs, of one card.
    fn tree(driver: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let device = root.path().join("devices/pci0000:00").join(PCI);
        for folder in ["drm/card3", "drm/renderD128", "tile0/gt0", "tile1/gt1", "tile1/gt2"] {
            std::fs::create_dir_all(device.join(folder)).unwrap();
        }
        for (file, text) in [
            ("tile0/gt0/ccs_mode", "1\n"),
            ("tile0/gt0/num_cslices", "4\n"),
            ("tile1/gt1/ccs_mode", "2\n"),
            ("tile1/gt1/num_cslices", "4\n"),
            ("tile1/gt2/num_cslices", "1\n"),
        ] {
            std::fs::write(device.join(file), text).unwrap();
        }
        let class = root.path().join("class/drm");
        std::fs::create_dir_all(class.join("card3")).unwrap();
        std::fs::create_dir_all(class.join("card3-DP-1")).unwrap();
        symlink(&device, class.join("card3/device")).unwrap();
        symlink(Path::new("../../../bus/pci/drivers").join(driver), device.join("driver")).unwrap();
        root
    }

    fn card(root: &tempfile::TempDir) -> PathBuf {
        root.path().join("class/drm/card3")
    }

    #[test]
    fn a_card_is_found_by_its_address_and_its_driver_named() {
        let root = tree("xe");
        assert_eq!(kernel(root.path(), PCI), Some(Kernel::Xe(card(&root))));
        assert_eq!(kernel(root.path(), "0000:19:00.0"), None);
        assert_eq!(kernel(tree("i915").path(), PCI), Some(Kernel::I915));
        assert_eq!(kernel(tree("vfio-pci").path(), PCI), None);
        assert_eq!(kernel(Path::new("/nowhere"), PCI), None);
    }

    #[test]
    fn every_card_of_xe_has_files_of_its_mode() {
        let root = tree("xe");
        let device = card(&root).join("device");
        let paths = ["tile0/gt0/ccs_mode", "tile1/gt1/ccs_mode"].map(|name| device.join(name));
        assert_eq!(mode_paths(root.path()), paths);
        assert_eq!(mode_paths(tree("i915").path()), Vec::<PathBuf>::new());
        assert_eq!(mode_paths(Path::new("/nowhere")), Vec::<PathBuf>::new());
    }

    #[test]
    fn each_tile_has_its_own_mode() {
        let root = tree("xe");
        let modes = [0, 1, 2].map(|tile| mode(&mode_files(&card(&root), tile)));
        assert_eq!(modes, [Some(1), Some(2), None]);
        std::fs::write(card(&root).join("device/tile0/gt0/ccs_mode"), "3\n").unwrap();
        assert_eq!(mode(&mode_files(&card(&root), 0)), None, "a mode that nobody plans with");
    }

    #[test]
    fn a_mode_is_written_as_text() {
        let root = tree("xe");
        let files = mode_files(&card(&root), 1);
        set(3, &files, 4, Vec::new, || panic!("nothing is held")).unwrap();
        let path = card(&root).join("device/tile1/gt1/ccs_mode");
        assert_eq!(std::fs::read(path).unwrap(), b"4");
        assert_eq!(mode(&files), Some(4));
    }

    #[test]
    fn a_tile_whose_second_engine_refuses_keeps_its_mode() {
        let root = tree("xe");
        let tile = card(&root).join("device/tile1");
        std::fs::write(tile.join("gt2/num_cslices"), "4\n").unwrap();
        // Nothing can be written there, not even by root.
        std::fs::create_dir(tile.join("gt2/ccs_mode")).unwrap();
        let files = mode_files(&card(&root), 1);
        assert_eq!(files.len(), 2);
        let error = set(3, &files, 4, Vec::new, || true).unwrap_err();
        assert!(error.to_string().contains("gt2/ccs_mode"), "{error}");
        let first = std::fs::read_to_string(tile.join("gt1/ccs_mode")).unwrap();
        assert_eq!(first.trim(), "2", "as before");
    }

    #[test]
    fn modes_that_nobody_has_are_refused() {
        for mode in [0, 3, 5] {
            let error = check(0, mode).unwrap_err();
            assert!(matches!(error, DeviceError::Refused { .. }), "{error}");
        }
        let root = tree("xe");
        std::fs::write(card(&root).join("device/tile0/gt0/num_cslices"), "2\n").unwrap();
        let error = set(0, &mode_files(&card(&root), 0), 4, Vec::new, || true).unwrap_err();
        assert!(error.to_string().contains("2 compute slices, which mode 4 does not divide"), "{error}");
    }

    #[test]
    fn our_own_files_are_closed_first_and_what_cannot_be_closed_is_told() {
        let (root, proc) = (tree("xe"), tempfile::tempdir().unwrap());
        let fd = proc.path().join("self/fd");
        std::fs::create_dir_all(&fd).unwrap();
        symlink("/dev/dri/renderD128", fd.join("7")).unwrap();
        symlink("/dev/dri/renderD129", fd.join("8")).unwrap();
        let held = || held_by_us(proc.path(), &card(&root));
        assert_eq!(held(), [Path::new("/dev/dri/renderD128")]);
        let (files, closed) = (mode_files(&card(&root), 0), Cell::new(0));
        let close = |all_let_go| {
            closed.set(closed.get() + 1);
            all_let_go
        };
        let late = set(0, &files, 2, held, || close(false)).unwrap_err();
        assert!(matches!(&late, DeviceError::NotReady { .. }) && late.is_transient(), "{late}");
        assert!(late.to_string().contains("hangs keeps /dev/dri/renderD128 open"), "{late}");
        let error = set(0, &files, 2, held, || close(true)).unwrap_err();
        assert!(matches!(&error, DeviceError::Refused { .. }), "{error}");
        assert!(error.to_string().contains("keeps /dev/dri/renderD128 open"), "{error}");
        assert_eq!((closed.get(), mode(&files)), (2, Some(1)));
        let close = || std::fs::remove_file(fd.join("7")).is_ok();
        set(0, &files, 2, held, close).unwrap();
        assert_eq!(mode(&files), Some(2));
    }

    #[test]
    fn what_the_kernel_says_becomes_the_error_that_the_agent_knows() {
        let error = |number| refusal(0, 2, Path::new("/sys/x"), &io::Error::from_raw_os_error(number));
        assert!(matches!(error(16), DeviceError::Busy { .. }), "EBUSY");
        let denied = error(13);
        assert!(matches!(denied, DeviceError::Refused { .. }), "EACCES");
        assert!(denied.to_string().ends_with("run the agent as root"), "{denied}");
        assert!(matches!(error(22), DeviceError::Refused { .. }), "EINVAL");
        assert!(matches!(error(2), DeviceError::Unsupported { .. }), "ENOENT");
    }
}
