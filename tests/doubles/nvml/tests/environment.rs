//! A variable that would switch NVML off for us is taken away before the library is opened. Alone in its program: the
//! environment belongs to all threads.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(unsafe_code, reason = "sets a variable of this very process")]

mod support;

use pillion_device::Backend as _;
use pillion_device::nvidia::{Nvidia, NvidiaSettings};
use support::Node;

const VARIABLE: &str = "NVML_MPS_DEVICE_ENUMERATION";

#[test]
fn mps_enumeration_is_switched_off_first() {
    let node = Node::start("h100", 1);
    // SAFETY: the only other thread is the simulated driver's, which does not look at the environment.
    unsafe { std::env::set_var(VARIABLE, "1") };
    let refused = nvml_wrapper::Nvml::builder().lib_path(node.library().as_os_str()).init().unwrap();
    assert!(refused.device_count().is_err(), "the double refuses everything else");
    drop(refused);
    let settings = NvidiaSettings { library: Some(node.library()), ..NvidiaSettings::default() };
    let mut nvidia = Nvidia::new(settings, None);
    assert_eq!(nvidia.devices().unwrap(), node.descriptions());
    let _load = node.load(0, "bert-finetune", &[]);
    assert_eq!(nvidia.processes(0).unwrap(), node.simulated().processes(0).unwrap());
    assert_eq!(std::env::var_os(VARIABLE), None);
}
