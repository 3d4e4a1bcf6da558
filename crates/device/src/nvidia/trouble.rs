//! What NVML's errors mean for whoever asked. Pure.

use crate::DeviceError;
use nvml_wrapper::error::NvmlError;
use std::io;
use std::path::PathBuf;

/// What a node without a working kernel driver lacks.
pub(super) const DRIVER: &str = "/dev/nvidiactl";
/// `NVML_ERROR_GPU_NOT_FOUND` (nvml.h, `nvmlReturn_t`), which `nvml-wrapper` has no word for.
const GPU_NOT_FOUND: u32 = 28;

/// What helps where a permission lacks.
pub(super) const WHO_MAY: &str = "the agent must run as root";

/// Why NVML did not answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// The device has nothing to say to this question, or not now.
    Absent(String),
    /// The device is lost, or waits to be reset.
    Gone(String),
    /// We may not ask.
    Refused(String),
    /// The list that was asked for changes faster than it can be read.
    Busy(String),
    /// The driver itself went away: the library must be opened again.
    Closed(String),
}

impl From<NvmlError> for Trouble {
    fn from(error: NvmlError) -> Self {
        let text = error.to_string();
        match error {
            NvmlError::GpuLost
            | NvmlError::ResetRequired
            | NvmlError::NotFound
            | NvmlError::UnexpectedVariant(GPU_NOT_FOUND) => Self::Gone(text),
            NvmlError::NoPermission => Self::Refused(text),
            NvmlError::InsufficientSize(_) => Self::Busy(text),
            NvmlError::Uninitialized | NvmlError::DriverNotLoaded | NvmlError::LibRmVersionMismatch => {
                Self::Closed(text)
            }
            _ => Self::Absent(text),
        }
    }
}

impl Trouble {
    /// The error of one device.
    pub(super) fn of(self, index: u32) -> DeviceError {
        match self {
            Self::Absent(reason) => DeviceError::Unsupported { index, reason },
            Self::Gone(reason) => DeviceError::Gone { index, reason },
            Self::Refused(reason) => DeviceError::Refused { index, reason: format!("{reason}; {WHO_MAY}") },
            Self::Busy(reason) => DeviceError::Busy { index, reason },
            Self::Closed(reason) => {
                DeviceError::Unreachable { path: PathBuf::from(DRIVER), source: io::Error::other(reason) }
            }
        }
    }

    /// Whether the rest of the device can still be asked.
    pub(super) fn is_of_one_value(&self) -> bool {
        matches!(self, Self::Absent(_) | Self::Refused(_) | Self::Busy(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(error: NvmlError) -> DeviceError {
        Trouble::from(error).of(3)
    }

    #[test]
    fn a_lost_device_is_gone() {
        for error in [
            NvmlError::GpuLost,
            NvmlError::ResetRequired,
            NvmlError::NotFound,
            NvmlError::UnexpectedVariant(GPU_NOT_FOUND),
        ] {
            let error = told(error);
            assert!(matches!(error, DeviceError::Gone { index: 3, .. }) && error.is_gone(), "{error}");
        }
    }

    #[test]
    fn a_refusal_says_who_may() {
        let error = told(NvmlError::NoPermission);
        assert!(matches!(error, DeviceError::Refused { index: 3, .. }) && !error.is_transient(), "{error}");
        assert!(error.to_string().contains("permission") && error.to_string().contains("root"), "{error}");
    }

    #[test]
    fn a_driver_that_went_away_may_come_back() {
        for error in [NvmlError::Uninitialized, NvmlError::DriverNotLoaded, NvmlError::LibRmVersionMismatch] {
            let trouble = Trouble::from(error);
            assert!(!trouble.is_of_one_value());
            let error = trouble.of(3);
            assert!(error.is_transient() && !error.is_gone(), "{error}");
        }
    }

    #[test]
    fn a_list_in_motion_is_worth_another_try() {
        assert!(told(NvmlError::InsufficientSize(None)).is_transient());
    }

    #[test]
    fn anything_else_is_about_the_one_value() {
        for error in [
            NvmlError::NotSupported,
            NvmlError::Unknown,
            NvmlError::FailedToLoadSymbol("x".into()),
            NvmlError::UnexpectedVariant(27),
        ] {
            let trouble = Trouble::from(error);
            assert!(trouble.is_of_one_value() && matches!(trouble, Trouble::Absent(_)), "{trouble:?}");
            assert!(matches!(trouble.of(3), DeviceError::Unsupported { index: 3, .. }));
        }
    }
}
