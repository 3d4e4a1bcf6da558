//! `pillion-scheduler-failpoints`: the same program, stopped or slowed at the points that the environment variable
//! `FAILPOINTS` names. For the end-to-end tests; never installed.

use std::process::ExitCode;

fn main() -> ExitCode {
    let scenario = fail::FailScenario::setup();
    let code = pillion_scheduler::program::main();
    scenario.teardown();
    code
}
