//! docs/quickstart.md, read and typed as it stands; what is said of it elsewhere is held against it.

use crate::site::{SLURM_CONF, Site};
use pillion_tests::guide::{Block, blocks};
use pillion_tests::machine::Machine;
use std::collections::VecDeque;

const QUICKSTART: &str = include_str!("../../docs/quickstart.md");
const README: &str = include_str!("../../README.md");
const CHANGELOG: &str = include_str!("../../docs/CHANGELOG.md");
/// The most that a reader is asked to type, and files that he is asked to edit.
const TYPED_LINES_MAX: usize = 25;
const EDITED_FILES_MAX: usize = 3;
/// The line of this site's slurm.conf that has the pool's node in it.
const WITH_THE_NODE: &str = "PartitionName=gpu Nodes=n1,n2";

/// The one file that is edited by hand: the node in no partition but one of its own, which the quickstart gives.
pub(crate) fn edit_slurm_conf(controller: &Machine) {
    let lines: Vec<&str> = QUICKSTART.split('`').filter(|it| it.starts_with("PartitionName=")).collect();
    let [line] = lines[..] else { panic!("the quickstart gives one partition: {lines:?}") };
    let with_pool = format!("{line}\nPartitionName=gpu Nodes=n2");
    controller.edits(SLURM_CONF, &[(WITH_THE_NODE, &with_pool)]).unwrap();
}

/// What is typed and edited is no more than a reader is asked for, and as much as he is told.
fn check_what_is_asked(blocks: &VecDeque<Block>) {
    let lines: Vec<&String> = blocks.iter().flat_map(|block| &block.lines).collect();
    let count = lines.len();
    assert!(count <= TYPED_LINES_MAX, "{count} lines are to be typed");
    for (text, said) in [
        (QUICKSTART, format!("{count} lines to type and a single file to change by hand")),
        (README, format!("to a first pair in {count} lines")),
        (CHANGELOG, format!("to a first pair in {count} lines")),
    ] {
        assert!(text.contains(&said), "it is nowhere said: {said}");
    }
    let by_hand = QUICKSTART.split("file to edit: `").skip(1).filter_map(|rest| rest.split('`').next());
    assert_eq!(by_hand.collect::<Vec<_>>(), [SLURM_CONF], "a single file to change by hand");
    let by_line = lines.iter().filter(|line| line.starts_with("sed -i ")).count();
    assert!(by_line < EDITED_FILES_MAX, "{by_line} files are edited by what is typed, and one by hand");
}

/// The quickstart, block after block.
pub(crate) struct Reader {
    blocks: VecDeque<Block>,
}

impl Reader {
    pub(crate) fn new() -> Self {
        let blocks: VecDeque<Block> =
            blocks(QUICKSTART).into_iter().filter(|block| block.language.starts_with("sh ")).collect();
        check_what_is_asked(&blocks);
        Self { blocks }
    }

    /// The next block, which begins with `first`, typed on the hosts that it is for.
    pub(crate) fn types(&mut self, site: &Site, first: &str) -> String {
        let block = self.next(first);
        let mut said = String::new();
        for host in block.language.split_whitespace().skip(1) {
            // The machines have no GPUs.
            let lines = block.lines.join("\n").replace("--backend nvidia", "--backend simulated");
            let typed = site.machine(host).types(&lines);
            said += &typed.unwrap_or_else(|error| panic!("{error:?}\n{}", site.logs()));
        }
        said
    }

    pub(crate) fn next(&mut self, first: &str) -> Block {
        let block = self.blocks.pop_front().expect("the quickstart has more steps than this");
        let begins = block.lines[0].starts_with(first);
        assert!(begins, "the next step of the quickstart is\n{}", block.lines.join("\n"));
        block
    }

    /// Nothing is left to be typed.
    pub(crate) fn ends(&self) {
        assert!(self.blocks.is_empty(), "the quickstart has more steps than this");
    }
}
