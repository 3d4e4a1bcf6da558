//! An explanation of the engine, as it comes over the wire, in words and pictures.

use super::parts::{job_link, workload_link};
use crate::chart;
use crate::format;
use maud::{Markup, html};
use pillion_api::{Candidate, Estimate, Explanation};

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
    let caps = candidate.cap_fractions.unwrap_or_default();
    html! {
        tr.chosen[candidate.chosen] {
            th scope="row" {
                (job_link(candidate.partner.as_deref())) @if candidate.partner.is_some() { " " (workload_link(candidate.workload.as_deref(), candidate.workload_name.as_deref())) }
                @if candidate.is_running { span.muted { " runs already" } }
            }
            td { (cap(caps.own)) " / " (cap(caps.other)) }
            td { @if let Some(own) = &candidate.own { (estimate_range(own)) " " span.nowrap { (format::percent(Some(own.speed_fraction))) span.muted { " ≥ " (format::percent(Some(own.speed_fraction_low))) } } } @else { (format::NONE) } }
            td.number { @if let Some(other) = &candidate.other { (format::percent(Some(other.speed_fraction))) } @else { (format::NONE) } }
            td.number { @if let Some(gain) = candidate.gain { (format!("{:+.0} %", gain * 100.0).replace('-', "−")) } @else { (format::NONE) } }
            td { @match (candidate.rule().zip(candidate.excluded_by.as_ref()), candidate.chosen) {
                (_, true) => { strong { "chosen" } }
                (Some((rule, word)), false) => { (rule) " " span.muted { "(" (word) ")" } }
                (None, false) => { "allowed, not chosen" }
            } }
        }
    }
}

fn cap(fraction: Option<f64>) -> String {
    fraction.map_or_else(|| "none".to_owned(), |cap| format::percent(Some(cap)))
}

fn estimate_range(own: &Estimate) -> Markup {
    chart::range(&chart::Range {
        low: Some(own.speed_fraction_low),
        expected: Some(own.speed_fraction),
        high: Some(own.speed_fraction_high),
        promised: None,
        measured: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_explanation_says_what_was_expected_of_whom() {
        let own = Estimate {
            speed_fraction: 0.85,
            speed_fraction_low: 0.8,
            speed_fraction_high: 0.9,
            terms: [("prior".to_owned(), 0.9)].into(),
            ..Estimate::default()
        };
        let held = Candidate {
            partner: Some("41".to_owned()),
            workload: Some("alice/aa71".to_owned()),
            workload_name: Some("alice/bert".to_owned()),
            excluded_by: Some("of-tomorrow".to_owned()),
            ..Candidate::default()
        };
        let chosen = Candidate { own: Some(own), gain: Some(0.6), chosen: true, ..Candidate::default() };
        let explanation = Explanation { candidates: vec![held, chosen], ..Explanation::default() };
        let text = explained(&explanation).into_string();
        for part in ["85 %", "prior", "another user’s job", "chosen", "bert", "of-tomorrow"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
