//! An interactive job on its node: a shell, from which its user begins a program now and then. Between them nothing of it is on the device.

use super::{Node, Running};
use pillion_core::JobStart;
use pillion_device::simulated::{AttachRequest, Phase};

/// What a session begins its programs with, and whose they are.
#[derive(Debug, Clone)]
pub(crate) struct Shell {
    pub(super) request: AttachRequest,
}

impl Node {
    /// Whether a session has no program on its device now.
    pub(crate) fn is_at_rest(&self, run: &Running) -> bool {
        let phase = self.lock().progress(run.client).map(|progress| progress.phase);
        run.shell.is_some() && phase == Some(Phase::Finished)
    }

    /// The sessions that are at rest here.
    pub(crate) fn sessions_at_rest(&self) -> Vec<JobStart> {
        self.running.iter().filter(|run| self.is_at_rest(run)).map(|run| run.start).collect()
    }

    /// Its user begins a program for so many seconds.
    pub(crate) fn begin_in_session(&mut self, start: JobStart, workload: &str, seconds: f64) {
        let Some(place) = self.running.iter().position(|run| run.start == start) else { return };
        let run = &self.running[place];
        let Some(Shell { request }) = run.shell.clone() else { return };
        let (pid, uid, before) = (run.pid, run.uid, run.client);
        let request = AttachRequest { workload: workload.to_owned(), seconds: Some(seconds), ..request };
        let mut machine = self.lock();
        machine.detach(before);
        let client = machine.attach(&request, pid, uid).expect("its environment was good before");
        drop(machine);
        self.running[place].client = client;
    }
}
