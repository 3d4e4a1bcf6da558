//! Who is on which device, how fast, and what it costs: time passes, jobs come, end, or do not fit.

use super::learn::Known;
use super::truth::Present;
use super::{Device, Event, MEMORY_NEAR_FRACTION, Partner, Pool, Seat, TOGETHER_SECONDS, UNFIT_SECONDS};
use crate::jobs::Ended;
use pillion_core::metric::Metric;
use pillion_core::share::Sharing;
use pillion_core::units::keeps_promise;
use pillion_pairing::{InterferenceModel as _, Member, Observation, ObservedTenant, TenantInput};
use std::cmp::Reverse;

/// A GPU's power at rest, of the least that a tenant draws alone, where nobody says: the model's own assumption.
const POWER_IDLE_FRACTION: f64 = 0.3;

impl Pool<'_> {
    /// Brings a device up to now.
    pub(super) fn pass_time(&mut self, device: usize) {
        let now = self.now;
        let idle = self.idle_watts(device);
        let this = &mut self.devices[device];
        let seconds = (now - this.touched_at).max(0.0);
        this.touched_at = now;
        if seconds <= 0.0 || this.seats.is_empty() {
            return;
        }
        let is_shared = this.seats.len() > 1;
        for seat in &mut this.seats {
            seat.left -= seat.speed * seconds;
            if is_shared {
                seat.shared_seconds += seconds;
            } else {
                seat.alone_seconds += seconds;
            }
        }
        let hours = seconds / 3600.0;
        self.outcome.busy_hours += hours;
        if is_shared {
            self.outcome.shared_hours += hours;
            if let Some(idle) = idle {
                let gained: f64 = self.devices[device].seats.iter().map(|seat| seat.speed).sum::<f64>() - 1.0;
                self.outcome.joules_saved += idle * gained * seconds;
                self.outcome.power_known_hours += hours;
            }
        }
    }

    /// What a GPU at rest draws, by what its tenants draw alone.
    fn idle_watts(&self, device: usize) -> Option<f64> {
        if self.setting.idle_watts.is_some() {
            return self.setting.idle_watts;
        }
        let watts = self.devices[device]
            .seats
            .iter()
            .map(|seat| self.jobs[seat.job].profile.metrics.get(Metric::PowerWatts));
        let least = watts.collect::<Option<Vec<f64>>>()?.into_iter().reduce(f64::min)?;
        Some(least * POWER_IDLE_FRACTION)
    }

    /// A job comes to a device.
    pub(super) fn seat(&mut self, device: usize, number: usize, member: &Member) {
        let job = &self.jobs[number];
        if !self.waiting.remove(&(job.order, number)) {
            return;
        }
        let node = &mut self.nodes[self.devices[device].node];
        // The planner looks at both before it places anybody.
        node.cpus_free = node.cpus_free.checked_sub(job.cpus).expect("no node is overbooked");
        node.memory_mib_free =
            node.memory_mib_free.checked_sub(job.memory_mib).expect("no node is overbooked");
        self.outcome.started_at[number].get_or_insert(self.now);
        self.devices[device].seats.push(Seat {
            job: number,
            sharing: member.sharing,
            shards: member.shards,
            memory_bytes: member.memory_bytes,
            started_at: self.now,
            left: job.seconds,
            speed: 1.0,
            alone_seconds: 0.0,
            shared_seconds: 0.0,
            partner: Partner::Nobody,
        });
    }

    /// Who is here now goes as fast as it does beside the others. `has_come`: somebody new is here.
    pub(super) fn settle(&mut self, device: usize, has_come: bool) {
        let this = &self.devices[device];
        let booked: u32 = this.seats.iter().map(|seat| u32::from(seat.shards.count())).sum();
        assert!(booked <= 100, "no device is overbooked");
        if has_come && this.seats.len() > 1 {
            self.count_group(device);
        }
        let this = &self.devices[device];
        let fits = this.seats.len() < 2 || self.fits_memory(this);
        let present: Vec<Present<'_>> = this.seats.iter().map(|seat| self.present(seat)).collect();
        let speeds = match &present[..] {
            [] => Some(Vec::new()),
            [one] if one.sharing.cap().is_none() => Some(vec![1.0]),
            several => self.truth.speeds(several).filter(|_| fits),
        };
        let (is_shared, has_fitted) = (present.len() > 1, speeds.is_some());
        let this = &mut self.devices[device];
        this.unfit_at = (!has_fitted).then_some(self.now + UNFIT_SECONDS);
        let partners: Vec<usize> = this.seats.iter().map(|seat| seat.job).collect();
        for (at, seat) in this.seats.iter_mut().enumerate() {
            seat.speed = speeds.as_ref().map_or(0.0, |speeds| speeds[at]);
            if is_shared {
                seat.partner = met(seat.partner, seat.job, &partners);
            }
        }
        if has_come
            && is_shared
            && let Some(speeds) = speeds
        {
            let promise = self.setting.policy.slowdown_ratio_max.value();
            self.outcome.broken += speeds.iter().filter(|speed| !keeps_promise(**speed, promise)).count();
        }
        self.devices[device].version += 1;
        self.wait_for(device);
    }

    fn present(&self, seat: &Seat) -> Present<'_> {
        let job = &self.jobs[seat.job];
        // A run of which nobody says anything is taken for what its workload is known to be.
        let known = self.known.get(&job.kind()).filter(|_| !job.usage.is_profile());
        let profile = known.map_or(&job.profile, |known| &known.profile);
        Present { workload: job.workload, profile, sharing: seat.sharing }
    }

    /// Whether what these very runs need at most is there: profiles are of other runs.
    fn fits_memory(&self, device: &Device) -> bool {
        let Some(all) = self.setting.gpu_types[device.gpu_type as usize].memory_bytes else { return true };
        self.memory_of(device) <= all
    }

    fn memory_of(&self, device: &Device) -> u64 {
        device.seats.iter().filter_map(|seat| self.present(seat).profile.memory_bytes_peak).sum()
    }

    /// Several are together that were not before: what the model says of it, and how full the memory is.
    fn count_group(&mut self, device: usize) {
        let this = &self.devices[device];
        let empty: Vec<Known> = this
            .seats
            .iter()
            .map(|seat| Known::new(self.jobs[seat.job].profile.workload.clone(), ""))
            .collect();
        let profiles = this.seats.iter().zip(&empty).map(|(seat, empty)| {
            self.known.get(&self.jobs[seat.job].kind()).map_or(&empty.profile, |known| &known.profile)
        });
        let tenants: Vec<TenantInput<'_>> = profiles
            .zip(&this.seats)
            .map(|(profile, seat)| TenantInput { profile, sharing: seat.sharing })
            .collect();
        let model = &self.setting.gpu_types[this.gpu_type as usize];
        let promise = self.setting.policy.slowdown_ratio_max;
        let estimates = self.model.predict(&tenants, &model.name).unwrap_or_default();
        let risk: f64 = estimates.iter().map(|estimate| estimate.break_probability(promise)).sum();
        let used = self.memory_of(this);
        #[expect(clippy::cast_precision_loss, reason = "memory is far below 2^53 bytes")]
        let fill = model.memory_bytes.map_or(0.0, |all| used as f64 / all.max(1) as f64);
        let present: Vec<Present<'_>> = this.seats.iter().map(|seat| self.present(seat)).collect();
        let risk_foretold = super::truth::risk(&present, promise);
        let outcome = &mut self.outcome;
        outcome.groups += 1;
        outcome.risk_foretold_sum += risk_foretold;
        outcome.tenancies += tenants.len();
        outcome.risk_sum += risk;
        outcome.near_out_of_memory += usize::from(fill > MEMORY_NEAR_FRACTION && fill <= 1.0);
    }

    /// Puts the next thing that happens here into the calendar.
    fn wait_for(&mut self, device: usize) {
        let this = &self.devices[device];
        let ends = this.seats.iter().map(|seat| self.ends_at(seat));
        let Some(at) = ends.chain(this.unfit_at).reduce(f64::min) else { return };
        self.events.push(Reverse(Event { at: at.max(self.now), device, version: this.version }));
    }

    /// When a job ends: its work is done, or Slurm ends it.
    fn ends_at(&self, seat: &Seat) -> f64 {
        let job = &self.jobs[seat.job];
        if job.ended == Ended::TimeLimit {
            // Whatever it has done by then.
            return seat.started_at + job.seconds;
        }
        let done_at =
            if seat.speed > 0.0 { self.now + seat.left.max(0.0) / seat.speed } else { f64::INFINITY };
        done_at.min(self.limit_at(seat))
    }

    /// One that overran its limit in history was let do so.
    fn limit_at(&self, seat: &Seat) -> f64 {
        let job = &self.jobs[seat.job];
        let limit = job.limit_seconds.filter(|limit| *limit >= job.seconds);
        limit.map_or(f64::INFINITY, |limit| seat.started_at + limit)
    }

    /// What was put into the calendar happens.
    pub(super) fn happen(&mut self, device: usize) {
        self.pass_time(device);
        if self.devices[device].unfit_at.is_some_and(|at| at <= self.now + TOGETHER_SECONDS) {
            self.part_unfit(device);
            return;
        }
        let seats = &self.devices[device].seats;
        let over: Vec<usize> =
            (0..seats.len()).filter(|at| self.ends_at(&seats[*at]) <= self.now + TOGETHER_SECONDS).collect();
        for at in over.into_iter().rev() {
            let seat = self.devices[device].seats.remove(at);
            self.leave(device, seat.job);
            self.end(&seat, device);
        }
        self.settle(device, false);
    }

    fn leave(&mut self, device: usize, job: usize) {
        let node = &mut self.nodes[self.devices[device].node];
        node.cpus_free += self.jobs[job].cpus;
        node.memory_mib_free += self.jobs[job].memory_mib;
    }

    fn end(&mut self, seat: &Seat, device: usize) {
        let job = &self.jobs[seat.job];
        let elapsed = self.now - self.outcome.started_at[seat.job].unwrap_or(seat.started_at);
        let is_undone = job.ended != Ended::TimeLimit && seat.left > TOGETHER_SECONDS.max(1e-9 * job.seconds);
        if is_undone {
            // Slurm ended it before its work was done: all of it is done again, alone.
            self.outcome.limit_hits += 1;
            self.outcome.busy_hours += job.seconds / 3600.0;
        }
        // One that goes alone shared before, in vain; that counts for it, and its second run teaches as one alone does.
        if seat.partner != Partner::Nobody || self.goes_alone.contains(&seat.job) {
            self.outcome.slowdowns.push(elapsed / job.seconds);
        }
        if seat.partner == Partner::Nobody {
            let model = &self.setting.gpu_types[self.devices[device].gpu_type as usize].name;
            let known = self.known.entry(job.kind());
            known.or_insert_with(|| Known::new(job.profile.workload.clone(), model)).add_solo(job);
            return;
        }
        if let Partner::One(partner) = seat.partner
            && !is_undone
        {
            self.observe(seat, partner, device);
        }
    }

    /// What the agents would have told of a run beside one other.
    fn observe(&mut self, seat: &Seat, partner: usize, device: usize) {
        let job = &self.jobs[seat.job];
        let known = self.known.get(&job.kind());
        let speed =
            known.and_then(|known| known.speed_by_duration(job, seat.alone_seconds, seat.shared_seconds));
        let Some(speed) = speed else { return };
        let beside = self.devices[device].seats.iter().find(|other| other.job == partner);
        // Of one that has left before, its cap is not known any more; without caps there is nothing to know.
        let sharing =
            beside.map_or_else(|| Sharing::by(self.setting.mechanism, None, None), |other| other.sharing);
        let tenant = |workload: &pillion_core::WorkloadKey, sharing, speed_fraction| ObservedTenant {
            workload: workload.clone(),
            sharing,
            speed_fraction,
            is_self_reported: false,
        };
        self.observations.push(Observation {
            device_model: self.setting.gpu_types[self.devices[device].gpu_type as usize].name.clone(),
            tenants: vec![
                tenant(&job.profile.workload, seat.sharing, Some(speed)),
                tenant(&self.jobs[partner].profile.workload, sharing, None),
            ],
            power_watts: None,
            fits: true,
            run_count: 1.0,
            speed_fraction_deviation: None,
        });
        self.learn_anew();
    }

    /// They did not fit: whatever all of them have done is lost, and each starts again alone.
    fn part_unfit(&mut self, device: usize) {
        self.outcome.out_of_memory += 1;
        let seats = std::mem::take(&mut self.devices[device].seats);
        let tenants = seats.iter().map(|seat| ObservedTenant {
            workload: self.jobs[seat.job].profile.workload.clone(),
            sharing: seat.sharing,
            speed_fraction: None,
            is_self_reported: false,
        });
        self.observations.push(Observation {
            device_model: self.setting.gpu_types[self.devices[device].gpu_type as usize].name.clone(),
            tenants: tenants.collect(),
            power_watts: None,
            fits: false,
            run_count: 1.0,
            speed_fraction_deviation: None,
        });
        for seat in seats {
            self.leave(device, seat.job);
            self.goes_alone.insert(seat.job);
            self.waiting.insert((self.jobs[seat.job].order, seat.job));
        }
        self.learn_anew();
        self.settle(device, false);
    }
}

/// Whom a job has met by now.
fn met(before: Partner, own: usize, here: &[usize]) -> Partner {
    let mut others = here.iter().copied().filter(|job| *job != own);
    match (before, others.next(), others.next()) {
        (before, None, _) => before,
        (Partner::Nobody, Some(other), None) => Partner::One(other),
        (Partner::One(known), Some(other), None) if known == other => before,
        _ => Partner::Several,
    }
}
