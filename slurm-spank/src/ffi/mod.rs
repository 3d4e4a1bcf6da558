//! ALL of the unsafe code: what Slurm calls here and is called by, and a few calls of the C library.

pub mod slurm;
pub mod unix;
