//! What NVML says of a model and the simulation does not know.

/// The generations that differ in what NVML offers. All are Volta or later: energy and MPS clients are told by each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Generation {
    Volta,
    Ampere,
    /// With GPM.
    Hopper,
}

/// One model.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Model {
    /// As the driver writes it.
    pub(crate) product: &'static str,
    pub(crate) generation: Generation,
    /// The SM clock, which the simulated devices do not tell.
    pub(crate) sm_megahertz: u32,
}

/// The model by its name in the simulation; none for devices of other vendors.
pub(crate) fn find(name: &str) -> Option<Model> {
    let model = |product, generation, sm_megahertz| Some(Model { product, generation, sm_megahertz });
    match name {
        "v100" => model("Tesla V100-SXM2-32GB", Generation::Volta, 1530),
        "a100-40" => model("NVIDIA A100-SXM4-40GB", Generation::Ampere, 1410),
        "a30" => model("NVIDIA A30", Generation::Ampere, 1440),
        "h100" => model("NVIDIA H100 80GB HBM3", Generation::Hopper, 1980),
        "h200" => model("NVIDIA H200", Generation::Hopper, 1980),
        _ => None,
    }
}
