//! A panic inside a hook makes no noise, and one outside still does. A process of its own: the panic hook is shared by all
//! tests of a process.

use pillion_slurm_spank::ffi::slurm::fail_open;
use std::panic::{catch_unwind, panic_any, set_hook};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A panic payload whose own drop panics.
struct DropsBadly;

impl Drop for DropsBadly {
    fn drop(&mut self) {
        panic!("dropped");
    }
}

#[test]
fn a_panic_is_silent_inside_a_hook_and_loud_elsewhere() {
    static HEARD: AtomicUsize = AtomicUsize::new(0);
    set_hook(Box::new(|_| {
        HEARD.fetch_add(1, Ordering::SeqCst);
    }));
    assert_eq!(fail_open(|| panic!("inside")), 0);
    assert_eq!(fail_open(|| panic_any(DropsBadly)), 0);
    assert_eq!(HEARD.load(Ordering::SeqCst), 0);
    assert!(catch_unwind(|| panic!("outside")).is_err());
    assert_eq!(HEARD.load(Ordering::SeqCst), 1);
}
