//! What is said of counts that were not measured, held against counts that were: published tables, each count left out in turn. And the
//! tables of the two papers that this follows, made again. `tests/bench scale` runs it.
//!
//! `tables MLPERF.csv BREAKEVEN.csv [SIA.csv]`: the last may not be copied and is passed over where it is not there.

#![allow(clippy::unwrap_used, reason = "a benchmark that cannot go on fails where it stands")]

use pillion_scale::answers::break_even;
use pillion_scale::read::read;
use pillion_scale::{Curve, Estimate, Fit, History, Law, Measure, NodeShape, Run, Table, Workload};
use std::collections::BTreeMap;
use std::fs::File;

/// Efficiency that pays.
const HALF: f64 = 0.5;
/// What the median error of a time was asked to be at most, in percent: between measured counts, and one doubling beyond them.
const INSIDE_PERCENT_MAX: u32 = 7;
const DOUBLING_PERCENT_MAX: u32 = 5;

fn main() {
    // `cargo bench` adds one of its own.
    let paths: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let [mlperf, expected, sia @ ..] = paths.as_slice() else {
        println!("usage: tables MLPERF.csv BREAKEVEN.csv [SIA.csv]");
        return;
    };
    three_points();
    four_curves(mlperf, expected);
    let curves = mlperf_curves(mlperf);
    println!("\n### Time, each count left out in turn\n");
    println!(
        "| curves | laws | held out | held out times | median error | asked | 90th percentile | 90 % intervals that hold | asked |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    errors(&format!("{} of MLPerf v4.1", curves.len()), &curves);
    match sia.first().map(File::open) {
        Some(Ok(file)) => {
            let curves: Vec<Curve> =
                read(file).unwrap().0.workloads.iter().map(Curve::of).filter(is_long).collect();
            errors(&format!("{} of Sia", curves.len()), &curves);
        }
        _ => println!("| Sia | not_run: its table may not be copied, and is not there | | | | | | | |"),
    }
    println!("\n### Break-even at .5, estimated from the three smallest counts\n");
    counts(&curves);
}

fn is_long(curve: &Curve) -> bool {
    curve.points.len() >= 3
}

/// Mileski et al.: one A100 and 1.6 and 1.9 times its speed with two and four.
fn three_points() {
    println!("### Three points (Mileski et al.): times over that of one A100\n");
    let run = |gpus: u32, speedup: f64| Run {
        nodes: Some(1),
        gpus,
        cpus: None,
        seconds: 1.0 / speedup,
        power_watts: None,
    };
    let runs = [run(1, 1.0), run(2, 1.6), run(4, 1.9)];
    let table = Table::of(Measure::Elapsed, &runs, NodeShape::of(4), 1.0).unwrap();
    println!(
        "| GPUs | time | speedup | efficiency | overhead | speedup x efficiency |\n|---|---|---|---|---|---|"
    );
    for row in table.rows.iter().filter(|row| row.runs > 0) {
        let (speedup, efficiency) = (row.speedup_ratio.expected, row.efficiency_ratio.expected);
        println!(
            "| {} | {:.3} | {speedup:.2} | {efficiency:.3} | {:.3} | {:.2} |",
            row.gpus,
            row.time_seconds.expected,
            row.overhead_seconds,
            speedup * efficiency
        );
    }
    let advice = break_even(&table, HALF).unwrap();
    println!("\nAdvice: {} GPUs (break-even at .5).\n", advice.measured_gpus);
}

/// Cortes et al.: the fastest result at each count, on the H100.
fn four_curves(mlperf: &str, expected: &str) {
    println!(
        "### Four curves (Cortes et al.): MLPerf Training v4.1, H100, the fastest result of each count\n"
    );
    let history = read(File::open(mlperf).unwrap()).unwrap().0;
    let table = tabled(expected);
    println!(
        "| benchmark | counts | efficiency at each | largest difference from the table | break-even at .5 | at .8 |"
    );
    println!("|---|---|---|---|---|---|");
    for name in ["bert", "llama2_70b_lora", "ssd", "stable_diffusion"] {
        let curve = fastest(&history, name);
        let base = curve.at(8).unwrap();
        let (mut counts, mut efficiencies, mut difference) = (Vec::new(), Vec::new(), 0.0_f64);
        for point in &curve.points {
            // The paper's table is against 8.
            let against_8 = curve.efficiency(point) / curve.efficiency(base);
            counts.push(point.gpus.to_string());
            efficiencies.push(format!("{:.2}", curve.efficiency(point)));
            difference = difference.max((table[&(name.to_owned(), point.gpus)] - against_8).abs());
        }
        println!(
            "| {name} | {} | {} | {difference:.4} | {} | {} |",
            counts.join(", "),
            efficiencies.join(", "),
            curve.break_even(HALF).unwrap(),
            curve.break_even(0.8).unwrap()
        );
    }
}

/// Efficiency against 8 by benchmark and count, as it was computed elsewhere.
fn tabled(path: &str) -> BTreeMap<(String, u32), f64> {
    let mut csv = csv::Reader::from_path(path).unwrap();
    let rows = csv.records().map(|row| row.unwrap());
    rows.map(|row| ((row[0].to_owned(), row[1].parse().unwrap()), row[5].parse().unwrap())).collect()
}

fn fastest(history: &History, name: &str) -> Curve {
    let of =
        history.workloads.iter().find(|it| it.name == name && it.gpu_model.contains("H100-SXM5")).unwrap();
    let mut best: BTreeMap<u32, Run> = BTreeMap::new();
    for run in &of.runs {
        let known = best.entry(run.gpus).or_insert(*run);
        if run.seconds < known.seconds {
            *known = *run;
        }
    }
    Curve::of_runs(Measure::Elapsed, &best.into_values().collect::<Vec<_>>())
}

/// Curves of at least three counts: by benchmark and accelerator over all submitters, and by submitter besides where that is another
/// curve.
fn mlperf_curves(path: &str) -> Vec<Curve> {
    let mut csv = csv::Reader::from_path(path).unwrap();
    let names = csv.headers().unwrap().clone();
    let at = |name: &str| names.iter().position(|it| it == name).unwrap();
    let [benchmark, submitter, accelerator, nodes, gpus, minutes] =
        ["benchmark", "submitter", "accelerator", "nodes", "accelerators", "minutes_olympic_mean"].map(at);
    let (mut all, mut by_submitter) = (History::default(), History::default());
    for row in csv.records().map(|row| row.unwrap()) {
        let run = Run {
            nodes: row[nodes].parse().ok(),
            gpus: row[gpus].parse().unwrap(),
            cpus: None,
            seconds: row[minutes].parse::<f64>().unwrap() * 60.0,
            power_watts: None,
        };
        all.add(&row[benchmark], &row[accelerator], Measure::Elapsed, run);
        let own = format!("{}/{}", &row[benchmark], &row[submitter]);
        by_submitter.add(&own, &row[accelerator], Measure::Elapsed, run);
    }
    let curve = |workload: &Workload| Curve::of(workload);
    let mut curves: Vec<Curve> = all.workloads.iter().map(curve).filter(is_long).collect();
    for own in by_submitter.workloads.iter().map(curve).filter(is_long) {
        let is_new =
            |known: &Curve| known.points.iter().map(|it| it.gpus).ne(own.points.iter().map(|it| it.gpus));
        if curves.iter().all(|known| {
            is_new(known) || known.points[0].log_seconds.to_bits() != own.points[0].log_seconds.to_bits()
        }) {
            curves.push(own);
        }
    }
    curves
}

/// What tells a time.
#[derive(Clone, Copy)]
enum Laws {
    ByEvidence,
    Halves,
    One(Law),
}

/// What came of one kind of count that was held out.
#[derive(Default)]
struct Held {
    errors: Vec<f64>,
    inside: usize,
    intervals: usize,
}

impl Held {
    fn add(&mut self, told: f64, interval: Option<Estimate>, truth: f64) {
        self.errors.push((told / truth - 1.0).abs());
        if let Some(interval) = interval {
            self.intervals += 1;
            self.inside += usize::from(interval.low <= truth && truth <= interval.high);
        }
    }

    /// `asked_percent`: what the median error is to be at most, where that was said of this kind.
    fn print(mut self, curves: &str, laws: &str, what: &str, asked_percent: Option<u32>) {
        self.errors.sort_by(f64::total_cmp);
        let Some(last) = self.errors.len().checked_sub(1) else {
            println!("| {curves} | {laws} | {what} | 0 | | | | | |");
            return;
        };
        let part = |tenths: usize| self.errors[last * tenths / 10] * 100.0;
        let held = match self.intervals {
            0 => " | ".to_owned(),
            all => format!("{} of {all} ({:.0} %) | 80 %", self.inside, 100.0 * ratio(self.inside, all)),
        };
        let asked = asked_percent.map(|percent| format!("{percent} %")).unwrap_or_default();
        println!(
            "| {curves} | {laws} | {what} | {} | {:.1} % | {asked} | {:.1} % | {held} |",
            last + 1,
            part(5),
            part(9)
        );
    }
}

fn ratio(part: usize, whole: usize) -> f64 {
    f64::from(u32::try_from(part).unwrap()) / f64::from(u32::try_from(whole).unwrap())
}

/// What two points say of the counts up to twice and up to four times the larger.
fn from_two(
    curve: &Curve,
    (first, second): (usize, usize),
    laws: Laws,
    one_out: &mut [Option<&mut Held>; 2],
    two_out: &mut Held,
) {
    let mut two = curve.clone();
    two.points = vec![curve.points[first].clone(), curve.points[second].clone()];
    let (fit, largest) = (Fit::of(&two).unwrap(), curve.points[second].gpus);
    for point in &curve.points[second + 1..] {
        if point.gpus <= 2 * largest {
            for held in one_out.iter_mut().flatten() {
                score(held, &fit, laws, point.gpus, point.seconds());
            }
        } else if point.gpus <= 4 * largest {
            score(two_out, &fit, laws, point.gpus, point.seconds());
        }
    }
}

/// Inside: each count between the ends from all others. Out: the counts up to 2 and 4 times the larger of two, from these two alone: from the
/// two smallest, and from each two of a curve.
fn errors(name: &str, curves: &[Curve]) {
    let name_of_told = "both by evidence (what is told)";
    for laws in [Laws::ByEvidence, Laws::Halves, Laws::One(Law::Amdahl), Laws::One(Law::Power)] {
        let (mut inside, mut smallest) = (Held::default(), Held::default());
        let (mut one_out, mut two_out) = (Held::default(), Held::default());
        for curve in curves {
            for at in 1..curve.points.len() - 1 {
                let mut rest = curve.clone();
                let point = rest.points.remove(at);
                score(&mut inside, &Fit::of(&rest).unwrap(), laws, point.gpus, point.seconds());
            }
            for first in 0..curve.points.len() - 1 {
                for second in first + 1..curve.points.len() - 1 {
                    let begun = (first == 0 && second == 1).then_some(&mut smallest);
                    from_two(curve, (first, second), laws, &mut [begun, Some(&mut one_out)], &mut two_out);
                }
            }
        }
        let laws = match laws {
            Laws::ByEvidence => name_of_told,
            Laws::Halves => "half of each",
            Laws::One(Law::Amdahl) => "Amdahl with prior",
            Laws::One(Law::Power) => "power with prior",
        };
        let is_told = name_of_told == laws;
        inside.print(name, laws, "inside, from all others", is_told.then_some(INSIDE_PERCENT_MAX));
        let asked = is_told.then_some(DOUBLING_PERCENT_MAX);
        smallest.print(name, laws, "one doubling out, from the two smallest", asked);
        one_out.print(name, laws, "one doubling out, from any two", asked);
        two_out.print(name, laws, "two doublings out, from any two", None);
    }
}

fn score(held: &mut Held, fit: &Fit, laws: Laws, gpus: u32, truth: f64) {
    match laws {
        Laws::ByEvidence => {
            let told = fit.time(gpus).unwrap();
            held.add(told.expected, Some(told), truth);
        }
        Laws::Halves => {
            let [amdahl, power] = Law::ALL.map(|law| fit.time_by(law, gpus));
            held.add((amdahl * power).sqrt(), None, truth);
        }
        Laws::One(law) => held.add(fit.time_by(law, gpus), None, truth),
    }
}

/// The largest of the curve's own counts that keeps the efficiency, estimated from the three smallest and within reach of them, beside the
/// measured one within the same reach.
fn counts(curves: &[Curve]) {
    println!("| counts | within reach | measured | estimated |\n|---|---|---|---|");
    let (mut all, mut equal, mut near, mut above) = (0, 0, 0, 0);
    for curve in curves.iter().filter(|curve| curve.points.len() >= 4) {
        let mut three = curve.clone();
        three.points.truncate(3);
        let fit = Fit::of(&three).unwrap();
        let list: Vec<u32> = curve.points.iter().map(|it| it.gpus).collect();
        let within: Vec<u32> = list.iter().copied().filter(|gpus| *gpus <= fit.reach()).collect();
        let estimated =
            within.iter().copied().rfind(|gpus| estimated_efficiency(&three, &fit, *gpus) >= HALF).unwrap();
        let measured = curve.break_even(HALF).unwrap();
        let place = |gpus: u32| list.iter().position(|it| *it == gpus).unwrap();
        all += 1;
        equal += usize::from(estimated == measured);
        near += usize::from(place(estimated).abs_diff(place(measured)) <= 1);
        above += usize::from(estimated > measured);
        println!("| {list:?} | {} | {measured} | {estimated} |", within.last().unwrap());
    }
    println!(
        "\n{all} curves: equal {equal}, within one step {near} (asked: at least 9 of 14), above the measured {above} (asked: none)."
    );
}

fn estimated_efficiency(three: &Curve, fit: &Fit, gpus: u32) -> f64 {
    if let Some(point) = three.at(gpus) {
        return three.efficiency(point);
    }
    let first = &three.points[0];
    first.seconds() / fit.time_for_counts(gpus).unwrap() * f64::from(first.gpus) / f64::from(gpus)
}
