//! What one thread has of an opened library: handles, samples and event sets, which all end with it, and what outlives it.

use super::conditions::Watch;
use super::convert::GPM;
use super::describe;
use super::events::XidEvents;
use super::gpm::{Gpm, Rates};
use super::links;
use super::processes::processes;
use super::read::{self, Asking};
use super::search::{Search, SearchPauses};
use super::settings::NvidiaSettings;
use super::trouble::{Trouble, WHO_MAY};
use super::xid_lines::{self, PciAddress, XidLine};
use super::xids::{Xid, Xids};
use crate::kernel_log::KernelLog;
use crate::mps::ComputeMode;
use crate::{DeviceError, DeviceState};
use nvml_wrapper::enum_wrappers::device::ComputeMode as NvmlMode;
use nvml_wrapper::{Device, Nvml};
use pillion_core::DeviceUuid;
use pillion_core::device::{DeviceDescription, DeviceNotice, DeviceProcess, Mechanism, NoticeKind, Reading};
use pillion_core::link::Link;
use pillion_core::metric::{Metric, MetricSource, Unit};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::PathBuf;
use tokio::time::Instant;

/// How many notices are kept for whoever does not fetch them.
const NOTICES_MAX: usize = 1024;
/// What only GPM gives, or gives better: not yet there while it has one sample.
fn of_gpm() -> impl Iterator<Item = Metric> {
    GPM.into_iter().map(|(_, metric)| metric)
}

/// What is known of one device.
#[derive(Debug)]
struct Known {
    description: DeviceDescription,
    /// Where it is on the PCI bus, if NVML says so.
    address: Option<PciAddress>,
    watch: Watch,
    /// When its last GPM sample was taken.
    sampled_at: Option<Instant>,
    search: Search,
}

/// What a thread knows of its device across sessions.
#[derive(Debug)]
pub(super) struct Memory {
    mechanism: Mechanism,
    search_pauses: SearchPauses,
    known: BTreeMap<u32, Known>,
    notices: Vec<DeviceNotice>,
    xids: Xids,
    kernel_log: Log,
}

/// The kernel's log, a reader of its own in each thread: not opened before the thread has a device, and then once.
#[derive(Debug)]
enum Log {
    Unopened(Option<PathBuf>),
    Opened(Option<KernelLog>),
}

impl Memory {
    /// Of nothing but this device, if any.
    pub(super) fn new(settings: &NvidiaSettings, device: Option<DeviceDescription>) -> Self {
        let NvidiaSettings { mechanism, search_pauses, .. } = *settings;
        let mut memory = Self {
            mechanism,
            search_pauses,
            known: BTreeMap::new(),
            notices: Vec::new(),
            xids: Xids::default(),
            kernel_log: Log::Unopened(settings.kernel_log.clone()),
        };
        if let Some(device) = device {
            memory.know(device, None);
        }
        memory
    }

    fn know(&mut self, description: DeviceDescription, address: Option<PciAddress>) {
        // From here on: what the kernel told before was not about our time.
        self.open_kernel_log();
        let search = Search::new(self.search_pauses);
        let known = Known { description, address, watch: Watch::default(), sampled_at: None, search };
        self.known.insert(known.description.index, known);
    }

    /// What was told since the last call.
    pub(super) fn take_notices(&mut self) -> Vec<DeviceNotice> {
        self.settle_xids();
        std::mem::take(&mut self.notices)
    }

    fn open_kernel_log(&mut self) {
        if let Log::Unopened(path) = &self.kernel_log {
            self.kernel_log = Log::Opened(path.as_deref().and_then(xid_lines::open));
        }
    }

    /// Tells each Xid once, with its process where the kernel's log has it.
    fn settle_xids(&mut self) {
        let lines = match &mut self.kernel_log {
            Log::Opened(Some(log)) => Some(xid_lines::new_xids(log)),
            Log::Opened(None) | Log::Unopened(_) => None,
        };
        let index_at =
            |address| self.known.iter().find(|(_, known)| known.address == Some(address)).map(|it| *it.0);
        let logged = lines.map(|lines| {
            lines
                .into_iter()
                .filter_map(|line| {
                    let XidLine { address, code, pid, words } = line;
                    let detail = if words.is_empty() { format!("Xid {code}") } else { words };
                    Some(Xid { index: index_at(address)?, code, pid, detail })
                })
                .collect()
        });
        for Xid { index, code, pid, detail } in self.xids.settle(Instant::now(), logged) {
            self.tell(index, NoticeKind::Xid { code, pid }, detail);
        }
    }

    /// Takes back what nobody heard.
    pub(super) fn keep(&mut self, unreported: Vec<DeviceNotice>) {
        self.notices = unreported;
    }

    fn tell(&mut self, index: u32, kind: NoticeKind, detail: String) {
        if self.notices.len() < NOTICES_MAX {
            self.notices.push(DeviceNotice { index, kind, detail });
        }
    }
}

/// What one sample of a device gave.
struct Seen {
    reading: Reading,
    /// What nobody may miss this time.
    excused: Vec<Metric>,
    /// What we may not read, and why.
    refused: BTreeMap<Metric, String>,
}

/// One device as this library knows it.
#[derive(Debug)]
struct Gpu<'nvml> {
    device: Device<'nvml>,
    gpm: Gpm<'nvml>,
    xids: XidEvents<'nvml>,
}

impl<'nvml> Gpu<'nvml> {
    fn new(device: Device<'nvml>) -> Self {
        Self { xids: XidEvents::of(&device), gpm: Gpm::new(), device }
    }

    /// All values that it gives.
    fn read(&mut self, known: &mut Known) -> Result<Seen, Trouble> {
        let mut reading = Reading::default();
        let rates = self.gpm.read(&self.device, &mut known.sampled_at)?;
        for (metric, value) in if let Rates::Known(values) = &rates { values.as_slice() } else { &[] } {
            reading.metrics.set(*metric, *value);
        }
        reading.metrics.tag_untagged(MetricSource::NvmlGpm);
        let is_pending = rates == Rates::Pending;
        let has_pcie = reading.metrics.get(Metric::PcieTxBytesPerSecond).is_some()
            || reading.metrics.get(Metric::PcieRxBytesPerSecond).is_some();
        let mut asking = Asking::default();
        if let Rates::Refused(reason) = &rates {
            // What no other call gives; every device that has GPM has these.
            let alone: Vec<Metric> = of_gpm().filter(|metric| metric.unit() == Unit::Fraction).collect();
            asking.refuse(&alone, reason);
        }
        read::read(&self.device, !is_pending && !has_pcie, &mut asking, &mut reading)?;
        reading.metrics.tag_untagged(MetricSource::Nvml);
        if reading.metrics.known().next().is_none() {
            return Err(asking.why_nothing());
        }
        let excused = of_gpm().filter(|_| is_pending).collect();
        Ok(Seen { reading, excused, refused: asking.refused_metrics() })
    }
}

/// An opened library and its devices.
#[derive(Debug)]
pub(super) struct Session<'nvml, 'memory> {
    nvml: &'nvml Nvml,
    memory: &'memory mut Memory,
    gpus: BTreeMap<u32, Gpu<'nvml>>,
    is_closed: bool,
}

impl<'nvml, 'memory> Session<'nvml, 'memory> {
    /// No device is asked yet.
    pub(super) fn new(nvml: &'nvml Nvml, memory: &'memory mut Memory) -> Self {
        Self { nvml, memory, gpus: BTreeMap::new(), is_closed: false }
    }

    /// Whether the driver went away, so that the library must be opened again.
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// How many devices NVML counts.
    ///
    /// # Errors
    /// If it does not tell.
    pub(super) fn count(&mut self) -> Result<u32, DeviceError> {
        self.nvml.device_count().map_err(|error| self.error(0, error.into()))
    }

    /// Which device NVML counts by this number. Its own is the minor one, that of `/dev/nvidiaN`, by which `gres.conf` names
    /// devices and Slurm numbers them; NVML's where it does not tell.
    ///
    /// # Errors
    /// By NVML's number, which may be another device's own.
    pub(super) fn describe(&mut self, place: u32) -> Result<DeviceDescription, DeviceError> {
        let found = describe::describe(self.nvml, place, self.memory.mechanism);
        let describe::Found { description, address, is_mig_enabled } =
            found.map_err(|trouble| self.error(place, trouble))?;
        if is_mig_enabled {
            self.memory.tell(description.index, NoticeKind::Divided, description.uuid.to_string());
        }
        self.memory.know(description.clone(), address);
        Ok(description)
    }

    pub(super) fn links(&mut self) -> Result<Vec<(u32, u32, Link)>, DeviceError> {
        links::links(self.nvml).map_err(|trouble| self.error(0, trouble))
    }

    pub(super) fn read(&mut self, index: u32) -> Result<Reading, DeviceError> {
        let Seen { reading, excused, refused } = self.ask(index, Gpu::read)?;
        if let Some(known) = self.memory.known.get_mut(&index) {
            let changes = known.watch.changes(&reading.metrics.known().collect(), &excused, &refused);
            for kind in changes {
                let detail = match kind {
                    NoticeKind::MetricLost(metric) => match refused.get(&metric) {
                        Some(reason) => format!("{reason}; {WHO_MAY}"),
                        None => "NVML gives it no more".to_owned(),
                    },
                    _ => "NVML gives it again".to_owned(),
                };
                self.memory.tell(index, kind, detail);
            }
        }
        Ok(reading)
    }

    pub(super) fn processes(&mut self, index: u32) -> Result<Vec<DeviceProcess>, DeviceError> {
        self.ask(index, |gpu, _| processes(&gpu.device))
    }

    /// What it did, and who is on it.
    pub(super) fn state(&mut self, index: u32) -> Result<DeviceState, DeviceError> {
        Ok(DeviceState { reading: self.read(index)?, processes: self.processes(index)? })
    }

    /// Sets who may open a device.
    ///
    /// # Errors
    /// [`DeviceError::Refused`] if not root, [`DeviceError::Unsupported`] where the device has no such mode,
    /// [`DeviceError::Gone`].
    pub(super) fn set_compute_mode(
        &mut self,
        device: &DeviceUuid,
        mode: ComputeMode,
    ) -> Result<(), DeviceError> {
        set_compute_mode(self.nvml, device, mode).map_err(|trouble| self.error(trouble.0, trouble.1))
    }

    pub(super) fn notices(&mut self) -> Vec<DeviceNotice> {
        self.collect_xids();
        self.memory.take_notices()
    }

    /// Takes back notices that nobody heard.
    pub(super) fn keep(&mut self, unreported: Vec<DeviceNotice>) {
        self.memory.keep(unreported);
    }

    /// Asks one device. One that is gone is looked for again after a pause.
    fn ask<T>(
        &mut self,
        index: u32,
        question: impl FnOnce(&mut Gpu<'nvml>, &mut Known) -> Result<T, Trouble>,
    ) -> Result<T, DeviceError> {
        let known = self.memory.known.get_mut(&index).ok_or(DeviceError::NoSuchDevice { index })?;
        if let Some(reason) = known.search.rests(Instant::now()) {
            return Err(DeviceError::Gone { index, reason: reason.to_owned() });
        }
        let gpu = match self.gpus.entry(index) {
            Entry::Occupied(entry) => Ok(entry.into_mut()),
            Entry::Vacant(entry) => {
                let found = self.nvml.device_by_uuid(known.description.uuid.as_str());
                if let Ok(device) = &found {
                    known.address = known.address.or_else(|| describe::address_of(device));
                }
                found.map(|device| entry.insert(Gpu::new(device))).map_err(describe::without_handle)
            }
        };
        let answer = gpu.and_then(|gpu| question(gpu, known));
        if answer.is_ok() {
            known.search.answered();
        }
        answer.map_err(|trouble| self.fail(index, trouble))
    }

    fn fail(&mut self, index: u32, trouble: Trouble) -> DeviceError {
        if !trouble.is_of_one_value() {
            // The Xid that says why is in the set that goes with the handle.
            self.collect_xids();
            self.gpus.remove(&index);
        }
        if let (Trouble::Gone(reason), Some(known)) = (&trouble, self.memory.known.get_mut(&index)) {
            known.search.missed(Instant::now(), reason.clone());
        }
        self.error(index, trouble)
    }

    /// The error, and whether the library must be opened again; of the device nothing is kept.
    fn error(&mut self, index: u32, trouble: Trouble) -> DeviceError {
        self.is_closed |= matches!(trouble, Trouble::Closed(_));
        trouble.of(index)
    }

    fn collect_xids(&mut self) {
        for (index, gpu) in &self.gpus {
            for code in gpu.xids.new_codes() {
                self.memory.xids.of_nvml(*index, code);
            }
        }
    }
}

/// Sets it on the device of this UUID: the thread that sets modes knows none by its index.
///
/// # Errors
/// What NVML said, with its index of the device.
fn set_compute_mode(nvml: &Nvml, device: &DeviceUuid, mode: ComputeMode) -> Result<(), (u32, Trouble)> {
    let wanted = match mode {
        ComputeMode::Default => NvmlMode::Default,
        ComputeMode::ExclusiveProcess => NvmlMode::ExclusiveProcess,
    };
    let mut device = nvml.device_by_uuid(device.as_str()).map_err(|error| (0, Trouble::from(error)))?;
    let index = device.index().map_err(|error| (0, Trouble::from(error)))?;
    device.set_compute_mode(wanted).map_err(|error| (index, Trouble::from(error)))
}
