use super::*;

fn sample() -> Mark {
    Mark {
        workload_digest: "4f1c09aa12bc77de".into(),
        slowdown_ratio_max: Some(1.15),
        memory_mib: Some(8192),
        cap: CapStep::from_tenths(3),
        isolation: Isolation::Hard,
        restart: RestartConsent::Early,
        as_guest: true,
        session: true,
        original_partition: "gpu".into(),
        original_field: "node".into(),
        original_gres: "gpu:a100:1".into(),
        other_gres: "lscratch:100".into(),
        original_begin_epoch: 17,
        ..Mark::default()
    }
}

#[test]
fn a_mark_reads_back_as_it_was_written() {
    let leased = sample().leased(UnixTime::from_epoch(1_700_000_000), 2);
    let again = leased.again(12_288).unwrap();
    let once_more = leased.once_more().unwrap();
    let let_go = Mark { nodes: Some(2), ..sample() }.let_go_with(None, UnixTime::from_epoch(9), 1);
    let all =
        [Mark::default(), sample(), leased.clone(), leased.undone(), leased.left(), again, once_more, let_go];
    for mark in all {
        assert_eq!(Mark::parse(&mark.to_string()), Ok(Some(mark)));
    }
}

#[test]
fn several_gpus_have_another_word_and_say_where_slurm_starts_them() {
    let text = "pillion2;w=a;part=gpu;field=node;gres=gpu:2;other=lscratch:5;begin=0;at=g0,g1";
    let mark = Mark::parse(text).unwrap().unwrap();
    assert_eq!((mark.to_string().as_str(), mark.device_count()), (text, 2));
    assert_eq!(mark.gres_with(&mark.fallback_shards()), "shard:g0:100,shard:g1:100,lscratch:5");
    assert_eq!(mark.own_gres(), "gpu:2,lscratch:5");
    let leased = mark.leased(UnixTime::from_epoch(5), 0);
    assert_eq!(Mark::parse(&leased.undone().to_string()), Ok(Some(leased.undone())));
    assert_eq!((sample().device_count(), sample().fallback_shards().as_str()), (1, "shard:100"));
    for text in ["pillion1;w=a;at=g0,g1", "pillion2;w=a", "pillion2;w=a;at=g0", "pillion2;w=a;at=g0,g0"] {
        assert!(Mark::parse(text).is_err(), "{text}");
    }
}

#[test]
fn several_nodes_are_said_too() {
    let text = "pillion2;w=a;part=gpu;field=node;gres=gpu:2;other=;begin=0;at=g0,g1;nodes=3";
    let mark = Mark::parse(text).unwrap().unwrap();
    assert_eq!((mark.to_string().as_str(), mark.node_count(), mark.device_count()), (text, 3, 2));
    let one_each = Mark::parse("pillion2;w=a;nodes=2").unwrap().unwrap();
    assert_eq!((one_each.node_count(), one_each.fallback_shards().as_str()), (2, "shard:100"));
    let let_go = mark.let_go_with("g2,g3".parse().ok().as_ref(), UnixTime::from_epoch(1_795_000_000), 1);
    assert!(let_go.to_string().ends_with(";at=g2,g3;nodes=3;go=1795000000:1;u=0;alone=1"), "{let_go}");
    assert_eq!(let_go.undone().let_go, let_go.let_go, "an undo afterwards is none that lets it go");
    for text in
        ["pillion1;w=a;nodes=2", "pillion2;w=a;nodes=1", "pillion2;w=a;nodes=x", "pillion2;w=a;nodes=2;go=5"]
    {
        assert!(Mark::parse(text).is_err(), "{text}");
    }
}

#[test]
fn a_job_that_did_not_ask_for_co_location_has_the_word_of_whole_gpus() {
    let text = "pillion2;w=a;part=shared;field=job;gres=gpu:1;other=;begin=0;plain=1";
    let mark = Mark::parse(text).unwrap().unwrap();
    assert_eq!((mark.to_string().as_str(), mark.device_count()), (text, 1));
    assert_eq!((mark.plain, mark.fallback_shards().as_str()), (true, "shard:100"));
    let undone = mark.leased(UnixTime::from_epoch(5), 0).undone();
    assert!(undone.plain && undone.to_string().starts_with("pillion2;"));
    assert!(Mark::parse("pillion1;w=a;plain=1").is_err(), "an earlier release would let somebody join it");
}

#[test]
fn an_undo_forgets_the_lease_and_keeps_the_rest() {
    let undone = sample().leased(UnixTime::from_epoch(5), 0).undone();
    assert_eq!(undone, Mark { alone: true, undone_lease_epoch: Some(5), ..sample() });
    assert_eq!(undone.undone().undone_lease_epoch, Some(0), "there was no lease to take back");
}

#[test]
fn a_job_is_given_more_memory_once() {
    let leased = sample().leased(UnixTime::from_epoch(5), 0);
    let again = leased.again(12_288).unwrap();
    let expected = Mark { memory_mib: Some(12_288), again_lease_epoch: Some(5), ..sample() };
    assert_eq!(again, expected);
    assert_eq!(again.again(20_000), None, "it has no lease");
    assert_eq!(again.leased(UnixTime::from_epoch(9), 1).again(20_000), None, "it was given more before");
    assert_eq!(again.leased(UnixTime::from_epoch(9), 1).undone().again_lease_epoch, Some(5));
}

#[test]
fn only_a_guest_waits_once_more_and_only_after_a_lease() {
    let leased = sample().leased(UnixTime::from_epoch(5), 1);
    let once_more = leased.once_more().unwrap();
    assert_eq!(once_more, Mark { undone_lease_epoch: Some(5), ..sample() });
    assert_eq!(once_more.once_more(), None, "it has no lease any more");
    assert_eq!(leased.undone().once_more(), None, "it runs alone from now on");
    assert_eq!(Mark { as_guest: false, ..leased }.once_more(), None);
}

#[test]
fn fields_of_a_later_release_are_kept() {
    let text = "pillion1;w=a;part=gpu;field=node;gres=gpu:1;other=;zz=1;begin=0;lease=5;r=0;y2=b";
    let mark = Mark::parse(text).unwrap().unwrap();
    assert_eq!((mark.lease_epoch, mark.further.as_str()), (Some(5), ";zz=1;y2=b"));
    let undone = mark.undone();
    assert_eq!(Mark::parse(&undone.to_string()), Ok(Some(undone)));
}

#[test]
fn other_gres_are_repeated() {
    assert_eq!(sample().gres_with("shard:g1:40"), "shard:g1:40,lscratch:100");
    assert_eq!(Mark::default().gres_with("shard:100"), "shard:100");
}

#[test]
fn what_is_not_ours_is_none_and_what_is_broken_is_an_error() {
    assert_eq!(Mark::parse(""), Ok(None));
    assert_eq!(Mark::parse("JS1:H4sIAA"), Ok(None));
    for text in [
        "pillion1;w",
        "pillion1;zz",
        "pillion1;w=a;w=b",
        "pillion1;lease=x",
        "pillion1;w=a b",
        "pillion1;c=0.25",
        "pillion1;i=soft",
    ] {
        assert!(Mark::parse(text).is_err(), "{text}");
    }
    assert!(Mark::parse(&format!("pillion1;w={}", "a".repeat(600))).is_err());
}

proptest::proptest! {
    #[test]
    fn never_panics(text in "(pillion[12])?[;=a-z0-9.:,\\PC]{0,80}") {
        let _ = Mark::parse(&text);
    }
}

/// `MARK_LENGTH_FIRST_MAX` of pillion.lua: what it admits has room for all that is added later.
#[test]
fn the_longest_mark_that_is_admitted_has_room_for_a_lease() {
    let admitted = |name: usize| Mark { original_partition: "p".repeat(name).into(), ..sample() };
    let length = (1..=400).rfind(|length| admitted(*length).to_string().len() <= 400).unwrap();
    let admitted = Mark { nodes: Some(2), fallback: "g10,g11".parse().ok(), ..admitted(length - 20) };
    let now = UnixTime::from_epoch(99_999_999_999);
    let decided_on = Some("0123456789abcdef".into());
    let leased = Mark { decided_on, ..admitted.leased(now, u32::MAX) };
    let others: GresTypes =
        (10..18).map(|at| format!("g{at}")).collect::<Vec<_>>().join(",").parse().unwrap();
    let again = leased.again(u64::from(u32::MAX)).unwrap();
    let all = [
        leased.undone(),
        leased.left(),
        again.leased(now, u32::MAX).undone(),
        admitted.let_go_with(Some(&others), now, u32::MAX),
        leased,
    ];
    for mark in all {
        assert_eq!(Mark::parse(&mark.to_string()).map(|read| read.is_some()), Ok(true), "{mark}");
    }
}
