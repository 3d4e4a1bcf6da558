//! What several pages show: states, tenants, devices, cards, filters, and links.

use crate::address::Page;
use crate::chart;
use crate::format;
use maud::{Markup, html};
use pillion_core::decision::MemberState;
use pillion_core::metric::Metric;
use pillion_core::report::DeviceSample;
use pillion_proto::v1::{ClusterDevice, ClusterNode, Tenant};

/// States of a device, with what each means, in the order in which they are shown.
pub(super) const STATES: [(&str, &str); 5] = [
    ("shared", "two or more jobs"),
    ("alone", "one job"),
    ("idle", "nobody"),
    ("closed", "takes nobody new: something is wrong with it"),
    ("away", "its agent does not answer"),
];

/// A table that scrolls by itself where the page is narrow; reachable by keyboard for that.
pub(super) fn scrolling(label: &str, table: &Markup) -> Markup {
    html! { div.scroll role="region" aria-label=(label) tabindex="0" { (table) } }
}

/// A number with what it counts.
pub(super) fn card(name: &str, value: &str, unit: &str, detail: &Markup) -> Markup {
    html! {
        div.card {
            dt { (name) }
            dd { span.value { (value) } @if !unit.is_empty() { " " span.unit { (unit) } } div.detail { (detail) } }
        }
    }
}

/// A state as a word with its colour.
pub(super) fn state(word: &str) -> Markup {
    html! { span class={ "state state-" (word_class(word)) } { (word) } }
}

/// The class of a word: only words that the style knows become one.
fn word_class(word: &str) -> &'static str {
    const KNOWN: [&str; 13] = [
        "shared",
        "alone",
        "idle",
        "closed",
        "away",
        "planned",
        "released",
        "running",
        "ended",
        "abandoned",
        "undone",
        "waiting",
        "completed",
    ];
    KNOWN.into_iter().find(|known| *known == word).unwrap_or("other")
}

/// A workload by its name; its address holds its key, which stays.
pub(super) fn workload_link(key: &str, name: &str) -> Markup {
    let name = called(key, name);
    let (user, own) = name.split_once('/').unwrap_or(("", name));
    html! {
        a.workload href=(Page::Workload(key.to_owned()).path()) {
            @if !user.is_empty() { span.muted { (user) "/" } }
            (shortened(own))
        }
    }
}

/// A workload as a word among others.
pub(super) fn workload_word(key: &str, name: &str) -> String {
    let name = called(key, name);
    match name.split_once('/') {
        Some((user, own)) => format!("{user}/{}", shortened(own)),
        None => shortened(name),
    }
}

/// What stands for a workload; its key where no name is told.
fn called<'a>(key: &'a str, name: &'a str) -> &'a str {
    if name.is_empty() { key } else { name }
}

/// Digests of scripts are long and alike: their beginning tells them apart.
fn shortened(name: &str) -> String {
    let is_digest = name.len() >= 16 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    name.chars().take(if is_digest { 10 } else { 60 }).collect()
}

/// A job, where the viewer may know it.
pub(super) fn job_link(job_id: &str) -> Markup {
    html! { @if job_id.is_empty() { span.muted { "another user’s job" } } @else { a href=(Page::Job(job_id.to_owned()).path()) { (job_id) } } }
}

/// A decision by its number.
pub(super) fn decision_link(id: u64, text: &str) -> Markup {
    html! { a href=(Page::Decision(id).path()) { (text) } }
}

/// A node by its name.
pub(super) fn node_link(node: &str) -> Markup {
    html! { a href=(Page::Node(node.to_owned()).path()) { (node) } }
}

/// What a tenant is held to.
pub(super) fn cap(cap_fraction: Option<f64>, ccs_mode: Option<u32>) -> String {
    match (cap_fraction, ccs_mode) {
        (Some(cap), _) if cap < 1.0 => format!("cap {:.0} %", cap * 100.0),
        (_, Some(mode)) => format!("1 of {mode} parts"),
        _ => "no cap".to_owned(),
    }
}

fn tenant(tenant: &Tenant) -> Markup {
    html! {
        li {
            @if tenant.is_visible {
                (job_link(&tenant.job_id)) " " (workload_link(&tenant.workload, &tenant.workload_name)) " "
                span.muted {
                    (cap(tenant.cap_fraction, tenant.ccs_mode)) " · " (tenant.shards) " shards"
                    @if let Some(speed) = tenant.predicted_speed_fraction { " · expected at " (format::percent(Some(speed))) }
                    @if tenant.state.parse() != Ok(MemberState::Running) { " · " (tenant.state) }
                }
                " " a.why href=(Page::Decision(tenant.decision_id).path()) { "why" span.hidden { " job " (tenant.job_id) " is here" } }
            } @else {
                span.muted { "another user’s job · " (cap(tenant.cap_fraction, tenant.ccs_mode)) " · " (tenant.shards) " shards" }
            }
        }
    }
}

/// A row of a table of devices.
pub(super) fn device_row(row: &ClusterDevice) -> Markup {
    let Some(device) = &row.device else { return html! {} };
    let sample = row.sample.clone().and_then(|sample| DeviceSample::try_from(sample).ok());
    let metrics = sample.map(|sample| sample.reading.metrics).unwrap_or_default();
    let activity = metrics.get(Metric::SmActiveFraction).or(metrics.get(Metric::GpuBusyFraction));
    let bytes_used = metrics.bytes(Metric::MemoryBytesUsed);
    #[expect(clippy::cast_precision_loss, reason = "a fraction for a bar")]
    let used = bytes_used.map(|used| used as f64 / device.memory_bytes.max(1) as f64);
    let faults = row.condition.iter().flat_map(|condition| &condition.faults);
    html! {
        tr {
            th scope="row" { (device.gres_type) " " span.muted { (device.model) " · " (device.mechanism) } }
            td { (state(&row.state)) }
            td {
                @if row.tenants.is_empty() { span.muted { (format::NONE) } } @else { ul.tenants { @for one in &row.tenants { (tenant(one)) } } }
                @if !row.drained.is_empty() { p.fault { (row.drained) } }
                @for fault in faults { p.fault { strong { (fault.kind) } " " (fault.detail) } }
            }
            td.number { @if let Some(activity) = activity { (chart::bar(activity, "fill-activity")) " " (format::percent(Some(activity))) } @else { (format::NONE) } }
            td.number { @if let Some(used) = used { (chart::bar(used, "fill-memory")) " " (format::bytes(bytes_used)) } @else { (format::NONE) } }
            td.number { @if let Some(watts) = metrics.get(Metric::PowerWatts) { (format!("{watts:.0} W")) } @else { (format::NONE) } }
        }
    }
}

/// The head of a table of devices.
pub(super) fn device_head() -> Markup {
    html! {
        thead { tr {
            th scope="col" { "GPU" } th scope="col" { "State" } th scope="col" { "Tenants, with their caps" }
            th.number scope="col" { "Active" } th.number scope="col" { "Memory" } th.number scope="col" { "Power" }
        } }
    }
}

/// What there is to say of a node besides its devices.
pub(super) fn node_facts(node: &ClusterNode, now: f64) -> Markup {
    html! {
        @if !node.connected { span.fault { "its agent does not answer; last heard " (format::ago(node.last_seen_at_seconds, now)) } }
        @if !node.stopped.is_empty() { span.fault { "nothing is released here: " (node.stopped) } }
    }
}

/// The numbers of an answer in words, for a list that may be empty.
pub(super) fn nothing(sentence: &str) -> Markup {
    html! { p.nothing { (sentence) } }
}

/// A field of a form of filters.
pub(super) fn field(name: &str, label: &str, value: &str, hint: &str) -> Markup {
    html! {
        label { span { (label) } input type="text" name=(name) value=(value) placeholder=(hint) autocomplete="off" spellcheck="false"; }
    }
}

/// A choice of a form of filters.
pub(super) fn choice(name: &str, label: &str, value: &str, words: &[&str]) -> Markup {
    html! {
        label {
            span { (label) }
            select name=(name) {
                option value="" selected[value.is_empty()] { "any" }
                @for word in words { option value=(word) selected[*word == value] { (word) } }
            }
        }
    }
}

/// A form of filters: its address is the page's, so that it can be passed on.
pub(super) fn filters(page: &Page, fields: &Markup) -> Markup {
    html! {
        form.filters method="get" action=(page.path()) role="search" aria-label="Filters" {
            (fields)
            button type="submit" { "Show" }
            a href=(page.path()) { "Clear" }
        }
    }
}
