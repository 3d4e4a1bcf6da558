//! Notices which metrics of a device stop coming, and which come again. Pure.

use pillion_core::device::{Metric, NoticeKind};
use std::collections::BTreeSet;

/// What one device has given so far.
#[derive(Debug, Default)]
pub(super) struct Watch {
    given: BTreeSet<Metric>,
    lost: BTreeSet<Metric>,
}

impl Watch {
    /// Takes in what a reading knows. `excused`: nobody expects these this time.
    pub(super) fn look(&mut self, known: &BTreeSet<Metric>, excused: &[Metric]) -> Vec<NoticeKind> {
        let back: Vec<Metric> = self.lost.intersection(known).copied().collect();
        let lost: Vec<Metric> = self
            .given
            .difference(known)
            .filter(|metric| !self.lost.contains(metric) && !excused.contains(metric))
            .copied()
            .collect();
        self.given.extend(known);
        self.lost.retain(|metric| !known.contains(metric));
        self.lost.extend(&lost);
        back.into_iter()
            .map(NoticeKind::MetricBack)
            .chain(lost.into_iter().map(NoticeKind::MetricLost))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_and_a_return_are_each_told_once() {
        let mut watch = Watch::default();
        let both = BTreeSet::from([Metric::PowerWatts, Metric::EnergyJoules]);
        let power = BTreeSet::from([Metric::PowerWatts]);
        assert_eq!(watch.look(&power, &[]), [], "what never came is not lost");
        assert_eq!(watch.look(&both, &[]), [], "what comes first is not back");
        assert_eq!(watch.look(&power, &[]), [NoticeKind::MetricLost(Metric::EnergyJoules)]);
        assert_eq!(watch.look(&power, &[]), []);
        assert_eq!(watch.look(&both, &[]), [NoticeKind::MetricBack(Metric::EnergyJoules)]);
        assert_eq!(watch.look(&both, &[]), []);
        assert_eq!(watch.look(&power, &[]), [NoticeKind::MetricLost(Metric::EnergyJoules)]);
    }

    #[test]
    fn what_is_excused_is_neither_lost_nor_forgotten() {
        let mut watch = Watch::default();
        let active = BTreeSet::from([Metric::SmActiveFraction]);
        watch.look(&active, &[]);
        assert_eq!(watch.look(&BTreeSet::new(), &[Metric::SmActiveFraction]), []);
        assert_eq!(watch.look(&active, &[]), [], "it was never lost");
        assert_eq!(watch.look(&BTreeSet::new(), &[]), [NoticeKind::MetricLost(Metric::SmActiveFraction)]);
        assert_eq!(watch.look(&BTreeSet::new(), &[Metric::SmActiveFraction]), [], "lost it stays");
        assert_eq!(watch.look(&active, &[]), [NoticeKind::MetricBack(Metric::SmActiveFraction)]);
    }
}
