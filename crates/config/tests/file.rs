//! What the file may say, how mistakes are told, and that the committed example is the one that the structs make.

use pillion_config::{
    Agent, AgentMode, BackendKind, Mistake, Origin, Part, Scheduler, example, mistakes, parse_agent,
    parse_scheduler, parts, show,
};
use std::path::{Path, PathBuf};

const EXAMPLE_PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/pillion.toml.example");

fn lines(found: &[Mistake]) -> Vec<String> {
    found.iter().map(ToString::to_string).collect()
}

/// With `PILLION_BLESS=1` the file is written anew.
#[test]
fn the_committed_example_is_what_the_structs_say() {
    if std::env::var_os("PILLION_BLESS").is_some() {
        std::fs::write(EXAMPLE_PATH, example()).unwrap();
    }
    let committed = std::fs::read_to_string(EXAMPLE_PATH).unwrap();
    assert!(
        committed == example(),
        "deploy/pillion.toml.example is old; PILLION_BLESS=1 cargo test -p pillion-config writes it anew"
    );
}

#[test]
fn the_example_holds_the_defaults() {
    let mut scheduler = Scheduler::default();
    scheduler.pool.partitions = vec!["shared".to_owned()];
    assert_eq!(parse_scheduler(&example()), Ok(scheduler));
    let mut agent = Agent { node_name: Some("n1".to_owned()), ..Agent::default() };
    agent.scheduler.endpoint = "https://controller:6820".to_owned();
    assert_eq!(parse_agent(&example(), "n1"), Ok(agent));
}

/// The example with every setting that is commented out in it taken in.
fn whole_example() -> String {
    let is_setting = |line: &str| {
        let name = line.split_once(" = ").map_or("", |(name, _)| name);
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        line.starts_with("[[") || (!name.is_empty() && name.bytes().all(is_name))
    };
    let taken_in = |line: &str| line.strip_prefix('#').filter(|rest| is_setting(rest)).map(str::to_owned);
    example().lines().map(|line| taken_in(line).unwrap_or_else(|| line.to_owned()) + "\n").collect()
}

#[test]
fn every_key_can_be_written_as_the_example_has_it() {
    let text = whole_example();
    assert!(parse_scheduler(&text).is_ok() && parse_agent(&text, "n1").is_ok());
    for part in [Part::Scheduler, Part::Agent] {
        for setting in show(part, &text, "n1").unwrap() {
            assert!(matches!(setting.origin, Origin::File(_)), "the example lacks {}", setting.key);
        }
    }
}

#[test]
fn every_mistake_is_reported_with_its_line_and_what_is_allowed() {
    let text = "mode = \"on\"\nboundseconds = 5\nbound_seconds = 5\n[pool]\npartitions = [\"a\"]\n\
                [policy]\nusers = \"all\"\nslowdown_ratio_max = nan\ntimeout_seconds = 3\ncolour = 1\n\
                [slurm]\ntimeout_seconds = \"3\"\nconf = \"slurm.conf\"\n[listen]\ntcp = \"6820\"\noperator_uids = [-1]\n";
    assert_eq!(
        lines(&mistakes(Part::Scheduler, text, "n1")),
        [
            "line 1: mode = \"on\" is not allowed; write \"off\", \"shadow\" or \"active\"",
            "line 2: there is no setting boundseconds; did you mean bound_seconds?",
            "line 3: bound_seconds = 5 is not allowed; write 10 to 3600",
            "line 7: policy.users = \"all\" is not allowed; write \"same-user\", \"same-account\" or \"any\"",
            "line 8: policy.slowdown_ratio_max = nan is not allowed; write 1 to 10",
            "line 9: there is no setting policy.timeout_seconds; did you mean slurm.timeout_seconds?",
            "line 10: there is no setting policy.colour; allowed in [policy] are alone_devices_max, broken_budget_fraction, caps, credit_runs, ends_by, first_run_seconds_min, first_runs, gain_min, guests, isolation, \
             memory_margin_fraction, objective, oom_requeue, override, pair_when_idle, session_idle_seconds, shards_by, share_instances, share_wide, slowdown_ratio_max, solo_runs_min, solo_seconds_min, tenants_max, trials, users, watch, watch_believes, \
             watch_first_seconds, watch_partitions, watch_restart_seconds, watch_steady_seconds",
            "line 12: slurm.timeout_seconds = \"3\" is not allowed; write 1 to 60",
            "line 13: slurm.conf = \"slurm.conf\" is not allowed; write an absolute path",
            "line 15: listen.tcp = \"6820\" is not allowed; write an address and a port such as \"127.0.0.1:6820\"",
            "line 16: listen.operator_uids = [-1] is not allowed; write a list of whole numbers, [1000, 1001]",
        ]
    );
}

#[test]
fn shadow_needs_something_to_observe() {
    let text = "mode = \"shadow\"\n[pool]\npartitions = [\"a\"]\n";
    assert_eq!(
        lines(&mistakes(Part::Scheduler, text, "n1")),
        [
            "line 1: mode = \"shadow\" decides on observed partitions; name them (observe.partitions), or write mode = \"off\""
        ]
    );
    let text = "[observe]\nshadow = true\n[pool]\npartitions = [\"shared\"]\n";
    assert_eq!(
        lines(&mistakes(Part::Scheduler, text, "n1")),
        [
            "line 2: observe.shadow = true decides on observed partitions; name them (observe.partitions), or remove it"
        ]
    );
    let text = "mode = \"shadow\"\n[observe]\npartitions = [\"gpu\"]\n";
    assert_eq!(lines(&mistakes(Part::Scheduler, text, "n1")), [] as [&str; 0]);
}

#[test]
fn a_default_is_for_partitions_of_the_pool() {
    let text = "[pool]\npartitions = [\"a\"]\ncolocate_partitions = { b = \"on\" }\n";
    assert_eq!(
        lines(&mistakes(Part::Scheduler, text, "n1")),
        [
            "line 3: pool.colocate_partitions = a table with \"b\", which is no partition of the pool (pool.partitions); remove it"
        ]
    );
    let on = |text: &str| {
        let pool = pillion_config::parse_scheduler(&format!("[pool]\npartitions = [\"a\", \"b\"]\n{text}"))
            .unwrap()
            .pool;
        pool.shared_by_default().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(on(""), [""; 0]);
    assert_eq!(on("colocate = \"on\"\n"), ["a", "b"]);
    assert_eq!(on("colocate = \"on\"\ncolocate_partitions = { a = \"asked\" }\n"), ["b"]);
    assert_eq!(on("colocate_partitions = { b = \"on\" }\n"), ["b"]);
}

#[test]
fn the_web_page_is_for_this_machine_unless_the_site_says_otherwise() {
    let text = |allow: &str| {
        format!("[pool]\npartitions = [\"a\"]\n[web]\nlisten_address = \"10.0.0.1:6821\"\n{allow}")
    };
    assert_eq!(
        lines(&mistakes(Part::Scheduler, &text(""), "n1")),
        [
            "line 4: web.listen_address = \"10.0.0.1:6821\" can be reached from other machines; write an address such as \
          \"127.0.0.1:6821\", or web.allow_remote = true"
        ]
    );
    assert!(parse_scheduler(&text("allow_remote = true\n")).is_ok());
    assert!(parse_scheduler(&text("").replace("10.0.0.1", "127.0.0.1")).is_ok());
    assert_eq!(Scheduler::default().web.listen_address, None);
}

#[test]
fn the_agents_mistakes_are_reported_as_well() {
    let cases = [
        (
            "[agent]\ncolour = 1",
            "line 2: there is no setting agent.colour; allowed in [agent] are auth, backend",
        ),
        (
            "[agent.mps]\nmulti_users = true",
            "line 2: there is no setting agent.mps.multi_users; did you mean agent.mps.multi_user?",
        ),
        (
            "[agent]\nbackend = \"nvml\"",
            "agent.backend = \"nvml\" is not allowed; write \"simulated\", \"nvidia\" or \"intel\"",
        ),
        (
            "[agent]\nsample_period_seconds = 0",
            "agent.sample_period_seconds = 0 is not allowed; write 0.1 to 60",
        ),
        ("[agent]\njournal_bytes_max = 5", "write 1048576 to 1099511627776"),
        (
            "[agent]\nstate_directory = 'var'",
            "agent.state_directory = 'var' is not allowed; write an absolute path",
        ),
        (
            "[agent.nvidia]\nlibrary = 'libnvidia-ml.so.1'",
            "agent.nvidia.library = 'libnvidia-ml.so.1' is not allowed; write an absolute",
        ),
        ("[agent.scheduler]\nendpoint = 'localhost'", "write https://HOST:PORT"),
        (
            "[agent.metrics]\nlisten_address = 'localhost:9821'",
            "agent.metrics.listen_address = 'localhost:9821' is not allowed; write an address and a port",
        ),
        ("[agent.exporter]\nurl = 'localhost:9400'", "write http://HOST:PORT/PATH"),
        ("[agent]\nnode_name = 'a b'", "agent.node_name = 'a b' is not allowed; write letters"),
        (
            "[agent.intel]\nmetric_burst_seconds = -1.0",
            "metric_burst_seconds = -1.0 is not allowed; write 0 to 3600",
        ),
        (
            "[agent.intel]\nmetric_burst_seconds = 90",
            "line 1: agent.intel.metric_period_seconds = 60 is less than intel.metric_burst_seconds; write 90 or more",
        ),
        (
            "[agent.intel]\ncache_bytes_per_second_max = 0.0",
            "cache_bytes_per_second_max = 0.0 is not allowed; write a number greater than 0",
        ),
        (
            "[agent.devices]\ngres_types = ['']",
            "agent.devices.gres_types = [''] is not allowed; write a list of names",
        ),
        ("agent = 3", "line 1: agent is a section; write [agent]"),
        ("[agent]\nmps = 3", "line 2: agent.mps is a section; write [agent.mps]"),
        ("[agent", "line 1: this is no TOML: "),
        ("[agent]\nnode_name = \"a\"\nnode_name = \"b\"", "line 3: this is no TOML: duplicate key"),
    ];
    for (text, expected) in cases {
        let found = lines(&mistakes(Part::Agent, text, "n1"));
        assert!(found.len() == 1 && found[0].contains(expected), "{text:?} gave {found:?}");
    }
    let long = format!("[agent]\nhandoff_socket = '/%n{}'", "x".repeat(104));
    assert_eq!(mistakes(Part::Agent, &long, "n1"), []);
    assert!(lines(&mistakes(Part::Agent, &long, "node1"))[0].contains("at most 107 bytes"));
    assert!(
        lines(&mistakes(Part::Agent, "", "host name"))[0].contains("from the host's name, is not allowed")
    );
}

#[test]
fn an_agent_that_observes_may_ask_for_nothing_that_changes_a_device() {
    let cases = [
        (
            "[agent]\nmode = 'watch'",
            "line 2: agent.mode = 'watch' is not allowed; write \"share\" or \"observe\"",
        ),
        (
            "[agent]\nmode = 'observe'\n[agent.mig]\nenabled = true",
            "line 4: agent.mig.enabled = true cuts devices, and mode = \"observe\" changes none; remove it",
        ),
        (
            "[agent]\nmode = 'observe'\n[agent.intel]\nmetric_burst_seconds = 2",
            "line 4: agent.intel.metric_burst_seconds = 2 would keep users' profilers out",
        ),
        (
            "[agent]\nmode = 'observe'\n[agent.devices]\ngres_types = ['a100']",
            "line 4: agent.devices.gres_types = a list of names is for the pool's types",
        ),
    ];
    for (text, expected) in cases {
        let found = lines(&mistakes(Part::Agent, text, "n1"));
        assert!(found.len() == 1 && found[0].contains(expected), "{text:?} gave {found:?}");
    }
    assert_eq!(parse_agent("[agent]\nmode = 'observe'", "n1").unwrap().mode, AgentMode::Observe);
}

#[test]
fn each_program_answers_for_its_own_part_only() {
    let text = "[pool]\npartitions = [\"a\"]\n[agent]\ncolour = 1\n";
    assert!(parse_scheduler(text).is_ok());
    assert!(parse_agent("colour = 1\n[pool]\n", "n1").is_ok());
    assert_eq!(parts(text), Ok(vec![Part::Scheduler, Part::Agent]));
    assert_eq!(parts("[agent]"), Ok(vec![Part::Agent]));
    assert_eq!(parts("backend = \"intel\""), Ok(vec![Part::Agent]));
    assert_eq!(parts("mode = \"off\""), Ok(vec![Part::Scheduler]));
    assert_eq!(parts(""), Ok(vec![Part::Scheduler]));
}

#[test]
fn the_pool_has_to_be_named() {
    assert_eq!(
        lines(&mistakes(Part::Scheduler, "mode = \"off\"\n[pool]\n", "n1")),
        [
            "line 2: pool.partitions is missing; write the pool's partitions into [pool], partitions = [\"shared\"]"
        ]
    );
    assert_eq!(
        lines(&mistakes(Part::Scheduler, "pool.partitions = []", "n1")),
        ["line 1: pool.partitions = [] is not allowed; write a list, not empty, of texts, [\"a\", \"b\"]"]
    );
}

#[test]
fn what_is_observed_is_no_pool_and_needs_none() {
    let alone = parse_scheduler("[observe]\npartitions = [\"gpu\"]\n").unwrap();
    assert_eq!((alone.pool.partitions.len(), &alone.observe.partitions[..]), (0, &["gpu".to_owned()][..]));
    let both = "[pool]\npartitions = [\"a\", \"b\"]\n[observe]\npartitions = [\"c\", \"b\"]\n";
    assert_eq!(
        lines(&mistakes(Part::Scheduler, both, "n1")),
        [
            "line 4: observe.partitions = a list with \"b\", which is a pool (pool.partitions); name ordinary partitions only"
        ]
    );
    assert_eq!(
        lines(&mistakes(Part::Scheduler, "mode = \"active\"\n[observe]\npartitions = [\"gpu\"]\n", "n1")),
        [
            "line 1: mode = \"active\" needs a pool; write mode = \"off\", or name the pool's partitions (pool.partitions)"
        ]
    );
}

#[test]
fn a_file_of_earlier_releases_is_still_the_agents() {
    let text = "node_name = 'n7'\nhandoff_socket = '/run/%n/a.sock'\nbackend = 'nvidia'\n[simulated]\nsocket = '/x/%n.sock'\n\
                [nvidia]\nlibrary = '/x/%n.so'\n[devices]\ngres_types = ['gpu0', 'gpu1']\n[scheduler]\nendpoint = 'http://c:1'\n";
    let old = parse_agent(text, "n1").unwrap();
    let new = parse_agent(&format!("[agent]\n{}", text.replace("\n[", "\n[agent.")), "n1").unwrap();
    assert_eq!(old, new);
    assert_eq!(old.handoff_socket, PathBuf::from("/run/n7/a.sock"));
    assert_eq!(old.nvidia.library.as_deref(), Some(Path::new("/x/n7.so")));
    assert_eq!(
        (old.gres_type(1).map(|it| it.to_string()), old.gres_type(2)),
        (Some("gpu1".to_owned()), None)
    );
    assert_eq!(old.backend, BackendKind::Nvidia);
    let found = lines(&mistakes(Part::Agent, "colour = 1", "n1"));
    assert!(found[0].starts_with("line 1: there is no setting colour; allowed at the top are"), "{found:?}");
}

#[test]
fn what_is_in_force_is_shown_with_where_it_comes_from() {
    let text = "mode = \"active\"\n[pool]\npartitions = [\"a\"]\n[agent]\nbackend = \"intel\"\n";
    let of = |part, key: &str| {
        let settings = show(part, text, "n1").unwrap();
        let setting = settings.iter().find(|setting| setting.key == key).unwrap().clone();
        (setting.value, setting.origin)
    };
    assert_eq!(of(Part::Scheduler, "mode"), ("\"active\"".to_owned(), Origin::File(1)));
    assert_eq!(of(Part::Scheduler, "pool.partitions"), ("[\"a\"]".to_owned(), Origin::File(3)));
    assert_eq!(of(Part::Scheduler, "bound_seconds"), ("600".to_owned(), Origin::Default));
    assert_eq!(of(Part::Scheduler, "database.url"), (String::new(), Origin::Default));
    assert_eq!(of(Part::Agent, "agent.backend"), ("\"intel\"".to_owned(), Origin::File(5)));
    assert_eq!(of(Part::Agent, "agent.node_name"), ("\"n1\"".to_owned(), Origin::Default));
}

#[test]
fn who_proves_nothing_is_taken_on_one_machine_only() {
    let scheduler = |tcp: &str, method: &str| {
        let text =
            format!("[pool]\npartitions = ['a']\n[listen]\ntcp = '{tcp}'\n[auth]\nmethod = '{method}'\n");
        lines(&mistakes(Part::Scheduler, &text, "n1"))
    };
    assert_eq!(
        scheduler("10.0.0.1:6820", "none"),
        [
            "line 6: auth.method = \"none\" believes whoever comes, and 10.0.0.1 is not this machine alone; write \"munge\", \"key\" \
          or \"mtls\""
        ]
    );
    for (tcp, method) in [("127.0.0.1:6820", "none"), ("[::1]:6820", "none"), ("0.0.0.0:6820", "munge")] {
        assert_eq!(scheduler(tcp, method), Vec::<String>::new());
    }
    assert!(scheduler("0.0.0.0:1", "none")[0].contains("0.0.0.0 is not this machine alone"));
    let agent = |endpoint: &str, method: &str| {
        let text = format!("[agent.scheduler]\nendpoint = '{endpoint}'\n[agent.auth]\nmethod = '{method}'\n");
        lines(&mistakes(Part::Agent, &text, "n1"))
    };
    let wrong = agent("https://localhost:1,https://controller:1", "none");
    assert!(
        wrong[0].starts_with("line 4: agent.auth.method = \"none\"") && wrong[0].contains("controller"),
        "{wrong:?}"
    );
    assert_eq!(agent("https://localhost:1,https://[::1]:2", "none"), Vec::<String>::new());
    assert_eq!(
        agent("https://controller", "munge"),
        [
            "line 2: agent.scheduler.endpoint = 'https://controller' is not allowed; write https://HOST:PORT, several with commas \
          between them"
        ]
    );
    let wrong = agent("https://controller:1", "mtls");
    assert_eq!(
        wrong,
        ["line 4: agent.auth.method = \"mtls\" needs a file that is not named; write auth.ca_path"]
    );
}

#[test]
fn what_earlier_releases_believed_is_refused_with_what_takes_its_place() {
    let text = "[pool]\npartitions = ['a']\n[listen]\ntcp_is_operator = false\n";
    let found = lines(&mistakes(Part::Scheduler, text, "n1"));
    assert!(found[0].starts_with("line 4: there is no setting listen.tcp_is_operator any more"), "{found:?}");
    assert!(found[0].contains("listen.operator_uids"), "{found:?}");
    let text = "[pool]\npartitions = ['a']\n[database]\nurl = 'postgres://p:secret@db/x?sslmode=require'\n";
    let found = lines(&mistakes(Part::Scheduler, text, "n1"));
    assert!(found[0].starts_with("line 4: database.url = ") && found[0].contains("verify-full"), "{found:?}");
    assert!(!found[0].contains("secret"), "{found:?}");
}

#[test]
fn several_schedulers_and_what_node_they_are_told_of() {
    let text = "[agent]\nnode_name = 'n7'\n[agent.scheduler]\nendpoint = 'https://a:1, https://b:2'\n\
                [agent.auth]\nprivate_key_path = '/etc/pillion/%n.pem'\n";
    let agent = parse_agent(text, "n1").unwrap();
    assert_eq!(agent.scheduler_addresses(), [("a".to_owned(), 1), ("b".to_owned(), 2)]);
    assert_eq!(agent.auth.private_key_path.as_deref(), Some(Path::new("/etc/pillion/n7.pem")));
}
