//! What the parts of one agent share: the node's devices, its shares and markers, and whether the scheduler listens.
//! The lock is held for moments only: nobody waits for a driver, a disk or the network under it.

use crate::begun::{BegunStart, BegunStarts};
use crate::metrics::Figures;
use crate::share::{Own, ShareTable};
use pillion_core::device::DeviceDescription;
use pillion_core::handoff::MARKER_TELLS;
use pillion_core::setup::SetupFault;
use pillion_core::share::Share;
use pillion_core::{DecisionId, GresType, GresTypes, JobStart, NodeName, SlurmJobId};
use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, watch};
use tracing::warn;

/// Which devices the node has. One that was there once stays: how it is now, its condition tells.
#[derive(Debug, Clone, PartialEq)]
pub struct Inventory {
    /// By ascending index.
    pub devices: Arc<[DeviceDescription]>,
    /// Why there are none, where there are none.
    pub fault: Option<SetupFault>,
}

impl Inventory {
    fn device(&self, gres_type: &GresType) -> Option<&DeviceDescription> {
        self.devices.iter().find(|device| device.gres_type == *gres_type)
    }
}

/// The shared state of one agent.
#[derive(Debug)]
pub struct Node {
    name: NodeName,
    inventory: watch::Sender<Inventory>,
    shares: Mutex<ShareTable>,
    begun: Mutex<BegunStarts>,
    /// Devices that are cut into instances.
    cut: Mutex<BTreeSet<GresType>>,
    /// Told at every new share.
    shares_changed: Notify,
    markers: PathBuf,
    is_connected: AtomicBool,
    figures: Figures,
}

impl Node {
    /// A node with these devices. `markers`: the directory in which the SPANK plugin finds which jobs are ours.
    ///
    /// # Errors
    /// If the directory cannot be made.
    pub fn new(
        name: NodeName,
        inventory: Inventory,
        shares: ShareTable,
        markers: PathBuf,
    ) -> io::Result<Self> {
        std::fs::create_dir_all(&markers)?;
        let node = Self::with(name, inventory, shares, markers);
        for share in node.all_shares() {
            node.make_marker(share.start);
        }
        Ok(node)
    }

    /// A node whose jobs are only observed: nobody has a share there, and no file is made.
    pub fn observed(name: NodeName, inventory: Inventory) -> Self {
        Self::with(name, inventory, ShareTable::none(), PathBuf::new())
    }

    fn with(name: NodeName, inventory: Inventory, shares: ShareTable, markers: PathBuf) -> Self {
        Self {
            name,
            inventory: watch::Sender::new(inventory),
            shares: Mutex::new(shares),
            begun: Mutex::default(),
            cut: Mutex::default(),
            shares_changed: Notify::new(),
            markers,
            is_connected: AtomicBool::new(false),
            figures: Figures::default(),
        }
    }

    pub fn name(&self) -> &NodeName {
        &self.name
    }

    pub fn devices(&self) -> Arc<[DeviceDescription]> {
        Arc::clone(&self.inventory.borrow().devices)
    }

    /// The device that Slurm books under this name.
    pub fn device(&self, gres_type: &GresType) -> Option<DeviceDescription> {
        self.inventory.borrow().device(gres_type).cloned()
    }

    /// Those that Slurm books under these names, in their order.
    ///
    /// # Errors
    /// A sentence: which is not here.
    pub fn devices_of(&self, gres_types: &GresTypes) -> Result<Vec<DeviceDescription>, String> {
        let lacks = |own| format!("node {} has no device {own}", self.name);
        gres_types.iter().map(|own| self.device(own).ok_or_else(|| lacks(own))).collect()
    }

    /// What Slurm books the device with this index under.
    pub fn gres_type(&self, index: u32) -> Option<GresType> {
        let inventory = self.inventory.borrow();
        inventory.devices.iter().find(|device| device.index == index).map(|device| device.gres_type.clone())
    }

    /// Which devices it has, for whoever wants to hear when that changes.
    pub fn inventory(&self) -> watch::Receiver<Inventory> {
        self.inventory.subscribe()
    }

    /// It has these devices now. Returns whether that is otherwise than before.
    pub fn set_inventory(&self, inventory: Inventory) -> bool {
        self.inventory.send_if_modified(|known| {
            let is_new = *known != inventory;
            *known = inventory;
            is_new
        })
    }

    fn table(&self) -> MutexGuard<'_, ShareTable> {
        // Each change of the table is whole before anything can panic.
        self.shares.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Which starts run here, of those whose script was seen to begin.
    fn begun_starts(&self) -> MutexGuard<'_, BegunStarts> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The start of this job whose script runs here.
    pub fn begun(&self, job_id: SlurmJobId) -> Option<BegunStart> {
        self.begun_starts().get(job_id).cloned()
    }

    /// The script of a start begins.
    pub fn begin(&self, begun: BegunStart) {
        self.begun_starts().begin(begun);
    }

    /// The script of this start ran before the agent did.
    pub fn restore_begun(&self, start: JobStart, gres_types: impl IntoIterator<Item = GresType>) {
        let gres_types: Vec<GresType> = gres_types.into_iter().collect();
        let has_share = self
            .share(start)
            .is_some_and(|share| share.gres_types.iter().all(|own| gres_types.contains(own)));
        self.begun_starts().restore(BegunStart { start, gres_types, has_share });
    }

    /// A start is over.
    pub fn end(&self, start: JobStart) {
        self.begun_starts().end(start);
    }

    /// The share of a start.
    pub fn share(&self, start: JobStart) -> Option<Share> {
        self.table().get(start).cloned()
    }

    /// The share of an interactive job, which no script begins.
    pub fn session_share(&self, job_id: SlurmJobId) -> Option<Share> {
        self.table().all().find(|share| share.is_session && share.start.job_id == job_id).cloned()
    }

    pub fn all_shares(&self) -> Vec<Share> {
        self.table().all().cloned().collect()
    }

    /// The shares on one device.
    pub fn shares_on(&self, gres_type: &GresType) -> Vec<Share> {
        self.table().on_device(gres_type).cloned().collect()
    }

    /// The decisions that are carried out here.
    pub fn decision_ids(&self) -> Vec<DecisionId> {
        self.table().decision_ids()
    }

    /// Remembers a share, with what is its own, and marks its job.
    ///
    /// # Errors
    /// If it cannot be written down.
    pub fn insert_share(&self, share: Share, own: Own) -> io::Result<()> {
        let start = share.start;
        self.change(|table| table.insert(share, own))?;
        self.make_marker(start);
        self.shares_changed.notify_waiters();
        Ok(())
    }

    /// What of its device is a start's own.
    pub fn own(&self, start: JobStart) -> Own {
        self.table().own(start)
    }

    /// A start whose share is known has this now.
    pub fn set_own(&self, start: JobStart, own: Own) {
        self.change(|table| table.set_own(start, own));
    }

    /// On which devices a job that gets no instance would not have all of them.
    pub fn is_cut(&self, gres_type: &GresType) -> bool {
        self.cut.lock().unwrap_or_else(PoisonError::into_inner).contains(gres_type)
    }

    /// These are cut now.
    pub fn set_cut(&self, cut: &BTreeSet<GresType>) {
        self.cut.lock().unwrap_or_else(PoisonError::into_inner).clone_from(cut);
    }

    /// Forgets a share.
    pub fn remove_share(&self, start: JobStart) -> Option<Share> {
        self.change(|table| table.remove(start))
    }

    /// Changes a copy, which takes as long as the disk does, and then puts it in place. One thread changes the table.
    fn change<T>(&self, change: impl FnOnce(&mut ShareTable) -> T) -> T {
        let mut table = self.table().clone();
        let done = change(&mut table);
        *self.table() = table;
        done
    }

    /// Waits until there is a share for this start.
    pub async fn share_when_known(&self, start: JobStart) -> Share {
        loop {
            let changed = self.shares_changed.notified();
            tokio::pin!(changed);
            // Listens before it looks, so that a share that comes in between is not missed.
            changed.as_mut().enable();
            if let Some(share) = self.share(start) {
                return share;
            }
            changed.await;
        }
    }

    /// Marks a job as ours, for the plugin in its steps, which waits for no answer where its share is plain.
    pub fn make_marker(&self, start: JobStart) {
        let is_plain = self.table().get(start).is_some_and(|share| share.is_plain);
        let path = self.marker(start);
        if let Err(error) = std::fs::write(&path, if is_plain { MARKER_TELLS } else { "" }) {
            warn!(path = %path.display(), %error, "a job cannot be marked; its srun steps will not be asked for");
        }
    }

    /// Takes the mark of a job away, unless another start of it is expected.
    pub fn remove_marker(&self, start: JobStart) {
        if !self.table().all().any(|share| share.start.job_id == start.job_id && share.start != start) {
            let _ = std::fs::remove_file(self.marker(start));
        }
    }

    fn marker(&self, start: JobStart) -> PathBuf {
        self.markers.join(start.job_id.to_string())
    }

    /// What is counted and seen here, for Prometheus.
    pub fn figures(&self) -> &Figures {
        &self.figures
    }

    /// Whether the scheduler listens.
    pub fn is_connected(&self) -> bool {
        self.is_connected.load(Ordering::Relaxed)
    }

    /// The scheduler listens, or no longer.
    pub fn set_connected(&self, is_connected: bool) {
        self.is_connected.store(is_connected, Ordering::Relaxed);
    }
}
