//! Generates the types of the operator service from `proto/`, with a compiler in Rust so that no `protoc` need be installed,
//! and how each is written to JSON.

const AGENT: &str = "pillion/v1/agent.proto";
const OPERATOR: &str = "pillion/v1/operator.proto";

/// Fields whose JSON is not that of their type: see `src/json.rs`.
const FIELDS: [(&str, &str); 12] = [
    ("JobResponse.status", "flatten"),
    ("DrainOutcome.drain", "flatten"),
    ("UndrainOutcome.place", "flatten"),
    ("Candidate.cap_fractions", "serialize_with = \"crate::json::caps\""),
    ("Candidate.partner", "serialize_with = \"crate::json::job_or_zero\""),
    ("Candidate.workload", "serialize_with = \"crate::json::or_empty\""),
    ("Candidate.workload_name", "skip_serializing_if = \"Option::is_none\""),
    ("JobStatus.run", "serialize_with = \"crate::json::run\""),
    ("JobStatus.profile", "serialize_with = \"crate::json::profile\""),
    ("DeviceStatus.metrics", "serialize_with = \"crate::json::metrics\""),
    ("MetricStatus.metric", "skip"),
    ("AgentStatus.setup", "serialize_with = \"crate::json::setup\""),
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../proto");
    println!("cargo:rerun-if-changed={root}");
    let mut files = protox::compile([OPERATOR], [root])?;
    let mut builder = tonic_prost_build::configure()
        .message_attribute(".", "#[derive(serde::Serialize)]")
        .message_attribute("pillion.v1.Faults", "#[serde(transparent)]")
        .message_attribute("pillion.v1.Profile", "#[serde(into = \"serde_json::Value\")]")
        .btree_map(".pillion.v1.Estimate.terms");
    for (field, attribute) in FIELDS {
        builder = builder.field_attribute(format!("pillion.v1.{field}"), format!("#[serde({attribute})]"));
    }
    // What agents and the scheduler say to each other is made in crates/proto.
    for file in files.file.iter_mut().filter(|file| file.name() == AGENT) {
        for message in &file.message_type {
            let name = message.name();
            builder =
                builder.extern_path(format!(".pillion.v1.{name}"), format!("::pillion_proto::v1::{name}"));
        }
        file.service.clear();
    }
    builder.compile_fds(files)?;
    Ok(())
}
