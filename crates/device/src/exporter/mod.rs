//! Readings from a metrics endpoint on this node: dcgm-exporter, for NVIDIA devices before Hopper, and XPU Manager.
//!
//! ```text
//! endpoint: http ─ page's text ─> text ─ samples ─> dcgm | xpum ─ per device, our units ─> history ─> readings, notices
//! ```
//! An exporter is a second source: it fills what the vendor's library does not have ([`Reading::fill`]). Where Level Zero cannot be
//! loaded XPU Manager is the only one, and says which devices there are too ([`Exporter::cards`]). It is only ever asked; no
//! profiling is started, paused, resumed or held from here. DCGM's profiling shares one lock in the driver with every other
//! profiler: while a site pauses it (`dcgmi profile --pause`) the profiling metrics are missing and [`Exporter::notices`]
//! says so. Names devices by UUID; only [`Supplemented`] knows of backends and indexes.
//!
//! [`Reading::fill`]: pillion_core::device::Reading::fill

mod dcgm;
mod endpoint;
mod history;
mod http;
mod page;
mod supplemented;
mod text;
mod xpum;
mod xpum_cards;

pub use endpoint::{Exporter, ExporterKind, ExporterSettings};
pub use history::ExporterNotice;
pub use supplemented::Supplemented;
pub use xpum::tile_uuid;
pub use xpum_cards::XpumCard;
