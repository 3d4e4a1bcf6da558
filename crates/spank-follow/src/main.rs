//! `pillion-spank-follow`: run by the package's triggers, or by hand after a Slurm was installed in another way.

use pillion_spank_follow::{PLUGIN_FOLDERS, Places, RELEASES_FOLDERS, follow};
use std::path::PathBuf;
use std::process::ExitCode;

const FOLDER: &str = "/usr/lib/pillion";
const BUILT: &str = "libpillion_slurm_spank.so";
const USAGE: &str = "usage: pillion-spank-follow [FOLDER...]

Stamps the SPANK plugin for the Slurm whose plugins lie in one of the folders, and in those where distributions
have them or a site has one for each release (/opt/slurm/RELEASE, the one that runs linked as
/opt/slurm/current), and turns the link /usr/lib/pillion/pillion.so, which plugstack.conf names.";

fn main() -> ExitCode {
    let folders: Vec<String> = std::env::args().skip(1).collect();
    if let Some(option) = folders.iter().find(|folder| folder.starts_with('-')) {
        let is_asked = ["-h", "--help"].contains(&option.as_str());
        if is_asked {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        eprintln!("pillion-spank-follow: '{option}' is not known\n{USAGE}");
        return ExitCode::from(64);
    }
    let folder = PathBuf::from(FOLDER);
    let places = Places {
        built: folder.join(BUILT),
        copies: folder,
        slurms: PLUGIN_FOLDERS.iter().map(PathBuf::from).chain(folders.iter().map(PathBuf::from)).collect(),
        releases: RELEASES_FOLDERS.iter().map(PathBuf::from).collect(),
    };
    match follow(&places) {
        Ok(said) => {
            for sentence in said {
                println!("pillion-spank: {sentence}");
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("pillion-spank-follow: {error:#}");
            ExitCode::FAILURE
        }
    }
}
