//! What a mechanism puts into the environment of its tenants.

/// One variable and its value.
pub type Variable = (String, String);
