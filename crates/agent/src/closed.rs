//! Whether our unit lets us open what the backend needs. `DeviceAllow=` names drivers, and is read when the unit starts: one that came later
//! is closed to it, and a drop-in of the site's may have closed more. The drivers' libraries only say that there is no device.

use crate::config::BackendKind;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::path::{Path, PathBuf};

/// Where the kernel has the cards of drivers with a render node.
const RENDER_NODES: &str = "/dev/dri";

/// What a backend opens first of all, as far as it is there.
fn files(kind: BackendKind) -> Vec<PathBuf> {
    match kind {
        BackendKind::Simulated => Vec::new(),
        BackendKind::Nvidia => ["/dev/nvidiactl", "/dev/nvidia-uvm"].map(PathBuf::from).into(),
        BackendKind::Intel => {
            let entries = std::fs::read_dir(RENDER_NODES).into_iter().flatten().flatten();
            let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
            files.retain(|path| {
                path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"render"))
            });
            files
        }
    }
}

/// What stands in the way, and what to run; `None`: nothing that a control group does.
pub(crate) fn sentence(kind: BackendKind) -> Option<String> {
    shut(&files(kind), open).map(|path| {
        format!(
            "the unit does not let the agent open {}; run 'systemctl restart pillion-agent', for a driver that came later than the \
             agent, or see DeviceAllow= in 'systemctl cat pillion-agent'",
            path.display()
        )
    })
}

/// The first file that a control group shuts: that is EPERM, where rights of the file itself are EACCES, and no device is ENXIO.
fn shut(files: &[PathBuf], open: impl Fn(&Path) -> Result<(), Errno>) -> Option<&Path> {
    files.iter().find(|path| open(path) == Err(Errno::PERM)).map(PathBuf::as_path)
}

fn open(path: &Path) -> Result<(), Errno> {
    rustix::fs::open(path, OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty()).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_control_group_shuts_counts() {
        let all = files(BackendKind::Nvidia);
        for (errno, is_shut) in
            [(Errno::PERM, true), (Errno::ACCESS, false), (Errno::NOENT, false), (Errno::NXIO, false)]
        {
            let second = |path: &Path| if path.ends_with("nvidia-uvm") { Err(errno) } else { Ok(()) };
            let expected = is_shut.then(|| Path::new("/dev/nvidia-uvm"));
            assert_eq!(shut(&all, second), expected, "{errno}");
        }
        assert_eq!(sentence(BackendKind::Simulated), None);
        assert_eq!(open(Path::new("/nowhere")), Err(Errno::NOENT));
    }
}
