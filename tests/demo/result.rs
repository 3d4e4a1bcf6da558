//! `result.json` holds what the demo promises to show.

use serde_json::Value;
use std::collections::BTreeSet;

fn number(job: &Value, name: &str) -> f64 {
    job[name].as_f64().unwrap_or_else(|| panic!("{name} of {job}"))
}

fn has(job: &Value, variable: &str) -> bool {
    job["environment"].get(variable).is_some()
}

/// It pairs on both mechanisms, leaves others alone, and saves.
pub(crate) fn check(result: &Value) {
    assert_eq!(result["auth_method"], "munge", "its nodes prove over TCP who they are, as those of a site");
    let jobs = result["jobs"].as_array().unwrap();
    let find = |id: &Value| jobs.iter().find(|job| job["job_id"] == *id).unwrap();
    let (first, second) = jobs.split_at(jobs.len() / 2);
    assert!(first.iter().all(|job| job["mechanism"] == "none" && job["shards"] == 100), "{first:#?}");
    assert!(first.iter().all(|job| !has(job, "CUDA_MPS_PIPE_DIRECTORY") && !has(job, "ZEX_NUMBER_OF_CCS")));

    let mut mechanisms = BTreeSet::new();
    let mut shared = BTreeSet::new();
    for pairing in result["pairings"].as_array().unwrap() {
        let members: Vec<&Value> = pairing["jobs"].as_array().unwrap().iter().map(find).collect();
        let [a, b] = members[..] else { panic!("two share: {pairing}") };
        assert_eq!((&a["node"], &a["device"]), (&b["node"], &b["device"]));
        let overlaps = number(a, "started_at") < number(b, "ended_at")
            && number(b, "started_at") < number(a, "ended_at");
        assert!(overlaps, "{a:#} and {b:#} were not there together");
        let shards: f64 = members.iter().map(|job| number(job, "shards")).sum();
        assert!(shards <= 100.0, "{pairing}");
        mechanisms.insert(a["mechanism"].as_str().unwrap());
        shared.extend(members.iter().map(|job| job["job_id"].as_u64().unwrap()));
    }
    assert_eq!(mechanisms, BTreeSet::from(["ccs", "mps"]));
    assert!(second.iter().any(|job| !shared.contains(&job["job_id"].as_u64().unwrap())), "all were paired");
    for job in jobs {
        let is_capped = job["cap_fraction"].is_number();
        assert_eq!(is_capped, has(job, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"), "{job:#}");
        let ratio = (number(job, "ended_at") - number(job, "started_at")) / number(job, "solo_seconds");
        assert!((ratio - number(job, "slowdown_ratio")).abs() < 1e-6, "{job:#}");
    }
    let totals = &result["totals"];
    let solo: f64 = jobs.iter().map(|job| number(job, "solo_seconds")).sum();
    assert!((solo - number(totals, "gpu_seconds_exclusive")).abs() < 1e-6);
    assert!(number(totals, "gpu_seconds") < solo);
    assert!(number(totals, "energy_joules") < number(totals, "energy_joules_exclusive"));
}
