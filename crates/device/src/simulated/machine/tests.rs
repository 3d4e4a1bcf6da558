//! The machine steps right, and refuses as the real ones do.

use super::*;
use crate::{MpsPlace, MpsSettings, MpsState};
use pillion_core::Fraction;
use pillion_core::metric::Metric;
use std::path::PathBuf;

const ALICE: UserId = UserId(1001);
const BOB: UserId = UserId(1002);
const ROOT: UserId = UserId(0);

fn machine(model: &str, count: usize) -> Machine {
    Machine::new(&MachineConfig::plain("n1", model, count)).unwrap()
}

fn settings(multi_user: bool) -> MpsSettings {
    MpsSettings {
        pipe_directory: PathBuf::from("/run/mps/0/pipe"),
        log_directory: PathBuf::from("/run/mps/0/log"),
        multi_user,
        partitions: false,
        users: std::collections::BTreeSet::new(),
        cap_default: None,
        memory_limit_bytes_default: None,
    }
}

fn load(name: &str, environment: &[(&str, &str)]) -> AttachRequest {
    AttachRequest {
        workload: name.to_owned(),
        seconds: Some(100.0),
        environment: environment
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect(),
        ..AttachRequest::default()
    }
}

const PIPE: (&str, &str) = ("CUDA_MPS_PIPE_DIRECTORY", "/run/mps/0/pipe");

fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

fn speed(machine: &Machine, id: ClientId) -> f64 {
    machine.progress(id).unwrap().speed_fraction
}

fn phase(machine: &Machine, id: ClientId) -> Phase {
    machine.progress(id).unwrap().phase
}

#[test]
fn work_takes_its_time_alone_divided_by_the_time_scale() {
    let mut machine =
        Machine::new(&MachineConfig { time_scale: 60.0, ..MachineConfig::plain("n1", "h200", 1) }).unwrap();
    let id = machine.attach(&load("gemm-hog", &[]), 7, ALICE).unwrap();
    machine.advance(seconds(1.0));
    let progress = machine.progress(id).unwrap();
    assert!((progress.done_seconds - 60.0).abs() < 1e-6, "{progress:?}");
    machine.advance(seconds(10.0));
    let progress = machine.progress(id).unwrap();
    assert_eq!(progress.phase, Phase::Finished);
    assert!((progress.elapsed_seconds - 100.0 / 60.0).abs() < 1e-6, "{progress:?}");
}

#[test]
fn one_long_step_is_the_same_as_many_short_ones() {
    let run = |steps: u32| {
        let mut machine = machine("h200", 1);
        machine.start_mps(ROOT, &MpsPlace::device(0), &settings(false)).unwrap();
        let one = machine.attach(&load("gemm-hog", &[PIPE]), 7, ALICE).unwrap();
        let short = AttachRequest { seconds: Some(30.0), ..load("llama-infer", &[PIPE]) };
        machine.attach(&short, 8, ALICE).unwrap();
        for _ in 0..steps {
            machine.advance(seconds(120.0) / steps);
        }
        let energy = machine.read(0, &mut None).unwrap().metrics.get(Metric::EnergyJoules).unwrap();
        (machine.progress(one).unwrap(), energy)
    };
    let ((coarse, coarse_energy), (fine, fine_energy)) = (run(1), run(997));
    assert!((coarse.elapsed_seconds - fine.elapsed_seconds).abs() < 1e-3, "{coarse:?} {fine:?}");
    assert!((coarse.done_seconds - fine.done_seconds).abs() < 1e-3);
    assert!((coarse_energy / fine_energy - 1.0).abs() < 1e-6, "{coarse_energy} {fine_energy}");
}

#[test]
fn energy_only_grows_and_an_idle_device_draws_its_idle_power() {
    let mut machine =
        Machine::new(&MachineConfig { noise_fraction: 0.02, ..MachineConfig::plain("n1", "h100", 2) })
            .unwrap();
    machine.attach(&load("bert-finetune", &[("CUDA_VISIBLE_DEVICES", "1")]), 7, ALICE).unwrap();
    let mut last = [0.0; 2];
    for _ in 0..300 {
        machine.advance(seconds(1.0));
        for index in 0..2 {
            let reading = machine.read(index, &mut None).unwrap();
            let energy = reading.metrics.get(Metric::EnergyJoules).unwrap();
            assert!(energy > last[index as usize]);
            last[index as usize] = energy;
        }
    }
    assert!((last[0] / (300.0 * 70.0) - 1.0).abs() < 0.01, "{last:?}");
    assert!(last[1] > 2.0 * last[0], "{last:?}");
}

#[test]
fn a_percentage_is_a_speed_for_a_client_and_nothing_for_others() {
    let mut machine = machine("h200", 1);
    machine.start_mps(ROOT, &MpsPlace::device(0), &settings(false)).unwrap();
    let percentage = ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "50");
    let client = machine.attach(&load("gemm-hog", &[PIPE, percentage]), 7, ALICE).unwrap();
    assert!((speed(&machine, client) - 0.5).abs() < 0.03, "{}", speed(&machine, client));
    machine.detach(client);
    let stray = machine.attach(&load("gemm-hog", &[percentage]), 7, ALICE).unwrap();
    assert!((speed(&machine, stray) - 1.0).abs() < 1e-6);
}

#[test]
fn whoever_has_no_daemon_takes_turns_with_the_clients() {
    let mut machine = machine("h200", 1);
    machine.start_mps(ROOT, &MpsPlace::device(0), &settings(false)).unwrap();
    let one = machine.attach(&load("launch-bound", &[PIPE]), 7, ALICE).unwrap();
    let two = machine.attach(&load("gemm-hog", &[PIPE]), 8, ALICE).unwrap();
    let together = speed(&machine, two);
    machine.detach(two);
    let stray = machine.attach(&load("gemm-hog", &[]), 9, ALICE).unwrap();
    assert!(speed(&machine, stray) < together - 0.03, "{} {together}", speed(&machine, stray));
    assert_eq!(machine.mps(&MpsPlace::device(0)).unwrap().unwrap().client_pids, vec![7]);
    assert_eq!(phase(&machine, one), Phase::Running);
}

#[test]
fn one_user_at_a_time_unless_the_daemon_serves_many() {
    for multi_user in [false, true] {
        let mut machine = machine("h200", 1);
        machine.start_mps(ROOT, &MpsPlace::device(0), &settings(multi_user)).unwrap();
        let alice = machine.attach(&load("gromacs", &[PIPE]), 7, ALICE).unwrap();
        let bob = machine.attach(&load("gromacs", &[PIPE]), 8, BOB).unwrap();
        let status = machine.mps(&MpsPlace::device(0)).unwrap().unwrap();
        if multi_user {
            assert_eq!(phase(&machine, bob), Phase::Running);
            assert_eq!(status.server_uid, Some(ROOT));
            continue;
        }
        assert_eq!((phase(&machine, bob), speed(&machine, bob)), (Phase::Waiting, 0.0));
        assert_eq!((status.server_uid, status.client_pids), (Some(ALICE), vec![7]));
        machine.advance(seconds(200.0));
        assert_eq!(phase(&machine, alice), Phase::Finished);
        assert_eq!(phase(&machine, bob), Phase::Waiting, "a finished client is still there until it leaves");
        machine.detach(alice);
        assert_eq!(phase(&machine, bob), Phase::Running);
        assert!(machine.progress(bob).unwrap().elapsed_seconds >= 200.0, "its wait counts");
    }
}

#[test]
fn a_device_in_exclusive_process_mode_is_open_to_the_clients_of_its_server_and_to_nobody_else() {
    let mut machine = machine("h200", 2);
    machine.start_mps(ROOT, &MpsPlace::device(0), &settings(false)).unwrap();
    assert_eq!(machine.compute_mode(0).unwrap(), ComputeMode::Default);
    let refused = machine.set_compute_mode(ALICE, 0, ComputeMode::ExclusiveProcess).unwrap_err();
    assert!(matches!(refused, DeviceError::Refused { index: 0, .. }), "{refused}");
    machine.set_compute_mode(ROOT, 0, ComputeMode::ExclusiveProcess).unwrap();
    let first = machine.attach(&load("gemm-hog", &[PIPE]), 1, ALICE).unwrap();
    let second = machine.attach(&load("gemm-hog", &[PIPE]), 2, ALICE).unwrap();
    let without_mps = load("gemm-hog", &[("CUDA_VISIBLE_DEVICES", "0")]);
    let unavailable = Err(ClientError::Unavailable { index: 0 });
    assert_eq!(machine.attach(&without_mps, 3, ALICE), unavailable);
    for client in [first, second] {
        machine.detach(client);
    }
    assert_eq!(machine.attach(&without_mps, 3, ALICE), unavailable, "the server keeps the device");
    machine.attach(&load("gemm-hog", &[("CUDA_VISIBLE_DEVICES", "1")]), 4, ALICE).unwrap();
    machine.stop_mps(ROOT, &MpsPlace::device(0)).unwrap();
    let only = machine.attach(&without_mps, 5, ALICE).unwrap();
    assert_eq!(
        machine.attach(&without_mps, 6, ALICE),
        unavailable,
        "one process is one, with or without MPS"
    );
    machine.start_mps(ROOT, &MpsPlace::device(0), &settings(false)).unwrap();
    let client = load("gemm-hog", &[PIPE]);
    assert_eq!(machine.attach(&client, 7, ALICE), unavailable, "the server cannot open it either");
    machine.detach(only);
    machine.attach(&client, 7, ALICE).unwrap();
    machine.set_compute_mode(ROOT, 0, ComputeMode::Default).unwrap();
    machine.attach(&without_mps, 8, ALICE).unwrap();
}

#[test]
fn only_root_sets_up_sharing_and_only_where_there_is_some() {
    let mut machine = machine("h200", 2);
    let refused = machine.start_mps(ALICE, &MpsPlace::device(0), &settings(false)).unwrap_err();
    assert!(
        matches!(refused, DeviceError::Refused { .. }) && refused.to_string().contains("only root"),
        "{refused}"
    );
    machine.start_mps(ROOT, &MpsPlace::device(0), &settings(false)).unwrap();
    machine.start_mps(ROOT, &MpsPlace::device(0), &settings(false)).unwrap();
    assert!(matches!(
        machine.start_mps(ROOT, &MpsPlace::device(0), &settings(true)),
        Err(DeviceError::Busy { .. })
    ));
    assert!(
        matches!(
            machine.start_mps(ROOT, &MpsPlace::device(1), &settings(false)),
            Err(DeviceError::Refused { .. })
        ),
        "same directory"
    );
    assert!(matches!(machine.stop_mps(ALICE, &MpsPlace::device(0)), Err(DeviceError::Refused { .. })));
    assert!(matches!(machine.set_ccs_mode(ROOT, 0, 2), Err(DeviceError::Unsupported { .. })));
    assert!(matches!(
        machine.start_mps(ROOT, &MpsPlace::device(2), &settings(false)),
        Err(DeviceError::NoSuchDevice { index: 2 })
    ));
    let client = machine.attach(&load("gromacs", &[PIPE]), 7, ALICE).unwrap();
    assert!(machine.stop_mps(ROOT, &MpsPlace::device(0)).unwrap_err().is_transient());
    assert!(matches!(
        machine.terminate_mps_client(ROOT, &MpsPlace::device(0), 8),
        Err(DeviceError::Refused { .. })
    ));
    machine.terminate_mps_client(ROOT, &MpsPlace::device(0), 7).unwrap();
    assert!(matches!(machine.progress(client).unwrap().error, Some(ClientError::Mps { .. })));
    machine.stop_mps(ROOT, &MpsPlace::device(0)).unwrap();
    assert_eq!(machine.mps(&MpsPlace::device(0)).unwrap(), None);
}

#[test]
fn a_daemons_own_cap_and_limit_hold_for_clients_that_set_none() {
    let mut machine = machine("h200", 1);
    let strict = MpsSettings {
        cap_default: Some(Fraction::clamped(0.3)),
        memory_limit_bytes_default: Some(4 << 30),
        ..settings(false)
    };
    machine.start_mps(ROOT, &MpsPlace::device(0), &strict).unwrap();
    let small =
        |memory_bytes| AttachRequest { memory_bytes: Some(memory_bytes), ..load("gemm-hog", &[PIPE]) };
    let client = machine.attach(&small(1 << 30), 7, ALICE).unwrap();
    assert!((speed(&machine, client) - 0.3).abs() < 0.03, "{}", speed(&machine, client));
    assert!(matches!(machine.attach(&small(8 << 30), 8, ALICE), Err(ClientError::OutOfMemory { .. })));
}

#[test]
fn limits_that_change_hold_for_clients_that_come_after() {
    let mut machine = machine("h200", 1);
    machine.start_mps(ROOT, &MpsPlace::device(0), &settings(false)).unwrap();
    let free = machine.attach(&load("gemm-hog", &[PIPE]), 7, ALICE).unwrap();
    let strict = MpsSettings { memory_limit_bytes_default: Some(4 << 30), ..settings(false) };
    machine.start_mps(ROOT, &MpsPlace::device(0), &strict).unwrap();
    let large = AttachRequest { memory_bytes: Some(8 << 30), ..load("gemm-hog", &[PIPE]) };
    assert!(matches!(machine.attach(&large, 8, ALICE), Err(ClientError::OutOfMemory { .. })));
    assert_eq!(phase(&machine, free), Phase::Running);
    assert_eq!(machine.tenants(0).unwrap()[0].memory_bytes_max, None, "it came before");
    let larger = MpsSettings { memory_limit_bytes_default: Some(16 << 30), ..settings(false) };
    machine.start_mps(ROOT, &MpsPlace::device(0), &larger).unwrap();
    machine.attach(&large, 9, ALICE).unwrap();
}

#[test]
fn memory_is_counted_refused_and_freed() {
    let mut machine = machine("v100", 1);
    let of = |gib: u64| AttachRequest { memory_bytes: Some(gib << 30), ..load("launch-bound", &[]) };
    let first = machine.attach(&of(20), 7, ALICE).unwrap();
    machine.advance(seconds(20.0));
    let used = machine.read(0, &mut None).unwrap().metrics.bytes(Metric::MemoryBytesUsed).unwrap();
    assert_eq!(used, (20 << 30) + (300 << 20));
    assert_eq!(machine.processes(0).unwrap(), vec![DeviceProcess { pid: 7, memory_bytes: Some(used) }]);
    let refused = machine.attach(&of(30), 8, ALICE).unwrap_err();
    assert!(matches!(refused, ClientError::OutOfMemory { index: 0, .. }), "{refused}");
    // Fits at the start, and not once grown: whoever allocates is the one to fail.
    let late = machine.attach(&of(14), 9, ALICE).unwrap();
    machine.advance(seconds(20.0));
    let progress = machine.progress(late).unwrap();
    assert!(matches!(progress.error, Some(ClientError::OutOfMemory { .. })), "{progress:?}");
    assert_eq!(phase(&machine, first), Phase::Running);
    machine.detach(first);
    machine.detach(late);
    assert_eq!(machine.read(0, &mut None).unwrap().metrics.bytes(Metric::MemoryBytesUsed), Some(0));
    assert!(machine.processes(0).unwrap().is_empty());
}

#[test]
fn a_pinned_limit_counts_for_clients_only() {
    let mut machine = machine("h200", 1);
    machine.start_mps(ROOT, &MpsPlace::device(0), &settings(false)).unwrap();
    let limit = ("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=4G");
    let refused = machine.attach(&load("gemm-hog", &[PIPE, limit]), 7, ALICE).unwrap_err();
    assert!(matches!(refused, ClientError::OutOfMemory { .. }), "{refused}");
    machine.attach(&load("gemm-hog", &[limit]), 7, ALICE).unwrap();
}

#[test]
fn a_device_holds_so_many_processes() {
    let mut machine = machine("h200", 1);
    for pid in 0..8 {
        machine.attach(&load("launch-bound", &[]), pid, ALICE).unwrap();
    }
    let refused = machine.attach(&load("launch-bound", &[]), 8, ALICE).unwrap_err();
    assert_eq!(refused, ClientError::TooManyClients { index: 0, limit: 8 });
}

#[test]
fn ccs_splits_statically_and_another_mode_waits_until_the_tile_is_idle() {
    let mut machine = machine("max-1550", 2);
    let mode = |mode| load("gemm-hog", &[("ZE_AFFINITY_MASK", "0"), ("ZEX_NUMBER_OF_CCS", mode)]);
    assert_eq!(machine.ccs_mode(0).unwrap(), None);
    let half = machine.attach(&mode("0:2"), 7, ALICE).unwrap();
    let alone = speed(&machine, half);
    assert!((alone - 0.5).abs() < 0.05, "alone in mode 2: {alone}");
    let other = machine.attach(&mode("0:2"), 8, BOB).unwrap();
    assert!((speed(&machine, other) - alone).abs() < 0.1 && (speed(&machine, half) - alone).abs() < 0.1);
    let whole = machine.attach(&mode("0:1"), 9, ALICE).unwrap();
    assert_eq!((phase(&machine, whole), machine.ccs_mode(0).unwrap()), (Phase::Waiting, Some(2)));
    assert!(machine.set_ccs_mode(ROOT, 0, 1).unwrap_err().is_transient());
    assert!(matches!(machine.set_ccs_mode(ROOT, 0, 3), Err(DeviceError::Refused { .. })));
    machine.set_ccs_mode(ROOT, 0, 2).unwrap();
    machine.detach(half);
    assert_eq!(phase(&machine, whole), Phase::Waiting);
    machine.detach(other);
    assert_eq!((phase(&machine, whole), machine.ccs_mode(0).unwrap()), (Phase::Running, Some(1)));
    assert!((speed(&machine, whole) - 1.0).abs() < 1e-6);
    assert_eq!(machine.ccs_mode(1).unwrap(), None);
}

#[test]
fn a_third_tenant_in_mode_2_takes_turns_with_the_first() {
    let mut machine = machine("max-1550", 1);
    let request = load("gemm-hog", &[("ZEX_NUMBER_OF_CCS", "0:2")]);
    let ids: Vec<ClientId> = (0..3).map(|pid| machine.attach(&request, pid, ALICE).unwrap()).collect();
    let speeds: Vec<f64> = ids.iter().map(|id| speed(&machine, *id)).collect();
    assert!(speeds[0] < 0.3 && speeds[2] < 0.3 && speeds[1] > 0.4, "{speeds:?}");
}

#[test]
fn where_the_card_has_one_mode_its_tiles_agree() {
    let config = MachineConfig { ccs_scope: CcsScope::Card, ..MachineConfig::plain("n1", "max-1550", 4) };
    let mut machine = Machine::new(&config).unwrap();
    let on = |tile, mode| load("gemm-hog", &[("ZE_AFFINITY_MASK", tile), ("ZEX_NUMBER_OF_CCS", mode)]);
    let first = machine.attach(&on("2", "0:2"), 7, ALICE).unwrap();
    let sibling = machine.attach(&on("3", "0:1"), 8, ALICE).unwrap();
    let elsewhere = machine.attach(&on("1", "0:1"), 9, ALICE).unwrap();
    assert_eq!(machine.ccs_mode(3).unwrap(), Some(2));
    assert_eq!((phase(&machine, sibling), phase(&machine, elsewhere)), (Phase::Waiting, Phase::Running));
    machine.detach(first);
    assert_eq!(phase(&machine, sibling), Phase::Running);
}

#[test]
fn a_reading_has_what_its_vendor_has() {
    for (model, nvidia) in [("h200", true), ("max-1550", false)] {
        let mut machine = machine(model, 1);
        machine.attach(&load("llama-infer", &[]), 7, ALICE).unwrap();
        let mut mark = None;
        machine.read(0, &mut mark).unwrap();
        machine.advance(seconds(1.0));
        let reading = machine.read(0, &mut mark).unwrap();
        assert_eq!(reading.metrics.get(Metric::StallFraction).is_none(), nvidia);
        assert_eq!(reading.metrics.get(Metric::CacheBandwidthFraction).is_none(), nvidia);
        assert_eq!(reading.metrics.get(Metric::Fp32ActiveFraction).is_some(), nvidia);
        assert!(reading.metrics.get(Metric::MemoryBandwidthFraction).unwrap() > 0.2, "{reading:?}");
        assert!(
            reading.metrics.fraction(Metric::GpuBusyFraction).unwrap()
                > reading.metrics.fraction(Metric::SmActiveFraction).unwrap(),
            "{reading:?}"
        );
    }
}

#[test]
fn a_reading_is_the_mean_since_the_same_reader_looked_last() {
    let mut machine = machine("h200", 1);
    let (mut often, mut rarely) = (None, None);
    machine.read(0, &mut rarely).unwrap();
    let id = machine.attach(&load("gemm-hog", &[]), 7, ALICE).unwrap();
    machine.advance(seconds(10.0));
    machine.detach(id);
    machine.read(0, &mut often).unwrap();
    machine.advance(seconds(10.0));
    let busy = |mark: &mut Option<Totals>, machine: &mut Machine| {
        machine.read(0, mark).unwrap().metrics.get(Metric::GpuBusyFraction).unwrap()
    };
    assert!(busy(&mut often, &mut machine) < 1e-9);
    assert!((busy(&mut rarely, &mut machine) - 0.495).abs() < 0.01);
}

#[test]
fn a_lost_device_takes_its_processes_and_hides_no_other() {
    let mut machine = machine("h200", 2);
    let id = machine.attach(&load("gromacs", &[]), 7, ALICE).unwrap();
    machine.lose_device(0, "Xid 79").unwrap();
    assert!(matches!(machine.progress(id).unwrap().error, Some(ClientError::Lost { .. })));
    assert!(machine.read(0, &mut None).unwrap_err().is_gone());
    assert!(machine.read(1, &mut None).is_ok());
    assert!(matches!(machine.attach(&load("gromacs", &[]), 8, ALICE), Err(ClientError::Lost { .. })));
}

#[test]
fn a_crash_under_mps_reaches_its_neighbours_and_a_kill_only_where_configured() {
    for killed_client_ends_mps in [false, true] {
        let config = MachineConfig { killed_client_ends_mps, ..MachineConfig::plain("n1", "h200", 1) };
        let mut machine = Machine::new(&config).unwrap();
        machine.start_mps(ROOT, &MpsPlace::device(0), &settings(false)).unwrap();
        let victim = machine.attach(&load("gromacs", &[PIPE]), 7, ALICE).unwrap();
        let bystander = machine.attach(&load("gromacs", &[]), 8, ALICE).unwrap();
        let killed = machine.attach(&load("gromacs", &[PIPE]), 9, ALICE).unwrap();
        machine.detach(killed);
        let expected = if killed_client_ends_mps { Phase::Failed } else { Phase::Running };
        assert_eq!(phase(&machine, victim), expected);
        machine.fault_mps(ROOT, &MpsPlace::device(0)).unwrap();
        assert_eq!((phase(&machine, victim), phase(&machine, bystander)), (Phase::Failed, Phase::Running));
    }
}

#[test]
fn a_request_that_makes_no_sense_is_told_what_is_allowed() {
    let mut machine = machine("h200", 1);
    let text = machine.attach(&load("resnet51", &[]), 7, ALICE).unwrap_err().to_string();
    assert!(text.contains("resnet51") && text.contains("resnet50-train"), "{text}");
    for seconds in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let request = AttachRequest { seconds: Some(seconds), ..load("gromacs", &[]) };
        assert!(matches!(machine.attach(&request, 7, ALICE), Err(ClientError::Invalid { .. })), "{seconds}");
    }
}

#[test]
fn a_fault_keeps_new_clients_out_until_all_have_left() {
    let mut machine = machine("h200", 1);
    machine.start_mps(ROOT, &MpsPlace::device(0), &settings(false)).unwrap();
    let state = |machine: &Machine| machine.mps(&MpsPlace::device(0)).unwrap().unwrap().state;
    let victims: Vec<ClientId> =
        [7, 8].map(|pid| machine.attach(&load("gromacs", &[PIPE]), pid, ALICE).unwrap()).into();
    let waiting = machine.attach(&load("gromacs", &[PIPE]), 9, BOB).unwrap();
    assert!(matches!(machine.fault_mps(ALICE, &MpsPlace::device(0)), Err(DeviceError::Refused { .. })));
    machine.fault_mps(ROOT, &MpsPlace::device(0)).unwrap();
    assert_eq!(state(&machine), MpsState::Fault);
    assert_eq!(
        machine.mps(&MpsPlace::device(0)).unwrap().unwrap().client_pids,
        [7, 8],
        "they are there until they leave"
    );
    assert!(machine.stop_mps(ROOT, &MpsPlace::device(0)).unwrap_err().is_transient());
    assert!(machine.start_mps(ROOT, &MpsPlace::device(0), &settings(false)).unwrap_err().is_transient());
    let refused = machine.attach(&load("gromacs", &[PIPE]), 10, ALICE).unwrap_err();
    assert!(refused.to_string().contains("not ready"), "{refused}");
    machine.attach(&load("gromacs", &[]), 11, ALICE).expect("it is no client");
    machine.detach(victims[0]);
    assert_eq!((state(&machine), phase(&machine, waiting)), (MpsState::Fault, Phase::Waiting));
    machine.detach(victims[1]);
    assert_eq!((state(&machine), phase(&machine, waiting)), (MpsState::Up, Phase::Running));
}

#[test]
fn defaults_count_for_the_next_server_and_a_server_outlives_its_clients() {
    let mut machine = machine("h200", 1);
    machine.serve_mps(ROOT, 50, &MpsPlace::device(0), settings(false)).unwrap();
    let first = machine.attach(&load("gemm-hog", &[PIPE]), 7, ALICE).unwrap();
    machine.set_mps_defaults(&MpsPlace::device(0), Some(Fraction::clamped(0.25)), &[Some(4 << 30)]).unwrap();
    machine.detach(first);
    assert_eq!(machine.mps(&MpsPlace::device(0)).unwrap().unwrap().server_uid, Some(ALICE));
    let second = machine.attach(&load("gemm-hog", &[PIPE]), 8, ALICE).unwrap();
    assert!((speed(&machine, second) - 1.0).abs() < 1e-6, "the server is from before");
    machine.detach(second);
    let small = AttachRequest { memory_bytes: Some(1 << 30), ..load("gemm-hog", &[PIPE]) };
    let third = machine.attach(&small, 9, BOB).unwrap();
    assert!((speed(&machine, third) - 0.25).abs() < 0.03, "{}", speed(&machine, third));
    let greedy = machine.attach(&load("gemm-hog", &[PIPE]), 10, BOB).unwrap_err();
    assert!(matches!(greedy, ClientError::OutOfMemory { .. }), "{greedy}");
}

#[test]
fn a_daemon_that_is_a_process_takes_its_clients_along() {
    let mut machine = machine("h200", 1);
    assert!(matches!(
        machine.serve_mps(ALICE, 50, &MpsPlace::device(0), settings(false)),
        Err(DeviceError::Refused { .. })
    ));
    machine.serve_mps(ROOT, 50, &MpsPlace::device(0), settings(false)).unwrap();
    assert!(matches!(
        machine.serve_mps(ROOT, 51, &MpsPlace::device(0), settings(false)),
        Err(DeviceError::Busy { .. })
    ));
    let alice = machine.attach(&load("gromacs", &[PIPE]), 7, ALICE).unwrap();
    let bob = machine.attach(&load("gromacs", &[PIPE]), 8, BOB).unwrap();
    machine.mps_server_died(&MpsPlace::device(0)).unwrap();
    assert_eq!((phase(&machine, alice), phase(&machine, bob)), (Phase::Failed, Phase::Running));
    assert_eq!(machine.mps(&MpsPlace::device(0)).unwrap().unwrap().server_uid, Some(BOB));
    let waiting = machine.attach(&load("gromacs", &[PIPE]), 9, ALICE).unwrap();
    machine.mps_daemon_ended(&MpsPlace::device(0), 51);
    assert_eq!(phase(&machine, bob), Phase::Running, "somebody else's connection closed");
    machine.mps_daemon_ended(&MpsPlace::device(0), 50);
    assert_eq!((phase(&machine, bob), phase(&machine, waiting)), (Phase::Failed, Phase::Failed));
    assert_eq!(machine.mps(&MpsPlace::device(0)).unwrap(), None);
}
