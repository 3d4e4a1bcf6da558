//! Intel's compute command streamers: a card is cut into 1, 2 or 4 equal parts, in one mode for all who run on it.

use crate::DeviceError;

/// The mode of a card that is one.
pub const MODE_WHOLE: u8 = 1;

/// Sets the CCS modes of a node's devices.
pub trait CcsControl {
    /// Sets the mode where that takes root and not the job's environment (xe kernel driver). A driver whose processes set it
    /// themselves (i915) checks the mode and does nothing.
    ///
    /// # Errors
    /// [`DeviceError::Refused`] if the mode is not 1, 2 or 4, [`DeviceError::Busy`] while anybody runs in another one,
    /// [`DeviceError::NotReady`] while a call of ours that hangs is in the way, [`DeviceError::Unsupported`] where the device
    /// has no modes.
    fn prepare(&mut self, index: u32, mode: u8) -> Result<(), DeviceError>;

    /// Makes the card whole again.
    ///
    /// # Errors
    /// As [`CcsControl::prepare`].
    fn release(&mut self, index: u32) -> Result<(), DeviceError> {
        self.prepare(index, MODE_WHOLE)
    }

    /// The mode in force, 1, 2 or 4; `None` while the device is idle, when the next process chooses it, and where nobody tells.
    ///
    /// # Errors
    /// As `Backend::read`.
    fn status(&mut self, index: u32) -> Result<Option<u8>, DeviceError>;
}
