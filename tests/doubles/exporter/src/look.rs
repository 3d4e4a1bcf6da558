//! What a collection saw of one device, and what it did since the one before.

use pillion_device::simulated::{Counters, Totals};

/// One device at a collection.
#[derive(Debug, Clone)]
pub(crate) struct Look {
    pub(crate) index: u32,
    pub(crate) uuid: String,
    /// As the device model calls it.
    pub(crate) model: String,
    pub(crate) memory_bytes: u64,
    pub(crate) now: Counters,
    /// At the collection before.
    pub(crate) before: Option<Counters>,
    /// Whether the profiling counters were ours from that one to this one.
    pub(crate) is_profiled: bool,
}

impl Look {
    /// The mean rate of a counter since the collection before; none at the first.
    pub(crate) fn mean(&self, counter: fn(&Totals) -> f64) -> Option<f64> {
        let before = &self.before.as_ref()?.totals;
        let seconds = self.now.totals.seconds - before.seconds;
        (seconds > 0.0).then(|| (counter(&self.now.totals) - counter(before)) / seconds)
    }

    /// The same of a counter that takes the profiling hardware.
    pub(crate) fn profiled(&self, counter: fn(&Totals) -> f64) -> Option<f64> {
        if self.is_profiled { self.mean(counter) } else { None }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A device that was half busy for ten seconds.
    pub(crate) fn look(model: &str, index: u32) -> Look {
        let then = Totals { seconds: 100.0, energy_joules: 1000.0, ..Totals::default() };
        let now = Totals {
            seconds: 110.0,
            energy_joules: 4000.5,
            busy: 5.0,
            issue: 4.0,
            stall: 1.0,
            memory: 2.5,
            occupancy: 3.0,
            fp32: 2.0,
            pcie_rx_bytes: 70_000_000.0,
            pcie_tx_bytes: 30_000_000.0,
            ..then
        };
        let counters = |totals| Counters { totals, power_watts: 250.25, memory_bytes_used: 3 << 30 };
        Look {
            index,
            uuid: format!("GPU-{index}"),
            model: model.to_owned(),
            memory_bytes: 64 << 30,
            now: counters(now),
            before: Some(counters(then)),
            is_profiled: true,
        }
    }

    #[test]
    fn a_mean_is_of_the_time_between_two_collections() {
        let look = look("v100", 0);
        assert_eq!(look.mean(|it| it.busy), Some(0.5));
        let first = Look { before: None, ..look.clone() };
        assert_eq!(first.mean(|it| it.busy), None, "the first tells no rate");
        let paused = Look { is_profiled: false, ..look };
        assert_eq!((paused.mean(|it| it.busy), paused.profiled(|it| it.busy)), (Some(0.5), None));
    }
}
