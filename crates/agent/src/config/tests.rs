//! What a configuration may say, and what the example says.

use super::*;

fn refused(text: &str) -> String {
    Config::parse(text, "n1").expect_err("must be refused").to_string()
}

const EXAMPLE: &str = include_str!("../../../../deploy/agent.toml.example");

/// The example with every setting that is commented out in it taken in.
fn whole_example() -> String {
    let is_setting = |line: &str| {
        let name = line.split_once(" = ").map_or("", |(name, _)| name);
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
    };
    let taken_in = |line: &str| line.strip_prefix('#').filter(|rest| is_setting(rest)).map(str::to_owned);
    EXAMPLE.lines().map(|line| taken_in(line).unwrap_or_else(|| line.to_owned()) + "\n").collect()
}

#[test]
fn the_example_holds_the_defaults() {
    let mut expected = Config { node_name: Some("n1".into()), ..Config::default() };
    expected.scheduler.endpoint = "http://controller:6820".to_owned();
    assert_eq!(Config::parse(EXAMPLE, "n1").unwrap(), expected);
}

#[test]
fn the_example_names_every_setting() {
    Config::parse(&whole_example(), "n1").unwrap();
    let example: toml::Table = whole_example().parse().unwrap();
    for section in ["", "scheduler", "simulated", "nvidia", "intel", "exporter", "devices", "mps"] {
        let header = if section.is_empty() { String::new() } else { format!("[{section}]\n") };
        let message = refused(&format!("{header}no_such_setting = 1\n"));
        // serde lists what it knows: "unknown field `x`, expected one of `a`, `b`".
        let (_, known) = message.split_once("expected").expect("a list of settings");
        let known = known.split_once(" for key").map_or(known, |(known, _)| known);
        let known: Vec<&str> = known.split('`').skip(1).step_by(2).collect();
        assert!(!known.is_empty(), "{message}");
        let table = if section.is_empty() { &example } else { example[section].as_table().unwrap() };
        for name in known {
            assert!(table.contains_key(name), "deploy/agent.toml.example lacks {section}.{name}");
        }
    }
}

#[test]
fn nothing_given_is_a_configuration() {
    let config = Config::parse("", "n1").unwrap();
    assert_eq!(config.node(), NodeName::new("n1"));
    assert_eq!(config, Config { node_name: Some("n1".into()), ..Config::default() });
}

#[test]
fn paths_carry_the_nodes_name() {
    let text = "node_name = 'n7'\nhandoff_socket = '/run/%n/a.sock'\n[simulated]\nsocket = '/x/%n.sock'\n\
                [nvidia]\nlibrary = '/x/%n.so'\n[devices]\ngres_types = ['gpu0', 'gpu1']";
    let config = Config::parse(text, "n1").unwrap();
    assert_eq!(config.handoff_socket, PathBuf::from("/run/n7/a.sock"));
    assert_eq!(config.simulated.socket, PathBuf::from("/x/n7.sock"));
    assert_eq!(config.nvidia.library, Some(PathBuf::from("/x/n7.so")));
    assert_eq!(config.gres_type(1), Some(GresType::new("gpu1")));
    assert_eq!(config.gres_type(2), None);
}

#[test]
fn what_is_wrong_is_said_with_what_is_allowed() {
    assert!(refused("colour = 1").contains("unknown field `colour`"));
    let policy = |text: &str| Config::parse(text, "n1").unwrap().mps.policy().static_partitions;
    assert!(!policy("") && policy("[mps]\nstatic_partitions = true"), "off unless the site asks");
    assert!(refused("[mps]\nmulti_users = true").contains("unknown field `multi_users`"));
    let backend = refused("backend = 'nvml'");
    assert!(
        backend.contains("'nvml' is not a backend; allowed are simulated, nvidia and intel"),
        "{backend}"
    );
    for (text, sentence) in [
        ("sample_period_seconds = 0.0", "sample_period_seconds is 0; allowed is 0.1 to 60"),
        ("sample_period_seconds = nan", "sample_period_seconds is NaN; allowed is 0.1 to 60"),
        ("journal_bytes_max = 5", "journal_bytes_max is 5; allowed is 1048576"),
        ("state_directory = 'var'", "state_directory is 'var'; allowed is an absolute path"),
        (
            "[nvidia]\nlibrary = 'libnvidia-ml.so.1'",
            "nvidia.library is 'libnvidia-ml.so.1'; allowed is an absolute",
        ),
        ("[scheduler]\nendpoint = 'localhost'", "allowed is http://HOST:PORT"),
        ("node_name = 'a b'", "node_name is a b; allowed is letters"),
        ("[intel]\nmetric_burst_seconds = -1.0", "metric_burst_seconds is -1; allowed is 0 to 3600"),
        (
            "[intel]\nmetric_burst_seconds = 90.0",
            "metric_period_seconds is 60; allowed is 1 to 86400, and no",
        ),
        ("[intel]\nlibrary = 'libze.so'", "intel.library is 'libze.so'; allowed is an absolute path"),
        ("[intel]\ncache_bytes_per_second_max = 0.0", "cache_bytes_per_second_max is 0; allowed is more"),
        ("[mps]\ncontrol_binary = 'mps'", "mps.control_binary is 'mps'; allowed is an absolute path"),
        (
            "[exporter]\nurl = 'localhost:9400'",
            "exporter.url is 'localhost:9400'; allowed is http://HOST:PORT/PATH",
        ),
        ("[exporter]\nkeep_seconds = 0.5", "exporter.keep_seconds is 0.5; allowed is 1 to 3600"),
        ("[devices]\ngres_types = ['']", "devices.gres_types is ''; allowed is a list"),
    ] {
        assert!(refused(text).contains(sentence), "{}", refused(text));
    }
    let long = format!("handoff_socket = '/{}'", "x".repeat(107));
    assert!(refused(&long).contains("at most 107 bytes"));
}

#[test]
fn metric_bursts_are_off_unless_they_are_asked_for() {
    let settings = |text: &str| Config::parse(text, "n1").unwrap().intel.settings();
    let plain = settings("backend = 'intel'");
    assert_eq!(plain, pillion_device::intel::Settings::default());
    let bursts = settings("[intel]\nlibrary = '/opt/ze.so'\nmetric_burst_seconds = 2.5").bursts.unwrap();
    assert_eq!((bursts.burst.as_secs_f64(), bursts.period.as_secs_f64()), (2.5, 60.0));
    assert_eq!(settings("[intel]\nlibrary = '/opt/ze.so'").library.as_deref(), Some("/opt/ze.so"));
}

#[test]
fn a_missing_file_is_named() {
    let error = Config::load(Path::new("/nowhere/agent.toml"), "n1").expect_err("no such file");
    assert!(error.to_string().starts_with("/nowhere/agent.toml: No such file"));
}
