//! Words that are written as `serde` writes them, so that each is spelt in one place.

/// A word that is none of those that are known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{word}' is not a {what}")]
pub struct UnknownWord {
    /// The word that nobody knows, in one short line.
    pub word: String,
    /// What it should have been.
    pub what: &'static str,
}

/// `Display` and `FromStr` of enums without data, by their serialized names.
macro_rules! spelt_as_serialized {
    ($($kind:ty => $what:literal),+ $(,)?) => {$(
        impl std::fmt::Display for $kind {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                serde::Serialize::serialize(self, f)
            }
        }

        impl std::str::FromStr for $kind {
            type Err = $crate::word::UnknownWord;
            fn from_str(word: &str) -> Result<Self, Self::Err> {
                let from = serde::de::value::StrDeserializer::<serde::de::value::Error>::new(word);
                serde::Deserialize::deserialize(from)
                    .map_err(|_| $crate::word::UnknownWord { word: $crate::text::quoted(word), what: $what })
            }
        }
    )+};
}

/// For `serde(try_from = "String", into = "String")`: by `FromStr` and `Display`.
macro_rules! serialized_as_text {
    ($kind:ty) => {
        impl TryFrom<String> for $kind {
            type Error = <Self as std::str::FromStr>::Err;
            fn try_from(text: String) -> Result<Self, Self::Error> {
                text.parse()
            }
        }

        impl From<$kind> for String {
            fn from(value: $kind) -> Self {
                value.to_string()
            }
        }
    };
}

pub(crate) use serialized_as_text;
pub(crate) use spelt_as_serialized;
