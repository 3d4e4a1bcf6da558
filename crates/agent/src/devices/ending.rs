//! Carries out the end of a start: what `crate::ending` says, with the driver and the processes that are there.

use super::Devices;
use crate::ending::{Client, NotHeld, Round, ended, may_be_ended};
use crate::procfs::ProcessId;
use pillion_core::JobStart;
use pillion_core::report::{EndOrder, EndOutcome, EndResult, FromAgent};
use pillion_core::share::Share;
use pillion_device::MpsPlace;
use tracing::{info, warn};

impl Devices {
    /// An order of the scheduler.
    pub(super) fn end(&mut self, start: JobStart, order: EndOrder) {
        match order {
            EndOrder::Hold => {
                let outcome = match self.hold(start) {
                    Ok(()) => EndOutcome::Held,
                    Err(NotHeld { why, is_of_it_alone }) => {
                        info!(%start, why, "not held while Slurm is asked to take it");
                        let outlasts_sigterm = self.outlasts_sigterm(start);
                        EndOutcome::NotHeld { why, outlasts_sigterm, is_of_it_alone }
                    }
                };
                self.answer(FromAgent::EndResult(EndResult { start, outcome }));
            }
            EndOrder::End { delay_seconds } => {
                // While it stands still: the signal waits for Slurm's own process, which stands still too.
                let round = if delay_seconds > 0.0 { Round::First } else { Round::Last };
                self.end_clients(start, round);
                self.endings.let_go(start);
                if round == Round::First && self.sampler.is_tracked(start) {
                    self.endings.end_later(start, self.clock.now(), delay_seconds);
                }
            }
            EndOrder::LetGo => self.endings.let_go(start),
        }
    }

    /// What is due by now of starts that are being ended.
    pub(super) fn go_on_ending(&mut self) {
        for start in self.endings.due(self.clock.now()) {
            self.end_clients(start, Round::Last);
        }
    }

    fn hold(&mut self, start: JobStart) -> Result<(), NotHeld> {
        may_be_ended(self.node.share(start).as_ref(), self.sampler.is_tracked(start))
            .map_err(NotHeld::alone)?;
        let tasks = self.sampler.tasks(start);
        self.endings.hold(start, (&tasks, &self.proc), self.clock.now())
    }

    /// Whether SIGTERM kills none of a start's clients: where nobody knows who they are, it may.
    fn outlasts_sigterm(&mut self, start: JobStart) -> bool {
        let clients = self.clients(start);
        clients.is_ok_and(|(_, clients)| ended(&clients, Round::First).is_empty())
    }

    /// Ends clients of a start in the clean way. The scheduler hears how many that were, if any.
    fn end_clients(&mut self, start: JobStart, round: Round) {
        let (place, clients) = match self.clients(start) {
            Ok((place, clients)) => (place, ended(&clients, round)),
            Err(why) => {
                info!(%start, why, "none of its clients is ended");
                return;
            }
        };
        let mut client_count = 0;
        for process in clients {
            client_count += u32::from(self.terminated(&place, process));
        }
        if client_count > 0 {
            info!(%start, client_count, "ended through the MPS daemon, before Slurm's signal");
            let outcome = EndOutcome::Ended { client_count };
            self.answer(FromAgent::EndResult(EndResult { start, outcome }));
        }
    }

    fn terminated(&mut self, place: &MpsPlace, process: ProcessId) -> bool {
        // Its pid may have been given away since it was looked up.
        if !self.proc.is_alive(process) {
            return false;
        }
        let index = place.index;
        let terminated = self.backend.mps_on(index).and_then(|mps| mps.terminate_client(place, process.pid));
        let failed = terminated.as_ref().err();
        if let Some(error) = failed {
            let error = pillion_core::report(error);
            warn!(device = index, pid = process.pid, error, "a client cannot be ended through its daemon");
        }
        failed.is_none()
    }

    /// Where a start's daemon is, and those of its clients that are this start's.
    fn clients(&mut self, start: JobStart) -> Result<(MpsPlace, Vec<Client>), String> {
        let share = self.node.share(start);
        let share = may_be_ended(share.as_ref(), self.sampler.is_tracked(start))?;
        let place = self.mps_place(share)?;
        let status = self.backend.mps_on(place.index).and_then(|mps| mps.status(&place));
        let status = status.map_err(|error| pillion_core::report(&error))?.ok_or("no MPS daemon runs")?;
        let mut clients = Vec::new();
        for pid in status.client_pids {
            let is_own = self.sampler.start_of(pid) == Some(start);
            if let Some(process) = self.proc.identify(pid).filter(|_| is_own) {
                clients.push(Client { process, fate: self.proc.term_fate(pid) });
            }
        }
        Ok((place, clients))
    }

    /// Where the MPS daemon of a share is.
    ///
    /// # Errors
    /// What of it is not there.
    pub(super) fn mps_place(&self, share: &Share) -> Result<MpsPlace, String> {
        let mut indexes = self.node.devices_of(&share.gres_types)?.into_iter().map(|device| device.index);
        let index = indexes.next().ok_or("it has no device")?;
        if !share.mechanism().has_instances() {
            return Ok(MpsPlace::set(index, indexes.collect()));
        }
        let instance = self.node.own(share.start).instance.ok_or("its instance is not there")?;
        Ok(MpsPlace::instance(index, instance))
    }
}

#[cfg(test)]
mod trials;
