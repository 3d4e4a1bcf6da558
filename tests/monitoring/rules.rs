//! The files that Prometheus reads: promtool finds nothing wrong with them, and each alert fires when it should and only then.

use crate::{families, names_in};
use pillion_tests::daemons::checkout;
use pillion_tests::monitoring::{folder, program};

#[test]
fn promtool_finds_the_example_and_its_rules_right() {
    let said = program("promtool").args(["check", "config"]).arg(folder().join("prometheus.yml")).stdout();
    let said = said.unwrap();
    assert!(said.contains("SUCCESS") && !said.contains("WARNING"), "{said}");
}

#[test]
fn alerts_fire_when_they_should_and_only_then() {
    let tests = checkout().join("tests/monitoring/alerts_test.yml");
    let said = program("promtool").args(["test", "rules"]).arg(&tests).stdout().unwrap();
    assert!(said.contains("SUCCESS"), "{said}");
    let (rules, tested) =
        [folder().join("alerts.yml"), tests].map(|path| std::fs::read_to_string(path).unwrap()).into();
    let names: Vec<&str> = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(names.len() > 10);
    for name in names {
        let firing = format!("ALERTS{{alertname=\"{name}\",alertstate=\"firing\",severity=");
        assert!(tested.contains(&firing), "no test sees {name} fire");
    }
}

#[test]
fn alerts_speak_of_metrics_that_are_told() {
    let families = families();
    let text = std::fs::read_to_string(folder().join("alerts.yml")).unwrap();
    for name in text.lines().filter(|line| !line.starts_with('#')).flat_map(names_in) {
        assert!(families.contains_key(name.as_str()), "nobody tells {name}");
    }
}

/// The pages of the daemons' own tests, on which everything is.
#[test]
fn promtool_finds_the_pages_right() {
    for page in crate::prometheus::pages() {
        let said = program("promtool").args(["check", "metrics"]).input(page.plain).output().unwrap();
        let text =
            String::from_utf8_lossy(&said.stderr).into_owned() + &String::from_utf8_lossy(&said.stdout);
        assert!(said.status.success() && text.trim().is_empty(), "{}: {text}", page.name);
    }
}
