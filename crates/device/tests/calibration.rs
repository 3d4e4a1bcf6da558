//! The simulated tile of a Max 1550 against what was measured on a real one (data/README.md): prints both tables, and
//! fails where they part.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use pillion_core::UserId;
use pillion_core::metric::Metric;
use pillion_device::simulated::{AttachRequest, ClientId, Machine, MachineConfig, Phase, workload};
use std::fmt::Write as _;
use std::time::Duration;

const SOLO: &str = include_str!("../data/costa2025_solo.csv");
const PAIRS: &str = include_str!("../data/costa2025_pairs.csv");
const BATCHES: [u32; 6] = [2, 4, 8, 16, 32, 64];

/// What one run on a fresh tile took, and what the tile did meanwhile.
#[derive(Debug, Clone, Copy)]
struct Run {
    seconds: f64,
    energy_joules: f64,
    active: f64,
    stall: f64,
    cache: f64,
    memory: f64,
}

/// Runs all of `tenants` together in CCS mode `mode` until the last has ended.
fn run(tenants: &[(&str, u32)], mode: u8) -> Run {
    let mut machine = Machine::new(&MachineConfig::plain("n1", "max-1550", 1)).unwrap();
    let request = |(name, batch_size): &(&str, u32)| AttachRequest {
        workload: (*name).to_owned(),
        batch_size: Some(*batch_size),
        environment: [("ZEX_NUMBER_OF_CCS".to_owned(), format!("0:{mode}"))].into(),
        ..AttachRequest::default()
    };
    let clients: Vec<ClientId> =
        tenants.iter().map(|tenant| machine.attach(&request(tenant), 1, UserId(1000)).unwrap()).collect();
    let mut mark = None;
    let before = machine.read(0, &mut mark).unwrap().metrics.get(Metric::EnergyJoules).unwrap();
    let mut seconds = 0.0;
    // To the next end, again and again: nothing is counted after the last.
    loop {
        let left = clients.iter().filter_map(|client| machine.progress(*client).unwrap().left_seconds);
        let next = left.fold(f64::INFINITY, f64::min);
        if !next.is_finite() {
            break;
        }
        machine.advance(Duration::from_secs_f64(next + 1e-9));
        seconds += next;
    }
    for client in &clients {
        let progress = machine.progress(*client).unwrap();
        assert_eq!(progress.phase, Phase::Finished, "{tenants:?}: {progress:?}");
    }
    let reading = machine.read(0, &mut mark).unwrap();
    Run {
        seconds,
        energy_joules: reading.metrics.get(Metric::EnergyJoules).unwrap() - before,
        active: reading.metrics.get(Metric::SmActiveFraction).unwrap(),
        stall: reading.metrics.get(Metric::StallFraction).unwrap(),
        cache: reading.metrics.get(Metric::CacheBandwidthFraction).unwrap(),
        memory: reading.metrics.get(Metric::MemoryBandwidthFraction).unwrap(),
    }
}

/// Co-located over one after the other: time, energy, and the co-located run.
fn pair(left: (&str, u32), right: (&str, u32)) -> (f64, f64, Run) {
    let (first, second, both) = (run(&[left], 1), run(&[right], 1), run(&[left, right], 2));
    let time = both.seconds / (first.seconds + second.seconds);
    (time, both.energy_joules / (first.energy_joules + second.energy_joules), both)
}

struct Solo {
    name: String,
    batch_size: u32,
    seconds: f64,
    energy_joules: f64,
}

fn measured_solo() -> Vec<Solo> {
    let row = |line: &str| {
        let fields: Vec<&str> = line.split(',').collect();
        Solo {
            name: fields[0].to_owned(),
            batch_size: fields[1].parse().unwrap(),
            seconds: fields[2].parse().unwrap(),
            energy_joules: fields[3].parse().unwrap(),
        }
    };
    SOLO.lines().skip(1).map(row).collect()
}

#[test]
fn solo_time_and_energy_are_within_2_percent_of_what_was_measured() {
    let mut table = String::from(
        "workload      batch   time s: measured simulated  error   energy J: measured simulated  error   active stall cache memory\n",
    );
    let mut worst: f64 = 0.0;
    for solo in measured_solo() {
        let run = run(&[(&solo.name, solo.batch_size)], 1);
        let time_error = run.seconds / solo.seconds - 1.0;
        let energy_error = run.energy_joules / solo.energy_joules - 1.0;
        worst = worst.max(time_error.abs()).max(energy_error.abs());
        writeln!(
            table,
            "{:12} {:6} {:18.2} {:9.2} {:+6.3} {:20.1} {:9.1} {:+6.3} {:8.2} {:5.2} {:5.2} {:6.2}",
            solo.name,
            solo.batch_size,
            solo.seconds,
            run.seconds,
            time_error,
            solo.energy_joules,
            run.energy_joules,
            energy_error,
            run.active,
            run.stall,
            run.cache,
            run.memory
        )
        .unwrap();
    }
    println!("{table}");
    assert_eq!(measured_solo().len(), 24);
    assert!(worst <= 0.02, "the worst error is {worst:.3}:\n{table}");
}

#[test]
fn the_four_pairs_are_within_3_points_of_what_was_measured() {
    let mut table = String::from(
        "pair                          time ratio: measured simulated   energy ratio: measured simulated   active stall cache memory\n",
    );
    let mut worst: f64 = 0.0;
    let mut count = 0;
    for line in PAIRS.lines().skip(1) {
        let fields: Vec<&str> = line.splitn(7, ',').collect();
        // An empty batch size stands for "the best over batch sizes".
        let sizes = |field: &str| field.parse().map_or(BATCHES.to_vec(), |size| vec![size]);
        let (lefts, rights) = (sizes(fields[1]), sizes(fields[3]));
        let all = lefts.iter().flat_map(|left| rights.iter().map(move |right| (*left, *right)));
        let ran: Vec<(u32, u32, (f64, f64, Run))> =
            all.map(|(left, right)| (left, right, pair((fields[0], left), (fields[2], right)))).collect();
        let best_time = ran.iter().min_by(|one, two| one.2.0.total_cmp(&two.2.0)).unwrap();
        let best_energy = ran.iter().map(|one| one.2.1).fold(f64::INFINITY, f64::min);
        let (time, energy): (f64, f64) = (fields[4].parse().unwrap(), fields[5].parse().unwrap());
        let (left, right, (best, _, both)) = best_time;
        worst = worst.max((best - time).abs()).max((best_energy - energy).abs());
        let name = format!("{} b{left} + {} b{right}", fields[0], fields[2]);
        writeln!(
            table,
            "{name:30} {time:19.2} {best:9.3} {energy:24.2} {best_energy:9.3} {:8.2} {:5.2} {:5.2} {:6.2}",
            both.active, both.stall, both.cache, both.memory
        )
        .unwrap();
        count += 1;
    }
    println!("{table}");
    assert_eq!(count, 4);
    assert!(worst <= 0.03, "the worst error is {worst:.3}:\n{table}");
}

/// The rule of data/README.md, applied again: what the data file must say, to the digits that it has.
#[test]
fn the_fitted_numbers_follow_from_the_table_by_the_stated_rule() {
    let measured = measured_solo();
    let mut text = String::new();
    let mut worst: f64 = 0.0;
    for family in workload::families() {
        writeln!(text, "{}", family.name).unwrap();
        for batch in &family.batch {
            let solo =
                measured.iter().find(|row| row.name == family.name && row.batch_size == batch.size).unwrap();
            let gap_fraction = family.gap_fraction(batch.size, solo.seconds);
            // Energy grows linearly with the coefficient, as long as the power limit is not reached.
            let energy = |power_coefficient: f64| {
                let fitted = workload::Batch {
                    size: batch.size,
                    seconds: solo.seconds,
                    gap_fraction,
                    power_coefficient,
                };
                let placed = family.workload(&fitted);
                workload::energy_alone_joules(&placed)
            };
            let (zero, one) = (energy(0.0), energy(1.0));
            let power_coefficient = (solo.energy_joules - zero) / (one - zero);
            writeln!(
                text,
                "  {{ size = {}, seconds = {:.2}, gap_fraction = {gap_fraction:.4}, power_coefficient = {power_coefficient:.4} }},",
                batch.size, solo.seconds
            )
            .unwrap();
            worst = worst
                .max((gap_fraction - batch.gap_fraction).abs())
                .max((power_coefficient - batch.power_coefficient).abs())
                .max((solo.seconds - batch.seconds).abs());
        }
    }
    println!("{text}");
    assert!(worst < 1e-3, "data/costa2025.toml is {worst} off; it should say:\n{text}");
}
