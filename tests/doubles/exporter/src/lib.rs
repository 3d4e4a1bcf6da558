//! Stands in for dcgm-exporter and XPU Manager in tests, over the simulated devices of a `pillion-simulated-device`.
//!
//! ```text
//! the devices' counters ─ every period ─> look ─ two of them ─> dcgm | xpum ─ a page's text ─> http
//! ```
//! As the real ones it collects by its own clock, whoever asks and however often: between two collections the page stands
//! still. What takes the profiling counters is left out while another profiler holds them. It knows what the device model's
//! counters say and nothing of how Pillion reads a page.

mod collect;
mod dcgm;
mod http;
mod look;
mod number;
mod xpum;

pub use collect::{Endpoint, Settings};

/// Whose page, and of which generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    /// dcgm-exporter 3.3: names before DCGM 4.6.
    #[value(name = "dcgm-3.3")]
    Dcgm33,
    /// dcgm-exporter 4.9: base units.
    #[value(name = "dcgm-4.9")]
    Dcgm49,
    /// XPU Manager 1.2.
    #[value(name = "xpum-1.2")]
    Xpum12,
    /// XPU Manager 2.0 (xpumd).
    #[value(name = "xpum-2.0")]
    Xpum20,
}
