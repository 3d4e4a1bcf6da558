//! Waiting for what takes a moment: a daemon, or one of its servers, that comes up or ends.

use std::time::Duration;

/// How often, and in which steps, something is waited for that takes a moment: two seconds in all.
pub(super) const TRIES: u32 = 100;
pub(super) const STEP: Duration = Duration::from_millis(20);

/// Waits until something holds; whether it does.
pub(super) fn until(mut holds: impl FnMut() -> bool) -> bool {
    for _ in 0..TRIES {
        if holds() {
            return true;
        }
        std::thread::sleep(STEP);
    }
    false
}
