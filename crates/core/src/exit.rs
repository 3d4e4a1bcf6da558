//! With which status the daemons end where starting them again would change nothing. The units start them again after any
//! other failure (`RestartPreventExitStatus=`).

use std::io;

/// The configuration is wrong.
pub const BAD_CONFIG: u8 = 64;
/// What the program needs is not there, or not allowed: no PostgreSQL, no right to the database, a directory of somebody
/// else (sysexits, `EX_CONFIG`).
pub const BAD_SETUP: u8 = 78;

/// `pillion-agent cleanup`: a device is cut though nobody has any of it, and cannot be made whole (sysexits, `EX_UNAVAILABLE`). The
/// Epilog then drains the node.
pub const NOT_WHOLE: u8 = 69;

/// Whether a file or socket stays out of reach until somebody changes something.
pub fn needs_somebody(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::PermissionDenied
            | io::ErrorKind::ReadOnlyFilesystem
            | io::ErrorKind::NotADirectory
            | io::ErrorKind::IsADirectory
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNITS: [(&str, &str); 2] = [
        ("scheduler", include_str!("../../../deploy/systemd/pillion-scheduler.service")),
        ("agent", include_str!("../../../deploy/systemd/pillion-agent.service")),
    ];

    #[test]
    fn the_units_do_not_start_again_what_somebody_has_to_mend() {
        for (name, unit) in UNITS {
            let line = unit.lines().find_map(|line| line.strip_prefix("RestartPreventExitStatus="));
            assert_eq!(line, Some(format!("{BAD_CONFIG} {BAD_SETUP}").as_str()), "{name}");
        }
    }

    #[test]
    fn a_lack_of_rights_needs_somebody_and_a_port_that_is_taken_may_be_free_soon() {
        assert!(needs_somebody(&io::Error::from(io::ErrorKind::PermissionDenied)));
        assert!(!needs_somebody(&io::Error::from(io::ErrorKind::AddrInUse)));
    }
}
