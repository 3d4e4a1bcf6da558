//! Structures of the specification. Whatever starts with `stype` is extensible: it must name its own type, and says so
//! from [`new`](zes_mem_state_t::new) on.

#![expect(missing_docs, reason = "each field is described in the specification under its name")]

use crate::constants::*;
use std::ffi::{c_char, c_void};

/// Declares handles: pointers that only the driver follows.
macro_rules! handles {
    ($($name:ident)*) => {$(
        #[doc = concat!("`", stringify!($name), "`: opaque.")]
        #[repr(transparent)]
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub *mut c_void);
        // SAFETY: it is a name that only the driver resolves; which calls may run at once is the caller's business.
        unsafe impl Send for $name {}
        impl $name {
            /// No object.
            pub const NULL: Self = Self(std::ptr::null_mut());
        }
    )*};
}

handles! {
    ze_driver_handle_t ze_device_handle_t ze_context_handle_t ze_event_handle_t
    zes_driver_handle_t zes_device_handle_t zes_pwr_handle_t zes_mem_handle_t zes_engine_handle_t zes_freq_handle_t
    zet_metric_group_handle_t zet_metric_handle_t zet_metric_streamer_handle_t
}

/// Declares structures; with a type, such as are extensible.
macro_rules! structures {
    ($($(#[$doc:meta])* struct $name:ident $(: $stype:ident)? { $($field:ident: $type:ty,)* })*) => {$(
        $(#[$doc])*
        #[repr(C)]
        #[derive(Clone, Copy)]
        pub struct $name { $(pub $field: $type,)* }
        impl Default for $name {
            fn default() -> Self {
                Self::new()
            }
        }
        impl $name {
            /// All zero, but of its own type.
            #[must_use]
            pub fn new() -> Self {
                // SAFETY: made of integers, floats, arrays of them and pointers, for all of which zero is a value.
                #[allow(unused_mut, reason = "not every structure names its type")]
                let mut all_zero: Self = unsafe { std::mem::zeroed() };
                $(all_zero.stype = $stype;)?
                all_zero
            }
        }
    )*};
}

/// The bits of a metric's value; which of them count is said by the type beside it.
#[repr(C)]
#[derive(Clone, Copy)]
pub union zet_value_t {
    pub ui32: u32,
    pub ui64: u64,
    pub fp32: f32,
    pub fp64: f64,
    pub b8: ze_bool_t,
}

structures! {
    /// What a device is.
    struct ze_device_properties_t: ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES {
        stype: u32,
        pNext: *mut c_void,
        type_: u32,
        vendorId: u32,
        deviceId: u32,
        flags: u32,
        subdeviceId: u32,
        coreClockRate: u32,
        maxMemAllocSize: u64,
        maxHardwareContexts: u32,
        maxCommandQueuePriority: u32,
        numThreadsPerEU: u32,
        physicalEUSimdWidth: u32,
        numEUsPerSubslice: u32,
        numSubslicesPerSlice: u32,
        numSlices: u32,
        timerResolution: u64,
        timestampValidBits: u32,
        kernelTimestampValidBits: u32,
        uuid: [u8; 16],
        name: [c_char; 256],
    }

    /// What a context is to be.
    struct ze_context_desc_t: ZE_STRUCTURE_TYPE_CONTEXT_DESC {
        stype: u32,
        pNext: *const c_void,
        flags: u32,
    }

    /// What a card is.
    struct zes_device_properties_t: ZES_STRUCTURE_TYPE_DEVICE_PROPERTIES {
        stype: u32,
        pNext: *mut c_void,
        core: ze_device_properties_t,
        numSubdevices: u32,
        serialNumber: [c_char; 64],
        boardNumber: [c_char; 64],
        brandName: [c_char; 64],
        modelName: [c_char; 64],
        vendorName: [c_char; 64],
        driverVersion: [c_char; 64],
    }

    /// A process on a card.
    struct zes_process_state_t: ZES_STRUCTURE_TYPE_PROCESS_STATE {
        stype: u32,
        pNext: *const c_void,
        processId: u32,
        memSize: u64,
        sharedSize: u64,
        engines: u32,
    }

    /// A place on the PCI bus.
    struct zes_pci_address_t {
        domain: u32,
        bus: u32,
        device: u32,
        function: u32,
    }

    /// What a PCI link can do.
    struct zes_pci_speed_t {
        generation: i32,
        width: i32,
        maxBandwidth: i64,
    }

    /// A card on the PCI bus.
    struct zes_pci_properties_t: ZES_STRUCTURE_TYPE_PCI_PROPERTIES {
        stype: u32,
        pNext: *mut c_void,
        address: zes_pci_address_t,
        maxSpeed: zes_pci_speed_t,
        haveBandwidthCounters: ze_bool_t,
        havePacketCounters: ze_bool_t,
        haveReplayCounters: ze_bool_t,
    }

    /// A domain whose power is metered.
    struct zes_power_properties_t: ZES_STRUCTURE_TYPE_POWER_PROPERTIES {
        stype: u32,
        pNext: *mut c_void,
        onSubdevice: ze_bool_t,
        subdeviceId: u32,
        canControl: ze_bool_t,
        isEnergyThresholdSupported: ze_bool_t,
        defaultLimit: i32,
        minLimit: i32,
        maxLimit: i32,
    }

    /// An energy counter: microjoules, and microseconds.
    struct zes_power_energy_counter_t {
        energy: u64,
        timestamp: u64,
    }

    /// A memory module.
    struct zes_mem_properties_t: ZES_STRUCTURE_TYPE_MEM_PROPERTIES {
        stype: u32,
        pNext: *mut c_void,
        type_: u32,
        onSubdevice: ze_bool_t,
        subdeviceId: u32,
        location: u32,
        physicalSize: u64,
        busWidth: i32,
        numChannels: i32,
    }

    /// What of a memory module is free, in bytes.
    struct zes_mem_state_t: ZES_STRUCTURE_TYPE_MEM_STATE {
        stype: u32,
        pNext: *const c_void,
        health: u32,
        free: u64,
        size: u64,
    }

    /// Counters of a memory module: bytes, bytes a second, and microseconds.
    struct zes_mem_bandwidth_t {
        readCounter: u64,
        writeCounter: u64,
        maxBandwidth: u64,
        timestamp: u64,
    }

    /// A group of engines.
    struct zes_engine_properties_t: ZES_STRUCTURE_TYPE_ENGINE_PROPERTIES {
        stype: u32,
        pNext: *mut c_void,
        type_: u32,
        onSubdevice: ze_bool_t,
        subdeviceId: u32,
    }

    /// An activity counter: microseconds, and microseconds.
    struct zes_engine_stats_t {
        activeTime: u64,
        timestamp: u64,
    }

    /// A clock domain.
    struct zes_freq_properties_t: ZES_STRUCTURE_TYPE_FREQ_PROPERTIES {
        stype: u32,
        pNext: *mut c_void,
        type_: u32,
        onSubdevice: ze_bool_t,
        subdeviceId: u32,
        canControl: ze_bool_t,
        isThrottleEventSupported: ze_bool_t,
        min: f64,
        max: f64,
    }

    /// A clock now: volts and megahertz; below 0 is unknown.
    struct zes_freq_state_t: ZES_STRUCTURE_TYPE_FREQ_STATE {
        stype: u32,
        pNext: *const c_void,
        currentVoltage: f64,
        request: f64,
        tdp: f64,
        efficient: f64,
        actual: f64,
        throttleReasons: u32,
    }

    /// A set of metrics that are measured together.
    struct zet_metric_group_properties_t: ZET_STRUCTURE_TYPE_METRIC_GROUP_PROPERTIES {
        stype: u32,
        pNext: *mut c_void,
        name: [c_char; 256],
        description: [c_char; 256],
        samplingType: u32,
        domain: u32,
        metricCount: u32,
    }

    /// A metric.
    struct zet_metric_properties_t: ZET_STRUCTURE_TYPE_METRIC_PROPERTIES {
        stype: u32,
        pNext: *mut c_void,
        name: [c_char; 256],
        description: [c_char; 256],
        component: [c_char; 256],
        tierNumber: u32,
        metricType: u32,
        resultType: u32,
        resultUnits: [c_char; 256],
    }

    /// How a stream is to be; the period is in nanoseconds.
    struct zet_metric_streamer_desc_t: ZET_STRUCTURE_TYPE_METRIC_STREAMER_DESC {
        stype: u32,
        pNext: *const c_void,
        notifyEveryNReports: u32,
        samplingPeriod: u32,
    }

    /// A value of a metric.
    struct zet_typed_value_t {
        type_: u32,
        value: zet_value_t,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::{offset_of, size_of};

    macro_rules! layout {
        ($name:ident, $size:literal, { $($field:ident: $offset:literal),* }) => {
            assert_eq!(size_of::<$name>(), $size, stringify!($name));
            $(assert_eq!(offset_of!($name, $field), $offset, "{}.{}", stringify!($name), stringify!($field));)*
        };
    }

    /// What gcc 12 says of `ze_api.h`, `zes_api.h` and `zet_api.h` of Debian's libze-dev 1.8.12-1 (specification 1.4) on
    /// x86-64.
    #[test]
    fn structures_lie_in_memory_as_the_headers_say() {
        layout!(ze_device_properties_t, 368, { stype: 0, pNext: 8, type_: 16, vendorId: 20, deviceId: 24, flags: 28, subdeviceId: 32, coreClockRate: 36, maxMemAllocSize: 40, maxHardwareContexts: 48, maxCommandQueuePriority: 52, numThreadsPerEU: 56, physicalEUSimdWidth: 60, numEUsPerSubslice: 64, numSubslicesPerSlice: 68, numSlices: 72, timerResolution: 80, timestampValidBits: 88, kernelTimestampValidBits: 92, uuid: 96, name: 112 });
        layout!(ze_context_desc_t, 24, { stype: 0, pNext: 8, flags: 16 });
        layout!(zes_device_properties_t, 776, { stype: 0, pNext: 8, core: 16, numSubdevices: 384, serialNumber: 388, boardNumber: 452, brandName: 516, modelName: 580, vendorName: 644, driverVersion: 708 });
        layout!(zes_process_state_t, 48, { stype: 0, pNext: 8, processId: 16, memSize: 24, sharedSize: 32, engines: 40 });
        layout!(zes_pci_address_t, 16, { domain: 0, bus: 4, device: 8, function: 12 });
        layout!(zes_pci_properties_t, 56, { stype: 0, pNext: 8, address: 16, maxSpeed: 32, haveBandwidthCounters: 48, havePacketCounters: 49, haveReplayCounters: 50 });
        layout!(zes_power_properties_t, 40, { stype: 0, pNext: 8, onSubdevice: 16, subdeviceId: 20, canControl: 24, isEnergyThresholdSupported: 25, defaultLimit: 28, minLimit: 32, maxLimit: 36 });
        layout!(zes_power_energy_counter_t, 16, { energy: 0, timestamp: 8 });
        layout!(zes_mem_properties_t, 48, { stype: 0, pNext: 8, type_: 16, onSubdevice: 20, subdeviceId: 24, location: 28, physicalSize: 32, busWidth: 40, numChannels: 44 });
        layout!(zes_mem_state_t, 40, { stype: 0, pNext: 8, health: 16, free: 24, size: 32 });
        layout!(zes_mem_bandwidth_t, 32, { readCounter: 0, writeCounter: 8, maxBandwidth: 16, timestamp: 24 });
        layout!(zes_engine_properties_t, 32, { stype: 0, pNext: 8, type_: 16, onSubdevice: 20, subdeviceId: 24 });
        layout!(zes_engine_stats_t, 16, { activeTime: 0, timestamp: 8 });
        layout!(zes_freq_properties_t, 48, { stype: 0, pNext: 8, type_: 16, onSubdevice: 20, subdeviceId: 24, canControl: 28, isThrottleEventSupported: 29, min: 32, max: 40 });
        layout!(zes_freq_state_t, 64, { stype: 0, pNext: 8, currentVoltage: 16, request: 24, tdp: 32, efficient: 40, actual: 48, throttleReasons: 56 });
        layout!(zet_metric_group_properties_t, 544, { stype: 0, pNext: 8, name: 16, description: 272, samplingType: 528, domain: 532, metricCount: 536 });
        layout!(zet_metric_properties_t, 1056, { stype: 0, pNext: 8, name: 16, description: 272, component: 528, tierNumber: 784, metricType: 788, resultType: 792, resultUnits: 796 });
        layout!(zet_metric_streamer_desc_t, 24, { stype: 0, pNext: 8, notifyEveryNReports: 16, samplingPeriod: 20 });
        layout!(zet_typed_value_t, 16, { type_: 0, value: 8 });
    }

    #[test]
    fn extensible_structures_name_their_type() {
        assert_eq!(zes_mem_state_t::new().stype, 0x1e);
        assert_eq!(zes_device_properties_t::default().stype, 0x1);
        assert_eq!(zet_metric_streamer_desc_t::new().stype, 0x3);
    }
}
