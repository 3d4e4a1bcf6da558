//! How the version in a built plugin becomes another. Pure.

use crate::ffi::slurm::PLUGIN_VERSION;
use crate::version::SlurmVersion;
use std::fmt;

/// A file that cannot be stamped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotAPlugin {
    /// How often the marker was found; once is right.
    pub markers_count: usize,
}

impl fmt::Display for NotAPlugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "not a built pillion SPANK plugin: found its version stamp {} times, expected once",
            self.markers_count
        )
    }
}

impl std::error::Error for NotAPlugin {}

/// Writes `version` into the bytes of a built plugin (`libpillion_slurm_spank.so`).
///
/// # Errors
/// [`NotAPlugin`] if the stamp is not there exactly once; the bytes are then unchanged.
pub fn stamp(plugin: &mut [u8], version: SlurmVersion) -> Result<(), NotAPlugin> {
    let marker = &PLUGIN_VERSION.marker;
    let places: Vec<usize> = plugin
        .windows(marker.len())
        .enumerate()
        .filter_map(|(at, bytes)| (bytes == marker).then_some(at))
        .collect();
    match places[..] {
        [at] if at >= 4 => {
            plugin[at - 4..at].copy_from_slice(&version.number().to_ne_bytes());
            Ok(())
        }
        _ => Err(NotAPlugin { markers_count: places.len() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::version::VersionStamp;

    #[test]
    fn stamps_the_one_place() {
        let built = VersionStamp::new(SlurmVersion { major: 24, minor: 11 });
        let mut file = b"some ELF ".to_vec();
        file.extend(built.number.to_ne_bytes());
        file.extend(built.marker);
        file.extend(b" and more");
        let before = file.clone();
        stamp(&mut file, SlurmVersion { major: 25, minor: 5 }).unwrap();
        assert_eq!(file[9..13], 0x19_05_00_u32.to_ne_bytes());
        assert_eq!((&file[..9], &file[13..]), (&before[..9], &before[13..]));
    }

    #[test]
    fn refuses_what_is_no_plugin_or_an_ambiguous_one() {
        let version = SlurmVersion { major: 25, minor: 5 };
        assert_eq!(stamp(&mut b"hello".to_vec(), version), Err(NotAPlugin { markers_count: 0 }));
        let marker = VersionStamp::new(version).marker;
        let mut twice = [&[0; 4], &marker[..], &[0; 4], &marker[..]].concat();
        let before = twice.clone();
        assert_eq!(stamp(&mut twice, version), Err(NotAPlugin { markers_count: 2 }));
        assert_eq!(twice, before);
    }
}
