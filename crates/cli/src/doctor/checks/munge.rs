//! MUNGE: with it Slurm's daemons and commands prove to each other who they are. Where it fails, nothing of Slurm answers, and
//! Slurm itself seldom says why. (That the clocks agree, without which credentials expire, is the check `agents`.)

use crate::doctor::facts::Credential;
use crate::doctor::facts::Facts;
use crate::doctor::finding::{Check, Finding};

/// munged listens where Slurm asks it, and reads back what it made.
pub(super) fn munge(facts: &Facts) -> Vec<Finding> {
    let check = Check("munge");
    let Some(munge) = &facts.munge else {
        return vec![check.ok("Slurm here proves who calls by other means")];
    };
    let socket = munge.socket.display();
    vec![match &munge.credential {
        _ if !munge.has_socket => check.fail(
            format!("there is no socket {socket}, where Slurm asks MUNGE"),
            "systemctl enable --now munge; where munged listens elsewhere, name its socket in slurm.conf: AuthInfo=socket=PATH",
        ),
        Credential::Refused(why) => check.fail(
            format!("'munge -n | unmunge' fails on {socket}: {why}"),
            "see 'systemctl status munge', that /etc/munge/munge.key is the same on every machine and munge's alone (mode \
             0400), and restart munge after a change of it",
        ),
        Credential::NotTried(why) => check.skip(why),
        Credential::Read => check.ok(format!("a credential was made and read back on {socket}")),
    }]
}
