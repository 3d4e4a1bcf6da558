//! Files of devices and capabilities, and programs that have them open.

use crate::support::Node;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

/// A node whose devices of this model have MIG on, and files.
pub(crate) fn node_with_mig(model: &str, count: u32) -> Node {
    let mut node = Node::start(model, count as usize);
    node.set("mig", (0..count).collect());
    let folder = files(&node).to_str().unwrap().into();
    node.set("files", folder);
    node
}

/// Where those files are.
pub(crate) fn files(node: &Node) -> PathBuf {
    node.socket().with_file_name("files")
}

/// The file of a capability of the first device, whose driver counts them from 3 on.
pub(crate) fn capability(node: &Node, gpu_instance: u32, compute_instance: Option<u32>) -> PathBuf {
    let minor = 3 + 9 * gpu_instance + compute_instance.map_or(0, |id| 1 + id);
    files(node).join(format!("dev/nvidia-caps/nvidia-cap{minor}"))
}

/// A program of its own that has a file open, ended with the test.
pub(crate) struct Program(Child);

impl Program {
    #[expect(clippy::disallowed_methods, reason = "another program, which holds a file")]
    pub(crate) fn with(file: &Path) -> Self {
        let file = std::fs::File::open(file).unwrap();
        Self(Command::new("sleep").arg("1000").stdin(file).spawn().unwrap())
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
