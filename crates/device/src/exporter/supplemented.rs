//! A backend whose readings an exporter completes. The vendor's own library goes before the exporter in every value; where
//! Level Zero cannot be loaded, XPU Manager stands in for all of it.

use super::endpoint::Exporter;
use super::history::ExporterNotice;
use crate::intel::Reported;
use crate::{Backend, CcsControl, DeviceError, DeviceStates, MigControl, MpsControl};
use pillion_core::DeviceUuid;
use pillion_core::device::{DeviceDescription, DeviceNotice, DeviceProcess, NoticeKind, Reading};
use pillion_core::metric::Metric;
use std::collections::{BTreeMap, BTreeSet};
use tokio::time::Instant;

/// A backend and the exporter beside it. An exporter that does not answer costs values, never a reading.
pub struct Supplemented {
    backend: Box<dyn Backend>,
    exporter: Exporter,
    indexes: BTreeMap<DeviceUuid, u32>,
    /// What the library itself gave at the last sample: nobody is told that the exporter lost that.
    own: BTreeMap<u32, BTreeSet<Metric>>,
    /// Whether it was told that the exporter does not answer.
    is_missed: bool,
    /// Whether the exporter is all that there is: what it does not tell of cannot be read.
    is_alone: bool,
}

impl Supplemented {
    /// Nothing is asked yet.
    pub fn new(backend: Box<dyn Backend>, exporter: Exporter) -> Self {
        let (indexes, own) = (BTreeMap::new(), BTreeMap::new());
        Self { backend, exporter, indexes, own, is_missed: false, is_alone: false }
    }

    /// What the exporter says, by index.
    fn more(&mut self) -> BTreeMap<u32, Reading> {
        match self.exporter.read_all(Instant::now().into_std()) {
            Ok(readings) => {
                self.is_missed = false;
                readings
                    .into_iter()
                    .filter_map(|(uuid, reading)| Some((*self.indexes.get(&uuid)?, reading)))
                    .collect()
            }
            Err(error) => {
                if !std::mem::replace(&mut self.is_missed, true) {
                    tracing::warn!(error = %pillion_core::report(&error), "the exporter gives nothing");
                }
                BTreeMap::new()
            }
        }
    }

    fn complete(
        &mut self,
        index: u32,
        reading: &mut Reading,
        more: &BTreeMap<u32, Reading>,
    ) -> Result<(), DeviceError> {
        self.own.insert(index, reading.metrics.known().collect());
        match more.get(&index) {
            Some(more) => reading.fill(more),
            None if self.is_alone => {
                let reason = "XPU Manager tells nothing of it".to_owned();
                return Err(DeviceError::NotReady { index, reason });
            }
            None => {}
        }
        Ok(())
    }

    /// The devices by XPU Manager's word, for as long as we run: which way it is must not change under tenants. `error`: why
    /// Level Zero cannot be had.
    fn stand_in(&mut self, error: &DeviceError) -> Result<Vec<DeviceDescription>, DeviceError> {
        let cards = self.exporter.cards(Instant::now().into_std())?;
        let mut reported = Reported::new(&cards, &pillion_core::report(error), "/proc");
        let devices = reported.devices()?;
        tracing::warn!(error = %pillion_core::report(error), "XPU Manager is asked in place of Level Zero");
        self.backend = Box::new(reported);
        self.is_alone = true;
        Ok(devices)
    }

    /// A notice of the exporter, if the value is missed now.
    fn notice(&self, ExporterNotice { device, kind, detail }: ExporterNotice) -> Option<DeviceNotice> {
        let index = *self.indexes.get(&device)?;
        let own = self.own.get(&index);
        match &kind {
            NoticeKind::MetricLost(metric) | NoticeKind::MetricBack(metric)
                if own.is_some_and(|own| own.contains(metric)) =>
            {
                None
            }
            _ => Some(DeviceNotice { index, kind, detail }),
        }
    }
}

impl Backend for Supplemented {
    fn devices(&mut self) -> Result<Vec<DeviceDescription>, DeviceError> {
        let devices = match self.backend.devices() {
            Err(DeviceError::NoLibrary { library, reason }) if self.exporter.tells_cards() => {
                let error = DeviceError::NoLibrary { library: library.clone(), reason: reason.clone() };
                self.stand_in(&error).map_err(|other| DeviceError::NoLibrary {
                    library,
                    reason: format!("{reason}; nor is there XPU Manager: {}", pillion_core::report(&other)),
                })?
            }
            answer => answer?,
        };
        self.indexes = devices.iter().map(|device| (device.uuid.clone(), device.index)).collect();
        Ok(devices)
    }

    fn read(&mut self, index: u32) -> Result<Reading, DeviceError> {
        let mut reading = self.backend.read(index)?;
        let more = self.more();
        self.complete(index, &mut reading, &more)?;
        Ok(reading)
    }

    fn processes(&mut self, index: u32) -> Result<Vec<DeviceProcess>, DeviceError> {
        self.backend.processes(index)
    }

    fn read_all(&mut self) -> Result<DeviceStates, DeviceError> {
        let mut states = self.backend.read_all()?;
        let more = self.more();
        for (index, answer) in &mut states {
            if let Ok(state) = answer
                && let Err(error) = self.complete(*index, &mut state.reading, &more)
            {
                *answer = Err(error);
            }
        }
        Ok(states)
    }

    fn notices(&mut self) -> Vec<DeviceNotice> {
        let mut notices = self.backend.notices();
        let reported = self.exporter.notices();
        notices.extend(reported.into_iter().filter_map(|notice| self.notice(notice)));
        notices
    }

    fn mps(&mut self) -> Option<&mut dyn MpsControl> {
        self.backend.mps()
    }

    fn ccs(&mut self) -> Option<&mut dyn CcsControl> {
        self.backend.ccs()
    }

    fn mig(&mut self) -> Option<&mut dyn MigControl> {
        self.backend.mig()
    }
}
