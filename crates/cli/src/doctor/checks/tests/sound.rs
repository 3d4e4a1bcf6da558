//! A set-up in which nothing is wrong, from its parts.

use super::*;
use pillion_proto::v1::{LoadedPlugin, NodeSetup};

pub(super) fn file(path: &str, text: &str) -> TextFile {
    TextFile { path: path.into(), text: Ok(text.to_owned()) }
}

pub(super) fn node(name: &str, partition: &str) -> Node {
    let each = |count: u32| -> BTreeMap<GresType, (u32, u32)> {
        ["g0", "g1"].into_iter().map(|gres_type| (GresType::new(gres_type), (count, 0))).collect()
    };
    Node {
        name: NodeName::new(name),
        availability: NodeAvailability::Up,
        state: "IDLE".to_owned(),
        cpus: 8,
        cpus_allocated: 0,
        memory_mib: 64_000,
        memory_mib_allocated: 0,
        features: vec![],
        partitions: vec![partition.to_owned()],
        shards: each(100),
        gpus: each(1),
        address: "10.0.0.1".to_owned(),
        other_gres: Some(BTreeMap::new()),
        scratch_mib: 0,
        slurmd_started_at: None,
        reserved_from: None,
    }
}

pub(super) fn partition(name: &str) -> Partition {
    Partition {
        name: name.to_owned(),
        is_default: false,
        is_up: true,
        nodes: vec![NodeName::new("n1"), NodeName::new("n2")],
        time_limit_seconds_max: None,
        billing_weights: "GRES/gpu=100,GRES/shard=1".to_owned(),
        preempt_mode: "OFF".to_owned(),
        exclusive: Exclusive::No,
        over_subscribe: "NO".to_owned(),
        default_memory_mib: None,
        job_defaults: String::new(),
    }
}

pub(super) fn agent(name: &str) -> AgentStatus {
    let device = |(index, gres_type): (u32, &str)| DeviceStatus {
        index,
        uuid: format!("GPU-{name}-{index}"),
        model: "h100".to_owned(),
        memory_bytes: 80 << 30,
        gres_type: gres_type.to_owned(),
        mechanism: "mps".to_owned(),
        instances: None,
        faults: Some(Faults::default()),
        metrics: Vec::new(),
        amiss: None,
        links: Vec::new(),
    };
    AgentStatus {
        node: name.to_owned(),
        connected: true,
        last_seen_at_seconds: Some(1.0),
        clock_skew_seconds: 0.1,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        devices: [(0, "g0"), (1, "g1")].map(device).into(),
        setup: Some(NodeSetup {
            faults: Vec::new(),
            plugins: vec![LoadedPlugin {
                path: "/usr/lib/slurm/pillion.so".to_owned(),
                built_for: "24.11".to_owned(),
                error: String::new(),
            }],
        }),
    }
}

#[expect(clippy::cast_precision_loss, reason = "an epoch")]
pub(super) fn status() -> StatusResponse {
    StatusResponse {
        scheduler_version: env!("CARGO_PKG_VERSION").to_owned(),
        mode: "active".to_owned(),
        now_seconds: NOW as f64,
        slurm_version: "24.11.5".to_owned(),
        slurm_refusal: None,
        last_scan_at_seconds: Some(NOW as f64 - 2.0),
        revision: 7,
        agents: vec![agent("n1"), agent("n2")],
        database: "private Postgres".to_owned(),
        miss_count: 0,
        violation_count: 0,
        dropped_line_count: 0,
        pool_partitions: vec!["shared".to_owned()],
        bound_seconds: 600,
        leading: true,
        drains: Vec::new(),
        config_path: Some("/etc/pillion/pillion.toml".to_owned()),
        heartbeat_path: Some("/run/pillion/heartbeat".to_owned()),
        auth_method: Some("munge".to_owned()),
        refused: Vec::new(),
        not_acting: None,
    }
}

pub(super) fn conf(changes: &[(&str, &str)]) -> SlurmConf {
    let sound = [
        ("SLURM_CONF", "/etc/slurm/slurm.conf"),
        ("SelectType", "select/cons_tres"),
        ("SelectTypeParameters", "CR_CORE_MEMORY"),
        ("GresTypes", "gpu,shard"),
        ("JobSubmitPlugins", "lua"),
        ("AccountingStorageType", "accounting_storage/slurmdbd"),
        ("AccountingStorageTRES", "cpu,mem,gres/gpu,gres/shard"),
        ("JobContainerType", "(null)"),
        ("SlurmUser", "slurm(64030)"),
        ("TaskPlugin", "task/cgroup,task/affinity"),
        ("ConstrainDevices", "yes"),
        ("JobRequeue", "1"),
        ("MinJobAge", "300 sec"),
        ("PrologFlags", "Alloc,Contain"),
        ("ProctrackType", "proctrack/cgroup"),
    ];
    let is_other = |name: &str| !changes.iter().any(|(other, _)| *other == name);
    let kept = sound.into_iter().filter(|(name, _)| is_other(name));
    let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    SlurmConf::new(kept.chain(changes.iter().copied()).map(owned))
}

pub(super) fn sound() -> Facts {
    let mut config = Config::default();
    config.pool.partitions = vec!["shared".to_owned()];
    let hook = |kind, path: &str| Hook { kind, file: file(path, HOOK), is_executable: true };
    Facts {
        now: UnixTime::from_epoch(NOW),
        config,
        config_text: file("/etc/pillion/pillion.toml", CONFIG),
        is_config_reported: false,
        is_heartbeat_in_memory: Some(true),
        heartbeat_uid: Ok(64030),
        version: Ok(SlurmVersion { major: 24, minor: 11, patch: 5 }),
        slurm_conf: Ok(conf(&[])),
        munge: Some(Munge {
            socket: "/run/munge/munge.socket.2".into(),
            has_socket: true,
            credential: Credential::Read,
        }),
        partitions: Ok(vec![
            partition("shared"),
            Partition { nodes: vec![NodeName::new("w1")], ..partition("gpu") },
        ]),
        nodes: Ok(vec![node("n1", "shared"), node("n2", "shared"), node("w1", "gpu")]),
        limits: Ok(vec![Limit {
            owner: "qos gpu".to_owned(),
            field: "MaxTRESPerUser".to_owned(),
            value: "cpu=9,gres/gpu=2,gres/shard=200".to_owned(),
        }]),
        job_submit_lua: file(
            "/etc/slurm/job_submit.lua",
            include_str!("../../../../../../deploy/slurm/job_submit.lua.example"),
        ),
        pillion_lua: file("/etc/slurm/pillion.lua", "local heartbeat = \"/var/lib/pillion/heartbeat\"\n"),
        plugstack: file("/etc/slurm/plugstack.conf", "# ours\noptional /usr/lib/slurm/pillion.so\n"),
        plugins: vec![Plugin {
            path: "/usr/lib/slurm/pillion.so".into(),
            is_loaded: true,
            built_for: Ok((24, 11)),
        }],
        job_container: TextFile {
            path: "/etc/slurm/job_container.conf".into(),
            text: Err("there is no such file".to_owned()),
        },
        namespace: TextFile {
            path: "/etc/slurm/namespace.yaml".into(),
            text: Err("there is no such file".to_owned()),
        },
        heartbeat: file("/var/lib/pillion/heartbeat", "pillion1 epoch=1794999995 bound=600 mode=active\n"),
        hooks: vec![
            hook(HookKind::Prolog, "/etc/slurm/prolog.d/pillion"),
            hook(HookKind::Epilog, "/etc/slurm/epilog.d/pillion"),
            Hook {
                file: file("/etc/slurm/epilog_slurmctld", CONTROLLER_HOOK),
                ..hook(HookKind::EpilogSlurmctld, "")
            },
        ],
        rescue_timer: Ok("active".to_owned()),
        status: Ok(status()),
    }
}
