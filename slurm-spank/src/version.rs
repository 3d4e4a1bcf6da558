//! Which Slurm a built plugin is for, and how it carries that. Pure.

use std::fmt;

/// The Slurm release (major.minor) that a plugin is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlurmVersion {
    /// 24 in 24.11.
    pub major: u8,
    /// 11 in 24.11.
    pub minor: u8,
}

impl SlurmVersion {
    /// Reads `24.11`, and `24.11.5` as well: the rest is not compared by Slurm.
    pub const fn parse(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        let Some((major, rest)) = leading_number(bytes, 0) else { return None };
        if rest >= bytes.len() || bytes[rest] != b'.' {
            return None;
        }
        let Some((minor, rest)) = leading_number(bytes, rest + 1) else { return None };
        if rest < bytes.len() && bytes[rest] != b'.' {
            return None;
        }
        Some(Self { major, minor })
    }

    /// As Slurm compares it: `major << 16 | minor << 8 | micro`, micro 0.
    pub const fn number(self) -> u32 {
        ((self.major as u32) << 16) | ((self.minor as u32) << 8)
    }
}

impl fmt::Display for SlurmVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:02}", self.major, self.minor)
    }
}

/// The one or two digits at `start`, and where they end.
const fn leading_number(bytes: &[u8], start: usize) -> Option<(u8, usize)> {
    let mut at = start;
    let mut value = 0;
    while at < bytes.len() && bytes[at].is_ascii_digit() && at < start + 2 {
        value = value * 10 + (bytes[at] - b'0');
        at += 1;
    }
    if at == start { None } else { Some((value, at)) }
}

/// What stands behind the exported symbol `plugin_version`: Slurm reads the number,
/// [`stamp`](crate::stamp::stamp) finds it by the marker.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct VersionStamp {
    /// The release that it was built for, as [`SlurmVersion::number`].
    pub number: u32,
    /// Found once in a built plugin.
    pub marker: [u8; 28],
}

impl VersionStamp {
    /// The stamp of a build for `version`.
    pub const fn new(version: SlurmVersion) -> Self {
        Self { number: version.number(), marker: *b"<pillion spank plugin stamp>" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_versions_as_slurm_writes_them() {
        assert_eq!(SlurmVersion::parse("24.11"), Some(SlurmVersion { major: 24, minor: 11 }));
        assert_eq!(SlurmVersion::parse("23.02.7"), Some(SlurmVersion { major: 23, minor: 2 }));
        assert_eq!(SlurmVersion::parse("24.11-rc1"), None);
        for text in ["", "24", "24.", ".11", "x.y", "124.11", "24.111", "24,11"] {
            assert_eq!(SlurmVersion::parse(text), None, "{text}");
        }
        assert_eq!(SlurmVersion { major: 24, minor: 11 }.number(), 0x18_0b_00);
        assert_eq!(SlurmVersion { major: 23, minor: 2 }.to_string(), "23.02");
    }
}
