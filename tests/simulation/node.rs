//! One node of the simulation: a simulated machine, and an agent that can die. The agent's pure rooms are the real ones
//! (`share::environment`, `accumulator`); what is imitated here is their shell: a socket, a journal, a process table.

mod look;
mod session;

use crate::instances::Instances;
use pillion_agent::accumulator::DeviceRuns;
use pillion_agent::share::{SharePaths, environment, is_for};
use pillion_core::device::{DeviceDescription, Mechanism};
use pillion_core::fault::FaultSigns;
use pillion_core::health::DeviceCondition;
use pillion_core::mig::{Geometry, Slot};
use pillion_core::report::{
    AgentHello, EndOrder, EndOutcome, EndResult, JobSummary, Launch, Report, ReportBody, ShareResult, ToAgent,
};
use pillion_core::share::Share;
use pillion_core::{GresType, GresTypes, JobStart, NodeName, UnixTime, UserId};
use pillion_device::simulated::{AttachRequest, ClientId, InProcess, Machine, MachineConfig, Phase};
use pillion_device::{Backend, MpsControl, MpsPlace, MpsSettings};
use pillion_fake_slurm::FakeSlurm;
use pillion_slurm::JobState;
use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What is on the device at the start of an interactive job.
const SHELL_SECONDS: f64 = 0.1;

/// A job as it runs on the node.
#[derive(Debug, Clone)]
pub(crate) struct Running {
    pub(crate) start: JobStart,
    pub(crate) gres_type: GresType,
    pub(crate) client: ClientId,
    pub(crate) pid: u32,
    /// The mechanism that it shares by, if it got one.
    pub(crate) mechanism: Option<Mechanism>,
    /// Its instance, if it got one.
    pub(crate) slot: Option<Slot>,
    pub(crate) uid: UserId,
    /// It is interactive: it goes on between its programs.
    pub(crate) shell: Option<session::Shell>,
}

impl Running {
    /// Whether it got a sharing mechanism.
    pub(crate) fn is_shared(&self) -> bool {
        self.mechanism.is_some()
    }
}

/// What a job is, for the device.
#[derive(Debug, Clone)]
pub(crate) struct Work {
    pub(crate) workload: &'static str,
    pub(crate) batch_size: Option<u32>,
    pub(crate) seconds: f64,
    /// What it holds; `None`: as its workload does.
    pub(crate) memory_bytes: Option<u64>,
    pub(crate) uid: UserId,
    /// An interactive job, which is there for so many seconds.
    pub(crate) is_session: bool,
    /// It has no script, so nobody can start it again.
    pub(crate) is_interactive: bool,
}

impl Work {
    /// As its workload is known.
    pub(crate) const fn of(workload: &'static str, seconds: f64, uid: UserId) -> Self {
        Self {
            workload,
            batch_size: None,
            seconds,
            memory_bytes: None,
            uid,
            is_session: false,
            is_interactive: false,
        }
    }
}

/// A node with its agent.
pub(crate) struct Node {
    pub(crate) name: NodeName,
    machine: Arc<Mutex<Machine>>,
    backend: InProcess,
    pub(crate) devices: Vec<DeviceDescription>,
    pub(crate) is_agent_alive: bool,
    /// On the agent's disk: survives its death.
    shares: BTreeMap<JobStart, Share>,
    journal: VecDeque<Report>,
    /// What it answered to orders to end somebody, not delivered yet; gone with the stream.
    pub(crate) end_results: Vec<EndResult>,
    next_sequence: u64,
    runs: BTreeMap<GresType, DeviceRuns>,
    pub(crate) running: Vec<Running>,
    looked_at: Option<UnixTime>,
    /// When each device was told of last, and whether somebody was on it then.
    told_at: BTreeMap<GresType, (UnixTime, bool)>,
    /// How far its clock is ahead of everybody else's; negative = behind.
    pub(crate) clock_ahead_seconds: f64,
    /// How its devices are cut.
    pub(crate) instances: Instances,
}

impl Node {
    pub(crate) fn new(name: &str, model: &str, device_count: usize) -> Self {
        let machine = Machine::new(&MachineConfig::plain(name, model, device_count)).expect("a known model");
        let machine = Arc::new(Mutex::new(machine));
        let mut backend = InProcess::new(Arc::clone(&machine));
        let devices = backend.devices().expect("it has devices");
        Self {
            name: NodeName::new(name),
            machine,
            backend,
            devices,
            is_agent_alive: true,
            shares: BTreeMap::new(),
            journal: VecDeque::new(),
            end_results: Vec::new(),
            next_sequence: 1,
            runs: BTreeMap::new(),
            running: Vec::new(),
            looked_at: None,
            told_at: BTreeMap::new(),
            clock_ahead_seconds: 0.0,
            instances: Instances::default(),
        }
    }

    /// Its agent cuts its devices, of which `foreign` have instances that somebody else has made.
    pub(crate) fn let_be_cut(&mut self, foreign: BTreeMap<GresType, Slot>, tells_empty: bool) {
        for device in &mut self.devices {
            device.geometry = Geometry::of_model(&device.model).cloned();
        }
        self.instances = Instances::new(foreign, tells_empty);
    }

    /// How its devices are, as its agent tells.
    pub(crate) fn conditions(&self, now: UnixTime) -> Vec<DeviceCondition> {
        self.instances.conditions(&self.devices, self.clock(now))
    }

    /// Who runs in which instance.
    pub(crate) fn walled(&self) -> Vec<(JobStart, GresType, Slot)> {
        let walled =
            self.running.iter().filter_map(|run| Some((run.start, run.gres_type.clone(), run.slot?)));
        walled.collect()
    }

    /// What its clock shows.
    fn clock(&self, now: UnixTime) -> UnixTime {
        UnixTime::from_seconds(now.seconds() + self.clock_ahead_seconds)
    }

    pub(crate) fn hello(&self, now: UnixTime) -> AgentHello {
        AgentHello {
            protocol_version: pillion_core::report::PROTOCOL_VERSION,
            node: self.name.clone(),
            agent_version: "simulation".to_owned(),
            journal_id: self.journal_id(),
            devices: self.devices.clone(),
            sent_at: self.clock(now),
            decision_ids: self.shares.values().map(|share| share.decision_id).collect(),
            conditions: self.conditions(now),
            setup: None,
            observes: false,
        }
    }

    pub(crate) fn journal_id(&self) -> String {
        format!("journal-{}", self.name)
    }

    /// Carries out an order of the scheduler; the answer to a share.
    pub(crate) fn order(&mut self, order: &ToAgent) -> Option<ShareResult> {
        match order {
            ToAgent::Prepare(share) => {
                let error = self.prepare(share).err();
                if error.is_none() {
                    self.shares.insert(share.start, share.clone());
                }
                Some(ShareResult {
                    decision_id: share.decision_id,
                    start: share.start,
                    error,
                    revoked: false,
                })
            }
            ToAgent::Revoke { decision_id, start } => {
                if self.shares.get(start).is_some_and(|share| share.decision_id == *decision_id) {
                    self.shares.remove(start);
                    if !self.running.iter().any(|run| run.start == *start) {
                        self.instances.take_back(*start);
                    }
                }
                None
            }
            ToAgent::Ack(sequence) => {
                self.journal.retain(|report| report.sequence > *sequence);
                None
            }
            ToAgent::End { start, order } => {
                self.end_results.extend(self.end_result(*start, *order));
                None
            }
            ToAgent::Poke => None,
        }
    }

    /// Whoever runs here can be held, and leaves through its daemon; nobody is asked to let go who was not held.
    fn end_result(&self, start: JobStart, order: EndOrder) -> Option<EndResult> {
        let run = self.running.iter().find(|run| run.start == start)?;
        let outcome = match order {
            EndOrder::Hold => EndOutcome::Held,
            EndOrder::End { .. } => EndOutcome::Ended { client_count: 1 },
            EndOrder::LetGo => return None,
        };
        run.mechanism.is_some_and(Mechanism::has_daemon).then_some(EndResult { start, outcome })
    }

    fn prepare(&mut self, share: &Share) -> Result<(), String> {
        self.end_idle_daemons();
        share.gres_types.iter().try_for_each(|gres_type| self.prepare_on(gres_type, share))?;
        if share.mechanism() == Mechanism::Mps { self.start_daemon(&share.gres_types) } else { Ok(()) }
    }

    fn prepare_on(&mut self, gres_type: &GresType, share: &Share) -> Result<(), String> {
        let device = self.device(gres_type).ok_or("no such device")?.clone();
        if let Some(slot) = share.sharing.mig_slot() {
            let is_whole = self.running.iter().any(|run| run.gres_type == *gres_type && run.slot.is_none());
            return if is_whole {
                Err("somebody has all of it".to_owned())
            } else {
                self.instances.give(&device, slot, share)
            };
        }
        if self.instances.has_tenants(gres_type) {
            return Err("it is cut into instances".to_owned());
        }
        if !self.instances.make_whole(gres_type, |_| false) {
            return Err("held: its instances cannot be taken away".to_owned());
        }
        Ok(())
    }

    /// One for all of these devices.
    fn start_daemon(&mut self, gres_types: &GresTypes) -> Result<(), String> {
        let place = self.place(gres_types).ok_or("no such device")?;
        let status = MpsControl::status(&mut self.backend, &place).map_err(|error| error.to_string())?;
        if status.is_some() {
            return Ok(());
        }
        let settings = MpsSettings {
            pipe_directory: pipe_directory(gres_types),
            log_directory: pipe_directory(gres_types),
            multi_user: true,
            partitions: false,
            users: std::collections::BTreeSet::new(),
            cap_default: None,
            memory_limit_bytes_default: None,
        };
        MpsControl::prepare(&mut self.backend, &place, &settings).map_err(|error| error.to_string())
    }

    fn place(&self, gres_types: &GresTypes) -> Option<MpsPlace> {
        let mut indexes = gres_types.iter().map(|own| self.device(own).map(|device| device.index));
        Some(MpsPlace::set(indexes.next()??, indexes.collect::<Option<_>>()?))
    }

    /// Those of whom nobody has a share or runs beside another, as an agent ends them at its looks.
    fn end_idle_daemons(&mut self) {
        let sets = MpsControl::sets(&mut self.backend).expect("its devices are there");
        let each = self.devices.iter().map(|device| MpsPlace::device(device.index));
        for place in each.chain(sets).collect::<Vec<_>>() {
            let is_of = |own: &GresType| {
                self.device(own).is_some_and(|device| place.indexes().any(|index| index == device.index))
            };
            let is_used = self.running.iter().any(|run| is_of(&run.gres_type))
                || self.shares.values().any(|share| share.gres_types.iter().any(is_of));
            if !is_used {
                let _ = MpsControl::release(&mut self.backend, &place);
            }
        }
    }

    fn device(&self, gres_type: &GresType) -> Option<&DeviceDescription> {
        self.devices.iter().find(|device| device.gres_type == *gres_type)
    }

    /// Slurm starts a job here, with so many shards of each of these devices: the plugin asks the agent, the job opens its devices. A
    /// job id may have been given twice: the agent applies no share to another user's job, nor to one that holds more than it says.
    pub(crate) fn start(
        &mut self,
        start: JobStart,
        (gres_types, shards): (&[GresType], u32),
        work: &Work,
        now: UnixTime,
    ) {
        let booked = shards * u32::try_from(gres_types.len()).expect("a few");
        let fits = |share: &&Share| {
            is_for(share, work.uid, Some(booked))
                && share.gres_types.iter().all(|own| gres_types.contains(own))
        };
        let share = self.shares.get(&start).filter(|_| self.is_agent_alive).filter(fits).cloned();
        for gres_type in gres_types {
            self.start_on(gres_type, (start, shards), share.as_ref(), (work, now));
        }
        if self.is_agent_alive {
            let launch = Launch {
                at: self.clock(now),
                start,
                step_id: 0,
                decision_id: share.map(|share| share.decision_id),
                gres_types: gres_types.to_vec(),
                profile_name: None,
            };
            self.report(ReportBody::Launch(launch));
        }
    }

    fn start_on(
        &mut self,
        gres_type: &GresType,
        (start, shards): (JobStart, u32),
        share: Option<&Share>,
        (work, now): (&Work, UnixTime),
    ) {
        let device = self.device(gres_type).expect("Slurm books devices that are there").clone();
        let slot = share.and_then(|share| share.sharing.mig_slot());
        // Whoever has all that Slurm books of it, has the device whole, where somebody is there who makes it so.
        if shards == 100 && self.is_agent_alive {
            let running = &self.running;
            let runs = |start| running.iter().any(|run| run.start == start && run.slot.is_some());
            let is_whole = self.instances.make_whole(gres_type, runs);
            assert!(
                is_whole || share.is_none(),
                "{start} was prepared for all of {gres_type}, which is held"
            );
            let is_gone =
                |other: &Share| other.gres_types.contains(gres_type) && other.sharing.mig_slot().is_some();
            self.shares.retain(|other, share| *other == start || !is_gone(share));
        }
        let mut variables = vec![("SLURM_JOB_GPUS".to_owned(), device.index.to_string())];
        match device.mechanism {
            Mechanism::Ccs => variables.push(("ZE_AFFINITY_MASK".to_owned(), device.index.to_string())),
            Mechanism::Mps | Mechanism::Mig | Mechanism::MigMps | Mechanism::TimeSliced => {
                variables.push(("CUDA_VISIBLE_DEVICES".to_owned(), device.index.to_string()));
            }
        }
        if let Some(share) = share {
            let paths = SharePaths {
                progress: None,
                mps_pipe_directory: pipe_directory(&share.gres_types),
                mps_partition: None,
                instance: None,
            };
            let devices: Option<Vec<DeviceDescription>> =
                share.gres_types.iter().map(|own| self.device(own).cloned()).collect();
            for (name, value) in environment(share, &devices.expect("it was prepared"), &paths) {
                variables.retain(|(known, _)| *known != name);
                variables.push((name, value));
            }
        }
        let request = AttachRequest {
            workload: work.workload.to_owned(),
            batch_size: work.batch_size,
            // A shell is no program on the device.
            seconds: Some(if work.is_session { SHELL_SECONDS } else { work.seconds }),
            memory_bytes: work.memory_bytes,
            environment: variables.into_iter().collect(),
            // Of a set it sees all.
            device: share
                .filter(|share| share.mechanism().takes_several())
                .and_then(|share| share.gres_types.iter().position(|own| own == gres_type))
                .unwrap_or_default(),
            memory_steps: None,
        };
        let pid = 1000 + start.job_id.id * 100 + start.job_id.task.unwrap_or(0) * 10 + start.restart_count;
        let client =
            self.lock().attach(&request, pid, work.uid).expect("the workload and its environment are good");
        if self.is_agent_alive {
            let at = self.clock(now);
            self.runs.entry(gres_type.clone()).or_default().begin(start, at);
        }
        let mechanism = share.map(Share::mechanism).filter(|mechanism| mechanism.is_set_up());
        let shell = work.is_session.then_some(session::Shell { request });
        let (uid, gres_type) = (work.uid, gres_type.clone());
        self.running.push(Running { start, gres_type, client, pid, mechanism, slot, uid, shell });
    }

    /// Lets time pass on the devices.
    pub(crate) fn advance(&mut self, by: Duration) {
        self.lock().advance(by);
    }

    /// What its devices used since they were made.
    pub(crate) fn energy_joules(&self) -> f64 {
        let machine = self.lock();
        let of = |device: &DeviceDescription| {
            machine.counters(device.index).expect("it is there").totals.energy_joules
        };
        self.devices.iter().map(of).sum()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Machine> {
        self.machine.lock().expect("nobody panics with it")
    }

    /// Starts whose work is done or has failed: `true` = done.
    pub(crate) fn finished(&self) -> Vec<(JobStart, bool)> {
        let machine = self.lock();
        let phase = |run: &Running| machine.progress(run.client).map(|progress| progress.phase);
        self.running
            .iter()
            .filter_map(|run| match phase(run) {
                Some(Phase::Finished) if run.shell.is_none() => Some((run.start, true)),
                Some(Phase::Failed) => Some((run.start, false)),
                _ => None,
            })
            .collect()
    }

    /// Those who share a device with this start under MPS: a kill of it may end them too.
    pub(crate) fn beside_under_mps(&self, start: JobStart) -> Vec<JobStart> {
        let by_mps = |run: &&Running| run.mechanism == Some(Mechanism::Mps);
        let own = self.running.iter().filter(by_mps).find(|run| run.start == start);
        let others = self.running.iter().filter(by_mps).filter(|run| run.start != start);
        let beside = |run: &&Running| own.is_some_and(|own| own.gres_type == run.gres_type);
        others.filter(beside).map(|run| run.start).collect()
    }

    /// A start is over, however it ended: its process is gone.
    pub(crate) fn end(&mut self, start: JobStart, now: UnixTime) {
        let (runs, others) =
            std::mem::take(&mut self.running).into_iter().partition(|run| run.start == start);
        self.running = others;
        let runs: Vec<Running> = runs;
        let now = self.clock(now);
        for run in runs {
            self.end_on(&run, now);
        }
    }

    fn end_on(&mut self, run: &Running, now: UnixTime) {
        let start = run.start;
        self.lock().detach(run.client);
        let runs = self.runs.entry(run.gres_type.clone()).or_default();
        let summary = runs.end(start, now, &run.gres_type);
        self.shares.remove(&start);
        self.instances.take_back(start);
        // A dead agent finds its runs on disk when it comes back; what it did not see is not in them.
        if let Some(summary) = summary {
            // It looked for signs of a fault and saw none.
            let signs = Some(FaultSigns::default());
            self.report(ReportBody::JobSummary(Box::new(JobSummary { signs, ..summary })));
        }
        if self.is_agent_alive {
            self.end_idle_daemons();
        }
    }

    fn report(&mut self, body: ReportBody) {
        self.journal.push_back(Report { sequence: self.next_sequence, body });
        self.next_sequence += 1;
    }

    /// What waits to be delivered, oldest first.
    pub(crate) fn pending(&self, count: usize) -> Vec<Report> {
        self.journal.iter().take(count).cloned().collect()
    }
}

/// What Slurm ended, or has started anew, is killed on its node.
pub(crate) fn end_those_gone(nodes: &mut [Node], slurm: &FakeSlurm, now: UnixTime) {
    for node in nodes {
        let runs: Vec<JobStart> = node.running.iter().map(|run| run.start).collect();
        for start in runs {
            let job = slurm.job(start.job_id);
            let goes_on = job.as_ref().is_some_and(|job| {
                matches!(job.state, JobState::Running | JobState::Suspended) && job.start() == start
            });
            if !goes_on {
                node.end(start, now);
            }
        }
    }
}

fn pipe_directory(gres_types: &GresTypes) -> PathBuf {
    PathBuf::from(format!("/run/pillion/mps/{gres_types}"))
}
