//! The exporter itself: one thread collects by its own clock, another answers with what was collected last.

use crate::look::Look;
use crate::{Kind, dcgm, http, xpum};
use pillion_device::simulated::{Counters, Simulated};
use pillion_device::{Backend as _, DeviceError};
use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// What the exporter is to do.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Whose page.
    pub kind: Kind,
    /// The driver process of the simulated devices.
    pub devices: PathBuf,
    /// From one collection to the next: dcgm-exporter has 30 s unless a site says otherwise, XPU Manager 15 s.
    pub period: Duration,
    /// While there is such a file another profiler has the counters of devices that lend them to one only.
    pub profiling_lock: Option<PathBuf>,
}

impl Settings {
    fn is_locked(&self) -> bool {
        self.profiling_lock.as_ref().is_some_and(|path| path.exists())
    }

    /// From Hopper on DCGM reads performance counters of NVML, which nobody has for himself.
    fn lends_counters(model: &str) -> bool {
        !matches!(model, "h100" | "h200")
    }
}

struct Collector {
    settings: Settings,
    devices: Simulated,
    before: BTreeMap<u32, Counters>,
    was_locked: bool,
}

impl Collector {
    fn new(settings: Settings) -> Self {
        let devices = Simulated::new(&settings.devices);
        Self { settings, devices, before: BTreeMap::new(), was_locked: false }
    }

    fn collect(&mut self) -> Result<String, DeviceError> {
        let is_locked = self.settings.is_locked();
        // Counters that were another's for a part of the time tell nothing of the whole.
        let was_locked = std::mem::replace(&mut self.was_locked, is_locked);
        let is_ours = !is_locked && !was_locked;
        let mut looks = Vec::new();
        for device in self.devices.devices()? {
            // A device that is lost has no values.
            let Ok(now) = self.devices.counters(device.index) else { continue };
            looks.push(Look {
                index: device.index,
                uuid: device.uuid.as_str().to_owned(),
                is_profiled: is_ours || !Settings::lends_counters(&device.model),
                model: device.model,
                memory_bytes: device.memory_bytes,
                before: self.before.insert(device.index, now),
                now,
            });
        }
        Ok(match self.settings.kind {
            Kind::Dcgm33 => dcgm::old_page(&looks),
            Kind::Dcgm49 => dcgm::new_page(&looks),
            Kind::Xpum12 => xpum::v1_page(&looks),
            Kind::Xpum20 => xpum::v2_page(&looks),
        })
    }
}

/// An exporter that listens, for as long as its process runs.
#[derive(Debug)]
pub struct Endpoint {
    address: SocketAddr,
}

impl Endpoint {
    /// Collects once, and goes on in threads of its own.
    ///
    /// # Errors
    /// A sentence: the address cannot be had, or there are no devices.
    pub fn start(listen: SocketAddr, settings: Settings) -> Result<Self, String> {
        let period = settings.period;
        let mut collector = Collector::new(settings);
        let first = collector.collect().map_err(|error| error.to_string())?;
        let listener = TcpListener::bind(listen).map_err(|error| format!("{listen}: {error}"))?;
        let address = listener.local_addr().map_err(|error| error.to_string())?;
        let page = Arc::new(Mutex::new(first));
        let shown = Arc::clone(&page);
        std::thread::spawn(move || {
            loop {
                std::thread::sleep(period);
                // The driver is gone for a moment: the page stands.
                if let Ok(text) = collector.collect() {
                    *page.lock().unwrap_or_else(PoisonError::into_inner) = text;
                }
            }
        });
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let text = shown.lock().unwrap_or_else(PoisonError::into_inner).clone();
                // Whoever asked has gone: nobody minds.
                let _ = http::answer(&stream, &text);
            }
        });
        Ok(Self { address })
    }

    /// Where it listens.
    pub fn url(&self) -> String {
        format!("http://{}/metrics", self.address)
    }
}
