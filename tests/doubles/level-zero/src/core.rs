//! `ze*`: initialisation, drivers, devices and contexts.

use crate::state::{Object, Refusal, State, TILES, TileId};
use crate::{call, fill, give, put, take, write_text};
use level_zero_sys::*;

const NAME: &str = "Intel(R) Data Center GPU Max 1550";
const VENDOR: u32 = 0x8086;
const DEVICE: u32 = 0x0bd5;

fn is_set(name: &str) -> bool {
    std::env::var_os(name).is_some_and(|value| value == "1")
}

/// Whether devices are cards: unless somebody asks for it, a Max shows its tiles as devices of their own.
fn is_composite() -> bool {
    std::env::var_os("ZE_FLAT_DEVICE_HIERARCHY").is_some_and(|value| value == "COMPOSITE")
}

fn initialised(state: &State) -> Result<(), Refusal> {
    if state.has_core { Ok(()) } else { Err(Refusal(ZE_RESULT_ERROR_UNINITIALIZED)) }
}

/// What a core device is; `tile` if it is a part of a card.
pub(crate) fn describe(properties: &mut ze_device_properties_t, card: u32, tile: Option<u32>) {
    properties.type_ = ZE_DEVICE_TYPE_GPU;
    properties.vendorId = VENDOR;
    properties.deviceId = DEVICE;
    properties.subdeviceId = tile.unwrap_or(0);
    properties.uuid = [0; 16];
    properties.uuid[0] = 0x86;
    properties.uuid[1] = 0x80;
    properties.uuid[14] = u8::try_from(tile.map_or(0, |tile| tile + 1)).unwrap_or(0);
    properties.uuid[15] = u8::try_from(card).unwrap_or(0);
    write_text(&mut properties.name, NAME);
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn zeInit(flags: u32) -> ze_result_t {
    call("zeInit", |state| {
        if flags > 3 {
            return Err(Refusal(ZE_RESULT_ERROR_INVALID_ENUMERATION));
        }
        let wants_sysman = is_set("ZES_ENABLE_SYSMAN");
        if wants_sysman && state.has_modern_sysman {
            return Err(Refusal(ZE_RESULT_ERROR_UNINITIALIZED));
        }
        state.card_count()?;
        if !state.has_core {
            state.has_core = true;
            state.has_legacy_sysman = wants_sysman;
            state.has_metrics = is_set("ZET_ENABLE_METRICS");
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn zeDriverGet(pCount: *mut u32, phDrivers: *mut ze_driver_handle_t) -> ze_result_t {
    call("zeDriverGet", |state| {
        initialised(state)?;
        let driver = ze_driver_handle_t(state.handle(Object::CoreDriver));
        give(pCount, phDrivers, &[driver]).map(|_| ())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn zeDeviceGet(
    hDriver: ze_driver_handle_t,
    pCount: *mut u32,
    phDevices: *mut ze_device_handle_t,
) -> ze_result_t {
    call("zeDeviceGet", |state| {
        initialised(state)?;
        if state.object(hDriver.0)? != Object::CoreDriver {
            return Err(Refusal(ZE_RESULT_ERROR_INVALID_NULL_HANDLE));
        }
        let cards = 0..state.card_count()?;
        let objects: Vec<Object> = if is_composite() {
            cards.map(Object::CoreCard).collect()
        } else {
            cards
                .flat_map(|card| (0..TILES).map(move |tile| Object::CoreTile(TileId { card, tile })))
                .collect()
        };
        let handles: Vec<_> =
            objects.into_iter().map(|object| ze_device_handle_t(state.handle(object))).collect();
        give(pCount, phDevices, &handles).map(|_| ())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn zeDeviceGetSubDevices(
    hDevice: ze_device_handle_t,
    pCount: *mut u32,
    phSubdevices: *mut ze_device_handle_t,
) -> ze_result_t {
    call("zeDeviceGetSubDevices", |state| {
        initialised(state)?;
        let handles: Vec<_> = match state.object(hDevice.0)? {
            Object::CoreCard(card) => (0..TILES)
                .map(|tile| ze_device_handle_t(state.handle(Object::CoreTile(TileId { card, tile }))))
                .collect(),
            Object::CoreTile(_) => Vec::new(),
            _ => return Err(Refusal(ZE_RESULT_ERROR_INVALID_NULL_HANDLE)),
        };
        give(pCount, phSubdevices, &handles).map(|_| ())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn zeDeviceGetProperties(
    hDevice: ze_device_handle_t,
    pDeviceProperties: *mut ze_device_properties_t,
) -> ze_result_t {
    call("zeDeviceGetProperties", |state| {
        initialised(state)?;
        let (card, tile) = match state.object(hDevice.0)? {
            Object::CoreCard(card) => (card, None),
            Object::CoreTile(TileId { card, tile }) => (card, Some(tile)),
            _ => return Err(Refusal(ZE_RESULT_ERROR_INVALID_NULL_HANDLE)),
        };
        fill!(pDeviceProperties: ze_device_properties_t, |properties| describe(properties, card, tile))
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn zeContextCreate(
    hDriver: ze_driver_handle_t,
    desc: *const ze_context_desc_t,
    phContext: *mut ze_context_handle_t,
) -> ze_result_t {
    call("zeContextCreate", |state| {
        initialised(state)?;
        if state.object(hDriver.0)? != Object::CoreDriver {
            return Err(Refusal(ZE_RESULT_ERROR_INVALID_NULL_HANDLE));
        }
        if take(desc)?.stype != ze_context_desc_t::new().stype {
            return Err(Refusal(ZE_RESULT_ERROR_INVALID_ARGUMENT));
        }
        let number = state.next();
        state.contexts.insert(number);
        put(phContext, ze_context_handle_t(state.handle(Object::Context(number))))
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn zeContextDestroy(hContext: ze_context_handle_t) -> ze_result_t {
    call("zeContextDestroy", |state| match state.object(hContext.0)? {
        Object::Context(number) if state.contexts.remove(&number) => {
            state.forget(hContext.0);
            Ok(())
        }
        _ => Err(Refusal(ZE_RESULT_ERROR_INVALID_NULL_HANDLE)),
    })
}
