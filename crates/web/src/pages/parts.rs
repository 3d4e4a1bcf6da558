//! What several pages show: states, tenants, devices, cards, filters, and links.

use crate::address::Page;
use crate::chart::{self, Cut};
use crate::format;
use maud::{Markup, html};
use pillion_api::{ClusterDevice, ClusterNode, Tenant};
use pillion_core::decision::MemberState;
use pillion_core::mig::{Geometry, Slot};
use std::collections::BTreeSet;

/// States of a device, with what each means, in the order in which they are shown.
pub(super) const STATES: [(&str, &str); 5] = [
    ("shared", "two or more jobs"),
    ("alone", "one job"),
    ("idle", "nobody"),
    ("closed", "takes nobody new: something is wrong with it"),
    ("not-responding", "its agent is not responding"),
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
        "not-responding",
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

/// A workload by its name; its address holds its key, which stays. Nothing where it is not shown.
pub(super) fn workload_link(key: Option<&str>, name: Option<&str>) -> Markup {
    let Some(key) = key else { return html! {} };
    let name = name.unwrap_or(key);
    let (user, own) = name.split_once('/').unwrap_or(("", name));
    html! {
        a.workload href=(Page::Workload(key.to_owned()).path()) {
            @if !user.is_empty() { span.muted { (user) "/" } }
            (shortened(own))
        }
    }
}

/// A workload as a word among others.
pub(super) fn workload_word(name: &str) -> String {
    match name.split_once('/') {
        Some((user, own)) => format!("{user}/{}", shortened(own)),
        None => shortened(name),
    }
}

/// Digests of scripts are long and alike: their beginning tells them apart.
fn shortened(name: &str) -> String {
    let is_digest = name.len() >= 16 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    name.chars().take(if is_digest { 10 } else { 60 }).collect()
}

/// A job, where the viewer may know it.
pub(super) fn job_link(job_id: Option<&str>) -> Markup {
    html! { @if let Some(job_id) = job_id { a href=(Page::Job(job_id.to_owned()).path()) { (job_id) } } @else { span.muted { "another user’s job" } } }
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
pub(super) fn cap(cap_fraction: Option<f64>, ccs_mode: Option<u32>, mig_slot: Option<&str>) -> String {
    match (cap_fraction, ccs_mode) {
        (Some(cap), _) if mig_slot.is_some() => {
            format!("instance {}, cap {:.0} %", mig_slot.unwrap_or_default(), cap * 100.0)
        }
        _ if mig_slot.is_some() => format!("instance {}", mig_slot.unwrap_or_default()),
        (Some(cap), _) if cap < 1.0 => format!("cap {:.0} %", cap * 100.0),
        (_, Some(mode)) => format!("1 of {mode} parts"),
        _ => "no cap".to_owned(),
    }
}

fn tenant(tenant: &Tenant) -> Markup {
    html! {
        li {
            @if let (Some(decision_id), Some(job_id)) = (tenant.decision_id, &tenant.job_id) {
                (job_link(Some(job_id))) " " (workload_link(tenant.workload.as_deref(), tenant.workload_name.as_deref())) " "
                span.muted {
                    (cap(tenant.cap_fraction, tenant.ccs_mode, tenant.mig_slot.as_deref())) " · " (tenant.shards) " shards"
                    @if let Some(speed) = tenant.predicted_speed_fraction { " · expected at " (format::percent(Some(speed))) }
                    @if tenant.state.parse() != Ok(MemberState::Running) { " · " (tenant.state) }
                }
                " " a.why href=(Page::Decision(decision_id).path()) { "why" span.hidden { " job " (job_id) " is here" } }
            } @else {
                span.muted { "another user’s job · " (cap(tenant.cap_fraction, tenant.ccs_mode, tenant.mig_slot.as_deref())) " · " (tenant.shards) " shards" }
            }
        }
    }
}

/// A device that is cut, in its slices, with how many of them are taken. Nothing of one that is not, or of sizes that the table of its
/// model does not have: they stand beside their tenants all the same.
fn cut(device: &ClusterDevice) -> Markup {
    let Some((count, cuts)) = cuts(device) else { return html! {} };
    let taken: u32 = cuts.iter().map(|cut| u32::from(cut.count)).sum();
    html! { div.cut { (chart::slices(count, &cuts)) span.muted { (taken) " of " (count) " memory slices taken" } } }
}

/// Its memory slices, and which of them its tenants have.
fn cuts(device: &ClusterDevice) -> Option<(u8, Vec<Cut>)> {
    let geometry = Geometry::of_model(&device.model)?;
    let slots = device.tenants.iter().map(|tenant| tenant.mig_slot.as_ref()?.parse().ok());
    // One that several share is one.
    let slots: BTreeSet<Slot> = slots.collect::<Option<_>>()?;
    let slots: Vec<Slot> = slots.into_iter().collect();
    let cut = |slot: &Slot| {
        let count = geometry.size(slot.profile)?.memory_slices;
        Some(Cut { start: slot.start, count, label: format!("{}g", slot.profile.compute_slices()) })
    };
    // What overlaps is of two moments.
    let is_one = !slots.is_empty() && geometry.check(&slots).is_ok();
    let cuts: Vec<Cut> = slots.iter().map(cut).collect::<Option<_>>()?;
    is_one.then_some((geometry.whole().memory_slices, cuts))
}

/// A row of a table of devices.
pub(super) fn device_row(row: &ClusterDevice) -> Markup {
    let activity = row.activity.unwrap_or_default();
    let active = activity.sm_active_fraction.or(activity.gpu_busy_fraction);
    #[expect(clippy::cast_precision_loss, reason = "a fraction for a bar")]
    let used = activity.memory_bytes_used.map(|used| used as f64 / row.memory_bytes.max(1) as f64);
    html! {
        tr {
            th scope="row" { (row.gres_type) " " span.muted { (row.model) " · " (row.mechanism) } }
            td { (state(&row.state)) }
            td {
                @if row.tenants.is_empty() { span.muted { (format::NONE) } } @else { ul.tenants { @for one in &row.tenants { (tenant(one)) } } }
                (cut(row))
                @if let Some(drained) = &row.drained { p.fault { (drained) } }
                @if let Some(amiss) = &row.amiss { p.fault { (amiss) } }
                @for fault in &row.faults { p.fault { strong { (fault.kind) } " " (fault.detail) } }
            }
            td.number { @if let Some(active) = active { (chart::bar(active, "fill-activity")) " " (format::percent(Some(active))) } @else { (format::NONE) } }
            td.number { @if let Some(used) = used { (chart::bar(used, "fill-memory")) " " (format::bytes(activity.memory_bytes_used)) } @else { (format::NONE) } }
            td.number { @if let Some(watts) = activity.power_watts { (format!("{watts:.0} W")) } @else { (format::NONE) } }
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
        @if let Some(why) = &node.stopped { span.fault { "nothing is released here: " (why) } }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn device(model: &str, slots: &[Option<&str>]) -> ClusterDevice {
        let tenants =
            slots.iter().map(|slot| Tenant { mig_slot: slot.map(str::to_owned), ..Tenant::default() });
        ClusterDevice { model: model.to_owned(), tenants: tenants.collect(), ..ClusterDevice::default() }
    }

    #[test]
    fn a_device_that_is_cut_is_drawn_in_its_slices() {
        let drawn = device_row(&device("h100", &[Some("3g.40gb@4"), Some("1g.10gb@0")])).into_string();
        assert!(
            drawn.contains(r#"viewBox="0 0 320 24""#) && drawn.contains("5 of 8 memory slices taken"),
            "{drawn}"
        );
        assert_eq!(drawn.matches(r#"class="taken""#).count(), 2);
        assert_eq!(drawn.matches(r#"class="free""#).count(), 3);
        assert!(drawn.contains(r#"<rect class="taken" x="161" y="1" width="158""#), "{drawn}");
        assert!(drawn.contains(">3g</text>") && drawn.contains(">1g</text>"));
    }

    #[test]
    fn what_cannot_be_drawn_truly_is_not_drawn() {
        for (model, slots) in [
            ("h100", &[][..]),
            ("h100", &[None]),
            ("h100", &[Some("3g.40gb@4"), None]),
            ("h100", &[Some("3g.40gb@4"), Some("1g.10gb@4")]),
            ("h100", &[Some("3g.99gb@4")]),
            ("v100", &[Some("3g.40gb@4")]),
        ] {
            assert_eq!(cuts(&device(model, slots)), None, "{model} {slots:?}");
        }
    }
}
