//! What devices tell in numbers: each [`Metric`] with its word, its unit and every text that people see of it, and
//! [`Metrics`], the values that are known. Whoever carries or shows a value goes by its metric and names none.

mod catalogue;
mod json;
mod source;
#[cfg(test)]
mod tests;
mod values;

pub use catalogue::{Bar, Family, Metric, Unit};
pub(crate) use json::{Form, MEANS, PROFILE};
pub use source::{MetricSource, Quality, Throttle};
pub use values::{Measured, Metrics};
