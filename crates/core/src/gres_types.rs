//! Which devices of a node a job gets: one, or several that it has to itself.

use crate::ids::GresType;
use crate::text::quoted;
use crate::word::serialized_as_text;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The most devices of one node that are believed; more than any node has. `GPUS_MAX` of `pillion.lua` is the same.
pub const DEVICES_MAX: usize = 64;

/// Devices of one node by their GRES types, in the order of Slurm's list: at least one, none twice. Rows, messages and JSON
/// have it as text, `g1` or `g0,g1`, so that for one device it is what it was before there were several.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct GresTypes(Vec<GresType>);

/// A text that names no devices of a node.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0} names no devices of a node; allowed are 1 to {DEVICES_MAX} GRES types, none twice, with commas: g0,g1"
)]
pub struct InvalidGresTypes(pub String);

impl GresTypes {
    /// Of several.
    ///
    /// # Errors
    /// [`InvalidGresTypes`] where there is none, one stands there twice, or there are more than [`DEVICES_MAX`].
    pub fn try_new(all: Vec<GresType>) -> Result<Self, InvalidGresTypes> {
        let is_repeated = all.iter().enumerate().any(|(at, own)| all[..at].contains(own));
        let is_empty = all.iter().any(|own| own.as_str().is_empty());
        if all.is_empty() || all.len() > DEVICES_MAX || is_repeated || is_empty {
            let names: Vec<&str> = all.iter().map(GresType::as_str).collect();
            return Err(InvalidGresTypes(quoted(&names.join(","))));
        }
        Ok(Self(all))
    }
    /// All of them, the first of the list first.
    pub fn iter(&self) -> std::slice::Iter<'_, GresType> {
        self.0.iter()
    }
    /// The one device, or the first of several.
    pub fn first(&self) -> &GresType {
        &self.0[0]
    }
    /// The one device of a job that has no others.
    pub fn only(&self) -> Option<&GresType> {
        if let [only] = self.0.as_slice() { Some(only) } else { None }
    }
    /// Whether this device is among them.
    pub fn contains(&self, gres_type: &GresType) -> bool {
        self.0.contains(gres_type)
    }
    /// How many there are, 1..=[`DEVICES_MAX`].
    pub fn count(&self) -> usize {
        self.0.len()
    }
    /// What is asked of Slurm for so many shards of each: `shard:g0:100,shard:g1:100`.
    pub fn shards(&self, shards: u32) -> String {
        let each: Vec<String> = self.0.iter().map(|own| format!("shard:{own}:{shards}")).collect();
        each.join(",")
    }
}

impl<'a> IntoIterator for &'a GresTypes {
    type Item = &'a GresType;
    type IntoIter = std::slice::Iter<'a, GresType>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl From<GresType> for GresTypes {
    fn from(only: GresType) -> Self {
        Self(vec![only])
    }
}

impl FromStr for GresTypes {
    type Err = InvalidGresTypes;
    fn from_str(text: &str) -> Result<Self, InvalidGresTypes> {
        Self::try_new(text.split(',').map(GresType::new).collect())
    }
}

serialized_as_text!(GresTypes);

impl fmt::Display for GresTypes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, own) in self.0.iter().enumerate() {
            if at > 0 {
                f.write_str(",")?;
            }
            write!(f, "{own}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_written_as_slurms_list_and_read_back() {
        let pair: GresTypes = "g0,g1".parse().unwrap();
        assert_eq!((pair.to_string().as_str(), pair.count(), pair.only()), ("g0,g1", 2, None));
        assert_eq!(pair.shards(100), "shard:g0:100,shard:g1:100");
        assert!(pair.contains(&GresType::new("g1")) && !pair.contains(&GresType::new("g2")));
        let one = GresTypes::from(GresType::new("g3"));
        assert_eq!(serde_json::to_string(&one).unwrap(), r#""g3""#);
        assert_eq!(serde_json::from_str::<GresTypes>(r#""g3""#).unwrap().only(), Some(&GresType::new("g3")));
    }

    #[test]
    fn none_and_one_that_stands_there_twice_are_refused() {
        for text in ["", "g0,", ",g0", "g0,g0", "g0,g1,g0"] {
            assert!(text.parse::<GresTypes>().is_err(), "{text}");
        }
        let many: Vec<GresType> = (0..=DEVICES_MAX).map(|index| GresType::new(format!("g{index}"))).collect();
        assert!(GresTypes::try_new(many).is_err());
    }
}
