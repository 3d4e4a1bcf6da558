//! `pillion-testbed`: makes a private world for a test run or a demo (`enter`), or runs a command in one (`join`).

use clap::{Parser, Subcommand};
use pillion_tests::cluster::sweep::sweep;
use pillion_tests::error::{HarnessError, Result};
use pillion_tests::testbed::{self, EnterOptions, InitOptions};
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus};

/// A private world for a test run: own mounts, processes, network and users. Needs root.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Make a testbed and run a command in it; when the command ends, everything in it ends.
    Enter {
        /// Folder of a Debian 13 with Slurm, or / for the machine's own Slurm.
        #[arg(long, env = "PILLION_ROOT", default_value = "/")]
        root: PathBuf,
        /// Folder that appears inside under the same path, writable. Repeatable.
        #[arg(long)]
        share: Vec<PathBuf>,
        /// Written with the process numbers of the testbed.
        #[arg(long)]
        pid_file: Option<PathBuf>,
        /// End with the process that started this one, even if that one is killed.
        #[arg(long)]
        with_parent: bool,
        /// Keep the machine's network instead of a private loopback.
        #[arg(long)]
        host_network: bool,
        /// Port of the machine's loopback that leads to the same port inside; another where it is taken. Repeatable.
        #[arg(long, conflicts_with = "host_network")]
        forward: Vec<u16>,
        /// The command and its arguments.
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
    /// Run a command in a testbed that is up.
    Join {
        /// The file that `enter --pid-file` wrote.
        #[arg(long)]
        pid_file: PathBuf,
        /// As whom.
        #[arg(long, default_value = "root")]
        user: String,
        /// The command and its arguments.
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
    /// End a testbed and everything in it; none being up is no error.
    Down {
        /// The file that `enter --pid-file` wrote; removed.
        #[arg(long)]
        pid_file: PathBuf,
    },
    /// Inside a testbed: end every process of the cluster in a folder, as its owner does when it ends.
    Sweep {
        /// The cluster's folder, such as /run/testbed/c1.
        folder: PathBuf,
    },
    /// Process 1 of a testbed.
    #[command(hide = true)]
    Init {
        #[arg(long)]
        private_network: bool,
        #[arg(long)]
        folder: PathBuf,
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
}

fn main() -> ExitCode {
    match run(Arguments::parse().action) {
        Ok(code) => ExitCode::from(u8::try_from(code).unwrap_or(1)),
        Err(error) => {
            eprintln!("error: {}", pillion_core::report(&error));
            ExitCode::from(71)
        }
    }
}

fn run(action: Action) -> Result<i32> {
    match action {
        Action::Enter { root, share, pid_file, with_parent, host_network, forward, command } => {
            let program = std::env::current_exe().map_err(|source| HarnessError::Io {
                action: "find",
                path: "/proc/self/exe".into(),
                source,
            })?;
            let programs = program.parent().unwrap_or(Path::new("/")).to_owned();
            let options = EnterOptions {
                root,
                shared: share,
                programs,
                pid_file,
                private_network: !host_network,
                with_parent,
                forwarded: forward,
                command,
            };
            testbed::enter(&options).map(exit_code)
        }
        Action::Join { pid_file, user, command } => {
            let up = testbed::find_up(&pid_file).ok_or_else(|| {
                HarnessError::Refused(format!(
                    "no testbed is up: {} names none that lives",
                    pid_file.display()
                ))
            })?;
            testbed::join(up, &user, &command).map(exit_code)
        }
        Action::Sweep { folder } if testbed::is_inside() => sweep(&folder).map(|()| 0),
        Action::Sweep { .. } => Err(HarnessError::NotInTestbed),
        Action::Down { pid_file } => testbed::down(&pid_file).map(|()| 0),
        Action::Init { private_network, folder, command } => {
            testbed::init(&InitOptions { private_network, folder, command })
        }
    }
}

fn exit_code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}
