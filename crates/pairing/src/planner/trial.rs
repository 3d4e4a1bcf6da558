//! What the book says of trials, looked up by what a candidate is: which kinds are being tried, what was seen of these two under
//! their caps, how sharing fared on such devices. Must not estimate, and not choose.

use crate::trials::{TrialBook, TrialKind, TrialPolicy, TrialRecord, TrialVerdict};
use crate::view::{ClusterView, DeviceView};
use pillion_core::device::Mechanism;
use pillion_core::{Fraction, SlurmJobId, WorkloadKey};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeSet;

/// A model of device, how it is shared, and two workloads, the lower first.
type TriedKind<'a> = (&'a str, Mechanism, [&'a WorkloadKey; 2]);
/// A kind and the bits of both caps in its order.
type Combination<'a> = (TriedKind<'a>, [u64; 2]);

/// By model of device and mechanism: by whose word, how many were seen and how many held.
type Records<'a> = FxHashMap<(&'a str, Mechanism), Vec<(&'a str, u32, u32)>>;

/// As if so many had been seen before the first, and this share of them had held.
const SEEN_BEFORE: f64 = 1.0;
const HELD_BEFORE_FRACTION: f64 = 0.5;
/// Where a smaller share than the first held, nothing is tried; from the second on estimates are believed as they are. Measured:
/// of Gavel's pairs on the K80 one in seventy holds, on the P100 one in five, and among few families as little as one in fifteen.
const HELD_FRACTIONS: (f64, f64) = (0.03, 0.06);
/// Of one user so many count in what is believed of others' trials: what he says of his own does not stop theirs, for with so many
/// and none held estimates are believed as they are.
const SEEN_OF_ANOTHER_MAX: u32 = 7;
/// So many trials are open on devices of one kind where nothing was seen to hold yet, and as many more for each kind that did.
const OPEN_MAX: (usize, usize) = (4, 4);

/// The book, by what is looked up in it.
pub(crate) struct Trials<'a> {
    pub(crate) policy: TrialPolicy,
    open: FxHashSet<TriedKind<'a>>,
    /// How fast they ran; `None` = they did not fit.
    verdicts: FxHashMap<Combination<'a>, Option<[f64; 2]>>,
    records: Records<'a>,
    excluded: &'a BTreeSet<SlurmJobId>,
}

/// What the watch sees of those who run.
pub(crate) struct WatchedPairs<'a>(SpeedsUnderCaps<'a>);

/// Of each kind the bits of their caps and how fast they were, in the order of the combination.
type SpeedsUnderCaps<'a> = FxHashMap<TriedKind<'a>, Vec<([u64; 2], [f64; 2])>>;

impl<'a> WatchedPairs<'a> {
    pub(crate) fn new(watched: &'a [TrialVerdict]) -> Self {
        let mut by_kind = SpeedsUnderCaps::default();
        for verdict in watched {
            let ((kind, caps), is_turned) = combination_of(verdict);
            let speeds = verdict.speed_fractions.map(|speeds| (caps, turned(speeds, is_turned)));
            by_kind.entry(kind).or_default().extend(speeds);
        }
        Self(by_kind)
    }

    /// Whether one of these two is seen to be slower than this beside the other: under these caps, and where they were not seen under
    /// these, under any, for then estimates of them are wrong.
    pub(crate) fn are_slower(
        &self,
        device: &DeviceView,
        workloads: [&WorkloadKey; 2],
        caps: [Option<Fraction>; 2],
        least: [f64; 2],
    ) -> bool {
        let ((kind, caps), is_turned) = combination(&device.model, device.mechanism, workloads, caps);
        let Some(seen) = self.0.get(&kind) else { return false };
        let least = turned(least, is_turned);
        let is_exact = seen.iter().any(|(under, _)| *under == caps);
        let mut counted = seen.iter().filter(|(under, _)| !is_exact || *under == caps);
        counted.any(|(_, speeds)| (0..2).any(|at| speeds[at] < least[at]))
    }
}

/// What the book knows of two workloads under their caps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Seen {
    /// Nothing.
    Never,
    /// They did not fit.
    Unfit,
    /// So fast, in the order in which they were asked about.
    At([f64; 2]),
}

impl<'a> Trials<'a> {
    /// `None` where the site wants no trials.
    pub(crate) fn of(view: &'a ClusterView, policy: Option<TrialPolicy>) -> Option<Self> {
        let TrialBook { open, verdicts, watched: _, records, excluded } = &view.trials;
        let verdicts = verdicts.iter().map(|verdict| {
            let (key, is_turned) = combination_of(verdict);
            (key, verdict.speed_fractions.map(|speeds| turned(speeds, is_turned)))
        });
        Some(Self {
            policy: policy?,
            excluded,
            open: open
                .iter()
                .map(|kind| {
                    let workloads = [&kind.workloads[0], &kind.workloads[1]];
                    (kind.device_model.as_str(), kind.mechanism, ordered(workloads))
                })
                .collect(),
            verdicts: verdicts.collect(),
            records: by_device(records),
        })
    }

    /// Whether this job may be tried.
    pub(crate) fn may_try(&self, job: SlurmJobId) -> bool {
        !self.excluded.contains(&job)
    }

    /// What is being tried on such devices.
    pub(crate) fn open_on<'s>(
        &'s self,
        device: &'s DeviceView,
    ) -> impl Iterator<Item = [&'a WorkloadKey; 2]> + 's {
        let of_device = self
            .open
            .iter()
            .filter(|(model, mechanism, _)| *model == device.model && *mechanism == device.mechanism);
        of_device.map(|(_, _, workloads)| *workloads)
    }

    /// Whether a verdict is to come.
    pub(crate) fn has_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// What was seen of two under these caps.
    pub(crate) fn seen(
        &self,
        device: &DeviceView,
        workloads: [&WorkloadKey; 2],
        caps: [Option<Fraction>; 2],
    ) -> Seen {
        let (key, is_turned) = combination(&device.model, device.mechanism, workloads, caps);
        match self.verdicts.get(&key) {
            None => Seen::Never,
            Some(None) => Seen::Unfit,
            Some(Some(speeds)) => Seen::At(turned(*speeds, is_turned)),
        }
    }

    /// What of an estimate's hope is believed for this user's jobs, 0..=1, by the share that held of what was seen on such devices: the
    /// rule that stops where sharing does not pay.
    pub(crate) fn believed_fraction(&self, device: &DeviceView, user: &str) -> f64 {
        let (seen, held) = self.record_for(device, user);
        let share = (held + HELD_BEFORE_FRACTION * SEEN_BEFORE) / (seen + SEEN_BEFORE);
        ((share - HELD_FRACTIONS.0) / (HELD_FRACTIONS.1 - HELD_FRACTIONS.0)).clamp(0.0, 1.0)
    }

    /// How many more trials may be started on such devices: few where nothing was seen to hold.
    pub(crate) fn room(&self, device: &DeviceView) -> usize {
        let held = self.of_device(device).iter().map(|(_, _, held)| *held).fold(0, u32::saturating_add);
        let held = usize::try_from(held).unwrap_or(usize::MAX);
        let most = OPEN_MAX.0.saturating_add(OPEN_MAX.1.saturating_mul(held));
        most.saturating_sub(self.open_on(device).count())
    }

    /// How many were seen on such devices and how many held, as they count for this user: all of his own and of the site's, and of
    /// each other user a few.
    fn record_for(&self, device: &DeviceView, user: &str) -> (f64, f64) {
        let counts = self.of_device(device).iter().map(|&(whose, seen, held)| {
            let most = if whose.is_empty() || whose == user { seen } else { seen.min(SEEN_OF_ANOTHER_MAX) };
            let part = if seen > 0 { f64::from(most) / f64::from(seen) } else { 0.0 };
            (f64::from(most), f64::from(held) * part)
        });
        counts.fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }

    fn of_device<'s>(&'s self, device: &'s DeviceView) -> &'s [(&'s str, u32, u32)] {
        self.records.get(&(device.model.as_str(), device.mechanism)).map(Vec::as_slice).unwrap_or_default()
    }
}

fn by_device(records: &[TrialRecord]) -> Records<'_> {
    let mut by_device = Records::default();
    for TrialRecord { user, device_model, mechanism, seen_count, held_count } in records {
        let of_device = by_device.entry((device_model.as_str(), *mechanism)).or_default();
        of_device.push((user.as_str(), *seen_count, *held_count));
    }
    by_device
}

fn ordered([a, b]: [&WorkloadKey; 2]) -> [&WorkloadKey; 2] {
    if a <= b { [a, b] } else { [b, a] }
}

/// The key of a combination, and whether the two stand in it in the other order.
fn combination<'a>(
    model: &'a str,
    mechanism: Mechanism,
    [a, b]: [&'a WorkloadKey; 2],
    caps: [Option<Fraction>; 2],
) -> (Combination<'a>, bool) {
    let [cap_a, cap_b] = caps.map(|cap| cap.unwrap_or(Fraction::ONE).value().to_bits());
    let is_turned = (a, cap_a) > (b, cap_b);
    if is_turned {
        (((model, mechanism, [b, a]), [cap_b, cap_a]), true)
    } else {
        (((model, mechanism, [a, b]), [cap_a, cap_b]), false)
    }
}

/// The same of what was seen.
fn combination_of(verdict: &TrialVerdict) -> (Combination<'_>, bool) {
    let TrialKind { device_model, mechanism, workloads: [a, b] } = &verdict.kind;
    combination(device_model, *mechanism, [a, b], verdict.cap_fractions)
}

fn turned(speeds: [f64; 2], is_turned: bool) -> [f64; 2] {
    if is_turned { [speeds[1], speeds[0]] } else { speeds }
}
