//! What the daemons tell Prometheus: how a family of metrics is described, the page that is made of values, and the endpoint
//! that gives it out. Knows neither devices nor decisions: each daemon names its own families and fills its own page.
//!
//! ```text
//! daemon's state ─► Page (pure) ─► OpenMetrics, or plain text ─► GET /metrics (a few connections, each short)
//!  Description ──────┴─────────► docs/metrics.md
//! ```

mod description;
mod durations;
mod endpoint;
mod page;

pub use description::{Description, Kind, table};
pub use durations::Durations;
pub use endpoint::serve;
pub use page::Page;
