//! Which copies of the plugin there are to be, and which of them is the one that plugstack.conf names. Pure.

use pillion_slurm_spank::version::SlurmVersion;
use std::collections::BTreeSet;

/// What is on the machine.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Found {
    /// The releases of Slurm whose plugins are installed.
    pub installed: BTreeSet<Release>,
    /// Of these, the one of which its site says that it runs.
    pub current: Option<Release>,
    /// The releases for which there is a copy, the one that was stamped last first.
    pub copies: Vec<Release>,
    /// The release whose copy the link names.
    pub linked: Option<Release>,
}

/// What is to be.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// Copies to be there as the built plugin of now has them.
    pub stamped: BTreeSet<Release>,
    /// Copies that go.
    pub removed: BTreeSet<Release>,
    /// Whose copy the link names; `None` where it is left as it is.
    pub linked: Option<Release>,
}

/// A release of Slurm, in the order in which they came out: major, minor.
pub type Release = (u8, u8);

/// How a release is written.
pub fn shown((major, minor): Release) -> String {
    SlurmVersion { major, minor }.to_string()
}

/// Stamps what is installed, and the copy of before, so that a program of the Slurm of before finds it until it has ended. Where
/// several are installed the link goes to the one of which its site says that it runs, else stays with the one that it has, or goes
/// to the newest. Without a Slurm nothing is changed but that the copies are those of the built plugin.
pub fn plan(found: &Found) -> Plan {
    let kept_count = if found.installed.is_empty() { found.copies.len() } else { 1 };
    let mut stamped = found.installed.clone();
    stamped.extend(found.copies.iter().filter(|copy| !found.installed.contains(copy)).take(kept_count));
    let removed = found.copies.iter().copied().filter(|copy| !stamped.contains(copy)).collect();
    let stays = found.linked.filter(|linked| found.installed.contains(linked));
    let linked = found.current.or(stays).or_else(|| found.installed.last().copied());
    Plan { stamped, removed, linked }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(installed: &[Release], copies: &[Release], linked: Option<Release>) -> Found {
        let installed = installed.iter().copied().collect();
        Found { installed, current: None, copies: copies.to_vec(), linked }
    }

    fn planned(stamped: &[Release], removed: &[Release], linked: Option<Release>) -> Plan {
        Plan {
            stamped: stamped.iter().copied().collect(),
            removed: removed.iter().copied().collect(),
            linked,
        }
    }

    #[test]
    fn a_first_slurm_is_stamped_and_linked() {
        assert_eq!(plan(&found(&[(24, 11)], &[], None)), planned(&[(24, 11)], &[], Some((24, 11))));
    }

    /// A job that slurmd of before starts while it has not been started again finds its plugin.
    #[test]
    fn the_link_follows_an_upgrade_and_the_copy_of_before_is_kept() {
        let before = found(&[(25, 5)], &[(24, 11)], Some((24, 11)));
        assert_eq!(plan(&before), planned(&[(24, 11), (25, 5)], &[], Some((25, 5))));
        let again = found(&[(25, 11)], &[(25, 5), (24, 11)], Some((25, 5)));
        assert_eq!(plan(&again), planned(&[(25, 5), (25, 11)], &[(24, 11)], Some((25, 11))));
    }

    #[test]
    fn the_link_goes_where_the_site_says() {
        let both = found(&[(24, 11), (25, 5)], &[(24, 11)], Some((24, 11)));
        for current in [(24, 11), (25, 5)] {
            let planned = plan(&Found { current: Some(current), ..both.clone() });
            assert_eq!((planned.linked, planned.stamped.len()), (Some(current), 2));
        }
    }

    /// Back to an older one: the link goes back, too.
    #[test]
    fn the_link_follows_a_downgrade() {
        let before = found(&[(24, 11)], &[(25, 5), (24, 11)], Some((25, 5)));
        assert_eq!(plan(&before), planned(&[(24, 11), (25, 5)], &[], Some((24, 11))));
    }

    #[test]
    fn of_several_the_link_stays_with_one_that_is_installed() {
        let two = found(&[(24, 11), (25, 5)], &[(24, 11)], Some((24, 11)));
        assert_eq!(plan(&two), planned(&[(24, 11), (25, 5)], &[], Some((24, 11))));
        let other = found(&[(24, 11), (25, 5)], &[(23, 11)], Some((23, 11)));
        assert_eq!(plan(&other), planned(&[(23, 11), (24, 11), (25, 5)], &[], Some((25, 5))));
    }

    /// Between the removal of one Slurm and the installation of the next nothing is taken away.
    #[test]
    fn without_a_slurm_all_stays() {
        let none = found(&[], &[(25, 5), (24, 11)], Some((25, 5)));
        assert_eq!(plan(&none), planned(&[(24, 11), (25, 5)], &[], None));
        assert_eq!(plan(&found(&[], &[], None)), Plan::default());
    }
}
