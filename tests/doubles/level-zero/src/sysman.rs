//! `zes*`: the counters of cards and tiles.

use crate::state::{Object, Refusal, State, TILES, TileId, refusal};
use crate::{call, core, faults, fill, give, model, put, write_text};
use level_zero_sys::*;
use pillion_device::Backend as _;
use std::collections::BTreeMap;
use std::ffi::c_void;

/// Where the first card is on the PCI bus; the others follow.
const PCI_BUS: u32 = 0x18;
/// The kinds of engine groups of a tile, copies before what is asked for.
const ENGINE_GROUPS: [u32; 4] = [
    ZES_ENGINE_GROUP_ALL,
    ZES_ENGINE_GROUP_COPY_ALL,
    ZES_ENGINE_GROUP_COMPUTE_ALL,
    ZES_ENGINE_GROUP_COMPUTE_SINGLE,
];
const FREQUENCY_DOMAINS: [u32; 2] = [ZES_FREQ_DOMAIN_MEMORY, ZES_FREQ_DOMAIN_GPU];

fn tiles(card: u32) -> impl Iterator<Item = TileId> {
    (0..TILES).map(move |tile| TileId { card, tile })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn zesInit(flags: u32) -> ze_result_t {
    call("zesInit", |state| {
        if flags != 0 {
            return Err(Refusal(ZE_RESULT_ERROR_INVALID_ENUMERATION));
        }
        // Never both ways in one process.
        if state.has_legacy_sysman || std::env::var_os("ZES_ENABLE_SYSMAN").is_some() {
            return Err(Refusal(ZE_RESULT_ERROR_UNKNOWN));
        }
        state.card_count()?;
        state.has_modern_sysman = true;
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn zesDriverGet(pCount: *mut u32, phDrivers: *mut zes_driver_handle_t) -> ze_result_t {
    call("zesDriverGet", |state| {
        if !state.has_modern_sysman {
            return Err(Refusal(ZE_RESULT_ERROR_UNINITIALIZED));
        }
        let driver = zes_driver_handle_t(state.handle(Object::SysmanDriver));
        give(pCount, phDrivers, &[driver]).map(|_| ())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn zesDeviceGet(
    hDriver: zes_driver_handle_t,
    pCount: *mut u32,
    phDevices: *mut zes_device_handle_t,
) -> ze_result_t {
    call("zesDeviceGet", |state| {
        if state.object(hDriver.0)? != Object::SysmanDriver {
            return Err(Refusal(ZE_RESULT_ERROR_INVALID_NULL_HANDLE));
        }
        let cards = 0..state.card_count()?;
        let handles: Vec<_> =
            cards.map(|card| zes_device_handle_t(state.handle(Object::SysmanCard(card)))).collect();
        give(pCount, phDevices, &handles).map(|_| ())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn zesDeviceGetProperties(
    hDevice: zes_device_handle_t,
    pProperties: *mut zes_device_properties_t,
) -> ze_result_t {
    call("zesDeviceGetProperties", |state| {
        let card = state.card(hDevice.0)?;
        fill!(pProperties: zes_device_properties_t, |properties| {
            core::describe(&mut properties.core, card, None);
            properties.numSubdevices = TILES;
            write_text(&mut properties.vendorName, "Intel(R) Corporation");
        })
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn zesDevicePciGetProperties(
    hDevice: zes_device_handle_t,
    pProperties: *mut zes_pci_properties_t,
) -> ze_result_t {
    call("zesDevicePciGetProperties", |state| {
        let card = state.card(hDevice.0)?;
        fill!(pProperties: zes_pci_properties_t, |properties| {
            properties.address = zes_pci_address_t { domain: 0, bus: PCI_BUS + card, device: 0, function: 0 };
        })
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn zesDeviceProcessesGetState(
    hDevice: zes_device_handle_t,
    pCount: *mut u32,
    pProcesses: *mut zes_process_state_t,
) -> ze_result_t {
    call("zesDeviceProcessesGetState", |state| {
        let card = state.card(hDevice.0)?;
        let mut on_card: BTreeMap<u32, u64> = BTreeMap::new();
        for tile in tiles(card) {
            let processes = state.devices()?.processes(tile.index()).map_err(|error| refusal(&error))?;
            for process in processes {
                *on_card.entry(process.pid).or_default() += process.memory_bytes.unwrap_or(0);
            }
        }
        let all: Vec<zes_process_state_t> = on_card
            .into_iter()
            .map(|(pid, bytes)| zes_process_state_t {
                processId: pid,
                memSize: bytes,
                ..zes_process_state_t::new()
            })
            .collect();
        let given = give(pCount, pProcesses, &all)?;
        if given < all.len() { Err(Refusal(ZE_RESULT_ERROR_INVALID_SIZE)) } else { Ok(()) }
    })
}

/// Gives handles for what a card has.
fn list<T: Copy>(
    state: &mut State,
    objects: impl Iterator<Item = Object>,
    count: *mut u32,
    place: *mut T,
    wrap: fn(*mut c_void) -> T,
) -> Result<(), Refusal> {
    let handles: Vec<T> = objects.map(|object| wrap(state.handle(object))).collect();
    give(count, place, &handles).map(|_| ())
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn zesDeviceEnumPowerDomains(
    hDevice: zes_device_handle_t,
    pCount: *mut u32,
    phPower: *mut zes_pwr_handle_t,
) -> ze_result_t {
    call("zesDeviceEnumPowerDomains", |state| {
        let card = state.card(hDevice.0)?;
        let domains = [None].into_iter().chain((0..TILES).map(Some));
        let objects = domains.map(|tile| Object::Power { card, tile });
        list(state, objects, pCount, phPower, zes_pwr_handle_t)
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn zesDeviceEnumMemoryModules(
    hDevice: zes_device_handle_t,
    pCount: *mut u32,
    phMemory: *mut zes_mem_handle_t,
) -> ze_result_t {
    call("zesDeviceEnumMemoryModules", |state| {
        let card = state.card(hDevice.0)?;
        list(state, tiles(card).map(Object::Memory), pCount, phMemory, zes_mem_handle_t)
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn zesDeviceEnumEngineGroups(
    hDevice: zes_device_handle_t,
    pCount: *mut u32,
    phEngine: *mut zes_engine_handle_t,
) -> ze_result_t {
    call("zesDeviceEnumEngineGroups", |state| {
        let card = state.card(hDevice.0)?;
        let of = |tile| ENGINE_GROUPS.into_iter().map(move |kind| Object::Engine(tile, kind));
        list(state, tiles(card).flat_map(of), pCount, phEngine, zes_engine_handle_t)
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn zesDeviceEnumFrequencyDomains(
    hDevice: zes_device_handle_t,
    pCount: *mut u32,
    phFrequency: *mut zes_freq_handle_t,
) -> ze_result_t {
    call("zesDeviceEnumFrequencyDomains", |state| {
        let card = state.card(hDevice.0)?;
        let of = |tile| FREQUENCY_DOMAINS.into_iter().map(move |domain| Object::Frequency(tile, domain));
        list(state, tiles(card).flat_map(of), pCount, phFrequency, zes_freq_handle_t)
    })
}

/// A handle of another kind.
const WRONG_HANDLE: Refusal = Refusal(ZE_RESULT_ERROR_INVALID_NULL_HANDLE);

#[unsafe(no_mangle)]
pub(crate) extern "C" fn zesPowerGetProperties(
    hPower: zes_pwr_handle_t,
    pProperties: *mut zes_power_properties_t,
) -> ze_result_t {
    call("zesPowerGetProperties", |state| {
        let Object::Power { tile, .. } = state.object(hPower.0)? else { return Err(WRONG_HANDLE) };
        fill!(pProperties: zes_power_properties_t, |properties| {
            properties.onSubdevice = u8::from(tile.is_some());
            properties.subdeviceId = tile.unwrap_or(0);
        })
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn zesPowerGetEnergyCounter(
    hPower: zes_pwr_handle_t,
    pEnergy: *mut zes_power_energy_counter_t,
) -> ze_result_t {
    call("zesPowerGetEnergyCounter", |state| {
        let object = state.object(hPower.0)?;
        let Object::Power { card, tile } = object else { return Err(WRONG_HANDLE) };
        state.spaced(object)?;
        let metered = tiles(card).filter(|id| tile.is_none_or(|tile| tile == id.tile));
        let counters: Result<Vec<_>, Refusal> = metered.map(|tile| state.counters(tile)).collect();
        put(pEnergy, model::energy(&counters?))
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn zesMemoryGetProperties(
    hMemory: zes_mem_handle_t,
    pProperties: *mut zes_mem_properties_t,
) -> ze_result_t {
    call("zesMemoryGetProperties", |state| {
        let Object::Memory(tile) = state.object(hMemory.0)? else { return Err(WRONG_HANDLE) };
        fill!(pProperties: zes_mem_properties_t, |properties| {
            properties.onSubdevice = 1;
            properties.subdeviceId = tile.tile;
            properties.location = ZES_MEM_LOC_DEVICE;
        })
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn zesMemoryGetState(
    hMemory: zes_mem_handle_t,
    pState: *mut zes_mem_state_t,
) -> ze_result_t {
    call("zesMemoryGetState", |state| {
        let Object::Memory(tile) = state.object(hMemory.0)? else { return Err(WRONG_HANDLE) };
        let used = state.counters(tile)?.memory_bytes_used;
        let all = state.devices()?.devices().map_err(|error| refusal(&error))?;
        let size = all.get(tile.index() as usize).ok_or(WRONG_HANDLE)?.memory_bytes;
        fill!(pState: zes_mem_state_t, |room| {
            room.size = size;
            room.free = size - used;
        })
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn zesMemoryGetBandwidth(
    hMemory: zes_mem_handle_t,
    pBandwidth: *mut zes_mem_bandwidth_t,
) -> ze_result_t {
    call("zesMemoryGetBandwidth", |state| {
        let object = state.object(hMemory.0)?;
        let Object::Memory(tile) = object else { return Err(WRONG_HANDLE) };
        state.spaced(object)?;
        put(pBandwidth, model::bandwidth(&state.counters(tile)?))
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn zesEngineGetProperties(
    hEngine: zes_engine_handle_t,
    pProperties: *mut zes_engine_properties_t,
) -> ze_result_t {
    call("zesEngineGetProperties", |state| {
        let Object::Engine(tile, kind) = state.object(hEngine.0)? else { return Err(WRONG_HANDLE) };
        fill!(pProperties: zes_engine_properties_t, |properties| {
            properties.type_ = kind;
            properties.onSubdevice = 1;
            properties.subdeviceId = tile.tile;
        })
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn zesEngineGetActivity(
    hEngine: zes_engine_handle_t,
    pStats: *mut zes_engine_stats_t,
) -> ze_result_t {
    call("zesEngineGetActivity", |state| {
        let object = state.object(hEngine.0)?;
        let Object::Engine(tile, kind) = object else { return Err(WRONG_HANDLE) };
        state.spaced(object)?;
        let mut stats = model::activity(&state.counters(tile)?);
        // The model's programs compute and do not copy.
        if kind == ZES_ENGINE_GROUP_COPY_ALL {
            stats.activeTime = 0;
        }
        put(pStats, stats)
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn zesFrequencyGetProperties(
    hFrequency: zes_freq_handle_t,
    pProperties: *mut zes_freq_properties_t,
) -> ze_result_t {
    call("zesFrequencyGetProperties", |state| {
        let Object::Frequency(tile, domain) = state.object(hFrequency.0)? else { return Err(WRONG_HANDLE) };
        fill!(pProperties: zes_freq_properties_t, |properties| {
            properties.type_ = domain;
            properties.onSubdevice = 1;
            properties.subdeviceId = tile.tile;
        })
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn zesFrequencyGetState(
    hFrequency: zes_freq_handle_t,
    pState: *mut zes_freq_state_t,
) -> ze_result_t {
    call("zesFrequencyGetState", |state| {
        let Object::Frequency(tile, domain) = state.object(hFrequency.0)? else { return Err(WRONG_HANDLE) };
        state.counters(tile)?;
        let is_gpu = domain == ZES_FREQ_DOMAIN_GPU;
        fill!(pState: zes_freq_state_t, |now| {
            now.actual = if is_gpu { model::CLOCK_MEGAHERTZ } else { 3200.0 };
            now.throttleReasons = if is_gpu { faults::now().throttle_reasons } else { 0 };
        })
    })
}
