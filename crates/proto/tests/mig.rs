//! What a device can be cut into, as an agent tells it: a liar's sizes are refused, and said why.

use pillion_core::device::DeviceDescription;
use pillion_proto::v1 as wire;

fn refused<T: std::fmt::Debug, E: std::error::Error>(result: Result<T, E>) -> String {
    pillion_core::report(&result.expect_err("must be refused"))
}

#[test]
fn sizes_that_no_device_has_are_refused() {
    let size = wire::MigSize {
        profile: "3g.40gb".into(),
        memory_slices: 4,
        starts: vec![0, 4],
        instances_max: 2,
        memory_bytes: None,
        sm_count: 60,
    };
    let device = |mig_sizes: Vec<wire::MigSize>| wire::Device {
        uuid: "GPU-1".into(),
        model: "h100".into(),
        gres_type: "g0".into(),
        mechanism: "mig".into(),
        mig_sizes,
        ..wire::Device::default()
    };
    let read = |size: wire::MigSize| DeviceDescription::try_from(device(vec![size]));
    let told = read(size.clone()).expect("one size").geometry.expect("it was told");
    assert_eq!(told.whole().starts, [0, 4]);
    for (wrong, why) in [
        (wire::MigSize { profile: "3g".into(), ..size.clone() }, "'3g' is not a MIG profile"),
        (wire::MigSize { starts: vec![0, 400], ..size.clone() }, "starts is 400"),
        (wire::MigSize { starts: vec![0; 17], ..size.clone() }, "starts has 17 entries"),
        (wire::MigSize { starts: vec![14], ..size.clone() }, "lies outside the device"),
        (wire::MigSize { memory_slices: 0, ..size.clone() }, "takes no memory slice"),
        (wire::MigSize { instances_max: 256, ..size.clone() }, "instances_max is 256"),
    ] {
        assert!(refused(read(wrong)).contains(why), "{why}");
    }
    let two = DeviceDescription::try_from(device(vec![size.clone(), size.clone()]));
    assert!(refused(two).contains("stands there twice"));
    assert!(refused(DeviceDescription::try_from(device(vec![size; 33]))).contains("33 entries"));
}
