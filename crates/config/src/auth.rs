//! How the two ends of a TCP connection prove who they are: `[auth]` for the scheduler and the command line, `[agent.auth]` for
//! the agent. The same keys, for each program has its own files and may run on its own machine.

#![expect(clippy::doc_markdown, reason = "the sentences are printed for admins as they stand")]

use crate::rules::is_loopback_host;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// How nodes prove who they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AuthMethod {
    /// MUNGE, as Slurm does.
    Munge,
    /// A secret that the scheduler's machine and the nodes share.
    Key,
    /// Certificates of the site's own authority.
    Mtls,
    /// Nothing: on one machine only.
    None,
}

/// `[auth]` of the scheduler and of the CLI, `[agent.auth]` of the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Auth {
    /// How agents and the scheduler prove to each other who they are: "munge", as Slurm does; "key", a secret that they share
    /// (pillion keygen); "mtls", certificates of the site's own authority; "none", on one machine only. Absent: "munge" where
    /// munge_socket is, else "key". The same for the scheduler and its agents. Users prove by MUNGE who they are, whatever is
    /// written here but "none".
    #[schemars(with = "Option<String>", extend("enum" = ["munge", "key", "mtls", "none"], "x-example" = "munge"))]
    pub method: Option<AuthMethod>,
    /// Where munged listens.
    #[schemars(extend("x-rule" = "socket-path"))]
    pub munge_socket: PathBuf,
    /// The user that the scheduler runs as, SlurmUser, by name or number: MUNGE proves that no other user answers for it.
    #[schemars(extend("x-rule" = "name"))]
    pub scheduler_user: String,
    /// The secret of "key", made by 'pillion keygen'. Only the program's own user may read it, or a group of nobody else.
    #[schemars(extend("x-rule" = "absolute-path"))]
    pub key_path: PathBuf,
    /// For "mtls": the certificate of the site's authority, PEM.
    #[schemars(extend("x-rule" = "absolute-path", "x-example" = "/etc/pillion/ca.pem"))]
    pub ca_path: Option<PathBuf>,
    /// For "mtls": the certificate of this end, PEM. Its DNS name is the node's name as Slurm has it; that of the scheduler is the
    /// host that the agents' endpoint names.
    #[schemars(extend("x-rule" = "absolute-path", "x-example" = "/etc/pillion/certificate.pem"))]
    pub certificate_path: Option<PathBuf>,
    /// For "mtls": its private key, PEM.
    #[schemars(extend("x-rule" = "absolute-path", "x-example" = "/etc/pillion/private-key.pem"))]
    pub private_key_path: Option<PathBuf>,
}

impl Default for Auth {
    fn default() -> Self {
        Self {
            method: None,
            munge_socket: PathBuf::from("/run/munge/munge.socket.2"),
            scheduler_user: "slurm".to_owned(),
            key_path: PathBuf::from("/etc/pillion/auth.key"),
            ca_path: None,
            certificate_path: None,
            private_key_path: None,
        }
    }
}

impl Auth {
    /// Gives a node's name to every path.
    pub(crate) fn named(&mut self, node: &str) {
        let paths = [&mut self.munge_socket, &mut self.key_path];
        let optional = [&mut self.ca_path, &mut self.certificate_path, &mut self.private_key_path];
        for path in paths.into_iter().chain(optional.into_iter().flatten()) {
            *path = PathBuf::from(path.to_string_lossy().replace("%n", node));
        }
    }

    /// What is wrong where the connection goes to, or is taken on, these hosts: key and sentence.
    pub(crate) fn wrong_with<'a>(
        &self,
        hosts: impl IntoIterator<Item = &'a str>,
    ) -> Option<(&'static str, String)> {
        match self.method {
            Some(AuthMethod::None) => {
                let host = hosts.into_iter().find(|host| !is_loopback_host(host))?;
                let sentence = format!(
                    "\"none\" believes whoever comes, and {host} is not this machine alone; write \"munge\", \"key\" or \"mtls\""
                );
                Some(("auth.method", sentence))
            }
            Some(AuthMethod::Mtls) => {
                let files = [
                    ("auth.ca_path", &self.ca_path),
                    ("auth.certificate_path", &self.certificate_path),
                    ("auth.private_key_path", &self.private_key_path),
                ];
                let (missing, _) = files.into_iter().find(|(_, path)| path.is_none())?;
                Some(("auth.method", format!("\"mtls\" needs a file that is not named; write {missing}")))
            }
            _ => None,
        }
    }
}
