//! The one thread that owns the devices: takes samples of them, carries shares out and takes them back. Everything that calls a
//! driver or writes the node's state happens here, in the order in which it was asked for.
//!
//! ```text
//!  uplink ─ Prepare, Revoke ─┐                ┌─ reports ─► journal
//!  handoff ─ Register ───────┼─► this thread ─┼─ answers ─► uplink
//!  timer, pokes ─ Look ──────┘                └─ shares ──► handoff (Node)
//! ```

use crate::backoff::Backoff;
use crate::disk;
use crate::ending::Endings;
use crate::health::{self, Health};
use crate::inventory::Site;
use crate::looks;
use crate::mechanism::{MechanismError, Mechanisms, Prepared};
use crate::node::Node;
use crate::procfs::ProcFs;
use crate::sampler::{Sampler, SamplerState, SamplerTools};
use crate::share::Own;
use crate::tracker::Registration;
use pillion_core::device::{DeviceDescription, NoticeKind};
use pillion_core::health::{DeviceCondition, FaultKind};
use pillion_core::report::{EndOrder, FromAgent, JobSummary, ReportBody, ShareResult};
use pillion_core::share::Share;
use pillion_core::{Clock, DecisionId, GresType, GresTypes, JobStart, UnixTime};
use pillion_device::{Backend, DeviceError, DeviceStates};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use tracing::{info, warn};

/// How often runs in progress are written down: what a killed agent loses of them at most.
const SAVE_SECONDS: f64 = 15.0;

/// What the thread is asked for.
#[derive(Debug)]
pub enum Command {
    /// Look at the devices now.
    Sample,
    /// Carry out a share.
    Prepare(Share),
    /// Take it back.
    Revoke { decision_id: DecisionId, start: JobStart },
    /// A task is about to begin.
    Register(Registration),
    /// A start is being ended.
    End { start: JobStart, order: EndOrder },
    /// Go on with those that are.
    GoOnEnding,
    /// A start begins that has all of this device, as far as Slurm says.
    /// Whoever asks waits until `until`, and asks again: it is tried once.
    Whole { gres_type: GresType, start: JobStart, until: Instant, done: oneshot::Sender<Result<(), String>> },
}

/// What the thread works with.
pub struct Devices {
    backend: Box<dyn Backend>,
    clock: Arc<dyn Clock>,
    node: Arc<Node>,
    mechanisms: Mechanisms,
    sampler: Sampler,
    proc: ProcFs,
    state_path: PathBuf,
    saved_at: UnixTime,
    backend_fails: bool,
    health: Health,
    site: Site,
    backoff: Backoff,
    endings: Endings,
    /// Interactive jobs that are over, by the scheduler's word, and whose last tasks are still here.
    leaving: BTreeSet<JobStart>,
    /// Starts that were ended because they held more memory than their share allows, until they are over.
    over_limit: BTreeSet<JobStart>,
    conditions: watch::Sender<Vec<DeviceCondition>>,
    reports: mpsc::Sender<ReportBody>,
    answers: mpsc::Sender<FromAgent>,
}

/// Why a share was not set up.
struct Refusal {
    text: String,
    /// The device whose CCS mode could not be changed because its card is in use, and what the driver said.
    mode_held: Option<(u32, String)>,
}

impl Refusal {
    fn of(device: &DeviceDescription, error: &MechanismError) -> Self {
        let mode_held = match error {
            // The share's own device: a driver may say it of another tile of the card.
            MechanismError::Device(DeviceError::Busy { reason, .. }) if device.mechanism.has_modes() => {
                Some((device.index, reason.clone()))
            }
            _ => None,
        };
        Self { text: pillion_core::report(error), mode_held }
    }
}

impl From<String> for Refusal {
    fn from(text: String) -> Self {
        Self { text, mode_held: None }
    }
}

/// What [`Devices`] is made of.
pub struct DevicesParts {
    pub backend: Box<dyn Backend>,
    pub clock: Arc<dyn Clock>,
    /// What the node's parts of the agent share.
    pub node: Arc<Node>,
    pub mechanisms: Mechanisms,
    /// What the sampler takes samples with.
    pub tools: SamplerTools,
    /// What the site says of the devices.
    pub site: Site,
    /// Where runs in progress are written down.
    pub state_path: PathBuf,
    /// Starts that are being ended.
    pub endings: Endings,
    /// How the devices are, for the scheduler.
    pub conditions: watch::Sender<Vec<DeviceCondition>>,
    /// To the journal.
    pub reports: mpsc::Sender<ReportBody>,
    /// To the scheduler.
    pub answers: mpsc::Sender<FromAgent>,
}

impl Devices {
    /// Goes on where an earlier agent stopped.
    pub fn new(parts: DevicesParts) -> Self {
        let DevicesParts {
            backend,
            clock,
            node,
            mechanisms,
            tools,
            site,
            state_path,
            endings,
            conditions,
            reports,
            answers,
        } = parts;
        let state: SamplerState = disk::read_or_default(&state_path);
        for tracked in state.starts() {
            node.restore_begun(tracked.start, tracked.gres_types.iter().cloned());
        }
        let saved_at = clock.now();
        let proc = tools.proc.clone();
        let sampler = Sampler::new(tools, state);
        let health = Health::new(&node.devices());
        Self {
            backend,
            clock,
            node,
            mechanisms,
            sampler,
            proc,
            state_path,
            saved_at,
            backend_fails: false,
            health,
            site,
            backoff: Backoff::new(Instant::now()),
            endings,
            leaving: BTreeSet::new(),
            over_limit: BTreeSet::new(),
            conditions,
            reports,
            answers,
        }
    }

    /// Works until nobody can ask any more; then writes down what is in progress.
    pub fn run(mut self, mut commands: mpsc::Receiver<Command>) {
        self.mechanisms.begin(self.backend.as_mut(), &self.node.devices());
        self.restore_mechanisms(&self.node.all_shares());
        while let Some(command) = commands.blocking_recv() {
            match command {
                Command::Sample => self.sample(),
                Command::Prepare(share) => self.prepare(share),
                Command::Revoke { decision_id, start } => self.revoke(decision_id, start),
                Command::Register(registration) => {
                    self.sampler.register(registration);
                    self.save();
                }
                Command::End { start, order } => self.end(start, order),
                Command::GoOnEnding => self.go_on_ending(),
                Command::Whole { gres_type, start, until, done } => {
                    // Later it has begun without.
                    if Instant::now() < until {
                        let _ = done.send(self.make_whole(&gres_type, start));
                    }
                }
            }
        }
        self.endings.let_all_go();
        self.save();
    }

    /// After the machine came up again, the mechanisms of shares that still wait for their job are set up anew.
    fn restore_mechanisms(&mut self, shares: &[Share]) {
        for share in shares {
            // Nothing is cut for one that ended while no agent ran, and is only not told yet.
            if share.mechanism().has_instances() && self.sampler.is_over(share.start) {
                continue;
            }
            for group in share.device_groups() {
                let Ok(devices) = self.node.devices_of(&group) else { continue };
                let others = shares.iter().filter(|other| devices.iter().any(|device| on(device, other)));
                match self.mechanisms.prepare(self.backend.as_mut(), &devices, others, share) {
                    Ok(prepared) => {
                        let own = self.prepared(&devices, share.start, &prepared);
                        self.node.set_own(share.start, own);
                    }
                    Err(error) => {
                        warn!(start = %share.start, error = %pillion_core::report(&error), "share from before cannot be set up");
                    }
                }
            }
        }
    }

    /// Takes up devices that are new, with their mechanisms.
    fn look_for_devices(&mut self) {
        let watching = (&mut self.health, &mut self.sampler);
        let new =
            looks::for_devices(self.backend.as_mut(), &self.site, &self.node, &mut self.backoff, watching);
        if new.is_empty() {
            return;
        }
        // Those on the others have theirs.
        let shares: Vec<Share> = self
            .node
            .all_shares()
            .into_iter()
            .filter(|share| new.iter().any(|device| on(device, share)))
            .collect();
        self.mechanisms.begin(self.backend.as_mut(), &new);
        self.mechanisms.take_up(&new, &shares);
        self.restore_mechanisms(&shares);
    }

    fn sample(&mut self) {
        if self.backoff.is_due(Instant::now()) {
            self.look_for_devices();
        }
        let begun = Instant::now();
        let states = looks::at_all(self.backend.as_mut(), &self.node);
        let now = self.clock.now();
        self.node.figures().sampled(now, begun.elapsed());
        looks::count(&self.node, states.as_ref().ok());
        self.watch_health(now, states.as_ref());
        let states = looks::or_nothing(states, &mut self.backend_fails);
        let sampled = self.sampler.sample(now, states);
        self.node.figures().tenants(&sampled.tenants);
        self.health.outsiders(now, &sampled.outsiders);
        for holding in &sampled.holdings {
            self.hold_to_limit(now, holding);
        }
        for mut report in sampled.reports {
            if let ReportBody::JobSummary(summary) = &mut report {
                self.add_limit(summary);
            }
            self.tell(report);
        }
        for start in &sampled.ended {
            self.over_limit.remove(start);
            self.ended(*start);
        }
        let shares = self.node.all_shares();
        self.mechanisms.settle(self.backend.as_mut(), &self.node.devices(), &shares);
        self.settle_instances(now, &shares);
        let due = !self.sampler.is_idle() && now.seconds_since(self.saved_at) >= SAVE_SECONDS;
        if due || !sampled.ended.is_empty() {
            self.save();
        }
    }

    /// What the sampler does not know of a start: the limit that its share set for each of its processes, and whether it was ended
    /// because all of them held more.
    fn add_limit(&self, summary: &mut JobSummary) {
        let share = self.node.share(summary.start).filter(|share| share.mechanism().has_daemon());
        if let Some(signs) = &mut summary.signs {
            signs.process_bytes_limit = share.and_then(|share| share.sharing.memory_limit_bytes());
            signs.was_over_limit = self.over_limit.contains(&summary.start);
        }
    }

    /// What the sample and the drivers' notices say of the devices; the scheduler hears of it where it changed.
    fn watch_health(&mut self, now: UnixTime, states: Result<&DeviceStates, &DeviceError>) {
        self.health.sampled(now, states);
        for notice in self.backend.notices() {
            // A tenant that it took along is dated so too.
            let has_died = notice.kind == NoticeKind::MpsDied;
            let at = if has_died { self.sampler.gone_since(now) } else { now };
            // How it is divided is looked at anyway where that is ours to do.
            if notice.kind == NoticeKind::Divided && self.is_cut_by_us(notice.index) {
                continue;
            }
            self.health.noticed(at, &notice);
            self.sampler.noticed(now, &notice);
            match health::sentence(&notice) {
                (sentence, true) => warn!(device = notice.index, "{sentence}"),
                (sentence, false) => info!(device = notice.index, "{sentence}"),
            }
        }
        looks::tell(&self.health, &self.node, &self.conditions);
    }

    fn ended(&mut self, start: JobStart) {
        self.endings.forget(start);
        let is_leaving = self.leaving.remove(&start);
        if !is_leaving && self.node.share(start).is_some_and(|share| share.is_session) {
            // Who sits in front of it may begin the next step, which is to be as the one before.
            info!(%start, "no task of an interactive job is left; its share stays until it is over");
            return;
        }
        let share = self.node.remove_share(start);
        self.node.remove_marker(start);
        self.node.end(start);
        info!(%start, decision = share.as_ref().map(|share| share.decision_id.0), "start is over");
        if let Some(share) = share {
            self.left(&share);
        }
    }

    fn left(&mut self, share: &Share) {
        let remaining = self.node.all_shares();
        for group in share.device_groups() {
            if let Some(device) = self.node.device(group.first()) {
                self.mechanisms.left(&group, device.mechanism, remaining.iter());
            }
        }
    }

    fn prepare(&mut self, share: Share) {
        let (decision_id, start, mechanism) = (share.decision_id, share.start, share.mechanism());
        let prepared = self.try_prepare(share.clone()).or_else(|_| {
            // The scheduler hears from Slurm, perhaps before us, that the tenant in the way has left. It takes two samples to
            // believe that somebody is gone.
            self.sample();
            self.sample();
            self.try_prepare(share)
        });
        self.node.set_cut(self.mechanisms.mig().cut());
        let error = prepared.err().map(|refusal| {
            if let Some((index, reason)) = refusal.mode_held {
                self.health.mode_refused(self.clock.now(), index, reason);
            }
            refusal.text
        });
        self.node.figures().set_up(mechanism, error.is_none());
        match &error {
            None => info!(%start, decision = %decision_id, "share prepared"),
            Some(reason) => warn!(%start, decision = %decision_id, reason, "share cannot be prepared"),
        }
        self.answer(FromAgent::ShareResult(ShareResult { decision_id, start, error, revoked: false }));
    }

    /// One group of a share's devices. What of them is the start's own is nothing where there are several.
    fn try_prepare_on(&mut self, group: &GresTypes, share: &Share) -> Result<Own, Refusal> {
        let devices = self.node.devices_of(group)?;
        let mut others = self.node.all_shares();
        others.retain(|other| devices.iter().any(|device| on(device, other)));
        // What was planned before it came, or was not heard of.
        if !others.is_empty() && devices.iter().any(|device| self.health.has_outsider(device.index)) {
            return Err(FaultKind::Outsider.phrase().to_owned().into());
        }
        let prepared = self.mechanisms.prepare(self.backend.as_mut(), &devices, others.iter(), share);
        let prepared = prepared.map_err(|error| Refusal::of(&devices[0], &error))?;
        Ok(self.prepared(&devices, share.start, &prepared))
    }

    fn try_prepare(&mut self, share: Share) -> Result<(), Refusal> {
        if share.mechanism().has_instances()
            && let Some(other) = self.without_share(&share)
        {
            return Err(format!("start {other} has device {} without a share", share.gres_types).into());
        }
        let mut own = Own::default();
        for group in share.device_groups() {
            own = self.try_prepare_on(&group, &share)?;
        }
        // A job that was requeued leaves the share of its earlier start behind.
        for earlier in self.node.all_shares() {
            if earlier.start.job_id == share.start.job_id && earlier.start != share.start {
                self.node.remove_share(earlier.start);
                self.left(&earlier);
            }
        }
        let inserted = self.node.insert_share(share, own);
        inserted.map_err(|error| format!("the share cannot be written down: {error}").into())
    }

    /// Keeps what the others are to be told, and tells operators where a cap is not what the site wants. Returns what is the
    /// tenant's own.
    fn prepared(&mut self, devices: &[DeviceDescription], start: JobStart, prepared: &Prepared) -> Own {
        for device in devices {
            self.tell_of_lacks(device, start, prepared);
        }
        for (other, name) in &prepared.others {
            let own = self.node.own(*other);
            self.node.set_own(*other, Own { mps_partition: Some(name.clone()), ..own });
        }
        Own { mps_partition: prepared.partition.clone(), instance: prepared.instance.clone() }
    }

    fn tell_of_lacks(&mut self, device: &DeviceDescription, start: JobStart, prepared: &Prepared) {
        let Prepared { partition, without_partition, without_multi_user, .. } = prepared;
        if let Some(reason) = without_multi_user {
            warn!(device = device.index, reason, "no multi-user mode; jobs of one user share the device");
            self.health.serves_one_user(self.clock.now(), device.index, reason);
        }
        if let Some(reason) = without_partition {
            warn!(%start, device = device.index, reason, "no static SM partition; the cap is only a cap");
        }
        let is_first = !self.node.shares_on(&device.gres_type).iter().any(|other| other.start != start);
        // One who joins without a cap says nothing of those who have one.
        if is_first || partition.is_some() || without_partition.is_some() {
            self.health.partitioned(self.clock.now(), device.index, without_partition.clone());
        }
    }

    fn revoke(&mut self, decision_id: DecisionId, start: JobStart) {
        let held = self.node.share(start).filter(|share| share.decision_id == decision_id);
        let error = match held {
            Some(share) if self.sampler.is_tracked(start) => {
                if share.is_session {
                    self.leaving.insert(start);
                }
                Some(format!("start {start} runs already; its share ends with it"))
            }
            Some(share) => {
                self.node.remove_share(start);
                self.node.remove_marker(start);
                self.node.end(start);
                self.left(&share);
                info!(%start, decision = %decision_id, "share taken back");
                None
            }
            None => None,
        };
        self.answer(FromAgent::ShareResult(ShareResult { decision_id, start, error, revoked: true }));
    }

    fn tell(&self, report: ReportBody) {
        if self.reports.blocking_send(report).is_err() {
            warn!("the journal takes no more reports");
        }
    }

    fn answer(&self, answer: FromAgent) {
        // Nobody listens: the scheduler asks again when it is back.
        let _ = self.answers.try_send(answer);
    }

    fn save(&mut self) {
        self.saved_at = self.clock.now();
        looks::save(&self.sampler, &self.state_path);
    }
}

fn on(device: &DeviceDescription, share: &Share) -> bool {
    share.gres_types.contains(&device.gres_type)
}

mod ending;
mod instances;
mod limits;

#[cfg(test)]
mod tests;
