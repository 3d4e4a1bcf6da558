//! The functions, and the library that they come from.

use crate::constants::*;
use crate::structures::*;
use libloading::Library;
use std::ffi::OsStr;

macro_rules! functions {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {
        /// A loader of Level Zero with the functions that it has; each is `None` where it has not.
        #[derive(Debug)]
        #[expect(missing_docs, reason = "each is described in the specification under its name")]
        pub struct LevelZero {
            $(pub $name: Option<unsafe extern "C" fn($($argument: $type),*) -> ze_result_t>,)*
            /// Last, so that nothing above outlives it.
            library: Library,
        }

        impl LevelZero {
            /// Loads `path`, or the library of that name where the system's loader finds it.
            ///
            /// # Errors
            /// If there is no such library.
            ///
            /// # Safety
            /// The library must be a Level Zero loader: its initialisers run, and its functions are taken to be those of
            /// the specification. No function may be called after this value is dropped.
            pub unsafe fn open(path: impl AsRef<OsStr>) -> Result<Self, libloading::Error> {
                // SAFETY: the caller promises that this is a Level Zero loader, whose initialisers only make tables.
                let library = unsafe { Library::new(path.as_ref()) }?;
                $(
                    // SAFETY: the caller promises that a function of this name is that of the specification.
                    let $name = unsafe { library.get(concat!(stringify!($name), "\0").as_bytes()) };
                    let $name = $name.ok().map(|symbol| *symbol);
                )*
                Ok(Self {
                    $($name,)*
                    library,
                })
            }

            /// Unloads the library.
            ///
            /// # Errors
            /// If the system's loader says so.
            pub fn close(self) -> Result<(), libloading::Error> {
                self.library.close()
            }
        }
    };
}

functions! {
    zeInit(flags: u32);
    zeDriverGet(pCount: *mut u32, phDrivers: *mut ze_driver_handle_t);
    zeDeviceGet(hDriver: ze_driver_handle_t, pCount: *mut u32, phDevices: *mut ze_device_handle_t);
    zeDeviceGetSubDevices(hDevice: ze_device_handle_t, pCount: *mut u32, phSubdevices: *mut ze_device_handle_t);
    zeDeviceGetProperties(hDevice: ze_device_handle_t, pDeviceProperties: *mut ze_device_properties_t);
    zeContextCreate(hDriver: ze_driver_handle_t, desc: *const ze_context_desc_t, phContext: *mut ze_context_handle_t);
    zeContextDestroy(hContext: ze_context_handle_t);
    zesInit(flags: u32);
    zesDriverGet(pCount: *mut u32, phDrivers: *mut zes_driver_handle_t);
    zesDeviceGet(hDriver: zes_driver_handle_t, pCount: *mut u32, phDevices: *mut zes_device_handle_t);
    zesDeviceGetProperties(hDevice: zes_device_handle_t, pProperties: *mut zes_device_properties_t);
    zesDevicePciGetProperties(hDevice: zes_device_handle_t, pProperties: *mut zes_pci_properties_t);
    zesDeviceProcessesGetState(hDevice: zes_device_handle_t, pCount: *mut u32, pProcesses: *mut zes_process_state_t);
    zesDeviceEnumPowerDomains(hDevice: zes_device_handle_t, pCount: *mut u32, phPower: *mut zes_pwr_handle_t);
    zesDeviceEnumMemoryModules(hDevice: zes_device_handle_t, pCount: *mut u32, phMemory: *mut zes_mem_handle_t);
    zesDeviceEnumEngineGroups(hDevice: zes_device_handle_t, pCount: *mut u32, phEngine: *mut zes_engine_handle_t);
    zesDeviceEnumFrequencyDomains(hDevice: zes_device_handle_t, pCount: *mut u32, phFrequency: *mut zes_freq_handle_t);
    zesPowerGetProperties(hPower: zes_pwr_handle_t, pProperties: *mut zes_power_properties_t);
    zesPowerGetEnergyCounter(hPower: zes_pwr_handle_t, pEnergy: *mut zes_power_energy_counter_t);
    zesMemoryGetProperties(hMemory: zes_mem_handle_t, pProperties: *mut zes_mem_properties_t);
    zesMemoryGetState(hMemory: zes_mem_handle_t, pState: *mut zes_mem_state_t);
    zesMemoryGetBandwidth(hMemory: zes_mem_handle_t, pBandwidth: *mut zes_mem_bandwidth_t);
    zesEngineGetProperties(hEngine: zes_engine_handle_t, pProperties: *mut zes_engine_properties_t);
    zesEngineGetActivity(hEngine: zes_engine_handle_t, pStats: *mut zes_engine_stats_t);
    zesFrequencyGetProperties(hFrequency: zes_freq_handle_t, pProperties: *mut zes_freq_properties_t);
    zesFrequencyGetState(hFrequency: zes_freq_handle_t, pState: *mut zes_freq_state_t);
    zetMetricGroupGet(hDevice: ze_device_handle_t, pCount: *mut u32, phMetricGroups: *mut zet_metric_group_handle_t);
    zetMetricGroupGetProperties(hMetricGroup: zet_metric_group_handle_t, pProperties: *mut zet_metric_group_properties_t);
    zetMetricGroupCalculateMetricValues(
        hMetricGroup: zet_metric_group_handle_t,
        type_: u32,
        rawDataSize: usize,
        pRawData: *const u8,
        pMetricValueCount: *mut u32,
        pMetricValues: *mut zet_typed_value_t
    );
    zetMetricGet(hMetricGroup: zet_metric_group_handle_t, pCount: *mut u32, phMetrics: *mut zet_metric_handle_t);
    zetMetricGetProperties(hMetric: zet_metric_handle_t, pProperties: *mut zet_metric_properties_t);
    zetContextActivateMetricGroups(
        hContext: ze_context_handle_t,
        hDevice: ze_device_handle_t,
        count: u32,
        phMetricGroups: *mut zet_metric_group_handle_t
    );
    zetMetricStreamerOpen(
        hContext: ze_context_handle_t,
        hDevice: ze_device_handle_t,
        hMetricGroup: zet_metric_group_handle_t,
        desc: *mut zet_metric_streamer_desc_t,
        hNotificationEvent: ze_event_handle_t,
        phMetricStreamer: *mut zet_metric_streamer_handle_t
    );
    zetMetricStreamerClose(hMetricStreamer: zet_metric_streamer_handle_t);
    zetMetricStreamerReadData(
        hMetricStreamer: zet_metric_streamer_handle_t,
        maxReportCount: u32,
        pRawDataSize: *mut usize,
        pRawData: *mut u8
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_not_there_is_an_error_with_its_name() {
        // SAFETY: there is no such library.
        let error = unsafe { LevelZero::open("libze_no_such_loader.so.1") }.unwrap_err();
        assert!(error.to_string().contains("libze_no_such_loader.so.1"), "{error}");
    }
}
