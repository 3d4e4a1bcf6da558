//! Where the scheduler listens, as people write it.

use pillion_config::scheduler_addresses;
use std::path::PathBuf;
use std::str::FromStr;

/// Where the scheduler listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// A Unix socket.
    Unix(PathBuf),
    /// Hosts and ports; the first that answers is asked.
    Tcp(Vec<(String, u16)>),
}

impl FromStr for Address {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let allowed = "write unix:/path/to/socket or https://host:port";
        if let Some(path) = text.strip_prefix("unix:") {
            let path = path.strip_prefix("//").filter(|rest| rest.starts_with('/')).unwrap_or(path);
            return if path.starts_with('/') {
                Ok(Self::Unix(path.into()))
            } else {
                Err(format!("'{text}' names no absolute path; {allowed}"))
            };
        }
        scheduler_addresses(text)
            .map(Self::Tcp)
            .ok_or_else(|| format!("'{text}' is no address of a scheduler; {allowed}"))
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(hosts) => {
                let hosts: Vec<String> = hosts.iter().map(shown).collect();
                f.write_str(&hosts.join(","))
            }
        }
    }
}

/// One host, as people write it.
pub(crate) fn shown((host, port): &(String, u16)) -> String {
    if host.contains(':') { format!("https://[{host}]:{port}") } else { format!("https://{host}:{port}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_sockets_or_hosts_with_ports() {
        assert_eq!("unix:/run/a.sock".parse(), Ok(Address::Unix("/run/a.sock".into())));
        assert_eq!("unix:///run/a.sock".parse(), Ok(Address::Unix("/run/a.sock".into())));
        let head = Address::Tcp(vec![("head".to_owned(), 7531)]);
        assert_eq!("https://head:7531".parse(), Ok(head.clone()));
        assert_eq!("http://head:7531".parse(), Ok(head), "as earlier releases wrote it");
        let two = "https://one:1,https://[::1]:2".parse::<Address>().expect("two of them");
        assert_eq!(two.to_string(), "https://one:1,https://[::1]:2");
        for wrong in [
            "",
            "unix:",
            "unix:run/a",
            "head:7531",
            "ftp://head:7531",
            "https://head",
            "https://h:1/x",
            "/run/a.sock",
        ] {
            let message = wrong.parse::<Address>().expect_err(wrong);
            assert!(message.contains("write unix:/path"), "{message}");
        }
    }
}
