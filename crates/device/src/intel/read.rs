//! The counters of one tile: finds them among its card's, and takes samples of them.

use super::calls::{Answer, Calls, Failure};
use super::convert::{self, Frequency, ModuleMemory, Sample};
use level_zero_sys::*;

/// Of these kinds of engine groups the first that a tile has: compute alone if possible, since copies do not keep others
/// from computing.
const ENGINE_GROUPS: [u32; 4] = [
    ZES_ENGINE_GROUP_COMPUTE_ALL,
    ZES_ENGINE_GROUP_3D_RENDER_COMPUTE_ALL,
    ZES_ENGINE_GROUP_ALL,
    ZES_ENGINE_GROUP_COMPUTE_SINGLE,
];

/// The counters of one tile, or what kept them from being found.
#[derive(Debug, Clone)]
pub(super) struct Parts {
    power: Answer<zes_pwr_handle_t>,
    memories: Answer<Vec<zes_mem_handle_t>>,
    engines: Answer<Vec<zes_engine_handle_t>>,
    clock: Answer<zes_freq_handle_t>,
}

/// Whether a component is this tile's. What is a whole card's cannot be told apart by tile, so it counts only where there
/// is but one.
fn is_of(tile: u32, tile_count: u32, on_subdevice: ze_bool_t, subdevice: u32) -> bool {
    if on_subdevice == 0 { tile_count == 1 } else { subdevice == tile }
}

const fn none_there(call: &'static str) -> Failure {
    Failure { call, result: ZE_RESULT_ERROR_UNSUPPORTED_FEATURE }
}

impl Parts {
    pub(super) fn find(calls: &Calls, card: zes_device_handle_t, tile: u32, tile_count: u32) -> Self {
        let ours = |on_subdevice, subdevice| is_of(tile, tile_count, on_subdevice, subdevice);
        Self {
            power: power(calls, card, ours),
            memories: memories(calls, card, ours),
            engines: engines(calls, card, ours),
            clock: clock(calls, card, ours),
        }
    }

    /// The loss of the device, if that kept any of them from being found.
    pub(super) fn loss(&self) -> Option<Failure> {
        let Self { power, memories, engines, clock } = self;
        let failures =
            [power.as_ref().err(), memories.as_ref().err(), engines.as_ref().err(), clock.as_ref().err()];
        failures.into_iter().flatten().copied().find(|failure| convert::is_lost(*failure))
    }

    /// What all memory modules of the tile hold.
    pub(super) fn memory_bytes(&self, calls: &Calls) -> Answer<u64> {
        self.memory(calls).map(|modules| convert::memory_bytes(&modules))
    }

    fn memory(&self, calls: &Calls) -> Answer<Vec<ModuleMemory>> {
        self.memories
            .clone()?
            .into_iter()
            .map(|module| calls.memory_state(module).map(ModuleMemory::from))
            .collect()
    }

    /// Takes a sample of all counters.
    pub(super) fn sample(&self, calls: &Calls) -> Sample {
        Sample {
            energy: self.power.and_then(|domain| calls.energy(domain)),
            memory: self.memory(calls),
            bandwidth: self.memories.clone().and_then(|modules| {
                modules.into_iter().map(|module| calls.bandwidth(module)).collect::<Answer<Vec<_>>>()
            }),
            activity: self.engines.clone().and_then(|groups| {
                groups.into_iter().map(|group| calls.activity(group)).collect::<Answer<Vec<_>>>()
            }),
            frequency: self.clock.and_then(|domain| calls.frequency(domain)).map(Frequency::from),
        }
    }
}

fn power(
    calls: &Calls,
    card: zes_device_handle_t,
    ours: impl Fn(ze_bool_t, u32) -> bool,
) -> Answer<zes_pwr_handle_t> {
    for domain in calls.power_domains(card)? {
        let properties = calls.power_properties(domain)?;
        if ours(properties.onSubdevice, properties.subdeviceId) {
            return Ok(domain);
        }
    }
    Err(none_there("zesDeviceEnumPowerDomains"))
}

fn memories(
    calls: &Calls,
    card: zes_device_handle_t,
    ours: impl Fn(ze_bool_t, u32) -> bool,
) -> Answer<Vec<zes_mem_handle_t>> {
    let mut found = Vec::new();
    for module in calls.memory_modules(card)? {
        let properties = calls.memory_properties(module)?;
        let is_on_board = properties.location == ZES_MEM_LOC_DEVICE;
        if is_on_board && ours(properties.onSubdevice, properties.subdeviceId) {
            found.push(module);
        }
    }
    if found.is_empty() { Err(none_there("zesDeviceEnumMemoryModules")) } else { Ok(found) }
}

fn engines(
    calls: &Calls,
    card: zes_device_handle_t,
    ours: impl Fn(ze_bool_t, u32) -> bool,
) -> Answer<Vec<zes_engine_handle_t>> {
    let mut found = Vec::new();
    for group in calls.engine_groups(card)? {
        let properties = calls.engine_properties(group)?;
        if ours(properties.onSubdevice, properties.subdeviceId) {
            found.push((properties.type_, group));
        }
    }
    let mut kinds = ENGINE_GROUPS
        .into_iter()
        .map(|kind| found.iter().filter(move |(of, _)| *of == kind).map(|(_, group)| *group).collect());
    kinds
        .find(|groups: &Vec<zes_engine_handle_t>| !groups.is_empty())
        .ok_or(none_there("zesDeviceEnumEngineGroups"))
}

fn clock(
    calls: &Calls,
    card: zes_device_handle_t,
    ours: impl Fn(ze_bool_t, u32) -> bool,
) -> Answer<zes_freq_handle_t> {
    for domain in calls.frequency_domains(card)? {
        let properties = calls.frequency_properties(domain)?;
        let is_gpu = properties.type_ == ZES_FREQ_DOMAIN_GPU;
        if is_gpu && ours(properties.onSubdevice, properties.subdeviceId) {
            return Ok(domain);
        }
    }
    Err(none_there("zesDeviceEnumFrequencyDomains"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tile_has_its_own_counters_and_the_cards_only_if_it_is_the_only_one() {
        assert!(is_of(1, 2, 1, 1));
        assert!(!is_of(0, 2, 1, 1));
        assert!(!is_of(0, 2, 0, 0), "a card's watts are not one tile's");
        assert!(is_of(0, 1, 0, 0));
    }
}
