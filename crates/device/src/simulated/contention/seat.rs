//! Who sits on a device: what a tenant does again and again there, and what it may use.

/// One kernel phase of a cycle, on one device model.
#[derive(Debug, Clone, PartialEq)]
pub struct Phase {
    /// Computing at full clock with `width_units` units.
    pub compute_seconds: f64,
    /// The most units that its kernels fill.
    pub width_units: f64,
    /// Waiting for memory that nothing hides, when alone.
    pub stall_seconds: f64,
    /// Bytes asked of the cache.
    pub cache_bytes: f64,
    /// What it touches again and again.
    pub footprint_bytes: f64,
    /// The part of `cache_bytes` that hits while the whole footprint is cached.
    pub reuse_fraction: f64,
    /// Misses when alone on this device: what `stall_seconds` belongs to.
    pub miss_bytes_alone: f64,
    /// Power of issuing, in terms of an ordinary kernel's.
    pub power_coefficient: f64,
}

/// What one tenant does again and again, on one device model.
#[derive(Debug, Clone, PartialEq)]
pub struct Cycle {
    /// No kernel of this tenant runs.
    pub gap_seconds: f64,
    /// Its phases, one after the other.
    pub phases: Vec<Phase>,
}

impl Cycle {
    fn sum(&self, part: fn(&Phase) -> f64) -> f64 {
        self.phases.iter().map(part).sum()
    }

    /// The mean of a part of its phases over the time that they compute.
    fn mean(&self, part: fn(&Phase) -> f64) -> f64 {
        let weighted: f64 = self.phases.iter().map(|phase| part(phase) * phase.compute_seconds).sum();
        weighted / self.sum(|phase| phase.compute_seconds)
    }
}

/// Where a tenant sits.
#[derive(Debug, Clone, PartialEq)]
pub struct Seat {
    /// What it does.
    pub cycle: Cycle,
    /// The engine that it submits to; engines run side by side.
    pub engine: usize,
    /// The context on that engine; contexts are time-sliced, tenants of one context run side by side.
    pub context: usize,
    /// The most units it may use.
    pub units_max: f64,
}

/// All phases of a cycle as one, for crowds.
pub(super) fn merge(cycle: &Cycle) -> Cycle {
    let compute_seconds = cycle.sum(|phase| phase.compute_seconds);
    if cycle.phases.len() < 2 || compute_seconds <= 0.0 {
        return cycle.clone();
    }
    let phase = Phase {
        compute_seconds,
        width_units: cycle.mean(|phase| phase.width_units),
        stall_seconds: cycle.sum(|phase| phase.stall_seconds),
        cache_bytes: cycle.sum(|phase| phase.cache_bytes),
        footprint_bytes: cycle.mean(|phase| phase.footprint_bytes),
        reuse_fraction: cycle.mean(|phase| phase.reuse_fraction),
        miss_bytes_alone: cycle.sum(|phase| phase.miss_bytes_alone),
        power_coefficient: cycle.mean(|phase| phase.power_coefficient),
    };
    Cycle { gap_seconds: cycle.gap_seconds, phases: vec![phase] }
}
