//! The same queue beside what a site would do today: what is submitted, and what came of it. Pure; `tests/bench peers` carries
//! it out on clusters of real Slurm.

mod draw;
mod figures;
mod picture;

pub use draw::{Order, draw};
pub use figures::{Figures, JobEnd, figures, table};
pub use picture::picture;

/// The seed that queues are drawn from.
pub const SEED: u64 = 17;
/// The nodes of the site.
pub const NODES: [&str; 2] = ["n1", "n2"];
/// Devices of each of them.
pub const DEVICES_PER_NODE: u32 = 8;
/// All devices.
pub const DEVICE_COUNT: u32 = 2 * DEVICES_PER_NODE;
/// What they are.
pub const DEVICE_MODEL: &str = "h200";
/// What the site promises, and what every way is judged by: `policy.max_slowdown`'s own value.
pub const PROMISE_RATIO: f64 = 1.25;

/// How a job asks for its device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// A device for itself.
    Whole,
    /// Half a device, beside whoever comes.
    Shards,
    /// `--colocate`.
    Pillion,
}

/// What came of each way, as the table and the picture name them.
pub fn named(whole: Figures, shards: Figures, empty: Figures, warm: Figures) -> [(&'static str, Figures); 4] {
    [
        ("plain Slurm, whole GPUs", whole),
        ("Slurm's shards, two jobs a GPU", shards),
        ("Pillion, from an empty history", empty),
        ("Pillion, warm", warm),
    ]
}
