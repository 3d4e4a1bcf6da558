//! Generates the gRPC code from `proto/`, with a compiler in Rust so that no `protoc` need be installed.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../proto");
    println!("cargo:rerun-if-changed={root}");
    let files = protox::compile(["pillion/v1/agent.proto", "pillion/v1/operator.proto"], [root])?;
    tonic_prost_build::configure().compile_fds(files)?;
    Ok(())
}
