//! Answers the SPANK plugin on a Unix socket: row 7 of the way of a job. One JSON line each way (`core::handoff`).
//!
//! Whoever connects is asked for his credentials by the kernel before a byte is read: root (or, where the agent is not
//! root itself, the agent's own user) is answered, nobody else. Asking and answering have a deadline each, an answer is
//! made from memory, and at most [`CONNECTIONS_MAX`] are served at once; the rest waits in the kernel's backlog.
//!
//! Of a job's script, slurmstepd says which start it is and what Slurm gave it. Any other step is begun by the script: it has
//! the share and the devices of its job's script, as this agent knows them, whatever stands in its environment. A step of a
//! job whose script was not seen (the agent was away) is left alone. An interactive job has no script: its first step begins what was
//! decided for it, before Slurm started it.
//!
//! A start that has no instance of a device that is cut is answered when that is whole, or when it may wait no longer.
//!
//! A start without a decision gets no shared mechanism and no cap; what its user asked for himself is left alone. It is
//! measured all the same: a job that the dead man's switch started alone is a run alone like any other.

mod told;

pub use told::Told;

use crate::begun::BegunStart;
use crate::devices::Command;
use crate::mechanism::PipeFinder;
use crate::node::Node;
use crate::procfs::ProcFs;
use crate::progress::ProgressFiles;
use crate::share::{self, Own, SharePaths};
use crate::tracker::Registration;
use pillion_core::handoff::{HANDOFF_LENGTH_MAX, HANDOFF_VERSION, HandoffReply, HandoffRequest, Verdict};
use pillion_core::option;
use pillion_core::report::{Launch, ReportBody};
use pillion_core::share::Share;
use pillion_core::{Clock, GresType, JobStart, SlurmJobId};
use serde::{Deserialize, Serialize};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

/// How many are served at once.
pub const CONNECTIONS_MAX: usize = 64;
/// How long a connection may be open before it asks. The plugin connects as root and asks when slurmstepd has become the
/// user: milliseconds later, or far more on a busy node, and the plugin's own deadline does not run meanwhile.
const REQUEST_DEADLINE: Duration = Duration::from_secs(2);
/// How long an answer may take. The plugin gives up after 200 ms.
const ANSWER_DEADLINE: Duration = Duration::from_millis(150);
/// How long a start waits for a decision that may be on its way.
const DECISION_WAIT: Duration = Duration::from_millis(100);

/// How long a start waits until a device that it has all of is whole: no longer than the answer may take.
const WHOLE_WAIT: Duration = Duration::from_millis(130);
/// The same for a Prolog, which has more time than a start.
const PROLOG_WHOLE_WAIT: Duration = Duration::from_millis(1500);
/// How soon what was refused is tried again meanwhile.
const WHOLE_PAUSE: Duration = Duration::from_millis(30);

/// What a Prolog or Epilog says: look now. Answered by an empty object.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Poke {
    pub poke: u32,
    /// Of a Prolog: the job that is about to begin, and the devices that Slurm gave it. One that has no instance of a device that
    /// is cut finds it whole, where that can be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begins: Option<(SlurmJobId, Vec<u32>)>,
}

/// What the server works with.
pub struct HandoffServer {
    /// What the node's parts of the agent share.
    pub node: Arc<Node>,
    pub clock: Arc<dyn Clock>,
    /// Where processes are looked up.
    pub proc: ProcFs,
    /// Where jobs write their counters.
    pub progress_files: ProgressFiles,
    /// Where the MPS daemon of a share is found.
    pub mps_pipe_directory: PipeFinder,
    /// To the devices.
    pub commands: mpsc::Sender<Command>,
    /// To the journal.
    pub reports: mpsc::Sender<ReportBody>,
    pub told: Told,
}

/// Makes the socket, in place of one that a dead agent left.
///
/// # Errors
/// If another agent listens there, or the socket cannot be made.
pub fn listen(path: &Path) -> io::Result<UnixListener> {
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory)?;
    }
    if std::os::unix::net::UnixStream::connect(path).is_ok() {
        return Err(io::Error::new(io::ErrorKind::AddrInUse, "another agent listens here"));
    }
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    // Only root has business here: nobody else can even take up a place.
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

impl HandoffServer {
    /// Serves until `stop`, then lets those who are being served finish.
    pub async fn serve(self, listener: UnixListener, stop: CancellationToken) {
        let server = Arc::new(self);
        let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let mut conversations = JoinSet::new();
        loop {
            let place = tokio::select! {
                () = stop.cancelled() => break,
                Some(_) = conversations.join_next() => continue,
                place = Arc::clone(&places).acquire_owned() => place,
            };
            let stream = tokio::select! {
                () = stop.cancelled() => break,
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => stream,
                    Err(error) => {
                        warn!(%error, "cannot accept on the handoff socket");
                        tokio::time::sleep(Duration::from_millis(100)).await;
                        continue;
                    }
                },
            };
            let server = Arc::clone(&server);
            conversations.spawn(async move {
                let _place = place;
                if let Err(error) = server.converse(stream).await {
                    debug!(%error, "a handoff connection broke");
                }
            });
        }
        while conversations.join_next().await.is_some() {}
    }

    async fn converse(&self, stream: UnixStream) -> io::Result<()> {
        let peer = stream.peer_cred()?;
        if peer.uid() != 0 && peer.uid() != rustix::process::geteuid().as_raw() {
            info!(uid = peer.uid(), "a user who is not root asked the agent; not answered");
            return Ok(());
        }
        let mut stream = BufReader::new(stream);
        let mut line = Vec::new();
        let mut limited = (&mut stream).take(HANDOFF_LENGTH_MAX as u64);
        tokio::time::timeout(REQUEST_DEADLINE, limited.read_until(b'\n', &mut line)).await??;
        if line.pop() != Some(b'\n') {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "no whole line"));
        }
        if let Ok(poke) = serde_json::from_slice::<Poke>(&line) {
            self.poked(poke).await;
            return stream.get_mut().write_all(b"{}\n").await;
        }
        tokio::time::timeout(ANSWER_DEADLINE, self.respond(&line, peer.pid(), stream.get_mut())).await?
    }

    async fn poked(&self, Poke { poke: _, begins }: Poke) {
        // A full queue holds a sample already.
        let _ = self.commands.try_send(Command::Sample);
        let Some((job_id, devices)) = begins else { return };
        let has_instance = |share: &Share| share.start.job_id == job_id && share.mechanism().has_instances();
        if self.node.all_shares().iter().any(has_instance) {
            return;
        }
        // Of it nothing is told but the number; the start itself comes when it asks.
        let start = JobStart { job_id, restart_count: 0 };
        // For all of them together: the hook does not wait longer.
        let until = Instant::now() + PROLOG_WHOLE_WAIT;
        for gres_type in devices.iter().filter_map(|index| self.node.gres_type(*index)) {
            self.make_whole(start, &gres_type, until).await;
        }
    }

    /// Waits until the instance of a start is there, or it is `until`: after the driver had forgotten it, or while an agent that has
    /// just begun makes it. Without one a task has whatever CUDA finds first of those that its user may open.
    async fn wait_for_instance(&self, start: JobStart, until: Instant) {
        let is_missing = || self.node.own(start).instance.is_none();
        if is_missing() {
            // A full queue holds a sample already.
            let _ = self.commands.try_send(Command::Sample);
        }
        while is_missing() && Instant::now() < until {
            tokio::time::sleep_until(until.min(Instant::now() + WHOLE_PAUSE)).await;
        }
        if is_missing() {
            warn!(%start, "its instance is not there; it is told none");
        }
    }

    /// Waits until a device that was cut is whole, or it is `until`: then it begins all the same, on what there is.
    async fn make_whole(&self, start: JobStart, gres_type: &GresType, until: Instant) {
        while self.node.is_cut(gres_type) && Instant::now() < until {
            let (done, is_done) = oneshot::channel();
            let command = Command::Whole { gres_type: gres_type.clone(), start, until, done };
            if self.commands.try_send(command).is_err() {
                return;
            }
            match tokio::time::timeout_at(until, is_done).await {
                Ok(Ok(Err(why))) => {
                    debug!(%start, %gres_type, why, "not whole yet");
                    tokio::time::sleep_until(until.min(Instant::now() + WHOLE_PAUSE)).await;
                }
                _ => return,
            }
        }
    }

    async fn respond(&self, line: &[u8], pid: Option<i32>, stream: &mut UnixStream) -> io::Result<()> {
        let reply = match serde_json::from_slice(line) {
            Ok(request) => self.answer(&request, pid.and_then(|pid| u32::try_from(pid).ok())).await,
            Err(error) => {
                debug!(%error, "a handoff request cannot be understood");
                HandoffReply::unknown()
            }
        };
        let mut reply = serde_json::to_vec(&reply)?;
        reply.push(b'\n');
        stream.write_all(&reply).await
    }

    /// Decides what the task is told. `pid`: the process that becomes the task.
    pub async fn answer(&self, request: &HandoffRequest, pid: Option<u32>) -> HandoffReply {
        let until = Instant::now() + WHOLE_WAIT;
        if request.version != HANDOFF_VERSION {
            warn!(version = request.version, "the SPANK plugin speaks another version; not answered");
            return HandoffReply::unknown();
        }
        let Some(begun) = self.begun(request).await else {
            // A step that did not carry the option, of a job that nobody decided on: not ours.
            return HandoffReply::unknown();
        };
        let decided = self.node.share(begun.start);
        let is_plain = decided.as_ref().is_some_and(|share| share.is_plain);
        let share = decided.filter(|share| begun.has_share && share.uid == request.uid);
        self.register(request, pid, &begun);
        if share.as_ref().is_some_and(|share| share.mechanism().has_instances()) {
            self.wait_for_instance(begun.start, until).await;
        } else if request.is_batch() {
            for gres_type in &begun.gres_types {
                self.make_whole(begun.start, gres_type, until).await;
            }
        }
        self.report(request, share.as_ref(), begun.clone()).await;
        if is_plain {
            // Only a plugin of an earlier release waits for it.
            return HandoffReply::unknown();
        }
        self.reply(request, begun.start, share.as_ref())
    }

    /// The start that asks, as Slurm told it. `None`: none of ours.
    async fn begun(&self, request: &HandoffRequest) -> Option<BegunStart> {
        if !request.is_batch() {
            return self.node.begun(request.start.job_id).or_else(|| self.begun_by_step(request));
        }
        let share = self.share_of(request).await;
        if share.is_none() && request.option.is_none() {
            return None;
        }
        let gres_types = request.devices.iter().filter_map(|index| self.node.gres_type(*index)).collect();
        let begun = BegunStart { start: request.start, gres_types, has_share: share.is_some() };
        self.node.begin(begun.clone());
        Some(begun)
    }

    /// The start of an interactive job whose first step asks. Which one it is the decision says: what a step's environment says of it
    /// is its user's. One that was given more than was decided was put back to have a device alone, on whichever: it gets nothing.
    fn begun_by_step(&self, request: &HandoffRequest) -> Option<BegunStart> {
        let share = self.node.session_share(request.start.job_id)?;
        let has_share = share::is_for(&share, request.uid, request.shards);
        if !has_share {
            warn!(start = %share.start, uid = %request.uid, shards = ?request.shards,
                  "the decision does not fit what Slurm started; not applied");
        }
        let gres_types = if has_share { share.gres_types.iter().cloned().collect() } else { Vec::new() };
        let begun = BegunStart { start: share.start, gres_types, has_share };
        self.node.begin(begun.clone());
        Some(begun)
    }

    /// The share of a script's start, waited for a moment if it may be on its way. One that does not fit what Slurm says of
    /// the job is none: never another user's, never for devices that the job does not have.
    async fn share_of(&self, request: &HandoffRequest) -> Option<Share> {
        let found = match self.node.share(request.start) {
            Some(share) => share,
            // Where there is no device, nobody decides anything.
            None if request.option.is_some()
                && self.node.is_connected()
                && !self.node.devices().is_empty() =>
            {
                tokio::time::timeout(DECISION_WAIT, self.node.share_when_known(request.start)).await.ok()?
            }
            None => return None,
        };
        let given: Vec<GresType> =
            request.devices.iter().filter_map(|index| self.node.gres_type(*index)).collect();
        let fits = share::is_for(&found, request.uid, request.shards)
            && (request.devices.is_empty() || found.gres_types.iter().all(|own| given.contains(own)));
        if !fits {
            warn!(start = %request.start, uid = %request.uid, devices = ?request.devices, gres_type = %found.gres_types,
                  shards = ?request.shards, "the decision does not fit what Slurm started; not applied");
        }
        Some(found).filter(|_| fits)
    }

    fn register(&self, request: &HandoffRequest, pid: Option<u32>, begun: &BegunStart) {
        let start = begun.start;
        self.node.make_marker(start);
        let Some(root) = pid.and_then(|pid| self.proc.identify(pid)) else {
            warn!(%start, "the task's process is not visible here; it will not be measured");
            return;
        };
        let registration = Registration {
            start,
            inner_job_id: request.inner_job_id,
            uid: request.uid,
            gres_types: begun.gres_types.clone(),
            root,
            at: self.clock.now(),
        };
        // Not waited for: a task that is not measured has its environment all the same.
        if let Err(error) = self.commands.try_send(Command::Register(registration)) {
            warn!(%start, %error, "the device thread does not listen; the task will not be measured");
        }
    }

    async fn report(&self, request: &HandoffRequest, share: Option<&Share>, begun: BegunStart) {
        let launch = Launch {
            at: self.clock.now(),
            start: begun.start,
            step_id: request.step_id,
            decision_id: share.map(|share| share.decision_id),
            gres_types: begun.gres_types,
            profile_name: option::profile_name(request.option.as_deref()),
        };
        self.node.figures().task(share.is_some());
        if !self.told.is_news(&launch) {
            return;
        }
        if self.reports.send(ReportBody::Launch(launch)).await.is_err() {
            warn!("the journal has stopped");
        }
    }

    fn reply(&self, request: &HandoffRequest, start: JobStart, share: Option<&Share>) -> HandoffReply {
        let made = self.progress_files.make(start, request.uid, request.gid);
        if let Err(error) = &made {
            warn!(%start, %error, "the progress file cannot be made");
        }
        let progress = made.ok();
        let devices_of = |share: &Share| self.node.devices_of(&share.gres_types).ok();
        let Some((share, devices)) = share.and_then(|share| Some((share, devices_of(share)?))) else {
            info!(%start, "no decision for this start; it runs without a cap");
            return HandoffReply { set: share::profiling(progress.as_deref()), ..HandoffReply::unknown() };
        };
        let mps_pipe_directory = (self.mps_pipe_directory)(share);
        let Own { mps_partition, instance } = self.node.own(share.start);
        let paths = SharePaths { progress, mps_pipe_directory, mps_partition, instance };
        let set = share::environment(share, &devices, &paths);
        HandoffReply {
            verdict: Verdict::Decided,
            decision_id: Some(share.decision_id),
            unset: share::stale(share, &set),
            set,
            container_bind: share::container_bind(share, &paths),
        }
    }
}

#[cfg(test)]
mod tests;
