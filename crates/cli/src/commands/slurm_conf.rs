//! `pillion slurm-conf`: what the site's Slurm files need for a pool, as a unified diff on standard output, and what has to be
//! done by hand on standard error. No file is written.

use crate::args::{Global, SlurmConfArgs};
use crate::config::Config;
use crate::error::CliError;
use crate::exit::{self, ExitStatus};
use crate::format::clean;
use crate::output::{Answer, Block, Output, Table, json};
use crate::slurm_conf::{Files, Pool, Proposal, SLURM_CONF, propose};
use pillion_config::slurm_files::{matching, read_text};
use pillion_slurm::expand;
use serde::Serialize;
use similar::TextDiff;
use std::path::{Path, PathBuf};

/// Where Slurm looks unless `SLURM_CONF` says otherwise.
const DIRECTORY: &str = "/etc/slurm";
/// Lines around a change.
const CONTEXT_LINES: usize = 3;

/// Runs the command.
///
/// # Errors
/// [`CliError::Usage`] for what is no hostlist, [`CliError::File`] for a file that is there and cannot be read.
pub fn run(args: &SlurmConfArgs, global: &Global, output: &Output) -> Result<ExitStatus, CliError> {
    let config = Config::load(global.config.as_deref()).unwrap_or_default();
    let directory = args.directory.clone().unwrap_or_else(|| usual_directory(&config));
    let pool = pool(args, &config)?;
    let files = read_all(&directory)?;
    let mut proposal = propose(&files, &pool);
    proposal.by_hand = [std::mem::take(&mut proposal.must_first), proposal.by_hand].concat();
    for name in outside(&directory, &files, &proposal.files) {
        let directory = directory.display();
        proposal
            .by_hand
            .push(format!("{name} lies outside {directory}: make its changes by hand, patch does not"));
    }
    for sentence in &proposal.by_hand {
        eprintln!("by hand: {}", clean(sentence));
    }
    output.print(&answer(&directory, &files, &proposal))?;
    Ok(exit::OK)
}

pub(super) fn usual_directory(config: &Config) -> PathBuf {
    let named = std::env::var_os("SLURM_CONF").map(PathBuf::from).or_else(|| config.slurm.conf.clone());
    let directory = named.as_deref().and_then(Path::parent).filter(|it| it.is_absolute());
    directory.unwrap_or(Path::new(DIRECTORY)).to_owned()
}

pub(super) fn pool(args: &SlurmConfArgs, config: &Config) -> Result<Pool, CliError> {
    let no_list =
        |text: &str| CliError::Usage(format!("'{text}' is no list of nodes; write n[1-2] or n1,n2"));
    let names = expand(&args.nodes).map_err(|_| no_list(&args.nodes))?;
    if names.is_empty() {
        return Err(no_list(&args.nodes));
    }
    let devices = match &args.devices {
        None => Vec::new(),
        Some(list) => device_files(list).ok_or_else(|| {
            CliError::Usage(format!("'{list}' is no list of files of one folder; write '/dev/nvidia[0-3]'"))
        })?,
    };
    let configured = config.pool.partitions.first().map_or("shared", String::as_str);
    let partition = args.partition.as_deref().unwrap_or(configured);
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "_-.+".contains(letter);
    if partition.is_empty() || !partition.chars().all(is_plain) || partition.eq_ignore_ascii_case("default") {
        return Err(CliError::Usage(format!(
            "'{partition}' is no name of a partition: letters, digits and _-.+ make one"
        )));
    }
    Ok(Pool {
        nodes: args.nodes.clone(),
        names: names.iter().map(|name| name.as_str().to_owned()).collect(),
        partition: partition.to_owned(),
        devices,
    })
}

/// `/dev/nvidia[0-3]`, or `/dev/nvidia0,/dev/nvidia2`: a hostlist behind a folder.
fn device_files(list: &str) -> Option<Vec<String>> {
    let (folder, _) = list.split([',', '[']).next()?.rsplit_once('/')?;
    let names = expand(&list.replace(&format!("{folder}/"), "")).ok()?;
    Some(names.iter().map(|name| format!("{folder}/{}", name.as_str())).collect())
}

/// The files that matter, with what slurm.conf includes. One that is not there is an empty one.
pub(super) fn read_all(directory: &Path) -> Result<Files, CliError> {
    let mut files = Files::default();
    let mut wanted: Vec<String> = [SLURM_CONF, "gres.conf", "job_submit.lua"].map(str::to_owned).into();
    while let Some(name) = wanted.pop() {
        let path = directory.join(&name);
        match std::fs::read_to_string(&path) {
            Ok(text) => files.0.insert(name, text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && name != SLURM_CONF => {
                files.0.insert(name, String::new())
            }
            Err(source) => return Err(CliError::file("read", &path)(source)),
        };
        wanted.extend(files.missing());
    }
    for pattern in files.plugstack_includes() {
        let folder = pattern.rsplit_once('/').map_or(String::new(), |(folder, _)| format!("{folder}/"));
        for path in matching(&directory.join(&pattern)) {
            // One that may not be read loads no plugin that we could know of; Slurm passes one that is not there over.
            let (Some(name), Ok(text)) = (path.file_name(), read_text(&path)) else { continue };
            files.0.insert(format!("{folder}{}", name.to_string_lossy()), text);
        }
    }
    Ok(files)
}

#[derive(Serialize)]
struct Proposed<'a> {
    diff: &'a str,
    by_hand: &'a [String],
}

fn answer(directory: &Path, before: &Files, proposal: &Proposal) -> Answer {
    let diff = diff(directory, before, &proposal.files);
    let mut table = Table::new(&["DIFF"]);
    for line in diff.lines() {
        table.push(vec![line.to_owned()]);
    }
    let blocks = diff.lines().map(|line| Block::Verbatim(line.to_owned())).collect();
    let json = json::render(&Proposed { diff: &diff, by_hand: &proposal.by_hand });
    Answer { blocks, parsable: table, json }
}

/// As `diff -u` writes it, for `patch -p1 -d DIRECTORY`: patch takes no absolute paths. A file that is not there yet is made.
fn diff(directory: &Path, before: &Files, after: &Files) -> String {
    let mut text = String::new();
    for (name, new) in after.0.iter().filter(|(name, new)| before.text(name) != new.as_str()) {
        let old = Some(before.text(name)).filter(|text| !text.is_empty());
        text += &unified(&within(directory, name), old, Some(new));
    }
    text
}

/// One file, of an absolute path; `None`: there is none.
pub(super) fn diff_of(path: &Path, old: Option<&str>, new: Option<&str>) -> String {
    unified(path.display().to_string().trim_start_matches('/'), old, new)
}

fn unified(name: &str, old: Option<&str>, new: Option<&str>) -> String {
    let head =
        |side: &str, text: Option<&str>| text.map_or("/dev/null".to_owned(), |_| format!("{side}/{name}"));
    let diff = TextDiff::from_lines(old.unwrap_or_default(), new.unwrap_or_default());
    diff.unified_diff().context_radius(CONTEXT_LINES).header(&head("a", old), &head("b", new)).to_string()
}

/// A file's name as seen from the directory, if it lies in it.
fn within(directory: &Path, name: &str) -> String {
    Path::new(name).strip_prefix(directory).map_or_else(|_| name.to_owned(), |it| it.display().to_string())
}

/// Changed files that `patch -d` does not reach.
fn outside(directory: &Path, before: &Files, after: &Files) -> Vec<String> {
    let changed = after.0.iter().filter(|(name, new)| before.text(name) != new.as_str());
    let names = changed.map(|(name, _)| within(directory, name));
    names.filter(|name| name.starts_with('/') || name.split('/').any(|part| part == "..")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(nodes: &str) -> SlurmConfArgs {
        SlurmConfArgs { nodes: nodes.to_owned(), partition: None, devices: None, directory: None }
    }

    #[test]
    fn the_diff_is_one_that_patch_takes_and_nothing_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let conf = "# site\nInclude nodes.conf\nGresTypes=gpu\n";
        std::fs::write(folder.path().join("slurm.conf"), conf).unwrap();
        std::fs::write(folder.path().join("nodes.conf"), "NodeName=n1 CPUs=8 RealMemory=64000 Gres=gpu:2")
            .unwrap();
        let files = read_all(folder.path()).unwrap();
        let proposal = propose(&files, &pool(&args("n1"), &Config::default()).unwrap());
        let text = diff(Path::new("/etc/slurm"), &files, &proposal.files);
        for line in [
            "--- a/slurm.conf\n+++ b/slurm.conf\n",
            "-GresTypes=gpu\n+GresTypes=gpu,shard\n",
            "--- /dev/null\n+++ b/gres.conf\n",
            "+NodeName=n1 CPUs=8 RealMemory=64000 Gres=gpu:g0:1,gpu:g1:1,shard:g0:100,shard:g1:100\n",
            "\\ No newline at end of file",
        ] {
            assert!(text.contains(line), "{line:?} is not in\n{text}");
        }
        assert_eq!(std::fs::read_to_string(folder.path().join("slurm.conf")).unwrap(), conf);
        assert!(!folder.path().join("gres.conf").exists());
        assert_eq!(diff(Path::new("/etc/slurm"), &proposal.files, &proposal.files), "");
    }

    #[test]
    fn the_plugins_of_the_site_are_read_where_slurm_conf_names_them() {
        let folder = tempfile::tempdir().unwrap();
        let spank = folder.path().join("spank.conf");
        let conf = format!("PlugStackConfig={}\nNodeName=n1 CPUs=8 Gres=gpu:2\n", spank.display());
        std::fs::write(folder.path().join("slurm.conf"), conf).unwrap();
        std::fs::write(&spank, "optional /usr/lib/pillion/pillion.so\n").unwrap();
        let files = read_all(folder.path()).unwrap();
        let proposal = propose(&files, &pool(&args("n1"), &Config::default()).unwrap());
        let text = diff(folder.path(), &files, &proposal.files);
        // The folder's own name, which stands in the text, may end in a b.
        assert!(text.contains("+++ b/slurm.conf") && !text.contains("+++ b/spank.conf"), "{text}");
        std::fs::write(&spank, "optional /usr/lib/other.so\n").unwrap();
        let files = read_all(folder.path()).unwrap();
        let proposal = propose(&files, &pool(&args("n1"), &Config::default()).unwrap());
        let text = diff(folder.path(), &files, &proposal.files);
        assert!(
            text.contains("--- a/spank.conf\n+++ b/spank.conf\n")
                && text.contains("+optional /usr/lib/pillion"),
            "{text}"
        );
    }

    #[test]
    fn a_plugin_that_an_included_file_loads_is_not_loaded_again() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        std::fs::create_dir(folder.path().join("plugstack.conf.d")).unwrap();
        write("slurm.conf", "NodeName=n1 CPUs=8 Gres=gpu:2\n");
        write("plugstack.conf", "include plugstack.conf.d/*.conf\n");
        write("plugstack.conf.d/pyxis.conf", "required /usr/lib/spank_pyxis.so\n");
        let proposed = || {
            let files = read_all(folder.path()).unwrap();
            let proposal = propose(&files, &pool(&args("n1"), &Config::default()).unwrap());
            (diff(folder.path(), &files, &proposal.files), proposal.must_first.join("; "))
        };
        let (text, _) = proposed();
        assert!(text.contains("+optional /usr/lib/pillion/pillion.so") && !text.contains("pyxis"), "{text}");
        write("plugstack.conf.d/pillion.conf", "optional /usr/lib/pillion/pillion.so\n");
        let (text, first) = proposed();
        assert!(!text.contains("pillion.so") && !first.contains("pillion.so"), "{text} {first}");
        write("plugstack.conf.d/pillion.conf", "required /usr/lib/pillion/pillion.so\n");
        assert!(proposed().1.contains("loads pillion.so as 'required'"), "{}", proposed().1);
    }

    #[test]
    fn included_files_are_named_as_patch_reaches_them() {
        let texts = ["/etc/slurm/in.conf", "/srv/out.conf", "../up.conf"]
            .map(|name| (name.to_owned(), "A=1\n".to_owned()));
        let (before, after) = (Files::default(), Files(texts.into()));
        let directory = Path::new("/etc/slurm");
        assert!(diff(directory, &before, &after).contains("+++ b/in.conf\n"));
        assert_eq!(outside(directory, &before, &after), ["../up.conf", "/srv/out.conf"]);
    }

    #[test]
    fn what_is_no_list_and_what_is_no_directory_is_said() {
        let error = pool(&args("n[1-"), &Config::default()).unwrap_err().to_string();
        assert_eq!(error, "'n[1-' is no list of nodes; write n[1-2] or n1,n2");
        for partition in ["", "shared gpu", "a\nSlurmUser=root", "DEFAULT", "a,b"] {
            let args = SlurmConfArgs { partition: Some(partition.to_owned()), ..args("n1") };
            let error = pool(&args, &Config::default()).unwrap_err().to_string();
            assert!(error.contains("is no name of a partition"), "{error}");
        }
        assert!(read_all(Path::new("/nowhere")).is_err());
        let files = |list: &str| device_files(list).unwrap_or_default().join(" ");
        assert_eq!(files("/dev/dri/renderD[128-129]"), "/dev/dri/renderD128 /dev/dri/renderD129");
        assert_eq!(files("/dev/nvidia0,/dev/nvidia2"), "/dev/nvidia0 /dev/nvidia2");
        assert_eq!(files("nvidia0"), "");
    }
}
