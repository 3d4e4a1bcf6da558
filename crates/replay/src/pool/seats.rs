//! Who is on which device, how fast, and what it costs: time passes, jobs come, end, or do not fit.

use super::learn::{Known, profile_of};
use super::truth::{Foretold, Present};
use super::{Device, Event, MEMORY_NEAR_FRACTION, Partner, Pool, Seat, TOGETHER_SECONDS, UNFIT_SECONDS};
use crate::jobs::Ended;
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
        let rest_watts = self.rest_watts(device);
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
            if let Some(watts) = rest_watts {
                self.outcome.rest_watt_hours += watts * hours;
                self.outcome.power_known_hours += hours;
            }
        }
    }

    /// What a GPU at rest draws, by what its tenants draw alone.
    fn rest_watts(&self, device: usize) -> Option<f64> {
        let watts = self.devices[device]
            .seats
            .iter()
            .map(|seat| self.jobs[seat.job].usage.power_watts.map(f64::from));
        let least = watts.collect::<Option<Vec<f64>>>()?.into_iter().reduce(f64::min)?;
        Some(least * POWER_IDLE_FRACTION)
    }

    /// A job comes to a device.
    pub(super) fn seat(&mut self, device: usize, number: usize, member: &Member) {
        let job = &self.jobs[number];
        let kind = self.work.kind(job);
        if !self.waiting.remove(kind.gpu_type, (job.order, number)) {
            return;
        }
        let model = &self.setting.gpu_types[kind.gpu_type as usize].name;
        let node = &mut self.nodes[self.devices[device].node];
        // The planner looks at both before it places anybody.
        node.cpus_free = node.cpus_free.checked_sub(job.cpus).expect("no node is overbooked");
        node.memory_mib_free =
            node.memory_mib_free.checked_sub(job.memory_mib).expect("no node is overbooked");
        self.outcome.started_at[number].get_or_insert(self.now);
        self.devices[device].seats.push(Seat {
            job: number,
            profile: Box::new(profile_of(kind, model, &job.usage)),
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
        let fits = this.seats.len() < 2 || self.fits_memory(this);
        let present: Vec<Present<'_>> = this.seats.iter().map(|seat| self.present(seat)).collect();
        let foretold = Foretold::of(&present, &self.setting.speeds);
        let speeds = match &present[..] {
            [] => Some(Vec::new()),
            [one] if one.sharing.cap().is_none() => Some(vec![1.0]),
            several => self.truth.speeds(several, &foretold).filter(|_| fits),
        };
        if has_come && present.len() > 1 {
            let risk = foretold.risk(self.setting.policy.slowdown_ratio_max);
            self.count_group(device, risk, speeds.as_deref());
        }
        self.go_on(device, speeds.as_deref());
        self.wait_for(device);
    }

    /// Everybody here at the speed that he has from now on; `None`: they do not fit.
    fn go_on(&mut self, device: usize, speeds: Option<&[f64]>) {
        let this = &mut self.devices[device];
        this.unfit_at = speeds.is_none().then_some(self.now + UNFIT_SECONDS);
        let partners: Vec<usize> = this.seats.iter().map(|seat| seat.job).collect();
        for (at, seat) in this.seats.iter_mut().enumerate() {
            seat.speed = speeds.map_or(0.0, |speeds| speeds[at]);
            if partners.len() > 1 {
                seat.partner = met(seat.partner, seat.job, &partners);
            }
        }
        this.version += 1;
    }

    fn present<'s>(&'s self, seat: &'s Seat) -> Present<'s> {
        let job = &self.jobs[seat.job];
        // A run of which nobody says anything is taken for what its workload is known to be.
        let known = self.known[job.kind as usize].as_ref().filter(|_| !job.usage.is_profile());
        let profile = known.map_or(&*seat.profile, |known| &known.profile);
        Present { workload: self.work.kind(job).workload, profile, sharing: seat.sharing }
    }

    /// Whether what these very runs need at most is there: profiles are of other runs.
    fn fits_memory(&self, device: &Device) -> bool {
        let Some(all) = self.setting.gpu_types[device.gpu_type as usize].memory_bytes else { return true };
        self.memory_of(device) <= all
    }

    fn memory_of(&self, device: &Device) -> u64 {
        device.seats.iter().filter_map(|seat| self.present(seat).profile.memory_bytes_peak).sum()
    }

    /// Several are together that were not before: what the model says of it, what is foretold, what comes of it (`None`: they do not
    /// fit), and how full the memory is.
    fn count_group(&mut self, device: usize, risk_foretold: f64, speeds: Option<&[f64]>) {
        let this = &self.devices[device];
        let seen = this.seats.iter().map(|seat| self.known[self.jobs[seat.job].kind as usize].as_ref());
        // Of one of which nothing is known the planner would not have let it share.
        let tenants: Option<Vec<TenantInput<'_>>> = seen
            .zip(&this.seats)
            .map(|(known, seat)| Some(TenantInput { profile: &known?.profile, sharing: seat.sharing }))
            .collect();
        let model = &self.setting.gpu_types[this.gpu_type as usize];
        let promise = self.setting.policy.slowdown_ratio_max;
        let estimates = tenants.and_then(|tenants| self.model.predict(&tenants, &model.name).ok());
        let risk: f64 =
            estimates.unwrap_or_default().iter().map(|estimate| estimate.break_probability(promise)).sum();
        let used = self.memory_of(this);
        #[expect(clippy::cast_precision_loss, reason = "memory is far below 2^53 bytes")]
        let fill = model.memory_bytes.map_or(0.0, |all| used as f64 / all.max(1) as f64);
        let is_kept = |speed: &&f64| keeps_promise(**speed, promise.value());
        let broken = speeds.map_or(0, |speeds| speeds.len() - speeds.iter().filter(is_kept).count());
        let tenancies = this.seats.len();
        let outcome = &mut self.outcome;
        outcome.groups += 1;
        outcome.tenancies += tenancies;
        outcome.risk_sum += risk;
        outcome.risk_foretold_sum += risk_foretold;
        outcome.broken += broken;
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
            let known = &mut self.known[job.kind as usize];
            known
                .get_or_insert_with(|| Known::new(self.work.kind(job).key.clone(), model))
                .add_solo(job, &seat.profile);
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
        let known = self.known[job.kind as usize].as_ref();
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
                tenant(&self.work.kind(job).key, seat.sharing, Some(speed)),
                tenant(&self.work.kind(&self.jobs[partner]).key, sharing, None),
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
            workload: self.work.kind(&self.jobs[seat.job]).key.clone(),
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
            self.wait(seat.job);
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
