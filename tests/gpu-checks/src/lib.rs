//! Checks that need one real NVIDIA GPU, and measurements of what its documents leave open. Run by `tests/gpu`.
//!
//! ```text
//! main, sections: the order, the time, the files, written anew after each section
//!   without MPS   values, arithmetic  our NVML and GPM readings beside nvidia-smi's and the loop's own count
//!                 energy              the energy counter beside integrated power
//!                 overhead            a loop's speed with and without the agent's looks
//!   under MPS     forms               what nvidia-cuda-mps-control prints, and whether our parser takes it
//!                 life                start, drain and end; clients that are not root's
//!                 memory              memory by job, by the agent's sampler
//!                 caps, pairs         speeds alone and together ─► results: SOLO.csv, PAIRS.csv
//!                 kills               what a signal to one client does to its neighbour
//! own: programs of the site's own, alone and together: `tests/gpu programs FILE`
//! groups: the same programs, three and four at a time, and many copies of each: `tests/gpu groups FILE`
//! mig: the plan of `tests/gpu mig`, on a GPU that it cuts
//! report: Markdown, without names of hosts, devices or files
//! tenant ── starts ─► client: a CUDA program over libcuda.so.1 alone; its kernels are PTX, so no toolkit is needed
//! ```
//!
//! MPS is controlled by the code that the agent uses, and clients have the environment that it makes. A section that cannot
//! be done says why in its place and hides nothing of the others.

pub mod arithmetic;
pub mod bench;
pub mod caps;
pub mod client;
pub mod cuda;
pub mod early;
pub mod energy;
pub mod forms;
pub mod groups;
pub mod kernels;
pub mod kills;
pub mod life;
pub mod memory;
pub mod mig;
pub mod ours;
pub mod overhead;
pub mod own;
pub mod pairs;
pub mod programs;
pub mod report;
pub mod results;
pub mod sections;
pub mod smi;
pub mod stats;
pub mod surroundings;
pub mod tenant;
pub mod values;
