//! Who leads, where two schedulers run: we, or another that we follow; and what we have seen since
//! (docs/decisions/0009-the-store.md).

use super::Context;
use crate::scan::Scan;
use crate::step::is_before;
use pillion_core::UnixTime;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use tokio::sync::watch;
use tokio::time::Instant;

/// Whether a scan of that moment may not show what whoever led before us did.
pub(crate) fn is_of_before(at: UnixTime, led_since: Option<UnixTime>) -> bool {
    // One of the very moment was begun after it.
    led_since.is_some_and(|since| at < since) && is_before(at, led_since)
}

impl Context {
    /// Whether we lead, or another scheduler does and we only watch. Who begins to lead scans anew first: an older scan may
    /// not show what the leader before did.
    pub fn set_leading(&self, leading: bool) {
        if leading == self.leading.load(Ordering::SeqCst) {
            return;
        }
        if !leading {
            self.leading.store(false, Ordering::SeqCst);
            return;
        }
        let now = self.now();
        {
            let mut board = self.board_mut();
            board.scan = None;
            board.led_since = Some(now);
        }
        self.leading.store(true, Ordering::SeqCst);
        self.nudges.watch.notify_one();
    }
    /// Whether we lead still, and this scan is new enough to act on and shows what whoever led meanwhile did: to be asked again after every wait.
    pub(crate) fn may_act_by(&self, scan: &Scan) -> bool {
        self.is_active() && self.is_fresh(scan) && !is_of_before(scan.at, self.board().led_since)
    }
    /// Whether another scheduler is known to lead: agents belong to that one.
    pub fn set_following(&self, following: bool) {
        self.following.send_replace(following);
    }
    /// Whether another scheduler is known to lead, and when that changes.
    pub fn following(&self) -> watch::Receiver<bool> {
        self.following.subscribe()
    }
    /// Whether we lead.
    pub fn is_leading(&self) -> bool {
        let until = *self.leads_until.lock().unwrap_or_else(PoisonError::into_inner);
        // Whoever was frozen does not know that he was followed meanwhile.
        self.leading.load(Ordering::SeqCst) && until.is_none_or(|until| Instant::now() < until)
    }
    /// Until when it is certain that nobody else leads.
    pub fn set_leads_until(&self, until: Instant) {
        let was_leading = self.is_leading();
        *self.leads_until.lock().unwrap_or_else(PoisonError::into_inner) = Some(until);
        // The heartbeat may say meanwhile that nobody is served.
        if !was_leading {
            self.nudges.heartbeat.notify_one();
        }
    }
}
