//! Slurm's configuration lines: `Key=value Key="a value" \` and so on, names in any case, `#` to the end of a line (but `\#`).

use std::ops::Range;

/// One `Key=value` of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pair {
    /// The key as written.
    pub(super) key: String,
    /// The value without its quotes.
    pub(super) value: String,
    /// Where key, `=` and value stand in the file.
    pub(super) place: Range<usize>,
    /// Where more may be written into the value: before its closing quote.
    pub(super) end: usize,
}

impl Pair {
    /// Whether it is this key, in any case.
    pub(super) fn is(&self, key: &str) -> bool {
        self.key.eq_ignore_ascii_case(key)
    }
    /// The words of a comma list.
    pub(super) fn words(&self) -> impl Iterator<Item = &str> {
        self.value.split(',').map(str::trim).filter(|word| !word.is_empty())
    }
    /// Whether a comma list has this word, in any case.
    pub(super) fn has(&self, word: &str) -> bool {
        self.words().any(|each| each.eq_ignore_ascii_case(word))
    }
}

/// One logical line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    /// Its bytes in the file, with the end of its last line.
    pub(super) place: Range<usize>,
    pub(super) pairs: Vec<Pair>,
    /// What it includes.
    pub(super) includes: Option<String>,
}

impl Line {
    /// The value of a key.
    pub(super) fn get(&self, key: &str) -> Option<&str> {
        self.pairs.iter().find(|pair| pair.is(key)).map(|pair| pair.value.as_str())
    }
}

/// The logical lines of a file that say something.
pub(super) fn lines(text: &str) -> Vec<Line> {
    let mut found = Vec::new();
    let mut start = 0;
    while start < text.len() {
        let end = logical_end(text, start);
        if let Some(line) = parse(text, start..end) {
            found.push(line);
        }
        start = end;
    }
    found
}

/// Where the logical line from `start` on ends: behind the first line break that no backslash takes away.
fn logical_end(text: &str, start: usize) -> usize {
    let mut at = start;
    while let Some(length) = text[at..].find('\n') {
        at += length + 1;
        let line = text[..at - 1].trim_end_matches('\r');
        if !line.ends_with('\\') {
            return at;
        }
    }
    text.len()
}

fn parse(text: &str, place: Range<usize>) -> Option<Line> {
    let mut scanner = Scanner { text, at: place.start, end: comment_start(text, &place) };
    let mut line = Line { place, pairs: Vec::new(), includes: None };
    while let Some(word) = scanner.word() {
        if word.0.eq_ignore_ascii_case("include") && line.pairs.is_empty() {
            line.includes = scanner.word().map(|(path, _)| path.trim_end_matches('=').to_owned());
            break;
        }
        line.pairs.extend(scanner.pair(word));
    }
    (!line.pairs.is_empty() || line.includes.is_some()).then_some(line)
}

/// Where the comment of a logical line starts, or its end.
fn comment_start(text: &str, place: &Range<usize>) -> usize {
    let line = &text[place.clone()];
    let at = line.match_indices('#').map(|(at, _)| at).find(|at| !line[..*at].ends_with('\\'));
    at.map_or(place.end, |at| place.start + at)
}

struct Scanner<'a> {
    text: &'a str,
    at: usize,
    end: usize,
}

impl Scanner<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..self.end]
    }
    /// Passes over blanks and continued line ends.
    fn skip(&mut self) {
        loop {
            let rest = self.rest();
            let blanks = rest.len() - rest.trim_start().len();
            let continued = ["\\\r\n", "\\\n"].iter().find(|mark| rest[blanks..].starts_with(**mark));
            self.at += blanks + continued.map_or(0, |mark| mark.len());
            if continued.is_none() {
                return;
            }
        }
    }
    /// The next word up to a blank or `=`, and where it begins.
    fn word(&mut self) -> Option<(String, usize)> {
        self.skip();
        let start = self.at;
        let rest = self.rest();
        let length = rest.find(|c: char| c.is_whitespace() || c == '=' || c == '\\').unwrap_or(rest.len());
        // A sign that begins no word is passed over alone.
        let length = if length == 0 { rest.chars().next()?.len_utf8() } else { length };
        self.at += length;
        Some((self.text[start..self.at].to_owned(), start))
    }
    /// The value behind a word, where `=` follows it.
    fn pair(&mut self, (key, start): (String, usize)) -> Option<Pair> {
        self.skip();
        // `Key += value` and `Key -= value` are Slurm's as well, and not ours to change.
        self.at += self.rest().strip_prefix('=')?.len().abs_diff(self.rest().len());
        self.skip();
        let quoted = self.rest().starts_with('"');
        self.at += usize::from(quoted);
        let (mut value, mut end) = (String::new(), self.at);
        while let Some(sign) = self.rest().chars().next() {
            let rest = self.rest();
            if let Some(mark) = ["\\\r\n", "\\\n"].iter().find(|mark| rest.starts_with(**mark)) {
                self.at += mark.len();
                continue;
            }
            if (quoted && sign == '"') || (!quoted && sign.is_whitespace()) {
                break;
            }
            value.push(sign);
            self.at += sign.len_utf8();
            end = self.at;
        }
        self.at += usize::from(quoted && self.rest().starts_with('"'));
        let closed = if quoted { self.at } else { end };
        Some(Pair { key, value, place: start..closed, end })
    }
}
