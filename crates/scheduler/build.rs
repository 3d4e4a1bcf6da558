//! Tells Cargo that the migrations are part of the program: a new one must be embedded.

fn main() {
    println!("cargo:rerun-if-changed=../../migrations");
}
