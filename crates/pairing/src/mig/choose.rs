//! What is done with one device: nothing, one job alone, jobs together without walls, or instances.

use super::company::{Company, Together};
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
    /// Each of these jobs has an instance; two with the same one share it, the host before its guest.
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
    /// Who could share an instance with whom; each job stands in one of them at most.
    companies: &'j [Company],
}

/// Instances that are given away.
struct Filled {
    slots: Vec<(usize, Slot)>,
    /// What that is worth, less what making them costs.
    value: f64,
    /// The sum of the speeds.
    speed: f64,
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
        self.choose_beside(device, &self.priced(jobs, &[], &[]), rivals)
    }

    /// What to do with a device that `rights` have a right to, by their places in `jobs`: instances only where each of them gets
    /// one, whatever else is gained. For jobs in the order of the queue, of which more wait than there are devices. `companies`: who
    /// could share an instance with whom; without any each has one to himself.
    pub fn choose_for(
        &self,
        device: DeviceState<'_>,
        jobs: &[SliceJob],
        rivals: &[Rival],
        rights: &[usize],
        companies: &[Company],
    ) -> Choice {
        let jobs = in_turn(jobs);
        if rights.iter().any(|job| *job >= jobs.len()) {
            return Choice::Nothing;
        }
        let is_known = |company: &&Company| company.host < jobs.len() && company.guest < jobs.len();
        let companies: Vec<Company> = companies.iter().filter(is_known).cloned().collect();
        self.choose_beside(device, &self.priced(jobs, rights, &companies), rivals)
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
            if cut.as_ref().map(|filled| filled.value) > best.as_ref().map(|filled| filled.value) {
                best = cut;
            }
        }
        if !is_empty || device.is_held {
            return best.map_or(Choice::Nothing, |filled| Choice::Instances(filled.slots));
        }
        self.for_an_empty_one(waiting, best, rivals)
    }

    /// 3. Together, in instances or alone, whatever does most; alone where company gains too little.
    fn for_an_empty_one(&self, waiting: &Waiting<'_>, instances: Option<Filled>, rivals: &[Rival]) -> Choice {
        let is_known = |rival: &&Rival| rival.jobs.iter().all(|(job, _)| *job < waiting.jobs.len());
        let together =
            rivals.iter().enumerate().filter(|(_, rival)| is_known(rival)).map(|(index, rival)| {
                let value: f64 = rival.jobs.iter().map(|(job, speed)| speed * waiting.worth[*job]).sum();
                let speed: f64 = rival.jobs.iter().map(|(_, speed)| speed).sum();
                (Choice::Together(index), value, speed)
            });
        let apart = instances
            .filter(|filled| filled.slots.len() > 1)
            .map(|Filled { slots, value, speed }| (Choice::Instances(slots), value, speed));
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

    fn priced<'j>(
        &self,
        jobs: &'j [SliceJob],
        required: &'j [usize],
        companies: &'j [Company],
    ) -> Waiting<'j> {
        let durations: Vec<f64> = jobs
            .iter()
            .map(|job| {
                job.duration_seconds.filter(|seconds| *seconds > 0.0).unwrap_or(DURATION_SECONDS_ASSUMED)
            })
            .collect();
        let worth = worth::of_work(&self.empty, &durations, |job, size| self.speed(&jobs[job], size));
        let worth = (0_u32..).zip(alike(jobs, &worth));
        let worth = worth.map(|(at, worth)| worth * (1.0 - ORDER_WEIGHT * f64::from(at)));
        Waiting { worth: worth.collect(), jobs, required, companies }
    }

    /// How fast a job is in a plain size, where it may have it; everybody may have the whole.
    fn speed(&self, job: &SliceJob, size: usize) -> Option<f64> {
        if size == 0 {
            return Some(1.0);
        }
        job.may_have(self.empty.sizes[size]).ok().map(|speed| speed.speed_fraction)
    }
}

/// The best set of instances with who gets them, less the cost of each instance: each to himself, or in company where that is worth
/// more.
fn fill(shapes: &Shapes, waiting: &Waiting<'_>, cost: f64) -> Option<Filled> {
    let apart = fill_with(shapes, waiting, &[], cost);
    if waiting.companies.is_empty() {
        return apart;
    }
    let together = fill_with(shapes, waiting, waiting.companies, cost);
    let is_more = together.as_ref().map(|filled| filled.value) > apart.as_ref().map(|filled| filled.value);
    if is_more { together } else { apart }
}

/// The same where these share what one of them gets, if that is worth more than he alone.
fn fill_with(shapes: &Shapes, waiting: &Waiting<'_>, companies: &[Company], cost: f64) -> Option<Filled> {
    // Who comes along has no instance of his own, and who has to get something gets it with his host.
    let guests: Vec<usize> = companies.iter().map(|company| company.guest).collect();
    let of_host =
        |job: &usize| companies.iter().find(|company| company.guest == *job).map(|company| company.host);
    let required: Vec<usize> = waiting.required.iter().map(|job| of_host(job).unwrap_or(*job)).collect();
    let worth = |job: usize, size: usize| {
        let is_host = !guests.contains(&job);
        let seated = is_host.then(|| seated(waiting, companies, job, shapes.sizes[size]))??;
        Some(seated.value - cost)
    };
    let filled = shapes.fill(waiting.jobs.len(), &required, worth);
    let best = filled.into_iter().enumerate().filter_map(|(set, filling)| Some((set, filling?)));
    let (set, filling) = best.max_by(|a, b| a.1.value.total_cmp(&b.1.value))?;
    if filling.jobs.is_empty() {
        return None;
    }
    let (mut slots, mut speed) = (Vec::new(), 0.0);
    for (job, slot) in placed(shapes, set, &filling) {
        let seated = seated(waiting, companies, job, slot.profile)?;
        slots.push((job, slot));
        slots.extend(seated.guest.map(|guest| (guest, slot)));
        speed += seated.speed;
    }
    Some(Filled { slots, value: filling.value, speed })
}

/// Somebody in an instance, with whoever comes along.
struct Seated {
    guest: Option<usize>,
    value: f64,
    speed: f64,
}

/// What a job does in an instance of this size, alone or in company, whatever is worth more; `None`: it may not have one.
fn seated(waiting: &Waiting<'_>, companies: &[Company], job: usize, profile: MigProfile) -> Option<Seated> {
    let company = companies.iter().find(|company| company.host == job);
    let of_both = |company: &Company, together: &Together| {
        let [own, other] = together.speeds.map(|speed| speed.speed_fraction);
        let value = own * waiting.worth[job] + other * waiting.worth[company.guest];
        Seated { guest: Some(company.guest), value, speed: own + other }
    };
    let both = company.and_then(|company| Some(of_both(company, company.sizes.get(&profile)?)));
    let is_needed = company.is_some_and(|company| waiting.required.contains(&company.guest));
    let alone = waiting.jobs[job].may_have(profile).ok().filter(|_| !is_needed).map(|speed| Seated {
        guest: None,
        value: speed.speed_fraction * waiting.worth[job],
        speed: speed.speed_fraction,
    });
    match (both, alone) {
        (Some(both), Some(alone)) if both.value <= alone.value => Some(alone),
        (both, alone) => both.or(alone),
    }
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
