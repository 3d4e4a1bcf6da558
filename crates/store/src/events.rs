//! What operators and users are to be able to read later.

use super::StoreError;
use async_trait::async_trait;
use pillion_core::event::EventKind;
use pillion_core::{NodeName, SlurmJobId, UnixTime};
use serde::{Deserialize, Serialize};

/// Something that operators should be able to read later.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    pub at: UnixTime,
    pub kind: EventKind,
    /// The job, if any.
    pub job_id: Option<SlurmJobId>,
    /// The node, if any.
    pub node: Option<NodeName>,
    pub detail: String,
}

/// What people are to read later.
#[async_trait]
pub trait Events: Send + Sync {
    /// Keeps an event.
    async fn record_event(&self, event: &Event) -> Result<(), StoreError>;
    /// Events of one job, oldest first.
    async fn events(&self, id: SlurmJobId) -> Result<Vec<Event>, StoreError>;
    /// How many events of a kind there are.
    async fn event_count(&self, kind: &EventKind) -> Result<u64, StoreError>;
}
