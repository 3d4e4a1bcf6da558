//! Hosts of other kinds than the plain controller: one whose slurm.conf includes others, a node, and a node without Slurm files of
//! its own.

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
        let that_are = |word: &str| {
            let units = Role::Node.units().iter().map(|unit| (*unit).to_owned());
            units.filter(|unit| self.state(word, unit).exists()).collect::<Vec<String>>()
        };
        let on = On { enabled: that_are("enabled"), active: that_are("active") };
        plan(&self.host, Role::Node, &self.files(), &wanted, &on)
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
