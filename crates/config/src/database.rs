//! Where `database.url` leads, and whether the way there is safe: beyond this machine only with the server's certificate
//! verified.

use crate::rules::is_loopback_host;

/// Where a database is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DatabasePlace {
    /// On this machine: a socket or loopback.
    Here,
    /// On another one.
    Elsewhere,
}

/// Where the URL leads. A host that is not named is this machine's socket.
pub(crate) fn database_place(url: &str) -> DatabasePlace {
    let (authority, query) = parts(url);
    // A password may hold an '@' itself.
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    // The parameters go before the host, as in PostgreSQL itself.
    let given = ["hostaddr", "host"].into_iter().find_map(|name| parameter(query, name));
    let is_here = given.map_or_else(|| is_here(host), |given| is_socket_path(given) || is_here(given));
    if is_here { DatabasePlace::Here } else { DatabasePlace::Elsewhere }
}

/// Whether a host, with a port or without, is this machine; none is its socket.
fn is_here(host: &str) -> bool {
    let bare = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    bare.is_empty() || is_loopback_host(bare)
}

fn is_socket_path(host: &str) -> bool {
    host.starts_with('/') || host.to_ascii_lowercase().starts_with("%2f")
}

fn parts(url: &str) -> (&str, &str) {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
    (place.split('/').next().unwrap_or_default(), query)
}

/// The last value of a parameter, which is the one that counts.
fn parameter<'a>(query: &'a str, name: &str) -> Option<&'a str> {
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.filter(|(key, _)| *key == name).map(|(_, value)| value).next_back()
}

/// Why a URL is refused: it leaves this machine, and asks for less than a verified certificate.
pub(crate) fn weakness(url: &str) -> Option<String> {
    let (_, query) = parts(url);
    let mode = ["sslmode", "ssl-mode"].into_iter().find_map(|name| parameter(query, name))?;
    let is_weak = database_place(url) == DatabasePlace::Elsewhere && mode != "verify-full";
    let shown = if crate::rules::is_name(mode) { mode } else { "?" };
    is_weak.then(|| {
        format!(
            "a URL with sslmode={shown} for a server on another machine, whose certificate would not be verified; write sslmode=verify-full, \
             or leave it out"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_and_loopback_are_here_and_every_other_host_is_elsewhere() {
        for url in [
            "postgres:///pillion?host=/run/postgresql",
            "postgres://pillion:s@localhost:5432/postgres?host=%2Frun%2Fpg",
            "postgres://pillion:p@ss@127.0.0.1/pillion",
            "postgresql://[::1]:5432/pillion",
            "postgres:///pillion",
        ] {
            assert_eq!(database_place(url), DatabasePlace::Here, "{url}");
        }
        for url in [
            "postgres://pillion:localhost@db.example.org/pillion",
            "postgres://db/pillion?sslmode=verify-full",
            "postgres://localhost@10.0.0.5/pillion",
            "postgres://localhost/pillion?host=db",
            "postgres://localhost.example.org/pillion",
        ] {
            assert_eq!(database_place(url), DatabasePlace::Elsewhere, "{url}");
        }
    }

    #[test]
    fn beyond_this_machine_nothing_weaker_than_a_verified_certificate_is_taken() {
        assert_eq!(weakness("postgres://db/pillion"), None, "verify-full is what is done then");
        assert_eq!(weakness("postgres://db/pillion?sslmode=verify-full&sslrootcert=/etc/ca.pem"), None);
        assert_eq!(weakness("postgres://localhost/pillion?sslmode=disable"), None);
        for mode in ["disable", "allow", "prefer", "require", "verify-ca"] {
            let sentence = weakness(&format!("postgres://u:p@db/pillion?sslmode={mode}")).expect(mode);
            assert!(sentence.contains(&format!("sslmode={mode}")) && !sentence.contains("u:p"), "{sentence}");
        }
        assert!(weakness("postgres://db/pillion?sslmode=verify-full&sslmode=disable").is_some());
    }
}
