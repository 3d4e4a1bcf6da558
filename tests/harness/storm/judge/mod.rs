//! Finds the harm in what is known of a storm; pure.
//!
//! A harm is what plain Slurm would not have done to the job. Where `slurmctld` was killed (it saves its state some seconds
//! late), could not answer, or a node's `slurmd` or driver was broken, plain Slurm harms jobs as well: such harms are told apart as excused.

mod devices;
mod environment;
mod runs;
mod waiting;

#[cfg(test)]
mod tests;

pub(in crate::storm) use waiting::{idle, waits};

use super::facts::{Facts, Job, Span, Start};
use super::plan::{Broken, How, Part};
use std::collections::BTreeSet;
use std::fmt;

/// Of what came before, slurmctld forgets so much when it is killed: it saves its state every five seconds, and later where
/// the machine is busy.
const FORGOTTEN_SECONDS: f64 = 12.0;
/// How long Slurm takes to be itself again after one of its daemons came back.
const RECOVERY_SECONDS: f64 = 20.0;

/// The kinds of harm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum HarmKind {
    /// A submission that plain Slurm would have taken.
    Refused,
    /// It waits still, and will for ever.
    NeverRan,
    /// More starts than it was requeued for, or two of one restart count.
    RanTwice,
    /// Not to its end, though nobody cancelled it.
    EndedWrong,
    /// Started after its user had cancelled it.
    RanAfterCancel,
    /// Started, or free to start, while it was held.
    HoldLifted,
    /// Started before what it waits for had ended.
    DependencyBroken,
    /// More tasks of an array at once than allowed.
    ThrottleBroken,
    /// Held back for longer than the bound while a device was free.
    WaitedTooLong,
    /// More than 100 shards of a GPU.
    Overbooked,
    /// Two users on one GPU, which the policy forbids.
    Strangers,
    /// Two on one GPU that were not planned together.
    Unplanned,
    /// Not the environment that was decided.
    WrongEnvironment,
    /// It ran as it was decided, and Pillion did not know it.
    DecisionDropped,
    /// A job that does not share found something of ours.
    PlainTouched,
    /// It did not run as its user had changed it.
    NotAsChanged,
    /// A daemon of ours ended by itself.
    DaemonDied,
    /// A node was drained or down by itself.
    NodeDrained,
}

impl fmt::Display for HarmKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Refused => "submission refused",
            Self::NeverRan => "waits for ever",
            Self::RanTwice => "ran twice",
            Self::EndedWrong => "ended wrong",
            Self::RanAfterCancel => "ran after cancel",
            Self::HoldLifted => "hold lifted",
            Self::DependencyBroken => "dependency broken",
            Self::ThrottleBroken => "throttle broken",
            Self::WaitedTooLong => "waited too long",
            Self::Overbooked => "overbooked GPU",
            Self::Strangers => "two users shared",
            Self::Unplanned => "shared unplanned",
            Self::WrongEnvironment => "wrong environment",
            Self::DecisionDropped => "decision dropped",
            Self::PlainTouched => "plain job touched",
            Self::NotAsChanged => "not as changed",
            Self::DaemonDied => "daemon died",
            Self::NodeDrained => "node drained",
        })
    }
}

/// One harm.
#[derive(Debug, Clone, PartialEq)]
pub struct Harm {
    /// Which.
    pub kind: HarmKind,
    /// The job, as an index of [`Facts::jobs`].
    pub job: Option<usize>,
    /// One line of how it came.
    pub text: String,
    /// Why plain Slurm may have done the same.
    pub excuse: Option<String>,
}

/// Everything that was found.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Verdict {
    /// What Pillion did.
    pub harms: Vec<Harm>,
    /// What plain Slurm may have done as well, because its own daemons were broken.
    pub excused: Vec<Harm>,
}

/// Judges a storm.
pub fn judge(facts: &Facts) -> Verdict {
    let mut harms = Vec::new();
    runs::judge(facts, &mut harms);
    waiting::judge(facts, &mut harms);
    devices::judge(facts, &mut harms);
    environment::judge(facts, &mut harms);
    let sights = [
        (HarmKind::Overbooked, &facts.overbooked),
        (HarmKind::DaemonDied, &facts.died),
        (HarmKind::NodeDrained, &facts.drained),
    ];
    for (kind, sights) in sights {
        harms.extend(sights.iter().map(|sight| Harm {
            kind,
            job: None,
            text: sight.text.clone(),
            excuse: None,
        }));
    }
    for harm in &mut harms {
        if harm.excuse.is_none() {
            harm.excuse = harm.job.and_then(|job| excuse(facts, &facts.jobs[job], harm.kind));
        }
    }
    excuse_followers(facts, &mut harms);
    harms.sort_by_key(|harm| (harm.kind, harm.job));
    let (excused, harms) = harms.into_iter().partition(|harm| harm.excuse.is_some());
    Verdict { harms, excused }
}

/// Who waits for a job that Slurm itself has harmed waits for what never ends, or for nobody: slurmctld that is killed gives the
/// number of a job that it forgot to another. And whoever waits for that one.
fn excuse_followers(facts: &Facts, harms: &mut [Harm]) {
    loop {
        let harmed: BTreeSet<usize> =
            harms.iter().filter(|harm| harm.excuse.is_some()).filter_map(|harm| harm.job).collect();
        let follows = |harm: &Harm| {
            let job = &facts.jobs[harm.job.filter(|_| harm.excuse.is_none())?];
            let is_of_waiting = match harm.kind {
                HarmKind::DependencyBroken => true,
                HarmKind::Refused => job.said.contains("Job dependency problem"),
                HarmKind::NeverRan => {
                    job.left.as_ref().is_some_and(|seen| seen.reason.starts_with("Dependency"))
                }
                HarmKind::EndedWrong => job.state() == "CANCELLED",
                _ => false,
            };
            let is_lost = |other: &usize| harmed.contains(other) || facts.jobs[*other].shares_number;
            runs::awaited(facts, job).find(|other| is_of_waiting && is_lost(other))
        };
        let Some((index, whom)) =
            harms.iter().enumerate().find_map(|(index, harm)| Some((index, follows(harm)?)))
        else {
            return;
        };
        harms[index].excuse =
            Some(format!("it waits for #{}, whom Slurm harmed", facts.jobs[whom].order.number));
    }
}

/// Whose daemon was broken when something happened to the job, so that plain Slurm may have done it.
fn excuse(facts: &Facts, job: &Job, kind: HarmKind) -> Option<String> {
    let moments = || {
        let done = job.done.iter().flat_map(|done| [done.span.from, done.span.until]);
        let allocated = job.allocations.iter().flat_map(|one| [Some(one.at), one.until]).flatten();
        [job.submitted.from, job.submitted.until].into_iter().chain(done).chain(allocated)
    };
    // Whether it was taken, nobody was told; a start under a hold is none of what may follow.
    let may_follow = matches!(
        kind,
        HarmKind::RanTwice | HarmKind::EndedWrong | HarmKind::NeverRan | HarmKind::WaitedTooLong
    );
    let is_unsure = |span: &Span| {
        job.submitted.meets(span) || job.done.iter().any(|done| done.is_unclear() && done.span.meets(span))
    };
    if may_follow && slurm_away(facts, |part| part == Part::Slurmctld).any(|span| is_unsure(&span)) {
        return Some("slurmctld was away when it was asked".to_owned());
    }
    // What Slurm's accounting has of that number, and what was done to it, may be the other's.
    let may_be_of_another = matches!(kind, HarmKind::NotAsChanged | HarmKind::RanAfterCancel)
        || kind == HarmKind::EndedWrong && job.accounts.is_empty() && ran_to_its_end(job);
    if job.shares_number && may_be_of_another {
        return Some("slurmctld was killed, and gave its number to another".to_owned());
    }
    if kind == HarmKind::EndedWrong && was_revoked_by_its_user(facts, job) {
        return Some("its user's own StartTime=now right after a requeue".to_owned());
    }
    facts.outages.iter().find_map(|outage| match outage.broken {
        Broken::Process(Part::Slurmctld, How::Kill) => {
            let forgets = Span {
                from: outage.span.from - FORGOTTEN_SECONDS,
                until: outage.span.until + RECOVERY_SECONDS,
            };
            moments().any(|at| forgets.holds(at)).then(|| "slurmctld was killed about then".to_owned())
        }
        Broken::Process(Part::Slurmd(node), _) if kind != HarmKind::WaitedTooLong => {
            let away = Span { from: outage.span.from - 1.0, until: outage.span.until + RECOVERY_SECONDS };
            let met = job.allocations.iter().any(|one| {
                let span = Span { from: one.at, until: one.until.unwrap_or(f64::INFINITY) };
                one.has(node) && span.meets(&away)
            });
            met.then(|| format!("slurmd of {node} was broken about then"))
        }
        // A program whose device does not answer gives up, wherever it runs.
        Broken::Process(Part::Driver(node), _) if kind == HarmKind::EndedWrong => {
            let gave_up = |start: &Start| {
                let until = start.ended_at.unwrap_or(f64::INFINITY);
                start.node == node
                    && start.exit.is_some_and(|exit| exit != 0)
                    && outage.span.meets(&Span { from: start.at, until })
            };
            let met = job.starts.last().is_some_and(gave_up);
            met.then(|| format!("the driver of {node} did not answer then"))
        }
        _ => None,
    })
}

fn ran_to_its_end(job: &Job) -> bool {
    job.starts.last().is_some_and(|start| start.exit == Some(0))
}

/// Slurm refuses a start in the second in which a node gave the last one's credential back, and the job fails. Plain Slurm does
/// so too where nobody but the user or root moved the begin time of a requeued job to now.
fn was_revoked_by_its_user(facts: &Facts, job: &Job) -> bool {
    let lines = facts.log.get(&job.name).map(Vec::as_slice).unwrap_or_default();
    let Some(revoked) = lines.iter().rposition(|line| line.contains("Job credential revoked")) else {
        return false;
    };
    let Some(requeued) = lines[..revoked].iter().rposition(|line| line.contains("Requeuing JobId=")) else {
        return false;
    };
    let by_us = format!("uid={} ", facts.slurm_uid);
    !lines[requeued..revoked]
        .iter()
        .any(|line| line.contains("_slurm_rpc_update_job") && line.contains(&by_us))
}

/// What was broken of Slurm itself, from when on and until it was itself again.
fn slurm_away<'f>(facts: &'f Facts, is_it: impl Fn(Part) -> bool + 'f) -> impl Iterator<Item = Span> + 'f {
    facts.outages.iter().filter_map(move |outage| match outage.broken {
        Broken::Process(part, _) if is_it(part) => {
            Some(Span { from: outage.span.from, until: outage.span.until + RECOVERY_SECONDS })
        }
        _ => None,
    })
}

/// Seconds since the storm began, for people.
pub(in crate::storm) fn clock(facts: &Facts, at: f64) -> String {
    format!("{:.2}", at - facts.began_at)
}
