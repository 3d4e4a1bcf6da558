//! `[[policy.override]]`: what the site says of some jobs, by partition, account and QOS; the first that matches a job is the one that
//! counts (docs/decisions/0036-policy-by-job.md). Pure: what each says, and which of them say nothing.

#![expect(clippy::doc_markdown, reason = "the sentences are printed for admins as they stand")]

use crate::words::{FirstRuns, Guests, Isolation, Trials, Users, Watch};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `[[policy.override]]`: other rules for some jobs, as many times as there are such. A job's own are those of the first that matches its
/// partition, account and QOS as Slurm has them, and those of `[policy]` for what that one does not name. Of jobs on one GPU the stricter
/// rule counts.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Override {
    /// Jobs in one of these partitions; absent: in any.
    #[schemars(length(min = 1), extend("x-example" = ["shared"]))]
    pub partitions: Option<Vec<String>>,
    /// Jobs that are charged to one of these accounts, by its own name and not those above it; absent: to any. Slurm vouches for a
    /// job's account and QOS only where AccountingStorageEnforce has associations and qos.
    #[schemars(length(min = 1), extend("x-example" = ["physics", "chemistry"]))]
    pub accounts: Option<Vec<String>>,
    /// Jobs that run under one of these QOS; absent: under any.
    #[schemars(length(min = 1), extend("x-example" = ["scavenger"]))]
    pub qos: Option<Vec<String>>,
    /// The promise to those of them that name none.
    #[schemars(range(min = 1.0, max = 10.0), extend("x-example" = 2.0))]
    pub slowdown_ratio_max: Option<f64>,
    /// Who may share a device with them.
    #[schemars(with = "Option<String>", extend("enum" = ["same-user", "same-account", "any"], "x-example" = "any"))]
    pub users: Option<Users>,
    /// What stands between them and jobs of other users.
    #[schemars(with = "Option<String>", extend("enum" = ["shared", "hard"], "x-example" = "hard"))]
    pub isolation: Option<Isolation>,
    /// How many jobs may share a device with one of them among them; with 1 they share with nobody, and more than 4 are copies of one
    /// workload.
    #[schemars(range(min = 1, max = 16), extend("x-example" = 1))]
    pub tenants_max: Option<u32>,
    /// Whether they may be kept from the whole of a device's compute units.
    #[schemars(extend("x-example" = false))]
    pub caps: Option<bool>,
    /// What becomes of those of them that are the first run of their workload. Whoever joins such a one has watch = "act".
    #[schemars(with = "Option<String>", extend("enum" = ["alone", "host"], "x-example" = "alone"))]
    pub first_runs: Option<FirstRuns>,
    /// What is done where a promise is being broken on a device that one of them joined last. Goes before policy.watch_partitions.
    #[schemars(with = "Option<String>", extend("enum" = ["off", "advise", "act"], "x-example" = "act"))]
    pub watch: Option<Watch>,
    /// Whether they share for a trial, where both of the two may.
    #[schemars(with = "Option<String>", extend("enum" = ["off", "on"], "x-example" = "off"))]
    pub trials: Option<Trials>,
    /// Whether jobs that were submitted as guests may be beside them.
    #[schemars(with = "Option<String>", extend("enum" = ["beside", "never"], "x-example" = "never"))]
    pub guests: Option<Guests>,
}

impl Override {
    /// Whether it is about this job. `partition`: all that the job names, with commas between them, must be meant.
    pub fn matches(&self, partition: &str, account: &str, qos: &str) -> bool {
        let is_named = |names: &Option<Vec<String>>, own: &str| {
            names.as_ref().is_none_or(|names| names.iter().any(|name| name == own))
        };
        partition.split(',').all(|name| is_named(&self.partitions, name))
            && is_named(&self.accounts, account)
            && is_named(&self.qos, qos)
    }

    /// Which jobs it is about, in words: `qos scavenger or free, partition night`.
    pub fn of_whom(&self) -> String {
        let kinds = [("partition", &self.partitions), ("account", &self.accounts), ("QOS", &self.qos)];
        let named = kinds
            .into_iter()
            .filter_map(|(kind, names)| Some(format!("{kind} {}", names.as_ref()?.join(" or "))));
        named.collect::<Vec<_>>().join(", ")
    }

    fn names_jobs(&self) -> bool {
        self.partitions.is_some() || self.accounts.is_some() || self.qos.is_some()
    }

    fn says_nothing(&self) -> bool {
        let Self {
            partitions: _,
            accounts: _,
            qos: _,
            slowdown_ratio_max,
            users,
            isolation,
            tenants_max,
            caps,
            first_runs,
            watch,
            trials,
            guests,
        } = self;
        slowdown_ratio_max.is_none()
            && users.is_none()
            && isolation.is_none()
            && tenants_max.is_none()
            && caps.is_none()
            && first_runs.is_none()
            && watch.is_none()
            && trials.is_none()
            && guests.is_none()
    }
}

/// What is wrong with the overrides of a file: the number of each, from 1, and a sentence. `known`: the partitions that jobs are
/// decided on in.
pub(crate) fn wrong(all: &[Override], known: &[&str]) -> Vec<(usize, String)> {
    let mut wrong = Vec::new();
    for (at, own) in all.iter().enumerate() {
        let sentence = if !own.names_jobs() {
            Some("names no jobs; write partitions, accounts or qos, or its settings into [policy]".to_owned())
        } else if let Some(other) =
            own.partitions.iter().flatten().find(|name| !known.contains(&name.as_str()))
        {
            Some(format!(
                "matches no job of partition {other:?}, which is neither in pool.partitions nor in observe.partitions; remove it"
            ))
        } else if let Some(before) = shadowing(&all[..at], own, known) {
            Some(format!(
                "matches no job: policy.override[{before}] comes before it and has all that it names; the first that matches counts"
            ))
        } else if own.says_nothing() && at + 1 == all.len() {
            Some("sets nothing, and no other comes after it that it could keep away; remove it".to_owned())
        } else {
            None
        };
        wrong.extend(sentence.map(|sentence| (at + 1, sentence)));
    }
    wrong
}

/// The number of an override that takes the last of the jobs that this one names, where those before it have them all.
fn shadowing(before: &[Override], own: &Override, known: &[&str]) -> Option<usize> {
    // `None` stands for every name that nobody writes.
    let names = |names: &'_ Option<Vec<String>>| -> Vec<Option<String>> {
        names.as_ref().map_or_else(|| vec![None], |names| names.iter().cloned().map(Some).collect())
    };
    let partitions: Vec<Option<String>> = match &own.partitions {
        Some(_) => names(&own.partitions),
        None => known.iter().map(|name| Some((*name).to_owned())).collect(),
    };
    let has = |other: &Option<Vec<String>>, name: &Option<String>| {
        other.as_ref().is_none_or(|names| name.as_ref().is_some_and(|name| names.contains(name)))
    };
    let mut last = None;
    for partition in &partitions {
        for account in &names(&own.accounts) {
            for qos in &names(&own.qos) {
                let first = before.iter().position(|other| {
                    has(&other.partitions, partition) && has(&other.accounts, account) && has(&other.qos, qos)
                });
                last = last.max(Some(first? + 1));
            }
        }
    }
    last
}

#[cfg(test)]
mod tests {
    use crate::{Override, Part, mistakes, parse_scheduler};
    use proptest::prelude::*;

    fn said(overrides: &str) -> String {
        let text = format!("[pool]\npartitions = [\"day\", \"night\"]\n{overrides}");
        let lines: Vec<String> =
            mistakes(Part::Scheduler, &text, "").iter().map(ToString::to_string).collect();
        lines.join("\n")
    }

    #[test]
    fn what_is_written_is_read_in_its_order() {
        let text = "[pool]\npartitions = [\"day\"]\n[[policy.override]]\nqos = [\"free\"]\nusers = \"any\"\n\
                    slowdown_ratio_max = 3\n[[policy.override]]\npartitions = [\"day\"]\ntenants_max = 1\n";
        let all = parse_scheduler(text).unwrap().policy.overrides;
        assert_eq!((all.len(), all[0].slowdown_ratio_max, all[1].tenants_max), (2, Some(3.0), Some(1)));
        assert_eq!((all[0].of_whom(), all[1].of_whom()), ("QOS free".to_owned(), "partition day".to_owned()));
    }

    #[test]
    fn all_that_is_named_must_match_and_one_name_of_each_does() {
        let own = Override {
            partitions: Some(vec!["a".into(), "b".into()]),
            qos: Some(vec!["free".into()]),
            ..Override::default()
        };
        assert!(own.matches("b", "whoever", "free") && own.matches("a,b", "", "free"));
        assert!(
            !own.matches("c", "", "free")
                && !own.matches("a", "", "normal")
                && !own.matches("a,c", "", "free")
        );
        assert!(!own.matches("a", "", ""), "who has no QOS has none of these");
    }

    #[test]
    fn one_that_can_match_nothing_is_refused() {
        let told = said("[[policy.override]]\npartitions = [\"elsewhere\"]\nusers = \"any\"\n");
        assert_eq!(
            told,
            "line 3: policy.override[1] matches no job of partition \"elsewhere\", which is neither in pool.partitions nor in \
             observe.partitions; remove it"
        );
        assert!(said("[[policy.override]]\nusers = \"any\"\n").contains("names no jobs"));
        assert!(said("[[policy.override]]\nqos = []\nusers = \"any\"\n").contains("a list, not empty"));
        assert!(said("[[policy.override]]\nqos = [\"a\"]\n").contains("sets nothing"));
        let kept =
            "[[policy.override]]\nqos = [\"a\"]\n[[policy.override]]\naccounts = [\"b\"]\ncaps = false\n";
        assert_eq!(said(kept), "", "it keeps the one behind it away");
    }

    #[test]
    fn one_that_others_have_before_it_is_refused() {
        let first = "[[policy.override]]\nqos = [\"a\", \"b\"]\nusers = \"any\"\n";
        let told = said(&format!(
            "{first}[[policy.override]]\nqos = [\"b\"]\npartitions = [\"day\"]\nusers = \"any\"\n"
        ));
        assert!(
            told.contains("line 6: policy.override[2] matches no job: policy.override[1] comes before it"),
            "{told}"
        );
        assert_eq!(said(&format!("{first}[[policy.override]]\nqos = [\"b\", \"c\"]\nusers = \"any\"\n")), "");
        let both = "[[policy.override]]\npartitions = [\"day\"]\ncaps = false\n[[policy.override]]\npartitions = [\"night\"]\n\
                    caps = true\n[[policy.override]]\naccounts = [\"x\"]\ncaps = false\n";
        assert!(
            said(both).contains("policy.override[3] matches no job"),
            "the two have every partition there is"
        );
    }

    #[test]
    fn what_is_no_matter_of_single_jobs_is_refused_with_what_is() {
        let told = said("[[policy.override]]\nqos = [\"a\"]\nobjective = \"energy\"\n");
        assert!(
            told.contains("line 5: policy.objective is one for all jobs; an override may set caps, first_runs, guests, isolation, ")
                && told.contains("trials, users, watch, for jobs of accounts, partitions, qos"),
            "{told}"
        );
        assert!(
            said("[[policy.override]]\nqos = [\"a\"]\nuser = \"any\"\n")
                .contains("did you mean policy.override[1].users?")
        );
        assert!(
            said("[[policy.override]]\nqos = [\"a\"]\nusers = \"all\"\n")
                .contains("policy.override[1].users = \"all\" is not allowed")
        );
        assert!(said("[policy.override]\nqos = [\"a\"]\n").contains("write [[policy.override]]"));
        assert!(said("[policy]\noverride = 3\n").contains("write [[policy.override]]"));
    }

    fn names() -> impl Strategy<Value = Option<Vec<String>>> {
        proptest::option::of(proptest::collection::vec("[abc]", 1..3))
    }

    proptest! {
        /// Whatever is said to match nothing matches no job first, and of whatever else there is a job.
        #[test]
        fn shadowed_is_who_is_never_the_first(kinds in proptest::collection::vec((names(), names(), names()), 1..4)) {
            let all: Vec<Override> = kinds.into_iter().map(|(partitions, accounts, qos)| Override {
                partitions, accounts, qos, caps: Some(false), ..Override::default()
            }).collect();
            let known = ["a", "b", "c"];
            // "z": a name that nobody writes.
            let others = ["a", "b", "c", "z"];
            for (at, own) in all.iter().enumerate() {
                let is_first = known.iter().any(|partition| others.iter().any(|account| others.iter().any(|qos| {
                    all.iter().position(|one| one.matches(partition, account, qos)) == Some(at)
                })));
                prop_assert_eq!(super::shadowing(&all[..at], own, &known).is_none(), is_first, "{:?} {}", &all, at);
            }
        }
    }
}
