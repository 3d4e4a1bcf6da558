//! The MPS control daemon of one simulated device, or of several, and its server: whom it serves, under which limits, and its faults.

use super::client::{Client, Phase};
use super::limits::Limits;
use crate::{MpsPlace, MpsSettings, MpsState, MpsStatus};
use pillion_core::UserId;

/// A server outlives its clients, until another user's come.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Server {
    uid: UserId,
    limits: Limits,
}

/// A control daemon. One of several devices stands on each of them, in the same state.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Daemon {
    pub(super) settings: MpsSettings,
    /// The devices that it serves, in the order in which its clients see them.
    pub(super) devices: Vec<u32>,
    /// The process that plays it, if one does: the daemon dies with it.
    pub(super) served_by: Option<u32>,
    /// Of the next server; the one that runs keeps its own.
    defaults: Limits,
    server: Option<Server>,
    is_faulted: bool,
}

impl Daemon {
    pub(super) fn new(settings: MpsSettings, place: &MpsPlace, served_by: Option<u32>) -> Self {
        let (defaults, devices) = (Limits::of(&settings), place.indexes().collect());
        Self { settings, devices, served_by, defaults, server: None, is_faulted: false }
    }

    /// Whether it is the daemon of this place, and not one that serves other devices besides.
    pub(super) fn is_of(&self, place: &MpsPlace) -> bool {
        place.indexes().eq(self.devices.iter().copied())
    }

    /// What a client that comes now is held to.
    pub(super) fn limits(&self) -> Limits {
        self.server.map_or(self.defaults, |server| server.limits)
    }

    pub(super) fn set_defaults(&mut self, defaults: Limits) {
        self.defaults = defaults;
    }

    /// What the server that runs holds its next clients to.
    pub(super) fn set_server_limits(&mut self, limits: Limits) {
        if let Some(server) = &mut self.server {
            server.limits = limits;
        }
    }

    /// Changes what can be changed while it runs.
    pub(super) fn become_as(&mut self, settings: &MpsSettings) {
        self.settings = settings.clone();
        self.defaults = Limits::of(settings);
        self.set_server_limits(self.defaults);
    }

    /// A client of `uid` is let in: by the server that runs, or by a new one if that is another user's.
    pub(super) fn begin_server(&mut self, uid: UserId) {
        let uid = if self.settings.multi_user { UserId(0) } else { uid };
        if self.server.is_none_or(|server| server.uid != uid) {
            self.server = Some(Server { uid, limits: self.defaults });
        }
    }

    pub(super) fn end_server(&mut self) {
        self.server = None;
        self.is_faulted = false;
    }

    /// Whether a fault keeps new clients out.
    pub(super) fn is_faulted(&self) -> bool {
        self.is_faulted
    }

    pub(super) fn fault(&mut self) {
        self.is_faulted = true;
    }

    /// `clients`: its own. A fault is over when all that the server had let in have left.
    pub(super) fn settle<'a>(&mut self, mut clients: impl Iterator<Item = &'a Client>) {
        self.is_faulted &= clients.any(|client| client.phase != Phase::Waiting);
    }

    /// Whether it counts `client` as connected. One that a fault ended is there until it leaves.
    pub(super) fn is_connected(&self, client: &Client) -> bool {
        client.is_present() || self.is_faulted && client.phase == Phase::Failed
    }

    /// Whether its server has the device open: from its first client on.
    pub(super) fn has_server(&self) -> bool {
        self.server.is_some()
    }

    /// `clients`: its own.
    pub(super) fn status<'a>(&self, clients: impl Iterator<Item = &'a Client>) -> MpsStatus {
        let mut client_pids = Vec::new();
        for client in clients.filter(|client| self.is_connected(client)) {
            // A process that uses several of its devices is one client.
            if !client_pids.contains(&client.pid) {
                client_pids.push(client.pid);
            }
        }
        MpsStatus {
            settings: self.settings.clone(),
            state: if self.is_faulted { MpsState::Fault } else { MpsState::Up },
            server_uid: self.server.map(|server| server.uid),
            client_pids,
        }
    }
}
