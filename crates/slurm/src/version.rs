//! Releases of Slurm: which we act on, and which faults of theirs are known, by name. Read from Slurm's own lists of changes
//! (`NEWS`, `CHANGELOG/`) up to 26.05.3. Must not know who asks.

use serde::{Deserialize, Serialize};

/// A Slurm release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SlurmVersion {
    /// The year of the release, two digits: 24.
    pub major: u32,
    /// The month of the release: 5 or 11.
    pub minor: u32,
    /// The number of the maintenance release, from 0.
    pub patch: u32,
}

impl SlurmVersion {
    const fn new(major: u32, minor: u32, patch: u32) -> Self {
        Self { major, minor, patch }
    }

    /// Why we do not act on this release; `None` where we do. Earlier ones double-book GRES, 25.05.0 can give one GRES to
    /// several jobs.
    pub fn refusal(self) -> Option<String> {
        let oldest = Self::new(23, 11, 7);
        if self < oldest {
            Some(format!("Slurm {self} books shared GPUs twice; install {oldest} or later"))
        } else if self == Self::new(25, 5, 0) {
            Some(format!("Slurm {self} can give one GPU to several jobs; install 25.05.1 or later"))
        } else {
            None
        }
    }

    /// The faults of this release, each with the first release without it that is not older: of its own branch, if there is one.
    pub fn faults(self) -> Vec<(&'static Fault, Self)> {
        FAULTS.iter().filter_map(|fault| Some((fault, fault.floor(self)?))).collect()
    }

    const fn branch(self) -> (u32, u32) {
        (self.major, self.minor)
    }
}

impl std::fmt::Display for SlurmVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:02}.{}", self.major, self.minor, self.patch)
    }
}

/// A fault of some releases that bears on security, or on who gets which GRES.
#[derive(Debug, PartialEq, Eq)]
pub struct Fault {
    /// Its number, or what Slurm's list of changes calls it, shortened.
    pub name: &'static str,
    /// What it means for a site, in a few words.
    pub meaning: &'static str,
    /// The first release of each branch without it, oldest first.
    pub mended: &'static [SlurmVersion],
    /// Branches that have it in all of their releases. One that is named in neither list never had it.
    pub unmended: &'static [(u32, u32)],
}

impl Fault {
    /// From which release on a site that runs `version` is without it; `None` where it is without it now.
    fn floor(&self, version: SlurmVersion) -> Option<SlurmVersion> {
        let is_branch = |mended: &&SlurmVersion| mended.branch() == version.branch();
        if let Some(mended) = self.mended.iter().find(is_branch) {
            return (version < *mended).then_some(*mended);
        }
        let has_it = self.unmended.contains(&version.branch());
        self.mended.iter().find(|mended| has_it && **mended > version).copied()
    }
}

/// Every one that is known.
pub const FAULTS: [Fault; 10] = [
    Fault {
        name: "CVE-2025-43904",
        meaning: "a coordinator of an account can add users with an administrator's rights",
        mended: &[SlurmVersion::new(23, 11, 11), SlurmVersion::new(24, 5, 8), SlurmVersion::new(24, 11, 5)],
        unmended: &[],
    },
    Fault {
        name: "CVE-2024-48936",
        meaning: "with stepmgr, processes can be started in other users' jobs",
        mended: &[SlurmVersion::new(24, 5, 4)],
        unmended: &[],
    },
    Fault {
        name: "CVE-2024-42511",
        meaning: "with switch/hpe_slingshot or switch/nvidia_imex, a job reaches others' channels",
        mended: &[SlurmVersion::new(23, 11, 9), SlurmVersion::new(24, 5, 2)],
        unmended: &[],
    },
    Fault {
        name: "GRES after a restart of slurmctld",
        meaning: "until a node whose State in slurm.conf is not UNKNOWN has registered, jobs may get wrong GRES of it",
        mended: &[SlurmVersion::new(24, 11, 1)],
        unmended: &[(23, 11), (24, 5)],
    },
    Fault {
        name: "nodes with invalid GRES",
        meaning: "slurmctld may crash while it tests jobs against them",
        mended: &[SlurmVersion::new(24, 11, 1)],
        unmended: &[],
    },
    Fault {
        name: "shards asked for by task",
        meaning: "they may be taken from a GPU that cannot hold them",
        mended: &[SlurmVersion::new(25, 5, 2)],
        unmended: &[],
    },
    Fault {
        name: "typed GRES of a reservation",
        meaning: "a job outside of it may get them, as a GPU of the pool is typed",
        mended: &[SlurmVersion::new(25, 5, 3)],
        unmended: &[],
    },
    Fault {
        name: "reservations of GRES",
        meaning: "one may begin while its GRES are in use",
        mended: &[SlurmVersion::new(25, 11, 2)],
        unmended: &[],
    },
    Fault {
        name: "'scontrol reconfigure' after a change of gres.conf",
        meaning: "slurmctld may crash, and a pool is made by such a change",
        mended: &[SlurmVersion::new(25, 11, 3)],
        unmended: &[],
    },
    Fault {
        name: "RestrictedCoresPerGPU with shards",
        meaning: "of the jobs that share a GPU one alone may have its cores",
        mended: &[SlurmVersion::new(25, 11, 3)],
        unmended: &[],
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    fn faults((major, minor, patch): (u32, u32, u32)) -> Vec<String> {
        let of = SlurmVersion::new(major, minor, patch).faults().into_iter();
        of.map(|(fault, floor)| format!("{} {floor}", fault.name)).collect()
    }

    #[test]
    fn a_release_has_the_faults_that_were_mended_after_it() {
        const RESTART: &str = "GRES after a restart of slurmctld 24.11.1";
        assert_eq!(faults((23, 11, 8)), ["CVE-2025-43904 23.11.11", "CVE-2024-42511 23.11.9", RESTART]);
        assert_eq!(faults((24, 5, 3)), ["CVE-2025-43904 24.05.8", "CVE-2024-48936 24.05.4", RESTART]);
        // Of one that its own branch never mended, the floor is of another.
        assert_eq!(faults((24, 5, 8)), [RESTART]);
        assert_eq!(
            faults((25, 11, 2)),
            [
                "'scontrol reconfigure' after a change of gres.conf 25.11.3",
                "RestrictedCoresPerGPU with shards 25.11.3"
            ]
        );
        for mended in [(24, 11, 5), (25, 5, 3), (25, 11, 3), (26, 5, 0), (27, 5, 0)] {
            assert_eq!(faults(mended), Vec::<String>::new(), "{mended:?}");
        }
    }

    #[test]
    fn what_books_a_gpu_twice_is_refused() {
        for refused in [(22, 5, 8), (23, 11, 6), (25, 5, 0)] {
            let (major, minor, patch) = refused;
            assert!(SlurmVersion::new(major, minor, patch).refusal().is_some(), "{refused:?}");
        }
        for fine in [(23, 11, 7), (24, 5, 0), (24, 11, 5), (25, 5, 1), (26, 5, 5)] {
            let (major, minor, patch) = fine;
            assert_eq!(SlurmVersion::new(major, minor, patch).refusal(), None, "{fine:?}");
        }
    }

    #[test]
    fn the_guide_to_slurm_names_every_fault() {
        let guide = include_str!("../../../docs/slurm.md");
        for fault in &FAULTS {
            assert!(guide.contains(fault.name), "{}", fault.name);
            for mended in fault.mended {
                assert!(guide.contains(&mended.to_string()), "{} in {mended}", fault.name);
            }
        }
    }
}
