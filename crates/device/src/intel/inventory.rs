//! Which tiles there are: found by a thread of its own, and described by one each.

use super::thread::Driver;
use super::{Intel, boxed};
use crate::DeviceError;
use crate::worker::Pending;
use pillion_core::device::DeviceDescription;

impl Intel {
    /// A device that was found once keeps its place and is not asked again what it is. One that cannot be described is
    /// left out; the others keep their numbers.
    pub(super) fn list(&mut self) -> Result<Vec<DeviceDescription>, DeviceError> {
        let found = self.thread(None)?.ask(|answer| boxed(answer, Driver::find))?;
        self.way = Some(found.way);
        let unknown = found.indexes.into_iter().filter(|index| !self.known.contains_key(index));
        let asked: Vec<_> = unknown
            .collect::<Vec<u32>>()
            .into_iter()
            .map(|index| (index, self.begin(index, move |driver| driver.describe(index))))
            .collect();
        let mut late = None;
        for (index, pending) in asked {
            match pending.and_then(Pending::wait) {
                Ok(description) => {
                    self.left_out.remove(&index);
                    self.known.insert(index, description);
                }
                // It may only be slow to open: whoever asks now asks again, and has the others meanwhile.
                Err(error) if error.is_transient() => drop(late.get_or_insert(error)),
                Err(error) if self.left_out.insert(index) => {
                    let error = pillion_core::report(&error);
                    tracing::warn!(device = index, error, "device is left out: it cannot be described");
                }
                Err(_) => {}
            }
        }
        late.filter(|_| self.known.is_empty()).map_or_else(|| Ok(self.known.values().cloned().collect()), Err)
    }

    /// Looks for the devices, unless this one is known.
    pub(super) fn find(&mut self, index: u32) -> Result<(), DeviceError> {
        if !self.known.contains_key(&index) {
            self.list()?;
        }
        if self.known.contains_key(&index) { Ok(()) } else { Err(DeviceError::NoSuchDevice { index }) }
    }
}
