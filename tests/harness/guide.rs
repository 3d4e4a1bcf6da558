//! Texts that are typed as they stand: their fenced blocks, and who types what.

/// One fenced block of a text.
#[derive(Debug)]
pub struct Block {
    /// What stands behind its opening fence.
    pub language: String,
    /// Its lines.
    pub lines: Vec<String>,
}

/// Every fenced block of a text, in its order.
///
/// # Panics
/// Where one is not closed.
pub fn blocks(text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for line in text.lines() {
        match (line.strip_prefix("```"), open.take()) {
            (Some(language), None) => {
                open = Some(Block { language: language.trim().to_owned(), lines: Vec::new() });
            }
            (Some(_), Some(block)) => blocks.push(block),
            (None, Some(mut block)) => {
                block.lines.push(line.to_owned());
                open = Some(block);
            }
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "a block is not closed");
    blocks
}

/// Who types a line of a console, and what; `None` where it is shown output.
pub fn typed(line: &str) -> Option<(&'static str, &str)> {
    line.strip_prefix("$ ")
        .map(|command| ("alice", command))
        .or_else(|| line.strip_prefix("# ").map(|command| ("root", command)))
}
