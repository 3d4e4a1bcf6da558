//! Addresses: a path names a page, what follows the question mark its filters. Read and written here only, so that every
//! link that the pages make can be read back.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use std::collections::BTreeMap;

/// What stands in a path as it is.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'/');
/// The longest path and the longest filters that are read.
const LENGTH_MAX: usize = 2_048;

/// What a path names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Page {
    /// Every GPU now.
    Cluster,
    /// What sharing gained.
    Gains,
    /// Who shared with whom.
    Pairs,
    /// Workload by workload.
    Heatmap,
    /// The jobs that wait, in their order.
    Queue,
    /// GPUs that jobs hold and do not use.
    Idle,
    /// One decision, by its number.
    Decision(u64),
    /// One job, by its id: `33`, `33_2`.
    Job(String),
    /// One workload, by its key.
    Workload(String),
    /// One node, by its name in Slurm.
    Node(String),
    /// The style of all pages.
    Style,
    /// The picture that stands for them.
    Icon,
}

impl Page {
    /// The pages of the navigation, with their names.
    pub const NAVIGATION: [(Self, &'static str); 6] = [
        (Self::Cluster, "Cluster"),
        (Self::Gains, "Gains"),
        (Self::Heatmap, "Heatmap"),
        (Self::Pairs, "Pairs"),
        (Self::Queue, "Queue"),
        (Self::Idle, "Idle"),
    ];

    /// The page of a path; `None`: there is none.
    pub fn parse(path: &str) -> Option<Self> {
        if path.len() > LENGTH_MAX {
            return None;
        }
        let (kind, name) = path.strip_prefix('/')?.split_once('/').unwrap_or((path.strip_prefix('/')?, ""));
        let name = percent_decode_str(name).decode_utf8().ok()?.into_owned();
        Some(match (kind, name.is_empty()) {
            ("", true) => Self::Cluster,
            ("gains", true) => Self::Gains,
            ("pairs", true) => Self::Pairs,
            ("heatmap", true) => Self::Heatmap,
            ("queue", true) => Self::Queue,
            ("idle", true) => Self::Idle,
            ("style.css", true) => Self::Style,
            ("icon.svg", true) => Self::Icon,
            ("decisions", false) => Self::Decision(name.parse().ok()?),
            ("jobs", false) => Self::Job(name),
            ("workloads", false) => Self::Workload(name),
            ("nodes", false) => Self::Node(name),
            _ => return None,
        })
    }

    /// Its path, percent-encoded: `/jobs/33_2`.
    pub fn path(&self) -> String {
        match self {
            Self::Cluster => "/".to_owned(),
            Self::Gains => "/gains".to_owned(),
            Self::Pairs => "/pairs".to_owned(),
            Self::Heatmap => "/heatmap".to_owned(),
            Self::Queue => "/queue".to_owned(),
            Self::Idle => "/idle".to_owned(),
            Self::Style => "/style.css".to_owned(),
            Self::Icon => "/icon.svg".to_owned(),
            Self::Decision(id) => format!("/decisions/{id}"),
            Self::Job(name) => named("jobs", name),
            Self::Workload(name) => named("workloads", name),
            Self::Node(name) => named("nodes", name),
        }
    }

    /// Its address with filters; those that are empty are left out.
    pub fn with(&self, filters: &[(&str, &str)]) -> String {
        let mut text = form_urlencoded::Serializer::new(String::new());
        for (name, value) in filters.iter().filter(|(_, value)| !value.is_empty()) {
            text.append_pair(name, value);
        }
        let text = text.finish();
        if text.is_empty() { self.path() } else { format!("{}?{text}", self.path()) }
    }
}

fn named(kind: &str, name: &str) -> String {
    format!("/{kind}/{}", utf8_percent_encode(name, PLAIN))
}

/// The filters of an address.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Filters(BTreeMap<String, String>);

impl Filters {
    /// Reads what follows the question mark. Of a filter that comes twice the last counts; `None`: it is too long.
    pub fn parse(query: &str) -> Option<Self> {
        (query.len() <= LENGTH_MAX).then(|| {
            let pairs = form_urlencoded::parse(query.as_bytes());
            Self(pairs.map(|(name, value)| (name.into_owned(), value.trim().to_owned())).collect())
        })
    }

    /// One filter; empty: it is not set.
    pub fn get(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    /// The address of a page with these filters and one of them otherwise.
    pub fn address(&self, page: &Page, changes: &[(&str, &str)]) -> String {
        let mut filters = self.0.clone();
        for (name, value) in changes {
            filters.insert((*name).to_owned(), (*value).to_owned());
        }
        let filters: Vec<(&str, &str)> =
            filters.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        page.with(&filters)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let hostile = "al ice/\"><script>?x=1&y#z%2F../é";
        let pages = [
            Page::Cluster,
            Page::Gains,
            Page::Decision(17),
            Page::Job("33_2".into()),
            Page::Workload(hostile.into()),
            Page::Node("n1".into()),
        ];
        for page in pages {
            let path = page.path();
            assert!(!path.contains(['<', '"', ' ', '?', '#']), "{path}");
            assert_eq!(Page::parse(&path), Some(page));
        }
        let address = Page::Pairs.with(&[("workload", hostile), ("node", "")]);
        let filters = Filters::parse(address.split_once('?').unwrap().1).unwrap();
        assert_eq!((filters.get("workload"), filters.get("node")), (hostile, ""));
        assert_eq!(Filters::default().address(&Page::Pairs, &[("node", "n[1-2]")]), "/pairs?node=n%5B1-2%5D");
    }

    #[test]
    fn other_paths_are_no_pages() {
        for path in ["", "/nowhere", "/decisions/", "/decisions/x", "/gains/x", "/jobs/%ff"] {
            assert_eq!(Page::parse(path), None, "{path}");
        }
        assert_eq!(Page::parse(&format!("/jobs/{}", "1".repeat(3000))), None);
    }
}
