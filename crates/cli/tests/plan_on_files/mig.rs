//! `pillion plan --mig`: what devices would be cut into.

use super::{folder, list, run, write};
use serde_json::Value;

const SOLO: &str = "workload,sm_active_fraction,memory_bandwidth_fraction,memory_bytes_peak,duration_seconds\n\
                    tiny,0.1,0.05,8e9,600\nhuge,0.97,0.3,60e9,600\n";
const QUEUE: &str = "workload,user\ntiny,a\ntiny,b\ntiny,c\nhuge,d\n";
const LINE: &str = "plan --solo tiny.csv --queue users.csv --device h100 --mig";

async fn devices(line: &str) -> Vec<Value> {
    let folder = folder();
    write(folder.path(), "tiny.csv", SOLO.as_bytes());
    write(folder.path(), "users.csv", QUEUE.as_bytes());
    let ran = run(&folder, &format!("{line} --json")).await;
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{line}");
    let answer: Value = serde_json::from_str(&ran.out).expect("one JSON object");
    list(&answer, "devices").clone()
}

fn instances(devices: &[Value]) -> usize {
    devices.iter().flat_map(|device| list(device, "parts")).filter(|part| !part["instance"].is_null()).count()
}

#[tokio::test]
async fn strangers_have_instances_where_walls_are_wanted_and_devices_are_short() {
    let walls = format!("{LINE} --users any --isolation hard");
    let one = devices(&walls).await;
    assert_eq!((one.len(), instances(&one)), (1, 3), "{one:?}");
    assert!(list(&one[0], "parts").iter().all(|part| part["standing"] == "starts"));
    assert_eq!(instances(&devices(&format!("{walls} --devices 4")).await), 0, "each has one of his own");
    assert_eq!(instances(&devices(LINE).await), 0, "users do not meet");
}

#[tokio::test]
async fn a_model_that_cannot_be_cut_is_named_with_those_that_can() {
    let folder = folder();
    let ran = run(&folder, "plan --solo solo.csv --queue queue.csv --device v100 --mig").await;
    assert_eq!((ran.code, ran.out.as_str()), (65, ""));
    assert!(
        ran.err.contains("'v100' is no model that MIG can cut; --device takes a30, a100-40"),
        "{}",
        ran.err
    );
    for wrong in ["--devices 2", "--mig --candidates"] {
        let ran = run(&folder, &format!("plan --solo solo.csv --queue queue.csv {wrong}")).await;
        assert_eq!((ran.code, ran.out.as_str()), (64, ""), "{wrong}");
    }
}

#[tokio::test]
async fn people_read_rows_and_instances() {
    let folder = folder();
    write(folder.path(), "tiny.csv", SOLO.as_bytes());
    write(folder.path(), "users.csv", QUEUE.as_bytes());
    let ran = run(&folder, &format!("{LINE} --users any --isolation hard")).await;
    assert!(ran.out.contains("row 0") && ran.out.contains('@'), "{}", ran.out);
    assert!(
        ran.out
            .contains("1 device in instances: 3 jobs would start in one, 0 jobs without, 1 job would wait"),
        "{}",
        ran.out
    );
}
