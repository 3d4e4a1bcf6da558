//! Generates the gRPC code from `proto/`, with a compiler in Rust so that no `protoc` need be installed.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../proto");
    println!("cargo:rerun-if-changed={root}");
    let files = protox::compile(["pillion/v1/agent.proto"], [root])?;
    let mut builder = tonic_prost_build::configure();
    // These stand in answers of the operator service, which are printed as JSON.
    for message in ["MigInstances", "MigInstance", "MigPlacement", "DeviceLink"] {
        builder = builder.message_attribute(message, "#[derive(serde::Serialize)]");
    }
    builder.message_attribute("MigInstances", "#[serde(transparent)]").compile_fds(files)?;
    Ok(())
}
