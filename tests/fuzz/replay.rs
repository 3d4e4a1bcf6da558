//! What a site's accounting may hold: rows of sacct, summaries of jobstats, telemetry, nodes and carbon, all of it from others.

use crate::fuzz;
use crate::values::{bytes_like, text_like};
use pillion_replay::anonymise::{self, Pseudonyms};
use pillion_replay::read::{Besides, Scripts, Telemetry, read, summary};
use pillion_replay::{Carbon, site};

const SACCT: &str = "JobIDRaw|User|Account|Partition|JobName|State|Submit|Eligible|Start|End|TimelimitRaw|Priority|NNodes|NodeList|AllocTRES|\
    ReqTRES|TRESUsageInMax|SubmitLine|AdminComment\n\
    7|alice|ml|gpu|train|COMPLETED|1790812800|1790812800|1790812801|1790816400|60|100|1|n[1-2]|cpu=4,gres/gpu:a100=1,mem=32G|gres/gpu=1||\
    sbatch a.sh --seed 7|JS1:None\n\
    7.batch||ml||batch|COMPLETED|1790812800|Unknown|1790812801|1790816400|||1|n1|cpu=4||cpu=00:10:00,gres/gpumem=4000M,gres/gpuutil=42||\n";
/// `{"nodes":{"n1":{"gpu_utilization":{"0":50.0},"gpu_used_memory":{"0":1000}}}}`, compressed.
const SUMMARY: &str = "JS1:H4sIAAAAAAAC/6tWystPSS1WsqpWyjMEkekFpfGlJZk5mVWJJZn5eSAhAyUrUwM9g1odiGRxakp8bmpuflElVNLQwMCgFggABShwCUwAAAA=";

#[test]
fn accounting() {
    let names = Pseudonyms::new([7; 32]);
    fuzz("accounting", &bytes_like(vec![SACCT.as_bytes().to_vec()]), |bytes| {
        let found = read(bytes.as_slice(), &Besides::default());
        match &found {
            Ok((accounting, _)) => {
                // Whatever is believed can be computed with.
                let jobs = &accounting.jobs;
                assert!(
                    jobs.iter().all(|job| job.started_at < job.ended_at && job.gpus > 0 && job.nodes > 0)
                );
                assert!(
                    jobs.iter().all(|job| job.gpu_hours().is_finite() && job.eligible_at <= job.started_at)
                );
            }
            Err(error) => assert_eq!(error.to_string().lines().count(), 1, "{error:?}"),
        }
        let mut written = Vec::new();
        if anonymise::accounting(bytes.as_slice(), &mut written, &names).is_ok() {
            // What was written anew is a file of sacct again, of as many jobs.
            let again = read(written.as_slice(), &Besides::default());
            let count = |found: &Result<(pillion_replay::Accounting, _), _>| {
                found.as_ref().map_or(0, |(read, _)| read.jobs.len())
            };
            assert_eq!(count(&again), count(&found), "{}", String::from_utf8_lossy(&written));
        }
    });
}

#[test]
fn summaries() {
    fuzz("summaries", &text_like(&[SUMMARY, "JS1:Short", "JS1:None", "JS1:"]), |text| {
        if let Ok(Some(found)) = summary(&text) {
            assert!(found.busy_fraction.is_none_or(|part| (0.0..=1.0).contains(&part)), "{found:?}");
        }
    });
}

#[test]
fn telemetry() {
    let example = "job_id,gpu_index,sm_active_fraction,memory_bandwidth_fraction,memory_bytes_peak,power_watts_mean\n7,0,0.5,,1e9,250\n8,1,,,,\n";
    fuzz("telemetry", &bytes_like(vec![example.as_bytes().to_vec()]), |bytes| {
        if let Err(error) = Telemetry::read(bytes.as_slice()) {
            assert_eq!(error.to_string().lines().count(), 1, "{error:?}");
        }
    });
}

#[test]
fn scripts() {
    let dashes = "-".repeat(80);
    let example =
        format!("Batch Script for 7\n{dashes}\n#!/bin/sh\na\n\nBatch Script for 8_1\n{dashes}\nNONE\n");
    fuzz("scripts", &bytes_like(vec![example.into_bytes()]), |bytes| match Scripts::read(bytes.as_slice()) {
        Ok(scripts) => assert!(!scripts.is_empty()),
        Err(error) => assert_eq!(error.to_string().lines().count(), 1, "{error:?}"),
    });
}

#[test]
fn sites() {
    let nodes = "NodeName=n1 CPUTot=64 RealMemory=515000 Gres=gpu:a100:4(S:0-1),x:1 Partitions=gpu,long\n   State=IDLE\n";
    fuzz("nodes", &text_like(&[nodes]), |text| {
        if let Ok(nodes) = site::read_nodes(&text) {
            assert!(nodes.shapes.iter().all(|shape| shape.gpus > 0 && !shape.name.is_empty()));
        }
    });
    fuzz("shapes", &text_like(&["16x4:a100:64:512", "2x8"]), |text| match site::parse_shape(&text) {
        Ok(nodes) => assert!(!nodes.is_empty() && nodes.iter().all(|node| node.gpus > 0)),
        Err(error) => assert_eq!(error.to_string().lines().count(), 1, "{error:?}"),
    });
    fuzz("carbon", &text_like(&["time,grams\n1790812800,320\n1790816400,310.5\n"]), |text| {
        if let Ok(carbon) = Carbon::parse(&text) {
            assert!(carbon.rows.iter().all(|(_, grams)| (0.0..=5000.0).contains(grams)));
        }
    });
}
