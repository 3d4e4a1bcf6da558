//! Broken set-ups, one at a time: each must print its line and its mend, and the sound set-up must print neither.

mod identity;
mod life;
mod node;
mod open;
mod page;
mod sound;

use super::super::facts::{Credential, Hook, HookKind, Limit, Munge, Plugin, SlurmConf, TextFile};
use super::super::finding::{Finding, Status};
use super::super::{Facts, examine};
use crate::config::Config;
use pillion_api::{AgentStatus, DeviceStatus, Fault, Faults, RefusedPeer, StatusResponse};
use pillion_core::health::FaultKind;
use pillion_core::{GresType, NodeName, UnixTime};
use pillion_slurm::{Exclusive, Node, NodeAvailability, Partition, SlurmVersion};
use sound::{conf, sound};
use std::collections::BTreeMap;

const NOW: u64 = 1_795_000_000;
const CONFIG: &str = "mode = \"active\"\n[pool]\npartitions = [\"shared\"]\n";
const HOOK: &str = include_str!("../../../../../deploy/slurm/hooks/prolog");
const CONTROLLER_HOOK: &str = include_str!("../../../../../deploy/slurm/hooks/epilog_slurmctld");

#[test]
fn a_hook_of_the_sites_own_may_call_ours() {
    let mut facts = sound();
    facts.hooks[2].file.text =
        Ok("#!/bin/sh\nlogger ended\n/etc/slurm/pillion/epilog_slurmctld\nexit 0\n".to_owned());
    let findings = examine(&facts);
    assert!(findings.iter().all(|finding| finding.status == Status::Ok), "{findings:?}");
}

#[test]
fn a_sound_setup_has_nothing_to_mend() {
    for finding in examine(&sound()) {
        assert_eq!((finding.status, finding.mend.as_deref()), (Status::Ok, None), "{finding:?}");
    }
}

#[test]
fn where_nothing_answers_doctor_still_says_what_to_do() {
    let nothing = || "Slurm does not answer: cannot run scontrol".to_owned();
    let facts = Facts {
        version: Err(nothing()),
        slurm_conf: Err(nothing()),
        partitions: Err(nothing()),
        nodes: Err(nothing()),
        limits: Err(nothing()),
        status: Err("cannot reach the scheduler".to_owned()),
        rescue_timer: Err("this machine does not run systemd".to_owned()),
        ..sound()
    };
    let findings = examine(&facts);
    let failed: Vec<&str> = findings
        .iter()
        .filter(|finding| finding.status == Status::Fail)
        .map(|finding| finding.check)
        .collect();
    assert_eq!(failed, ["slurm-version", "scheduler"]);
    assert!(findings.iter().filter(|finding| finding.status == Status::Skip).count() >= 15);
}

/// A broken set-up: the check that must complain, what it must say, what it must advise, and how it is broken.
type Broken = (&'static str, Status, &'static str, &'static str, fn(&mut Facts));

fn partition_of(facts: &mut Facts) -> &mut Partition {
    &mut facts.partitions.as_mut().expect("known")[0]
}

fn node_of(facts: &mut Facts) -> &mut Node {
    &mut facts.nodes.as_mut().expect("known")[0]
}

fn status_of(facts: &mut Facts) -> &mut StatusResponse {
    facts.status.as_mut().expect("known")
}

fn refuse(facts: &mut Facts, why: &str) {
    let status = status_of(facts);
    let (who, address) = ("the agent of n2".to_owned(), "10.0.0.2".to_owned());
    let at_seconds = status.now_seconds - 5.0;
    status.refused.push(RefusedPeer { who, address, why: why.to_owned(), at_seconds, count: 3 });
}

fn lua(facts: &mut Facts, text: &str) {
    facts.job_submit_lua.text = Ok(text.to_owned());
}

const FAIL: Status = Status::Fail;
const WARN: Status = Status::Warn;

const BROKEN_SLURM: [Broken; 16] = [
    (
        "slurm-version",
        WARN,
        "Slurm 24.11.4 has CVE-2025-43904 (a coordinator",
        "upgrade Slurm to 24.11.5",
        |f| {
            f.version = Ok(SlurmVersion { major: 24, minor: 11, patch: 4 });
        },
    ),
    ("slurm-version", FAIL, "Slurm 22.05.8 books shared GPUs twice", "upgrade Slurm", |f| {
        f.version = Ok(SlurmVersion { major: 22, minor: 5, patch: 8 });
    }),
    ("select-type", FAIL, "SelectType=select/linear", "SelectType=select/cons_tres", |f| {
        f.slurm_conf = Ok(conf(&[("SelectType", "select/linear")]));
    }),
    ("select-type", FAIL, "SelectTypeParameters=CR_CORE does not book memory", "CR_Core_Memory", |f| {
        f.slurm_conf = Ok(conf(&[("SelectTypeParameters", "CR_CORE")]));
    }),
    ("gres-types-setting", FAIL, "GresTypes=gpu lacks shard", "GresTypes=gpu,shard", |f| {
        f.slurm_conf = Ok(conf(&[("GresTypes", "gpu")]));
    }),
    ("job-submit-plugins", FAIL, "does not load lua", "add lua to JobSubmitPlugins", |f| {
        f.slurm_conf = Ok(conf(&[("JobSubmitPlugins", "require_timelimit")]));
    }),
    ("accounting-tres", FAIL, "lacks gres/shard", "add gres/shard to AccountingStorageTRES", |f| {
        f.slurm_conf = Ok(conf(&[("AccountingStorageTRES", "cpu,gres/gpu")]));
    }),
    ("job-container", FAIL, "job_container/tmpfs gives each job its own /dev/shm", "set Dirs=/tmp", |f| {
        f.slurm_conf = Ok(conf(&[("JobContainerType", "job_container/tmpfs")]));
    }),
    ("job-container", FAIL, "namespace/tmpfs gives each job its own /dev/shm", "job_container.conf", |f| {
        f.slurm_conf = Ok(conf(&[("NamespaceType", "namespace/tmpfs")]));
        f.job_container.text = Ok("AutoBasePath=true\nDirs=/tmp,/dev/shm/\n".to_owned());
    }),
    ("job-container", FAIL, "namespace/linux gives each job its own /dev/shm", "namespace.yaml", |f| {
        f.slurm_conf = Ok(conf(&[("NamespaceType", "namespace/linux")]));
    }),
    ("job-container", FAIL, "namespace/linux gives each job its own /dev/shm", "dirs: \"/tmp\"", |f| {
        f.slurm_conf = Ok(conf(&[("NamespaceType", "namespace/linux")]));
        f.namespace.text =
            Ok("defaults:\n  dirs: /tmp\nnode_confs:\n- nodes: [n1]\n  options:\n    dirs: /dev/shm\n"
                .to_owned());
    }),
    ("job-container", WARN, "makes jobs with CLONE_NEWPID", "take CLONE_NEWPID out of", |f| {
        f.slurm_conf = Ok(conf(&[("NamespaceType", "namespace/linux")]));
        f.namespace.text =
            Ok("defaults:\n  dirs: \"/tmp\"\n  clone_ns_flags:\n  - \"CLONE_NEWPID\"\n".to_owned());
    }),
    (
        "limits",
        FAIL,
        "qos gpu: MaxTRESPerUser=gres/gpu=2 does not count shards",
        "gres/shard=200 beside it",
        |f| {
            f.limits.as_mut().expect("known")[0].value = "gres/gpu=2".to_owned();
        },
    ),
    ("limits", WARN, "allows 2 GPUs and 50 shards", "gres/shard=200", |f| {
        f.limits.as_mut().expect("known")[0].value = "gres/gpu=2,gres/shard=50".to_owned();
    }),
    ("hooks", FAIL, "Prolog=/etc/slurm/prolog.d/pillion may not be executed", "chmod 755", |f| {
        f.hooks[0].is_executable = false;
    }),
    ("rescue-timer", FAIL, "pillion-rescue.timer is inactive", "systemctl enable --now", |f| {
        f.rescue_timer = Ok("inactive".to_owned());
    }),
];

const BROKEN_POOL: [Broken; 16] = [
    ("pool-partitions", FAIL, "pool partition sharde does not exist", "correct pool.partitions", |f| {
        f.config.pool.partitions = vec!["sharde".to_owned()];
    }),
    ("pool-partitions", FAIL, "no pool partition is named", "pool.partitions = ", |f| {
        f.config.pool.partitions.clear();
        status_of(f).pool_partitions.clear();
    }),
    (
        "pool-overlap",
        FAIL,
        "pool nodes n1 also stand in partition gpu",
        "take n1 out of PartitionName=gpu",
        |f| {
            node_of(f).partitions.push("gpu".to_owned());
        },
    ),
    ("gres-types", FAIL, "node n1 has no shards", "a type of its own", |f| node_of(f).shards.clear()),
    ("gres-types", FAIL, "node n1 has 4 GPUs of one type h100", "a type of its own", |f| {
        node_of(f).gpus = [(GresType::new("h100"), (4, 0))].into();
    }),
    ("gres-types", FAIL, "node n1 has 2 GPUs without a type", "a type of its own", |f| {
        node_of(f).gpus = [(GresType::new(""), (2, 0))].into();
    }),
    ("gres-types", FAIL, "node n1: gpu:g1 has no shard:g1", "shard:g1:100", |f| {
        node_of(f).shards.remove(&GresType::new("g1"));
    }),
    ("shard-counts", FAIL, "node n1: shard:g1 has 10 shards", "Count=100", |f| {
        node_of(f).shards.insert(GresType::new("g1"), (10, 0));
    }),
    ("billing-weights", FAIL, "bills GRES/shard=0.01: Slurm cuts off", "GRES/gpu=100,GRES/shard=1", |f| {
        partition_of(f).billing_weights = "GRES/gpu=1,GRES/shard=0.01".to_owned();
    }),
    ("billing-weights", WARN, "does not bill shards", "GRES/gpu=100,GRES/shard=1", |f| {
        partition_of(f).billing_weights = String::new();
    }),
    ("preemption", FAIL, "PreemptMode=GANG,SUSPEND", "PreemptMode=OFF", |f| {
        partition_of(f).preempt_mode = "GANG,SUSPEND".to_owned();
    }),
    ("exclusive", FAIL, "gives whole nodes to one user (ExclusiveUser=YES", "ExclusiveUser=NO", |f| {
        partition_of(f).exclusive = Exclusive::User;
    }),
    ("exclusive", FAIL, "gives every job a whole node", "Exclusive=NO", |f| {
        partition_of(f).exclusive = Exclusive::Node;
    }),
    ("exclusive", FAIL, "a whole part of the network", "Exclusive=NO", |f| {
        partition_of(f).exclusive = Exclusive::Topology;
    }),
    ("exclusive", FAIL, "has Exclusive=RACK, which this release does not know", "Exclusive=NO", |f| {
        partition_of(f).exclusive = Exclusive::Other("RACK".to_owned());
    }),
    (
        "over-subscribe",
        WARN,
        "puts several jobs on one CPU (OverSubscribe=FORCE:4)",
        "OverSubscribe=NO",
        |f| {
            partition_of(f).over_subscribe = "FORCE:4".to_owned();
        },
    ),
];

const BROKEN_FILES: [Broken; 17] = [
    ("lua-module", FAIL, "does not load pillion.lua", "job_submit.lua.example", |f| {
        lua(f, "return slurm.SUCCESS");
    }),
    ("lua-module", FAIL, "job_submit.lua line 1 is not protected: local p = dofile(", "use pcall", |f| {
        lua(f, "local p = dofile(\"/etc/slurm/pillion.lua\")\n");
    }),
    ("lua-module", FAIL, "/etc/slurm/pillion.lua: there is no such file", "install pillion.lua", |f| {
        f.pillion_lua.text = Err("there is no such file".to_owned());
    }),
    ("heartbeat", FAIL, "the last heartbeat is 90 s old", "systemctl status pillion-scheduler", |f| {
        f.heartbeat.text = Ok(format!("pillion1 epoch={} bound=600 mode=active\n", NOW - 90));
    }),
    ("heartbeat", FAIL, "the lua module reads /run/other/heartbeat", "name the same file", |f| {
        f.pillion_lua.text = Ok("heartbeat = \"/run/other/heartbeat\"".to_owned());
    }),
    ("heartbeat", FAIL, "is no heartbeat", "restart pillion-scheduler", |f| {
        f.heartbeat.text = Ok("hello".to_owned());
    }),
    ("heartbeat", WARN, "lies on a disk", "on a tmpfs", |f| f.is_heartbeat_in_memory = Some(false)),
    ("plugstack", FAIL, "does not load pillion.so", "optional pillion.so", |f| {
        f.plugstack.text = Ok("optional /usr/lib/slurm/other.so\n".to_owned());
    }),
    ("plugstack", FAIL, "loads pillion.so as 'required'", "write 'optional'", |f| {
        f.plugstack.text = Ok("required pillion.so\n".to_owned());
    }),
    ("plugin-version", FAIL, "there is no such file; every script", "install the pillion.so", |f| {
        f.plugins[0].built_for = Err("there is no such file".to_owned());
    }),
    ("plugin-version", FAIL, "built for Slurm 23.11, here runs 24.11.5", "the pillion.so for 24.11", |f| {
        f.plugins[0].built_for = Ok((23, 11));
    }),
    ("hooks", WARN, "EpilogSlurmctld does not call pillion", "deploy/slurm/hooks", |f| f.hooks.truncate(2)),
    ("hooks", FAIL, "does not end in 'exit 0'", "'exit 0' its last line", |f| {
        f.hooks[1].file.text = Ok("#!/bin/sh\ntimeout 2 pillion poke\n".to_owned());
    }),
    ("hooks", FAIL, "calls pillion without a time limit", "timeout 2", |f| {
        f.hooks[2].file.text = Ok("#!/bin/sh\npillion poke\nexit 0\n".to_owned());
    }),
    ("hooks", WARN, "waits for pillion: every job of the cluster", "deploy/slurm/hooks", |f| {
        f.hooks[2].file.text = Ok("#!/bin/sh\ntimeout 2 pillion poke\nexit 0\n".to_owned());
    }),
    ("hooks", FAIL, "there is no such file", "install the script here", |f| {
        f.hooks[2].file.text = Err("there is no such file".to_owned());
    }),
    ("lua-module", FAIL, "it may not be read", "run doctor on the controller as root", |f| {
        f.job_submit_lua.text = Err("it may not be read; run doctor as root".to_owned());
    }),
];

const BROKEN_SERVICES: [Broken; 22] = [
    ("scheduler", FAIL, "cannot reach the scheduler", "systemctl status pillion-scheduler", |f| {
        f.status = Err("cannot reach the scheduler".to_owned());
    }),
    ("scheduler", WARN, "its mode is off", "mode = \"active\"", |f| {
        status_of(f).mode = "off".to_owned();
        f.heartbeat.text = Ok("pillion1 epoch=1794999995 bound=600 mode=off\n".to_owned());
    }),
    ("scheduler", FAIL, "it does not act: too old", "upgrade Slurm", |f| {
        status_of(f).slurm_refusal = Some("too old".to_owned());
    }),
    ("scheduler", FAIL, "it decides nothing now: its lua is missing", "touch", |f| {
        status_of(f).not_acting = Some("its lua is missing".to_owned());
        f.heartbeat.text = Ok("pillion1 epoch=1794999995 bound=600 mode=off\n".to_owned());
    }),
    ("scheduler", FAIL, "2 times a GPU was booked beyond the plan", "journalctl", |f| {
        status_of(f).violation_count = 2;
    }),
    ("scheduler", WARN, "3 starts got no share", "pillion-agent", |f| {
        status_of(f).miss_count = 3;
    }),
    ("queue-scan", FAIL, "last read the queue 100 s ago", "slurmctld", |f| {
        status_of(f).last_scan_at_seconds = status_of(f).last_scan_at_seconds.map(|at| at - 98.0);
    }),
    ("database", FAIL, "names no database", "database.url", |f| status_of(f).database.clear()),
    ("tcp", FAIL, "whoever comes is believed", "auth.method = \"munge\"", |f| {
        f.config.listen.tcp = Some(([0, 0, 0, 0], 6820).into());
        status_of(f).auth_method = Some("none".to_owned());
    }),
    (
        "tcp",
        FAIL,
        "auth.scheduler_user = \"pillion\", and SlurmUser is slurm(64030)",
        "scheduler_user",
        |f| {
            f.config.listen.tcp = Some(([0, 0, 0, 0], 6820).into());
            f.config.auth.scheduler_user = "pillion".to_owned();
        },
    ),
    ("refused", FAIL, "the agent of n2 at 10.0.0.2 was not let in (3 times): the clock", "chronyd", |f| {
        let why = "the clock that it was made by is 400 s behind the one that it was read by";
        refuse(f, why);
    }),
    ("refused", FAIL, "it is no node of the pool", "pool.partitions name the node", |f| {
        refuse(f, "it is no node of the pool");
    }),
    ("agents", FAIL, "no agent is connected from n2", "systemctl enable --now pillion-agent", |f| {
        status_of(f).agents[1].connected = false;
    }),
    ("agents", FAIL, "the clock of n1 is off by -7.0 s", "chronyd", |f| {
        status_of(f).agents[0].clock_skew_seconds = -7.0;
    }),
    ("devices", FAIL, "node n1: the agent sees g0, Slurm books g0,g1", "gres.conf", |f| {
        status_of(f).agents[0].devices.truncate(1);
    }),
    (
        "device-health",
        FAIL,
        "node n1, device g1: it is gone: fell off the bus, since 2026-11-",
        "it is used again when it answers",
        |f| {
            status_of(f).agents[0].devices[1].faults = Some(Faults { list: vec![fault(FaultKind::Gone)] });
        },
    ),
    ("device-health", FAIL, "device g0: it cannot be read", "nvidia-smi, xpu-smi", |f| {
        status_of(f).agents[0].devices[0].faults = Some(Faults { list: vec![fault(FaultKind::Unreadable)] });
    }),
    ("device-health", FAIL, "its MPS server reports a fault", "until all of them have left", |f| {
        status_of(f).agents[0].devices[0].faults = Some(Faults { list: vec![fault(FaultKind::MpsFault)] });
    }),
    (
        "device-health",
        FAIL,
        "its CCS mode cannot be changed before its card is idle",
        "until all have left",
        |f| {
            status_of(f).agents[0].devices[0].faults =
                Some(Faults { list: vec![fault(FaultKind::ModeHeld)] });
        },
    ),
    (
        "device-health",
        FAIL,
        "MIG there is not the pool's to change",
        "take away there what the agent has not made",
        |f| {
            status_of(f).agents[0].devices[0].faults = Some(Faults { list: vec![fault(FaultKind::Divided)] });
        },
    ),
    ("device-health", FAIL, "a program holds one that is nobody's", "end the programs that it names", |f| {
        status_of(f).agents[0].devices[0].faults = Some(Faults { list: vec![fault(FaultKind::Held)] });
    }),
    ("device-health", WARN, "it lost a metric", "profiles do without this metric", |f| {
        status_of(f).agents[0].devices[0].faults = Some(Faults { list: vec![fault(FaultKind::MetricLost)] });
    }),
];

fn all_broken() -> impl Iterator<Item = &'static Broken> {
    [
        &identity::BROKEN[..],
        &life::BROKEN,
        &node::BROKEN,
        &open::BROKEN,
        &BROKEN_SLURM,
        &BROKEN_POOL,
        &BROKEN_FILES,
        &BROKEN_SERVICES,
    ]
    .into_iter()
    .flatten()
}

fn is_hit(finding: &Finding, check: &str, status: Status, found: &str, mend: &str) -> bool {
    finding.check == check
        && finding.status == status
        && finding.found.contains(found)
        && finding.mend.as_deref().is_some_and(|text| text.contains(mend))
}

#[expect(clippy::cast_precision_loss, reason = "an epoch")]
fn fault(kind: FaultKind) -> Fault {
    let (detail, since_seconds) = ("fell off the bus".to_owned(), NOW as f64 - 60.0);
    Fault { kind: kind.to_string(), detail, since_seconds, closes_device: kind.closes_device() }
}

#[test]
fn each_broken_setup_prints_its_line_and_its_mend() {
    for (check, status, found, mend, breaks) in all_broken() {
        let mut facts = sound();
        breaks(&mut facts);
        let findings = examine(&facts);
        let hit = findings.iter().find(|finding| is_hit(finding, check, *status, found, mend));
        assert!(
            hit.is_some(),
            "{check}: '{found}' / '{mend}' is not in {:#?}",
            findings.iter().filter(|f| f.status > Status::Skip).collect::<Vec<_>>()
        );
        for other in
            findings.iter().filter(|finding| finding.status == Status::Fail && finding.check != *check)
        {
            let follows = *status == FAIL
                && ["scheduler", "pool-partitions", "gres-types", "slurm-version"].contains(check);
            assert!(follows, "{check} broken, and {} complains too: {}", other.check, other.found);
        }
    }
}

#[test]
fn without_accounting_nothing_is_said_of_bills_and_limits() {
    let mut facts = sound();
    facts.slurm_conf = Ok(conf(&[("AccountingStorageType", "(null)")]));
    partition_of(&mut facts).billing_weights = String::new();
    let findings = examine(&facts);
    let status = |check| findings.iter().find(|finding| finding.check == check).map(|finding| finding.status);
    assert_eq!(status("billing-weights"), Some(Status::Skip));
    assert_eq!(status("accounting-tres"), Some(Status::Skip));
    assert!(findings.iter().all(|finding| finding.status < Status::Warn), "{findings:#?}");
}
