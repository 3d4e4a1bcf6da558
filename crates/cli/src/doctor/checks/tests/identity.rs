//! Set-ups in which not the right scheduler runs, or not as it must.

use super::{Broken, CONFIG, FAIL, WARN, conf};

pub(super) const BROKEN: [Broken; 10] = [
    ("config", FAIL, "/etc/pillion/pillion.toml: there is no such file", "pillion config example", |f| {
        f.config_text.text = Err("there is no such file".to_owned());
    }),
    (
        "config",
        FAIL,
        "pillion.toml, line 1: there is no setting moed; did you mean mode?",
        "correct it",
        |f| {
            f.config_text.text = Ok(CONFIG.replace("mode", "moed"));
        },
    ),
    ("config", FAIL, "line 5: agent.backend = \"amd\" is not allowed", "pillion-agent does not start", |f| {
        f.config_text.text = Ok(format!("{CONFIG}[agent]\nbackend = \"amd\"\n"));
    }),
    ("config", WARN, "says mode = \"off\", the scheduler runs with active", "systemctl restart", |f| {
        f.config_text.text = Ok(CONFIG.replace("active", "off"));
    }),
    ("config", WARN, "names the pool other, the scheduler runs with shared", "systemctl restart", |f| {
        f.config_text.text = Ok(CONFIG.replace("shared", "other"));
    }),
    ("config", WARN, "the watch does not act in shared: first runs stay alone", "watch = \"act\"", |f| {
        f.config_text.text = Ok(format!("{CONFIG}[policy]\nfirst_runs = \"host\"\n"));
    }),
    (
        "slurm-user",
        FAIL,
        "runs as uid 1000, and may not change jobs: SlurmUser is slurm(64030)",
        "User=",
        |f| {
            f.heartbeat_uid = Ok(1000);
        },
    ),
    (
        "leader",
        FAIL,
        "says mode=off, the scheduler runs with active: another one leads",
        "stop the other",
        |f| {
            f.heartbeat.text = Ok("pillion1 epoch=1794999995 bound=600 mode=off\n".to_owned());
        },
    ),
    ("constrain-devices", WARN, "ConstrainDevices is off", "ConstrainDevices=yes in cgroup.conf", |f| {
        f.slurm_conf = Ok(conf(&[("ConstrainDevices", "no")]));
    }),
    ("constrain-devices", WARN, "TaskPlugin=task/affinity lacks task/cgroup", "add task/cgroup", |f| {
        f.slurm_conf = Ok(conf(&[("TaskPlugin", "task/affinity")]));
    }),
];
