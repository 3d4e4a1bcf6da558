//! A table of what the real thing said and whether the double says the same. Lines have the form that `tests/run hardware`
//! prints at its end.

use std::fmt;

/// What a program said and how it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) status: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Said {
    /// Something that was seen, not said.
    pub(crate) fn seen(what: String) -> Self {
        Self { status: None, out: what, err: String::new() }
    }
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { status, out, err } = self;
        if let Some(status) = status {
            write!(f, "{status} ")?;
        }
        write!(f, "{:?}", out.trim_end())?;
        if err.is_empty() { Ok(()) } else { write!(f, " stderr {:?}", err.trim_end()) }
    }
}

/// The rows that were apart.
#[derive(Default)]
pub(crate) struct Table {
    apart: Vec<String>,
    count: usize,
}

impl Table {
    /// A row that both sides have. `name`: small letters and `_`.
    pub(crate) fn row(&mut self, group: &str, name: &str, [real, double]: &[Said; 2]) {
        let is_same = real == double;
        let beside = if is_same { "double the same".to_owned() } else { format!("double {double}, APART") };
        println!("{group:14} {name:36} read {real}   {beside}");
        self.count += 1;
        if !is_same {
            self.apart.push(format!("{group} {name}: {real}, and the double {double}"));
        }
    }

    /// A row that only the double has. `of_real`: what of the real thing stands in for an answer of it.
    pub(crate) fn simulated(&mut self, name: &str, of_real: &Result<String, String>) {
        let group = "mps-simulated";
        let (Ok(text) | Err(text)) = of_real;
        println!(
            "{group:14} {name:36} read {text}   double only: it takes a server, and a server takes a driver"
        );
        if of_real.is_err() {
            self.apart.push(format!("{group} {name}: {text}"));
        }
    }

    /// Fails if any row was apart.
    pub(crate) fn check(&self) {
        let count = self.count;
        assert!(
            self.apart.is_empty(),
            "{} of {count} rows are apart:\n{}",
            self.apart.len(),
            self.apart.join("\n")
        );
        println!("mps-all        rows_that_are_the_same               read {count} of {count}");
    }
}
