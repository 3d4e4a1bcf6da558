//! How fast tenants run together: one interface, behind which the first contention model and later the learned one stand.

mod contention;
mod crowding;
mod filling;
mod interface;
mod learned;

pub use contention::Contention;
pub(crate) use interface::BOUND_DEVIATIONS;
pub use interface::{Hope, InterferenceModel, PredictError, SpeedEstimate, TenantInput, Terms};
pub use learned::{Learned, Owners, TrainOptions, train};
