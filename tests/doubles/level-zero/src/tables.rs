//! What a loader asks a driver for: tables of functions, by the names and in the order of `ze_ddi.h`, `zes_ddi.h` and
//! `zet_ddi.h` of Debian's libze-dev 1.8.12-1. Debian's loader takes no driver that lacks one of these exports; entries
//! that are left empty it answers with "unsupported feature". Tables only grow at their ends, and nothing is written that
//! specification 1.4 has not.

use crate::{core, metrics, sysman};
use level_zero_sys::*;
use std::ffi::c_void;

/// Of another major version nothing is known.
const MAJOR: u32 = 1;

fn fill(version: u32, table: *mut c_void, entries: &[(usize, *const c_void)]) -> ze_result_t {
    if table.is_null() {
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    }
    if version >> 16 != MAJOR {
        return ZE_RESULT_ERROR_UNSUPPORTED_VERSION;
    }
    for (position, function) in entries {
        // SAFETY: the loader vouches for a table of its version, and each position is in those of every version 1.
        unsafe { table.cast::<*const c_void>().add(*position).write(*function) };
    }
    ZE_RESULT_SUCCESS
}

macro_rules! tables {
    ($($name:ident { $($position:literal: $function:path,)* })*) => {$(
        #[unsafe(no_mangle)]
        pub(crate) extern "C" fn $name(version: u32, table: *mut c_void) -> ze_result_t {
            fill(version, table, &[$(($position, $function as *const c_void)),*])
        }
    )*};
}

tables! {
    zeGetGlobalProcAddrTable {
        0: core::zeInit,
    }
    zeGetDriverProcAddrTable {
        0: core::zeDriverGet,
    }
    zeGetDeviceProcAddrTable {
        0: core::zeDeviceGet,
        1: core::zeDeviceGetSubDevices,
        2: core::zeDeviceGetProperties,
    }
    zeGetDeviceExpProcAddrTable {}
    zeGetContextProcAddrTable {
        0: core::zeContextCreate,
        1: core::zeContextDestroy,
    }
    zeGetCommandQueueProcAddrTable {}
    zeGetCommandListProcAddrTable {}
    zeGetImageProcAddrTable {}
    zeGetImageExpProcAddrTable {}
    zeGetFenceProcAddrTable {}
    zeGetEventPoolProcAddrTable {}
    zeGetEventProcAddrTable {}
    zeGetEventExpProcAddrTable {}
    zeGetModuleProcAddrTable {}
    zeGetModuleBuildLogProcAddrTable {}
    zeGetKernelProcAddrTable {}
    zeGetKernelExpProcAddrTable {}
    zeGetSamplerProcAddrTable {}
    zeGetPhysicalMemProcAddrTable {}
    zeGetMemProcAddrTable {}
    zeGetVirtualMemProcAddrTable {}
    zeGetFabricVertexExpProcAddrTable {}
    zeGetFabricEdgeExpProcAddrTable {}
    zesGetDriverProcAddrTable {}
    zesGetDeviceProcAddrTable {
        0: sysman::zesDeviceGetProperties,
        3: sysman::zesDeviceProcessesGetState,
        4: sysman::zesDevicePciGetProperties,
        9: sysman::zesDeviceEnumEngineGroups,
        14: sysman::zesDeviceEnumFrequencyDomains,
        16: sysman::zesDeviceEnumMemoryModules,
        18: sysman::zesDeviceEnumPowerDomains,
    }
    zesGetSchedulerProcAddrTable {}
    zesGetPerformanceFactorProcAddrTable {}
    zesGetPowerProcAddrTable {
        0: sysman::zesPowerGetProperties,
        1: sysman::zesPowerGetEnergyCounter,
    }
    zesGetFrequencyProcAddrTable {
        0: sysman::zesFrequencyGetProperties,
        4: sysman::zesFrequencyGetState,
    }
    zesGetEngineProcAddrTable {
        0: sysman::zesEngineGetProperties,
        1: sysman::zesEngineGetActivity,
    }
    zesGetStandbyProcAddrTable {}
    zesGetFirmwareProcAddrTable {}
    zesGetMemoryProcAddrTable {
        0: sysman::zesMemoryGetProperties,
        1: sysman::zesMemoryGetState,
        2: sysman::zesMemoryGetBandwidth,
    }
    zesGetFabricPortProcAddrTable {}
    zesGetTemperatureProcAddrTable {}
    zesGetPsuProcAddrTable {}
    zesGetFanProcAddrTable {}
    zesGetLedProcAddrTable {}
    zesGetRasProcAddrTable {}
    zesGetDiagnosticsProcAddrTable {}
    zetGetDeviceProcAddrTable {}
    zetGetContextProcAddrTable {
        0: metrics::zetContextActivateMetricGroups,
    }
    zetGetCommandListProcAddrTable {}
    zetGetModuleProcAddrTable {}
    zetGetKernelProcAddrTable {}
    zetGetMetricGroupProcAddrTable {
        0: metrics::zetMetricGroupGet,
        1: metrics::zetMetricGroupGetProperties,
        2: metrics::zetMetricGroupCalculateMetricValues,
    }
    zetGetMetricGroupExpProcAddrTable {}
    zetGetMetricProcAddrTable {
        0: metrics::zetMetricGet,
        1: metrics::zetMetricGetProperties,
    }
    zetGetMetricStreamerProcAddrTable {
        0: metrics::zetMetricStreamerOpen,
        1: metrics::zetMetricStreamerClose,
        2: metrics::zetMetricStreamerReadData,
    }
    zetGetMetricQueryPoolProcAddrTable {}
    zetGetMetricQueryProcAddrTable {}
    zetGetTracerExpProcAddrTable {}
    zetGetDebugProcAddrTable {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_filled_where_it_is_known_and_for_a_version_that_is() {
        let mut table = [std::ptr::null::<c_void>(); 40];
        let place = table.as_mut_ptr().cast::<c_void>();
        assert_eq!(zesGetDeviceProcAddrTable(0x0002_0000, place), ZE_RESULT_ERROR_UNSUPPORTED_VERSION);
        assert!(table.iter().all(|entry| entry.is_null()));
        assert_eq!(
            zesGetDeviceProcAddrTable(0x0001_0004, std::ptr::null_mut()),
            ZE_RESULT_ERROR_INVALID_NULL_POINTER
        );
        assert_eq!(zesGetDeviceProcAddrTable(0x0001_0004, place), ZE_RESULT_SUCCESS);
        assert_eq!(table.iter().filter(|entry| !entry.is_null()).count(), 7);
        // 29 entries are all that specification 1.4 has.
        assert!(table[29..].iter().all(|entry| entry.is_null()));
    }
}
