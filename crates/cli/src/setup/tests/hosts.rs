//! Hosts of other kinds than the plain controller: one whose slurm.conf includes others, a node, a node without Slurm files of its
//! own, and one whose Slurm no package brought.

use super::*;

const NODES: &str =
    "NodeName=n1 CPUs=8 RealMemory=8000 Gres=gpu:2\nNodeName=n2 CPUs=8 RealMemory=8000 Gres=gpu:2\n";
/// As setup leaves a slurm.conf, so far as a node looks at it.
const SERVED: &str =
    "SlurmctldHost=c1\nSlurmctldHost=c2\nGresTypes=gpu,shard\nNodeName=n1 Gres=gpu:g0:1,shard:g0:100\n";

impl Site {
    /// The same with the nodes in a file of their own, which slurm.conf includes before its end.
    fn with_includes() -> Self {
        let site = Self::new();
        let own: Vec<&str> = CONF.lines().filter(|line| !line.starts_with("NodeName")).collect();
        site.writes("slurm.conf", &format!("include nodes.conf\n{}\n", own.join("\n")));
        site.writes("nodes.conf", NODES);
        site
    }

    /// A node of the pool, which has Slurm's files where `folder` says.
    fn node(folder: &str, is_configless: bool) -> Self {
        let mut site = Self::new();
        site.host.slurm = site.host.at(folder);
        site.host.is_configless = is_configless;
        site.host.name = "n1".to_owned();
        std::fs::create_dir_all(&site.host.slurm).unwrap();
        site.writes("slurm.conf", SERVED);
        site
    }

    fn all_files(&self) -> Files {
        let mut files = self.files();
        if let Ok(text) = std::fs::read_to_string(self.host.slurm.join("nodes.conf")) {
            files.0.insert("nodes.conf".to_owned(), text);
        }
        files
    }

    fn controller_steps(&self) -> Vec<Step> {
        let wanted = Wanted { pool: Some(pool()), ..Wanted::default() };
        self.steps_of(&plan(&self.host, Role::Controller, &self.all_files(), &wanted, &On::default()))
    }

    fn node_plan(&self) -> Plan {
        let wanted = Wanted { backend: Some("nvidia".to_owned()), ..Wanted::default() };
        plan(&self.host, Role::Node, &self.files(), &wanted, &self.on(Role::Node))
    }

    fn steps_of(&self, plan: &Plan) -> Vec<Step> {
        do_steps(plan, &Record::load(&self.folder()).unwrap(), &self.folder()).unwrap()
    }
}

fn pool() -> Pool {
    Pool {
        nodes: "n1".to_owned(),
        names: ["n1".to_owned()].into(),
        partition: "shared".to_owned(),
        devices: Vec::new(),
    }
}

fn contents(site: &Site) -> Vec<(u32, Vec<u8>)> {
    site.picture().into_values().collect()
}

#[tokio::test]
async fn what_slurm_conf_includes_is_changed_where_it_stands_before_it_and_comes_back() {
    let whole = Site::with_includes();
    let (before, steps) = (contents(&whole), whole.controller_steps());
    let is_conf = |name: &String| std::path::Path::new(name).extension().is_some_and(|end| end == "conf");
    let files: Vec<String> = names(&steps, &whole.folder()).into_iter().filter(is_conf).collect();
    assert_eq!(files, ["plugstack.conf", "gres.conf", "nodes.conf", "slurm.conf"]);
    whole.does(&steps).await;
    let after = contents(&whole);
    let nodes = std::fs::read_to_string(whole.host.slurm.join("nodes.conf")).unwrap();
    assert!(
        nodes.contains("NodeName=n1 CPUs=8 RealMemory=8000 Gres=gpu:g0:1,gpu:g1:1,shard:g0:100"),
        "{nodes}"
    );
    assert!(
        nodes.ends_with("NodeName=n2 CPUs=8 RealMemory=8000 Gres=gpu:2\n"),
        "no line of n2 changed: {nodes}"
    );
    let conf = std::fs::read_to_string(whole.host.slurm.join("slurm.conf")).unwrap();
    assert!(conf.starts_with("include nodes.conf\n") && !conf.contains("NodeName="), "{conf}");
    for cut in 0..=steps.len() {
        let site = Site::with_includes();
        site.does(&site.controller_steps()[..cut]).await;
        site.does(&site.controller_steps()).await;
        assert_eq!(contents(&site), after, "cut off after {cut} steps");
        site.does(&site.undo().unwrap()).await;
        assert_eq!(contents(&site), before, "and undone");
    }
}

#[test]
fn an_included_file_that_is_kept_elsewhere_keeps_all_of_slurms_files_as_they_are() {
    let site = Site::with_includes();
    site.writes("nodes.conf", &format!("# Ansible managed\n{NODES}"));
    let wanted = Wanted { pool: Some(pool()), ..Wanted::default() };
    let plan = plan(&site.host, Role::Controller, &site.all_files(), &wanted, &On::default());
    let left: Vec<&str> = plan.left.iter().map(|(_, why)| why.as_str()).collect();
    assert!(left[0].contains("nodes.conf says of itself 'Ansible managed'"), "{left:?}");
    assert!(left.iter().any(|why| why.contains("/slurm.conf is left with")), "{left:?}");
    let changed: Vec<_> = plan.files.iter().filter_map(|change| change.path.file_name()).collect();
    assert_eq!(changed, ["pillion.toml", "plugstack.conf"]);
}

#[tokio::test]
async fn a_node_comes_back_from_each_step() {
    let whole = Site::node("/etc/slurm", false);
    let (before, steps) = (contents(&whole), whole.steps_of(&whole.node_plan()));
    assert_eq!(
        names(&steps, &whole.folder()),
        ["kept", "pillion.toml", "plugstack.conf", "pillion-agent.service true"]
    );
    whole.does(&steps).await;
    let toml = std::fs::read_to_string(whole.host.at("/etc/pillion/pillion.toml")).unwrap();
    assert!(
        toml.contains("\nendpoint = \"https://c1:6820,https://c2:6820\"")
            && toml.contains("\nbackend = \"nvidia\""),
        "{toml}"
    );
    assert!(whole.steps_of(&whole.node_plan()).is_empty(), "a second run changes nothing");
    for cut in 0..=steps.len() {
        let site = Site::node("/etc/slurm", false);
        site.does(&site.steps_of(&site.node_plan())[..cut]).await;
        if let Ok(steps) = site.undo() {
            site.does(&steps).await;
        }
        assert_eq!(contents(&site), before, "undone after {cut} steps");
        site.does(&site.steps_of(&site.node_plan())).await;
        assert_eq!(contents(&site), contents(&whole), "and done again");
    }
}

/// Its Slurm files are slurmctld's, written anew whenever that sends them.
#[tokio::test]
async fn a_configless_node_gets_our_configuration_and_nothing_of_slurms() {
    let site = Site::node("/run/slurm/conf", true);
    let (before, plan) = (contents(&site), site.node_plan());
    assert_eq!(site.host.check(Role::Node, &site.files()).map_err(|error| error.to_string()), Ok(()));
    assert!(plan.left.is_empty(), "{:?}", plan.left);
    let steps = site.steps_of(&plan);
    assert_eq!(names(&steps, &site.folder()), ["kept", "pillion.toml", "pillion-agent.service true"]);
    site.does(&steps).await;
    assert_eq!(std::fs::read_to_string(site.host.slurm.join("slurm.conf")).unwrap(), SERVED);
    assert!(!site.host.slurm.join("plugstack.conf").exists());
    site.does(&site.undo().unwrap()).await;
    assert_eq!(contents(&site), before);
}

/// A folder of plugins, and the lists of dpkg's packages that name folders.
fn has_plugins(site: &Site, folder: &str, lists: &[(&str, &str)]) {
    let made = [(format!("{folder}/select_cons_tres.so"), String::new())];
    let lists =
        lists.iter().map(|(name, text)| (format!("/var/lib/dpkg/info/{name}.list"), (*text).to_owned()));
    for (path, text) in made.into_iter().chain(lists) {
        let path = site.host.at(&path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
}

#[test]
fn plugins_of_slurm_are_watched_where_dpkg_does_not_tell_of_them() {
    const WLM: &str = "/usr/lib/x86_64-linux-gnu/slurm-wlm";
    let other = ("base-files", "/.\n/opt\n/usr/local/lib\n");
    let wlm =
        ("slurm-wlm-basic-plugins", "/.\n/usr/lib/x86_64-linux-gnu\n/usr/lib/x86_64-linux-gnu/slurm-wlm\n");
    let release = ("site-slurm", "/opt/slurm\n/opt/slurm/25.05.3\n/opt/slurm/25.05.3/lib/slurm\n");
    let must = |folders: &[&str], lists: &[(&str, &str)]| {
        let site = Site::new();
        for folder in folders {
            has_plugins(&site, folder, lists);
        }
        if folders.iter().any(|folder| folder.starts_with("/opt/slurm/25.05.3")) {
            std::os::unix::fs::symlink("25.05.3", site.host.at("/opt/slurm/current")).unwrap();
        }
        must_watch_plugins(site.root.path())
    };
    assert!(!must(&[], &[other]), "there is no Slurm");
    assert!(!must(&[WLM], &[other, wlm]), "the distribution's");
    assert!(must(&["/usr/local/lib/slurm"], &[other]), "make install");
    assert!(must(&[WLM, "/opt/slurm/lib/slurm"], &[other, wlm]), "beside the distribution's");
    assert!(must(&["/opt/slurm/25.05.3/lib/slurm"], &[other]), "a folder for each release");
    assert!(!must(&["/opt/slurm/25.05.3/lib/slurm"], &[other, release]), "a package of the site's");
    assert!(
        must(&["/opt/slurm/25.05.3/lib/slurm", "/opt/slurm/25.11.0/lib64/slurm"], &[release]),
        "one is not"
    );
    assert!(must(&["/usr/lib64/slurm"], &[]), "there is no dpkg");
}

#[tokio::test]
async fn the_watch_is_shown_and_begun_on_every_kind_of_host_and_ends_with_an_undo() {
    const WATCH: &str = "pillion-spank-follow.path";
    for role in [Role::Controller, Role::Node, Role::Submit] {
        let mut site = Site::node("/etc/slurm", false);
        let plan = |site: &Site| {
            let wanted = Wanted { backend: Some("nvidia".to_owned()), ..Wanted::default() };
            plan(&site.host, role, &site.files(), &wanted, &site.on(role))
        };
        assert!(plan(&site).units.iter().all(|unit| unit.name != WATCH), "dpkg tells");
        site.host.must_watch_plugins = true;
        let before = contents(&site);
        let steps = site.steps_of(&plan(&site));
        assert_eq!(names(&steps, &site.folder()).last(), Some(&format!("{WATCH} true")), "{role:?}");
        site.does(&steps).await;
        assert!(site.state("active", WATCH).exists() && plan(&site).units.is_empty());
        site.does(&site.undo().unwrap()).await;
        assert_eq!(contents(&site), before, "{role:?}");
        // As with RPM, whose package has begun to watch.
        for word in ["enabled", "active"] {
            std::fs::write(site.state(word, WATCH), "").unwrap();
        }
        let steps = site.steps_of(&plan(&site));
        assert!(!names(&steps, &site.folder()).contains(&format!("{WATCH} true")), "{role:?}");
    }
}
