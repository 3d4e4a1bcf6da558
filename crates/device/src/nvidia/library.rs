//! One opening of NVML for all threads of a backend. NVML counts who initialised it, and only the last one's shutdown lets go
//! of a driver that went away: so the threads share one, and none opens it anew while another still holds it.

use super::open::open;
use super::trouble::DRIVER;
use crate::DeviceError;
use nvml_wrapper::Nvml;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The library, opened or not.
#[derive(Debug)]
pub(super) struct Library {
    path: Option<PathBuf>,
    opened: Mutex<Opened>,
}

#[derive(Debug, Default)]
struct Opened {
    nvml: Weak<Nvml>,
    /// Whether the driver went away under it.
    is_closed: bool,
}

impl Library {
    /// The driver's own, or the one that the configuration names. Nothing is loaded yet.
    pub(super) fn new(path: Option<PathBuf>) -> Arc<Self> {
        Arc::new(Self { path, opened: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, Opened> {
        // Each change is one assignment.
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The opening that others use, or a new one. To be given back by [`Library::release`].
    ///
    /// # Errors
    /// As [`open`]; [`DeviceError::Unreachable`] while others have not let go of an opening whose driver went away.
    pub(super) fn open(&self) -> Result<Arc<Nvml>, DeviceError> {
        let mut opened = self.lock();
        match opened.nvml.upgrade() {
            Some(nvml) if !opened.is_closed => Ok(nvml),
            Some(_) => {
                let source = io::Error::other("it went away, and not every thread has let go of it");
                Err(DeviceError::Unreachable { path: PathBuf::from(DRIVER), source })
            }
            None => {
                let nvml = Arc::new(open(self.path.as_deref())?);
                *opened = Opened { nvml: Arc::downgrade(&nvml), is_closed: false };
                Ok(nvml)
            }
        }
    }

    /// The driver went away under this opening: nobody begins to use it any more.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
    }

    /// Whether it is to be released.
    pub(super) fn is_closed(&self) -> bool {
        self.lock().is_closed
    }

    /// Gives an opening back. The last one shuts it down, before anybody can open it anew.
    pub(super) fn release(&self, nvml: Arc<Nvml>) {
        let _opened = self.lock();
        drop(nvml);
    }
}
