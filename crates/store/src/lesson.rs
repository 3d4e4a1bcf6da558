//! What one run taught of its workload, as it is kept.

use pillion_core::profile::LessonKind;

/// What was learnt of a run, and why no more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lesson {
    pub kind: LessonKind,
    /// Why nothing; empty for the other kinds.
    pub detail: String,
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
