//! A share of several devices, there and back; and what no job has of several.

use pillion_core::share::{Share, Sharing};
use pillion_core::{DecisionId, JobStart, Shards, SlurmJobId, UserId};
use pillion_proto::v1 as wire;

fn share() -> Share {
    Share {
        decision_id: DecisionId(7),
        start: JobStart { job_id: SlurmJobId::plain(33), restart_count: 1 },
        uid: UserId(2001),
        gres_types: "g0,g1".parse().expect("two devices"),
        sharing: Sharing::TimeSliced,
        shards: Shards::ALL,
        memory_bytes: None,
        is_session: false,
        is_plain: false,
    }
}

#[test]
fn a_share_of_several_devices_is_the_same_at_the_other_end() {
    let sent = wire::PrepareShare::from(share());
    assert_eq!((sent.gres_type.as_str(), sent.shards), ("g0,g1", 100));
    assert_eq!(Share::try_from(sent), Ok(share()));
    assert_eq!(share().shards_booked(), 200);
    let each: Vec<String> = share().device_groups().iter().map(ToString::to_string).collect();
    assert_eq!(each, ["g0", "g1"], "set up each by itself");
}

#[test]
fn parts_of_several_are_shared_as_one_by_mps() {
    let sharing = Sharing::Mps { cap: None, memory_limit_bytes: Some(8 << 30) };
    let parts = Share { sharing, shards: Shards::try_new(50).expect("in range"), ..share() };
    assert_eq!(Share::try_from(wire::PrepareShare::from(parts.clone())), Ok(parts.clone()));
    assert_eq!((parts.device_groups(), parts.shards_booked()), (vec![parts.gres_types.clone()], 100));
}

#[test]
fn nobody_has_a_part_of_several_devices_or_one_of_them_twice() {
    let sent = wire::PrepareShare::from(share());
    for (wrong, why) in [
        (wire::PrepareShare { shards: 50, ..sent.clone() }, "parts of several devices"),
        (
            wire::PrepareShare { mechanism: "ccs".into(), ccs_mode: Some(2), ..sent.clone() },
            "only mps shares",
        ),
        (wire::PrepareShare { gres_type: "g0,g0".into(), ..sent.clone() }, "names no devices of a node"),
        (wire::PrepareShare { gres_type: "g0,".into(), ..sent.clone() }, "gres_type is empty"),
        (wire::PrepareShare { gres_type: "g0,g 1".into(), ..sent.clone() }, "allowed are letters"),
    ] {
        let refused = Share::try_from(wrong).map_err(|error| pillion_core::report(&error));
        assert!(refused.as_ref().is_err_and(|text| text.contains(why)), "{why}: {refused:?}");
    }
}
