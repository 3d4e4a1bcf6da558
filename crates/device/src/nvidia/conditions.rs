//! Notices which metrics of a device stop coming or may not be read, and which come again. Pure.

use pillion_core::device::NoticeKind;
use pillion_core::metric::Metric;
use std::collections::{BTreeMap, BTreeSet};

/// What one device has given so far.
#[derive(Debug, Default)]
pub(super) struct Watch {
    given: BTreeSet<Metric>,
    lost: BTreeSet<Metric>,
}

impl Watch {
    /// Takes in what a reading knows. `excused`: nobody expects these this time. `refused`: these we may not read, so that
    /// they count as lost though they never came.
    pub(super) fn changes(
        &mut self,
        known: &BTreeSet<Metric>,
        excused: &[Metric],
        refused: &BTreeMap<Metric, String>,
    ) -> Vec<NoticeKind> {
        let back: Vec<Metric> = self.lost.intersection(known).copied().collect();
        let expected: BTreeSet<Metric> = self.given.iter().chain(refused.keys()).copied().collect();
        let lost: Vec<Metric> = expected
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
        assert_eq!(watch.changes(&power, &[], &BTreeMap::new()), [], "what never came is not lost");
        assert_eq!(watch.changes(&both, &[], &BTreeMap::new()), [], "what comes first is not back");
        assert_eq!(
            watch.changes(&power, &[], &BTreeMap::new()),
            [NoticeKind::MetricLost(Metric::EnergyJoules)]
        );
        assert_eq!(watch.changes(&power, &[], &BTreeMap::new()), []);
        assert_eq!(
            watch.changes(&both, &[], &BTreeMap::new()),
            [NoticeKind::MetricBack(Metric::EnergyJoules)]
        );
        assert_eq!(watch.changes(&both, &[], &BTreeMap::new()), []);
        assert_eq!(
            watch.changes(&power, &[], &BTreeMap::new()),
            [NoticeKind::MetricLost(Metric::EnergyJoules)]
        );
    }

    #[test]
    fn what_is_excused_is_neither_lost_nor_forgotten() {
        let mut watch = Watch::default();
        let active = BTreeSet::from([Metric::SmActiveFraction]);
        watch.changes(&active, &[], &BTreeMap::new());
        assert_eq!(watch.changes(&BTreeSet::new(), &[Metric::SmActiveFraction], &BTreeMap::new()), []);
        assert_eq!(watch.changes(&active, &[], &BTreeMap::new()), [], "it was never lost");
        assert_eq!(
            watch.changes(&BTreeSet::new(), &[], &BTreeMap::new()),
            [NoticeKind::MetricLost(Metric::SmActiveFraction)]
        );
        assert_eq!(
            watch.changes(&BTreeSet::new(), &[Metric::SmActiveFraction], &BTreeMap::new()),
            [],
            "lost it stays"
        );
        assert_eq!(
            watch.changes(&active, &[], &BTreeMap::new()),
            [NoticeKind::MetricBack(Metric::SmActiveFraction)]
        );
    }

    #[test]
    fn what_we_may_not_read_is_lost_from_the_start_and_told_once() {
        let mut watch = Watch::default();
        let refused = BTreeMap::from([(Metric::EnergyJoules, "no permission".to_owned())]);
        let (power, energy) = (BTreeSet::from([Metric::PowerWatts]), Metric::EnergyJoules);
        assert_eq!(watch.changes(&power, &[], &refused), [NoticeKind::MetricLost(energy)]);
        assert_eq!(watch.changes(&power, &[], &refused), []);
        assert_eq!(
            watch.changes(&BTreeSet::from([Metric::PowerWatts, energy]), &[], &BTreeMap::new()),
            [NoticeKind::MetricBack(energy)]
        );
        let from_elsewhere = BTreeSet::from([Metric::PowerWatts, energy]);
        assert_eq!(watch.changes(&from_elsewhere, &[], &refused), [], "another call gives it");
    }
}
