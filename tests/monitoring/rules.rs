//! The files that Prometheus reads: promtool finds nothing wrong with them, each alert fires when it should and only then, and
//! leads to what is to be done about it.

use crate::{families, names_in};
use pillion_tests::daemons::checkout;
use pillion_tests::monitoring::{folder, program};

/// Where an alert sends whoever it calls; behind it stands the heading.
const RUNBOOK: &str = "https://github.com/pillion/pillion/blob/main/docs/runbook.md#";

/// What stands behind a word at the beginnings of lines.
fn values<'a>(text: &'a str, word: &str) -> Vec<&'a str> {
    text.lines().filter_map(|line| line.trim().strip_prefix(word)).collect()
}

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
    let names = values(&rules, "- alert: ");
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

/// In the order of the rules, each with its severity and all that is asked of it; and none of an alert that is gone.
#[test]
fn each_alert_leads_to_its_heading_in_the_runbook() {
    let rules = std::fs::read_to_string(folder().join("alerts.yml")).unwrap();
    let runbook = std::fs::read_to_string(checkout().join("docs/runbook.md")).unwrap();
    let names = values(&rules, "- alert: ");
    let links: Vec<String> = names.iter().map(|name| RUNBOOK.to_owned() + &name.to_lowercase()).collect();
    assert_eq!(values(&rules, "runbook_url: "), links);
    let sections = runbook.split("\n## ").skip(1).map(|section| section.split_once('\n').unwrap());
    let (headings, bodies): (Vec<&str>, Vec<&str>) = sections.unzip();
    assert_eq!(headings, names);
    let severities = values(&rules, "labels: { severity: ");
    for ((heading, body), severity) in headings.iter().zip(bodies).zip(severities) {
        let severity = severity.trim_end_matches(" }");
        for asked in [format!("*{severity}* · ").as_str(), "**Who notices.**", "**Look.**", "**Do.**"] {
            assert!(body.contains(asked), "{heading} lacks {asked}");
        }
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
