//! From what was seen to the page. Pure.

use super::families as f;
use super::figures::{DeviceSeen, Seen};
use crate::journal::JournalFigures;
use pillion_core::device::{DeviceDescription, Mechanism, Reading};
use pillion_core::health::FaultKind;
use pillion_core::mig::Geometry;
use pillion_core::share::Share;
use pillion_core::{NodeName, UnixTime};
use pillion_metrics::Page;
use std::collections::BTreeSet;

/// What is known now.
pub struct Snapshot<'a> {
    pub node: &'a NodeName,
    pub devices: &'a [DeviceDescription],
    /// The shares that are set up.
    pub shares: &'a [Share],
    /// Whether the scheduler listens.
    pub is_connected: bool,
    /// What was seen and counted.
    pub seen: Seen,
    /// How full the journal is.
    pub journal: JournalFigures,
}

pub fn page(snapshot: &Snapshot<'_>) -> Page {
    let mut page = Page::new();
    agent(&mut page, snapshot);
    journal(&mut page, snapshot);
    let unseen = DeviceSeen::default();
    for description in snapshot.devices {
        let seen = snapshot.seen.devices.get(&description.gres_type).unwrap_or(&unseen);
        device(&mut page, snapshot, description, seen);
    }
    page
}

fn agent(page: &mut Page, snapshot: &Snapshot<'_>) {
    let Snapshot { node, is_connected, seen, .. } = snapshot;
    let node = node.as_str();
    page.set(&f::INFO, &[node, env!("CARGO_PKG_VERSION")], 1.0);
    page.count(&f::UPLINK_CONNECTED, &[node], u64::from(*is_connected));
    page.count(&f::UPLINK_FAILURES, &[node], seen.uplink_failures);
    page.set_known(&f::SAMPLED_AT, &[node], seen.sampled_at.map(UnixTime::seconds));
    page.durations(&f::SAMPLE_SECONDS, &[node], &seen.sample);
    for (answer, is_decided) in [("decided", true), ("no-decision", false)] {
        page.count(&f::TASKS, &[node, answer], seen.tasks.get(&is_decided).copied().unwrap_or(0));
    }
    for mechanism in Mechanism::ALL {
        for (result, is_prepared) in [("prepared", true), ("failed", false)] {
            let count = seen.setups.get(&(mechanism, is_prepared)).copied().unwrap_or(0);
            page.count(&f::SHARES_SET_UP, &[node, mechanism.as_str(), result], count);
        }
    }
}

fn journal(page: &mut Page, snapshot: &Snapshot<'_>) {
    let JournalFigures { kept_bytes, bytes_max, waiting_count, dropped_count, lost_count } = snapshot.journal;
    let node = snapshot.node.as_str();
    page.count(&f::JOURNAL_BYTES, &[node], kept_bytes);
    page.count(&f::JOURNAL_BYTES_MAX, &[node], bytes_max);
    if let Some(count) = waiting_count {
        page.count(&f::JOURNAL_WAITING, &[node], count);
    }
    page.count(&f::REPORTS_DROPPED, &[node], dropped_count);
    page.count(&f::REPORTS_LOST, &[node], lost_count);
}

fn device(page: &mut Page, snapshot: &Snapshot<'_>, device: &DeviceDescription, seen: &DeviceSeen) {
    let (node, gres_type) = (snapshot.node.as_str(), device.gres_type.as_str());
    let place = [node, gres_type];
    page.set(&f::DEVICE_INFO, &[node, gres_type, &device.model, device.mechanism.as_str()], 1.0);
    page.count(&f::MEMORY_BYTES, &place, device.memory_bytes);
    for fault in &seen.faults {
        page.set(&f::DEVICE_FAULT, &[node, gres_type, &fault.to_string()], 1.0);
    }
    page.count(&f::READ_ERRORS, &place, seen.read_errors);
    let own: Vec<&Share> =
        snapshot.shares.iter().filter(|share| share.gres_types.contains(&device.gres_type)).collect();
    // In instances several share one where the device has MPS.
    let cut = device.geometry.iter().flat_map(|_| {
        let together = device.mechanism.has_daemon().then_some(Mechanism::MigMps);
        [Mechanism::Mig].into_iter().chain(together)
    });
    for mechanism in [device.mechanism, Mechanism::TimeSliced].into_iter().chain(cut) {
        let count = own.iter().filter(|share| share.mechanism() == mechanism).count() as u64;
        page.count(&f::SHARES, &[node, gres_type, mechanism.as_str()], count);
    }
    for size in device.geometry.iter().flat_map(Geometry::plain) {
        let is_of_it =
            |share: &&&Share| share.sharing.mig_slot().is_some_and(|slot| slot.profile == size.profile);
        // One that several share is one.
        let slots: BTreeSet<_> = own.iter().filter(is_of_it).map(|share| share.sharing.mig_slot()).collect();
        let count = slots.len() as u64;
        page.count(&f::INSTANCES, &[node, gres_type, &size.profile.to_string()], count);
    }
    page.count(&f::SHARDS, &place, own.iter().map(|share| u64::from(share.shards.count())).sum());
    if own.iter().any(|share| share.mechanism().has_daemon()) {
        let is_out =
            seen.faults.iter().any(|fault| matches!(fault, FaultKind::MpsFault | FaultKind::MpsDied));
        page.count(&f::MPS_UP, &place, u64::from(!is_out));
    }
    if let Some(read) = &seen.reading {
        page.count(&f::TENANTS, &place, seen.tenants);
        page.count(&f::PROCESSES, &place, seen.processes);
        reading(page, place, read);
    }
}

/// A value that the device does not tell has no line.
fn reading(page: &mut Page, place: [&str; 2], reading: &Reading) {
    for (metric, family) in f::MEASURED.iter() {
        page.set_known(family, &place, reading.metrics.get(*metric));
    }
    for throttle in reading.throttles().into_iter().flatten() {
        page.set(&f::THROTTLED, &[place[0], place[1], &throttle.to_string()], 1.0);
    }
}

#[cfg(test)]
mod tests;
