//! Checks that need one real NVIDIA GPU, and measurements of what its documents leave open. Run by `tests/gpu`.
//!
//! ```text
//! main ── sections, in order ─► values    our NVML and GPM readings beside nvidia-smi's
//!                               forms     what nvidia-cuda-mps-control prints, and whether our parser takes it
//!                               caps      speeds under CUDA_MPS_ACTIVE_THREAD_PERCENTAGE, as ratios
//!                               kills     what a signal to one MPS client does to its neighbour
//!          └─ report: Markdown, without names of hosts, devices or files
//! tenant ── starts ─► client: a CUDA program over libcuda.so.1 alone; its kernels are PTX, so no toolkit is needed
//! ```
//!
//! A section that cannot be done says why in its place and hides nothing of the others.

pub mod bench;
pub mod caps;
pub mod client;
pub mod cuda;
pub mod forms;
pub mod kernels;
pub mod kills;
pub mod programs;
pub mod report;
pub mod smi;
pub mod stats;
pub mod tenant;
pub mod values;
