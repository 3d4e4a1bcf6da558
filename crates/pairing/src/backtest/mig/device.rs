//! A device in the course of a queue: who runs where, what stands empty, and what a cut costs. It does not know the rules.

use pillion_core::mig::{Geometry, Slot};

/// What making and destroying an instance takes (an A30, a public log).
const CREATE_SECONDS: f64 = 0.15;
const DESTROY_SECONDS: f64 = 0.11;

/// A device in the course of a queue.
#[derive(Debug, Clone, Default)]
pub(super) struct Device {
    /// Who runs in which instance, and until when.
    pub(super) running: Vec<(f64, Slot)>,
    /// Instances that stand empty.
    pub(super) standing: Vec<Slot>,
}

impl Device {
    pub(super) fn tenants(&self) -> Vec<Slot> {
        self.running.iter().map(|(_, slot)| *slot).collect()
    }

    /// Makes what is not there, after destroying what is in the way; how long that takes.
    pub(super) fn cut(&mut self, geometry: &Geometry, wanted: &[Slot]) -> f64 {
        let mut seconds = 0.0;
        for slot in wanted {
            if let Some(at) = self.standing.iter().position(|there| there == slot) {
                self.standing.remove(at);
                continue;
            }
            let count_before = self.standing.len();
            self.standing.retain(|there| wanted.contains(there) || geometry.check(&[*there, *slot]).is_ok());
            let destroyed = u32::try_from(count_before - self.standing.len()).unwrap_or(u32::MAX);
            seconds += CREATE_SECONDS + DESTROY_SECONDS * f64::from(destroyed);
        }
        seconds
    }
}
