//! How much more of a device than their profiles say workloads were seen to use beside others: what their next runs are booked
//! with besides, where the site has it so.

use super::StoreError;
use async_trait::async_trait;
use pillion_core::{UserId, WorkloadKey};

/// Over how many runs the mean is taken at most; of older ones less and less remains.
pub const RUNS_MAX: u32 = 10;

/// What is known of one workload of a user, or of all of his together: a name is anybody's to make up.
#[derive(Debug, Clone, PartialEq)]
pub struct Charge {
    pub uid: UserId,
    /// `None` = of all of his.
    pub workload: Option<WorkloadKey>,
    /// The mean of what his runs used beyond their profiles, of a device, 0..=1.
    pub beyond_fraction: f64,
}

/// What runs used beyond their profiles.
#[async_trait]
pub trait Charges: Send + Sync {
    /// Of each user who ever used more than his profiles say all that is known, in the order of uids and workloads; of all of
    /// his together first.
    async fn charges(&self) -> Result<Vec<Charge>, StoreError>;
}
