//! The programs of Pillion on a test cluster. The only file of the harness that knows their options and configuration.

use crate::cluster::Cluster;
use crate::error::{Result, io_error};
use crate::testbed::BIN_DIR;
use std::path::{Path, PathBuf};

/// The file that the SPANK plugin is built as.
const SPANK_LIBRARY: &str = "libpillion_slurm_spank.so";

/// The checkout that the harness was built from; it appears in the testbed under the same path.
pub fn checkout() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ lies in the checkout").to_owned()
}

/// `plugstack.conf`: our plugin, where the cluster wants it and it was built.
pub(crate) fn plugstack_conf(cluster: &Cluster) -> String {
    let library = Path::new(BIN_DIR).join(SPANK_LIBRARY);
    if cluster.spec().spank && library.exists() {
        format!(
            "optional {} socket={}\n",
            library.display(),
            cluster.root().join("run/agent-%n.sock").display()
        )
    } else {
        String::new()
    }
}

/// `job_submit.lua`: the example of `deploy/slurm` with `pillion.lua` beside it, where the checkout has them.
///
/// # Errors
/// Where a file cannot be copied.
pub(crate) fn job_submit_lua(cluster: &Cluster) -> Result<Option<String>> {
    let folder = checkout().join("deploy/slurm");
    let example = folder.join("job_submit.lua.example");
    let Ok(text) = std::fs::read_to_string(&example) else { return Ok(None) };
    let module = folder.join("pillion.lua");
    let bytes = std::fs::read(&module).map_err(io_error("read", &module))?;
    cluster.layout().write("conf/pillion.lua", bytes)?;
    Ok(Some(text))
}
