//! The texts that the two ends send before anything else, and what a proof is made over; pure.
//!
//! ```text
//! proof over   pillion1 agent NODE EXPORTER | pillion1 user - EXPORTER | pillion1 scheduler NODE EXPORTER
//! claim        pillion1 METHOD agent NODE \n PROOF        answer   welcome \n PROOF | away \n TEXT | denied \n TEXT
//! ```
//!
//! The role in the text keeps a proof from being sent back to whoever made it, the node from being used for another one, the
//! exporter from being used on another connection.

use crate::error::{AuthError, Denial, plain};
use pillion_core::NodeName;
use std::fmt::Write as _;

/// The version of these texts.
const VERSION: &str = "pillion1";
/// The longest node name that is read.
const NODE_LENGTH_MAX: usize = 255;

/// What only the two ends of one TLS connection know (RFC 9266).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Exporter(pub [u8; 32]);

impl Exporter {
    /// In hexadecimal digits.
    pub fn text(&self) -> String {
        self.0.iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
    }
}

/// By what a connection is proven.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// A credential of MUNGE.
    Munge,
    /// A code made with the shared secret.
    Key,
    /// The certificates of the connection itself.
    Mtls,
    /// Nothing is proven: for one machine only.
    None,
}

impl Method {
    const ALL: [Self; 4] = [Self::Munge, Self::Key, Self::Mtls, Self::None];

    /// As the configuration writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Munge => "munge",
            Self::Key => "key",
            Self::Mtls => "mtls",
            Self::None => "none",
        }
    }
}

/// Who the client says that it is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Claimant {
    /// The agent of a node.
    Agent(NodeName),
    /// A user, whose uid MUNGE tells.
    User,
}

impl Claimant {
    const fn role(&self) -> &'static str {
        match self {
            Self::Agent(_) => "agent",
            Self::User => "user",
        }
    }

    fn node(&self) -> &str {
        match self {
            Self::Agent(node) => node.as_str(),
            Self::User => "-",
        }
    }

    /// What the client's proof is made over.
    pub fn payload(&self, exporter: &Exporter) -> String {
        format!("{VERSION} {} {} {}", self.role(), self.node(), exporter.text())
    }

    /// What the scheduler's proof towards this client is made over.
    pub(crate) fn answer_payload(&self, exporter: &Exporter) -> String {
        format!("{VERSION} scheduler {} {}", self.node(), exporter.text())
    }
}

impl std::fmt::Display for Claimant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Agent(node) => write!(f, "the agent of {node}"),
            Self::User => f.write_str("a user"),
        }
    }
}

/// What a client sends first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// By what the claim is proven.
    pub method: Method,
    /// Who the client says that it is.
    pub claimant: Claimant,
    /// The proof; empty where the method has none of its own.
    pub proof: String,
}

impl Claim {
    /// As it is sent.
    pub(crate) fn to_text(&self) -> String {
        let Self { method, claimant, proof } = self;
        format!("{VERSION} {} {} {}\n{proof}", method.as_str(), claimant.role(), claimant.node())
    }

    /// Reads one.
    ///
    /// # Errors
    /// [`Denial::Malformed`].
    pub fn parse(text: &str) -> Result<Self, AuthError> {
        Self::read(text).ok_or(AuthError::Denied(Denial::Malformed))
    }

    fn read(text: &str) -> Option<Self> {
        let (head, proof) = text.split_once('\n')?;
        let [version, method, role, node] = head.split(' ').collect::<Vec<_>>()[..] else { return None };
        let method = Method::ALL.into_iter().find(|known| known.as_str() == method)?;
        let claimant = match (role, node) {
            ("agent", node) if is_node(node) => Claimant::Agent(NodeName::new(node)),
            ("user", "-") => Claimant::User,
            _ => return None,
        };
        (version == VERSION).then(|| Self { method, claimant, proof: proof.to_owned() })
    }
}

/// Letters of a node name in Slurm; no space, so that a payload has one reading only.
fn is_node(text: &str) -> bool {
    let is_of_letters = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
    !text.is_empty() && text != "-" && text.len() <= NODE_LENGTH_MAX && is_of_letters
}

/// What the scheduler answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Come in; and here is my own proof.
    Welcome(String),
    /// It could not be judged now, and why; trying again may help.
    Unavailable(String),
    /// It was judged and not believed, and why.
    Denied(String),
}

impl Answer {
    /// To a claim that was not believed.
    pub(crate) fn refusal(error: &AuthError) -> Self {
        match error {
            AuthError::Denied(_) => Self::Denied(error.report()),
            AuthError::Unavailable(_) | AuthError::Unreachable(_) => Self::Unavailable(error.report()),
        }
    }

    /// As it is sent.
    pub(crate) fn to_text(&self) -> String {
        match self {
            Self::Welcome(proof) => format!("welcome\n{proof}"),
            Self::Unavailable(text) => format!("away\n{text}"),
            Self::Denied(text) => format!("denied\n{text}"),
        }
    }

    /// Reads one. Its text is foreign: only plain letters of it are kept.
    ///
    /// # Errors
    /// [`Denial::Malformed`].
    pub fn parse(text: &str) -> Result<Self, AuthError> {
        match text.split_once('\n') {
            Some(("welcome", proof)) => Ok(Self::Welcome(proof.to_owned())),
            Some(("away", why)) => Ok(Self::Unavailable(plain(why))),
            Some(("denied", why)) => Ok(Self::Denied(plain(why))),
            _ => Err(AuthError::Denied(Denial::Malformed)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(node: &str) -> Claimant {
        Claimant::Agent(NodeName::new(node))
    }

    #[test]
    fn payloads_differ_by_role_node_and_connection() {
        let (one, other) = (Exporter([1; 32]), Exporter([2; 32]));
        let texts = [
            agent("n1").payload(&one),
            agent("n2").payload(&one),
            agent("n1").payload(&other),
            agent("n1").answer_payload(&one),
            Claimant::User.payload(&one),
            Claimant::User.answer_payload(&one),
        ];
        assert_eq!(texts[0], format!("pillion1 agent n1 {}", "01".repeat(32)));
        let distinct: std::collections::BTreeSet<&String> = texts.iter().collect();
        assert_eq!(distinct.len(), texts.len());
    }

    #[test]
    fn a_claim_reads_back_as_it_was_written_and_nothing_else_is_one() {
        for claimant in [agent("n1.example.org"), agent("gpu_01-a"), Claimant::User] {
            let claim = Claim { method: Method::Munge, claimant, proof: "MUNGE:x:\ny".to_owned() };
            assert_eq!(Claim::parse(&claim.to_text()), Ok(claim));
        }
        let long = format!("pillion1 munge agent {}\n", "n".repeat(NODE_LENGTH_MAX + 1));
        for wrong in [
            "",
            "pillion1 munge agent n1",
            "pillion2 munge agent n1\n",
            "pillion1 trust agent n1\n",
            "pillion1 munge root n1\n",
            "pillion1 munge user n1\n",
            "pillion1 munge agent -\n",
            "pillion1 munge agent n1 n2\n",
            "pillion1 munge agent \n",
            "pillion1 munge agent n\u{1b}1\n",
            "PRI * HTTP/2.0\r\n",
            long.as_str(),
        ] {
            assert_eq!(Claim::parse(wrong), Err(AuthError::Denied(Denial::Malformed)), "{wrong:?}");
        }
    }

    #[test]
    fn an_answer_reads_back_and_its_text_is_plain() {
        for answer in
            [Answer::Welcome("p".into()), Answer::Unavailable("munged".into()), Answer::Denied("no".into())]
        {
            assert_eq!(Answer::parse(&answer.to_text()), Ok(answer));
        }
        assert_eq!(Answer::parse("denied\nno\u{1b}[2J\nway"), Ok(Answer::Denied("no[2Jway".to_owned())));
        assert!(Answer::parse("HTTP/1.1 400").is_err());
    }

    #[test]
    fn what_cannot_be_judged_is_unavailable_and_never_denied() {
        let unavailable = AuthError::Unavailable("MUNGE does not answer".into());
        assert!(matches!(Answer::refusal(&unavailable), Answer::Unavailable(_)));
        assert!(matches!(Answer::refusal(&AuthError::Denied(Denial::Replayed)), Answer::Denied(_)));
    }
}
