//! One Xid is one event, whoever tells of it: NVML names no process and, if several came at once, the last number for each
//! of them; the kernel's log names all. Pure.

use std::collections::VecDeque;
use std::time::Duration;
use tokio::time::Instant;

/// NVML tells of what the kernel logged within this time, or before it does.
const APART: Duration = Duration::from_secs(10);
/// Most that is remembered, whatever a driver tells.
const REMEMBERED_MAX: usize = 1024;

/// An Xid of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Xid {
    pub(super) index: u32,
    pub(super) code: u64,
    /// The process, where the kernel's log names it.
    pub(super) pid: Option<u32>,
    /// In the driver's words.
    pub(super) detail: String,
}

/// What both have told lately.
#[derive(Debug, Default)]
pub(super) struct Xids {
    /// From NVML since the last sample, and from before it: they wait one sample for the kernel's line.
    fresh: Vec<(u32, u64)>,
    waiting: Vec<(u32, u64)>,
    /// From the kernel's log.
    logged: VecDeque<(Instant, u32, u64)>,
}

impl Xids {
    /// NVML told of one.
    pub(super) fn of_nvml(&mut self, index: u32, code: u64) {
        if self.fresh.len() < REMEMBERED_MAX {
            self.fresh.push((index, code));
        }
    }

    /// What is to be told now. `logged`: what the kernel's log has that is new; `None` without one, and then nothing is
    /// waited for.
    pub(super) fn settle(&mut self, now: Instant, logged: Option<Vec<Xid>>) -> Vec<Xid> {
        let is_watched = logged.is_some();
        let mut reported = logged.unwrap_or_default();
        self.logged.extend(reported.iter().map(|xid| (now, xid.index, xid.code)));
        while self.logged.len() > REMEMBERED_MAX
            || self.logged.front().is_some_and(|(at, _, _)| now.saturating_duration_since(*at) > APART)
        {
            self.logged.pop_front();
        }
        let is_logged = |(index, code): &(u32, u64)| {
            self.logged.iter().any(|(_, of, known)| (of, known) == (index, code))
        };
        let mut due = std::mem::take(&mut self.waiting);
        self.waiting = std::mem::take(&mut self.fresh);
        if !is_watched {
            due.append(&mut self.waiting);
        }
        self.waiting.retain(|xid| !is_logged(xid));
        let alone = due.into_iter().filter(|xid| !is_logged(xid));
        reported.extend(alone.map(|(index, code)| Xid {
            index,
            code,
            pid: None,
            detail: format!("Xid {code}"),
        }));
        reported
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(index: u32, code: u64, pid: u32) -> Xid {
        Xid { index, code, pid: Some(pid), detail: String::new() }
    }

    fn codes(reported: &[Xid]) -> Vec<(u32, u64, Option<u32>)> {
        reported.iter().map(|xid| (xid.index, xid.code, xid.pid)).collect()
    }

    #[test]
    fn an_xid_that_both_tell_is_one_with_its_process() {
        let now = Instant::now();
        let second = Duration::from_secs(1);
        let mut xids = Xids::default();
        xids.of_nvml(0, 31);
        assert_eq!(codes(&xids.settle(now, Some(vec![line(0, 31, 7)]))), [(0, 31, Some(7))], "at once");
        xids.of_nvml(0, 31);
        assert_eq!(codes(&xids.settle(now + second, Some(vec![]))), [], "the kernel first");
        xids.of_nvml(1, 13);
        assert_eq!(codes(&xids.settle(now + second, Some(vec![]))), [], "it waits for the kernel");
        assert_eq!(codes(&xids.settle(now + 2 * second, Some(vec![line(1, 13, 8)]))), [(1, 13, Some(8))]);
        assert_eq!(codes(&xids.settle(now + 3 * second, Some(vec![]))), []);
    }

    #[test]
    fn of_several_at_once_nvml_names_the_last_and_the_kernel_all() {
        let mut xids = Xids::default();
        for _ in 0..3 {
            xids.of_nvml(0, 45);
        }
        let logged = vec![line(0, 31, 7), line(0, 31, 7), line(0, 45, 7)];
        let reported = codes(&xids.settle(Instant::now(), Some(logged)));
        assert_eq!(reported, [(0, 31, Some(7)), (0, 31, Some(7)), (0, 45, Some(7))]);
        assert_eq!(codes(&xids.settle(Instant::now(), Some(vec![]))), []);
    }

    #[test]
    fn what_the_kernel_does_not_log_is_told_one_look_later() {
        let now = Instant::now();
        let mut xids = Xids::default();
        let reported = xids.settle(now, Some(vec![line(1, 79, 7)]));
        assert_eq!(codes(&reported), [(1, 79, Some(7))]);
        xids.of_nvml(0, 79);
        assert_eq!(codes(&xids.settle(now, Some(vec![]))), []);
        assert_eq!(codes(&xids.settle(now, Some(vec![]))), [(0, 79, None)], "the line was another device's");
        xids.of_nvml(1, 79);
        let later = now + APART + Duration::from_secs(1);
        assert_eq!(codes(&xids.settle(later, Some(vec![]))), []);
        assert_eq!(codes(&xids.settle(later, Some(vec![]))), [(1, 79, None)], "it is a new one");
    }

    #[test]
    fn without_a_kernel_log_nothing_is_waited_for() {
        let mut xids = Xids::default();
        xids.of_nvml(0, 31);
        xids.of_nvml(0, 31);
        assert_eq!(codes(&xids.settle(Instant::now(), None)), [(0, 31, None), (0, 31, None)]);
        assert_eq!(codes(&xids.settle(Instant::now(), None)), []);
    }
}
