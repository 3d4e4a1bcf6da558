//! What a family of metrics is: name, kind, unit, labels and one sentence. The one place where each is written down: HELP
//! lines and docs/metrics.md are made of it.

use std::fmt::Write as _;

/// How values of a family behave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Grows, and begins anew with the daemon.
    Counter,
    /// What is now.
    Gauge,
    /// How long something took, counted by bounds.
    Histogram,
}

impl Kind {
    /// As Prometheus writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// A family of metrics.
#[derive(Debug, PartialEq, Eq)]
pub struct Description {
    /// Its name, as queries have it: `pillion_..`, the unit last, `_total` of a counter.
    pub name: &'static str,
    /// How its values behave.
    pub kind: Kind,
    /// What is counted or measured, in the plural: `seconds`, `bytes`, `jobs`; `1` where the labels tell all.
    pub unit: &'static str,
    /// The labels of each value, in order. Never of a job, a user or a workload: their number has no bound, and whoever may
    /// scrape is not whoever may see them.
    pub labels: &'static [&'static str],
    /// One sentence without its full stop.
    pub meaning: &'static str,
}

impl Description {
    /// Describes a counter, whose name ends in `_total`.
    pub const fn counter(
        name: &'static str,
        unit: &'static str,
        labels: &'static [&'static str],
        meaning: &'static str,
    ) -> Self {
        Self { name, kind: Kind::Counter, unit, labels, meaning }
    }

    /// Describes a gauge, in the unit of its name.
    pub const fn gauge(
        name: &'static str,
        unit: &'static str,
        labels: &'static [&'static str],
        meaning: &'static str,
    ) -> Self {
        Self { name, kind: Kind::Gauge, unit, labels, meaning }
    }

    /// A histogram of durations, in seconds.
    pub const fn histogram(
        name: &'static str,
        labels: &'static [&'static str],
        meaning: &'static str,
    ) -> Self {
        Self { name, kind: Kind::Histogram, unit: "seconds", labels, meaning }
    }

    /// The HELP line's text.
    pub fn help(&self) -> String {
        match self.unit {
            "1" => format!("{}.", self.meaning),
            unit => format!("{} ({unit}).", self.meaning),
        }
    }

    /// The name without what its kind adds: what OpenMetrics calls the family.
    pub fn family(&self) -> &'static str {
        match self.kind {
            Kind::Counter => self.name.strip_suffix("_total").unwrap_or(self.name),
            Kind::Gauge | Kind::Histogram => self.name,
        }
    }
}

/// Declares families as statics, and `ALL` of them in their order.
#[macro_export]
macro_rules! families {
    ($($constant:ident = $kind:ident($($argument:expr),+ $(,)?);)+) => {
        $(pub(crate) static $constant: $crate::Description = $crate::Description::$kind($($argument),+);)+
        /// All of them, in the order of docs/metrics.md.
        pub static ALL: &[&$crate::Description] = &[$(&$constant),+];
    };
}

/// Families as a table of docs/metrics.md.
pub fn table(families: &[&Description]) -> String {
    let mut text = "| name | kind | unit | labels | meaning |\n|---|---|---|---|---|\n".to_owned();
    for Description { name, kind, unit, labels, meaning } in families {
        let labels: Vec<String> = labels.iter().map(|label| format!("`{label}`")).collect();
        let (kind, labels) = (kind.as_str(), labels.join(", "));
        let _ = writeln!(text, "| `{name}` | {kind} | {unit} | {labels} | {meaning} |");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNTER: Description =
        Description::counter("pillion_cups_total", "cups", &["node", "kind"], "Cups of tea");

    #[test]
    fn a_family_is_told_with_its_unit() {
        assert_eq!(COUNTER.help(), "Cups of tea (cups).");
        assert_eq!(COUNTER.family(), "pillion_cups");
        let table = table(&[&COUNTER]);
        assert!(
            table.ends_with("| `pillion_cups_total` | counter | cups | `node`, `kind` | Cups of tea |\n")
        );
    }
}
