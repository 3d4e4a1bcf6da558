//! Who may import whom, asked of cargo itself.
