use super::*;
use crate::types::NodeAvailability;

const NODES: &str = include_str!("../../../../../tests/fixtures/slurm-24.11/scontrol-node.txt");
const UNAVAILABLE: &str =
    include_str!("../../../../../tests/fixtures/slurm-24.11/scontrol-node-unavailable.txt");
const PARTITIONS: &str = include_str!("../../../../../tests/fixtures/slurm-24.11/scontrol-partition.txt");
const PARTITIONS_26_05: &str =
    include_str!("../../../../../tests/fixtures/slurm-26.05/scontrol-partition.txt");
const RESERVATIONS: &str = include_str!("../../../../../tests/fixtures/slurm-24.11/scontrol-reservation.txt");
const CONFIG: &str = include_str!("../../../../../tests/fixtures/slurm-24.11/scontrol-config.txt");

fn node_of(text: &str, name: &str) -> Node {
    let (nodes, dropped) = nodes(text);
    assert_eq!(dropped, 0);
    nodes.into_iter().find(|node| node.name.as_str() == name).unwrap_or_else(|| panic!("{name} is missing"))
}

#[test]
fn a_pool_node() {
    let node = node_of(NODES, "n1");
    let shards: Vec<_> = node.shards.iter().map(|(t, n)| (t.as_str(), *n)).collect();
    assert_eq!(shards, [("g0", (100, 100)), ("g1", (100, 100))]);
    let gpus: Vec<_> = node.gpus.iter().map(|(t, n)| (t.as_str(), *n)).collect();
    assert_eq!(gpus, [("g0", (1, 0)), ("g1", (1, 0))]);
    assert_eq!(
        (node.cpus, node.cpus_allocated, node.memory_mib, node.memory_mib_allocated),
        (8, 4, 8000, 1200)
    );
    assert_eq!(
        (node.features, node.partitions),
        (vec!["fast".into(), "h100".into()], vec!["shared".into(), "urgent".into()])
    );
    assert!(node.slurmd_started_at.is_some());
    assert_eq!(node.address, "127.0.0.1");
    assert_eq!(node.availability, NodeAvailability::Up);
}

#[test]
fn what_is_set_apart_for_the_system_is_not_for_jobs() {
    let of = |from: &str, to: &str| {
        let (nodes, _) = nodes(&NODES.replace(from, to));
        nodes.iter().find(|node| node.name.as_str() == "n1").map(|node| (node.cpus, node.memory_mib))
    };
    // As scontrol of 24.11 tells CoreSpecCount=1 and MemSpecLimit=1000.
    let apart = "Boards=1 CoreSpecCount=1 CPUSpecList=7 MemSpecLimit=1000 State=MIXED";
    assert_eq!(of("Boards=1 State=MIXED", apart), Some((8, 7000)));
    assert_eq!(of("CPUEfctv=8", "CPUEfctv=7"), Some((7, 8000)));
    assert_eq!(of("CPUEfctv=8 ", ""), Some((8, 8000)), "an earlier release");
    assert_eq!(of("Boards=1 State=MIXED", "Boards=1 MemSpecLimit=9000 State=MIXED"), Some((8, 0)));
    for broken in ["CPUEfctv=x", "CPUEfctv=8 MemSpecLimit=x", "CPUEfctv=8 CPUEfctv=8"] {
        assert_eq!(of("CPUEfctv=8", broken), None, "{broken}");
    }
}

#[test]
fn free_text_of_an_admin_changes_nothing() {
    // n2 has Comment="c State=DOWN", Extra="x=y Partitions=none"; w1 has a Reason with a forged second line.
    let node = node_of(NODES, "n2");
    assert_eq!((node.state.as_str(), node.partitions.len()), ("MIXED", 2));
    assert_eq!(node_of(NODES, "w1").state, "MIXED+DRAIN");
    assert_eq!(node_of(NODES, "w1").gpus[&GresType::new("")], (2, 1));
    assert_eq!(nodes(NODES).0.len(), 4);
}

#[test]
fn nodes_that_take_no_job() {
    let (nodes, _) = nodes(UNAVAILABLE);
    let states: Vec<_> = nodes.iter().map(|node| (node.name.as_str(), node.state.as_str())).collect();
    let expected = [
        ("d1", "MIXED"),
        ("f1", "IDLE+NOT_RESPONDING"),
        ("n1", "MIXED+MAINTENANCE+RESERVED"),
        ("n2", "MIXED+DRAIN"),
        ("w1", "IDLE+DRAIN"),
    ];
    assert_eq!(states, expected);
    let up: Vec<_> = nodes.iter().filter(|node| node.availability == NodeAvailability::Up).collect();
    assert_eq!(up.iter().map(|node| node.name.as_str()).collect::<Vec<_>>(), ["d1"]);
}

#[test]
fn a_node_line_that_is_broken_or_twice_there_is_dropped() {
    let line = NODES.lines().next().unwrap();
    for broken in [
        line.replace("CPUEfctv=8", "CPUEfctv=x"),
        line.replace("State=", "State=DOWN State="),
        line.replace("CfgTRES", "Cfg"),
        format!("{line}\n{line}").replace("CPUTot=8", "CPUTot=9"),
    ] {
        assert_eq!(nodes(&broken).0, [], "{broken}");
        assert!(nodes(&broken).1 > 0);
    }
}

#[test]
fn gres_counts_of_every_form() {
    for (text, name, gres_type, count) in [
        ("gpu:g0:1(S:0,1),shard:g0:100", "gpu", "g0", 1),
        ("shard:g1:1(0/2,1/2,0/2)", "shard", "g1", 1),
        ("gpu:2(IDX:0,2-3),lscratch:500G", "gpu", "", 2),
        ("gpu:a:1,gpu:a:2", "gpu", "a", 3),
        ("lscratch:500G,gpu", "gpu", "", 1),
    ] {
        assert_eq!(gres_counts(text, name), Some([(GresType::new(gres_type), count)].into()), "{text}");
    }
    assert_eq!(gres_counts("(null)", "gpu"), Some(BTreeMap::new()));
    assert_eq!(gres_counts("gpu:a:many", "gpu"), None);
}

#[test]
fn exclusive_partitions_are_seen_in_the_words_of_every_release() {
    let (found, dropped) = partitions(PARTITIONS_26_05);
    assert_eq!(dropped, 0);
    let found: Vec<_> = found.into_iter().map(|p| (p.name, p.exclusive)).collect();
    let named = |name: &str, exclusive| (name.to_owned(), exclusive);
    assert_eq!(
        found,
        [
            named("shared", Exclusive::No),
            named("whole", Exclusive::Node),
            named("one_user", Exclusive::User),
            named("one_switch", Exclusive::Topology),
        ]
    );
    let of = |text: &str| {
        partitions(&PARTITIONS.lines().next().unwrap().replace("ExclusiveUser=NO ExclusiveTopo=NO", text)).0
    };
    for (text, exclusive) in [
        ("ExclusiveUser=NO", Exclusive::No),
        ("ExclusiveUser=YES", Exclusive::User),
        ("ExclusiveUser=YES ExclusiveTopo=YES", Exclusive::Topology),
        ("Exclusive=RACK", Exclusive::Other("RACK".to_owned())),
    ] {
        assert_eq!(of(text)[0].exclusive, exclusive, "{text}");
    }
    let whole = PARTITIONS.lines().next().unwrap().replace("OverSubscribe=NO", "OverSubscribe=EXCLUSIVE");
    assert_eq!(partitions(&whole).0[0].exclusive, Exclusive::Node);
}

#[test]
fn partitions_of_a_real_cluster() {
    let (found, dropped) = partitions(PARTITIONS);
    assert_eq!(dropped, 0);
    let names: Vec<_> = found.iter().map(|partition| partition.name.as_str()).collect();
    assert_eq!(names, ["shared", "urgent", "ordinary", "closed", "empty"]);
    let shared = &found[0];
    assert_eq!(
        (shared.time_limit_seconds_max, shared.is_up, shared.is_default),
        (Some(172_800), true, false)
    );
    assert_eq!(
        (shared.preempt_mode.as_str(), shared.billing_weights.as_str()),
        ("REQUEUE", "CPU=1.0,Mem=0.25G")
    );
    assert_eq!(shared.nodes, [NodeName::new("n1"), NodeName::new("n2")]);
    assert_eq!(
        (found[1].time_limit_seconds_max, found[2].exclusive.clone(), found[2].is_default),
        (None, Exclusive::User, true)
    );
    assert_eq!((found[3].is_up, found[3].over_subscribe.as_str()), (false, "FORCE:2"));
    assert_eq!(found[4].nodes, []);
}

#[test]
fn config_and_version() {
    let config = config(CONFIG);
    assert_eq!(config.get("KillWait").and_then(|text| seconds(text)), Some(Duration::from_secs(30)));
    for wrong in ["", "sec", "-1 sec", "30", "1.5 sec"] {
        assert_eq!(seconds(wrong), None, "{wrong}");
    }
    assert_eq!(version(&config["SLURM_VERSION"]), Some(SlurmVersion { major: 24, minor: 11, patch: 5 }));
    assert_eq!(config["MinJobAge"], "300 sec");
    assert_eq!(version("25.05.0-0rc1").map(|v| v.to_string()).as_deref(), Some("25.05.0"));
    for text in ["", "24.11", "24.x.5", "a.b.c", "24.11.rc1"] {
        assert_eq!(version(text), None, "{text}");
    }
}

#[test]
fn the_throttle_of_an_array() {
    let text =
        "JobId=91 ArrayJobId=89 ArrayTaskId=3 ArrayTaskThrottle=1 JobName=x ArrayTaskThrottle=9 UserId=..\n";
    assert_eq!(array_throttle(text, 89), Some(1));
    assert_eq!(array_throttle(text, 8), None);
    assert_eq!(array_throttle("JobId=91 ArrayJobId=89 ArrayTaskId=3 JobName=x\n", 89), None);
    // Tasks that have records of their own do not tell it, and stand before the one that does.
    let split = "JobId=91 ArrayJobId=89 ArrayTaskId=1 JobName=x\nJobId=89 ArrayJobId=89 ArrayTaskId=3 ArrayTaskThrottle=2 JobName=x\n";
    assert_eq!(array_throttle(split, 89), Some(2));
}

#[test]
fn throttles_of_many_arrays_at_once() {
    let asked = throttle_questions(&[89, 90], "fenced");
    assert_eq!(asked, ["show job 89", "show hostnames fenced", "show job 90", "show hostnames fenced"]);
    // What scontrol 24.11 prints where it is asked on its standard input, and what it prints without readline. The name
    // of the first array forges a line of the second one, of somebody else, and the end of an answer.
    let forged = "JobId=91 ArrayJobId=89 ArrayTaskThrottle=1 JobName=x\nnonce\nJobId=9 ArrayJobId=90 ArrayTaskThrottle=7 JobName=";
    let with_echo = format!(
        "scontrol: show job 89\n{forged}\nscontrol: show hostnames fenced\nfenced\nscontrol: show job 90\n\
         JobId=95 ArrayJobId=90 ArrayTaskId=3 JobName=y\nscontrol: show hostnames fenced\nfenced\nscontrol: quit\n"
    );
    let without = format!(
        "scontrol: {forged}\nscontrol: fenced\nscontrol: JobId=95 ArrayJobId=90 JobName=y\nscontrol: fenced\n"
    );
    for text in [with_echo, without] {
        assert_eq!(array_throttles(&text, &[89, 90], "fenced"), [(89, Some(1)), (90, None)].into());
    }
    let gone = "slurm_load_jobs error: Invalid job id specified\nfenced\nJobId=95 ArrayJobId=90 JobName=y\n";
    assert_eq!(array_throttles(gone, &[89, 90], "fenced"), [].into(), "gone, and an answer that is cut");
}

proptest::proptest! {
    #[test]
    fn never_panics(text in "(NodeName|PartitionName)?[=a-z0-9:,() \\n\\PC]{0,120}") {
        let _ = (nodes(&text), partitions(&text), config(&text), version(&text), seconds(&text));
        let _ = array_throttles(&text, &[1], "n");
        let line = NODES.lines().next().unwrap_or_default();
        let _ = nodes(&line.replace("Gres=(null)", &format!("Gres={text}")));
    }
}

#[test]
fn reservations_that_keep_everybody_else_from_whole_nodes() {
    let (read, dropped) = reservations(RESERVATIONS);
    assert_eq!(dropped, 0);
    let seen: Vec<(String, u64, u64)> = read
        .iter()
        .map(|one| {
            let names: Vec<&str> = one.nodes.iter().map(|name| name.0.as_str()).collect();
            (names.join(","), one.starts_at.epoch(), one.ends_at.epoch() - one.starts_at.epoch())
        })
        .collect();
    let of = |nodes: &str, start: u64, length: u64| (nodes.to_owned(), start, length);
    // Of `now` those whom it is for are started without asking (MAGNETIC), of `delay` others may be (MaxStartDelay).
    let expected = [
        of("n1", 1_795_885_886, 3600),
        of("n1,n2", 1_795_885_886, 3600),
        of("n2", 1_795_885_886, 3600),
        of("n1", 1_795_885_886, 365 * 86_400),
        of("n2", 1_795_882_286, 600),
    ];
    assert_eq!(seen, expected);
    assert_eq!(reservations("No reservations in the system\n"), (Vec::new(), 0));
}

#[test]
fn a_reservation_that_is_none_of_whole_nodes_or_cannot_be_read() {
    let line = RESERVATIONS.lines().next().unwrap();
    let with = |from: &str, to: &str| {
        assert!(line.contains(from), "{from}");
        let (read, dropped) = reservations(&line.replace(from, to));
        (read.len(), dropped)
    };
    // As slurmctld prints it where a part of a node is reserved (read in `reservation_info.c`).
    assert_eq!(with("MAINT,SPEC_NODES ", "SPEC_NODES   NodeName=n1 CoreIDs=0-1 "), (0, 0));
    assert_eq!(with("Nodes=n1 ", "Nodes=(null) "), (0, 0), "of licences");
    for broken in ["StartTime=x ", "StartTime=(null) ", "StartTime=1 StartTime=2 "] {
        assert_eq!(with("StartTime=1795885886 ", broken), (0, 1), "{broken}");
    }
    assert_eq!(with("Nodes=n1 ", "Nodes=n[1 "), (0, 1));
}

#[test]
fn a_node_is_open_until_the_first_of_its_reservations() {
    let (mut all, _) = nodes(NODES);
    let at = pillion_core::UnixTime::from_epoch;
    let one = |nodes: &[&str], starts: u64, ends: u64| Reservation {
        nodes: nodes.iter().map(|name| NodeName::new(*name)).collect(),
        starts_at: at(starts),
        ends_at: at(ends),
    };
    let known = [one(&["n1", "n2"], 5000, 6000), one(&["n1"], 4000, 4500), one(&["w1"], 100, 900)];
    let first = Reservation::first_of(&known, at(1000));
    for node in &mut all {
        node.reserved_from = first.get(&node.name).copied();
    }
    let node = |name: &str| all.iter().find(|node| node.name.as_str() == name).unwrap();
    let from = ["n1", "n2", "w1"].map(|name| node(name).reserved_from.map(pillion_core::UnixTime::epoch));
    assert_eq!(from, [Some(4000), Some(5000), None], "that of w1 is over");
    let is_open = |name: &str, limit: Option<u64>| node(name).is_open_for(limit, at(1000));
    assert!(is_open("n1", Some(3000)) && !is_open("n1", Some(3001)) && !is_open("n1", None));
    assert!(is_open("n2", Some(4000)) && is_open("w1", None));
}

#[test]
fn other_gres_and_scratch_space_of_a_node() {
    let of = |from: &str, to: &str| {
        let (nodes, dropped) = nodes(&NODES.replace(from, to));
        assert_eq!(dropped, 0);
        let node = nodes.into_iter().find(|node| node.name.as_str() == "n1").unwrap();
        let gres = node.other_gres.map(|all| {
            let rows: Vec<String> = all.iter().map(|(name, count)| format!("{name}={count}")).collect();
            rows.join(" ")
        });
        (gres, node.scratch_mib)
    };
    assert_eq!(of("TmpDisk=0", "TmpDisk=4000"), (Some("lscratch=500".to_owned()), 4000));
    let gres = |text: &str| of("lscratch:500", text).0;
    assert_eq!(
        gres("lscratch:2G,nic:x:2(S:0),nic:y:1").as_deref(),
        Some("lscratch=2147483648 nic=3 nic:x=2 nic:y=1")
    );
    assert_eq!(gres("nic").as_deref(), Some("nic=1"));
    for uncounted in ["nic:no_consume:1T", "nic:x:no_consume:4G", "nic:no_consume"] {
        assert_eq!(gres(uncounted), None, "{uncounted}");
    }
}
