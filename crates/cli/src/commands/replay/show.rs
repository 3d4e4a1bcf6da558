//! A replay on a terminal: what was read, what is wasted, what sharing would have saved, whom it would have harmed, and how far
//! all of that may be believed.

use crate::format::{self, clean, duration, fraction};
use crate::output::{Answer, Block, Table, json};
use pillion_replay::Estimate;
use pillion_replay::report::{Band, Measure, Report, SettingReport, WaitPair};
use std::path::Path;

const SAVED_COLUMNS: [&str; 12] = [
    "POOL",
    ">GPUS",
    "USERS",
    ">GPU_HOURS",
    ">SAVED_LOW",
    ">SAVED",
    ">SAVED_HIGH",
    ">AS_GPUS_LOW",
    ">AS_GPUS",
    ">KWH_LOW",
    ">KWH",
    ">KWH_HIGH",
];
const RISK_COLUMNS: [&str; 11] = [
    "POOL",
    "USERS",
    ">GROUPS",
    ">PROMISES",
    ">AT_RISK",
    ">BROKEN",
    ">P99_SLOWDOWN",
    ">OUT_OF_MEMORY",
    ">NEAR_IT",
    ">TIME_LIMIT",
    ">NO_NODE",
];
const WAIT_COLUMNS: [&str; 7] = ["POOL", "USERS", "JOBS", ">MEDIAN", ">MEDIAN_WITH", ">P95", ">P95_WITH"];

pub(super) fn answer(report: &Report, nodes_left_out: usize, html: Option<&Path>) -> Answer {
    let mut blocks = input(report, nodes_left_out);
    blocks.push(blank());
    blocks.extend(waste(report));
    blocks.extend([
        blank(),
        line("GPU-hours saved: what a GPU for each job would hold, less what they hold together"),
    ]);
    let saved = saved(report);
    blocks.push(Block::Table(saved.clone(), 2));
    for sentence in worth(report) {
        blocks.push(line(&sentence));
    }
    blocks.extend([blank(), line("What it would have risked")]);
    blocks.push(Block::Table(risks(report), 2));
    blocks.push(blank());
    blocks.extend(waits(report));
    blocks.extend([blank(), line("How far to believe this")]);
    blocks.extend(confidence(report));
    if let Some(path) = html {
        blocks.extend([blank(), line(&format!("written: {}", path.display()))]);
    }
    Answer { blocks, parsable: saved, json: json::render(report) }
}

fn blank() -> Block {
    Block::Line(String::new())
}

fn line(text: &str) -> Block {
    Block::Line(clean(text))
}

fn input(report: &Report, nodes_left_out: usize) -> Vec<Block> {
    let input = &report.input;
    let mut lines = vec![line(&format!(
        "{} of {} on {} with {} GPUs, {} to {}: {:.0} GPU-hours, {} of them in jobs of one GPU, which could \
         share, and {} in jobs of several GPUs, as many on each of their nodes, which could have them whole in the \
         pool: {} can be managed",
        format::counted(input.jobs, "job"),
        format::counted(input.users, "user"),
        format::counted(input.nodes, "node"),
        input.gpus,
        format::time(input.since_seconds),
        format::time(input.until_seconds),
        input.gpu_hours,
        fraction(Some(input.part_of_all(input.one_gpu_hours))),
        fraction(Some(input.part_of_all(input.wide_gpu_hours))),
        fraction(Some(input.part_of_all(input.one_gpu_hours + input.wide_gpu_hours))),
    ))];
    for counted in &input.jobs_set_aside {
        lines.push(line(&format!("  not replayed: {}", counted.of("job"))));
    }
    for counted in &input.rows_dropped {
        lines.push(line(&format!("  dropped: {}", counted.of("row"))));
    }
    if nodes_left_out > 0 {
        lines.push(line(&format!(
            "  left out: {} that cannot be read",
            format::counted(nodes_left_out, "node")
        )));
    }
    if !input.gpu_types_without_memory.is_empty() {
        lines.push(line(&format!(
            "  nobody shares GPUs of type {}: their memory is not known; give it with --gpu-memory TYPE=GIB",
            format::listed(&input.gpu_types_without_memory)
        )));
    }
    lines
}

fn waste(report: &Report) -> Vec<Block> {
    let all = report.input.gpu_hours.max(1e-9);
    let mut lines = vec![line("GPU-hours by how the GPU was used")];
    let mut table = Table::new(&["WHAT", ">BELOW_25", ">25_TO_50", ">ABOVE_50", ">UNKNOWN"]);
    for (name, band) in [("busy", report.waste.busy_gpu_hours), ("memory", report.waste.memory_gpu_hours)] {
        let Band { below_25_percent, from_25_to_50_percent, above_50_percent, unknown } = band;
        let cells = [below_25_percent, from_25_to_50_percent, above_50_percent, unknown];
        table.push(
            std::iter::once(name.to_owned()).chain(cells.map(|hours| fraction(Some(hours / all)))).collect(),
        );
    }
    lines.push(Block::Table(table, 2));
    let held = report.waste.held_without_process_gpu_hours;
    lines.push(line(&format!(
        "  held without ever using the GPU: {held:.0} GPU-hours, {}",
        fraction(Some(held / all))
    )));
    lines
}

fn pool(setting: &SettingReport) -> String {
    fraction(Some(setting.pool_fraction))
}

fn users(setting: &SettingReport) -> String {
    fraction(Some(setting.adoption_fraction))
}

fn saved(report: &Report) -> Table {
    let mut table = Table::new(&SAVED_COLUMNS);
    for setting in &report.settings {
        let [saved_low, saved, saved_high] = setting.gpu_hours_saved.texts(1);
        let [gpus_low, gpus, _] = setting.gpus_saved.texts(2);
        let energy = setting.energy_kilowatt_hours_saved.map(|energy| energy.texts(1));
        let [energy_low, energy, energy_high] = energy.unwrap_or_default();
        table.push(vec![
            pool(setting),
            setting.pool_gpus.to_string(),
            users(setting),
            format!("{:.0}", setting.managed_gpu_hours.expected),
            saved_low,
            saved,
            saved_high,
            gpus_low,
            gpus,
            energy_low,
            energy,
            energy_high,
        ]);
    }
    table
}

/// Where the energy comes from, and what all is worth.
fn worth(report: &Report) -> Vec<String> {
    let Some(first) = report.settings.first() else { return Vec::new() };
    let mut sentences = vec![format!("  kWh: {}", first.energy_source)];
    for setting in &report.settings {
        let place = format!("  pool {}, {} of the users", pool(setting), users(setting));
        if let Some(price) = setting.price_saved {
            sentences.push(format!("{place}: worth {} at your price", range(price, 0)));
        }
        if let Some(carbon) = setting.carbon_kilograms_saved {
            sentences.push(format!("{place}: {} kg of carbon dioxide", range(carbon, 0)));
        }
    }
    sentences
}

/// `12 (9 to 15)`.
fn range(estimate: Estimate, digits: usize) -> String {
    let [low, expected, high] = estimate.texts(digits);
    format!("{expected} ({low} to {high})")
}

fn risks(report: &Report) -> Table {
    let mut table = Table::new(&RISK_COLUMNS);
    for setting in &report.settings {
        table.push(vec![
            pool(setting),
            users(setting),
            range(setting.groups, 0),
            range(setting.promises, 0),
            range(setting.promises_at_risk, 1),
            range(setting.promises_broken, 0),
            range(setting.slowdown_ratio_p99, 2),
            range(setting.out_of_memory, 0),
            range(setting.near_out_of_memory, 0),
            range(setting.time_limit_hits, 0),
            range(setting.stranded_jobs, 0),
        ]);
    }
    table
}

fn waits(report: &Report) -> Vec<Block> {
    let queue = &report.queue;
    let mut lines = vec![line(&format!(
        "Waits without Pillion: median {} as it was, {} simulated; 95th percentile {} and {}",
        seconds(queue.history.median_seconds),
        seconds(queue.simulated.median_seconds),
        seconds(queue.history.p95_seconds),
        seconds(queue.simulated.p95_seconds),
    ))];
    if !queue.is_near {
        lines.push(line("  The simulated median is more than 25 % from the real one: nothing is said of waits with Pillion."));
        return lines;
    }
    let mut table = Table::new(&WAIT_COLUMNS);
    let mut sentences = Vec::new();
    for setting in &report.settings {
        let Some(waits) = &setting.waits else { continue };
        for (name, pair) in [("sharing", waits.managed), ("others", waits.others), ("all", waits.all)] {
            table.push(wait_line(setting, name, &pair));
        }
        let gainers = waits.gainers.iter().map(|who| (who.user.as_str(), who.by()));
        let losers = waits.losers.iter().map(|who| (who.user.as_str(), who.by()));
        sentences.push(format!(
            "  pool {}, {} of the users: {} users wait less by more than a minute{}; {} longer{}",
            pool(setting),
            users(setting),
            range(waits.users_gain, 0),
            named(gainers),
            range(waits.users_lose, 0),
            named(losers)
        ));
    }
    lines.push(Block::Table(table, 2));
    lines.extend(sentences.iter().map(|sentence| line(sentence)));
    lines
}

/// `, most of all alice by 00:25:00 (00:20:00 to 00:30:00)`; nothing of nobody.
fn named<'w>(who: impl Iterator<Item = (&'w str, Estimate)>) -> String {
    let named: Vec<String> = who
        .map(|(user, by)| {
            let [expected, low, high] = [by.expected, by.low, by.high].map(signed);
            format!("{} by {expected} ({low} to {high})", clean(user))
        })
        .collect();
    if named.is_empty() { String::new() } else { format!(", most of all {}", named.join(", ")) }
}

/// What may be the other way round is said with its sign.
fn signed(by: f64) -> String {
    if by <= -0.5 { format!("-{}", seconds(-by)) } else { seconds(by) }
}

fn wait_line(setting: &SettingReport, name: &str, pair: &WaitPair) -> Vec<String> {
    let with = |wait: Estimate| {
        format!("{} ({} to {})", seconds(wait.expected), seconds(wait.low), seconds(wait.high))
    };
    vec![
        pool(setting),
        users(setting),
        name.to_owned(),
        seconds(pair.exclusive.median_seconds),
        with(pair.median_seconds),
        seconds(pair.exclusive.p95_seconds),
        with(pair.p95_seconds),
    ]
}

fn seconds(seconds: f64) -> String {
    duration(Some(seconds.max(0.0)))
}

fn confidence(report: &Report) -> Vec<Block> {
    let confidence = &report.confidence;
    let measures = [
        ("telemetry", &confidence.telemetry_coverage),
        ("repetition", &confidence.repetition),
        ("simulator's error", &confidence.simulator_error),
        ("calibration", &confidence.calibration),
    ];
    let mut lines = Vec::new();
    for (name, Measure { value, meaning, improved_by }) in measures {
        let value = value.map_or_else(|| "unknown".to_owned(), |value| fraction(Some(value)));
        lines.push(line(&format!("  {name}: {value}: {meaning}")));
        lines.push(line(&format!("    better with: {improved_by}")));
    }
    lines
}
