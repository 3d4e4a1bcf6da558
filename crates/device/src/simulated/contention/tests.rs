//! Properties of the mechanism.
