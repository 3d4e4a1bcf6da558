//! The fields of `sacct` that a replay reads, and the command that prints them.

use std::fmt;

/// Between the fields of a record: no name, path or command line has it by chance.
pub const DELIMITER: char = '\u{1f}';

/// One field of sacct.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Field {
    /// Slurm's number of the job, and behind a dot its step.
    JobIdRaw,
    /// The same as people see it: of a task of an array the array's number and its own.
    JobId,
    /// Whose it is.
    User,
    /// Its account.
    Account,
    /// Where it ran.
    Partition,
    /// What its user calls it.
    JobName,
    /// How it ended.
    State,
    /// When it was submitted.
    Submit,
    /// From when it could have started.
    Eligible,
    /// When it started.
    Start,
    /// When it ended.
    End,
    /// Its time limit in minutes.
    TimelimitRaw,
    /// Its priority.
    Priority,
    /// How many nodes it had.
    NNodes,
    /// Which.
    NodeList,
    /// What it was given.
    AllocTres,
    /// What it asked for.
    ReqTres,
    /// What its tasks used, in the mean over them.
    TresUsageInAve,
    /// What the one of them used that used most.
    TresUsageInMax,
    /// What they used together.
    TresUsageInTot,
    /// The command line by which it was submitted.
    SubmitLine,
    /// Where jobstats leaves its summary.
    AdminComment,
}

impl Field {
    /// All of them, in the order of the command.
    pub const ALL: [Self; 22] = [
        Self::JobIdRaw,
        Self::JobId,
        Self::User,
        Self::Account,
        Self::Partition,
        Self::JobName,
        Self::State,
        Self::Submit,
        Self::Eligible,
        Self::Start,
        Self::End,
        Self::TimelimitRaw,
        Self::Priority,
        Self::NNodes,
        Self::NodeList,
        Self::AllocTres,
        Self::ReqTres,
        Self::TresUsageInAve,
        Self::TresUsageInMax,
        Self::TresUsageInTot,
        Self::SubmitLine,
        Self::AdminComment,
    ];
    /// Without these nothing can be replayed.
    pub const NEEDED: [Self; 7] =
        [Self::JobIdRaw, Self::User, Self::State, Self::Submit, Self::Start, Self::End, Self::AllocTres];

    /// As `sacct -e` spells it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::JobIdRaw => "JobIDRaw",
            Self::JobId => "JobID",
            Self::User => "User",
            Self::Account => "Account",
            Self::Partition => "Partition",
            Self::JobName => "JobName",
            Self::State => "State",
            Self::Submit => "Submit",
            Self::Eligible => "Eligible",
            Self::Start => "Start",
            Self::End => "End",
            Self::TimelimitRaw => "TimelimitRaw",
            Self::Priority => "Priority",
            Self::NNodes => "NNodes",
            Self::NodeList => "NodeList",
            Self::AllocTres => "AllocTRES",
            Self::ReqTres => "ReqTRES",
            Self::TresUsageInAve => "TRESUsageInAve",
            Self::TresUsageInMax => "TRESUsageInMax",
            Self::TresUsageInTot => "TRESUsageInTot",
            Self::SubmitLine => "SubmitLine",
            Self::AdminComment => "AdminComment",
        }
    }

    /// By its name, in whatever case.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|field| field.name().eq_ignore_ascii_case(name))
    }
}

/// An sacct that lacks what is needed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "this sacct has no field {0}, without which nothing can be replayed; give what 'sacct -e' prints, or leave --fields out"
)]
pub struct NoSuchField(pub &'static str);

/// The command that prints what a replay reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SacctCommand {
    fields: Vec<Field>,
    start: String,
    end: String,
}

impl SacctCommand {
    /// With the fields that `available`, the output of `sacct -e`, names; with all of them where nobody knows. `start` and `end`
    /// as sacct takes times.
    ///
    /// # Errors
    /// [`NoSuchField`] where one is missing that is needed.
    pub fn new(available: Option<&str>, start: &str, end: &str) -> Result<Self, NoSuchField> {
        let is_there = |field: &Field| {
            let has =
                |text: &str| text.split_whitespace().any(|name| name.eq_ignore_ascii_case(field.name()));
            available.is_none_or(has)
        };
        if let Some(missing) = Field::NEEDED.iter().find(|field| !is_there(field)) {
            return Err(NoSuchField(missing.name()));
        }
        let fields = Field::ALL.into_iter().filter(is_there).collect();
        Ok(Self { fields, start: start.to_owned(), end: end.to_owned() })
    }

    /// The fields that are left out, for this sacct has them not.
    pub fn left_out(&self) -> impl Iterator<Item = Field> {
        Field::ALL.into_iter().filter(|field| !self.fields.contains(field))
    }
}

/// One line for a shell.
impl fmt::Display for SacctCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.fields.iter().map(|field| field.name()).collect();
        write!(
            f,
            "SLURM_TIME_FORMAT=%s sacct --allusers --duplicates --noconvert --parsable2 --delimiter=$'\\x1f' \
             --starttime={} --endtime={} --format={}",
            self.start,
            self.end,
            names.join(",")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_names_what_is_there_and_says_what_is_not() {
        let all = SacctCommand::new(None, "now-31days", "now").unwrap();
        assert_eq!(all.left_out().count(), 0);
        assert!(all.to_string().starts_with("SLURM_TIME_FORMAT=%s sacct --allusers --duplicates "), "{all}");
        let old = "Account AllocTRES\nEnd JobIDRaw jobname Start State Submit  User ReqTRES";
        let command = SacctCommand::new(Some(old), "now-31days", "now").unwrap();
        let text = command.to_string();
        assert!(
            text.ends_with("--format=JobIDRaw,User,Account,JobName,State,Submit,Start,End,AllocTRES,ReqTRES"),
            "{text}"
        );
        assert!(command.left_out().any(|field| field == Field::SubmitLine));
        assert_eq!(SacctCommand::new(Some("User State"), "a", "b"), Err(NoSuchField("JobIDRaw")));
    }
}
