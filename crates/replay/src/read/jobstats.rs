//! The summary that jobstats leaves in a job's `AdminComment`: `JS1:` and behind it JSON, compressed (gzip) and in base64. Foreign:
//! its size is bounded, and what is no number is absent.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};

const PREFIX: &str = "JS1:";
/// What jobstats writes where a job was too short, or nothing was known.
const NOTHING: [&str; 2] = ["Short", "None"];
/// No summary is larger, unpacked: one of a thousand nodes has some hundred kilobytes.
const JSON_BYTES_MAX: u64 = 4 << 20;

/// How a job used its GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Summary {
    /// Mean over time and GPUs of the part of the time in which a kernel ran, 0..=1.
    pub busy_fraction: Option<f64>,
    /// The greatest device memory that was in use on any of its GPUs.
    pub memory_bytes_peak: Option<u64>,
    /// The least device memory that any of them has.
    pub memory_bytes_total: Option<u64>,
    /// On how many GPUs it was measured.
    pub gpu_count: usize,
}

/// Why an `AdminComment` that begins like a summary is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a summary of jobstats that cannot be unpacked")]
pub struct NotASummary;

#[derive(Deserialize, Serialize)]
struct Document {
    #[serde(default)]
    nodes: BTreeMap<String, Node>,
}

#[derive(Deserialize, Serialize)]
struct Node {
    #[serde(default, rename = "gpu_utilization")]
    busy_percent: BTreeMap<String, serde_json::Value>,
    #[serde(default, rename = "gpu_used_memory")]
    used_bytes: BTreeMap<String, serde_json::Value>,
    #[serde(default, rename = "gpu_total_memory")]
    total_bytes: BTreeMap<String, serde_json::Value>,
}

/// Reads an `AdminComment`. `Ok(None)`: it holds no summary.
///
/// # Errors
/// [`NotASummary`] where it says that it does, and does not.
pub fn summary(comment: &str) -> Result<Option<Summary>, NotASummary> {
    Ok(document(comment)?.map(|document| of_nodes(document.nodes.values())))
}

/// The same summary with what it says of GPUs alone, and nodes by numbers; `None` where there is none.
pub(crate) fn repacked(comment: &str) -> Option<String> {
    let found = document(comment).ok()??;
    let numbers = (1..).map(|number: u32| format!("n{number}"));
    let is_number = |value: &serde_json::Value| value.is_number();
    let of_gpus = |mut values: BTreeMap<String, serde_json::Value>| {
        values.retain(|gpu, value| is_number(value) && gpu.bytes().all(|byte| byte.is_ascii_digit()));
        values
    };
    let nodes = numbers.zip(found.nodes.into_values()).map(|(name, node)| {
        let Node { busy_percent, used_bytes, total_bytes } = node;
        let [busy_percent, used_bytes, total_bytes] = [busy_percent, used_bytes, total_bytes].map(of_gpus);
        (name, Node { busy_percent, used_bytes, total_bytes })
    });
    let json = serde_json::to_vec(&Document { nodes: nodes.collect() }).ok()?;
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    gzip.write_all(&json).ok()?;
    Some(format!("{PREFIX}{}", STANDARD.encode(gzip.finish().ok()?)))
}

fn document(comment: &str) -> Result<Option<Document>, NotASummary> {
    let Some(packed) = comment.strip_prefix(PREFIX) else { return Ok(None) };
    let packed = packed.trim_end();
    if NOTHING.contains(&packed) {
        return Ok(None);
    }
    let bytes = STANDARD.decode(packed).map_err(|_| NotASummary)?;
    let mut json = Vec::new();
    let mut unpacked = GzDecoder::new(bytes.as_slice()).take(JSON_BYTES_MAX + 1);
    unpacked.read_to_end(&mut json).map_err(|_| NotASummary)?;
    if json.len() as u64 > JSON_BYTES_MAX {
        return Err(NotASummary);
    }
    serde_json::from_slice(&json).map(Some).map_err(|_| NotASummary)
}

fn of_nodes<'n>(nodes: impl Iterator<Item = &'n Node>) -> Summary {
    let (mut busy_sum, mut gpu_count) = (0.0, 0_u32);
    let mut summary = Summary::default();
    for node in nodes {
        for percent in node.busy_percent.values().filter_map(serde_json::Value::as_f64) {
            if (0.0..=100.0).contains(&percent) {
                busy_sum += percent / 100.0;
                gpu_count += 1;
            }
        }
        let used = node.used_bytes.values().filter_map(serde_json::Value::as_u64);
        summary.memory_bytes_peak = summary.memory_bytes_peak.max(used.max());
        let total =
            node.total_bytes.values().filter_map(serde_json::Value::as_u64).filter(|bytes| *bytes > 0);
        summary.memory_bytes_total = [summary.memory_bytes_total, total.min()].into_iter().flatten().min();
    }
    if gpu_count > 0 {
        summary.busy_fraction = Some(busy_sum / f64::from(gpu_count));
    }
    summary.gpu_count = gpu_count as usize;
    summary
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(json: &[u8]) -> String {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(json).unwrap();
        format!("JS1:{}", STANDARD.encode(gzip.finish().unwrap()))
    }

    #[test]
    fn gpus_of_all_nodes_are_put_together() {
        let json = br#"{"nodes":{"n1":{"cpus":8,"total_time":3600.5,"gpu_utilization":{"0":90.0,"1":30},
            "gpu_used_memory":{"0":1000,"1":3000},"gpu_total_memory":{"0":80000,"1":80000}},
            "n2":{"cpus":8,"gpu_utilization":{"0":"?"}}},"total_time":60,"gpus":3}"#;
        let found = summary(&packed(json)).unwrap().unwrap();
        assert!((found.busy_fraction.unwrap() - 0.6).abs() < 1e-9, "{found:?}");
        assert_eq!((found.memory_bytes_peak, found.memory_bytes_total), (Some(3000), Some(80_000)));
        assert_eq!(found.gpu_count, 2);
        let again = repacked(&packed(json)).unwrap();
        assert_eq!(summary(&again), Ok(Some(found)), "what it says of GPUs stays");
        assert_eq!(repacked("JS1:None"), None);
    }

    #[test]
    fn what_is_no_summary_is_nothing_or_refused() {
        for comment in ["", "pillion1;lease=3", "JS1:Short", "JS1:None", "JS2:abc"] {
            assert_eq!(summary(comment), Ok(None), "{comment}");
        }
        for comment in ["JS1:", "JS1:***", "JS1:QUJD"] {
            assert_eq!(summary(comment), Err(NotASummary), "{comment}");
        }
        assert_eq!(summary(&packed(b"[1,2")), Err(NotASummary));
        let no_gpu = summary(&packed(br#"{"nodes":{"n1":{"cpus":8}}}"#)).unwrap().unwrap();
        assert_eq!(no_gpu, Summary::default());
    }

    #[test]
    fn what_unpacks_to_very_much_is_refused() {
        let bomb = packed(&vec![b' '; 8 << 20]);
        assert!(bomb.len() < 64 << 10);
        assert_eq!(summary(&bomb), Err(NotASummary));
    }
}
