//! The story of the demo: placeholder for the steps that it shows.
