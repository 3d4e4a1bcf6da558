//! The text of Slurm's configuration files for a [`ClusterSpec`]; pure.
//!
//! The pool serves shards only: each GPU is a type of its own with 100 shards, so that pinning a job to one GPU is an
//! ordinary request. Nodes with whole GPUs stand in another partition.

use super::layout::Layout;
use super::spec::{ClusterSpec, Containment};
use crate::testbed::HOST_NAME;
use std::fmt::Write as _;

/// What is known only when the cluster is being started.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    /// Of `slurmctld`.
    pub(super) controller_port: u16,
    /// Of each node's `slurmd`, in the order of [`ClusterSpec::node_names`].
    pub(super) node_ports: Vec<u16>,
    /// Of `slurmdbd`, where there is one.
    pub(super) accounting_port: Option<u16>,
    /// Lines that name the hooks.
    pub(super) hooks: String,
    /// A `job_submit.lua` lies beside `slurm.conf`.
    pub(super) has_job_submit: bool,
}

/// `slurm.conf`. `DebugFlags=HetJob`: since 26.05 backfill says only with it which job it started.
pub(super) fn slurm_conf(spec: &ClusterSpec, layout: &Layout, settings: &Settings) -> String {
    let root = layout.root().display();
    let mut text = format!(
        "ClusterName=pillion\nSlurmctldHost={HOST_NAME}(127.0.0.1)\nSlurmctldPort={port}\nSlurmUser=slurm\nSlurmdUser=root\n\
         AuthType=auth/munge\nCredType=cred/munge\nAuthInfo=socket={root}/munge/sock\n\
         StateSaveLocation={root}/state\nSlurmdSpoolDir={root}/spool/%n\n\
         SlurmctldPidFile={root}/run/slurmctld.pid\nSlurmdPidFile={root}/run/slurmd-%n.pid\n\
         SlurmctldLogFile={root}/log/slurmctld.log\nSlurmdLogFile={root}/log/slurmd-%n.log\n\
         SlurmctldDebug=verbose\nSlurmdDebug=verbose\nDebugFlags=HetJob\n\
         PlugStackConfig={root}/conf/plugstack.conf\nMailProg=/bin/true\nMpiDefault=none\n\
         {containment}JobAcctGatherType=jobacct_gather/none\n\
         SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,sched_interval=2,bf_interval=2\n\
         SelectType=select/cons_tres\nSelectTypeParameters=CR_Core_Memory\nSlurmdParameters=config_overrides\n\
         GresTypes=gpu,shard\nReturnToService=2\nSlurmdTimeout=10\nKillWait=2\nMinJobAge=600\nInactiveLimit=0\n",
        port = settings.controller_port,
        containment = match spec.containment {
            Containment::Parents => "ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\n",
            Containment::ControlGroups => "ProctrackType=proctrack/cgroup\nTaskPlugin=task/cgroup\n",
        },
    );
    if settings.has_job_submit {
        text.push_str("JobSubmitPlugins=lua\n");
    }
    text.push_str(&settings.hooks);
    if let Some(port) = settings.accounting_port {
        let _ = write!(
            text,
            "AccountingStorageType=accounting_storage/slurmdbd\nAccountingStorageHost=127.0.0.1\n\
             AccountingStoragePort={port}\nAccountingStoragePass={root}/munge/sock\n\
             AccountingStorageEnforce=associations,limits,qos\nAccountingStorageTRES=gres/gpu,gres/shard\n"
        );
    }
    // The last value of a name stands.
    let extra: Vec<&str> = counted_gres(spec).map(|(name, _)| name).collect();
    if !extra.is_empty() {
        let _ = writeln!(text, "GresTypes=gpu,shard,{}", extra.join(","));
    }
    nodes(&mut text, spec, settings);
    partitions(&mut text, spec);
    for line in &spec.slurm_conf_extra {
        text.push_str(line);
        text.push('\n');
    }
    text
}

fn nodes(text: &mut String, spec: &ClusterSpec, settings: &Settings) {
    let pooled = spec.pool_nodes.len();
    for (index, (name, port)) in spec.node_names().iter().zip(&settings.node_ports).enumerate() {
        let types = (0..spec.gpus_per_node).map(|gpu| format!("gpu:g{gpu}:1"));
        let shards = (0..spec.gpus_per_node).map(|gpu| format!("shard:g{gpu}:100"));
        let mut gres: Vec<String> =
            if index < pooled { types.chain(shards).collect() } else { types.collect() };
        gres.extend(spec.gres_extra.iter().cloned());
        let features = spec.pool_nodes.get(index).map(|node| node.features.join(",")).unwrap_or_default();
        let _ = write!(
            text,
            "NodeName={name} NodeHostname={HOST_NAME} NodeAddr=127.0.0.1 Port={port} CPUs={cpus} Boards=1 \
             SocketsPerBoard=1 CoresPerSocket={cpus} ThreadsPerCore=1 RealMemory={memory}",
            cpus = spec.cpus_per_node,
            memory = spec.memory_mib_per_node,
        );
        if !gres.is_empty() {
            let _ = write!(text, " Gres={}", gres.join(","));
        }
        if !features.is_empty() {
            let _ = write!(text, " Features={features}");
        }
        text.push('\n');
    }
}

fn partitions(text: &mut String, spec: &ClusterSpec) {
    // Slurm knows GRES as billable only where slurmdbd keeps them.
    let weights = if spec.accounting { " TRESBillingWeights=\"GRES/gpu=100,GRES/shard=1\"" } else { "" };
    let pool: Vec<&str> = spec.pool_nodes.iter().map(|node| node.name.as_str()).collect();
    let whole = spec.whole_gpu_node_names();
    if !pool.is_empty() {
        let default = if whole.is_empty() { "YES" } else { "NO" };
        let _ = writeln!(
            text,
            "PartitionName=shared Nodes={} Default={default} MaxTime=1-00:00:00 DefaultTime=10 DefMemPerCPU=1000{weights}",
            pool.join(",")
        );
    }
    if !whole.is_empty() {
        let _ = writeln!(
            text,
            "PartitionName=gpu Nodes={} Default=YES MaxTime=1-00:00:00 DefaultTime=10 DefMemPerCPU=1000{weights}",
            whole.join(",")
        );
    }
}

/// `cgroup.conf`. `slurm`: what `slurmctld -V` says; before 24.05 the plugin cannot be switched off, and does nothing where nobody asks it.
pub(super) fn cgroup_conf(containment: Containment, slurm: &str) -> &'static str {
    match containment {
        Containment::Parents if slurm.contains(" 23.11.") => "CgroupPlugin=autodetect\n",
        Containment::Parents => "CgroupPlugin=disabled\n",
        Containment::ControlGroups => "CgroupPlugin=cgroup/v1\nConstrainDevices=yes\n",
    }
}

/// `gres.conf`.
pub(super) fn gres_conf(spec: &ClusterSpec, layout: &Layout) -> String {
    let mut text = String::from("AutoDetect=off\n");
    for (index, name) in spec.node_names().iter().enumerate() {
        for gpu in 0..spec.gpus_per_node {
            let file = layout.device_file(gpu);
            let file = file.display();
            let _ = writeln!(text, "NodeName={name} Name=gpu Type=g{gpu} File={file}");
            if index < spec.pool_nodes.len() {
                let _ = writeln!(text, "NodeName={name} Name=shard Type=g{gpu} Count=100 File={file}");
            }
        }
        for (gres, count) in counted_gres(spec) {
            let _ = writeln!(text, "NodeName={name} Name={gres} Count={count}");
        }
    }
    text
}

/// Names and counts of [`ClusterSpec::gres_extra`].
fn counted_gres(spec: &ClusterSpec) -> impl Iterator<Item = (&str, &str)> {
    spec.gres_extra.iter().filter_map(|gres| gres.split_once(':'))
}

/// `slurmdbd.conf`.
pub(super) fn slurmdbd_conf(layout: &Layout, port: u16, database_port: u16) -> String {
    let root = layout.root().display();
    format!(
        "AuthType=auth/munge\nAuthInfo=socket={root}/munge/sock\nDbdHost={HOST_NAME}\nDbdAddr=127.0.0.1\nDbdPort={port}\n\
         SlurmUser=slurm\nPidFile={root}/run/slurmdbd.pid\nLogFile={root}/log/slurmdbd.log\nDebugLevel=info\n\
         StorageType=accounting_storage/mysql\nStorageHost=127.0.0.1\nStoragePort={database_port}\n\
         StorageUser=slurm\nStoragePass=slurm\nStorageLoc=slurm_acct_db\n"
    )
}
