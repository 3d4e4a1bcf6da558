//! docs/quickstart.md, read and typed as it stands.

use crate::site::Site;
use pillion_tests::guide::{Block, blocks};
use std::collections::VecDeque;

const QUICKSTART: &str = include_str!("../../docs/quickstart.md");
/// The most that a reader is asked to type, and files that he is asked to edit.
const TYPED_LINES_MAX: usize = 25;

/// The quickstart, block after block.
pub(crate) struct Reader {
    blocks: VecDeque<Block>,
}

impl Reader {
    pub(crate) fn new() -> Self {
        let blocks: VecDeque<Block> =
            blocks(QUICKSTART).into_iter().filter(|block| block.language.starts_with("sh ")).collect();
        let lines: usize = blocks.iter().map(|block| block.lines.len()).sum();
        assert!(lines <= TYPED_LINES_MAX, "{lines} lines are to be typed");
        let edited = QUICKSTART.matches(" file to edit").count();
        assert!(edited <= 3, "{edited} files are to be edited");
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
