//! What is done with one device: nothing, one job alone, jobs together without walls, or instances.

use super::shapes::{Filling, Shapes};
use super::speed::SliceSpeed;
use super::worth;
use pillion_core::mig::{Geometry, MigProfile, Slot};
use pillion_core::units::keeps_promise;
use pillion_core::{SlowdownRatio, UnixTime};
use std::collections::BTreeMap;
use std::time::Duration;

/// How many jobs are looked at, from the head of the queue.
const WINDOW: usize = 64;
/// By whom a job may be passed over at most: by those who came so long after it. Once everybody before them has started, or
/// nobody else is left to pass it, devices empty for one that needs all of one.
const OVERTAKEN_BY: Duration = Duration::from_mins(30);
/// What making an instance costs, in the device's time: tenths of a second of minutes, so a little more than nothing. Of two
/// shapes that do as much, the one that stands is left as it is.
const CUT_COST: f64 = 0.002;
/// How much less the work of the first in the queue may be worth than that of another, so that he is still the one to go alone.
const ALONE_TOLERANCE: f64 = 0.2;
/// Of jobs whose work is worth the same the earlier goes first: each place behind counts for so much less.
const ORDER_WEIGHT: f64 = 1e-4;
/// How long a job takes of which nobody has said it.
const DURATION_SECONDS_ASSUMED: f64 = 600.0;

/// A waiting job, as far as instances go.
#[derive(Debug, Clone, PartialEq)]
pub struct SliceJob {
    /// Its promise; the bound where there is none.
    pub slowdown_ratio_max: SlowdownRatio,
    /// When it was submitted.
    pub submitted_at: UnixTime,
    /// How long it probably runs alone, where that is known.
    pub duration_seconds: Option<f64>,
    /// How fast it is in the sizes in which it has room and that is known. In the whole device it is as fast as it is alone.
    pub speeds: BTreeMap<MigProfile, SliceSpeed>,
    /// Of those the size that is smaller than its peak asks for, where it may be tried in one.
    pub tried: Option<MigProfile>,
}

impl SliceJob {
    /// The same, without the size that it would be tried in.
    pub fn do_not_try(&mut self) {
        if let Some(tried) = self.tried.take() {
            self.speeds.remove(&tried);
        }
    }

    /// Whether it may have an instance of this size.
    ///
    /// # Errors
    /// Why not.
    pub fn may_have(&self, profile: MigProfile) -> Result<SliceSpeed, Refusal> {
        let speed = self.speeds.get(&profile).ok_or(Refusal::NoRoom)?;
        let is_kept = keeps_promise(speed.speed_fraction_low, self.slowdown_ratio_max.value());
        if is_kept { Ok(*speed) } else { Err(Refusal::TooSlow) }
    }
}

/// Why a job may not have an instance of some size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// It has no room there, or nobody knows how fast it would be.
    NoRoom,
    /// It would be slower than promised.
    TooSlow,
}

/// What is on a device.
#[derive(Debug, Clone, Copy, Default)]
pub struct DeviceState<'d> {
    /// The instances that have tenants.
    pub tenants: &'d [Slot],
    /// Those that stand empty.
    pub standing: &'d [Slot],
    /// Whether its driver refuses to change them: what stands can be given away, and nothing else.
    pub is_held: bool,
}

/// Jobs that could share the device without walls, under their promises.
#[derive(Debug, Clone, PartialEq)]
pub struct Rival {
    /// Which of the waiting jobs, each with its speed.
    pub jobs: Vec<(usize, f64)>,
}

/// What is done with a device.
#[derive(Debug, Clone, PartialEq)]
pub enum Choice {
    /// Nothing that anybody waits for suits it.
    Nothing,
    /// This job has all of it.
    Alone(usize),
    /// The jobs of this rival share it.
    Together(usize),
    /// Each of these jobs has an instance of its own.
    Instances(Vec<(usize, Slot)>),
}

/// Chooses for devices of one geometry.
#[derive(Debug)]
pub struct Cutter<'g> {
    geometry: &'g Geometry,
    empty: Shapes,
    /// The least that jobs on one device must do more together than one alone.
    gain_min: f64,
}

/// The jobs that are looked at, with what their work is worth.
struct Waiting<'j> {
    jobs: &'j [SliceJob],
    worth: Vec<f64>,
    /// Those that have to get something, by their places.
    required: &'j [usize],
}

impl<'g> Cutter<'g> {
    /// For devices that can be cut so.
    pub fn new(geometry: &'g Geometry, gain_min: f64) -> Self {
        Self { geometry, empty: Shapes::beside(geometry, &[]), gain_min }
    }

    /// What to do with one device, for `jobs` in the order of the queue, while so many devices are wholly free.
    pub fn choose(
        &self,
        device: DeviceState<'_>,
        jobs: &[SliceJob],
        rivals: &[Rival],
        free_count: usize,
    ) -> Choice {
        let jobs = in_turn(jobs);
        // 1. Whoever can have all of a device has it.
        if device.tenants.is_empty() && !device.is_held && !jobs.is_empty() && jobs.len() <= free_count {
            return Choice::Alone(0);
        }
        self.choose_beside(device, &self.priced(jobs, &[]), rivals)
    }

    /// What to do with a device that `rights` have a right to, by their places in `jobs`: instances only where each of them gets
    /// one, whatever else is gained. For jobs in the order of the queue, of which more wait than there are devices.
    pub fn choose_for(
        &self,
        device: DeviceState<'_>,
        jobs: &[SliceJob],
        rivals: &[Rival],
        rights: &[usize],
    ) -> Choice {
        let jobs = in_turn(jobs);
        if rights.iter().any(|job| *job >= jobs.len()) {
            return Choice::Nothing;
        }
        self.choose_beside(device, &self.priced(jobs, rights), rivals)
    }

    fn choose_beside(&self, device: DeviceState<'_>, waiting: &Waiting<'_>, rivals: &[Rival]) -> Choice {
        let is_empty = device.tenants.is_empty();
        let whole = self.geometry.whole().profile;
        if waiting.jobs.is_empty() || device.tenants.iter().any(|slot| slot.profile == whole) {
            return Choice::Nothing;
        }
        // 2. What stands is filled before anything is cut.
        let of_standing = Shapes::standing(self.geometry, device.standing);
        let mut best = fill(&of_standing, waiting, 0.0);
        if !device.is_held {
            let shapes = if is_empty { None } else { Some(Shapes::beside(self.geometry, device.tenants)) };
            let cut = fill(shapes.as_ref().unwrap_or(&self.empty), waiting, CUT_COST);
            if cut.as_ref().map(|(_, value)| *value) > best.as_ref().map(|(_, value)| *value) {
                best = cut;
            }
        }
        if !is_empty || device.is_held {
            return best.map_or(Choice::Nothing, |(slots, _)| Choice::Instances(slots));
        }
        self.for_an_empty_one(waiting, best, rivals)
    }

    /// 3. Together, in instances or alone, whatever does most; alone where company gains too little.
    fn for_an_empty_one(
        &self,
        waiting: &Waiting<'_>,
        instances: Option<(Vec<(usize, Slot)>, f64)>,
        rivals: &[Rival],
    ) -> Choice {
        let is_known = |rival: &&Rival| rival.jobs.iter().all(|(job, _)| *job < waiting.jobs.len());
        let together =
            rivals.iter().enumerate().filter(|(_, rival)| is_known(rival)).map(|(index, rival)| {
                let value: f64 = rival.jobs.iter().map(|(job, speed)| speed * waiting.worth[*job]).sum();
                let speed: f64 = rival.jobs.iter().map(|(_, speed)| speed).sum();
                (Choice::Together(index), value, speed)
            });
        let apart = instances.filter(|(slots, _)| slots.len() > 1).map(|(slots, value)| {
            let speeds =
                slots.iter().filter_map(|(job, slot)| waiting.jobs[*job].may_have(slot.profile).ok());
            let speed: f64 = speeds.map(|speed| speed.speed_fraction).sum();
            (Choice::Instances(slots), value, speed)
        });
        let gains = |choice: &(Choice, f64, f64)| choice.2 >= 1.0 + self.gain_min;
        let shared = apart.into_iter().chain(together).filter(gains).max_by(|a, b| a.1.total_cmp(&b.1));
        // Who else could have all of it: those with a right to it, where there are any.
        let is_alone = |job: &usize| waiting.required.is_empty() || waiting.required.contains(job);
        let alone = (0..waiting.jobs.len()).filter(is_alone).map(|job| waiting.worth[job]);
        let most = alone.fold(0.0, f64::max);
        match shared {
            Some((choice, value, _)) if value >= most => choice,
            _ => {
                let is_worth = |worth: &f64| *worth >= most * (1.0 - ALONE_TOLERANCE);
                Choice::Alone(waiting.worth.iter().position(is_worth).unwrap_or(0))
            }
        }
    }

    fn priced<'j>(&self, jobs: &'j [SliceJob], required: &'j [usize]) -> Waiting<'j> {
        let durations: Vec<f64> = jobs
            .iter()
            .map(|job| {
                job.duration_seconds.filter(|seconds| *seconds > 0.0).unwrap_or(DURATION_SECONDS_ASSUMED)
            })
            .collect();
        let worth = worth::of_work(&self.empty, &durations, |job, size| self.speed(&jobs[job], size));
        let worth = (0_u32..).zip(alike(jobs, &worth));
        let worth = worth.map(|(at, worth)| worth * (1.0 - ORDER_WEIGHT * f64::from(at)));
        Waiting { worth: worth.collect(), jobs, required }
    }

    /// How fast a job is in a plain size, where it may have it; everybody may have the whole.
    fn speed(&self, job: &SliceJob, size: usize) -> Option<f64> {
        if size == 0 {
            return Some(1.0);
        }
        job.may_have(self.empty.sizes[size]).ok().map(|speed| speed.speed_fraction)
    }
}

/// The best set of instances with who gets them, and what that is worth less the cost of each instance.
fn fill(shapes: &Shapes, waiting: &Waiting<'_>, cost: f64) -> Option<(Vec<(usize, Slot)>, f64)> {
    let worth = |job: usize, size: usize| {
        let speed = waiting.jobs[job].may_have(shapes.sizes[size]).ok()?;
        Some(speed.speed_fraction * waiting.worth[job] - cost)
    };
    let filled = shapes.fill(waiting.jobs.len(), waiting.required, worth);
    let best = filled.into_iter().enumerate().filter_map(|(set, filling)| Some((set, filling?)));
    let (set, filling) = best.max_by(|a, b| a.1.value.total_cmp(&b.1.value))?;
    (!filling.jobs.is_empty()).then(|| (placed(shapes, set, &filling), filling.value))
}

/// The work of jobs that are alike is worth the same.
fn alike(jobs: &[SliceJob], worth: &[f64]) -> Vec<f64> {
    let of = |own: &SliceJob| {
        let others = jobs.iter().zip(worth).filter(|(other, _)| {
            (&other.speeds, other.slowdown_ratio_max) == (&own.speeds, own.slowdown_ratio_max)
        });
        let (count, sum) = others.fold((0_u32, 0.0), |(count, sum), (_, worth)| (count + 1, sum + worth));
        sum / f64::from(count.max(1))
    };
    jobs.iter().map(of).collect()
}

/// Those of the queue who may start now without passing over anybody who came long before them.
fn in_turn(jobs: &[SliceJob]) -> &[SliceJob] {
    let window = &jobs[..jobs.len().min(WINDOW)];
    let Some(head) = window.first() else { return window };
    let late = window.iter().position(|job| job.submitted_at > head.submitted_at + OVERTAKEN_BY);
    &window[..late.unwrap_or(window.len())]
}

/// Each job's instance, the larger ones first.
fn placed(shapes: &Shapes, set: usize, filling: &Filling) -> Vec<(usize, Slot)> {
    let mut left = filling.jobs.clone();
    let mut placed = Vec::new();
    for slot in &shapes.slots[set] {
        let at = left.iter().position(|(_, size)| shapes.sizes[*size] == slot.profile);
        if let Some(at) = at {
            placed.push((left.remove(at).0, *slot));
        }
    }
    placed
}
