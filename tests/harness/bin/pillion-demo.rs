//! `pillion-demo`: starts a cluster inside a testbed and runs the demo's story on it.

fn main() {}
