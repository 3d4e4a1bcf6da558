//! What one run taught of its workload.

/// What was learnt of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LessonKind {
    /// How the workload runs alone.
    Alone,
    /// How fast it is alone under a cap.
    Capped,
    /// It shared its device: whatever it taught is an outcome.
    Shared,
    /// Nothing.
    Nothing,
}

/// What was learnt of a run, and why no more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lesson {
    /// What.
    pub kind: LessonKind,
    /// Why nothing; empty for the other kinds.
    pub detail: String,
}

impl LessonKind {
    /// As written in the store and on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Alone => "alone",
            Self::Capped => "capped",
            Self::Shared => "shared",
            Self::Nothing => "nothing",
        }
    }
}

/// A word that names no kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a known kind of lesson")]
pub struct UnknownLesson(String);

impl std::str::FromStr for LessonKind {
    type Err = UnknownLesson;
    fn from_str(text: &str) -> Result<Self, UnknownLesson> {
        [Self::Alone, Self::Capped, Self::Shared, Self::Nothing]
            .into_iter()
            .find(|kind| kind.as_str() == text)
            .ok_or_else(|| UnknownLesson(text.to_owned()))
    }
}

impl From<LessonKind> for Lesson {
    fn from(kind: LessonKind) -> Self {
        Self { kind, detail: String::new() }
    }
}

impl Lesson {
    /// Nothing was learnt, and why.
    pub fn nothing(why: impl Into<String>) -> Self {
        Self { kind: LessonKind::Nothing, detail: why.into() }
    }
}
