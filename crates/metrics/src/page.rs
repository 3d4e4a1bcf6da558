//! One page of values, and its two spellings: OpenMetrics, and the older text format for whoever does not ask for that.
//! Encoded by `prometheus-client`. Pure.

use crate::description::{Description, Kind};
use crate::durations::Durations;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The longest value of a label: names of nodes, models and kinds are shorter.
const LABEL_CHARS_MAX: usize = 64;

#[derive(Debug, Clone)]
enum Value {
    Number(f64),
    Durations(Box<Durations>),
}

/// Values by their labels.
type Series = BTreeMap<Vec<String>, Value>;

/// Families by name, each with its values.
#[derive(Debug, Clone, Default)]
pub struct Page(BTreeMap<&'static str, (&'static Description, Series)>);

impl Page {
    /// With nothing on it.
    pub fn new() -> Self {
        Self::default()
    }

    /// A value; `labels` in the order in which the family names them. The same labels again replace it.
    pub fn set(&mut self, of: &'static Description, labels: &[&str], value: f64) {
        self.put(of, labels, Value::Number(value));
    }

    /// A value that may not be known: what is absent has no line, and is never 0.
    pub fn set_known(&mut self, of: &'static Description, labels: &[&str], value: Option<f64>) {
        if let Some(value) = value.filter(|value| value.is_finite()) {
            self.set(of, labels, value);
        }
    }

    /// A number of things.
    #[expect(clippy::cast_precision_loss, reason = "Prometheus keeps every value as a double")]
    pub fn count(&mut self, of: &'static Description, labels: &[&str], count: u64) {
        self.set(of, labels, count as f64);
    }

    /// Durations, as a histogram.
    pub fn durations(&mut self, of: &'static Description, labels: &[&str], durations: &Durations) {
        self.put(of, labels, Value::Durations(Box::new(durations.clone())));
    }

    fn put(&mut self, of: &'static Description, labels: &[&str], value: Value) {
        debug_assert_eq!(labels.len(), of.labels.len(), "the labels of {}", of.name);
        let labels = labels.iter().map(|label| plain(label)).collect();
        self.0.entry(of.name).or_insert_with(|| (of, Series::new())).1.insert(labels, value);
    }

    /// As OpenMetrics 1.0.
    pub fn open_metrics(&self) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self.clone()));
        let mut text = String::new();
        // Writing into a text cannot fail, and no value here is one that the encoder refuses.
        let _ = text::encode(&mut text, &registry);
        text
    }

    /// As the text format 0.0.4, in which a counter's HELP and TYPE bear the whole name.
    pub fn plain_text(&self) -> String {
        let counters: BTreeSet<&str> =
            self.0.values().filter(|(of, _)| of.kind == Kind::Counter).map(|(of, _)| of.family()).collect();
        self.open_metrics()
            .lines()
            .filter_map(|line| match line.strip_prefix("# ").and_then(|rest| rest.split_once(' ')) {
                Some((word @ ("HELP" | "TYPE"), rest)) => {
                    let (name, rest) = rest.split_once(' ').unwrap_or((rest, ""));
                    let suffix = if counters.contains(name) { "_total" } else { "" };
                    Some(format!("# {word} {name}{suffix} {rest}\n"))
                }
                _ if line == "# EOF" => None,
                _ => Some(format!("{line}\n")),
            })
            .collect()
    }
}

/// A label's value without what would have to be escaped.
fn plain(text: &str) -> String {
    text.chars()
        .take(LABEL_CHARS_MAX)
        .map(|char| if char.is_control() || char == '"' || char == '\\' { '_' } else { char })
        .collect()
}

impl Collector for Page {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for (of, series) in self.0.values() {
            let kind = match of.kind {
                Kind::Counter => MetricType::Counter,
                Kind::Gauge => MetricType::Gauge,
                Kind::Histogram => MetricType::Histogram,
            };
            let help = of.help();
            let mut family = encoder.encode_descriptor(of.family(), &help, None, kind)?;
            for (labels, value) in series {
                let labels: Vec<(&str, &str)> =
                    of.labels.iter().copied().zip(labels.iter().map(String::as_str)).collect();
                if labels.is_empty() {
                    encode(value, of.kind, &mut family)?;
                } else {
                    encode(value, of.kind, &mut family.encode_family(&labels)?)?;
                }
            }
        }
        Ok(())
    }
}

fn encode(value: &Value, kind: Kind, encoder: &mut MetricEncoder<'_>) -> Result<(), fmt::Error> {
    match value {
        Value::Number(number) if kind == Kind::Counter => {
            encoder.encode_counter::<NoLabelSet, _, f64>(number, None)
        }
        Value::Number(number) => encoder.encode_gauge(number),
        Value::Durations(durations) => encoder.encode_histogram::<NoLabelSet>(
            durations.seconds(),
            durations.count(),
            &durations.buckets(),
            None,
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    static CUPS: Description = Description::counter("pillion_cups_total", "cups", &["kind"], "Cups of tea");
    static HEAT: Description = Description::gauge("pillion_pot_celsius", "degrees Celsius", &[], "The pot");
    static BREWING: Description = Description::histogram("pillion_brewing_seconds", &[], "Time to brew");

    fn page() -> Page {
        let mut page = Page::new();
        page.count(&CUPS, &["green"], 3);
        page.set(&CUPS, &["bl\"ac\\k\n"], 1.5);
        page.set_known(&HEAT, &[], Some(90.0));
        let mut brewing = Durations::default();
        brewing.add(Duration::from_millis(3));
        brewing.add(Duration::from_mins(3));
        page.durations(&BREWING, &[], &brewing);
        page
    }

    #[test]
    fn a_page_is_open_metrics() {
        let text = page().open_metrics();
        let expected = "# HELP pillion_brewing_seconds Time to brew (seconds).\n\
             # TYPE pillion_brewing_seconds histogram\n\
             pillion_brewing_seconds_sum 180.003\n\
             pillion_brewing_seconds_count 2\n\
             pillion_brewing_seconds_bucket{le=\"0.001\"} 0\n";
        assert!(text.starts_with(expected), "{text}");
        let expected = "pillion_brewing_seconds_bucket{le=\"10.0\"} 1\n\
             pillion_brewing_seconds_bucket{le=\"+Inf\"} 2\n\
             # HELP pillion_cups Cups of tea (cups).\n\
             # TYPE pillion_cups counter\n\
             pillion_cups_total{kind=\"bl_ac_k_\"} 1.5\n\
             pillion_cups_total{kind=\"green\"} 3.0\n\
             # HELP pillion_pot_celsius The pot (degrees Celsius).\n\
             # TYPE pillion_pot_celsius gauge\n\
             pillion_pot_celsius 90.0\n\
             # EOF\n";
        assert!(text.ends_with(expected), "{text}");
    }

    #[test]
    fn plain_text_names_counters_in_full() {
        let text = page().plain_text();
        let expected = "# HELP pillion_cups_total Cups of tea (cups).\n# TYPE pillion_cups_total counter\n\
             pillion_cups_total{kind=\"bl_ac_k_\"} 1.5\n";
        assert!(text.contains(expected), "{text}");
        assert!(text.ends_with("pillion_pot_celsius 90.0\n"), "{text}");
    }

    #[test]
    fn what_is_not_known_has_no_line() {
        let mut page = Page::new();
        page.set_known(&HEAT, &[], None);
        page.set_known(&HEAT, &[], Some(f64::NAN));
        assert_eq!(page.open_metrics(), "# EOF\n");
    }
}
