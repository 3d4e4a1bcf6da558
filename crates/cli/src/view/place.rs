//! Nodes and devices that operators drained.

use super::some_text;
use pillion_proto::v1 as wire;
use serde::Serialize;

/// A place that takes no new tenants.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DrainRow {
    /// The node.
    pub node: String,
    /// The device; absent = all of the node.
    pub gres_type: Option<String>,
    /// Who drained it.
    pub drained_by: String,
    /// Why.
    pub reason: String,
    /// Since when.
    pub since_seconds: f64,
}

impl DrainRow {
    /// As everybody is told of it: `drained by alice: fan noise`.
    pub fn sentence(&self) -> String {
        format!("drained by {}: {}", self.drained_by, self.reason)
    }

    /// Whether this device lies in it.
    pub fn covers(&self, node: &str, gres_type: &str) -> bool {
        self.node == node && self.gres_type.as_deref().is_none_or(|own| own == gres_type)
    }

    /// `n1` or `n1:g0`.
    pub fn place(&self) -> String {
        match &self.gres_type {
            None => self.node.clone(),
            Some(gres_type) => format!("{}:{gres_type}", self.node),
        }
    }
}

impl From<wire::DrainedPlace> for DrainRow {
    fn from(drain: wire::DrainedPlace) -> Self {
        let wire::DrainedPlace { place, drained_by, reason, since_seconds } = drain;
        let wire::Place { node, gres_type } = place.unwrap_or_default();
        Self { node, gres_type: some_text(gres_type), drained_by, reason, since_seconds }
    }
}
