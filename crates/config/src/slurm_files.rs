//! Slurm's own files, as far as `pillion doctor` and the agent look at them: text files, plugstack.conf with what it includes,
//! and for which Slurm a SPANK plugin was built. Reads, and judges nothing; what cannot be read is one sentence.

use object::{Object as _, ObjectSection as _, ObjectSymbol as _};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// A file longer than this is not what it should be.
const FILE_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// A regular file's text. Whatever is no UTF-8 in it is no setting of ours either.
///
/// # Errors
/// Why it cannot be read.
pub fn read_text(path: &Path) -> Result<String, String> {
    let metadata = std::fs::metadata(path).map_err(|error| unreadable(&error))?;
    if !metadata.is_file() {
        return Err("it is not a file".to_owned());
    }
    if metadata.len() > FILE_BYTES_MAX {
        return Err(format!("it is {} MiB long", metadata.len() >> 20));
    }
    let bytes = std::fs::read(path).map_err(|error| unreadable(&error))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn unreadable(error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::NotFound => "there is no such file".to_owned(),
        ErrorKind::PermissionDenied => "it may not be read; run doctor as root".to_owned(),
        _ => error.to_string(),
    }
}

/// plugstack.conf with the files that it includes, one level deep as Slurm's own example has it. `folder`: where slurm.conf
/// lies, from which includes are looked for.
///
/// # Errors
/// Why it cannot be read.
pub fn plugstack(path: &Path, folder: &Path) -> Result<String, String> {
    let mut text = read_text(path)?;
    let patterns: Vec<PathBuf> = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("include")?.split_whitespace().next().map(str::to_owned))
        .map(|pattern| folder.join(pattern))
        .collect();
    for included in patterns.iter().flat_map(|pattern| matching(pattern)) {
        text.push('\n');
        text.push_str(&read_text(&included).unwrap_or_default());
    }
    Ok(text)
}

/// The files that a pattern with `*` in its last part names.
pub fn matching(pattern: &Path) -> Vec<PathBuf> {
    let name = pattern.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let Some((start, end)) = name.split_once('*') else { return vec![pattern.to_owned()] };
    let Some(Ok(entries)) = pattern.parent().map(std::fs::read_dir) else { return Vec::new() };
    let fitting = entries.flatten().filter(|entry| {
        let found = entry.file_name();
        let found = found.to_string_lossy();
        found.len() >= start.len() + end.len() && found.starts_with(start) && found.ends_with(end)
    });
    let mut files: Vec<PathBuf> = fitting.map(|entry| entry.path()).collect();
    files.sort();
    files
}

/// The lines of plugstack.conf that load our plugin: the first word of each and the path.
pub fn lines_of_ours(plugstack: &str) -> Vec<(String, String)> {
    let mut ours = Vec::new();
    for line in plugstack.lines() {
        let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
        if let (Some(first), Some(path)) = (words.next(), words.next())
            && path.rsplit('/').next().is_some_and(|name| name.contains("pillion"))
        {
            ours.push((first.to_owned(), path.to_owned()));
        }
    }
    ours
}

/// The number behind the exported symbol `plugin_version`, which Slurm compares: `major << 16 | minor << 8 | micro` (Slurm,
/// `src/common/plugin.c`). Gives major and minor.
///
/// # Errors
/// Why it cannot be told.
pub fn plugin_version(path: &Path) -> Result<(u32, u32), String> {
    let bytes = std::fs::read(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound => "there is no such file".to_owned(),
        _ => error.to_string(),
    })?;
    let file = object::File::parse(&*bytes).map_err(|_| "it is no shared library".to_owned())?;
    let number =
        file.dynamic_symbols().find(|symbol| symbol.name() == Ok("plugin_version")).and_then(|symbol| {
            let section = file.section_by_index(symbol.section_index()?).ok()?;
            let data = section.data_range(symbol.address(), 4).ok()??;
            Some(u32::from_le_bytes(data.try_into().ok()?))
        });
    let number = number.ok_or("it exports no plugin_version")?;
    Ok((number >> 16 & 0xff, number >> 8 & 0xff))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_name_files() {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["10-a.conf", "20-b.conf", "c.txt"] {
            std::fs::write(folder.path().join(name), "").expect("written");
        }
        let path = folder.path();
        assert_eq!(matching(&path.join("*.conf")), [path.join("10-a.conf"), path.join("20-b.conf")]);
        assert_eq!(matching(&path.join("c.txt")), [path.join("c.txt")]);
        assert_eq!(matching(Path::new("/nowhere/at/all/*")), Vec::<PathBuf>::new());
    }

    #[test]
    fn a_plugstack_is_read_with_what_it_includes() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(folder.path().join("d")).expect("made");
        for (name, text) in [
            ("plugstack.conf", "# none here\ninclude d/*.conf\n"),
            ("d/pillion.conf", "optional pillion.so socket=/run/x # ours\n"),
            ("d/other", "required pillion.so\n"),
        ] {
            std::fs::write(folder.path().join(name), text).expect("written");
        }
        let text = plugstack(&folder.path().join("plugstack.conf"), folder.path()).expect("read");
        assert_eq!(lines_of_ours(&text), [("optional".to_owned(), "pillion.so".to_owned())]);
        let error = plugstack(&folder.path().join("none"), folder.path()).expect_err("not there");
        assert_eq!(error, "there is no such file");
    }

    #[test]
    fn what_is_no_plugin_says_so() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("pillion.so");
        assert_eq!(plugin_version(&path), Err("there is no such file".to_owned()));
        std::fs::write(&path, "text").expect("written");
        assert_eq!(plugin_version(&path), Err("it is no shared library".to_owned()));
    }
}
