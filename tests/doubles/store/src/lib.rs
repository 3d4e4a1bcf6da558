//! The store of the simulation and of unit tests: plain maps behind one lock, in the order of their keys.
//!
//! It passes the same suite as Postgres (`conformance`), and fails on request, before or after a call took effect: a
//! caller must survive both, because a commit whose answer is lost looks just like one that never happened. It knows
//! nothing of SQL, and nothing here outlives the process.

mod charges;
mod credit;
mod decisions;
mod faults;
mod learning;
mod names;
mod observed;
mod operators;
mod reports;
mod runs;
mod shadow;
mod slices;
mod state;

use pillion_store::{Event, Requeue, StoreError, StoredProfile};
use state::State;
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

/// When a call that is to fail does so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailWhen {
    /// Nothing was stored.
    Before,
    /// It was stored, and the answer was lost.
    After,
}

/// A store in memory.
#[derive(Debug, Default)]
pub struct MemoryStore {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    state: State,
    faults: VecDeque<FailWhen>,
}

/// All that a store held at one moment.
#[derive(Debug, Clone)]
pub struct Backup(State);

/// What a call fails with that was told to.
#[derive(Debug, thiserror::Error)]
#[error("injected fault")]
struct InjectedFault;

impl MemoryStore {
    /// An empty store at revision 0.
    pub fn new() -> Self {
        Self::default()
    }
    /// The next `count` calls, after those that were told to fail already, fail with [`StoreError::Database`].
    pub fn fail_next(&self, count: usize, when: FailWhen) {
        self.lock().faults.extend(std::iter::repeat_n(when, count));
    }
    /// Forgets every fault that has not happened yet.
    pub fn heal(&self) {
        self.lock().faults.clear();
    }

    /// What it holds now.
    pub fn backup(&self) -> Backup {
        Backup(self.lock().state.clone())
    }
    /// Holds what it held then, and has forgotten all that came after: as a database restored from a backup, or one whose
    /// copy took over before it had everything.
    pub fn restore(&self, backup: &Backup) {
        self.lock().state = backup.0.clone();
    }

    /// A profile, as if runs had made it.
    pub fn know(&self, profile: &StoredProfile) {
        let key = (profile.profile.workload.clone(), profile.profile.device_model.clone());
        self.lock().state.profiles.insert(key, profile.clone());
    }

    /// Every event that was kept, in the order in which they were.
    pub fn recorded_events(&self) -> Vec<Event> {
        self.lock().state.events.clone()
    }

    /// Every requeue that nothing became of yet.
    pub fn requeues_under_way(&self) -> Vec<Requeue> {
        self.lock().state.faults.open_requeues()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A call that can fail on request alone.
    fn with<T>(&self, action: &'static str, body: impl FnOnce(&mut State) -> T) -> Result<T, StoreError> {
        self.call(action, |state| Ok(body(state)))
    }

    fn call<T>(
        &self,
        action: &'static str,
        body: impl FnOnce(&mut State) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut inner = self.lock();
        let fault = inner.faults.pop_front();
        if fault == Some(FailWhen::Before) {
            return Err(StoreError::Database { action, source: Box::new(InjectedFault) });
        }
        let result = body(&mut inner.state)?;
        match fault {
            Some(_) => Err(StoreError::Database { action, source: Box::new(InjectedFault) }),
            None => Ok(result),
        }
    }
}
