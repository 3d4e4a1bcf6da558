//! Dashboards can be imported as they are, and each panel says what it shows.

use crate::{families, names_in};
use pillion_tests::monitoring::dashboards;
use serde_json::Value;
use std::collections::BTreeSet;

/// Kinds of panels that Grafana has by itself.
const KINDS: [&str; 5] = ["row", "stat", "timeseries", "bargauge", "table"];
/// The schema of Grafana 13.
const SCHEMA_VERSION: u64 = 42;

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

#[test]
fn there_are_three_each_with_its_own_name() {
    let all = dashboards().unwrap();
    let of = |name: &str| all.iter().map(|board| text(&board.json, name).to_owned()).collect::<BTreeSet<_>>();
    assert_eq!(
        of("uid"),
        ["pillion-devices", "pillion-health", "pillion-overview"].map(str::to_owned).into()
    );
    assert_eq!(of("title").len(), 3);
    for board in &all {
        assert_eq!(board.json["schemaVersion"], SCHEMA_VERSION, "{}", board.file);
        assert!(board.json["id"].is_null() && board.json["__inputs"].is_null(), "{} is bound", board.file);
        assert!(text(&board.json, "description").ends_with('.'), "{}", board.file);
        let variables = board.json["templating"]["list"].as_array().unwrap();
        let is_source = |it: &Value| it["name"] == "datasource" && it["type"] == "datasource";
        assert!(is_source(&variables[0]) && text(&variables[0], "query") == "prometheus", "{}", board.file);
    }
}

#[test]
fn every_panel_says_what_it_shows_and_in_which_unit() {
    for board in dashboards().unwrap() {
        for panel in board.panels() {
            let place = format!("{}, {}", board.file, text(panel, "title"));
            assert!(KINDS.contains(&text(panel, "type")), "{place}: a plugin");
            assert!(!text(panel, "title").is_empty(), "{place}: no title");
            let description = text(panel, "description");
            assert!(description.len() > 10 && description.ends_with('.'), "{place}: no description");
            assert!(!text(&panel["fieldConfig"]["defaults"], "unit").is_empty(), "{place}: no unit");
            let targets = panel["targets"].as_array().unwrap();
            assert!(!targets.is_empty(), "{place}: asks nothing");
            for of in std::iter::once(panel).chain(targets) {
                assert_eq!(of["datasource"]["uid"], "${datasource}", "{place}: a data source of its own");
            }
        }
    }
}

#[test]
fn panels_stand_beside_each_other_and_not_on_each_other() {
    for board in dashboards().unwrap() {
        let panels = board.json["panels"].as_array().unwrap();
        let mut taken = BTreeSet::new();
        let ids: BTreeSet<u64> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
        assert_eq!(ids.len(), panels.len(), "{}: ids", board.file);
        for panel in panels {
            let [x, y, w, h] = ["x", "y", "w", "h"].map(|name| panel["gridPos"][name].as_u64().unwrap());
            assert!(x + w <= 24, "{}: {}", board.file, text(panel, "title"));
            for place in (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))) {
                assert!(taken.insert(place), "{}: {} lies on another", board.file, text(panel, "title"));
            }
        }
    }
}

#[test]
fn every_metric_that_is_asked_for_is_told() {
    let families = families();
    let mut asked = BTreeSet::new();
    for query in dashboards().unwrap().iter().flat_map(pillion_tests::monitoring::Dashboard::queries) {
        let names = names_in(&query.expression);
        assert!(!names.is_empty(), "{} asks for no metric", query.place);
        for name in names {
            assert!(families.contains_key(name.as_str()), "{}: nobody tells {name}", query.place);
            asked.insert(name);
        }
    }
    assert!(asked.len() > families.len() / 2, "most of what is told is shown: {} of it", asked.len());
}
