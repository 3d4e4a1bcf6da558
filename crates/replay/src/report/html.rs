//! The report as one page for whoever decides: it needs nothing else, can be printed, and reads in light and dark. It says the
//! same as the other formats, in fewer words.

use super::{Band, Measure, Report, SettingReport, WaitPair};
use crate::statistics::Estimate;
use maud::{DOCTYPE, Markup, PreEscaped, html as markup};

const STYLE: &str = include_str!("page.css");

/// The page, whole.
pub fn html(report: &Report) -> String {
    markup! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "Pillion: what last month would have looked like" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { "What last month would have looked like with shared GPUs" }
                (input(report))
                (answer(report))
                h2 { "How GPUs were used" }
                (waste(report))
                h2 { "What sharing would have saved" }
                (saved(report))
                h2 { "What it would have risked" }
                (risks(report))
                h2 { "Who waits" }
                (waits(report))
                h2 { "How far to believe this" }
                (confidence(report))
                footer { p { (FOOT) } }
            }
        }
    }
    .into_string()
}

const FOOT: &str = "Made by pillion replay from records that were there; nothing was installed and nothing changed. What is claimed is \
the difference of two simulations by one program, never one between a simulation and history. How fast jobs run beside each other \
has not been measured here; it is drawn from published measurements of jobs as busy. Users would submit otherwise once they \
wait less; of that no replay knows.";

fn percent(part: f64) -> String {
    // The sign stays beside its number.
    format!("{:.0}\u{a0}%", part * 100.0)
}

fn input(report: &Report) -> Markup {
    let input = &report.input;
    let days = (input.until_seconds - input.since_seconds) / 86_400.0;
    markup! {
        p.lead {
            (input.jobs) " jobs of " (input.users) " users in " (format!("{days:.1}")) " days on " (input.nodes) " nodes with "
            (input.gpus) " GPUs: " (format!("{:.0}", input.gpu_hours)) " GPU-hours, "
            (percent(input.part_of_all(input.one_gpu_hours))) " of them in jobs of one GPU, which could share, and "
            (percent(input.part_of_all(input.wide_gpu_hours))) " in jobs of several GPUs, as many on each of their nodes, which could have them whole in the pool: "
            (percent(input.part_of_all(input.one_gpu_hours + input.wide_gpu_hours))) " can be managed."
        }
        @if !input.jobs_set_aside.is_empty() || !input.rows_dropped.is_empty() {
            ul.small {
                @for counted in &input.jobs_set_aside { li { "not replayed: " (counted.of("job")) } }
                @for counted in &input.rows_dropped { li { "dropped: " (counted.of("row")) } }
            }
        }
        @if !input.gpu_types_without_memory.is_empty() {
            p.small { "Nobody shares GPUs of type " (input.gpu_types_without_memory.join(", ")) ": their memory is not known." }
        }
    }
}

/// What it comes to, of the setting whose low is the greatest: for whoever reads one sentence.
fn answer(report: &Report) -> Markup {
    let low = |setting: &&SettingReport| setting.gpu_hours_saved.low;
    let best = report.settings.iter().max_by(|a, b| low(a).total_cmp(&low(b)));
    markup! {
        @if let Some(best) = best {
            p.lead {
                @if best.gpu_hours_saved.low > 0.0 {
                    "With " (place_text(best)) ", " b { (whole(best.gpu_hours_saved)) " GPU-hours" }
                    " would have been saved, as if there had been " (amount(best.gpus_saved, 1)) " GPUs more."
                } @else {
                    "It is not certain that sharing would have saved anything: with " (place_text(best)) ", it would have been "
                    (whole(best.gpu_hours_saved)) " GPU-hours."
                }
            }
        }
    }
}

fn waste(report: &Report) -> Markup {
    let all = report.input.gpu_hours.max(1e-9);
    let bands = [("busy", report.waste.busy_gpu_hours), ("memory in use", report.waste.memory_gpu_hours)];
    markup! {
        table {
            thead { tr { th { "Of all GPU-hours" } th.number { "below 25 %" } th.number { "25 to 50 %" } th.number { "above 50 %" } th.number { "unknown" } } }
            tbody { @for (name, band) in bands { (band_row(name, band, all)) } }
        }
        p {
            (format!("{:.0}", report.waste.held_without_process_gpu_hours)) " GPU-hours ("
            (percent(report.waste.held_without_process_gpu_hours / all)) ") were held by jobs that never used the GPU."
        }
    }
}

fn band_row(name: &str, band: Band, all: f64) -> Markup {
    let Band { below_25_percent, from_25_to_50_percent, above_50_percent, unknown } = band;
    markup! {
        tr {
            th scope="row" { (name) }
            @for hours in [below_25_percent, from_25_to_50_percent, above_50_percent, unknown] {
                td.number { (percent(hours / all)) }
            }
        }
    }
}

/// The expected figure, and below it from where to where.
fn figure(estimate: Estimate, digits: usize) -> Markup {
    let [low, expected, high] = estimate.texts(digits);
    markup! {
        td.number { (expected) br; small { (low) " to " (high) } }
    }
}

fn maybe(estimate: Option<Estimate>, digits: usize) -> Markup {
    let Some(estimate) = estimate else { return markup! { td.number { "unknown" } } };
    figure(estimate, digits)
}

fn place(setting: &SettingReport) -> Markup {
    let (pool, users) = (percent(setting.pool_fraction), percent(setting.adoption_fraction));
    markup! { th scope="row" { (pool) " of the nodes (" (setting.pool_gpus) " GPUs), " (users) " of the users" } }
}

fn place_text(setting: &SettingReport) -> String {
    let (pool, users) = (percent(setting.pool_fraction), percent(setting.adoption_fraction));
    format!("{pool} of the nodes as the pool and the jobs of {users} of the users in it")
}

fn saved(report: &Report) -> Markup {
    let has_price = report.settings.iter().any(|setting| setting.price_saved.is_some());
    let has_carbon = report.settings.iter().any(|setting| setting.carbon_kilograms_saved.is_some());
    markup! {
        table {
            thead { tr {
                th { "Pool and users" } th.number { "GPU-hours that share" } th.number { "GPU-hours saved" } th.number { "as GPUs" } th.number { "kWh" }
                @if has_price { th.number { "at your price" } }
                @if has_carbon { th.number { "kg of CO₂" } }
            } }
            tbody { @for setting in &report.settings { tr {
                (place(setting))
                (figure(setting.managed_gpu_hours, 0))
                (figure(setting.gpu_hours_saved, 0))
                (figure(setting.gpus_saved, 2))
                (maybe(setting.energy_kilowatt_hours_saved, 0))
                @if has_price { (maybe(setting.price_saved, 0)) }
                @if has_carbon { (maybe(setting.carbon_kilograms_saved, 0)) }
            } } }
        }
        p.small {
            "Nine of ten times the truth is expected between the two small figures. "
            @if let Some(first) = report.settings.first() { "kWh: " (first.energy_source) "." }
        }
    }
}

fn risks(report: &Report) -> Markup {
    markup! {
        table {
            thead { tr {
                th { "Pool and users" } th.number { "promises made" } th.number { "at risk" } th.number { "broken" } th.number { "slowdown, worst 1 %" }
                th.number { "out of memory" } th.number { "near it" } th.number { "beyond the time limit" } th.number { "jobs without a node" }
            } }
            tbody { @for setting in &report.settings { tr {
                (place(setting))
                (figure(setting.promises, 0))
                (figure(setting.promises_at_risk, 1))
                (figure(setting.promises_broken, 0))
                (figure(setting.slowdown_ratio_p99, 2))
                (figure(setting.out_of_memory, 0))
                (figure(setting.near_out_of_memory, 0))
                (figure(setting.time_limit_hits, 0))
                (figure(setting.stranded_jobs, 0))
            } } }
        }
    }
}

/// `40 s`, `25 min`, `2.1 h`.
fn time(seconds: f64) -> String {
    if seconds <= -0.5 {
        return format!("-{}", time(-seconds));
    }
    if seconds < 90.0 {
        return format!("{seconds:.0} s");
    }
    let minutes = (seconds / 60.0).round();
    if minutes < 90.0 { format!("{minutes:.0} min") } else { format!("{:.1} h", seconds / 3600.0) }
}

fn waits(report: &Report) -> Markup {
    let queue = &report.queue;
    markup! {
        p {
            "Without sharing half of the jobs waited less than " (time(queue.history.median_seconds)) "; simulated it is "
            (time(queue.simulated.median_seconds)) "."
            @if !queue.is_near { " That is more than 25 % apart, so nothing is said of waits with sharing." }
        }
        @if queue.is_near {
            table {
                thead { tr {
                    th { "Pool and users" } th { "jobs" } th.number { "median before" } th.number { "after" } th.number { "95th percentile before" } th.number { "after" }
                } }
                tbody { @for setting in &report.settings { @if let Some(waits) = &setting.waits {
                    @for (name, pair) in [("that share", waits.managed), ("all others", waits.others)] { (wait_row(setting, name, &pair)) }
                } } }
            }
            @for setting in &report.settings { @if let Some(waits) = &setting.waits {
                p.small {
                    (percent(setting.pool_fraction)) " of the nodes, " (percent(setting.adoption_fraction)) " of the users: "
                    (whole(waits.users_gain)) " users wait less by more than a minute, " (whole(waits.users_lose)) " longer."
                    (named("Less, most of all: ", waits.gainers.iter().map(|who| (&who.user, who.by()))))
                    (named("Longer, most of all: ", waits.losers.iter().map(|who| (&who.user, who.by()))))
                }
            } }
        }
    }
}

/// ` Longer, most of all: alice by 25 min (20 min to 30 min).`; nothing of nobody.
fn named<'w>(what: &str, who: impl Iterator<Item = (&'w String, Estimate)>) -> Markup {
    let named: Vec<String> = who
        .map(|(user, by)| format!("{user} by {} ({} to {})", time(by.expected), time(by.low), time(by.high)))
        .collect();
    markup! { @if !named.is_empty() { " " (what) (named.join(", ")) "." } }
}

fn whole(estimate: Estimate) -> String {
    amount(estimate, 0)
}

/// `12 (9 to 15)`.
fn amount(estimate: Estimate, digits: usize) -> String {
    let [low, expected, high] = estimate.texts(digits);
    format!("{expected} ({low} to {high})")
}

fn wait_row(setting: &SettingReport, name: &str, pair: &WaitPair) -> Markup {
    let after = |wait: Estimate| {
        markup! { td.number { (time(wait.expected)) br; small { (time(wait.low)) " to " (time(wait.high)) } } }
    };
    markup! {
        tr {
            (place(setting))
            td { (name) }
            td.number { (time(pair.exclusive.median_seconds)) }
            (after(pair.median_seconds))
            td.number { (time(pair.exclusive.p95_seconds)) }
            (after(pair.p95_seconds))
        }
    }
}

fn confidence(report: &Report) -> Markup {
    let confidence = &report.confidence;
    let measures = [
        ("Telemetry", &confidence.telemetry_coverage),
        ("Repetition", &confidence.repetition),
        ("Error of the simulator", &confidence.simulator_error),
        ("Calibration", &confidence.calibration),
    ];
    markup! {
        table {
            thead { tr { th { "What" } th.number { "How much" } th { "What it means" } th { "Better with" } } }
            tbody { @for (name, Measure { value, meaning, improved_by }) in measures { tr {
                th scope="row" { (name) }
                td.number { (value.map_or_else(|| "unknown".to_owned(), percent)) }
                td { (meaning) }
                td { (improved_by) }
            } } }
        }
    }
}
