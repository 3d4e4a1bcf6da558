//! The same queue beside what a site would do today: what is submitted, and what came of it. Pure; `tests/bench peers` carries
//! it out on clusters of real Slurm.

mod draw;
mod figures;
mod picture;

pub use draw::{Order, draw};
pub use figures::{Figures, JobEnd, figures, table};
pub use picture::picture;
