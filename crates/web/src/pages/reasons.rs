//! An explanation of the engine, as it comes over the wire, in words and pictures.

use super::parts::{job_link, workload_link};
use crate::chart;
use crate::format;
use maud::{Markup, html};
use pillion_core::reason::Reason;
use pillion_proto::v1::JobExplanation;
use serde::Deserialize;
use std::collections::BTreeMap;

/// `pillion_pairing::Explanation` as JSON. The partner's id is 0 where it is not shown.
#[derive(Debug, Deserialize)]
pub(super) struct Explanation {
    #[serde(default)]
    pub(super) job_id: String,
    pub(super) reason: String,
    pub(super) text: String,
    #[serde(default)]
    pub(super) model: String,
    #[serde(default)]
    pub(super) candidates: Vec<Candidate>,
}

/// `pillion_pairing::Candidate` as JSON.
#[derive(Debug, Deserialize)]
pub(super) struct Candidate {
    #[serde(default)]
    partner: String,
    #[serde(default)]
    workload: String,
    #[serde(skip)]
    workload_name: String,
    #[serde(default)]
    is_running: bool,
    #[serde(default)]
    cap_fractions: (Option<f64>, Option<f64>),
    pub(super) own: Option<Estimate>,
    other: Option<Estimate>,
    gain: Option<f64>,
    excluded_by: Option<String>,
    #[serde(default)]
    pub(super) chosen: bool,
}

/// `pillion_pairing::SpeedEstimate` as JSON.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Estimate {
    pub(super) speed_fraction: f64,
    #[serde(default)]
    pub(super) speed_fraction_deviation: f64,
    pub(super) speed_fraction_low: f64,
    #[serde(default)]
    pub(super) speed_fraction_high: Option<f64>,
    #[serde(default)]
    pub(super) terms: BTreeMap<String, f64>,
}

/// Reads one; `None`: another version of Pillion wrote it.
pub(super) fn read(explained: &JobExplanation) -> Option<Explanation> {
    let mut explanation: Explanation = serde_json::from_str(&explained.explanation_json).ok()?;
    for candidate in &mut explanation.candidates {
        candidate.workload_name =
            explained.workload_names.get(&candidate.workload).cloned().unwrap_or_default();
    }
    Some(explanation)
}

/// What a rule says of a partner that it excluded; one that a later release knows says its word.
fn rule(word: &str) -> &str {
    word.parse::<Reason>().map_or(word, |reason| reason.of_partner())
}

/// One answer of the engine: why, what its estimate is made of, whom else it considered.
pub(super) fn explained(explanation: &Explanation) -> Markup {
    let decisive = explanation.candidates.iter().find(|it| it.chosen).or(explanation.candidates.first());
    let own = decisive.and_then(|candidate| candidate.own.as_ref()).filter(|own| !own.terms.is_empty());
    html! {
        p.reason { strong { (explanation.reason) } ": " (explanation.text) @if !explanation.model.is_empty() { span.muted { " (model " (explanation.model) ")" } } }
        @if let Some(own) = own { (terms(own, decisive.and_then(|it| it.other.as_ref()))) }
        @if !explanation.candidates.is_empty() { (super::parts::scrolling("Partners considered", &candidates(&explanation.candidates))) }
    }
}

/// What an estimate is made of.
fn terms(own: &Estimate, other: Option<&Estimate>) -> Markup {
    html! {
        details {
            summary {
                "The estimate: " (format::percent(Some(own.speed_fraction)))
                @if own.speed_fraction_deviation > 0.0 { " ± " (format::percent(Some(own.speed_fraction_deviation))) }
                " of its speed alone, at least " (format::percent(Some(own.speed_fraction_low))) ", from " (own.terms.len()) " terms"
            }
            table.narrow {
                caption.hidden { "Terms of the estimate" }
                thead { tr { th scope="col" { "Term" } th.number scope="col" { "This job" } @if other.is_some() { th.number scope="col" { "Its partner" } } } }
                tbody { @for (name, value) in &own.terms {
                    tr {
                        th scope="row" { (name) } td.number { (format!("{value:.3}")) }
                        @if let Some(other) = other { td.number { @if let Some(value) = other.terms.get(name) { (format!("{value:.3}")) } } }
                    }
                } }
            }
        }
    }
}

fn candidates(candidates: &[Candidate]) -> Markup {
    html! {
        table {
            caption { "Partners considered, best first" }
            thead { tr {
                th scope="col" { "Partner" } th scope="col" { "Caps" } th scope="col" { "This job’s speed" } th.number scope="col" { "Partner’s" }
                th.number scope="col" { "Gain" } th scope="col" { "Result" }
            } }
            tbody { @for candidate in candidates { (candidate_row(candidate)) } }
        }
    }
}

fn candidate_row(candidate: &Candidate) -> Markup {
    let is_hidden = matches!(candidate.partner.as_str(), "" | "0");
    let cap = |cap: Option<f64>| cap.map_or_else(|| "none".to_owned(), |cap| format!("{:.0} %", cap * 100.0));
    html! {
        tr.chosen[candidate.chosen] {
            th scope="row" {
                @if is_hidden { span.muted { "another user’s job" } } @else { (job_link(&candidate.partner)) " " (workload_link(&candidate.workload, &candidate.workload_name)) }
                @if candidate.is_running { span.muted { " runs already" } }
            }
            td { (cap(candidate.cap_fractions.0)) " / " (cap(candidate.cap_fractions.1)) }
            td { @if let Some(own) = &candidate.own { (estimate_range(own)) " " span.nowrap { (format::percent(Some(own.speed_fraction))) span.muted { " ≥ " (format::percent(Some(own.speed_fraction_low))) } } } @else { (format::NONE) } }
            td.number { @if let Some(other) = &candidate.other { (format::percent(Some(other.speed_fraction))) } @else { (format::NONE) } }
            td.number { @if let Some(gain) = candidate.gain { (format!("{:+.0} %", gain * 100.0).replace('-', "−")) } @else { (format::NONE) } }
            td { @match (&candidate.excluded_by, candidate.chosen) {
                (_, true) => { strong { "chosen" } }
                (Some(word), false) => { (rule(word)) " " span.muted { "(" (word) ")" } }
                (None, false) => { "allowed, not chosen" }
            } }
        }
    }
}

fn estimate_range(own: &Estimate) -> Markup {
    chart::range(&chart::Range {
        low: Some(own.speed_fraction_low),
        expected: Some(own.speed_fraction),
        high: own.speed_fraction_high,
        promised: None,
        measured: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_has_its_sentence_and_one_of_tomorrow_its_word() {
        assert_eq!(rule("several-processes"), "one of the two runs more than one process on the device");
        assert_eq!(rule("measured-alone"), "its user has it measured alone");
        assert_eq!(rule("of-tomorrow"), "of-tomorrow");
    }

    #[test]
    fn an_explanation_is_read_and_one_of_tomorrow_is_not() {
        let json = r#"{"job_id":"42","reason":"paired","text":"starts","model":"m","candidates":[{"partner":"41",
            "workload":"alice/aa71","is_running":true,"excluded_by":"held"},{"partner":"0","workload":"","is_running":false,"cap_fractions":[0.6,null],"own":{"speed_fraction":0.85,"speed_fraction_low":0.8,
            "speed_fraction_high":0.9,"terms":{"prior":0.9}},"other":null,"gain":0.6,"excluded_by":null,"chosen":true}]}"#;
        let workload_names = [("alice/aa71".to_owned(), "alice/bert".to_owned())].into();
        let of =
            |json: &str| JobExplanation { explanation_json: json.to_owned(), ..JobExplanation::default() };
        let text = explained(&read(&JobExplanation { workload_names, ..of(json) }).unwrap()).into_string();
        for part in ["85 %", "prior", "another user’s job", "chosen", "bert"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(read(&of(r#"{"format":"of tomorrow"}"#)).is_none());
    }
}
