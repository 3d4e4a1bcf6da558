//! The files of a site.

use super::line::{Line, lines};
use std::collections::{BTreeMap, BTreeSet};

/// The file in which everything begins.
pub const SLURM_CONF: &str = "slurm.conf";
const PLUGSTACK: &str = "plugstack.conf";

/// Texts by path, as slurm.conf names them: relative to its directory, or absolute.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Files(pub BTreeMap<String, String>);

impl Files {
    /// A file's text; empty where it is not there.
    pub fn text(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }
    /// A file with everything that it includes, in the order in which Slurm reads it: file and logical line. A file that is
    /// included twice is read once, so that no line is changed twice.
    pub(super) fn read(&self, name: &str) -> Vec<(String, Line)> {
        let mut found = Vec::new();
        self.read_into(name, &mut BTreeSet::new(), &mut found);
        found
    }
    fn read_into(&self, name: &str, seen: &mut BTreeSet<String>, found: &mut Vec<(String, Line)>) {
        if !seen.insert(name.to_owned()) {
            return;
        }
        for line in lines(self.text(name)) {
            match &line.includes {
                Some(included) => self.read_into(included, seen, found),
                None => found.push((name.to_owned(), line)),
            }
        }
    }
    /// The files that a text names and that are not here yet: those that it includes, and plugstack.conf.
    pub fn missing(&self) -> Vec<String> {
        let included = self.0.values().flat_map(|text| lines(text)).filter_map(|line| line.includes);
        included.chain([self.plugstack()]).filter(|name| !self.0.contains_key(name)).collect()
    }
    /// The name of the file that says which SPANK plugins are loaded.
    pub(super) fn plugstack(&self) -> String {
        let mut lines = self.read(SLURM_CONF).into_iter().rev();
        let named = lines.find_map(|(_, line)| line.get("PlugStackConfig").map(str::to_owned));
        named.unwrap_or_else(|| PLUGSTACK.to_owned())
    }
    /// What plugstack.conf includes, as it stands there: `plugstack.conf.d/*`.
    pub fn plugstack_includes(&self) -> Vec<String> {
        let text = self.text(&self.plugstack()).to_owned();
        let included = |line: &str| {
            let (word, rest) = line.trim().split_once(char::is_whitespace)?;
            (word == "include").then(|| rest.split_whitespace().next().map(str::to_owned))?
        };
        text.lines().filter_map(included).collect()
    }
    /// plugstack.conf with the files that it includes, as far as they are here.
    pub(super) fn plugstack_text(&self) -> String {
        let mut text = self.text(&self.plugstack()).to_owned();
        let patterns = self.plugstack_includes();
        let fits = |name: &str| {
            patterns.iter().any(|pattern| match pattern.split_once('*') {
                None => pattern == name,
                Some((start, end)) => {
                    name.len() >= start.len() + end.len() && name.starts_with(start) && name.ends_with(end)
                }
            })
        };
        for (_, included) in self.0.iter().filter(|(name, _)| fits(name)) {
            text.push('\n');
            text.push_str(included);
        }
        text
    }
    /// Puts a text in the place of another.
    pub(super) fn replace(&mut self, name: &str, place: std::ops::Range<usize>, text: &str) {
        if let Some(file) = self.0.get_mut(name) {
            file.replace_range(place, text);
        }
    }
    /// Adds lines at the end of a file.
    pub(super) fn append(&mut self, name: &str, text: &str) {
        let file = self.0.entry(name.to_owned()).or_default();
        if !file.is_empty() && !file.ends_with('\n') {
            file.push('\n');
        }
        // A backslash at the end would take the new line in.
        if file.trim_end_matches(['\r', '\n']).ends_with('\\') {
            file.push('\n');
        }
        file.push_str(text);
    }
}
