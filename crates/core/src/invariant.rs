//! What must hold at every moment, checked by the simulation after each step and by production at each scan. A violation
//! in production is counted and stops releases on that node; it is never repaired by touching a running job.
//!
//! | id | invariant |
//! |---|---|
//! | P-1 | a job is an active member of at most one decision |
//! | P-2 | the memory that tenants of a device were admitted with never exceeds the device's |
//! | P-3 | no device has more than 100 shards booked |
//! | P-4 | nobody holds a whole GPU by `gres/gpu` in a pool |
//! | P-5 | instances that tenants of a device have can lie on it together; those of one were planned together |
//! | P-6 | tenants of one instance are one user's |
//! | R-1 | a start is released at most once |
//! | R-2 | tenants that run together on a device were planned together, or each in an instance of its own |

use crate::device::DeviceDescription;
use crate::ids::{GresType, JobStart, NodeName, SlurmJobId, UserId};
use crate::mig::Slot;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Which invariant was violated, and by whom.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
pub enum Violation {
    /// P-1: a job is an active member of at most one decision.
    #[error("P-1: job {0} is an active member of more than one decision")]
    TwoDecisions(SlurmJobId),
    /// P-2: the tenants of a device fit into its memory.
    #[error(
        "P-2: {node} {gres_type}: tenants were admitted with {admitted_bytes} bytes on a device of {device_bytes}"
    )]
    MemoryOvercommitted {
        /// The device's node.
        node: NodeName,
        /// The device, by its GRES type.
        gres_type: GresType,
        /// What the tenants may use together.
        admitted_bytes: u64,
        /// What the device has.
        device_bytes: u64,
    },
    /// P-3: no more shards of a device are booked than it has.
    #[error("P-3: {node} {gres_type}: {shards} shards are booked, at most 100 are allowed")]
    ShardsOverbooked {
        /// The device's node.
        node: NodeName,
        /// The device, by its GRES type.
        gres_type: GresType,
        /// What is booked.
        shards: u32,
    },
    /// P-4: nobody holds a whole GPU on a node of the pool.
    #[error("P-4: job {job_id} holds a whole GPU on pool node {node}")]
    WholeGpuInPool {
        /// The node of the pool.
        node: NodeName,
        /// The job that holds the GPU.
        job_id: SlurmJobId,
    },
    /// P-5: the instances of a device's tenants can lie on it together.
    #[error("P-5: {node} {gres_type}: the instances of its tenants cannot lie on it together: {why}")]
    InstancesCollide {
        /// The device's node.
        node: NodeName,
        /// The device, by its GRES type.
        gres_type: GresType,
        /// Why not.
        why: String,
    },
    /// P-6: an instance is one user's.
    #[error("P-6: {node} {gres_type}: {first} and {second} are two users' and share the instance {slot}")]
    UsersInOneInstance {
        /// The device's node.
        node: NodeName,
        /// The device, by its GRES type.
        gres_type: GresType,
        /// The instance.
        slot: Slot,
        /// One of the two jobs.
        first: SlurmJobId,
        /// The other of the two jobs.
        second: SlurmJobId,
    },
    /// a start is released at most once.
    #[error("R-1: start {0} was released more than once")]
    ReleasedTwice(JobStart),
    /// tenants run together only as a decision says.
    #[error("R-2: {node} {gres_type}: {first} and {second} run together and were not planned together")]
    UnplannedNeighbour {
        /// The device's node.
        node: NodeName,
        /// The device, by its GRES type.
        gres_type: GresType,
        /// One of the two jobs.
        first: SlurmJobId,
        /// The other of the two jobs.
        second: SlurmJobId,
    },
}

impl Violation {
    /// The invariant's id, for metrics.
    pub const fn id(&self) -> &'static str {
        match self {
            Self::TwoDecisions(_) => "P-1",
            Self::MemoryOvercommitted { .. } => "P-2",
            Self::ShardsOverbooked { .. } => "P-3",
            Self::WholeGpuInPool { .. } => "P-4",
            Self::InstancesCollide { .. } => "P-5",
            Self::UsersInOneInstance { .. } => "P-6",
            Self::ReleasedTwice(_) => "R-1",
            Self::UnplannedNeighbour { .. } => "R-2",
        }
    }
}

impl Violation {
    /// As everybody may read it: who is concerned, and with how much, is for operators.
    pub fn for_everybody(&self) -> String {
        format!("{} does not hold here; operators see more", self.id())
    }
}

/// A job on a device now, as Slurm reports it, with what was planned for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Occupant {
    /// The node on which it runs.
    pub node: NodeName,
    /// On which device.
    pub gres_type: GresType,
    /// The job that runs there.
    pub job_id: SlurmJobId,
    /// Whose it is.
    pub uid: UserId,
    /// What Slurm booked.
    pub shards: u32,
    /// The group of decisions that its tenants were planned in (a joiner carries its host's), `None` without a decision.
    pub group: Option<u64>,
    /// What it was admitted with, where it was.
    pub memory_bytes: Option<u64>,
    /// The instance that it was planned in; absent = it is in none.
    pub instance: Option<Slot>,
}

/// Checks P-2, P-3, P-5, P-6 and R-2 over everything that runs. `device_of` gives each device, `None` = unknown.
pub fn check_occupants<'d>(
    occupants: &[Occupant],
    device_of: impl Fn(&NodeName, &GresType) -> Option<&'d DeviceDescription>,
) -> Vec<Violation> {
    let mut devices: BTreeMap<(&NodeName, &GresType), Vec<&Occupant>> = BTreeMap::new();
    for occupant in occupants {
        devices.entry((&occupant.node, &occupant.gres_type)).or_default().push(occupant);
    }
    let mut violations = Vec::new();
    for ((node, gres_type), tenants) in devices {
        let shards: u32 = tenants.iter().map(|tenant| tenant.shards).sum();
        if shards > 100 {
            violations.push(Violation::ShardsOverbooked {
                node: node.clone(),
                gres_type: gres_type.clone(),
                shards,
            });
        }
        let admitted_bytes: u64 = tenants.iter().filter_map(|tenant| tenant.memory_bytes).sum();
        let device = device_of(node, gres_type);
        if let Some(device_bytes) = device.map(|device| device.memory_bytes).filter(|_| tenants.len() > 1)
            && admitted_bytes > device_bytes
        {
            let (node, gres_type) = (node.clone(), gres_type.clone());
            violations.push(Violation::MemoryOvercommitted { node, gres_type, admitted_bytes, device_bytes });
        }
        // Those who were planned into one together have one.
        let planned: BTreeSet<(Slot, Option<u64>)> =
            tenants.iter().filter_map(|tenant| Some((tenant.instance?, tenant.group))).collect();
        let slots: Vec<Slot> = planned.into_iter().map(|(slot, _)| slot).collect();
        let geometry = device.and_then(|device| device.geometry.as_ref());
        if let Some(Err(why)) = geometry.map(|geometry| geometry.check(&slots)) {
            let (node, gres_type, why) = (node.clone(), gres_type.clone(), why.to_string());
            violations.push(Violation::InstancesCollide { node, gres_type, why });
        }
        violations.extend(users_in_one_instance(&tenants));
        violations.extend(unplanned_neighbours(&tenants));
    }
    violations
}

fn users_in_one_instance<'a>(tenants: &'a [&Occupant]) -> impl Iterator<Item = Violation> + 'a {
    tenants.iter().enumerate().filter_map(|(at, second)| {
        let slot = second.instance?;
        let first =
            tenants[..at].iter().find(|first| first.instance == Some(slot) && first.uid != second.uid)?;
        Some(Violation::UsersInOneInstance {
            node: first.node.clone(),
            gres_type: first.gres_type.clone(),
            slot,
            first: first.job_id,
            second: second.job_id,
        })
    })
}

fn unplanned_neighbours<'a>(tenants: &'a [&Occupant]) -> impl Iterator<Item = Violation> + 'a {
    let are_together = |pair: &[&Occupant]| pair[0].group.is_some() && pair[0].group == pair[1].group;
    let are_walled = |pair: &[&Occupant]| pair.iter().all(|one| one.instance.is_some());
    tenants.windows(2).filter(move |pair| !are_together(pair) && !are_walled(pair)).map(|pair| {
        Violation::UnplannedNeighbour {
            node: pair[0].node.clone(),
            gres_type: pair[0].gres_type.clone(),
            first: pair[0].job_id,
            second: pair[1].job_id,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Mechanism;
    use crate::ids::DeviceUuid;
    use crate::mig::Geometry;

    fn occupant(job: u32, shards: u32, group: Option<u64>) -> Occupant {
        Occupant {
            node: NodeName::new("n1"),
            gres_type: GresType::new("g0"),
            job_id: SlurmJobId::plain(job),
            uid: UserId(1000),
            shards,
            group,
            memory_bytes: Some(10),
            instance: None,
        }
    }

    fn device(memory_bytes: u64, geometry: Option<Geometry>) -> DeviceDescription {
        DeviceDescription {
            index: 0,
            uuid: DeviceUuid::new("GPU-0"),
            model: "h100".to_owned(),
            memory_bytes,
            gres_type: GresType::new("g0"),
            mechanism: Mechanism::Mps,
            instances: None,
            geometry,
            links: std::collections::BTreeMap::new(),
        }
    }

    #[test]
    fn a_planned_pair_that_fits_is_fine() {
        let pair = [occupant(1, 40, Some(7)), occupant(2, 60, Some(7))];
        let device = device(20, None);
        assert_eq!(check_occupants(&pair, |_, _| Some(&device)), []);
    }

    #[test]
    fn everybody_reads_which_invariant_does_not_hold_and_no_job() {
        let found = check_occupants(&[occupant(4711, 50, None), occupant(4712, 50, None)], |_, _| None);
        assert!(found[0].to_string().contains("4711"), "{found:?}");
        assert_eq!(found[0].for_everybody(), "R-2 does not hold here; operators see more");
    }

    #[test]
    fn each_violation_is_found() {
        let device = device(19, None);
        let ids = |occupants: &[Occupant]| -> Vec<&'static str> {
            check_occupants(occupants, |_, _| Some(&device)).iter().map(Violation::id).collect()
        };
        assert_eq!(ids(&[occupant(1, 101, None)]), ["P-3"]);
        assert_eq!(ids(&[occupant(1, 50, Some(7)), occupant(2, 50, Some(7))]), ["P-2"]);
        assert_eq!(ids(&[occupant(1, 50, Some(7)), occupant(2, 50, Some(8))]), ["P-2", "R-2"]);
        assert_eq!(ids(&[occupant(1, 50, None), occupant(2, 50, None)]), ["P-2", "R-2"]);
    }

    #[test]
    fn tenants_of_instances_need_not_be_planned_together_and_may_not_collide() {
        let device = device(100, Geometry::of_model("h100").cloned());
        let walled = |job, slot: &str| Occupant {
            instance: Some(slot.parse().expect("an instance")),
            ..occupant(job, 21, Some(u64::from(job)))
        };
        let ids = |occupants: &[Occupant]| -> Vec<&'static str> {
            check_occupants(occupants, |_, _| Some(&device)).iter().map(Violation::id).collect()
        };
        assert_eq!(ids(&[walled(1, "3g.40gb@0"), walled(2, "3g.40gb@4")]), [""; 0]);
        assert_eq!(ids(&[walled(1, "4g.40gb@0"), walled(2, "2g.20gb@2")]), ["P-5"]);
        assert_eq!(ids(&[walled(1, "3g.40gb@0"), occupant(2, 50, Some(2))]), ["R-2"], "no wall around it");
        let of =
            |occupant: Occupant, group, uid| Occupant { group: Some(group), uid: UserId(uid), ..occupant };
        let together = |group, uid| {
            [walled(1, "3g.40gb@4"), of(walled(2, "3g.40gb@4"), group, uid), walled(3, "1g.10gb@0")]
        };
        assert_eq!(ids(&together(1, 1000)), [""; 0], "planned into one together");
        assert_eq!(ids(&together(2, 1000)), ["P-5"]);
        assert_eq!(ids(&together(1, 1001)), ["P-6"]);
    }
}
