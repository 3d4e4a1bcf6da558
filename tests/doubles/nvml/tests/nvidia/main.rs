//! The NVIDIA backend against the double: every value that it reads is what the simulated device did, and every fault of
//! driver or device is told as what it is.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cut;
mod devices;
mod faults;
mod mig;
mod processes;
mod readings;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/cut.rs"]
mod support_cut;
mod xids;

use pillion_core::device::{NoticeKind, Reading};
use pillion_core::metric::Metric;
use pillion_device::nvidia::{Nvidia, NvidiaSettings, SearchPauses};
use pillion_device::{Backend as _, MpsSettings};
use std::time::Duration;
use support::{Node, eventually};

const WORKLOAD: &str = "bert-finetune";

fn backend(node: &Node) -> Nvidia {
    with_deadline(node, Duration::from_secs(20))
}

fn with_deadline(node: &Node, deadline: Duration) -> Nvidia {
    let library = Some(node.library());
    let search_pauses = SearchPauses { first: Duration::ZERO, longest: Duration::ZERO };
    let settings = NvidiaSettings { library, deadline, search_pauses, ..NvidiaSettings::default() };
    Nvidia::new(settings, None)
}

/// A reading with the values of GPM, which come with the second sample.
fn read_whole(nvidia: &mut Nvidia, index: u32) -> Reading {
    eventually("GPM gives its values", || {
        Some(nvidia.read(index).unwrap())
            .filter(|reading| reading.metrics.get(Metric::SmActiveFraction).is_some())
    })
}

fn kinds(nvidia: &mut Nvidia) -> Vec<(u32, NoticeKind)> {
    nvidia.notices().into_iter().map(|notice| (notice.index, notice.kind)).collect()
}

/// Of a daemon that serves everybody, from a pipe directory that only the simulation knows.
fn mps_settings() -> MpsSettings {
    MpsSettings {
        pipe_directory: "/run/mps".into(),
        log_directory: "/log".into(),
        multi_user: true,
        partitions: false,
        users: std::collections::BTreeSet::new(),
        cap_default: None,
        memory_limit_bytes_default: None,
    }
}
