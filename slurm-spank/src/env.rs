//! What the plugin reads and writes as text: its arguments in plugstack.conf, the job's id, device indexes, and the
//! names and values that may enter a job's environment. Pure: nothing here touches Slurm, a file or a socket.

use pillion_core::handoff::{HANDOFF_DEADLINE_MILLISECONDS, HANDOFF_SOCKET};
use pillion_core::ids::SlurmJobId;
use pillion_core::option::{self, ColocateOption, InvalidOption};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The most variables that one reply may set, and the most that it may unset.
pub(crate) const VARIABLES_MAX: usize = 64;
/// The longest value that enters a job's environment.
pub(crate) const VALUE_LENGTH_MAX: usize = 4096;
/// The longest name of a variable.
pub const NAME_LENGTH_MAX: usize = 128;
/// The most device indexes that are passed on.
pub const DEVICES_MAX: usize = 64;
/// The longest time that plugstack.conf may make a job wait.
pub(crate) const DEADLINE_MILLISECONDS_MAX: u64 = 2000;

/// What the options of `sbatch` that ask for a GPU leave in the environment of a job whose GPU we turned into shards; each
/// makes a plain `srun` inside the job ask for a GPU, or bind to one, and fail. See also [`without_gpus`].
pub(crate) const STALE_REQUESTS: [&str; 7] = [
    "SLURM_GPUS",
    "SLURM_GPUS_PER_NODE",
    "SLURM_GPUS_PER_TASK",
    "SLURM_GPUS_PER_SOCKET",
    "SLURM_CPUS_PER_GPU",
    "SLURM_MEM_PER_GPU",
    "SLURM_TRES_BIND",
];
/// One more of them, which may hold other requests besides (`cpu=2,gres/gpu=1`).
pub(crate) const TRES_PER_TASK: &str = "SLURM_TRES_PER_TASK";
/// Where slurmstepd leaves the option's value for the job; `sbatch` takes variables of this prefix for options of its own.
pub(crate) const HANDED_ON_OPTION: &str = "SLURM_SPANK__SLURM_SPANK_OPTION_pillion_colocate";
/// How `sbatch` tells `pillion.lua` of a `--deadline`, which Slurm does not show to lua.
pub(crate) const DEADLINE_HINT: &str = "PILLION_DEADLINE";
/// By which a user, or his site, says once for all his batch jobs what `--colocate` says of one.
pub(crate) const VARIABLE: &str = "SBATCH_COLOCATE";
/// How `sbatch` tells `pillion.lua` of it.
pub(crate) const VARIABLE_HINT: &str = "PILLION_SBATCH_COLOCATE";
/// The hints as the job would find them, and an sbatch inside it hand them on.
pub(crate) const HANDED_ON_HINTS: [&str; 2] =
    ["SLURM_SPANK_PILLION_DEADLINE", "SLURM_SPANK_PILLION_SBATCH_COLOCATE"];

/// The container programs that take binds from the environment, by the prefix of their variables. Apptainer reads
/// Singularity's where its own are not set.
const CONTAINERS: [&str; 2] = ["APPTAINER", "SINGULARITY"];

/// The variables by which containers see `directory` under its own path, beside what the job binds already: a list with
/// commas, in the one of two spellings that the job uses (Apptainer user guide, "Bind Paths and Mounts").
pub fn container_binds(
    mut variable: impl FnMut(&str) -> Option<String>,
    directory: &str,
) -> Vec<(String, String)> {
    let own = CONTAINERS.map(|prefix| {
        let names = [format!("{prefix}_BIND"), format!("{prefix}_BINDPATH")];
        names
            .into_iter()
            .find_map(|name| variable(&name).filter(|list| !list.is_empty()).map(|list| (name, list)))
    });
    let apptainers = own[0].clone().or_else(|| Some((format!("{}_BIND", CONTAINERS[0]), own[1].clone()?.1)));
    let others = own[1].clone();
    let mut binds = Vec::new();
    for (prefix, given) in CONTAINERS.into_iter().zip([apptainers, others]) {
        match given {
            None => binds.push((format!("{prefix}_BIND"), directory.to_owned())),
            Some((_, list)) if list.split(',').any(|entry| entry.split(':').next() == Some(directory)) => {}
            Some((name, list)) => binds.push((name, format!("{list},{directory}"))),
        }
    }
    binds
}

/// The plugin's arguments in plugstack.conf.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PluginArguments {
    /// Where the agent listens; `%n` not yet replaced.
    pub socket: String,
    /// How long a task waits for the agent, in all.
    pub deadline: Duration,
}

impl Default for PluginArguments {
    fn default() -> Self {
        Self {
            socket: HANDOFF_SOCKET.to_owned(),
            deadline: Duration::from_millis(HANDOFF_DEADLINE_MILLISECONDS),
        }
    }
}

impl PluginArguments {
    /// Reads the arguments. What is unknown or wrong is skipped and described in the second value, for the log: a typing
    /// error in plugstack.conf must not stop a job.
    pub fn parse<'a>(arguments: impl IntoIterator<Item = &'a str>) -> (Self, Vec<String>) {
        let mut parsed = Self::default();
        let mut complaints = Vec::new();
        for argument in arguments {
            if parsed.apply(argument).is_none() {
                let known = "allowed are socket=/PATH and deadline_ms=1..2000";
                complaints.push(format!("plugstack.conf: ignored '{}'; {known}", printable(argument)));
            }
        }
        (parsed, complaints)
    }

    fn apply(&mut self, argument: &str) -> Option<()> {
        match argument.split_once('=')? {
            ("socket", path) if path.starts_with('/') => path.clone_into(&mut self.socket),
            ("deadline_ms", number) => {
                let milliseconds =
                    number.parse().ok().filter(|ms| (1..=DEADLINE_MILLISECONDS_MAX).contains(ms))?;
                self.deadline = Duration::from_millis(milliseconds);
            }
            _ => return None,
        }
        Some(())
    }

    /// The agent's socket on this node. `None` where the path needs the node's name (`%n`) and there is none.
    pub fn socket_path(&self, node_name: Option<&str>) -> Option<PathBuf> {
        if !self.socket.contains("%n") {
            return Some(PathBuf::from(&self.socket));
        }
        let name = node_name?;
        let is_plain = !name.is_empty()
            && name != ".."
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
        is_plain.then(|| PathBuf::from(self.socket.replace("%n", name)))
    }
}

/// The file by which the agent says that a job is ours: `jobs/<job id>` beside its socket, owned by root. With it the
/// steps of a colocated batch job are recognised, which do not carry the option.
pub(crate) fn marker_path(socket: &Path, job: SlurmJobId) -> Option<PathBuf> {
    socket.parent().map(|directory| directory.join("jobs").join(job.to_string()))
}

/// The job as Slurm writes it. `array_id` is 0 for a job that is no array task; steps of such a job carry their own job id
/// there and no task.
pub fn job_id(id: u32, array_id: Option<u32>, array_task: Option<u32>) -> SlurmJobId {
    // Slurm's NO_VAL and INFINITE: no number at all.
    let [array_id, array_task] =
        [array_id, array_task].map(|value| value.filter(|number| *number < 0xffff_fffd));
    match (array_id, array_task) {
        (Some(array), Some(task)) if array > 0 => SlurmJobId::array_task(array, task),
        _ => SlurmJobId::plain(id),
    }
}

/// Reads `SLURM_JOB_GPUS`: `0,2` or `0-3`. What is not a number is skipped; at most [`DEVICES_MAX`] are kept.
pub fn parse_devices(text: &str) -> Vec<u32> {
    let ranges = text.split(',').filter_map(|part| {
        let (first, last) = part.trim().split_once('-').unwrap_or((part.trim(), part.trim()));
        Some(first.parse::<u32>().ok()?..=last.parse::<u32>().ok()?)
    });
    ranges.flatten().take(DEVICES_MAX).collect()
}

/// A value of `SLURM_TRES_PER_TASK` without its GPUs; `None` where it names none.
pub fn without_gpus(request: &str) -> Option<String> {
    let (gpus, rest): (Vec<&str>, Vec<&str>) = request.split(',').partition(|item| {
        let plain = item.trim_start_matches("gres/").trim_start_matches("gres:");
        plain.split(['=', ':']).next() == Some("gpu")
    });
    (!gpus.is_empty()).then(|| rest.join(","))
}

/// Whether a command line gives `--deadline`, which getopt lets a user shorten to `--dea`.
pub(crate) fn names_deadline(arguments: &[String]) -> bool {
    arguments.iter().any(|argument| argument.starts_with("--dea"))
}

/// What to pass on of `--colocate`, where the user asks for co-location by it (short and clean, because it parsed). `None`
/// where the option was not given, says `no`, or is not a value that `pillion.lua` would have accepted.
pub fn wish(option: Option<String>) -> Option<String> {
    option.filter(|value| matches!(option::parse(Some(value)), Ok(ColocateOption::Yes(_))))
}

/// Checks the value of `--colocate` as the C library hands it over; it may be any bytes.
///
/// # Errors
/// [`InvalidOption`], whose text is what the user sees.
pub(crate) fn check_option(value: Option<&[u8]>) -> Result<(), InvalidOption> {
    let Some(bytes) = value else { return Ok(()) };
    match std::str::from_utf8(bytes) {
        Ok(text) => option::parse(Some(text)).map(|_| ()),
        Err(error) => Err(InvalidOption::BadByte(bytes[error.valid_up_to()])),
    }
}

/// A name that may be set in a job's environment.
pub fn is_variable_name(name: &str) -> bool {
    let first_is_fine = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let rest_is_fine = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    first_is_fine && rest_is_fine && name.len() <= NAME_LENGTH_MAX
}

/// A value that may be set in a job's environment: bounded, on one line.
pub fn is_variable_value(value: &str) -> bool {
    value.len() <= VALUE_LENGTH_MAX && !value.chars().any(char::is_control)
}

/// A value of [`VARIABLE`] as it is told to `pillion.lua`, which reads it: no longer than what it refuses for its length. `None`: none.
pub fn variable_hint(value: Option<String>) -> Option<String> {
    value
        .filter(|value| !value.is_empty())
        .map(|value| value.chars().take(option::OPTION_LENGTH_MAX + 1).collect())
}

/// Text for a log line: bounded, on one line, ASCII.
pub fn printable(text: &str) -> String {
    text.chars().take(300).map(|c| if c == ' ' || c.is_ascii_graphic() { c } else { '?' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_of_plugstack_conf() {
        let (parsed, complaints) = PluginArguments::parse(["socket=/run/p/%n.sock", "deadline_ms=50"]);
        assert_eq!(parsed.deadline, Duration::from_millis(50));
        assert_eq!(parsed.socket_path(Some("n1")), Some(PathBuf::from("/run/p/n1.sock")));
        assert!(complaints.is_empty());
    }

    #[test]
    fn a_wrong_argument_is_described_and_ignored() {
        let wrong =
            ["deadline_ms=0", "deadline_ms=2001", "deadline_ms=x", "socket=relative", "verbose", "a\nb=1"];
        let (parsed, complaints) = PluginArguments::parse(wrong);
        assert_eq!(parsed, PluginArguments::default());
        assert_eq!(complaints.len(), wrong.len());
        assert_eq!(
            complaints[5],
            "plugstack.conf: ignored 'a?b=1'; allowed are socket=/PATH and deadline_ms=1..2000"
        );
    }

    #[test]
    fn a_node_name_cannot_leave_the_directory() {
        let (parsed, _) = PluginArguments::parse(["socket=/run/%n/agent.sock"]);
        for name in [None, Some(""), Some("../tmp"), Some(".."), Some("a/b"), Some("a b")] {
            assert_eq!(parsed.socket_path(name), None, "{name:?}");
        }
        assert!(PluginArguments::default().socket_path(None).is_some());
    }

    #[test]
    fn array_tasks_have_their_array_s_name() {
        assert_eq!(job_id(35, Some(33), Some(2)), SlurmJobId::array_task(33, 2));
        assert_eq!(job_id(33, Some(33), Some(0)), SlurmJobId::array_task(33, 0));
        for (array, task) in
            [(Some(0), Some(0)), (Some(7), Some(0xffff_fffe)), (None, None), (Some(0xffff_fffe), Some(1))]
        {
            assert_eq!(job_id(7, array, task), SlurmJobId::plain(7), "{array:?} {task:?}");
        }
        let path = marker_path(Path::new("/run/pillion/agent.sock"), SlurmJobId::array_task(33, 2));
        assert_eq!(path, Some(PathBuf::from("/run/pillion/jobs/33_2")));
    }

    #[test]
    fn device_lists() {
        assert_eq!(parse_devices("1"), [1]);
        assert_eq!(parse_devices("0, 2,4-6"), [0, 2, 4, 5, 6]);
        assert_eq!(parse_devices(",x,-,3-1,\n7"), [7]);
        assert_eq!(parse_devices("0-4294967295").len(), DEVICES_MAX);
    }

    #[test]
    fn a_request_by_task_loses_its_gpus_and_nothing_else() {
        assert_eq!(without_gpus("gres/gpu=1").as_deref(), Some(""));
        let mixed = "cpu=2,gres/gpu:a100=1,gres/lscratch=5";
        assert_eq!(without_gpus(mixed).as_deref(), Some("cpu=2,gres/lscratch=5"));
        assert_eq!(without_gpus("cpu=2,gres/gpus_of_ours=1"), None);
        assert_eq!(without_gpus(""), None);
    }

    #[test]
    fn a_deadline_is_seen_however_short() {
        for (argument, is_seen) in [
            ("--deadline=now+1hour", true),
            ("--dead", true),
            ("--dependency=afterok:1", false),
            ("-dea", false),
        ] {
            assert_eq!(names_deadline(&["sbatch".to_owned(), argument.to_owned()]), is_seen, "{argument}");
        }
    }

    #[test]
    fn only_a_wish_that_lua_would_accept_is_passed_on() {
        assert_eq!(wish(None), None);
        for good in ["", "(null)", "yes", "memory=8G"] {
            assert_eq!(wish(Some(good.to_owned())).as_deref(), Some(good));
        }
        for bad in ["no", "maybe", "a\nb", &"x".repeat(60_000)] {
            assert_eq!(wish(Some(bad.to_owned())), None);
        }
    }

    #[test]
    fn any_bytes_can_be_checked() {
        assert_eq!(check_option(None), Ok(()));
        assert_eq!(check_option(Some(b"memory=8G")), Ok(()));
        assert_eq!(check_option(Some(b"no\xff")), Err(InvalidOption::BadByte(0xff)));
        assert_eq!(check_option(Some(&vec![b'x'; 60_000])), Err(InvalidOption::TooLong(60_000)));
    }

    /// What containers see beside what a job with these variables binds.
    fn binds(variables: &[(&str, &str)]) -> Vec<String> {
        let given = |name: &str| Some(variables.iter().find(|(it, _)| *it == name)?.1.to_owned());
        container_binds(given, "/p").into_iter().map(|(name, value)| format!("{name}={value}")).collect()
    }

    #[test]
    fn a_container_sees_the_directory_and_all_that_its_user_bound() {
        assert_eq!(binds(&[]), ["APPTAINER_BIND=/p", "SINGULARITY_BIND=/p"]);
        let both = [("APPTAINER_BIND", "/a:/b:ro"), ("SINGULARITY_BIND", "/s")];
        assert_eq!(binds(&both), ["APPTAINER_BIND=/a:/b:ro,/p", "SINGULARITY_BIND=/s,/p"]);
        let older = [("SINGULARITY_BINDPATH", "/s")];
        assert_eq!(
            binds(&older),
            ["APPTAINER_BIND=/s,/p", "SINGULARITY_BINDPATH=/s,/p"],
            "Apptainer reads it too"
        );
        assert_eq!(binds(&[("APPTAINER_BINDPATH", "/a")])[0], "APPTAINER_BINDPATH=/a,/p");
    }

    #[test]
    fn what_is_bound_already_is_left_as_it_is() {
        assert!(binds(&[("APPTAINER_BIND", "/a,/p:/p"), ("SINGULARITY_BIND", "/p")]).is_empty());
        assert_eq!(
            binds(&[("SINGULARITY_BIND", "/pipe")])[1],
            "SINGULARITY_BIND=/pipe,/p",
            "another directory"
        );
    }

    #[test]
    fn what_may_enter_an_environment() {
        assert!(is_variable_name("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE") && is_variable_name("_x1"));
        for name in ["", "1A", "A=B", "A B", "A\0", &"A".repeat(NAME_LENGTH_MAX + 1)] {
            assert!(!is_variable_name(name), "{name}");
        }
        assert!(is_variable_value("0=8G") && is_variable_value(""));
        for value in ["a\nb", "a\0b", "\u{1b}[0m", &"v".repeat(VALUE_LENGTH_MAX + 1)] {
            assert!(!is_variable_value(value));
        }
    }

    proptest::proptest! {
        #[test]
        fn log_lines_stay_on_one_line(text in "\\PC{0,400}|[\\x00-\\x7f]{0,400}") {
            let line = printable(&text);
            proptest::prop_assert!(line.len() <= 300 && line.bytes().all(|b| b == b' ' || b.is_ascii_graphic()));
        }
    }
}
