//! What is proposed for one site by name, and for any site: applied and made again it changes nothing, and what it need not
//! touch stays.

use super::line::lines;
use super::{Files, Pool, Proposal, SLURM_CONF, propose};
use proptest::prelude::*;

fn pool() -> Pool {
    let names = ["n1", "n2"].map(str::to_owned).into();
    Pool { nodes: "n[1-2]".to_owned(), names, partition: "shared".to_owned(), devices: Vec::new() }
}

fn files(texts: &[(&str, &str)]) -> Files {
    Files(texts.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect())
}

fn proposed(conf: &str) -> Proposal {
    propose(&files(&[(SLURM_CONF, conf)]), &pool())
}

/// The last value of a key, as Slurm would use it.
fn value(files: &Files, key: &str) -> Option<String> {
    let found = files.read(SLURM_CONF);
    found.iter().rev().find_map(|(_, line)| line.get(key).map(str::to_owned))
}

#[test]
fn lines_are_read_as_slurm_reads_them() {
    let text = "# a comment \\\nA=1 b = \"two words\" \\\n  C=3,\\\n4 # rest\nInclude other.conf\n\nD=\\#x\n";
    let found = lines(text);
    let pairs: Vec<(&str, &str)> = found
        .iter()
        .flat_map(|line| &line.pairs)
        .map(|pair| (pair.key.as_str(), pair.value.as_str()))
        .collect();
    // Slurm joins a comment with the line that its backslash takes in.
    assert_eq!(pairs, [("D", "\\#x")]);
    let found = lines(text.split_once('\n').unwrap().1);
    let pairs: Vec<(&str, &str)> = found
        .iter()
        .flat_map(|line| &line.pairs)
        .map(|pair| (pair.key.as_str(), pair.value.as_str()))
        .collect();
    assert_eq!(pairs, [("A", "1"), ("b", "two words"), ("C", "3,4"), ("D", "\\#x")]);
    assert_eq!(found[1].includes.as_deref(), Some("other.conf"));
}

#[test]
fn a_site_gets_its_lines_and_keeps_its_own() {
    let conf = "ClusterName=c # ours\nGRESTYPES=gpu,\\\n  nic\nGresTypes=gpu\nSelectType=select/linear\n\
                SelectTypeParameters=CR_CPU,CR_LLN\njobsubmitplugins=\"all_partitions\"\nProlog=/site/prolog\n\
                Epilog=/site/epilog.d/*\nAccountingStorageType=accounting_storage/slurmdbd\n\
                NodeName=n[1-2] CPUs=64 RealMemory=512000 Gres=gpu:a100:4,lscratch:100 State=UNKNOWN\n\
                NodeName=n3 Gres=gpu:a100:4\nPartitionName=gpu Nodes=n[1-3] Default=YES\n";
    let Proposal { files, by_hand, must_first } = proposed(conf);
    let by_hand = [must_first, by_hand].concat();
    assert_eq!(value(&files, "GresTypes").as_deref(), Some("gpu,shard"));
    assert_eq!(value(&files, "SelectType").as_deref(), Some("select/cons_tres"));
    assert_eq!(value(&files, "SelectTypeParameters").as_deref(), Some("CR_CPU_Memory,CR_LLN"));
    assert_eq!(value(&files, "JobSubmitPlugins").as_deref(), Some("all_partitions,lua"));
    assert_eq!(value(&files, "AccountingStorageTRES").as_deref(), Some("gres/gpu,gres/shard"));
    assert_eq!(value(&files, "Prolog").as_deref(), Some("/site/prolog"));
    assert_eq!(value(&files, "EpilogSlurmctld").as_deref(), Some("/etc/slurm/pillion/epilog_slurmctld"));
    let text = files.text(SLURM_CONF);
    assert!(text.starts_with("ClusterName=c # ours\nGRESTYPES=gpu,\\\n  nic\n"), "{text}");
    let node = "NodeName=n[1-2] CPUs=64 RealMemory=512000 Gres=gpu:g0:1,gpu:g1:1,gpu:g2:1,gpu:g3:1,shard:g0:100,shard:g1:100,\
                shard:g2:100,shard:g3:100,lscratch:100 State=UNKNOWN\nNodeName=n3 Gres=gpu:a100:4\n";
    assert!(text.contains(node), "{text}");
    let partition = "PartitionName=shared Nodes=n[1-2] DefMemPerCPU=8000 TRESBillingWeights=\"GRES/gpu=100,GRES/shard=1\"\n";
    assert!(text.ends_with(partition), "{text}");
    assert_eq!(files.text("gres.conf").lines().count(), 8);
    assert!(
        files.text("gres.conf").contains("NodeName=n[1-2] Name=shard Type=g3 Count=100 File=/dev/nvidia3\n")
    );
    assert!(files.text("plugstack.conf").starts_with("optional /usr/lib/pillion/pillion.so socket="));
    assert!(files.text("job_submit.lua").contains("pools = { \"shared\" }"));
    for expected in [
        "SelectType was select/linear",
        "Prolog=/site/prolog is the site's own: add 'timeout 2 pillion-agent poke",
        "Epilog=/site/epilog.d/* takes every script of a folder: install /etc/slurm/pillion/epilog there",
        "PartitionName=gpu Nodes=n[1-3] has nodes of the pool: take n[1-2] out of it",
        "give PartitionName=shared the MaxTime",
    ] {
        assert!(by_hand.iter().any(|sentence| sentence.starts_with(expected)), "{expected}: {by_hand:#?}");
    }
}

#[test]
fn what_is_not_sure_is_left_to_a_person() {
    let mixed = proposed("NodeName=n[1-3] Gres=gpu:2\n");
    assert!(mixed.files.text(SLURM_CONF).contains("NodeName=n[1-3] Gres=gpu:2\n"));
    assert!(
        mixed
            .must_first
            .iter()
            .any(|it| it.starts_with("NodeName=n[1-3] has nodes of the pool and others: split"))
    );
    let none = proposed("NodeName=n1 CPUs=4\n");
    assert!(none.must_first.iter().any(|it| it.starts_with("no NodeName line describes n2")));
    let unknown = proposed("NodeName=n[1-2] CPUs=4\n");
    assert!(unknown.must_first.iter().any(|it| it.contains("--devices")));
    assert_eq!(unknown.files.text("gres.conf"), "");
    let lua = propose(&files(&[(SLURM_CONF, ""), ("job_submit.lua", "return slurm.SUCCESS\n")]), &pool());
    assert_eq!(lua.files.text("job_submit.lua"), "return slurm.SUCCESS\n");
    assert!(lua.by_hand.iter().any(|it| it.starts_with("job_submit.lua is the site's own")));
    let required = files(&[(SLURM_CONF, "PlugStackConfig=p.conf\n"), ("p.conf", "required /x/pillion.so\n")]);
    let required = propose(&required, &pool());
    assert_eq!(required.files.text("p.conf"), "required /x/pillion.so\n");
    assert!(required.must_first.iter().any(|it| it.starts_with("p.conf loads pillion.so as 'required'")));
}

#[test]
fn old_device_lines_go_and_lines_of_all_nodes_are_named() {
    let gres = "AutoDetect=nvml\nNodeName=n[1-2] Name=gpu Type=a100 File=/dev/nvidia[0-1]\nName=gpu File=/dev/nvidia0\n\
                NodeName=n9 Name=gpu File=/dev/nvidia0\nNodeName=n1 Name=nic File=/dev/nic0\n";
    let conf = "NodeName=n[1-2] Gres=gpu:2\n";
    let pool =
        Pool { devices: ["/dev/dri/renderD128", "/dev/dri/renderD129"].map(str::to_owned).into(), ..pool() };
    let proposal = propose(&files(&[(SLURM_CONF, conf), ("gres.conf", gres)]), &pool);
    let expected = "AutoDetect=nvml\nName=gpu File=/dev/nvidia0\nNodeName=n9 Name=gpu File=/dev/nvidia0\n\
                    NodeName=n1 Name=nic File=/dev/nic0\n\
                    NodeName=n[1-2] AutoDetect=off Name=gpu Type=g0 File=/dev/dri/renderD128\n\
                    NodeName=n[1-2] AutoDetect=off Name=gpu Type=g1 File=/dev/dri/renderD129\n\
                    NodeName=n[1-2] Name=shard Type=g0 Count=100 File=/dev/dri/renderD128\n\
                    NodeName=n[1-2] Name=shard Type=g1 Count=100 File=/dev/dri/renderD129\n";
    assert_eq!(proposal.files.text("gres.conf"), expected);
    assert!(
        proposal
            .must_first
            .iter()
            .any(|it| it.starts_with("gres.conf has 'Name=gpu File=/dev/nvidia0', which holds"))
    );
}

/// A key with its value as some admin may have written it: any case, blanks, quotes, a continuation, a comment.
fn written(key: &'static str, value: &'static str) -> impl Strategy<Value = String> {
    (0..3usize, any::<bool>(), 0..4usize, any::<bool>()).prop_map(move |(case, quoted, gap, comment)| {
        let key = [key.to_owned(), key.to_ascii_lowercase(), key.to_ascii_uppercase()][case].clone();
        let value = if quoted { format!("\"{value}\"") } else { value.to_owned() };
        let gap = ["", " ", " \\\n ", "\t"][gap];
        format!("{key}={gap}{value}{}", if comment { " # said: x=y" } else { "" })
    })
}

fn setting() -> impl Strategy<Value = String> {
    prop_oneof![
        written("GresTypes", "gpu"),
        written("GresTypes", "nic,shard"),
        written("GresTypes", "mps"),
        written("SelectType", "select/cons_tres"),
        written("SelectTypeParameters", "CR_Core"),
        written("SelectTypeParameters", "CR_Socket_Memory,CR_LLN"),
        written("JobSubmitPlugins", "lua"),
        written("JobSubmitPlugins", "partition,throttle"),
        written("AccountingStorageType", "accounting_storage/slurmdbd"),
        written("AccountingStorageTRES", "gres/gpu"),
        written("Prolog", "/site/prolog"),
        written("EpilogSlurmctld", "/etc/slurm/pillion/epilog_slurmctld"),
        written("PlugStackConfig", "other.conf"),
        Just("NodeName=n[1-2] CPUs=8 RealMemory=64000 Gres=gpu:4".to_owned()),
        Just("NodeName=n1 Gres=gpu:a100:2,nic:1 \\\n CPUs=4".to_owned()),
        Just("NodeName=n2 CPUs=4 # Gres=gpu:9".to_owned()),
        Just("nodename=n[2-5] Gres=gpu:1".to_owned()),
        Just("PartitionName=shared Nodes=n1".to_owned()),
        Just("PartitionName=gpu Nodes=ALL".to_owned()),
        Just("Include more.conf".to_owned()),
        Just("# GresTypes=gpu,shard".to_owned()),
        Just("ClusterName=c\\".to_owned()),
        Just(String::new()),
    ]
}

fn gres_line() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("AutoDetect=nvml"),
        Just("NodeName=n[1-2] Name=gpu Type=g0 File=/dev/nvidia0"),
        Just("NodeName=n1 Name=shard Count=8"),
        Just("Name=gpu File=/dev/nvidia[0-3] # all"),
        Just("NodeName=n9 Name=gpu File=/dev/nvidia0"),
    ]
    .prop_map(str::to_owned)
}

fn site() -> impl Strategy<Value = Files> {
    let text = |lines: Vec<String>, ends: bool| lines.join("\n") + if ends { "\n" } else { "" };
    let conf =
        (prop::collection::vec(setting(), 0..12), any::<bool>()).prop_map(move |(it, ends)| text(it, ends));
    let more = prop::collection::vec(setting(), 0..4).prop_map(move |it| text(it, true));
    let gres =
        (prop::collection::vec(gres_line(), 0..5), any::<bool>()).prop_map(move |(it, ends)| text(it, ends));
    (conf, more, gres).prop_map(|(conf, more, gres)| {
        files(&[(SLURM_CONF, &conf), ("more.conf", &more), ("gres.conf", &gres)])
    })
}

proptest! {
    #[test]
    fn applied_and_made_again_it_changes_nothing(site in site()) {
        let first = propose(&site, &pool());
        let second = propose(&first.files, &pool());
        prop_assert_eq!(&second.files, &first.files);
    }

    #[test]
    fn what_every_pool_needs_is_in_force_afterwards(site in site()) {
        let files = propose(&site, &pool()).files;
        for (key, words) in [
            ("GresTypes", &["gpu", "shard"][..]),
            ("SelectType", &["select/cons_tres"]),
            ("JobSubmitPlugins", &["lua"]),
        ] {
            let value = value(&files, key).unwrap_or_default();
            for word in words {
                prop_assert!(value.split(',').any(|each| each == *word), "{}={}", key, value);
            }
        }
    }

    #[test]
    fn lines_of_others_stay_as_they_are(site in site()) {
        let files = propose(&site, &pool()).files;
        for (name, text) in &site.0 {
            let kept = |line: &&str| line.starts_with('#') || line.starts_with("PartitionName") || line.contains("n9");
            for line in text.lines().filter(kept) {
                prop_assert!(files.text(name).lines().any(|other| other == line), "{} lost {}", name, line);
            }
        }
    }
}
