//! What operators do and ask for, in memory.

use super::MemoryStore;
use async_trait::async_trait;
use pillion_store::{Drain, DrainChange, Operators, StoreError, Undrain};

#[async_trait]
impl Operators for MemoryStore {
    async fn drains(&self) -> Result<Vec<Drain>, StoreError> {
        self.with("reading what is drained", |state| state.drains.all())
    }

    async fn drain(&self, orders: &[Drain]) -> Result<Vec<DrainChange>, StoreError> {
        self.with("draining", |state| {
            let (changes, events) = state.drains.drain(orders);
            state.events.extend(events);
            if changes.contains(&DrainChange::Begun) {
                state.bump();
            }
            changes
        })
    }

    async fn undrain(&self, order: &Undrain) -> Result<Vec<bool>, StoreError> {
        self.with("undraining", |state| {
            let (opened, events) = state.drains.undrain(order);
            state.events.extend(events);
            if opened.contains(&true) {
                state.bump();
            }
            opened
        })
    }
}
