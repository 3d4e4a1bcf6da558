//! Each rule of the driver libraries, and each refusal.

use super::*;

fn slots(daemon_on: Option<u32>) -> Vec<Slot> {
    (0..4)
        .map(|index| Slot {
            index,
            uuid: DeviceUuid::new(format!("GPU-{index}000-aa")),
            mps_pipes: (daemon_on == Some(index))
                .then(|| Pipe { instance: None, directory: PathBuf::from("/run/mps/2/pipe"), order: 0 })
                .into_iter()
                .collect(),
            instances: None,
        })
        .collect()
}

fn environment(pairs: &[(&str, &str)]) -> Environment {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn nvidia(daemon_on: Option<u32>, pairs: &[(&str, &str)]) -> Result<Claim, ClientError> {
    resolve(Vendor::Nvidia, (&environment(pairs), 0), &slots(daemon_on), false)
}

fn intel(pairs: &[(&str, &str)]) -> Result<Claim, ClientError> {
    resolve(Vendor::Intel, (&environment(pairs), 0), &slots(None), false)
}

const PIPE: (&str, &str) = ("CUDA_MPS_PIPE_DIRECTORY", "/run/mps/2/pipe/");

#[test]
fn visible_devices_are_indexes_or_uuids() {
    let index = |value| nvidia(None, &[("CUDA_VISIBLE_DEVICES", value)]).map(|claim| claim.index);
    assert_eq!(index("2"), Ok(2));
    assert_eq!(index("3,0"), Ok(3));
    assert_eq!(index("GPU-1000-aa"), Ok(1));
    assert_eq!(index("GPU-1"), Ok(1));
    assert_eq!(nvidia(None, &[]).unwrap().index, 0);
    for wrong in ["4", "", "-1", "GPU-9", "GPU-", "GPU", "9,0", "1,1", "shard"] {
        assert!(matches!(index(wrong), Err(ClientError::NoDevice { .. })), "{wrong:?}");
    }
}

#[test]
fn of_a_cut_device_a_process_sees_the_instance_that_it_names_else_the_first() {
    let mut slots = slots(None);
    let named = |name: &str, id| (DeviceUuid::new(name), id);
    slots[1].instances = Some(vec![named("MIG-a", 7), named("MIG-b", 3)]);
    slots[2].instances = Some(Vec::new());
    let claim = |value: Option<&str>| {
        let pairs: Vec<(&str, &str)> = value.iter().map(|value| ("CUDA_VISIBLE_DEVICES", *value)).collect();
        let claim = resolve(Vendor::Nvidia, (&environment(&pairs), 0), &slots, false);
        claim.map(|claim| (claim.index, claim.instance)).ok()
    };
    assert_eq!(claim(None), Some((0, None)));
    assert_eq!(claim(Some("1")), Some((1, Some(7))));
    assert_eq!(claim(Some("GPU-1000-aa")), Some((1, Some(7))));
    assert_eq!(claim(Some("MIG-b")), Some((1, Some(3))));
    assert_eq!(claim(Some("2")), Some((3, None)), "one without an instance is none, and is not counted");
    for wrong in ["GPU-2000-aa", "MIG-c", "MIG-", "3"] {
        assert_eq!(claim(Some(wrong)), None, "{wrong}");
    }
}

#[test]
fn without_a_daemon_at_its_directory_a_process_is_no_client_and_its_percentage_is_not_read() {
    let stray = [("CUDA_VISIBLE_DEVICES", "2"), ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "nonsense")];
    assert_eq!(nvidia(Some(2), &stray).unwrap(), Claim { index: 2, instance: None, access: Access::Plain });
    let elsewhere = [("CUDA_MPS_PIPE_DIRECTORY", "/run/mps/1/pipe"), ("CUDA_VISIBLE_DEVICES", "2")];
    assert_eq!(nvidia(Some(2), &elsewhere).unwrap().access, Access::Plain);
}

#[test]
fn a_client_sees_only_the_device_of_its_daemon_as_number_0() {
    let access = Access::Mps { cap: None, memory_limit: PinnedLimit::Absent };
    assert_eq!(nvidia(Some(2), &[PIPE]).unwrap(), Claim { index: 2, instance: None, access });
    for good in ["0", "GPU-2000-aa"] {
        assert_eq!(nvidia(Some(2), &[PIPE, ("CUDA_VISIBLE_DEVICES", good)]).unwrap().index, 2, "{good}");
    }
    for wrong in ["2", "GPU-1000-aa"] {
        let claim = nvidia(Some(2), &[PIPE, ("CUDA_VISIBLE_DEVICES", wrong)]);
        assert!(matches!(claim, Err(ClientError::NoDevice { .. })), "{wrong}");
    }
}

#[test]
fn a_client_reads_its_percentage_and_its_limit() {
    let with = |name, value| nvidia(Some(2), &[PIPE, (name, value)]).map(|claim| claim.access);
    let mps = |cap, memory_limit| Ok(Access::Mps { cap, memory_limit });
    assert_eq!(with("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "62.5"), mps(Some(0.625), PinnedLimit::Absent));
    let limit = |text| with("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", text);
    assert_eq!(limit("0=8G"), mps(None, PinnedLimit::Bytes(8 << 30)));
    assert_eq!(limit("GPU-2000-aa=512MB"), mps(None, PinnedLimit::Bytes(512 << 20)));
    for unseen in ["1=2G", "1=2G,GPU-2000-aa=512MB", "GPU-1000-aa=2G"] {
        assert_eq!(limit(unseen), mps(None, PinnedLimit::Dropped), "{unseen}");
    }
    for wrong in ["0", "101", "-5", "half", ""] {
        let access = with("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", wrong);
        assert!(matches!(access, Err(ClientError::Initialization { .. })), "{wrong:?}");
    }
    for wrong in ["8G", "0=8", "0=G", "0:8G", "", "0=99999999999G"] {
        let access = with("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", wrong);
        assert!(matches!(access, Err(ClientError::Initialization { .. })), "{wrong:?}");
    }
}

#[test]
fn a_client_of_a_daemon_of_several_sees_them_in_its_order_with_a_limit_each() {
    let mut slots = slots(None);
    for (order, index) in [3, 1].into_iter().enumerate() {
        let directory = PathBuf::from("/run/mps/2/pipe");
        slots[index].mps_pipes.push(Pipe { instance: None, directory, order });
    }
    let of_number = |number, visible: &str, limit: &str| {
        let pairs = [PIPE, ("CUDA_VISIBLE_DEVICES", visible), ("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", limit)];
        let claim = resolve(Vendor::Nvidia, (&environment(&pairs), number), &slots, false).ok()?;
        let Access::Mps { memory_limit, .. } = claim.access else { panic!("no client") };
        Some((claim.index, memory_limit))
    };
    let (claim, limits) = (|visible: &str, limit: &str| of_number(0, visible, limit), "0=1G,1=2G");
    assert_eq!(claim("0,1", limits), Some((3, PinnedLimit::Bytes(1 << 30))));
    assert_eq!(claim("GPU-1000-aa,GPU-3000-aa", limits), Some((1, PinnedLimit::Bytes(1 << 30))));
    assert_eq!(of_number(1, "0,1", limits), Some((1, PinnedLimit::Bytes(2 << 30))));
    assert_eq!(of_number(2, "0,1", limits), None);
    // Who narrows what he sees, and not his limits, has none.
    assert_eq!(claim("1", limits), Some((1, PinnedLimit::Dropped)));
    assert_eq!(claim("1", "GPU-1000-aa=3G"), Some((1, PinnedLimit::Bytes(3 << 30))));
    assert_eq!(claim("2", limits), None, "it shows two");
    assert_eq!(claim("GPU-2000-aa", limits), None);
}

#[test]
fn in_a_cgroup_indexes_count_among_the_jobs_devices() {
    let inside = |pairs: &[(&str, &str)]| {
        resolve(Vendor::Nvidia, (&environment(pairs), 0), &slots(None), true).map(|claim| claim.index)
    };
    assert_eq!(inside(&[("SLURM_JOB_GPUS", "3"), ("CUDA_VISIBLE_DEVICES", "0")]), Ok(3));
    assert!(inside(&[("SLURM_JOB_GPUS", "3"), ("CUDA_VISIBLE_DEVICES", "3")]).is_err());
    assert!(inside(&[("CUDA_VISIBLE_DEVICES", "0")]).is_err());
}

#[test]
fn the_affinity_mask_counts_tiles_when_flat_and_cards_when_composite() {
    let index = |hierarchy, mask| {
        intel(&[("ZE_FLAT_DEVICE_HIERARCHY", hierarchy), ("ZE_AFFINITY_MASK", mask)]).map(|claim| claim.index)
    };
    assert_eq!(index("FLAT", "3"), Ok(3));
    assert_eq!(index("FLAT", "0.1,2"), Ok(2));
    assert_eq!(index("COMPOSITE", "1"), Ok(2));
    assert_eq!(index("COMPOSITE", "1.1"), Ok(3));
    assert_eq!(intel(&[]).unwrap().index, 0);
    for (hierarchy, mask) in
        [("FLAT", "4"), ("FLAT", "0.1"), ("COMPOSITE", "2"), ("COMPOSITE", "0.2"), ("FLAT", "")]
    {
        assert!(matches!(index(hierarchy, mask), Err(ClientError::NoDevice { .. })), "{hierarchy} {mask:?}");
    }
    assert!(matches!(index("flat", "0"), Err(ClientError::Initialization { .. })));
}

#[test]
fn a_ccs_mode_needs_its_index_and_is_1_2_or_4() {
    let mode = |value| intel(&[("ZEX_NUMBER_OF_CCS", value)]).map(|claim| claim.access);
    assert_eq!(mode("0:2"), Ok(Access::Ccs { mode: 2 }));
    assert_eq!(mode("0:4,1:1"), Ok(Access::Ccs { mode: 4 }));
    assert_eq!(mode("1:4"), Ok(Access::Ccs { mode: 1 }));
    assert_eq!(mode("0:8"), Ok(Access::Ccs { mode: 4 }));
    assert_eq!(intel(&[]).unwrap().access, Access::Ccs { mode: 1 });
    for wrong in ["2", "0:2,4", "0:3", "0:0", "0:", ":2", "", "a:2"] {
        assert!(matches!(mode(wrong), Err(ClientError::Initialization { .. })), "{wrong:?}");
    }
}
