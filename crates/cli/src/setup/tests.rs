//! A host in a folder: what is done in which order, cut off after any step, undone, and edited by somebody in between.

mod hosts;

use super::*;
use crate::slurm_conf::{Files, Pool};
use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

const CONF: &str = "# the site's\nClusterName=site\nSlurmctldHost=c1(10.0.0.1)\nSlurmUser=slurm\nGresTypes=gpu\n\
    NodeName=n1 CPUs=8 RealMemory=8000 Gres=gpu:2\nNodeName=n2 CPUs=8 RealMemory=8000 Gres=gpu:2\n\
    PartitionName=gpu Nodes=n2 Default=YES\n";
const PLUGSTACK: &str = "optional /usr/lib/other.so\n";
const FILES: [&str; 4] = ["slurm.conf", "plugstack.conf", "gres.conf", "job_submit.lua"];

/// A folder that stands for `/`, with what the packages bring, and a systemctl that remembers.
struct Site {
    root: tempfile::TempDir,
    host: Host,
}

impl Site {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().join(path);
        for path in [
            "usr/lib/pillion/pillion.so",
            "etc/slurm/pillion/prolog",
            "etc/slurm/pillion/epilog",
            "etc/slurm/pillion/epilog_slurmctld",
            "etc/slurm/pillion.lua",
            "usr/bin/pillion-scheduler",
            "usr/bin/pillion-agent",
            "etc/pillion/README",
        ] {
            std::fs::create_dir_all(at(path).parent().unwrap()).unwrap();
            std::fs::write(at(path), "").unwrap();
        }
        std::fs::write(at("etc/slurm/slurm.conf"), CONF).unwrap();
        std::fs::write(at("etc/slurm/plugstack.conf"), PLUGSTACK).unwrap();
        std::fs::set_permissions(at("etc/slurm/slurm.conf"), std::fs::Permissions::from_mode(0o640)).unwrap();
        // As the real one: what is cut off between enabling and starting is enabled, and does not run.
        let systemctl = "#!/bin/sh\ncase $1 in enable) : >\"$0.enabled.$3\"; : >\"$0.active.$3\" ;; \
            disable) rm -f \"$0.enabled.$3\" \"$0.active.$3\" ;; esac\n";
        std::fs::write(at("systemctl"), systemctl).unwrap();
        std::fs::set_permissions(at("systemctl"), std::fs::Permissions::from_mode(0o755)).unwrap();
        let slurm = at("etc/slurm");
        let host = Host {
            name: "c1.example.org".to_owned(),
            root: root.path().to_owned(),
            slurm,
            is_configless: false,
            must_watch_plugins: false,
        };
        Self { root, host }
    }

    fn folder(&self) -> PathBuf {
        self.root.path().join("var/lib/pillion-setup/controller")
    }

    fn systemctl(&self) -> PathBuf {
        self.root.path().join("systemctl")
    }

    fn files(&self) -> Files {
        let text = |name: &str| std::fs::read_to_string(self.host.slurm.join(name)).unwrap_or_default();
        Files(FILES.iter().map(|name| ((*name).to_owned(), text(name))).collect())
    }

    fn plan(&self) -> Plan {
        self.plan_of("shared")
    }

    fn plan_of(&self, partition: &str) -> Plan {
        let names = ["n1".to_owned()].into();
        let pool =
            Pool { nodes: "n1".to_owned(), names, partition: partition.to_owned(), devices: Vec::new() };
        let wanted = Wanted { pool: Some(pool), ..Wanted::default() };
        plan(&self.host, Role::Controller, &self.files(), &wanted, &self.on(Role::Controller))
    }

    /// Which units of a role are on.
    fn on(&self, role: Role) -> On {
        let that_are = |word: &str| {
            let units = self.host.units(role).into_iter().map(str::to_owned);
            units.filter(|unit| self.state(word, unit).exists()).collect::<Vec<String>>()
        };
        On { enabled: that_are("enabled"), active: that_are("active") }
    }

    fn steps(&self) -> Vec<Step> {
        do_steps(&self.plan(), &Record::load(&self.folder()).unwrap(), &self.folder()).unwrap()
    }

    /// The file by which the `systemctl` of this site knows that a unit is `enabled` or `active`.
    fn state(&self, word: &str, unit: &str) -> PathBuf {
        self.root.path().join(format!("systemctl.{word}.{unit}"))
    }

    fn way_back(&self) -> Result<Undo, crate::error::CliError> {
        undo_steps(&Record::load(&self.folder()).unwrap(), &self.folder())
    }

    fn undo(&self) -> Result<Vec<Step>, crate::error::CliError> {
        self.way_back().map(|undo| undo.steps)
    }

    async fn does(&self, steps: &[Step]) {
        for step in steps {
            carry_out(step, &self.systemctl()).await.unwrap();
        }
    }

    /// Everything below the folder, with modes, but for what setup keeps for itself.
    fn picture(&self) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
        let mut found = BTreeMap::new();
        let mut folders = vec![self.root.path().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path == self.folder() {
                    continue;
                }
                if path.is_dir() {
                    folders.push(path);
                } else {
                    let mode = path.metadata().unwrap().mode();
                    found.insert(path.clone(), (mode, std::fs::read(&path).unwrap()));
                }
            }
        }
        found
    }

    fn writes(&self, name: &str, text: &str) {
        std::fs::write(self.host.slurm.join(name), text).unwrap();
    }
}

fn names(steps: &[Step], folder: &Path) -> Vec<String> {
    let name = |step: &Step| match step {
        Step::ClearBeside { .. } => None,
        Step::Replace { path, .. } if path.starts_with(folder) => Some("kept".to_owned()),
        Step::Replace { path, .. } => Some(path.file_name().unwrap().to_string_lossy().into_owned()),
        Step::Unit { name, is_on } => Some(format!("{name} {is_on}")),
    };
    let mut names: Vec<String> = steps.iter().filter_map(name).collect();
    names.dedup();
    names
}

#[tokio::test]
async fn what_others_name_comes_first_and_goes_last() {
    let site = Site::new();
    let steps = site.steps();
    let order = ["kept", "pillion.toml", "job_submit.lua", "plugstack.conf", "gres.conf", "slurm.conf"];
    let units = ["pillion-scheduler.service true", "pillion-rescue.timer true"];
    assert_eq!(names(&steps, &site.folder()), [&order[..], &units[..]].concat());
    site.does(&steps).await;
    let undo = names(&site.undo().unwrap(), &site.folder());
    let back = ["pillion-rescue.timer false", "pillion-scheduler.service false", "slurm.conf", "gres.conf"];
    assert_eq!(undo[..4], back);
    assert_eq!(undo[4..], ["plugstack.conf", "job_submit.lua", "pillion.toml", "kept"]);
    let toml = std::fs::read_to_string(site.host.at("/etc/pillion/pillion.toml")).unwrap();
    assert!(toml.contains("\ntcp = \"0.0.0.0:6820\"") && toml.contains("\nmode = \"off\""), "{toml}");
    let kept = std::fs::metadata(site.folder()).unwrap();
    assert_eq!(kept.mode() & 0o777, 0o700);
}

#[tokio::test]
async fn cut_off_after_any_step_it_goes_on_and_comes_back() {
    let whole = Site::new();
    let (before, count) = (whole.picture(), whole.steps().len());
    whole.does(&whole.steps()).await;
    let after: Vec<_> = whole.picture().into_values().collect();
    assert!(
        whole.steps().is_empty(),
        "a second run changes nothing: {:?}",
        names(&whole.steps(), &whole.folder())
    );
    let before: Vec<_> = before.into_values().collect();
    for cut in 0..=count {
        // It goes on.
        let site = Site::new();
        site.does(&site.steps()[..cut]).await;
        site.does(&site.steps()).await;
        assert_eq!(site.picture().into_values().collect::<Vec<_>>(), after, "cut off after {cut} steps");
        // It comes back from there, and from a half of the way.
        let site = Site::new();
        site.does(&site.steps()[..cut]).await;
        if let Ok(steps) = site.undo() {
            site.does(&steps).await;
        }
        assert_eq!(site.picture().into_values().collect::<Vec<_>>(), before, "undone after {cut} steps");
    }
    let undo_count = whole.undo().unwrap().len();
    for cut in 0..=undo_count {
        let site = Site::new();
        site.does(&site.steps()).await;
        site.does(&site.undo().unwrap()[..cut]).await;
        site.does(&site.undo().unwrap()).await;
        assert_eq!(
            site.picture().into_values().collect::<Vec<_>>(),
            before,
            "an undo cut off after {cut} steps"
        );
        assert!(Record::load(&site.folder()).unwrap().is_empty());
    }
}

#[tokio::test]
async fn an_undo_leaves_what_somebody_else_changed_and_all_besides() {
    for name in FILES {
        let site = Site::new();
        site.does(&site.steps()).await;
        let text = std::fs::read_to_string(site.host.slurm.join(name)).unwrap();
        site.writes(name, &format!("{text}# an admin's\n"));
        let picture = site.picture();
        let said = site.undo().unwrap_err().to_string();
        assert!(said.contains(name) && said.contains("so nothing is undone"), "{said}");
        assert_eq!(site.picture(), picture);
        // As setup had made it, it is undone.
        site.writes(name, &text);
        assert!(site.undo().is_ok());
    }
}

#[tokio::test]
async fn what_an_admin_wrote_between_two_runs_is_never_taken_back() {
    let site = Site::new();
    site.does(&site.steps()).await;
    site.writes("slurm.conf", &CONF.replace("ClusterName=site", "ClusterName=other"));
    let steps = site.steps();
    assert!(!steps.is_empty());
    site.does(&steps).await;
    let text = std::fs::read_to_string(site.host.slurm.join("slurm.conf")).unwrap();
    assert!(text.contains("ClusterName=other") && text.contains("PartitionName=shared"), "{text}");
    let said = site.undo().unwrap_err().to_string();
    assert!(said.contains("slurm.conf") && said.contains("by hand"), "{said}");
}

#[tokio::test]
async fn who_writes_while_it_works_is_not_overwritten() {
    let site = Site::new();
    let steps = site.steps();
    let own = format!("{CONF}# meanwhile\n");
    site.writes("slurm.conf", &own);
    let is_conf = |step: &&Step| matches!(step, Step::Replace { path, .. } if path.ends_with("slurm.conf"));
    let step = steps.iter().find(is_conf).unwrap();
    let said = carry_out(step, &site.systemctl()).await.unwrap_err().to_string();
    assert!(said.contains("it was changed meanwhile"), "{said}");
    assert_eq!(std::fs::read_to_string(site.host.slurm.join("slurm.conf")).unwrap(), own);
    assert!(!site.host.slurm.join(".slurm.conf.pillion-setup").exists());
}

#[tokio::test]
async fn owner_mode_and_attributes_stay() {
    let site = Site::new();
    let path = site.host.slurm.join("slurm.conf");
    let has_attributes =
        rustix::fs::setxattr(&path, "user.site", b"theirs", rustix::fs::XattrFlags::empty()).is_ok();
    let is_root = rustix::process::geteuid().is_root();
    if is_root {
        std::os::unix::fs::chown(&path, Some(12), Some(34)).unwrap();
    }
    let before = path.metadata().unwrap();
    site.does(&site.steps()).await;
    let after = path.metadata().unwrap();
    assert_eq!((after.mode(), after.uid(), after.gid()), (before.mode(), before.uid(), before.gid()));
    assert_eq!(after.mode() & 0o777, 0o640);
    assert!(!is_root || (after.uid(), after.gid()) == (12, 34));
    if has_attributes {
        let mut value = [0_u8; 16];
        let length = rustix::fs::getxattr(&path, "user.site", &mut value[..]).unwrap();
        assert_eq!(&value[..length], b"theirs");
    }
}

#[test]
fn files_that_are_kept_elsewhere_are_named_and_left() {
    let of = |change: fn(&Site)| {
        let site = Site::new();
        change(&site);
        let plan = site.plan();
        let touched = plan.files.iter().any(|it| it.path.ends_with("slurm.conf"));
        (touched, plan.left.into_iter().map(|(_, why)| why).collect::<Vec<_>>())
    };
    assert_eq!(of(|_| ()), (true, Vec::new()));
    let (touched, left) = of(|site| {
        let real = site.root.path().join("shared.conf");
        std::fs::rename(site.host.slurm.join("slurm.conf"), &real).unwrap();
        std::os::unix::fs::symlink(&real, site.host.slurm.join("slurm.conf")).unwrap();
    });
    assert!(!touched && left[0].contains("is a link to"), "{left:?}");
    let (touched, left) = of(|site| site.writes("slurm.conf", &format!("# Ansible managed\n{CONF}")));
    assert!(!touched && left[0].contains("says of itself 'Ansible managed'"), "{left:?}");
    let (touched, left) = of(|site| {
        std::fs::hard_link(site.host.slurm.join("slurm.conf"), site.root.path().join("other")).unwrap();
    });
    assert!(!touched && left[0].contains("has several names"), "{left:?}");
}

#[test]
fn what_is_the_wrong_host_or_lacks_something_is_one_sentence() {
    let site = Site::new();
    let said = |role, name: &str| {
        let host = Host { name: name.to_owned(), ..site.host.clone() };
        host.check(role, &site.files()).map_err(|error| error.to_string())
    };
    assert_eq!(said(Role::Controller, "c1"), Ok(()));
    assert!(said(Role::Controller, "n1").unwrap_err().contains("names c1 as SlurmctldHost: run it there"));
    assert!(
        said(Role::Node, "n1")
            .unwrap_err()
            .contains("gives n1 no shards: run 'pillion setup controller' first")
    );
    assert!(said(Role::Node, "c1").unwrap_err().contains("has no NodeName for it"));
    assert_eq!(said(Role::Submit, "login"), Ok(()));
    site.writes("slurm.conf", &CONF.replace("Gres=gpu:2", "Gres=gpu:g0:1,shard:g0:100"));
    assert_eq!(said(Role::Node, "n1.example.org"), Ok(()));
    std::fs::remove_file(site.host.at("/usr/lib/pillion/pillion.so")).unwrap();
    let missing = "there is no /usr/lib/pillion/pillion.so: install the package pillion-spank first";
    assert_eq!(said(Role::Submit, "login"), Err(missing.to_owned()));
    // The package is there, and was before Slurm.
    std::fs::write(site.host.at("/usr/lib/pillion/pillion-spank-follow"), "").unwrap();
    let unstamped = "there is no /usr/lib/pillion/pillion.so, for no Slurm was found yet: run /usr/lib/pillion/pillion-spank-follow first";
    assert_eq!(said(Role::Submit, "login"), Err(unstamped.to_owned()));
}

#[test]
fn a_pool_that_others_use_is_to_be_mended_first() {
    let site = Site::new();
    assert_eq!(site.plan().must_first, Vec::<String>::new());
    site.writes("slurm.conf", &CONF.replace("Nodes=n2", "Nodes=n1,n2"));
    let first = site.plan().must_first;
    assert!(first.len() == 1 && first[0].contains("has nodes of the pool: take n1 out of it"), "{first:?}");
}

#[test]
fn slurms_files_go_together_or_stay_together() {
    let of = |change: fn(&Site)| {
        let site = Site::new();
        change(&site);
        let plan = site.plan();
        let name = |change: &Change| change.path.file_name().unwrap().to_string_lossy().into_owned();
        let changed: Vec<String> = plan.files.iter().map(name).collect();
        let left: Vec<String> = plan.left.into_iter().map(|(_, why)| why).collect();
        (changed, left)
    };
    let apart = ["pillion.toml", "plugstack.conf"];
    for name in ["slurm.conf", "gres.conf", "job_submit.lua"] {
        let (changed, left) = match name {
            "slurm.conf" => of(|site| site.writes("slurm.conf", &format!("# Managed by Salt\n{CONF}"))),
            "gres.conf" => of(|site| site.writes("gres.conf", "# Managed by Salt\nNodeName=n2 Name=gpu\n")),
            // A link to nowhere: slurmctld would not start with slurm.conf asking for it.
            _ => of(|site| {
                std::os::unix::fs::symlink("/nowhere/x.lua", site.host.slurm.join("job_submit.lua")).unwrap();
            }),
        };
        assert_eq!(changed, apart, "{name}: {left:?}");
        assert!(left.iter().any(|why| why.contains("is left with") && why.contains(name)), "{left:?}");
    }
    let (changed, left) = of(|site| site.writes("plugstack.conf", "# do not edit\noptional other.so\n"));
    assert!(changed.contains(&"slurm.conf".to_owned()) && left.len() == 1, "{changed:?} {left:?}");
}

#[test]
fn a_file_that_slurms_own_form_made_is_the_admins() {
    let site = Site::new();
    let head =
        "# slurm.conf file generated by configurator.html.\n# Put this file on all nodes of your cluster.\n";
    site.writes("slurm.conf", &format!("{head}{CONF}"));
    let plan = site.plan();
    assert!(plan.left.is_empty() && plan.files.iter().any(|it| it.path.ends_with("slurm.conf")));
}

#[tokio::test]
async fn an_own_job_submit_script_stays_and_its_lines_are_said() {
    let site = Site::new();
    let own = "function slurm_job_submit(job, parts, uid)\n return slurm.SUCCESS\nend\n";
    site.writes("job_submit.lua", own);
    let plan = site.plan();
    assert!(plan.files.iter().all(|it| !it.path.ends_with("job_submit.lua")));
    assert!(plan.by_hand.iter().any(|said| said.contains("job_submit.lua is the site's own")), "{plan:?}");
    site.does(&site.steps()).await;
    site.does(&site.undo().unwrap()).await;
    assert_eq!(std::fs::read_to_string(site.host.slurm.join("job_submit.lua")).unwrap(), own);
    assert_eq!(std::fs::read_to_string(site.host.slurm.join("plugstack.conf")).unwrap(), PLUGSTACK);
}

#[tokio::test]
async fn our_configuration_stays_where_it_was_edited_and_the_rest_goes() {
    let site = Site::new();
    site.does(&site.steps()).await;
    let path = site.host.at("/etc/pillion/pillion.toml");
    let text = std::fs::read_to_string(&path).unwrap().replace("mode = \"off\"", "mode = \"shadow\"");
    std::fs::write(&path, &text).unwrap();
    let undo = site.way_back().unwrap();
    assert!(undo.left.len() == 1 && undo.left[0].contains("it stays"), "{:?}", undo.left);
    site.does(&undo.steps).await;
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    assert_eq!(std::fs::read_to_string(site.host.slurm.join("slurm.conf")).unwrap(), CONF);
}

#[tokio::test]
async fn a_unit_that_is_enabled_and_does_not_run_is_started_and_is_not_disabled_by_an_undo_of_what_was_there()
{
    let unit = "pillion-scheduler.service";
    // An admin had enabled it before; it stays so.
    let site = Site::new();
    std::fs::write(site.state("enabled", unit), "").unwrap();
    site.does(&site.steps()).await;
    assert!(site.state("active", unit).exists());
    site.does(&site.undo().unwrap()).await;
    assert!(site.state("enabled", unit).exists());
    // Power was lost between enabling and starting.
    let site = Site::new();
    site.does(&site.steps()).await;
    std::fs::remove_file(site.state("active", unit)).unwrap();
    site.does(&site.steps()).await;
    assert!(site.state("active", unit).exists());
    site.does(&site.undo().unwrap()).await;
    assert!(!site.state("enabled", unit).exists());
}

#[tokio::test]
async fn a_file_that_was_half_written_is_passed_over_and_goes_with_an_undo() {
    let site = Site::new();
    let half = site.host.slurm.join(".slurm.conf.pillion-setup");
    std::fs::write(&half, "half").unwrap();
    site.does(&site.steps()).await;
    assert!(!half.exists());
    std::fs::write(&half, "half").unwrap();
    site.does(&site.undo().unwrap()).await;
    assert!(!half.exists());
}

#[tokio::test]
async fn a_step_that_fails_leaves_its_file_and_the_next_run_goes_on() {
    let site = Site::new();
    // Something is in the way of the new slurm.conf.
    let beside = site.host.slurm.join(".slurm.conf.pillion-setup");
    std::fs::create_dir(&beside).unwrap();
    let mut said = None;
    for step in site.steps() {
        if let Err(error) = carry_out(&step, &site.systemctl()).await {
            said = Some(error.to_string());
            break;
        }
    }
    assert!(said.clone().unwrap().contains("slurm.conf"), "{said:?}");
    assert_eq!(std::fs::read_to_string(site.host.slurm.join("slurm.conf")).unwrap(), CONF);
    std::fs::remove_dir(&beside).unwrap();
    site.does(&site.steps()).await;
    assert!(site.steps().is_empty());
    site.does(&site.undo().unwrap()).await;
    assert_eq!(std::fs::read_to_string(site.host.slurm.join("slurm.conf")).unwrap(), CONF);
}

#[test]
fn two_at_once_are_one_and_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let first = lock(&folder.path().join("kept")).unwrap();
    let said = lock(&folder.path().join("kept")).unwrap_err().to_string();
    assert!(said.contains("another 'pillion setup' is at work"), "{said}");
    drop(first);
    assert!(lock(&folder.path().join("kept")).is_ok());
}

#[tokio::test]
async fn the_partition_that_was_named_is_remembered_for_the_way_back() {
    let site = Site::new();
    site.does(&site.steps()).await;
    assert_eq!(Record::load(&site.folder()).unwrap().partitions, ["shared"]);
}

#[test]
fn the_scheduler_looks_after_the_partition_that_was_named() {
    let site = Site::new();
    let plan = site.plan_of("gpu-pool");
    let of_scheduler = plan.files.iter().find(|change| change.path.ends_with("pillion.toml")).unwrap();
    assert!(of_scheduler.after.contains("\npartitions = [\"gpu-pool\"]\n"), "{}", of_scheduler.after);
}
