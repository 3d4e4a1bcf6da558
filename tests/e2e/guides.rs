//! What the guides show is what happens: every command of a `console` block is run, by the person whom its prompt names, while
//! a pair runs; every job script is submitted; and every `pillion ..` that a text names exists, with its options.

use crate::rides::{SOON, load, make_known, starts, submit};
use pillion_core::SlurmJobId;
use pillion_tests::guide::{Block, blocks, typed};
use pillion_tests::wait::wait_until;
use pillion_tests::{Cluster, ClusterSpec};
use std::collections::BTreeSet;

/// The guides whose commands are run, in the order in which a cluster meets them.
const GUIDES: [(&str, &str); 3] = [
    ("docs/admin-guide.md", include_str!("../../docs/admin-guide.md")),
    ("docs/user-guide.md", include_str!("../../docs/user-guide.md")),
    ("docs/operator-guide.md", include_str!("../../docs/operator-guide.md")),
];
/// Other texts that name commands.
const TEXTS: [(&str, &str); 13] = [
    ("README.md", include_str!("../../README.md")),
    ("docs/faq.md", include_str!("../../docs/faq.md")),
    ("docs/site-policy.md", include_str!("../../docs/site-policy.md")),
    ("docs/planning-on-files.md", include_str!("../../docs/planning-on-files.md")),
    ("docs/backtest.md", include_str!("../../docs/backtest.md")),
    ("docs/compare.md", include_str!("../../docs/compare.md")),
    ("docs/frameworks.md", include_str!("../../docs/frameworks.md")),
    ("docs/quickstart.md", include_str!("../../docs/quickstart.md")),
    ("docs/runbook.md", include_str!("../../docs/runbook.md")),
    ("docs/security.md", include_str!("../../docs/security.md")),
    ("docs/sizing.md", include_str!("../../docs/sizing.md")),
    ("docs/support.md", include_str!("../../docs/support.md")),
    ("docs/upgrade.md", include_str!("../../docs/upgrade.md")),
];
/// The job of the guides.
const JOB: &str = "4711";
const PAIR: [&str; 2] = ["resnet50-infer", "bert-small-batch"];
/// Longer than all commands take: 400 seconds of real time.
const PAIR_SECONDS: u32 = 24_000;

/// Every `pillion ..` that a text names, as far as it is a command line: without what follows it in the shell.
fn named(text: &str) -> BTreeSet<String> {
    let in_blocks =
        blocks(text).into_iter().filter(|block| block.language != "text").flat_map(|block| block.lines);
    let in_sentences = text.split('`').skip(1).step_by(2).map(str::to_owned);
    let mut found = BTreeSet::new();
    for line in in_blocks.chain(in_sentences) {
        let line = typed(&line).map_or(line.as_str(), |(_, command)| command);
        if line.starts_with("pillion ") && !line.contains('\n') {
            let end = line.find(['#', ';', '|', '>', '<']).unwrap_or(line.len());
            found.insert(line[..end].trim().trim_end_matches("..").trim_end_matches('\\').trim().to_owned());
        }
    }
    found
}

/// The job scripts of a text.
fn scripts(text: &str) -> Vec<String> {
    let is_script = |block: &Block| block.lines.first().is_some_and(|line| line.starts_with("#!"));
    blocks(text).into_iter().filter(is_script).map(|block| block.lines.join("\n") + "\n").collect()
}

/// A pair that runs on for long.
fn running_pair(cluster: &Cluster) -> SlurmJobId {
    make_known(cluster, &["alice"], &PAIR, &[&[]]);
    let begin = cluster.begin_together(3).unwrap();
    let jobs =
        PAIR.map(|name| submit(cluster, "alice", name, &load(name, PAIR_SECONDS), &[&begin, "-x", "n2"]));
    for job in jobs {
        wait_until("start in a pair", SOON, || Ok(!starts(cluster, "alice", job).is_empty())).unwrap();
        let decision = &starts(cluster, "alice", job)[0]["decision"];
        assert!(!decision.is_empty(), "job {job} runs without a decision");
    }
    jobs[0]
}

/// Every command that a text names exists, with its options.
fn check_named(cluster: &Cluster) {
    let mut asked = 0;
    for (name, text) in GUIDES.into_iter().chain(TEXTS) {
        for command in named(text) {
            // `--help` goes before what is missing, and after what is not known.
            let line = format!("{} --help", command.replace("JOB", JOB));
            let output = cluster.shell_as("alice", &line).unwrap().output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{name} names `{command}`: {said}");
            asked += 1;
        }
    }
    assert!(asked > 40, "only {asked} commands were found");
}

#[test]
fn every_command_of_the_guides_does_what_it_says() {
    let mut cluster = Cluster::start(ClusterSpec::default()).unwrap();
    check_named(&cluster);
    cluster.start_pillion().unwrap();
    let job = running_pair(&cluster).to_string();
    let conf = cluster.layout().slurm_conf();
    let conf = conf.parent().unwrap().to_str().unwrap();
    let mut ran = 0;
    for (guide, text) in GUIDES {
        for script in scripts(text) {
            let submitted = cluster.try_submit_as("alice", &script, &[]).unwrap();
            assert!(
                submitted.said.contains("waits for a GPU, of its own or shared"),
                "{guide}: sbatch of\n{script}said {}",
                submitted.said
            );
        }
        for block in blocks(text).into_iter().filter(|block| block.language == "console") {
            for (who, command) in block.lines.iter().filter_map(|line| typed(line)) {
                let line = command.replace(JOB, &job).replace("/etc/slurm", conf);
                let output = cluster.shell_as(who, &line).unwrap().output().unwrap();
                let said = String::from_utf8_lossy(&output.stderr);
                let printed = String::from_utf8_lossy(&output.stdout);
                assert!(
                    output.status.success(),
                    "{guide}: `{line}` as {who}: {}\n{printed}{said}",
                    output.status
                );
                ran += 1;
            }
        }
    }
    assert!(ran > 20, "only {ran} commands were found");
}
