//! When the undoing of a device's sharing is tried again. Pure.

use pillion_device::DeviceError;

/// The most samples between two tries, about a minute: a try at a driver that keeps refusing may cost it, and us, something.
const SAMPLES_MAX: u32 = 60;

/// How the undoing of one device's sharing goes. It is never given up: a device that is away comes back, and what was
/// refused once, as by a server that ended between two questions, is granted the next time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Undo {
    /// How many samples are to pass before the next try.
    waiting: u32,
    /// How many passed before the last one.
    waited: u32,
    /// Whether operators know.
    is_reported: bool,
}

impl Undo {
    /// To be asked once a sample: whether it is to be tried now.
    pub(super) fn is_due(&mut self) -> bool {
        let is_due = self.waiting == 0;
        self.waiting = self.waiting.saturating_sub(1);
        is_due
    }

    /// It failed. What passes by itself is tried at every sample, all else less and less often. Returns whether operators are
    /// to hear of it: once.
    pub(super) fn failed(&mut self, error: &DeviceError) -> bool {
        if error.is_transient() {
            (self.waiting, self.waited) = (0, 0);
            return false;
        }
        self.waited = (2 * self.waited).clamp(1, SAMPLES_MAX);
        self.waiting = self.waited;
        !std::mem::replace(&mut self.is_reported, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// At which of the first samples it is tried if it always fails so.
    fn tries(error: &DeviceError) -> (Vec<u32>, usize) {
        let mut undo = Undo::default();
        let (mut tried, mut reported) = (Vec::new(), 0);
        for sample in 0..200 {
            if undo.is_due() {
                tried.push(sample);
                reported += usize::from(undo.failed(error));
            }
        }
        (tried, reported)
    }

    #[test]
    fn what_is_in_use_is_tried_at_every_look_and_not_told() {
        let busy = DeviceError::Busy { index: 3, reason: "a client".into() };
        assert_eq!(tries(&busy), ((0..200).collect(), 0));
    }

    #[test]
    fn what_fails_otherwise_is_told_once_and_tried_about_once_a_minute_for_ever() {
        let gone = DeviceError::Gone { index: 3, reason: "off the bus".into() };
        assert_eq!(tries(&gone), (vec![0, 2, 5, 10, 19, 36, 69, 130, 191], 1));
    }
}
