//! One row of sacct: which field stands where, and what it says. A row is believed whole or not at all.

use super::fields::Field;
use super::tres::{self, Amounts};
use crate::jobs::Ended;

/// Where each field stands in a row.
#[derive(Debug, Clone)]
pub(crate) struct Header {
    pub(super) delimiter: String,
    place: [Option<usize>; Field::ALL.len()],
    pub(super) field_count: usize,
}

/// A first line that is no header of sacct.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoHeader {
    /// It names no fields.
    #[error(
        "the first line does not name sacct's fields; make the file with the command that 'pillion replay --print-sacct' prints"
    )]
    NotThere,
    /// It lacks one that is needed.
    #[error(
        "the field {0} is missing; make the file with the command that 'pillion replay --print-sacct' prints"
    )]
    Lacks(&'static str),
    /// It has one twice.
    #[error(
        "the field {0} stands there twice; make the file with the command that 'pillion replay --print-sacct' prints"
    )]
    Twice(&'static str),
}

impl Header {
    /// The delimiter is whatever stands behind the first field's name.
    pub(crate) fn read(line: &str) -> Result<Self, NoHeader> {
        let name_length = line.bytes().take_while(u8::is_ascii_alphanumeric).count();
        let rest = &line[name_length..];
        let delimiter = rest.find(|letter: char| letter.is_ascii_alphanumeric()).map(|end| &rest[..end]);
        let delimiter = delimiter.filter(|text| !text.is_empty()).ok_or(NoHeader::NotThere)?;
        let mut header =
            Self { delimiter: delimiter.to_owned(), place: [None; Field::ALL.len()], field_count: 0 };
        for (at, name) in line.split(delimiter).enumerate() {
            header.field_count += 1;
            let Some(field) = Field::by_name(name.trim()) else { continue };
            if header.place[field as usize].replace(at).is_some() {
                return Err(NoHeader::Twice(field.name()));
            }
        }
        if header.place.iter().all(Option::is_none) {
            return Err(NoHeader::NotThere);
        }
        match Field::NEEDED.iter().find(|field| header.place[**field as usize].is_none()) {
            Some(missing) => Err(NoHeader::Lacks(missing.name())),
            None => Ok(header),
        }
    }

    pub(crate) fn has(&self, field: Field) -> bool {
        self.place[field as usize].is_some()
    }

    pub(super) fn place(&self, field: Field) -> Option<usize> {
        self.place[field as usize]
    }
}

/// Why a row is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// It is longer than any row is.
    TooLong,
    /// It is no UTF-8.
    NotText,
    /// It has more or fewer fields than the header.
    FieldCount,
    /// Its job number is none.
    JobId,
    /// A time in it is not in seconds since 1970.
    Time,
    /// It ends before it starts.
    TimeOrder,
    /// Its resources cannot be read.
    Resources,
    /// A step whose job did not stand before it.
    LostStep,
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::TooLong,
        Self::NotText,
        Self::FieldCount,
        Self::JobId,
        Self::Time,
        Self::TimeOrder,
        Self::Resources,
        Self::LostStep,
    ];
    /// For a person, behind a number of rows.
    pub const fn text(self) -> &'static str {
        match self {
            Self::TooLong => "longer than a megabyte",
            Self::NotText => "not in UTF-8",
            Self::FieldCount => {
                "with more or fewer fields than the first line names (a line break in a name does that)"
            }
            Self::JobId => "with a job number that is none",
            Self::Time => "with a time that is not in seconds since 1970 (SLURM_TIME_FORMAT=%s)",
            Self::TimeOrder => "that end before they start",
            Self::Resources => "with resources that cannot be read",
            Self::LostStep => "of steps that stand behind no job of theirs",
        }
    }
}

/// A row, its fields in their places.
pub(crate) struct Row<'r> {
    header: &'r Header,
    fields: Vec<&'r str>,
}

/// Which job, and whether a step of it.
pub(crate) struct RowId {
    pub(crate) job: u32,
    pub(crate) is_step: bool,
}

impl<'r> Row<'r> {
    pub(crate) fn split(header: &'r Header, line: &'r str) -> Result<Self, Fault> {
        let fields: Vec<&str> = line.split(header.delimiter.as_str()).collect();
        if fields.len() != header.field_count {
            return Err(Fault::FieldCount);
        }
        Ok(Self { header, fields })
    }

    /// Empty where the site has no such field.
    pub(crate) fn text(&self, field: Field) -> &'r str {
        self.header.place(field).map_or("", |place| self.fields[place])
    }

    pub(crate) fn id(&self) -> Result<RowId, Fault> {
        let text = self.text(Field::JobIdRaw);
        let (job, step) = text.split_once('.').map_or((text, None), |(job, step)| (job, Some(step)));
        let is_digits = !job.is_empty() && job.bytes().all(|byte| byte.is_ascii_digit());
        let job = job.parse().ok().filter(|job| is_digits && *job > 0).ok_or(Fault::JobId)?;
        if step.is_some_and(str::is_empty) {
            return Err(Fault::JobId);
        }
        Ok(RowId { job, is_step: step.is_some() })
    }

    /// `None`: Slurm knows none yet.
    pub(super) fn time(&self, field: Field) -> Result<Option<u64>, Fault> {
        let text = self.text(field);
        if matches!(text, "" | "Unknown" | "None" | "N/A") {
            return Ok(None);
        }
        let is_digits = text.bytes().all(|byte| byte.is_ascii_digit());
        let seconds = text.parse().ok().filter(|seconds: &u64| is_digits && *seconds <= SECONDS_MAX);
        seconds.map(Some).ok_or(Fault::Time)
    }

    pub(super) fn amounts(&self, field: Field) -> Result<Amounts<'r>, Fault> {
        tres::amounts(self.text(field)).ok_or(Fault::Resources)
    }

    pub(super) fn used(&self, field: Field) -> Result<Amounts<'r>, Fault> {
        tres::used(self.text(field)).ok_or(Fault::Resources)
    }

    pub(super) fn number<T: std::str::FromStr>(&self, field: Field) -> Option<T> {
        self.text(field).parse().ok()
    }

    /// `TimelimitRaw` is in minutes; `UNLIMITED` and `Partition_Limit` are none that is known.
    pub(super) fn limit_seconds(&self) -> Option<u64> {
        self.number::<u64>(Field::TimelimitRaw)
            .filter(|minutes| *minutes > 0)
            .map(|minutes| minutes.saturating_mul(60))
    }

    pub(super) fn still_runs(&self) -> bool {
        matches!(self.text(Field::State).split(' ').next(), Some("RUNNING" | "SUSPENDED"))
    }

    pub(super) fn ended(&self) -> Ended {
        match self.text(Field::State).split(' ').next() {
            Some("COMPLETED") => Ended::Completed,
            Some("TIMEOUT") => Ended::TimeLimit,
            _ => Ended::Otherwise,
        }
    }

    /// The first of `n[1-4,7]`, `n3`, `gpu[01-02]-r[1-4]`: of each bracket its first.
    pub(crate) fn first_node(&self) -> String {
        let mut first = String::new();
        let mut rest = self.text(Field::NodeList);
        while let Some(end) = rest.find(['[', ',']) {
            first.push_str(&rest[..end]);
            let Some(list) = rest[end..].strip_prefix('[') else { return first };
            first.push_str(list.split(['-', ',', ']']).next().unwrap_or_default());
            rest = list.split_once(']').map_or("", |(_, behind)| behind);
        }
        first.push_str(rest);
        first
    }
}

/// 2200-01-01: later is no time that a job ran.
const SECONDS_MAX: u64 = 7_258_118_400;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_node_of_a_list_is_found_whatever_its_brackets() {
        let header = Header::read("JobIDRaw|User|State|Submit|Start|End|AllocTRES|NodeList").unwrap();
        for (list, first) in [
            ("n3", "n3"),
            ("n3,n4", "n3"),
            ("n[1-4,7]", "n1"),
            ("n[07,9]-ib,m1", "n07-ib"),
            ("gpu[01-02]-r[1-4]", "gpu01-r1"),
            ("gpu[01,03]-r[2,4]-s[5-6],x", "gpu01-r2-s5"),
            ("n1,m[2-3]", "n1"),
            ("None assigned", "None assigned"),
            ("", ""),
            ("n[", "n"),
            ("n[1", "n1"),
            ("é[1-2]", "é1"),
        ] {
            let line = format!("1|u|COMPLETED|1|2|3|gres/gpu=1|{}", list.replace('|', ""));
            assert_eq!(Row::split(&header, &line).unwrap().first_node(), first, "{list}");
        }
    }
}
