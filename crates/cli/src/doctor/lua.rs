//! Reads a site's `job_submit.lua` without running it: does it load our module so that a missing or broken module is no
//! outage? A `dofile` that fails outside `pcall` makes the next start of slurmctld fatal.

/// How the site's script loads and calls our module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Loading {
    /// It does not mention us.
    Absent,
    /// Every load and call of ours is protected.
    Protected,
    /// A load or call of ours is not protected.
    Bare {
        /// Where, from 1.
        line: usize,
        /// What stands there.
        text: String,
    },
}

/// Functions that raise an error when the file is missing or broken. (`loadfile` returns nil instead.)
const LOADERS: [&str; 2] = ["dofile", "require"];

/// Looks for loads and calls of a module whose path or name holds `pillion`.
pub fn loading(script: &str) -> Loading {
    let lines = without_comments(script);
    if !lines.iter().any(|line| line.to_ascii_lowercase().contains("pillion")) {
        return Loading::Absent;
    }
    let ours = names_of_ours(&lines);
    let mut protected_until: Option<usize> = None;
    for (index, line) in lines.iter().enumerate() {
        // The body of `pcall(function() ... end)` may span lines; it ends where the block's `end)` stands.
        if let Some(column) = line.find("pcall(function").or_else(|| line.find("pcall (function")) {
            if !line[column..].contains("end)") {
                protected_until = Some(index);
            }
            continue;
        }
        if protected_until.is_some() {
            if line.trim_start().starts_with("end)") || line.trim_start().starts_with("end,") {
                protected_until = None;
            }
            continue;
        }
        if has_bare_load(line, &ours) || has_bare_call(line, &ours) {
            return Loading::Bare { line: index + 1, text: line.trim().to_owned() };
        }
    }
    Loading::Protected
}

/// The first quoted path in the script that ends in `pillion.lua`.
pub fn module_path(script: &str) -> Option<String> {
    quoted(script, |text| text.ends_with("pillion.lua"))
}

/// The first quoted absolute path in the script that names a heartbeat.
pub fn heartbeat_path(script: &str) -> Option<String> {
    quoted(script, |text| text.starts_with('/') && text.ends_with("heartbeat"))
}

/// The first quoted text that is wanted.
fn quoted(script: &str, is_wanted: impl Fn(&str) -> bool) -> Option<String> {
    without_comments(script).iter().find_map(|line| {
        let parts: Vec<&str> = line.split(['"', '\'']).collect();
        parts.iter().skip(1).step_by(2).find(|text| is_wanted(text)).map(|text| (*text).to_owned())
    })
}

/// Variables that a line assigns from something of ours: `local ok, pillion = pcall(dofile, PATH)`.
fn names_of_ours(lines: &[String]) -> Vec<String> {
    let mut ours = vec!["pillion".to_owned()];
    for line in lines {
        let Some((left, right)) = line.split_once('=') else { continue };
        if right.starts_with('=') || !ours.iter().any(|name| has_word(right, name)) {
            continue;
        }
        let left = left.trim().trim_start_matches("local ");
        for name in left.split(',').map(str::trim) {
            let is_name = !name.is_empty() && name.chars().all(is_of_name);
            if is_name && !ours.iter().any(|known| known == name) {
                ours.push(name.to_owned());
            }
        }
    }
    ours
}

fn has_bare_load(line: &str, ours: &[String]) -> bool {
    LOADERS.iter().any(|loader| {
        line.match_indices(loader).any(|(at, _)| {
            let before = &line[..at];
            let after = &line[at + loader.len()..];
            let argument = after.trim_start();
            let is_call = argument.starts_with(['(', '"', '\'']) && !ends_in_name(before);
            is_call && ours.iter().any(|name| has_word(argument, name))
        })
    })
}

/// `pillion.job_submit(...)`: a call of ours that is not handed to `pcall` as a value.
fn has_bare_call(line: &str, ours: &[String]) -> bool {
    ours.iter().any(|name| {
        line.match_indices(name.as_str()).any(|(at, _)| {
            let after = &line[at + name.len()..];
            let Some(rest) = after.strip_prefix(['.', ':']) else { return false };
            let method = rest.find(|c| !is_of_name(c)).unwrap_or(rest.len());
            let in_text =
                line[..at].matches('"').count() % 2 == 1 || line[..at].matches('\'').count() % 2 == 1;
            let defines = line[..at].trim_end().ends_with("function");
            !in_text
                && !defines
                && !ends_in_name(&line[..at])
                && method > 0
                && rest[method..].trim_start().starts_with('(')
        })
    })
}

fn ends_in_name(text: &str) -> bool {
    text.ends_with(|c| is_of_name(c) || c == '.')
}

fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Whether `word` stands in `text` with no letter, digit or underscore around it.
fn has_word(text: &str, word: &str) -> bool {
    text.match_indices(word)
        .any(|(at, _)| !text[..at].ends_with(is_of_name) && !text[at + word.len()..].starts_with(is_of_name))
}

/// The lines with `--` and `--[[ ]]` comments blanked, so that line numbers stay.
fn without_comments(script: &str) -> Vec<String> {
    let mut in_block = false;
    script
        .lines()
        .map(|line| {
            let mut rest = line;
            let mut kept = String::new();
            loop {
                if in_block {
                    let Some(end) = rest.find("]]") else { return kept };
                    rest = &rest[end + 2..];
                    in_block = false;
                }
                let Some(start) = rest.find("--") else { return kept + rest };
                kept.push_str(&rest[..start]);
                if !rest[start..].starts_with("--[[") {
                    return kept;
                }
                in_block = true;
                rest = &rest[start + 4..];
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
-- dofile("/etc/slurm/pillion.lua") would be an outage
local ok, pillion = pcall(dofile, "/etc/slurm/pillion.lua")
function slurm_job_submit(job, parts, uid)
    if ok then
        local fine, rc = pcall(pillion.job_submit, job, parts, uid)
        if fine and rc ~= slurm.SUCCESS then return rc end
    end
    return slurm.SUCCESS
end
"#;

    fn bare_line(script: &str) -> Option<usize> {
        match loading(script) {
            Loading::Bare { line, .. } => Some(line),
            _ => None,
        }
    }

    #[test]
    fn protected_loads_and_calls_are_fine() {
        assert_eq!(loading(GOOD), Loading::Protected);
        assert_eq!(module_path(GOOD).as_deref(), Some("/etc/slurm/pillion.lua"));
        let in_function = "local ok, m = pcall(function()\n  return dofile('/x/pillion.lua')\nend)\n";
        assert_eq!(loading(in_function), Loading::Protected);
        let by_name = "local PATH = '/x/pillion.lua'\nlocal ok, m = pcall(dofile, PATH)\nlocal a, b = pcall(m.submit, 1)\n";
        assert_eq!(loading(by_name), Loading::Protected);
    }

    #[test]
    fn bare_loads_and_calls_are_found_with_their_line() {
        assert_eq!(bare_line("local p = dofile(\"/etc/slurm/pillion.lua\")"), Some(1));
        assert_eq!(bare_line("\nlocal p = require 'pillion'\n"), Some(2));
        assert_eq!(bare_line("local PATH = '/x/pillion.lua'\nlocal m = dofile(PATH)\n"), Some(2));
        let call = GOOD.replace(
            "pcall(pillion.job_submit, job, parts, uid)",
            "true, pillion.job_submit(job, parts, uid)",
        );
        assert_eq!(bare_line(&call), Some(6));
        let by_name = "local ok, m = pcall(require, 'pillion')\nreturn m.job_submit(job)\n";
        assert_eq!(bare_line(by_name), Some(2));
    }

    #[test]
    fn others_may_be_loaded_as_they_like() {
        assert_eq!(loading("dofile('/etc/slurm/site.lua')"), Loading::Absent);
        assert_eq!(loading("--[[ dofile('pillion.lua')\n]] x = 1"), Loading::Absent);
        assert_eq!(loading(&format!("dofile('/etc/slurm/site.lua')\n{GOOD}")), Loading::Protected);
    }
}
