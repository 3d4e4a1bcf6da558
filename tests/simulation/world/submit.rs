//! What users submit.

use super::{BOUND_SECONDS, GRES_TYPES, HEAVY, JOBS_MAX, LIE_BYTES, LIGHT, USERS, WORKLOADS, World};
use crate::faulty::is_over;
use crate::node::Work;
use crate::users::{STRICT, mark_of};
use pillion_core::device::TENANTS_MAX;
use pillion_core::mark::Mark;
use pillion_core::{NodeName, SlurmJobId, UnixTime, UserId};
use pillion_fake_slurm::{FakeArray, FakeJob};
use rand::Rng;
use std::time::Duration;

/// Makes it a job of these devices of a node, which are those that Slurm gives it where nobody of ours says otherwise.
fn widen(mark: &mut Mark, devices: &[&str]) {
    mark.original_gres = format!("gpu:{}", devices.len()).into();
    mark.fallback = Some(devices.join(",").parse().expect("devices"));
}

impl World {
    /// Everybody's workloads run once, without faults, so that the engine knows them on both models.
    pub(crate) async fn warm_up(&mut self) {
        let widths: &[bool] = if self.settings.policy.share_wide { &[false, true] } else { &[false] };
        for ((user, uid), is_wide) in
            USERS.into_iter().flat_map(|user| widths.iter().map(move |own| (user, *own)))
        {
            for workload in WORKLOADS {
                for excluded in ["n1", "n2"] {
                    let mut mark = mark_of(workload);
                    if is_wide {
                        widen(&mut mark, &GRES_TYPES[..2]);
                    }
                    let is_strict = !self.settings.job_policy.is_uniform() && self.rng.random_bool(0.3);
                    let id = self.slurm.submit(FakeJob {
                        qos: if is_strict { STRICT } else { "normal" }.to_owned(),
                        uid: UserId(uid),
                        user: user.to_owned(),
                        begin: Some(self.now + Duration::from_secs(BOUND_SECONDS)),
                        excluded_nodes: vec![NodeName::new(excluded)],
                        gres: mark.fallback_shards(),
                        admin_comment: mark.to_string(),
                        ..FakeJob::default()
                    });
                    self.works.insert(id, Work::of(workload, 12.0, UserId(uid)));
                }
            }
        }
        while !self.unfinished().is_empty() {
            self.run_for(10).await;
        }
    }

    /// Who is a guest; a number may be given again.
    pub(super) fn keep_class(&mut self, id: SlurmJobId, as_guest: bool) {
        if as_guest {
            self.guests.insert(id);
        } else {
            self.guests.remove(&id);
        }
    }

    /// All devices of a node, or all but one: which one differs, as `pillion.lua` spreads those that it names.
    fn some_devices(&mut self) -> Vec<&'static str> {
        let mut devices = GRES_TYPES.to_vec();
        if self.rng.random_bool(0.75) {
            devices.remove(self.below(GRES_TYPES.len()));
        }
        devices
    }

    /// Some are arrays. Where copies may be many, they come as such whose tasks run at once.
    fn array(&mut self, may_be_sweep: bool) -> Option<FakeArray> {
        let has_copies = self.settings.policy.tenants_max > TENANTS_MAX;
        if has_copies && may_be_sweep && self.rng.random_bool(0.3) {
            return Some(FakeArray { tasks: (1..=6).collect(), throttle: None });
        }
        self.rng.random_bool(0.1).then(|| FakeArray { tasks: vec![1, 2, 3], throttle: Some(1) })
    }

    pub(super) fn submit(&mut self) {
        let unfinished = self.works.keys().filter(|id| !is_over(&self.slurm, **id)).count();
        if unfinished >= JOBS_MAX || self.is_slurmctld_down {
            return;
        }
        if !self.is_cut && self.rng.random_bool(0.1) {
            self.submit_session();
        } else {
            self.submit_batch();
        }
    }

    /// What a job does. `is_lie`: far more than it was known for.
    fn work_of(&mut self, workload: &'static str, uid: u32, is_lie: bool) -> Work {
        if is_lie {
            let known = Work::of(HEAVY, self.rng.random_range(60.0..200.0), UserId(uid));
            return Work { memory_bytes: Some(LIE_BYTES), ..known };
        }
        Work::of(workload, self.rng.random_range(5.0..60.0), UserId(uid))
    }

    fn submit_batch(&mut self) {
        // Where more than two may share, jobs come often that leave room for a third.
        let is_light = self.settings.policy.tenants_max > 2 && self.rng.random_bool(0.5);
        // Where devices are cut, there is to be somebody whom an instance suits, and not a device for each.
        let is_light = is_light || (self.is_cut && self.rng.random_bool(0.7));
        let is_crowded = self.is_cut && self.rng.random_bool(0.6);
        // Some do far more than they were known for: beside them promises break. Where devices are cut nobody lies: a store that
        // forgot what it knew would learn the lie, and with it too small a limit.
        let is_lie = self.rng.random_bool(0.2) && !self.is_cut;
        let workload = if is_light || is_lie { LIGHT } else { WORKLOADS[self.below(WORKLOADS.len())] };
        let (user, uid) = USERS[self.below(USERS.len())];
        // Where jobs of several devices share them, many come, and light ones.
        let shares_wide = self.settings.policy.share_wide;
        let is_wide = self.rng.random_bool(if shares_wide { 0.6 } else { 0.12 });
        let workload = if shares_wide && is_wide && self.rng.random_bool(0.7) { LIGHT } else { workload };
        let mut mark = mark_of(workload);
        if is_wide {
            widen(&mut mark, &self.some_devices());
        }
        if self.rng.random_bool(0.2) {
            mark.slowdown_ratio_max = Some(1.05);
        }
        // One that did not ask for co-location; where nobody waits, Slurm starts it by itself.
        mark.plain = self.rng.random_bool(0.12);
        // And one that makes room for all others.
        mark.as_guest = !is_wide && !mark.plain && self.rng.random_bool(0.2);
        let is_slurms = mark.plain && self.rng.random_bool(0.5);
        let bound = if is_slurms { 0 } else { BOUND_SECONDS };
        let mut begin = self.now + Duration::from_secs(bound);
        if self.rng.random_bool(0.1) {
            let own = self.now + Duration::from_secs(self.rng.random_range(10..300));
            mark.original_begin_epoch = own.epoch();
            begin = if own > begin { UnixTime::from_epoch(own.epoch()) } else { begin };
        }
        // Some are on both nodes, of which Slurm then gives it the same devices.
        let is_on_both = !self.is_cut && !mark.as_guest && self.rng.random_bool(0.08);
        mark.nodes = is_on_both.then_some(2);
        let array = if is_on_both { None } else { self.array(is_light && !is_wide) };
        let tasks = array.as_ref().map(|array| array.tasks.clone());
        let dependency = self.works.keys().next_back().copied().filter(|_| self.rng.random_bool(0.05));
        let id = self.slurm.submit(FakeJob {
            uid: UserId(uid),
            user: user.to_owned(),
            begin: Some(begin),
            array,
            dependency,
            excluded_nodes: match self.rng.random_bool(0.1) {
                _ if is_on_both => Vec::new(),
                _ if is_crowded => vec![NodeName::new("n2")],
                true => vec![NodeName::new("n1")],
                false => Vec::new(),
            },
            gres: mark.fallback_shards(),
            node_count: mark.node_count(),
            admin_comment: mark.to_string(),
            ..FakeJob::default()
        });
        self.note(format!("submit {id} {workload} of {user}, {mark}"));
        let ids = tasks.map_or(vec![id], |tasks| {
            tasks.into_iter().map(|task| SlurmJobId::array_task(id.id, task)).collect()
        });
        for id in ids {
            self.keep_class(id, mark.as_guest);
            self.submitted_gres.insert(id, mark.fallback_shards());
            let work = self.work_of(workload, uid, is_lie && !is_wide);
            self.works.insert(id, work);
        }
    }
}
