//! `pillion snapshot save FILE`: the engine's input at this moment, to be replayed with `pillion plan --view FILE`.

use crate::client::{Operator, answer};
use crate::error::CliError;
use crate::output::{Answer, Table, json};
use pillion_api::{DryRunRequest, DryRunResponse};
use pillion_pairing::ClusterView;
use serde::Serialize;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

#[derive(Serialize)]
struct Saved {
    file: String,
    revision: u64,
    waiting_count: usize,
    device_count: usize,
}

/// Asks the scheduler and writes the file whole: a reader never sees half a snapshot.
///
/// # Errors
/// As [`answer`]; [`CliError::Data`] for a view that this version could not replay; [`CliError::File`].
pub async fn save(client: &mut Operator, file: &Path) -> Result<Answer, CliError> {
    let DryRunResponse { workload_names: _, plan_json: _, view_json } =
        answer(client.dry_run(DryRunRequest {})).await?;
    let view = super::plan::read_view(&view_json, "the scheduler's answer")?;
    write_whole(file, view_json.as_bytes()).map_err(CliError::file("write", file))?;
    Ok(show(&view, file))
}

fn show(view: &ClusterView, file: &Path) -> Answer {
    let body = Saved {
        file: file.display().to_string(),
        revision: view.revision.0,
        waiting_count: view.waiting.len(),
        device_count: view.devices.len(),
    };
    let mut table = Table::new(&["FILE", ">REVISION", ">WAITING", ">DEVICES"]);
    let counts = [body.revision.to_string(), body.waiting_count.to_string(), body.device_count.to_string()];
    table.push(std::iter::once(body.file.clone()).chain(counts).collect());
    Answer::table(table, json::render(&body))
}

/// It tells who runs what: for its maker's eyes only, until he says otherwise.
fn private_file(path: &Path) -> std::io::Result<std::fs::File> {
    std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

fn write_whole(file: &Path, content: &[u8]) -> std::io::Result<()> {
    let name = file.file_name().ok_or(std::io::ErrorKind::InvalidInput)?;
    let mut beside = name.to_owned();
    beside.push(format!(".{}.part", std::process::id()));
    let beside = file.with_file_name(beside);
    let written = private_file(&beside).and_then(|mut part| {
        part.write_all(content)?;
        part.sync_all()?;
        std::fs::rename(&beside, file)
    });
    if written.is_err() {
        // The first error is the one to tell.
        let _ = std::fs::remove_file(&beside);
    }
    written
}
