//! How metrics stand in JSON: each value by a name, and the sources by metric. A metric that is not known here, of a newer
//! release, is left out.

use super::catalogue::{Metric, Unit};
use super::source::MetricSource;
use super::values::{Measured, Metrics};
use crate::text::quoted;
use crate::word::UnknownWord;
use serde::de::{Error as _, IgnoredAny, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt;

/// The sources among the values.
const SOURCES: &str = "sources";

/// Which metrics are written, and under which names.
#[derive(Clone, Copy)]
pub(crate) struct Form {
    /// `None`: it is not written.
    name: fn(Metric) -> Option<&'static str>,
    /// Whether what is not known is written as `null`.
    has_nulls: bool,
}

/// All that is known, by its own word.
const WORDS: Form = Form { name: |metric| Some(metric.word()), has_nulls: false };
/// The means of one run.
pub(crate) const MEANS: Form = Form { name: Metric::mean_word, has_nulls: true };
/// The means of a workload's runs. Their power stands beside their energy and is called a mean.
pub(crate) const PROFILE: Form = Form {
    name: |metric| match metric {
        Metric::PowerWatts => Some("power_watts_mean"),
        _ => metric.mean_word(),
    },
    has_nulls: true,
};

impl Form {
    /// Writes the values of these metrics.
    pub(crate) fn write_values<M: SerializeMap>(
        self,
        metrics: &Metrics,
        of: impl Fn(Metric) -> bool,
        to: &mut M,
    ) -> Result<(), M::Error> {
        for metric in Metric::ALL.into_iter().filter(|metric| of(*metric)) {
            let Some(name) = (self.name)(metric) else { continue };
            match (metrics.get(metric), metric.unit()) {
                (Some(_), Unit::Bytes) => to.serialize_entry(name, &metrics.bytes(metric))?,
                (Some(value), _) => to.serialize_entry(name, &value)?,
                (None, _) if self.has_nulls => to.serialize_entry(name, &None::<f64>)?,
                (None, _) => {}
            }
        }
        Ok(())
    }

    /// Writes where the values were read.
    pub(crate) fn write_sources<M: SerializeMap>(metrics: &Metrics, to: &mut M) -> Result<(), M::Error> {
        to.serialize_entry(SOURCES, &metrics.sources())
    }

    /// Writes all of it.
    pub(crate) fn write<S: Serializer>(self, metrics: &Metrics, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        self.write_values(metrics, |_| true, &mut map)?;
        Self::write_sources(metrics, &mut map)?;
        map.end()
    }

    /// Reads all of it; what else stands there is passed over.
    pub(crate) fn read<'de, D: Deserializer<'de>>(self, from: D) -> Result<Metrics, D::Error> {
        from.deserialize_map(Values(self))
    }
}

struct Values(Form);

impl<'de> Visitor<'de> for Values {
    type Value = Metrics;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("metrics by name")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Metrics, A::Error> {
        let mut metrics = Metrics::default();
        let mut sources: BTreeMap<String, String> = BTreeMap::new();
        while let Some(key) = map.next_key::<String>()? {
            if key == SOURCES {
                sources = map.next_value()?;
                continue;
            }
            let Some(metric) = Metric::ALL.into_iter().find(|metric| (self.0.name)(*metric) == Some(&key))
            else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            if let Some(value) = map.next_value::<Option<f64>>()? {
                let value = metric.checked(value).map_err(A::Error::custom)?;
                metrics.put(metric, Measured { value, source: None });
            }
        }
        for (metric, source) in sources {
            let (Ok(metric), Ok(source)) = (metric.parse::<Metric>(), source.parse::<MetricSource>()) else {
                continue;
            };
            if let Some(measured) = metrics.measured(metric) {
                metrics.put(metric, Measured { source: Some(source), ..measured });
            }
        }
        Ok(metrics)
    }
}

impl Serialize for Metrics {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        WORDS.write(self, to)
    }
}

impl<'de> Deserialize<'de> for Metrics {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        WORDS.read(from)
    }
}

impl std::str::FromStr for Metric {
    type Err = UnknownWord;
    fn from_str(word: &str) -> Result<Self, UnknownWord> {
        let named = Self::ALL.into_iter().find(|metric| metric.word() == word);
        named.ok_or_else(|| UnknownWord { word: quoted(word), what: "metric" })
    }
}

impl Serialize for Metric {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.word())
    }
}

impl<'de> Deserialize<'de> for Metric {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}
