//! What was measured of copies of one workload on one device: how fast two, three, .. of them are together. By it one more comes
//! (docs/decisions/0037-replicas.md); `planner::copies` has the rule.

use crate::history::Observation;
use pillion_core::WorkloadKey;
use pillion_core::device::{COPIES_MAX, Mechanism};
use pillion_core::share::Sharing;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// So many speeds, the newest, say how fast so many copies are.
const SPEEDS_KEPT: usize = 8;
/// One speed alone says little: who wins of two was the other one's loss.
const SPEEDS_MIN: usize = 2;
/// No speed is measured more exactly than this: one standard deviation.
const NOISE: f64 = 0.03;

/// Copies of what, where and how: all under one cap.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CopyKind {
    workload: WorkloadKey,
    device_model: String,
    mechanism: Mechanism,
    ccs_mode: Option<u8>,
    /// The bits of their cap.
    cap: Option<u64>,
}

impl CopyKind {
    /// Copies of this workload, each of which shares a device of this model so.
    pub fn new(workload: &WorkloadKey, device_model: &str, sharing: Sharing) -> Self {
        Self {
            workload: workload.clone(),
            device_model: device_model.to_owned(),
            mechanism: sharing.mechanism(),
            ccs_mode: sharing.ccs_mode(),
            cap: sharing.cap().map(|cap| cap.value().to_bits()),
        }
    }

    /// What these were copies of, and how many; `None` where they were not, or shared in different ways.
    pub fn of(seen: &Observation) -> Option<(Self, u32)> {
        let first = seen.tenants.first()?;
        let kind = Self::new(&first.workload, &seen.device_model, first.sharing);
        let are_alike =
            seen.tenants.iter().all(|own| Self::new(&own.workload, &seen.device_model, own.sharing) == kind);
        let count = u32::try_from(seen.tenants.len()).ok()?;
        (are_alike && (2..=COPIES_MAX).contains(&count) && !kind.mechanism.has_instances())
            .then_some((kind, count))
    }
}

/// How fast one of them was.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CopySpeed {
    /// Speed beside the others over speed alone.
    pub speed_fraction: f64,
    /// It counted its own progress: its user's word.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_self_reported: bool,
}

/// What was measured of so many copies together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CopyRecord {
    /// What they ran.
    pub workload: WorkloadKey,
    /// On which model of device.
    pub device_model: String,
    /// How each shared it.
    #[serde(flatten)]
    pub sharing: Sharing,
    /// How many they were.
    pub count: u32,
    /// Whether the newest had room together.
    pub fits: bool,
    /// How fast they were, the newest last.
    pub speeds: Vec<CopySpeed>,
}

/// How fast so many copies are together, as far as that was measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum CopiesSeen {
    /// Too little was.
    Never,
    /// They had no room together.
    Unfit,
    /// So fast.
    At {
        /// In the mean.
        speed_fraction: f64,
        /// The standard error of that mean.
        error: f64,
    },
}

/// All that was measured of copies.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(from = "Vec<CopyRecord>", into = "Vec<CopyRecord>")]
pub struct CopyBook(BTreeMap<(CopyKind, u32), CopyRecord>);

impl CopyBook {
    /// What these say, the oldest first; those of others than copies say nothing.
    pub fn of<'o>(observations: impl IntoIterator<Item = &'o Observation>) -> Self {
        let mut book = Self::default();
        for seen in observations {
            book.learn(seen);
        }
        book
    }

    fn learn(&mut self, seen: &Observation) {
        let Some((kind, count)) = CopyKind::of(seen) else { return };
        let record = self.0.entry((kind, count)).or_insert_with(|| CopyRecord {
            workload: seen.tenants[0].workload.clone(),
            device_model: seen.device_model.clone(),
            sharing: seen.sharing().limited_to(None),
            count,
            fits: true,
            speeds: Vec::new(),
        });
        record.fits = seen.fits;
        if !seen.fits {
            return;
        }
        let known = seen.tenants.iter().filter_map(|own| {
            let is_self_reported = own.is_self_reported;
            Some(CopySpeed { speed_fraction: own.speed_fraction?, is_self_reported })
        });
        record.speeds.extend(known);
        let surplus = record.speeds.len().saturating_sub(SPEEDS_KEPT);
        record.speeds.drain(..surplus);
    }

    /// How fast so many of them are. `believes_counters`: whether their own word for it counts.
    pub fn seen(&self, kind: &CopyKind, count: u32, believes_counters: bool) -> CopiesSeen {
        let Some(record) = self.0.get(&(kind.clone(), count)) else { return CopiesSeen::Never };
        if !record.fits {
            return CopiesSeen::Unfit;
        }
        let told = record.speeds.iter().filter(|speed| believes_counters || !speed.is_self_reported);
        // Faster than alone is noise.
        let speeds: Vec<f64> = told.map(|speed| speed.speed_fraction.min(1.0)).collect();
        if speeds.len() < SPEEDS_MIN {
            return CopiesSeen::Never;
        }
        #[expect(clippy::cast_precision_loss, reason = "a few speeds")]
        let count = speeds.len() as f64;
        let mean = speeds.iter().sum::<f64>() / count;
        let variance = speeds.iter().map(|speed| (speed - mean).powi(2)).sum::<f64>() / (count - 1.0);
        CopiesSeen::At { speed_fraction: mean, error: (variance.max(NOISE * NOISE) / count).sqrt() }
    }

    /// Whether nothing was measured.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Everything that was measured.
    pub fn iter(&self) -> impl Iterator<Item = &CopyRecord> {
        self.0.values()
    }
}

impl From<Vec<CopyRecord>> for CopyBook {
    fn from(records: Vec<CopyRecord>) -> Self {
        let keyed = records.into_iter().map(|record| {
            let kind = CopyKind::new(&record.workload, &record.device_model, record.sharing);
            ((kind, record.count), record)
        });
        Self(keyed.collect())
    }
}

impl From<CopyBook> for Vec<CopyRecord> {
    fn from(book: CopyBook) -> Self {
        book.0.into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::ObservedTenant;
    use pillion_core::Fraction;

    fn mps(cap: Option<f64>) -> Sharing {
        Sharing::by(Mechanism::Mps, cap.map(Fraction::clamped), None)
    }

    fn together(workloads: &[&str], sharing: Sharing, speeds: &[Option<f64>]) -> Observation {
        let tenants = workloads.iter().zip(speeds).map(|(workload, speed)| ObservedTenant {
            workload: WorkloadKey::new(*workload),
            sharing,
            speed_fraction: *speed,
            is_self_reported: false,
        });
        Observation {
            device_model: "h100".to_owned(),
            tenants: tenants.collect(),
            power_watts: None,
            fits: true,
            run_count: 1.0,
            speed_fraction_deviation: None,
        }
    }

    fn seen(book: &CopyBook, sharing: Sharing, count: u32) -> CopiesSeen {
        book.seen(&CopyKind::new(&WorkloadKey::new("a"), "h100", sharing), count, false)
    }

    fn mean(seen: CopiesSeen) -> Option<f64> {
        match seen {
            CopiesSeen::At { speed_fraction, .. } => Some((speed_fraction * 1000.0).round() / 1000.0),
            CopiesSeen::Never | CopiesSeen::Unfit => None,
        }
    }

    #[test]
    fn copies_are_known_by_workload_device_mechanism_mode_and_cap() {
        let two = together(&["a", "a"], mps(None), &[Some(0.9), Some(1.1)]);
        let book = CopyBook::of([&two, &together(&["a", "b"], mps(None), &[Some(0.1); 2])]);
        assert_eq!(mean(seen(&book, mps(None), 2)), Some(0.95), "faster than alone is noise");
        for (other, count) in
            [(mps(Some(0.5)), 2), (mps(None), 3), (Sharing::TimeSliced, 2), (Sharing::Ccs { mode: 2 }, 2)]
        {
            assert_eq!(seen(&book, other, count), CopiesSeen::Never);
        }
        let text = serde_json::to_string(&book).unwrap();
        assert_eq!(serde_json::from_str::<CopyBook>(&text).unwrap(), book);
    }

    #[test]
    fn the_newest_count_and_one_alone_does_not() {
        let three = ["a", "a", "a"];
        let mut all = vec![together(&three, mps(None), &[Some(0.5), None, None])];
        assert_eq!(seen(&CopyBook::of(&all), mps(None), 3), CopiesSeen::Never);
        all.push(together(&three, mps(None), &[Some(0.7), None, None]));
        assert_eq!(mean(seen(&CopyBook::of(&all), mps(None), 3)), Some(0.6));
        all.extend(vec![together(&three, mps(None), &[Some(0.9); 3]); 3]);
        assert_eq!(mean(seen(&CopyBook::of(&all), mps(None), 3)), Some(0.9), "what was is forgotten");
        all.push(Observation { fits: false, ..together(&three, mps(None), &[None; 3]) });
        assert_eq!(seen(&CopyBook::of(&all), mps(None), 3), CopiesSeen::Unfit);
    }

    #[test]
    fn what_they_say_of_themselves_counts_where_that_is_believed() {
        let mut two = together(&["a", "a"], mps(None), &[Some(0.99); 2]);
        for tenant in &mut two.tenants {
            tenant.is_self_reported = true;
        }
        let (book, kind) = (CopyBook::of([&two]), CopyKind::new(&WorkloadKey::new("a"), "h100", mps(None)));
        assert_eq!(book.seen(&kind, 2, false), CopiesSeen::Never);
        assert_eq!(mean(book.seen(&kind, 2, true)), Some(0.99));
    }

    #[test]
    fn two_of_whom_one_starves_are_not_known_well() {
        let book = CopyBook::of([&together(&["a", "a"], mps(None), &[Some(1.0), Some(0.6)])]);
        let CopiesSeen::At { error, .. } = seen(&book, mps(None), 2) else { panic!("it was measured") };
        assert!(error > 0.15, "{error}");
    }
}
