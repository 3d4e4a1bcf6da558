//! Which samples are stored. Agents look once a second, so that nothing that lives shorter escapes them, and what is of the
//! moment reads their last look; of the past one look now and then is enough, and each who comes or goes.

use pillion_core::report::{DeviceSample, DeviceSamples};
use pillion_core::{GresType, JobStart, NodeName, UnixTime};
use std::collections::BTreeMap;
use std::time::Duration;

/// By how much a look may come early: agents' periods are not exact.
const SLACK_SECONDS: f64 = 0.5;

/// What of each device was stored last.
#[derive(Debug, Default)]
pub(super) struct Stored(BTreeMap<(NodeName, GresType), Last>);

#[derive(Debug)]
struct Last {
    at: UnixTime,
    tenants: Vec<JobStart>,
}

impl Stored {
    /// Those that are to be stored: of each device one a `period`, and one whenever its tenants are others.
    pub(super) fn due(&self, node: &NodeName, taken: &DeviceSamples, period: Duration) -> DeviceSamples {
        let at = taken.recorded_at;
        let is_due = |sample: &&DeviceSample| {
            self.0.get(&(node.clone(), sample.gres_type.clone())).is_none_or(|last| {
                // A clock that was set back begins anew.
                (at.seconds() - last.at.seconds()).abs() >= period.as_secs_f64() - SLACK_SECONDS
                    || last.tenants != tenants(sample)
            })
        };
        DeviceSamples { recorded_at: at, samples: taken.samples.iter().filter(is_due).cloned().collect() }
    }

    /// Once they are stored: a report that the store did not take comes again, and is then as due as it was.
    pub(super) fn were(&mut self, node: &NodeName, stored: &DeviceSamples) {
        for sample in &stored.samples {
            let last = Last { at: stored.recorded_at, tenants: tenants(sample) };
            self.0.insert((node.clone(), sample.gres_type.clone()), last);
        }
    }
}

fn tenants(sample: &DeviceSample) -> Vec<JobStart> {
    let start = |job_id, restart_count| JobStart { job_id, restart_count };
    sample.tenants.iter().map(|tenant| start(tenant.job_id, tenant.restart_count)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{at, start};
    use pillion_core::device::TenantUse;

    const PERIOD: Duration = Duration::from_secs(10);

    fn look(seconds: f64, jobs: &[JobStart]) -> DeviceSamples {
        let tenant = |start: &JobStart| TenantUse {
            job_id: start.job_id,
            restart_count: start.restart_count,
            memory_bytes: None,
            process_count: 1,
            progress: None,
        };
        let sample = DeviceSample {
            gres_type: GresType::new("g1"),
            reading: pillion_core::device::Reading::default(),
            tenants: jobs.iter().map(tenant).collect(),
        };
        DeviceSamples { recorded_at: UnixTime::from_seconds(seconds), samples: vec![sample] }
    }

    /// How many of these looks are stored.
    fn stored(looks: &[DeviceSamples]) -> usize {
        let (mut stored, node) = (Stored::default(), NodeName::new("n1"));
        let count = |look: &DeviceSamples| {
            let due = stored.due(&node, look, PERIOD);
            stored.were(&node, &due);
            due.samples.len()
        };
        looks.iter().map(count).sum()
    }

    #[test]
    fn of_a_busy_device_one_look_a_period_is_stored_though_no_period_is_exact() {
        let late = |second: u32| f64::from(second) + if second.is_multiple_of(10) { -0.2 } else { 0.1 };
        let looks: Vec<DeviceSamples> = (100..200).map(|second| look(late(second), &[start()])).collect();
        assert_eq!(stored(&looks), 10);
    }

    #[test]
    fn who_comes_and_who_goes_is_stored_at_once() {
        let other = JobStart { restart_count: 1, ..start() };
        let looks = [
            look(100.0, &[]),
            look(101.0, &[start()]),
            look(102.0, &[start()]),
            look(103.0, &[start(), other]),
            look(104.0, &[other]),
            look(105.0, &[other]),
        ];
        assert_eq!(stored(&looks), 4);
    }

    #[test]
    fn a_clock_that_is_set_back_ends_nothing() {
        assert_eq!(stored(&[look(1000.0, &[]), look(100.0, &[]), look(105.0, &[]), look(110.0, &[])]), 3);
    }

    #[test]
    fn each_device_has_a_period_of_its_own_and_what_was_not_taken_is_due_again() {
        let (mut stored, taken) = (Stored::default(), look(100.0, &[]));
        let [n1, n2] = ["n1", "n2"].map(NodeName::new);
        assert_eq!(stored.due(&n1, &taken, PERIOD).samples.len(), 1);
        assert_eq!(stored.due(&n1, &taken, PERIOD).samples.len(), 1, "the store was away");
        stored.were(&n1, &taken);
        assert_eq!(stored.due(&n1, &taken, PERIOD).samples.len(), 0);
        assert_eq!(stored.due(&n2, &taken, PERIOD).samples.len(), 1);
        assert_eq!(
            stored.due(&n1, &DeviceSamples { recorded_at: at(110), ..taken }, PERIOD).samples.len(),
            1
        );
    }
}
