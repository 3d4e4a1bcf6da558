//! Slurm, as far as a hook sees it: the small safe trait [`Spank`]. In life it is Slurm's C interface
//! ([`crate::ffi::slurm`]), in a test whatever plays Slurm.

/// Where Slurm has loaded us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Context {
    /// In `srun`, before the step starts.
    Local,
    /// In slurmstepd, on the node of the step.
    Remote,
    /// `sbatch` or `salloc`.
    Allocator,
    /// slurmd, or its prolog and epilog.
    Other,
}

/// A number that Slurm knows of the task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Item {
    /// The job's user.
    Uid,
    /// The job's group.
    Gid,
    /// The job id (of an array task: its own).
    JobId,
    /// The step id.
    StepId,
    /// How often the job was restarted, where Slurm fills it in.
    RestartCount,
    /// The array's job id, 0 for none.
    ArrayId,
    /// The task of the array.
    ArrayTaskId,
}

/// How loud a log line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Only with `SlurmdDebug=debug`.
    Debug,
    /// In the daemon's log; never in the job's own output.
    Info,
}

/// What the hooks need of Slurm. Every call may fail, and a failure reads as "not there".
pub trait Spank {
    /// Where we are loaded.
    fn context(&self) -> Context;
    /// Registers `--colocate`; only inside `init`.
    fn register_option(&mut self) -> bool;
    /// What followed `--colocate=`, empty for nothing; `None` if the option was not given.
    fn option(&mut self) -> Option<String>;
    /// A number of the task.
    fn item(&mut self, item: Item) -> Option<u32>;
    /// A variable of the task's environment.
    fn getenv(&mut self, name: &str) -> Option<String>;
    /// Sets a variable of the task's environment, overwriting.
    fn setenv(&mut self, name: &str, value: &str) -> bool;
    /// Removes a variable of the task's environment.
    fn unsetenv(&mut self, name: &str);
    /// A variable of the process that we are loaded into (slurmstepd, `srun`).
    fn process_variable(&self, name: &str) -> Option<String>;
    /// Removes a variable of the process that we are loaded into.
    fn remove_process_variable(&mut self, name: &str);
    /// The command line of the process that we are loaded into.
    fn process_arguments(&self) -> Vec<String>;
    /// Leaves a word with the job that `pillion.lua` sees; the user could leave it as well.
    fn tell_controller(&mut self, name: &str, value: &str);
    /// Writes a line to Slurm's log.
    fn log(&mut self, level: Level, line: &str);
}
