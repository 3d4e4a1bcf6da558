//! The mark that `pillion.lua` leaves in a managed job's `AdminComment`, and that releases and undoes rewrite.
//!
//! It carries what an undo needs when nothing else is left (`pillion rescue` reads only this), so it must stand alone.
//! Every user can read it: no partner, no workload in clear. Other tools may overwrite it after the job has started;
//! nothing needs it then.
//!
//! ```text
//! pillion1;w=4f1c09aa12bc77de;s=1.15;m=8192;part=gpu;field=node;gres=gpu:1;other=lscratch:100;begin=0;lease=1700000000;r=0
//! pillion2;w=4f1c09aa12bc77de;part=gpu;field=node;gres=gpu:2;other=;begin=0;at=g0,g1
//! ```
//!
//! A job of several GPUs has the second word, and one that is not to be shared with anybody (`plain=1`). To a release that knows
//! the first alone it is no job of ours: that would put one GPU in their place, and somebody beside it.
//!
//! Each update of ours to a waiting job writes its mark, and what it presupposes of the job follows from that mark alone:
//! `pillion.lua` compares it with the job as it is, under slurmctld's lock, and refuses the update whole where they differ
//! (docs/decisions/0012-a-fence-under-slurms-lock.md).

use crate::clock::UnixTime;
use crate::gres_types::GresTypes;
use crate::isolation::Isolation;
use crate::restart::RestartConsent;
use crate::units::CapStep;
use compact_str::CompactString;
use std::fmt;

/// The word that the mark of a job of one GPU begins with.
pub const MARK_PREFIX: &str = "pillion1";
/// The word that the mark of a job begins with that has whole GPUs, of several or without having asked for co-location.
pub const MARK_PREFIX_WHOLE: &str = "pillion2";
/// The longest mark, prefix included.
pub const MARK_LENGTH_MAX: usize = 520;

/// What an exclusive job of one GPU asks for.
const WHOLE_DEVICE: &str = "shard:100";

/// Every field that this release knows.
const FIELDS: [&str; 25] = [
    "w", "s", "m", "c", "i", "oom", "early", "guest", "session", "part", "field", "gres", "other", "begin",
    "at", "nodes", "plain", "again", "go", "on", "lease", "r", "alone", "u", "left",
];

/// What is known of a managed job from Slurm alone. Its texts are short, and a long queue has many: they stand in the mark itself.
#[derive(Debug, Clone, PartialEq, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a word of the text, and says something else")]
pub struct Mark {
    /// `w`: digest of the script or of the profile name, 16 hexadecimal digits, with nothing in clear.
    pub workload_digest: CompactString,
    /// `s`: the promise, where the user gave one.
    pub slowdown_ratio_max: Option<f64>,
    /// `m`: device memory in MiB: as declared, or what it is to have after it ran out.
    pub memory_mib: Option<u64>,
    /// `c`: the cap under which it is to run alone, where the user had it measured.
    pub cap: Option<CapStep>,
    /// `i`: what is to stand between it and jobs of other users, where the user asked for more than the site gives.
    pub isolation: Isolation,
    /// `oom`: its user lets it be started again once, with more memory, after it ran out of device memory; `early`: also before.
    /// Two fields, because a release that does not know the second keeps it and does what the first says.
    pub restart: RestartConsent,
    /// `guest`: it was submitted as a guest: it goes, and waits once more, where somebody else needs its device.
    pub as_guest: bool,
    /// `session`: an interactive job (`salloc`, `srun`, or a batch job that says so): what it does is its user's from moment to moment, so
    /// nothing is foretold of it. To a release that does not know the word it is a job whose workload nobody knows.
    pub session: bool,
    /// `part`: the partition that the user asked for (empty: the default partition).
    pub original_partition: CompactString,
    /// `field`: which field named the GPU: `node`, `job`, `task` or `socket`.
    pub original_field: CompactString,
    /// `gres`: the GPU request as written there, without `gres/`: `gpu:1`, `gpu:a100:1`.
    pub original_gres: CompactString,
    /// `other`: the rest of the GRES request, without `gres/`, comma-separated; repeated in every update.
    pub other_gres: CompactString,
    /// `begin`: the user's own begin time in epoch seconds, 0 for none.
    pub original_begin_epoch: u64,
    /// `at`: the devices, of whichever node, on which Slurm starts a job of several GPUs by itself; absent for one GPU, which it
    /// starts on any.
    pub fallback: Option<GresTypes>,
    /// `nodes`: on how many nodes it gets them, where on more than one. Such a job is let go at its turn, and Slurm starts it.
    pub nodes: Option<u16>,
    /// `plain`: its user sent it to a pool without asking for co-location. It has whole GPUs, which nobody shares.
    pub plain: bool,
    /// `again`: the lease under which it ran out of device memory; since then it has more, and is not started again for that.
    pub again_lease_epoch: Option<u64>,
    /// `go`: when it was let go on several nodes, in epoch seconds, and its restart count then: `1795000000:0`. An undo that writes
    /// another one than the job has lets it go.
    pub let_go: Option<(u64, u32)>,
    /// `on`: digest of the account, QOS and partition that the release was decided on, where the site's rules are not the same for all.
    pub decided_on: Option<CompactString>,
    /// `lease`: when this job was released; absent while it waits.
    pub lease_epoch: Option<u64>,
    /// `r`: the restart count that the release was made for.
    pub lease_restart_count: Option<u32>,
    /// `alone`: it was undone once; it runs alone and is not released again.
    pub alone: bool,
    /// `u`: the lease that the newest undo took back, 0 where there was none: what that undo presupposed.
    pub undone_lease_epoch: Option<u64>,
    /// `left`: it was found outside the pool with shards, and was given its own request back; it is not managed any more.
    pub left: bool,
    /// Fields of a later release, as they stand there, each with its semicolon before it: kept, so that a release that is
    /// rolled back still finds its leases. So is `gq`, which `pillion.lua` alone reads: the site gave this guest its QOS.
    pub further: CompactString,
}

/// An `AdminComment` that begins like a mark and is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidMark {
    /// Longer than [`MARK_LENGTH_MAX`].
    #[error("mark is {0} bytes long, at most {MARK_LENGTH_MAX} are allowed")]
    TooLong(usize),
    /// A byte outside `[0-9A-Za-z=,.:_-;]`.
    #[error("mark holds a byte that is not allowed: {0:#04x}")]
    BadByte(u8),
    /// A field without `=`, repeated or with a value that does not parse.
    #[error("mark has a field that cannot be read: '{0}'")]
    BadField(String),
    /// Of a job that has whole GPUs with the word of one that may share, or the other way round.
    #[error("mark is of {expected}, and its fields say otherwise")]
    OtherWord {
        /// What its first word says.
        expected: &'static str,
    },
}

impl Mark {
    /// Reads an `AdminComment`. `Ok(None)`: not ours.
    ///
    /// # Errors
    /// [`InvalidMark`] where it begins with our prefix and cannot be read whole; such a job is left untouched.
    pub fn parse(text: &str) -> Result<Option<Self>, InvalidMark> {
        let (expected, fields) = match (text.strip_prefix(MARK_PREFIX), text.strip_prefix(MARK_PREFIX_WHOLE))
        {
            (Some(fields), _) => ("one GPU that may be shared", fields),
            (_, Some(fields)) => ("whole GPUs", fields),
            (None, None) => return Ok(None),
        };
        if text.len() > MARK_LENGTH_MAX {
            return Err(InvalidMark::TooLong(text.len()));
        }
        if let Some(byte) = text.bytes().find(|b| !(b.is_ascii_alphanumeric() || b"=,.:_-;".contains(b))) {
            return Err(InvalidMark::BadByte(byte));
        }
        let mut mark = Self::default();
        let mut seen = Vec::new();
        for field in fields.split(';').filter(|field| !field.is_empty()) {
            let bad = || InvalidMark::BadField(field.to_owned());
            let (name, value) = field.split_once('=').ok_or_else(bad)?;
            if seen.contains(&name) {
                return Err(bad());
            }
            seen.push(name);
            if !FIELDS.contains(&name) {
                mark.further.push(';');
                mark.further.push_str(field);
            } else if mark.set(name, value).is_none() {
                return Err(bad());
            }
        }
        if mark.prefix() != &text[..MARK_PREFIX.len()] {
            return Err(InvalidMark::OtherWord { expected });
        }
        Ok(Some(mark))
    }

    fn set(&mut self, name: &str, value: &str) -> Option<()> {
        match name {
            "w" => self.workload_digest = value.into(),
            "s" => {
                self.slowdown_ratio_max = Some(value.parse().ok().filter(|ratio: &f64| ratio.is_finite())?);
            }
            "m" => self.memory_mib = Some(value.parse().ok()?),
            "c" => self.cap = Some(value.parse().ok()?),
            "i" => self.isolation = value.parse().ok()?,
            "oom" if value == "1" => self.restart = self.restart.max(RestartConsent::Yes),
            "early" if value == "1" => self.restart = RestartConsent::Early,
            "oom" | "early" => {}
            "again" => self.again_lease_epoch = Some(value.parse().ok()?),
            "guest" => self.as_guest = value == "1",
            "session" => self.session = value == "1",
            "part" => self.original_partition = value.into(),
            "field" => self.original_field = value.into(),
            "gres" => self.original_gres = value.into(),
            "other" => self.other_gres = value.into(),
            "begin" => self.original_begin_epoch = value.parse().ok()?,
            "at" => self.fallback = Some(value.parse().ok().filter(|all: &GresTypes| all.count() > 1)?),
            "nodes" => self.nodes = Some(value.parse().ok().filter(|count| *count > 1)?),
            "plain" => self.plain = value == "1",
            "go" => {
                let (epoch, restart_count) = value.split_once(':')?;
                self.let_go = Some((epoch.parse().ok()?, restart_count.parse().ok()?));
            }
            "on" => self.decided_on = Some(value.into()),
            "lease" => self.lease_epoch = Some(value.parse().ok()?),
            "r" => self.lease_restart_count = Some(value.parse().ok()?),
            "alone" => self.alone = value == "1",
            "u" => self.undone_lease_epoch = Some(value.parse().ok()?),
            "left" => self.left = value == "1",
            _ => return None,
        }
        Some(())
    }

    /// Whether it has whole devices, which nobody shares: several, or it did not ask for co-location.
    pub const fn has_whole_devices(&self) -> bool {
        self.plain || self.fallback.is_some() || self.nodes.is_some()
    }

    /// On how many nodes it gets its devices.
    pub fn node_count(&self) -> u16 {
        self.nodes.unwrap_or(1)
    }

    const fn prefix(&self) -> &'static str {
        if self.has_whole_devices() { MARK_PREFIX_WHOLE } else { MARK_PREFIX }
    }

    /// How many devices of its node, or of each of its nodes, the job gets.
    pub fn device_count(&self) -> usize {
        self.fallback.as_ref().map_or(1, GresTypes::count)
    }

    /// The shards that it waits with and that Slurm starts it with by itself: one whole device, whichever it is, or all of
    /// several that are named.
    pub fn fallback_shards(&self) -> String {
        self.fallback.as_ref().map_or_else(|| WHOLE_DEVICE.to_owned(), |all| all.shards(100))
    }

    /// `m` in bytes.
    pub fn memory_bytes(&self) -> Option<u64> {
        self.memory_mib.map(|mib| mib.saturating_mul(1 << 20))
    }

    /// The mark with a lease: what a release writes.
    #[must_use]
    pub fn leased(&self, at: UnixTime, restart_count: u32) -> Self {
        Self {
            lease_epoch: Some(at.epoch()),
            lease_restart_count: Some(restart_count),
            alone: false,
            undone_lease_epoch: None,
            ..self.clone()
        }
    }

    /// The mark without a lease, alone from now on: what an undo writes. It names the lease that it takes back, so that
    /// `pillion.lua` refuses it where the job carries another one by then.
    #[must_use]
    pub fn undone(&self) -> Self {
        let undone_lease_epoch = Some(self.lease_epoch.unwrap_or(0));
        Self {
            lease_epoch: None,
            lease_restart_count: None,
            decided_on: None,
            alone: true,
            undone_lease_epoch,
            ..self.clone()
        }
    }

    /// The mark of a job on several nodes that is let go with these devices of each; absent = with those that it waits with.
    #[must_use]
    pub fn let_go_with(&self, gres_types: Option<&GresTypes>, at: UnixTime, restart_count: u32) -> Self {
        let fallback = gres_types.cloned().or_else(|| self.fallback.clone());
        Self { fallback, let_go: Some((at.epoch(), restart_count)), ..self.undone() }
    }

    /// The mark with which a job that ran out of device memory waits for a decision once more, with so much. It names the lease
    /// that it takes back, as an undo does; `None`: there is none, or it was given more once before.
    pub fn again(&self, memory_mib: u64) -> Option<Self> {
        let lease_epoch = self.lease_epoch.filter(|_| self.again_lease_epoch.is_none())?;
        Some(Self {
            memory_mib: Some(memory_mib),
            again_lease_epoch: Some(lease_epoch),
            decided_on: None,
            lease_epoch: None,
            lease_restart_count: None,
            undone_lease_epoch: None,
            ..self.clone()
        })
    }

    /// The mark with which a job that was submitted as a guest, and was started again, waits for a decision once more. It names the
    /// lease that it takes back, as an undo does; `None`: it is no guest, or has no lease.
    pub fn once_more(&self) -> Option<Self> {
        let lease_epoch = self.lease_epoch.filter(|_| self.as_guest && !self.alone)?;
        Some(Self {
            undone_lease_epoch: Some(lease_epoch),
            decided_on: None,
            lease_epoch: None,
            lease_restart_count: None,
            ..self.clone()
        })
    }

    /// The mark of a job that is given its own request back outside the pool.
    #[must_use]
    pub fn left(&self) -> Self {
        Self { alone: false, left: true, ..self.undone() }
    }

    /// The request that the job was submitted with, as a `Gres=` value: its GPUs by node, whichever option asked for them, and
    /// the other GRES.
    pub fn own_gres(&self) -> String {
        self.gres_with(&self.original_gres)
    }

    /// A `Gres=` value for `shards` (such as `shard:100` or `shard:g1:40`) that keeps the job's other GRES.
    pub fn gres_with(&self, shards: &str) -> String {
        if self.other_gres.is_empty() { shards.to_owned() } else { format!("{shards},{}", self.other_gres) }
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{};w={}", self.prefix(), self.workload_digest)?;
        if let Some(ratio) = self.slowdown_ratio_max {
            write!(f, ";s={ratio}")?;
        }
        if let Some(mib) = self.memory_mib {
            write!(f, ";m={mib}")?;
        }
        if let Some(cap) = self.cap {
            write!(f, ";c={cap}")?;
        }
        if !self.isolation.is_shared() {
            write!(f, ";i={}", self.isolation)?;
        }
        if self.restart.is_given() {
            f.write_str(";oom=1")?;
        }
        if self.restart.lets_end() {
            f.write_str(";early=1")?;
        }
        if self.as_guest {
            f.write_str(";guest=1")?;
        }
        if self.session {
            f.write_str(";session=1")?;
        }
        write!(f, ";part={};field={}", self.original_partition, self.original_field)?;
        write!(f, ";gres={};other={}", self.original_gres, self.other_gres)?;
        write!(f, ";begin={}", self.original_begin_epoch)?;
        if let Some(all) = &self.fallback {
            write!(f, ";at={all}")?;
        }
        if let Some(count) = self.nodes {
            write!(f, ";nodes={count}")?;
        }
        if self.plain {
            f.write_str(";plain=1")?;
        }
        if let Some(epoch) = self.again_lease_epoch {
            write!(f, ";again={epoch}")?;
        }
        if let Some((epoch, restart_count)) = self.let_go {
            write!(f, ";go={epoch}:{restart_count}")?;
        }
        if let Some(digest) = &self.decided_on {
            write!(f, ";on={digest}")?;
        }
        if let Some(epoch) = self.lease_epoch {
            write!(f, ";lease={epoch}")?;
        }
        if let Some(count) = self.lease_restart_count {
            write!(f, ";r={count}")?;
        }
        if let Some(epoch) = self.undone_lease_epoch {
            write!(f, ";u={epoch}")?;
        }
        f.write_str(&self.further)?;
        if self.left {
            f.write_str(";left=1")?;
        }
        if self.alone {
            f.write_str(";alone=1")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
