//! Remembers which queries of a tile answer, and tells when one stops or comes back. Pure.

use super::calls::{Answer, Failure};
use super::convert::{self, Sample};
use pillion_core::device::{DeviceNotice, NoticeKind};
use pillion_core::metric::Metric;
use std::collections::{BTreeMap, BTreeSet};

/// What a query gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Query {
    Energy,
    Memory,
    Bandwidth,
    Activity,
    Frequency,
    Stream,
}

impl Query {
    fn metrics(self) -> &'static [Metric] {
        match self {
            Self::Energy => &[Metric::EnergyJoules, Metric::PowerWatts],
            Self::Memory => &[Metric::MemoryBytesUsed],
            Self::Bandwidth => &[Metric::MemoryBandwidthFraction],
            Self::Activity => &[Metric::GpuBusyFraction],
            Self::Frequency => &[Metric::SmClockHertz, Metric::Throttles],
            Self::Stream => &[Metric::SmActiveFraction, Metric::SmOccupancyFraction, Metric::StallFraction],
        }
    }
}

/// Which queries of one tile gave something, and whether they still do.
#[derive(Debug, Default)]
pub(super) struct Watch {
    gives: BTreeMap<Query, bool>,
    forbidden: BTreeSet<Query>,
}

impl Watch {
    /// What changed since the sample before.
    pub(super) fn changes(&mut self, index: u32, sample: &Sample) -> Vec<DeviceNotice> {
        let Sample { energy, memory, bandwidth, activity, frequency } = sample;
        let mut notices = Vec::new();
        for (query, failure) in [
            (Query::Energy, energy.as_ref().err()),
            (Query::Memory, memory.as_ref().err()),
            (Query::Bandwidth, bandwidth.as_ref().err()),
            (Query::Activity, activity.as_ref().err()),
            (Query::Frequency, frequency.as_ref().err()),
        ] {
            notices.extend(self.observe(index, query, failure.map_or(Ok(()), |failure| Err(*failure))));
        }
        notices
    }

    /// One query answered, or did not. What never gave anything is not lost; one that takes more rights is warned of once.
    pub(super) fn observe(&mut self, index: u32, query: Query, answer: Answer<()>) -> Vec<DeviceNotice> {
        match answer {
            Ok(()) => match self.gives.insert(query, true) {
                Some(false) => tell(index, query, NoticeKind::MetricBack, "the driver answers again"),
                _ => Vec::new(),
            },
            Err(failure) => {
                if convert::is_forbidden(failure) && self.forbidden.insert(query) {
                    warn(index, failure);
                }
                match self.gives.get_mut(&query) {
                    Some(gives) if *gives => {
                        *gives = false;
                        tell(index, query, NoticeKind::MetricLost, &convert::words(failure))
                    }
                    _ => Vec::new(),
                }
            }
        }
    }
}

fn warn(index: u32, failure: Failure) {
    tracing::warn!(device = index, reason = convert::words(failure), "metrics are missing");
}

fn tell(index: u32, query: Query, kind: impl Fn(Metric) -> NoticeKind, detail: &str) -> Vec<DeviceNotice> {
    query
        .metrics()
        .iter()
        .map(|metric| DeviceNotice { index, kind: kind(*metric), detail: detail.to_owned() })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use level_zero_sys::ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;

    #[test]
    fn a_query_that_stops_is_told_once_and_once_when_it_comes_back() {
        let mut watch = Watch::default();
        let failure = Failure { call: "zesMemoryGetState", result: ZE_RESULT_ERROR_UNSUPPORTED_FEATURE };
        assert_eq!(watch.observe(2, Query::Memory, Err(failure)), [], "it never was there");
        assert_eq!(watch.observe(2, Query::Memory, Ok(())), []);
        let lost = watch.observe(2, Query::Memory, Err(failure));
        let detail = "zesMemoryGetState: not supported".to_owned();
        assert_eq!(
            lost,
            [DeviceNotice { index: 2, kind: NoticeKind::MetricLost(Metric::MemoryBytesUsed), detail }]
        );
        assert_eq!(watch.observe(2, Query::Memory, Err(failure)), [], "told already");
        let back = watch.observe(2, Query::Memory, Ok(()));
        assert_eq!(back.len(), 1);
        assert_eq!(back[0].kind, NoticeKind::MetricBack(Metric::MemoryBytesUsed));
        assert_eq!(watch.observe(2, Query::Memory, Ok(())), []);
    }

    #[test]
    fn what_rides_on_one_counter_is_lost_together() {
        let mut watch = Watch::default();
        let failure = Failure { call: "zesPowerGetEnergyCounter", result: 1 };
        watch.observe(0, Query::Energy, Ok(()));
        let kinds: Vec<NoticeKind> =
            watch.observe(0, Query::Energy, Err(failure)).into_iter().map(|notice| notice.kind).collect();
        let lost = [Metric::EnergyJoules, Metric::PowerWatts].map(NoticeKind::MetricLost);
        assert_eq!(kinds, lost);
    }
}
