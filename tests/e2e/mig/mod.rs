//! Devices that are cut into instances, on real Slurm: `tests/run slurm mig`.

mod apart;
mod instance_deaths;
mod instances;
mod instances_shared;
mod walls;
