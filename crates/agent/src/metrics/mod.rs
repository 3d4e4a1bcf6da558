//! What the agent tells Prometheus of its node. Everything was seen at the last sample or is counted where it happens: a scrape
//! asks no driver, reads no file, and holds a lock for a copy only. It tells of devices, never of a job or a user.

mod families;
mod figures;
mod maker;
mod page;

pub use families::all;
pub use figures::{DeviceSeen, Figures, Seen};
pub(crate) use maker::maker;
pub use page::{Snapshot, page};
