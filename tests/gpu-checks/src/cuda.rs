//! CUDA's driver library, as far as the client needs it: loaded at run time, one device, one kernel.
#![expect(unsafe_code, reason = "CUDA's driver library is C")]

use crate::kernels::{THREADS, Workload, operations_per_clock, ptx};
use libloading::Library;
use serde::{Deserialize, Serialize};
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;

/// `CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT` (cuda.h).
const MULTIPROCESSOR_COUNT: c_int = 16;
/// `CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE` (kHz), `.._GLOBAL_MEMORY_BUS_WIDTH` (bits).
const MEMORY_CLOCK_RATE: c_int = 36;
const MEMORY_BUS_WIDTH: c_int = 37;
/// `CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR`, `.._MINOR`.
const COMPUTE_CAPABILITY: (c_int, c_int) = (75, 76);
const LIBRARY: &str = "libcuda.so.1";
/// Launches between two waits: enough that the GPU never idles, few enough that a wait is milliseconds.
const LAUNCHES: u64 = 4;

/// A call that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CudaError {
    /// Which.
    pub call: String,
    /// What it returned (`CUresult`); -1 if it could not be called at all.
    pub code: i32,
    /// That code's name, or the reason.
    pub name: String,
}

type Call = c_int;

/// The functions, each as cuda.h declares it.
struct Calls {
    init: unsafe extern "C" fn(c_uint) -> Call,
    error_name: unsafe extern "C" fn(Call, *mut *const c_char) -> Call,
    device_get: unsafe extern "C" fn(*mut c_int, c_int) -> Call,
    device_name: unsafe extern "C" fn(*mut c_char, c_int, c_int) -> Call,
    device_attribute: unsafe extern "C" fn(*mut c_int, c_int, c_int) -> Call,
    context_retain: unsafe extern "C" fn(*mut *mut c_void, c_int) -> Call,
    context_set: unsafe extern "C" fn(*mut c_void) -> Call,
    context_release: unsafe extern "C" fn(c_int) -> Call,
    synchronize: unsafe extern "C" fn() -> Call,
    module_load: unsafe extern "C" fn(*mut *mut c_void, *const c_void) -> Call,
    module_function: unsafe extern "C" fn(*mut *mut c_void, *mut c_void, *const c_char) -> Call,
    allocate: unsafe extern "C" fn(*mut u64, usize) -> Call,
    set_bytes: unsafe extern "C" fn(u64, u8, usize) -> Call,
    launch: unsafe extern "C" fn(
        *mut c_void,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
        *mut c_void,
        *mut *mut c_void,
        *mut *mut c_void,
    ) -> Call,
}

/// The device as it shows itself to a client.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Facts {
    /// Its name.
    pub device: String,
    /// The multiprocessors that the client may use.
    pub multiprocessors: u32,
    /// FP32 operations of all these in one clock, where that is known.
    pub operations_per_clock: Option<f64>,
    /// Bytes a second that device memory moves at most, where the driver tells.
    pub memory_bytes_per_second_max: Option<f64>,
}

/// A workload on the first visible device, ready to run.
pub struct Work {
    calls: Calls,
    device: c_int,
    function: *mut c_void,
    workload: Workload,
    data: u64,
    out: u64,
    /// The functions lie in it.
    _library: Library,
}

fn missing(what: &str, error: &libloading::Error) -> CudaError {
    CudaError { call: what.to_owned(), code: -1, name: error.to_string() }
}

impl Calls {
    fn load(library: &Library) -> Result<Self, CudaError> {
        macro_rules! call {
            ($name:literal) => {
                // SAFETY: each field's type is what cuda.h declares under this name; the library outlives the functions,
                // for `Work` holds both.
                *unsafe { library.get($name.as_bytes()) }.map_err(|error| missing($name, &error))?
            };
        }
        Ok(Self {
            init: call!("cuInit"),
            error_name: call!("cuGetErrorName"),
            device_get: call!("cuDeviceGet"),
            device_name: call!("cuDeviceGetName"),
            device_attribute: call!("cuDeviceGetAttribute"),
            context_retain: call!("cuDevicePrimaryCtxRetain"),
            context_set: call!("cuCtxSetCurrent"),
            context_release: call!("cuDevicePrimaryCtxRelease_v2"),
            synchronize: call!("cuCtxSynchronize"),
            module_load: call!("cuModuleLoadData"),
            module_function: call!("cuModuleGetFunction"),
            allocate: call!("cuMemAlloc_v2"),
            set_bytes: call!("cuMemsetD8_v2"),
            launch: call!("cuLaunchKernel"),
        })
    }

    fn attribute(&self, device: c_int, attribute: c_int) -> Result<u32, CudaError> {
        let mut value = 0;
        // SAFETY: the pointer is to our own variable.
        let told = unsafe { (self.device_attribute)(&raw mut value, attribute, device) };
        self.check("cuDeviceGetAttribute", told)?;
        Ok(u32::try_from(value).unwrap_or_default())
    }

    fn check(&self, call: &str, code: Call) -> Result<(), CudaError> {
        if code == 0 {
            return Ok(());
        }
        let mut name: *const c_char = std::ptr::null();
        // SAFETY: it writes a pointer to a string that lives as long as the library, or leaves null.
        unsafe { (self.error_name)(code, &raw mut name) };
        let name = if name.is_null() {
            "without a name".to_owned()
        } else {
            // SAFETY: not null, and a C string by cuda.h.
            unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
        };
        Err(CudaError { call: call.to_owned(), code, name })
    }
}

impl Work {
    /// Loads the library, opens the first visible device and makes `workload` ready; allocates `held_bytes` more.
    ///
    /// # Errors
    /// The call that failed.
    pub fn open(workload: Workload, held_bytes: usize) -> Result<Self, CudaError> {
        // SAFETY: its constructors are NVIDIA's; every CUDA program runs them.
        let library = unsafe { Library::new(LIBRARY) }.map_err(|error| missing(LIBRARY, &error))?;
        let calls = Calls::load(&library)?;
        let (mut device, mut context) = (0, null_mut());
        // SAFETY: zero flags are the only ones there are; the pointers are to our own variables.
        calls.check("cuInit", unsafe { (calls.init)(0) })?;
        // SAFETY: as above.
        calls.check("cuDeviceGet", unsafe { (calls.device_get)(&raw mut device, 0) })?;
        // SAFETY: as above.
        let retained = unsafe { (calls.context_retain)(&raw mut context, device) };
        calls.check("cuDevicePrimaryCtxRetain", retained)?;
        // SAFETY: the context was retained above.
        calls.check("cuCtxSetCurrent", unsafe { (calls.context_set)(context) })?;
        let function = load(&calls, device, workload)?;
        let data = allocate(&calls, workload.data_bytes())?;
        let out = allocate(&calls, workload.out_bytes())?;
        if held_bytes > 0 {
            allocate(&calls, held_bytes)?;
        }
        Ok(Self { calls, device, function, workload, data, out, _library: library })
    }

    /// What the device shows this process.
    ///
    /// # Errors
    /// The call that failed.
    pub fn describe(&self) -> Result<Facts, CudaError> {
        let mut name = [0; 128];
        // SAFETY: the length is the buffer's, less the zero byte at its end.
        let named = unsafe { (self.calls.device_name)(name.as_mut_ptr(), 127, self.device) };
        self.calls.check("cuDeviceGetName", named)?;
        // SAFETY: the last byte was never written, so there is an end.
        let device = unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned();
        let multiprocessors = self.calls.attribute(self.device, MULTIPROCESSOR_COUNT)?;
        // Drivers may stop telling these.
        let of_memory = |attribute| self.calls.attribute(self.device, attribute).unwrap_or_default();
        let per_clock = operations_per_clock(compute_capability(&self.calls, self.device)?);
        Ok(Facts {
            device,
            multiprocessors,
            operations_per_clock: per_clock.map(|operations| operations * f64::from(multiprocessors)),
            memory_bytes_per_second_max: memory_bytes_per_second_max(
                of_memory(MEMORY_CLOCK_RATE),
                of_memory(MEMORY_BUS_WIDTH),
            ),
        })
    }

    /// Launches the kernel a few times and waits for the last. Returns how many times.
    ///
    /// # Errors
    /// The call that failed.
    pub fn run(&mut self) -> Result<u64, CudaError> {
        for _ in 0..LAUNCHES {
            let (mut data, mut out, mut count) = (self.data, self.out, self.workload.count());
            let mut parameters: [*mut c_void; 3] =
                [(&raw mut data).cast(), (&raw mut out).cast(), (&raw mut count).cast()];
            // SAFETY: the function takes these three parameters by these types; they are copied before the call returns.
            let launched = unsafe {
                let parameters = parameters.as_mut_ptr();
                let stream = null_mut();
                (self.calls.launch)(
                    self.function,
                    self.workload.blocks(),
                    1,
                    1,
                    THREADS,
                    1,
                    1,
                    0,
                    stream,
                    parameters,
                    null_mut(),
                )
            };
            self.calls.check("cuLaunchKernel", launched)?;
        }
        // SAFETY: the context is current on this thread, which `Work` (not `Send`) never leaves.
        self.calls.check("cuCtxSynchronize", unsafe { (self.calls.synchronize)() })?;
        Ok(LAUNCHES)
    }

    /// Gives everything back, as a program does that ends well.
    ///
    /// # Errors
    /// The call that failed.
    pub fn close(self) -> Result<(), CudaError> {
        // SAFETY: retained once by `open`, and nothing of it is used after.
        let released = unsafe { (self.calls.context_release)(self.device) };
        self.calls.check("cuDevicePrimaryCtxRelease", released)
    }
}

/// What double data rate memory of this clock (kHz) and width (bits) moves at most; none of what is not told.
fn memory_bytes_per_second_max(clock_kilohertz: u32, width_bits: u32) -> Option<f64> {
    let rate = 2.0 * 1000.0 * f64::from(clock_kilohertz) * f64::from(width_bits) / 8.0;
    (rate > 0.0).then_some(rate)
}

fn compute_capability(calls: &Calls, device: c_int) -> Result<(u32, u32), CudaError> {
    let (major, minor) = COMPUTE_CAPABILITY;
    Ok((calls.attribute(device, major)?, calls.attribute(device, minor)?))
}

fn load(calls: &Calls, device: c_int, workload: Workload) -> Result<*mut c_void, CudaError> {
    let mut refused = CudaError {
        call: "cuModuleLoadData".to_owned(),
        code: -1,
        name: "the GPU is older than compute capability 7.0".to_owned(),
    };
    for text in ptx(compute_capability(calls, device)?) {
        let (mut module, mut function) = (null_mut(), null_mut());
        let (text, name) = (c_string(&text), c_string(workload.entry()));
        // SAFETY: PTX ends with a zero byte, as cuModuleLoadData wants text.
        let loaded = unsafe { (calls.module_load)(&raw mut module, text.as_ptr().cast()) };
        if let Err(error) = calls.check("cuModuleLoadData", loaded) {
            refused = error;
            continue;
        }
        // SAFETY: the module was loaded above and is never unloaded.
        let found = unsafe { (calls.module_function)(&raw mut function, module, name.as_ptr()) };
        calls.check("cuModuleGetFunction", found)?;
        return Ok(function);
    }
    Err(refused)
}

fn allocate(calls: &Calls, bytes: usize) -> Result<u64, CudaError> {
    let mut address = 0;
    // SAFETY: the pointer is to our own variable.
    calls.check("cuMemAlloc", unsafe { (calls.allocate)(&raw mut address, bytes) })?;
    // SAFETY: so many bytes were allocated there.
    calls.check("cuMemsetD8", unsafe { (calls.set_bytes)(address, 0, bytes) })?;
    Ok(address)
}

fn c_string(text: &str) -> CString {
    CString::new(text).expect("ours, without zero bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_of_memory_follows_from_clock_and_width() {
        let peak = memory_bytes_per_second_max(2_619_000, 5120).unwrap();
        assert!((peak - 3.352e12).abs() < 1e9, "an H100's 3.35 TB/s; {peak}");
        assert_eq!(memory_bytes_per_second_max(0, 5120), None);
    }

    #[test]
    fn without_the_library_the_call_that_failed_is_named() {
        // Where there is a driver this opens a device, or says what keeps it.
        if let Err(error) = Work::open(Workload::Launch, 0).map(drop) {
            assert!(!error.call.is_empty() && !error.name.is_empty(), "{error:?}");
        }
    }
}
