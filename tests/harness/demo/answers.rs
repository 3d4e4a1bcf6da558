//! What jobs printed and what `pillion --json` answered, taken apart. Pure.

use crate::error::{HarnessError, Result};
use serde_json::Value;
use std::collections::BTreeMap;

/// What a job printed of itself.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Told {
    /// Unix seconds by its own clock.
    pub(super) began: f64,
    /// Unix seconds by its own clock.
    pub(super) ended: f64,
    /// The variables that it found.
    pub(super) environment: BTreeMap<String, String>,
}

impl Told {
    /// Reads the output of a script of the cast.
    ///
    /// # Errors
    /// [`HarnessError::Refused`] where a time is missing.
    pub(super) fn read(output: &str) -> Result<Self> {
        let time = |word: &str| {
            let line = output.lines().find_map(|line| line.strip_prefix(word));
            let missing = || HarnessError::Refused(format!("a job did not print when it {word}: {output}"));
            line.and_then(|text| text.trim().parse::<f64>().ok()).ok_or_else(missing)
        };
        let is_ours = |name: &str| {
            name.starts_with("CUDA_") || name.starts_with("ZE") || name.starts_with("PILLION_DECISION")
        };
        let pair = |line: &str| line.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
        let environment = output.lines().filter_map(pair).filter(|(name, _)| is_ours(name)).collect();
        Ok(Self { began: time("began")?, ended: time("ended")?, environment })
    }

    /// How long it took.
    pub(super) fn seconds(&self) -> f64 {
        self.ended - self.began
    }
}

/// What was decided for one job, and what came of it.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Decided {
    pub(super) decision: u64,
    /// The decision that this sharing began with.
    pub(super) group: u64,
    pub(super) node: String,
    /// The device, by its GRES type.
    pub(super) device: String,
    pub(super) mechanism: String,
    pub(super) cap_fraction: Option<f64>,
    pub(super) ccs_mode: Option<u64>,
    pub(super) shards: u64,
    pub(super) memory_limit_bytes: Option<u64>,
    pub(super) promise: Option<f64>,
    pub(super) energy_joules: Option<f64>,
    pub(super) is_over: bool,
}

/// Reads `pillion pairs --all --json`: what was decided, by job.
///
/// # Errors
/// [`HarnessError::Refused`] where it is no JSON.
pub(super) fn decisions(json: &str) -> Result<BTreeMap<String, Decided>> {
    let body = parse(json)?;
    let mut found = BTreeMap::new();
    for decision in list(&body, "decisions") {
        for member in list(decision, "members") {
            found.insert(text(member, "job_id"), decided(decision, member));
        }
    }
    Ok(found)
}

fn decided(decision: &Value, member: &Value) -> Decided {
    Decided {
        decision: decision["decision_id"].as_u64().unwrap_or_default(),
        group: decision["group_id"].as_u64().unwrap_or_default(),
        node: text(decision, "node"),
        device: text(decision, "gres_type"),
        mechanism: text(decision, "mechanism"),
        cap_fraction: member["cap_fraction"].as_f64(),
        ccs_mode: member["ccs_mode"].as_u64(),
        shards: member["shards"].as_u64().unwrap_or_default(),
        memory_limit_bytes: member["memory_limit_bytes"].as_u64(),
        promise: member["slowdown_ratio_max"].as_f64(),
        energy_joules: member["energy_joules"].as_f64(),
        is_over: member["state"] == "ended",
    }
}

/// The vendor's name of each device, by node and GRES type, from `pillion status --json`.
///
/// # Errors
/// [`HarnessError::Refused`] where it is no JSON.
pub(super) fn device_uuids(json: &str) -> Result<BTreeMap<(String, String), String>> {
    let body = parse(json)?;
    let mut found = BTreeMap::new();
    for agent in list(&body, "agents") {
        for device in list(agent, "devices") {
            found.insert((text(agent, "node"), text(device, "gres_type")), text(device, "uuid"));
        }
    }
    Ok(found)
}

/// How agents and the scheduler prove over TCP who they are, from `pillion status --json`.
///
/// # Errors
/// [`HarnessError::Refused`] where it is no JSON.
pub(super) fn auth_method(json: &str) -> Result<Value> {
    Ok(parse(json)?["auth_method"].clone())
}

/// The last thing that was said of a job, from `pillion explain --json`: the rule's word and the sentence.
///
/// # Errors
/// [`HarnessError::Refused`] where it is no JSON.
pub(super) fn reason(json: &str) -> Result<(String, String)> {
    let body = parse(json)?;
    let last = list(&body, "explanations").last().map(|entry| &entry["explanation"]);
    Ok(last.map(|last| (text(last, "reason"), text(last, "text"))).unwrap_or_default())
}

/// A partner that a job was not paired with, from `pillion explain --json`: the name of his workload, and the rule that excluded him.
/// `None`: in its last answer the engine considered nobody whom a rule excluded.
///
/// # Errors
/// [`HarnessError::Refused`] where it is no JSON.
pub(super) fn excluded(json: &str) -> Result<Option<(String, String)>> {
    let body = parse(json)?;
    let last = list(&body, "explanations").last().map(|entry| &entry["explanation"]);
    let candidates = last.map(|last| list(last, "candidates")).unwrap_or_default();
    let excluded = candidates.iter().find(|candidate| candidate["excluded_by"].is_string());
    Ok(excluded.map(|candidate| (text(candidate, "workload_name"), text(candidate, "excluded_by"))))
}

/// What the first event of this kind says of a job, from `pillion explain --json`; `None`: there was none.
///
/// # Errors
/// [`HarnessError::Refused`] where it is no JSON.
pub(super) fn event(json: &str, kind: &str) -> Result<Option<String>> {
    let body = parse(json)?;
    Ok(list(&body, "events").iter().find(|event| event["kind"] == kind).map(|event| text(event, "detail")))
}

/// State and reason of each job, from `pillion queue --json`.
///
/// # Errors
/// [`HarnessError::Refused`] where it is no JSON.
pub(super) fn queue(json: &str) -> Result<Vec<(String, String)>> {
    let body = parse(json)?;
    Ok(list(&body, "jobs").iter().map(|job| (text(job, "state"), text(job, "reason"))).collect())
}

/// How many workloads are known by so many runs alone, in the answer of `pillion profile --json`.
///
/// # Errors
/// [`HarnessError::Refused`] where it is no JSON.
pub(super) fn profiles(json: &str, run_count_min: u64) -> Result<usize> {
    let known = parse(json)?;
    let counts = list(&known, "profiles").iter().map(|profile| profile["run_count"].as_u64().unwrap_or(0));
    Ok(counts.filter(|count| *count >= run_count_min).count())
}

fn parse(json: &str) -> Result<Value> {
    serde_json::from_str(json).map_err(|error| HarnessError::Refused(format!("pillion --json: {error}")))
}

fn list<'v>(value: &'v Value, name: &str) -> &'v [Value] {
    value[name].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn text(value: &Value, name: &str) -> String {
    value[name].as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_s_output_is_taken_apart() {
        let output = "began 1795.25\nCUDA_VISIBLE_DEVICES=0\nHOME=/x\nZE_AFFINITY_MASK=1.1\n{\"a\": \"b=c\"}\nended 1799.75\n";
        let told = Told::read(output).unwrap();
        assert!((told.seconds() - 4.5).abs() < 1e-9);
        assert_eq!(told.environment.keys().collect::<Vec<_>>(), ["CUDA_VISIBLE_DEVICES", "ZE_AFFINITY_MASK"]);
        assert!(Told::read("began 1\n").unwrap_err().to_string().contains("ended"));
    }

    #[test]
    fn decisions_are_found_by_job() {
        let json = r#"{"decisions": [{"decision_id": 7, "group_id": 6, "node": "n1", "gres_type": "g0", "mechanism": "mps",
            "members": [{"job_id": "3", "workload": "alice/x", "cap_fraction": 0.9, "ccs_mode": null, "shards": 40,
                         "memory_limit_bytes": null, "slowdown_ratio_max": 1.25, "energy_joules": 2.5, "state": "ended"}]}]}"#;
        let decided = &decisions(json).unwrap()["3"];
        assert_eq!((decided.decision, decided.group, decided.shards, decided.is_over), (7, 6, 40, true));
        assert_eq!((decided.cap_fraction, decided.ccs_mode), (Some(0.9), None));
        assert!(decisions("no").is_err());
    }

    #[test]
    fn an_event_is_found_by_its_kind() {
        let json =
            r#"{"events": [{"kind": "requeued", "detail": "a"}, {"kind": "sent-back", "detail": "b"}]}"#;
        assert_eq!(event(json, "sent-back").unwrap().as_deref(), Some("b"));
        assert_eq!(event(json, "victim").unwrap(), None);
    }

    #[test]
    fn the_one_whom_a_rule_excluded_is_found() {
        let json = r#"{"explanations": [{"explanation": {"candidates": [{"workload_name": "a/x", "excluded_by": "held"}]}},
            {"explanation": {"candidates": [{"workload_name": "b/y", "excluded_by": null}, {"workload_name": "b/z", "excluded_by": "promise-at-risk"}]}}]}"#;
        assert_eq!(excluded(json).unwrap(), Some(("b/z".to_owned(), "promise-at-risk".to_owned())));
        assert_eq!(excluded("{}").unwrap(), None);
    }
}
