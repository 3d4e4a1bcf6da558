//! `pillion replay anonymise`: the files without people and names.

use super::{BUFFER_BYTES, of_reading, open};
use crate::args::AnonymiseArgs;
use crate::error::CliError;
use crate::output::{Answer, Table, json};
use pillion_auth::new_key;
use pillion_replay::anonymise::{self, Pseudonyms};
use serde::Serialize;
use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::path::{Path, PathBuf};

#[derive(Serialize)]
struct Written {
    files: Vec<WrittenFile>,
}

#[derive(Serialize)]
struct WrittenFile {
    path: String,
    left_out: u64,
}

pub(super) fn make(order: &AnonymiseArgs) -> Result<Answer, CliError> {
    // Drawn, used and forgotten: whoever had it could try names.
    let key = new_key().ok_or_else(|| CliError::Data("the system gives no random numbers".to_owned()))?;
    let names = Pseudonyms::new(key);
    let shapes = order.nodes.as_deref().map(super::nodes).transpose()?;
    let from = BufReader::with_capacity(BUFFER_BYTES, open(&order.sacct)?);
    std::fs::create_dir(&order.output).map_err(CliError::file("write", &order.output))?;
    let mut files = Vec::new();
    let (to, path) = create(&order.output, "sacct.txt")?;
    let left_out =
        anonymise::accounting(from, to, &names).map_err(|error| of_reading(error, &order.sacct))?;
    files.push(WrittenFile { path: path.display().to_string(), left_out });
    if let Some(nodes) = shapes {
        let path = order.output.join("nodes.txt");
        std::fs::write(&path, anonymise::nodes(&nodes.shapes, &names))
            .map_err(CliError::file("write", &path))?;
        files.push(WrittenFile { path: path.display().to_string(), left_out: nodes.unread as u64 });
    }
    let mut table = Table::new(&["WRITTEN", ">LEFT_OUT"]);
    for file in &files {
        table.push(vec![file.path.clone(), file.left_out.to_string()]);
    }
    let json = json::render(&Written { files });
    Ok(Answer::table(table, json))
}

fn create(folder: &Path, name: &str) -> Result<(BufWriter<File>, PathBuf), CliError> {
    let path = folder.join(name);
    let file = File::create_new(&path).map_err(CliError::file("write", &path))?;
    Ok((BufWriter::new(file), path))
}
