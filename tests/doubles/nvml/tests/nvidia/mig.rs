//! What MIG has cut a device into is told as the driver has it, and only where it has.

use crate::backend;
use crate::support::Node;
use pillion_core::device::{MigInstance, MigPlacement};
use pillion_device::Backend as _;
use serde_json::{Value, json};

/// Of each instance: its GPU instance, its size, its first memory slice and how many, its SMs, its memory in MiB.
type Told = (u32, String, Option<(u32, u32)>, u32, u64);

fn told(instances: &[MigInstance]) -> Vec<Told> {
    let place = |placement: MigPlacement| (placement.start, placement.size);
    let one = |it: &MigInstance| {
        let (profile, placement) = (it.profile.clone(), it.placement.map(place));
        (it.gpu_instance_id, profile, placement, it.sm_count, it.memory_bytes >> 20)
    };
    instances.iter().map(one).collect()
}

fn instances(node: &Node) -> Vec<Option<Vec<MigInstance>>> {
    backend(node).devices().unwrap().into_iter().map(|device| device.instances).collect()
}

fn laid_out(index: u32, layout: &[(&str, u32)]) -> Value {
    layout
        .iter()
        .map(|(profile, start)| json!({ "index": index, "profile": profile, "start": start }))
        .collect()
}

#[test]
fn an_h100_is_listed_as_it_is_cut_up() {
    let mut node = Node::start("h100", 2);
    node.set("mig", json!([1]));
    node.set("mig_instances", laid_out(1, &[("3g.40gb", 4), ("2g.20gb", 0), ("1g.10gb", 2), ("1g.10gb", 3)]));
    let all = instances(&node);
    assert_eq!(all[0], None, "MIG is off");
    let found = all[1].clone().unwrap();
    let of = |id, profile: &str, place, sms, mebibytes| (id, profile.to_owned(), Some(place), sms, mebibytes);
    let expected = [
        of(2, "3g.40gb", (4, 4), 60, 40_448),
        of(3, "2g.20gb", (0, 2), 32, 20_096),
        of(9, "1g.10gb", (2, 1), 16, 9_984),
        of(10, "1g.10gb", (3, 1), 16, 9_984),
    ];
    assert_eq!(told(&found), expected);
    let mut names: Vec<&str> = found.iter().map(|instance| instance.uuid.as_str()).collect();
    assert!(names.iter().all(|name| name.starts_with("MIG-")), "{names:?}");
    names.dedup();
    assert_eq!(names.len(), 4, "each has a name of its own");
    assert!(found.iter().all(|instance| instance.compute_instance_id == 0));
    node.set("mig_instances", laid_out(1, &[("7g.80gb", 0)]));
    let whole = told(instances(&node)[1].as_ref().unwrap());
    assert_eq!(whole, [of(0, "7g.79gb", (0, 8), 132, 81_152)], "Slurm rounds what the driver tells");
}

#[test]
fn an_a100_is_listed_as_it_is_cut_up() {
    let mut node = Node::start("a100-40", 1);
    node.set("mig", json!([0]));
    let seven: Vec<(&str, u32)> = (0..7).map(|start| ("1g.5gb", start)).collect();
    node.set("mig_instances", laid_out(0, &seven));
    let expected: Vec<Told> =
        (0..7).map(|start| (7 + start, "1g.5gb".to_owned(), Some((start, 1)), 14, 4_864)).collect();
    assert_eq!(told(instances(&node)[0].as_ref().unwrap()), expected);
    node.set("mig_instances", laid_out(0, &[("1g.10gb", 6), ("4g.20gb", 0), ("2g.10gb", 4)]));
    let expected = [
        (6, "1g.10gb".to_owned(), Some((6, 2)), 14, 9_856),
        (1, "4g.20gb".to_owned(), Some((0, 4)), 56, 19_968),
        (5, "2g.10gb".to_owned(), Some((4, 2)), 28, 9_856),
    ];
    assert_eq!(told(instances(&node)[0].as_ref().unwrap()), expected);
}

#[test]
fn no_instances_are_told_apart_from_an_unknown_number() {
    let mut node = Node::start("h100", 1);
    node.set("mig", json!([0]));
    assert_eq!(instances(&node), [Some(vec![])], "MIG is on, and nothing is made yet");
    node.set("not_permitted", json!(["nvmlDeviceGetMigDeviceHandleByIndex"]));
    assert_eq!(instances(&node), [None]);
    node.set("not_permitted", json!([]));
    node.set("not_root", json!(true));
    node.set("mig_instances", laid_out(0, &[("1g.20gb", 2)]));
    let unplaced = told(instances(&node)[0].as_ref().unwrap());
    assert_eq!(unplaced, [(4, "1g.20gb".to_owned(), None, 26, 20_096)], "its place is for root alone");
    assert_eq!(instances(&Node::start("v100", 1)), [None], "it has no MIG");
}
