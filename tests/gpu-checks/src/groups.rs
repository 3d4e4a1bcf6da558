//! More than two at a time, without caps: copies of one program, and three and four different ones: `tests/gpu groups FILE`.
//! The programs are those of [`crate::own`], and so are their pairs.

use crate::bench::Bench;
use crate::own::{Named, Program, Session, or_skipped, speeds};
use crate::report::{Findings, Measured, table};
use crate::results::{Group, Results};
use std::slice;

/// How many copies of one program are tried, in this order; those of a step are started at once.
const COPIES: [&[usize]; 2] = [&[2, 3, 4], &[6, 8, 12, 16]];
/// More copies are tried only while the slowest has this of its speed alone: nobody would put more there.
const SLOWEST_MIN: f64 = 0.5;
/// Of all threes and of all fours so many at most, spread over all of them.
const GROUPS_MAX: usize = 20;

impl Session {
    /// Threes or fours of different programs, each of the speed alone just before.
    ///
    /// # Errors
    /// A sentence: who fails.
    pub fn different(&mut self, results: &mut Results, size: usize, has_time: &dyn Fn() -> bool) -> Measured {
        let whole = self.speeds_alone()?;
        let chosen = spread(combinations(self.named.len(), size), GROUPS_MAX);
        let (mut found, mut missing, mut skipped) = (Vec::new(), 0, Vec::new());
        for members in chosen {
            if !has_time() {
                missing += 1;
                continue;
            }
            let mut running: Vec<&mut Program> = Vec::new();
            for (index, program) in self.uncapped.programs.iter_mut().enumerate() {
                if members.contains(&index) {
                    running.push(program);
                }
            }
            let names: Vec<String> = members.iter().map(|member| self.named[*member].name.clone()).collect();
            let Some(speeds) = or_skipped(speeds(&mut running), &names, &mut skipped) else { continue };
            let of = speeds.iter().zip(&members).map(|(speed, member)| speed / whole[*member]);
            found.push(Group { workloads: names, speed_fractions: of.collect() });
        }
        Ok(told(found, missing, skipped, results))
    }

    /// Copies of each program, more and more of them.
    ///
    /// # Errors
    /// A sentence: who fails.
    pub fn copies(
        &mut self,
        bench: &mut Bench,
        results: &mut Results,
        has_time: &dyn Fn() -> bool,
    ) -> Measured {
        let (mut found, mut missing, mut skipped) = (Vec::new(), 0, Vec::new());
        for (named, first) in self.named.iter().zip(&mut self.uncapped.programs) {
            if !has_time() {
                missing += 1;
                continue;
            }
            let alone = speeds(&mut [&mut *first]);
            let Some(alone) = or_skipped(alone, slice::from_ref(&named.name), &mut skipped) else { continue };
            let mut more: Vec<Program> = Vec::new();
            'steps: for counts in COPIES {
                let wanted = counts.last().map_or(0, |most| most - 1 - more.len());
                more.extend(copies_of(bench, named, wanted)?);
                let (mut slowest, there_are) = (f64::INFINITY, more.len() + 1);
                for count in counts.iter().filter(|count| **count <= there_are) {
                    let mut running: Vec<&mut Program> = vec![&mut *first];
                    running.extend(more.iter_mut().take(count - 1));
                    let workloads = vec![named.name.clone(); *count];
                    let Some(speeds) = or_skipped(speeds(&mut running), &workloads, &mut skipped) else {
                        break 'steps;
                    };
                    let of = speeds.iter().map(|speed| speed / alone[0]);
                    let group = Group { workloads, speed_fractions: of.collect() };
                    slowest = group.slowest();
                    found.push(group);
                }
                if slowest < SLOWEST_MIN || !has_time() {
                    break;
                }
            }
        }
        Ok(told(found, missing, skipped, results))
    }
}

/// So many more of a program that come up: one that does not has no room.
fn copies_of(bench: &Bench, named: &Named, count: usize) -> Result<Vec<Program>, String> {
    let started: Result<Vec<Program>, String> =
        (0..count).map(|_| Program::start(bench, named, 100)).collect();
    let mut ready = started?;
    ready.retain(|program| program.wait_until_ready(&named.name).is_ok());
    Ok(ready)
}

fn told(mut found: Vec<Group>, missing: usize, mut skipped: Vec<String>, results: &mut Results) -> Findings {
    let text = text(&found);
    results.groups.append(&mut found);
    skipped.extend((missing > 0).then(|| format!("{missing} groups: no time was left")));
    Findings { text, apart: 0, skipped }
}

fn text(groups: &[Group]) -> String {
    let rows = groups.iter().map(|group| {
        let speeds = &group.speed_fractions;
        let slowest = group.slowest();
        let fastest = speeds.iter().copied().fold(0.0, f64::max);
        let sum = speeds.iter().sum::<f64>();
        let first = &group.workloads[0];
        let name = if group.workloads.iter().all(|name| name == first) {
            format!("{} of {first}", group.workloads.len())
        } else {
            group.workloads.join(", ")
        };
        vec![name, format!("{slowest:.3}"), format!("{fastest:.3}"), format!("{sum:.3}")]
    });
    let heading = ["programs", "slowest: speed, of that alone", "fastest: the same", "sum"];
    table(&heading, rows)
}

/// All sets of so many numbers below `count`, each in ascending order.
fn combinations(count: usize, size: usize) -> Vec<Vec<usize>> {
    let mut sets = vec![Vec::new()];
    for _ in 0..size {
        let longer = |set: Vec<usize>| {
            let from = set.last().map_or(0, |last| last + 1);
            (from..count).map(move |next| [set.clone(), vec![next]].concat())
        };
        sets = sets.into_iter().flat_map(longer).collect();
    }
    sets
}

/// So many of them at most, from all over.
fn spread<T>(all: Vec<T>, count_max: usize) -> Vec<T> {
    let step = all.len().div_ceil(count_max.max(1)).max(1);
    all.into_iter().step_by(step).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_all_there_are_and_some_of_them_come_from_all_over() {
        assert_eq!(combinations(4, 3), [vec![0, 1, 2], vec![0, 1, 3], vec![0, 2, 3], vec![1, 2, 3]]);
        assert_eq!(combinations(8, 4).len(), 70);
        assert!(combinations(2, 3).is_empty());
        let some = spread(combinations(8, 4), GROUPS_MAX);
        assert!((15..=GROUPS_MAX).contains(&some.len()), "{}", some.len());
        assert!(some.iter().any(|set| set.contains(&7)) && some[0] == [0, 1, 2, 3]);
    }

    #[test]
    fn a_group_is_told_by_its_slowest() {
        let mixed = Group {
            workloads: ["a", "b", "c"].map(str::to_owned).to_vec(),
            speed_fractions: vec![0.5, 1.0, 0.75],
        };
        let copies = Group { workloads: vec!["a".to_owned(); 2], speed_fractions: vec![0.9, 1.0] };
        let text = text(&[mixed, copies]);
        assert!(text.contains("| a, b, c | 0.500 | 1.000 | 2.250 |\n"), "{text}");
        assert!(text.ends_with("| 2 of a | 0.900 | 1.000 | 1.900 |\n"), "{text}");
    }
}
