//! What one check says.

use serde::Serialize;

/// How it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// As it should be.
    Ok,
    /// It could not be looked at, and `found` says why.
    Skip,
    /// It works, and may surprise.
    Warn,
    /// It does not work, or is dangerous.
    Fail,
}

impl Status {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Skip => "skip",
            Self::Warn => "warn",
            Self::Fail => "FAIL",
        }
    }
}

/// One line of doctor's answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The check's stable name.
    pub check: &'static str,
    /// How it is.
    pub status: Status,
    /// What was found.
    pub found: String,
    /// What to do; absent where nothing is to be done.
    pub mend: Option<String>,
}

/// Makes the findings of one check.
#[derive(Debug, Clone, Copy)]
pub struct Check(pub &'static str);

impl Check {
    /// As it should be.
    pub fn ok(self, found: impl Into<String>) -> Finding {
        Finding { check: self.0, status: Status::Ok, found: found.into(), mend: None }
    }
    /// Not looked at.
    pub fn skip(self, why: impl Into<String>) -> Finding {
        Finding { check: self.0, status: Status::Skip, found: why.into(), mend: None }
    }
    /// Works, and may surprise.
    pub fn warn(self, found: impl Into<String>, mend: impl Into<String>) -> Finding {
        Finding { check: self.0, status: Status::Warn, found: found.into(), mend: Some(mend.into()) }
    }
    /// Does not work.
    pub fn fail(self, found: impl Into<String>, mend: impl Into<String>) -> Finding {
        Finding { check: self.0, status: Status::Fail, found: found.into(), mend: Some(mend.into()) }
    }
    /// One finding for what is wrong, or one that all is well.
    pub fn ok_unless(self, wrong: Vec<Finding>, fine: impl Into<String>) -> Vec<Finding> {
        if wrong.is_empty() { vec![self.ok(fine)] } else { wrong }
    }
}
