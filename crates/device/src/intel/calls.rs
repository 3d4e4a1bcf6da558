//! Calls into Level Zero, each with its answer as a value: the only unsafe module of this backend, but for the environment.
//!
//! Knows what a call takes (two calls for a list, a type in each structure), not what its answer means.

#![expect(unsafe_code, reason = "calls a foreign library")]

use level_zero_sys::*;

/// A call that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) call: &'static str,
    /// What it answered.
    pub(super) result: ze_result_t,
}

/// What a call gave.
pub(super) type Answer<T> = Result<T, Failure>;

/// A loaded library.
#[derive(Debug)]
pub(super) struct Calls {
    library: LevelZero,
}

/// No list of a driver is longer; a count beyond it is nonsense.
const LIST_LENGTH_MAX: u32 = 65_536;
/// Processes that may come between the count and the list.
const PROCESSES_HEADROOM: u32 = 16;
/// No read of a stream is longer.
const STREAM_BYTES_MAX: usize = 64 << 20;

/// A function that fills in a structure for an object.
type Get<H, T> = Option<unsafe extern "C" fn(H, *mut T) -> ze_result_t>;
/// A function that lists something of an object.
type List<H, T> = Option<unsafe extern "C" fn(H, *mut u32, *mut T) -> ze_result_t>;

const fn missing(call: &'static str) -> Failure {
    Failure { call, result: ZE_RESULT_ERROR_UNSUPPORTED_FEATURE }
}

fn check(call: &'static str, result: ze_result_t) -> Answer<()> {
    if result == ZE_RESULT_SUCCESS { Ok(()) } else { Err(Failure { call, result }) }
}

fn get<H, T>(call: &'static str, function: Get<H, T>, handle: H, mut value: T) -> Answer<T> {
    let function = function.ok_or(missing(call))?;
    // SAFETY: the library is loaded as long as `Calls` lives, and `value` is a structure of the type that it expects.
    check(call, unsafe { function(handle, &raw mut value) })?;
    Ok(value)
}

/// Asks how many there are, then for that many and `headroom` more.
fn list<T: Copy>(
    call: &'static str,
    blank: T,
    headroom: u32,
    ask: impl Fn(*mut u32, *mut T) -> ze_result_t,
) -> Answer<Vec<T>> {
    let mut count = 0;
    check(call, ask(&raw mut count, std::ptr::null_mut()))?;
    if count == 0 {
        return Ok(Vec::new());
    }
    count = count.min(LIST_LENGTH_MAX).saturating_add(headroom);
    let mut all = vec![blank; count as usize];
    check(call, ask(&raw mut count, all.as_mut_ptr()))?;
    all.truncate(count as usize);
    Ok(all)
}

fn list_of<H: Copy, T: Copy>(
    call: &'static str,
    function: List<H, T>,
    handle: H,
    blank: T,
) -> Answer<Vec<T>> {
    let function = function.ok_or(missing(call))?;
    // SAFETY: as in `get`; `list` passes a count and an array of at least that many, or none for a count of 0.
    list(call, blank, 0, |count, all| unsafe { function(handle, count, all) })
}

/// One method a function: what it fills in, or what it lists.
macro_rules! calls {
    (get { $($method:ident = $function:ident($handle:ty) -> $type:ty;)* } list { $($lister:ident = $lists:ident($of:ty) -> $item:ty;)* }) => {
        impl Calls {
            $(pub(super) fn $method(&self, handle: $handle) -> Answer<$type> {
                get(stringify!($function), self.library.$function, handle, <$type>::new())
            })*
            $(pub(super) fn $lister(&self, of: $of) -> Answer<Vec<$item>> {
                list_of(stringify!($lists), self.library.$lists, of, <$item>::NULL)
            })*
        }
    };
}

calls! {
    get {
    core_properties = zeDeviceGetProperties(ze_device_handle_t) -> ze_device_properties_t;
    card_properties = zesDeviceGetProperties(zes_device_handle_t) -> zes_device_properties_t;
    pci_properties = zesDevicePciGetProperties(zes_device_handle_t) -> zes_pci_properties_t;
    power_properties = zesPowerGetProperties(zes_pwr_handle_t) -> zes_power_properties_t;
    energy = zesPowerGetEnergyCounter(zes_pwr_handle_t) -> zes_power_energy_counter_t;
    memory_properties = zesMemoryGetProperties(zes_mem_handle_t) -> zes_mem_properties_t;
    memory_state = zesMemoryGetState(zes_mem_handle_t) -> zes_mem_state_t;
    bandwidth = zesMemoryGetBandwidth(zes_mem_handle_t) -> zes_mem_bandwidth_t;
    engine_properties = zesEngineGetProperties(zes_engine_handle_t) -> zes_engine_properties_t;
    activity = zesEngineGetActivity(zes_engine_handle_t) -> zes_engine_stats_t;
    frequency_properties = zesFrequencyGetProperties(zes_freq_handle_t) -> zes_freq_properties_t;
    frequency = zesFrequencyGetState(zes_freq_handle_t) -> zes_freq_state_t;
    group_properties = zetMetricGroupGetProperties(zet_metric_group_handle_t) -> zet_metric_group_properties_t;
    metric_properties = zetMetricGetProperties(zet_metric_handle_t) -> zet_metric_properties_t;
    }
    list {
    core_devices = zeDeviceGet(ze_driver_handle_t) -> ze_device_handle_t;
    sub_devices = zeDeviceGetSubDevices(ze_device_handle_t) -> ze_device_handle_t;
    sysman_devices = zesDeviceGet(zes_driver_handle_t) -> zes_device_handle_t;
    power_domains = zesDeviceEnumPowerDomains(zes_device_handle_t) -> zes_pwr_handle_t;
    memory_modules = zesDeviceEnumMemoryModules(zes_device_handle_t) -> zes_mem_handle_t;
    engine_groups = zesDeviceEnumEngineGroups(zes_device_handle_t) -> zes_engine_handle_t;
    frequency_domains = zesDeviceEnumFrequencyDomains(zes_device_handle_t) -> zes_freq_handle_t;
    metric_groups = zetMetricGroupGet(ze_device_handle_t) -> zet_metric_group_handle_t;
    metrics = zetMetricGet(zet_metric_group_handle_t) -> zet_metric_handle_t;
    }
}

impl Calls {
    /// Loads the library of that path or name. The error is the system's loader's.
    pub(super) fn load(library: &str) -> Result<Self, String> {
        // SAFETY: the site names a Level Zero loader, or it is the one that the system finds by its well-known name; no
        // call is made but through this value.
        let library = unsafe { LevelZero::open(library) }.map_err(|error| pillion_core::report(&error))?;
        Ok(Self { library })
    }

    /// Unloads the library: a driver closes its files then, or does not.
    pub(super) fn unload(self) {
        // What cannot be unloaded stays, and whoever asked for it looks at what is still open.
        if let Err(error) = self.library.close() {
            tracing::warn!(error = %error, "the Level Zero library cannot be unloaded");
        }
    }

    /// Whether it knows `zesInit` (specification 1.5).
    pub(super) fn has_sysman_init(&self) -> bool {
        self.library.zesInit.is_some()
    }

    pub(super) fn init_sysman(&self) -> Answer<()> {
        let function = self.library.zesInit.ok_or(missing("zesInit"))?;
        // SAFETY: a function of this loaded library; it takes no pointer.
        check("zesInit", unsafe { function(0) })
    }

    pub(super) fn init_core(&self) -> Answer<()> {
        let function = self.library.zeInit.ok_or(missing("zeInit"))?;
        // SAFETY: as above.
        check("zeInit", unsafe { function(0) })
    }

    pub(super) fn core_drivers(&self) -> Answer<Vec<ze_driver_handle_t>> {
        let function = self.library.zeDriverGet.ok_or(missing("zeDriverGet"))?;
        // SAFETY: as in `list_of`.
        let ask = |count, all| unsafe { function(count, all) };
        list("zeDriverGet", ze_driver_handle_t::NULL, 0, ask)
    }

    pub(super) fn sysman_drivers(&self) -> Answer<Vec<zes_driver_handle_t>> {
        let function = self.library.zesDriverGet.ok_or(missing("zesDriverGet"))?;
        // SAFETY: as in `list_of`.
        let ask = |count, all| unsafe { function(count, all) };
        list("zesDriverGet", zes_driver_handle_t::NULL, 0, ask)
    }

    /// The processes on a card. One more than fits, twice, is asked for again at the next sample.
    pub(super) fn processes(&self, card: zes_device_handle_t) -> Answer<Vec<zes_process_state_t>> {
        let call = "zesDeviceProcessesGetState";
        let function = self.library.zesDeviceProcessesGetState.ok_or(missing(call))?;
        // SAFETY: as in `list_of`.
        let ask = |count, all| unsafe { function(card, count, all) };
        list(call, zes_process_state_t::new(), PROCESSES_HEADROOM, ask)
    }

    pub(super) fn create_context(&self, driver: ze_driver_handle_t) -> Answer<ze_context_handle_t> {
        let function = self.library.zeContextCreate.ok_or(missing("zeContextCreate"))?;
        let (description, mut context) = (ze_context_desc_t::new(), ze_context_handle_t::NULL);
        // SAFETY: both point to live values of the types that it expects.
        let result = unsafe { function(driver, &raw const description, &raw mut context) };
        check("zeContextCreate", result).map(|()| context)
    }

    pub(super) fn destroy_context(&self, context: ze_context_handle_t) -> Answer<()> {
        let function = self.library.zeContextDestroy.ok_or(missing("zeContextDestroy"))?;
        // SAFETY: made by `create_context`, and destroyed once.
        check("zeContextDestroy", unsafe { function(context) })
    }

    /// Turns the counters of one group on, or all off.
    pub(super) fn activate(
        &self,
        context: ze_context_handle_t,
        device: ze_device_handle_t,
        group: Option<zet_metric_group_handle_t>,
    ) -> Answer<()> {
        let call = "zetContextActivateMetricGroups";
        let function = self.library.zetContextActivateMetricGroups.ok_or(missing(call))?;
        let mut groups: Vec<zet_metric_group_handle_t> = group.into_iter().collect();
        let (count, first) = match groups.as_mut_slice() {
            [] => (0, std::ptr::null_mut()),
            all => (1, all.as_mut_ptr()),
        };
        // SAFETY: an array of one live handle, or none at all.
        check(call, unsafe { function(context, device, count, first) })
    }

    /// Opens a stream of reports, one every `period_nanoseconds`.
    pub(super) fn open_stream(
        &self,
        context: ze_context_handle_t,
        device: ze_device_handle_t,
        group: zet_metric_group_handle_t,
        period_nanoseconds: u32,
    ) -> Answer<zet_metric_streamer_handle_t> {
        let call = "zetMetricStreamerOpen";
        let function = self.library.zetMetricStreamerOpen.ok_or(missing(call))?;
        let mut description = zet_metric_streamer_desc_t::new();
        description.notifyEveryNReports = 1;
        description.samplingPeriod = period_nanoseconds;
        let mut stream = zet_metric_streamer_handle_t::NULL;
        let no_event = ze_event_handle_t::NULL;
        // SAFETY: both point to live values of the types that it expects; the event is optional.
        let result =
            unsafe { function(context, device, group, &raw mut description, no_event, &raw mut stream) };
        check(call, result).map(|()| stream)
    }

    pub(super) fn close_stream(&self, stream: zet_metric_streamer_handle_t) -> Answer<()> {
        let function = self.library.zetMetricStreamerClose.ok_or(missing("zetMetricStreamerClose"))?;
        // SAFETY: opened by `open_stream`, and closed once.
        check("zetMetricStreamerClose", unsafe { function(stream) })
    }

    /// The reports that came since the last read, in the driver's own format. Some may have been dropped before.
    pub(super) fn read_stream(&self, stream: zet_metric_streamer_handle_t) -> Answer<Vec<u8>> {
        let call = "zetMetricStreamerReadData";
        let function = self.library.zetMetricStreamerReadData.ok_or(missing(call))?;
        let read = |size: &mut usize, data: *mut u8| {
            // SAFETY: `data` has room for `size` bytes, or is none and `size` 0.
            let result = unsafe { function(stream, u32::MAX, size, data) };
            let is_well = matches!(result, ZE_RESULT_NOT_READY | ZE_RESULT_WARNING_DROPPED_DATA);
            if is_well { Ok(()) } else { check(call, result) }
        };
        let mut size = 0;
        read(&mut size, std::ptr::null_mut())?;
        if size == 0 {
            return Ok(Vec::new());
        }
        let mut raw = vec![0; size.min(STREAM_BYTES_MAX)];
        size = raw.len();
        read(&mut size, raw.as_mut_ptr())?;
        raw.truncate(size);
        Ok(raw)
    }

    /// The values of raw reports: those of one report after those of the other, each in the order of the metrics.
    pub(super) fn values(&self, group: zet_metric_group_handle_t, raw: &[u8]) -> Answer<Vec<f64>> {
        let call = "zetMetricGroupCalculateMetricValues";
        let function = self.library.zetMetricGroupCalculateMetricValues.ok_or(missing(call))?;
        let kind = ZET_METRIC_GROUP_CALCULATION_TYPE_METRIC_VALUES;
        let ask =
            // SAFETY: `raw` is a live slice; for the rest as in `list_of`.
            |count, all| unsafe { function(group, kind, raw.len(), raw.as_ptr(), count, all) };
        Ok(list(call, zet_typed_value_t::new(), 0, ask)?.iter().map(number).collect())
    }
}

/// A typed value as a number; what is of no known type is not one.
fn number(typed: &zet_typed_value_t) -> f64 {
    // SAFETY: the type beside it says which of them was written; all of them are plain numbers.
    unsafe {
        match typed.type_ {
            ZET_VALUE_TYPE_UINT32 => f64::from(typed.value.ui32),
            #[expect(clippy::cast_precision_loss, reason = "counts of one report are far below 2^53")]
            ZET_VALUE_TYPE_UINT64 => typed.value.ui64 as f64,
            ZET_VALUE_TYPE_FLOAT32 => f64::from(typed.value.fp32),
            ZET_VALUE_TYPE_FLOAT64 => typed.value.fp64,
            ZET_VALUE_TYPE_BOOL8 => f64::from(typed.value.b8),
            _ => f64::NAN,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typed_value_is_read_by_its_type() {
        let typed = |type_, value| number(&zet_typed_value_t { type_, value });
        for (type_, value, expected) in [
            (ZET_VALUE_TYPE_UINT32, zet_value_t { ui32: 7 }, 7.0),
            (ZET_VALUE_TYPE_UINT64, zet_value_t { ui64: 1 << 40 }, 1_099_511_627_776.0),
            (ZET_VALUE_TYPE_FLOAT32, zet_value_t { fp32: 12.5 }, 12.5),
            (ZET_VALUE_TYPE_FLOAT64, zet_value_t { fp64: -0.25 }, -0.25),
            (ZET_VALUE_TYPE_BOOL8, zet_value_t { b8: 1 }, 1.0),
        ] {
            assert!((typed(type_, value) - expected).abs() < f64::EPSILON, "type {type_}");
        }
        assert!(typed(99, zet_value_t { ui64: 1 }).is_nan());
    }

    #[test]
    fn a_function_that_the_library_lacks_is_unsupported() {
        let lost = get::<u32, u32>("zesX", None, 0, 0).unwrap_err();
        assert_eq!(lost, Failure { call: "zesX", result: ZE_RESULT_ERROR_UNSUPPORTED_FEATURE });
    }

    #[test]
    fn a_list_that_shrinks_between_the_calls_is_as_long_as_the_second_says() {
        let ask = |count: *mut u32, all: *mut u32| {
            // SAFETY: `list` passes live pointers; the array has room for what it counted.
            unsafe {
                if all.is_null() {
                    *count = 3;
                } else {
                    assert_eq!(*count, 5);
                    *count = 2;
                    all.write(8);
                    all.add(1).write(9);
                }
            }
            ZE_RESULT_SUCCESS
        };
        assert_eq!(list("x", 0, 2, ask).unwrap(), [8, 9]);
    }
}
