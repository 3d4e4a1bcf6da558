//! One endpoint: asked no oftener than it is to be, and what it said last, for as long as that holds.

use super::history::{ExporterNotice, Histories};
use super::xpum_cards::{self, XpumCard};
use super::{dcgm, http, page, text, xpum};
use crate::DeviceError;
use pillion_core::DeviceUuid;
use pillion_core::device::Reading;
use pillion_core::metric::MetricSource;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// After a question that failed, the next waits this long: an endpoint that stalls costs the deadline each time.
const RETRY_AFTER: Duration = Duration::from_secs(10);

/// Whose names and units the endpoint speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExporterKind {
    /// NVIDIA's dcgm-exporter, all versions.
    Dcgm,
    /// Intel's XPU Manager, versions 1 and 2.
    XpuManager,
}

/// How an endpoint is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExporterSettings {
    /// What is there.
    pub kind: ExporterKind,
    /// Where: plain HTTP, on this node.
    pub url: String,
    /// How long one answer may take, from the connection to its last byte.
    pub deadline: Duration,
    /// The longest answer.
    pub body_bytes_max: u64,
    /// How often it is asked at most. In between, what it said last holds.
    pub period: Duration,
    /// How long values hold of which no newer ones come. More than one period of the exporter's own collection
    /// (dcgm-exporter: 30 s).
    pub keep_for: Duration,
}

impl ExporterSettings {
    /// A deadline of 1 s, answers of 4 MiB at most, one question a second, and values that hold for 90 s: three
    /// collections of dcgm-exporter.
    pub fn new(kind: ExporterKind, url: impl Into<String>) -> Self {
        Self {
            kind,
            url: url.into(),
            deadline: Duration::from_secs(1),
            body_bytes_max: 4 * 1024 * 1024,
            period: Duration::from_secs(1),
            keep_for: Duration::from_secs(90),
        }
    }
}

/// One endpoint and what it said.
#[derive(Debug)]
pub struct Exporter {
    settings: ExporterSettings,
    client: http::Client,
    histories: Histories,
    /// Those of the last page, where XPU Manager is asked.
    cards: Vec<XpumCard>,
    due: Option<Instant>,
}

impl Exporter {
    /// Nothing is asked until the first reading.
    pub fn new(settings: ExporterSettings) -> Self {
        let source = match settings.kind {
            ExporterKind::Dcgm => MetricSource::DcgmExporter,
            ExporterKind::XpuManager => MetricSource::XpuManager,
        };
        let client = http::Client::new(settings.deadline, settings.body_bytes_max);
        let histories = Histories::new(source, settings.keep_for);
        Self { settings, client, histories, cards: Vec::new(), due: None }
    }

    /// What the exporter says of each device. Only whole devices, and tiles under [`tile_uuid`](super::tile_uuid): MIG
    /// instances are left out. Power and clocks are as they were when the exporter last collected; ratios are means over its
    /// own period. Values are repeated until it collects again, for [`ExporterSettings::keep_for`] at most.
    ///
    /// `now` is the caller's clock, which does not go back. Takes no longer than the deadline, and asks at most once a
    /// period (after a failure once in 10 s); in between it answers from what it has.
    ///
    /// # Errors
    /// [`DeviceError::Endpoint`] if it was asked and gave no whole page of its kind. What it said before holds on, and is
    /// given by the next call.
    pub fn read_all(&mut self, now: Instant) -> Result<BTreeMap<DeviceUuid, Reading>, DeviceError> {
        if self.due.is_none_or(|due| now >= due) {
            let asked = self.ask();
            let pause =
                if asked.is_ok() { self.settings.period } else { self.settings.period.max(RETRY_AFTER) };
            self.due = now.checked_add(pause);
            let (page, cards) = asked.map_err(|reason| self.failure(reason))?;
            self.histories.take(page, now);
            self.cards = cards;
        }
        Ok(self.histories.readings(now))
    }

    /// Whether it can say which devices there are.
    pub(crate) fn tells_cards(&self) -> bool {
        self.settings.kind == ExporterKind::XpuManager
    }

    /// Which cards there are, in the driver's order: XPU Manager says that, and dcgm-exporter nothing that would do.
    ///
    /// # Errors
    /// [`DeviceError::Endpoint`] as [`Exporter::read_all`], and if no card was named.
    pub fn cards(&mut self, now: Instant) -> Result<Vec<XpumCard>, DeviceError> {
        self.read_all(now)?;
        if self.cards.is_empty() {
            return Err(self.failure("it named no card".to_owned()));
        }
        Ok(self.cards.clone())
    }

    /// Which metrics stopped coming or came back, as of the last reading, each told once. A metric that never came is not
    /// missed.
    pub fn notices(&mut self) -> Vec<ExporterNotice> {
        self.histories.notices()
    }

    fn failure(&self, reason: String) -> DeviceError {
        DeviceError::Endpoint { endpoint: self.settings.url.clone(), reason }
    }

    fn ask(&self) -> Result<(page::Page, Vec<XpumCard>), String> {
        let text = self.client.get(&self.settings.url)?;
        let samples = text::samples(&text).map_err(|error| error.to_string())?;
        let (page, cards, whose) = match self.settings.kind {
            ExporterKind::Dcgm => (dcgm::page(&samples), Vec::new(), "dcgm-exporter"),
            ExporterKind::XpuManager => (xpum::page(&samples), xpum_cards::cards(&samples), "XPU Manager"),
        };
        page.map(|page| (page, cards)).ok_or_else(|| format!("nothing in its answer is of {whose}"))
    }
}
