//! What was seen of each device lately that may tell why a start on it failed: samples of its memory, Xids, and whose processes
//! were there. Pure. Not written down: an agent that starts again begins anew, and a verdict looks back two minutes at most.

use pillion_core::fault::{FaultSigns, MemorySample, XidSeen};
use pillion_core::{JobStart, UnixTime};
use std::collections::VecDeque;

/// How long before its end samples matter to a start.
const SAMPLES_SECONDS: f64 = 45.0;
/// How long before its end Xids matter, and what may be late about either.
const XIDS_SECONDS: f64 = 150.0;
const LATE_SECONDS: f64 = 5.0;
/// Most that is kept, however often a sample is taken and whatever a driver tells.
const SAMPLES_MAX: usize = 128;
const XIDS_MAX: usize = 64;

/// One process of a start on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnProcess {
    pub start: JobStart,
    /// In the agent's pid namespace.
    pub pid: u32,
    /// Its device memory, where the driver says.
    pub memory_bytes: Option<u64>,
}

#[derive(Debug, Clone)]
struct Sample {
    at: UnixTime,
    bytes: u64,
    bytes_used: Option<u64>,
    processes: Vec<OwnProcess>,
}

impl Sample {
    /// What the greatest process of a start held, where the driver says it of any.
    fn process_bytes_max(&self, start: JobStart) -> Option<u64> {
        let of_start = self.processes.iter().filter(|process| process.start == start);
        of_start.filter_map(|process| process.memory_bytes).max()
    }

    /// What all processes of a start held, where the driver says it of each.
    fn bytes_of(&self, start: JobStart) -> Option<u64> {
        let mut of_start = self.processes.iter().filter(|process| process.start == start);
        of_start.try_fold(0_u64, |sum, process| Some(sum.saturating_add(process.memory_bytes?)))
    }
}

#[derive(Debug, Clone, Copy)]
struct Xid {
    at: UnixTime,
    code: u64,
    pid: Option<u32>,
}

/// One device, lately.
#[derive(Debug, Default)]
pub struct DeviceSigns {
    samples: VecDeque<Sample>,
    xids: VecDeque<Xid>,
}

impl DeviceSigns {
    /// One sample: the device's memory, how much of it is in use, and who uses it.
    pub fn sample(&mut self, at: UnixTime, bytes: u64, bytes_used: Option<u64>, processes: Vec<OwnProcess>) {
        self.samples.push_back(Sample { at, bytes, bytes_used, processes });
        while self.samples.len() > SAMPLES_MAX
            || self.samples.front().is_some_and(|sample| at.seconds_since(sample.at) > XIDS_SECONDS)
        {
            self.samples.pop_front();
        }
    }

    /// An error that the driver numbers.
    pub fn xid(&mut self, at: UnixTime, code: u64, pid: Option<u32>) {
        self.xids.push_back(Xid { at, code, pid });
        if self.xids.len() > XIDS_MAX {
            self.xids.pop_front();
        }
    }

    /// The same of a start that had an instance of the device with so much memory: only its own counts there.
    pub fn of_instance(
        &self,
        (start, bytes): (JobStart, u64),
        started_at: UnixTime,
        ended_at: UnixTime,
    ) -> FaultSigns {
        let mut signs = self.of(start, started_at, ended_at);
        for seen in &mut signs.memory {
            let sample = self.samples.iter().find(|sample| sample.at == seen.at);
            seen.bytes = bytes;
            seen.bytes_used = sample.and_then(|sample| sample.bytes_of(start));
        }
        signs
    }

    /// What concerns a start that ran from `started_at` to `ended_at`; what others know of it is left open.
    pub fn of(&self, start: JobStart, started_at: UnixTime, ended_at: UnixTime) -> FaultSigns {
        let concerns = |at: UnixTime, seconds_max: f64| {
            let before = ended_at.seconds() - at.seconds();
            at.seconds() >= started_at.seconds() && (-LATE_SECONDS..=seconds_max).contains(&before)
        };
        let samples = self.samples.iter().filter(|sample| concerns(sample.at, SAMPLES_SECONDS));
        let xids = self.xids.iter().filter(|xid| concerns(xid.at, XIDS_SECONDS));
        FaultSigns {
            memory: samples
                .map(|sample| MemorySample {
                    at: sample.at,
                    bytes: sample.bytes,
                    bytes_used: sample.bytes_used,
                    process_bytes_max: sample.process_bytes_max(start),
                })
                .collect(),
            process_bytes_limit: None,
            was_over_limit: false,
            stderr: None,
            xids: xids
                .map(|xid| XidSeen {
                    at: xid.at,
                    code: xid.code,
                    is_own: xid.pid.and_then(|pid| self.is_process_of(start, pid)),
                })
                .collect(),
        }
    }

    /// Whether a process was the start's and not another's; `None` where it was nobody's that we saw, as the MPS server is.
    fn is_process_of(&self, start: JobStart, pid: u32) -> Option<bool> {
        let mut processes = self.samples.iter().rev().flat_map(|sample| &sample.processes);
        processes.find(|process| process.pid == pid).map(|process| process.start == start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pillion_core::SlurmJobId;

    const OWN: JobStart = JobStart { job_id: SlurmJobId::plain(1), restart_count: 0 };
    const OTHER: JobStart = JobStart { job_id: SlurmJobId::plain(2), restart_count: 0 };

    fn at(seconds: u64) -> UnixTime {
        UnixTime::from_epoch(1000 + seconds)
    }

    fn process(start: JobStart, pid: u32, memory_bytes: u64) -> OwnProcess {
        OwnProcess { start, pid, memory_bytes: Some(memory_bytes) }
    }

    #[test]
    fn a_start_is_told_of_its_last_looks_and_of_its_greatest_process() {
        let mut signs = DeviceSigns::default();
        for seconds in 0..100 {
            let processes = vec![process(OWN, 10, seconds), process(OWN, 11, 7), process(OTHER, 20, 900)];
            signs.sample(at(seconds), 1000, Some(950), processes);
        }
        let of = signs.of(OWN, at(0), at(99));
        assert_eq!(of.memory.len(), 46);
        let last =
            MemorySample { at: at(99), bytes: 1000, bytes_used: Some(950), process_bytes_max: Some(99) };
        assert_eq!(of.memory.last(), Some(&last));
        assert_eq!(signs.of(OWN, at(90), at(99)).memory.len(), 10, "not what was before it came");
        assert_eq!(signs.of(OWN, at(0), at(50)).memory.len(), 51, "and little of what came after it");
    }

    #[test]
    fn of_an_instance_its_own_memory_counts_and_what_its_tenant_holds() {
        let mut signs = DeviceSigns::default();
        signs.sample(
            at(0),
            1000,
            Some(950),
            vec![process(OWN, 10, 60), process(OWN, 11, 7), process(OTHER, 20, 900)],
        );
        let of = signs.of_instance((OWN, 70), at(0), at(1));
        let seen = MemorySample { at: at(0), bytes: 70, bytes_used: Some(67), process_bytes_max: Some(60) };
        assert_eq!(of.memory, [seen]);
    }

    #[test]
    fn an_xid_names_a_process_of_the_start_of_another_or_none() {
        let mut signs = DeviceSigns::default();
        signs.sample(at(0), 1000, None, vec![process(OWN, 10, 1), process(OTHER, 20, 1)]);
        for pid in [Some(10), Some(20), Some(30), None] {
            signs.xid(at(1), 79, pid);
        }
        let own = |start| signs.of(start, at(0), at(5)).xids.iter().map(|xid| xid.is_own).collect::<Vec<_>>();
        assert_eq!(own(OWN), [Some(true), Some(false), None, None], "30 is no tenant's: the MPS server's");
        assert_eq!(own(OTHER), [Some(false), Some(true), None, None]);
        assert_eq!(signs.of(OWN, at(2), at(5)).xids, [], "before it came");
        assert_eq!(signs.of(OWN, at(0), at(200)).xids, [], "long before its end");
    }

    #[test]
    fn a_driver_that_tells_much_fills_no_memory() {
        let mut signs = DeviceSigns::default();
        for count in 0..1000 {
            signs.xid(at(0), count, None);
            signs.sample(at(0), 1, None, Vec::new());
        }
        let of = signs.of(OWN, at(0), at(1));
        assert_eq!((of.xids.len(), of.memory.len()), (XIDS_MAX, SAMPLES_MAX));
    }
}
