//! A server that speaks TLS, with a certificate of an authority that we trust, or of another one.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails where it stands")]

use crate::support::{Workplace, owner};
use pillion_store::postgres::{ConnectError, PgStore};
use pillion_store::private_postgres::Owner;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// An address that is not this machine's by its text, and on which Linux reaches it all the same.
const ELSEWHERE: &str = "0.0.0.0";

/// An authority in a file, and what it issues with.
fn authority(path: &Path) -> rcgen::Issuer<'static, rcgen::KeyPair> {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    std::fs::write(path, params.self_signed(&key).unwrap().pem()).unwrap();
    rcgen::Issuer::new(params, key)
}

/// The newest of the installed ones.
fn programs() -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").expect("PostgreSQL is installed");
    let mut found: Vec<PathBuf> = versions.flatten().map(|entry| entry.path().join("bin")).collect();
    found.sort();
    found.pop().expect("PostgreSQL is installed")
}

#[expect(clippy::disallowed_methods, reason = "a server for a test; no Slurm involved")]
fn run(program: &str, arguments: &[&str], owner: Option<Owner>) {
    let mut command = Command::new(programs().join(program));
    command.args(arguments).current_dir("/").stdout(std::process::Stdio::null());
    if let Some(owner) = owner {
        command.uid(owner.uid).gid(owner.gid);
    }
    assert!(command.status().unwrap().success(), "{program} {arguments:?}");
}

/// A server on loopback whose certificate `issuer` gave to `localhost` and [`ELSEWHERE`]; its port. It ends with `workplace`.
fn serve(workplace: &Workplace, issuer: &rcgen::Issuer<'_, rcgen::KeyPair>, owner: Option<Owner>) -> u16 {
    let folder = workplace.path.join("tls");
    let data = folder.join("data");
    std::fs::create_dir(&folder).unwrap();
    if let Some(owner) = owner {
        chown(&folder, Some(owner.uid), Some(owner.gid)).unwrap();
    }
    let shown = data.display().to_string();
    run("initdb", &["-D", &shown, "-U", "pillion", "--auth=trust", "--no-sync"], owner);
    let key = rcgen::KeyPair::generate().unwrap();
    let names = ["localhost", ELSEWHERE].map(str::to_owned);
    let params = rcgen::CertificateParams::new(names.to_vec()).unwrap();
    let certificate = params.signed_by(&key, issuer).unwrap().pem();
    for (name, text) in [("server.crt", certificate), ("server.key", key.serialize_pem())] {
        let path = data.join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        if let Some(owner) = owner {
            chown(&path, Some(owner.uid), Some(owner.gid)).unwrap();
        }
    }
    // Free a moment ago; nobody else of these tests gets it meanwhile.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let options = format!("-c ssl=on -c listen_addresses=127.0.0.1 -p {port} -k {}", folder.display());
    let log = folder.join("log").display().to_string();
    run("pg_ctl", &["-D", &shown, "-l", &log, "-w", "-o", &options, "start"], owner);
    port
}

#[tokio::test]
async fn a_server_is_reached_by_tls_where_its_certificate_verifies_and_not_where_it_does_not() {
    let Ok(owner) = owner() else { return };
    let workplace = Workplace::new();
    let (trusted, other) = (workplace.path.join("ca.pem"), workplace.path.join("other.pem"));
    let issuer = authority(&trusted);
    authority(&other);
    let port = serve(&workplace, &issuer, owner);
    let url = |host: &str, ca: &Path| {
        format!("postgres://pillion@{host}:{port}/postgres?sslmode=verify-full&sslrootcert={}", ca.display())
    };
    let connect = async |url: String| PgStore::connect_within(&url, Duration::from_secs(20)).await;

    let store = connect(url("localhost", &trusted)).await.expect("its certificate is good");
    let is_encrypted = sqlx::query_scalar("select ssl from pg_stat_ssl where pid = pg_backend_pid()");
    let is_encrypted: bool = is_encrypted.fetch_one(store.pool()).await.unwrap();
    assert!(is_encrypted);
    for url in [url("localhost", &other), url("127.0.0.1", &trusted)] {
        let error = connect(url.clone()).await.map(drop).expect_err("it cannot be verified");
        assert!(matches!(error, ConnectError::Unverified(_)) && error.needs_somebody(), "{url}: {error:?}");
    }

    // Where the URL asks for nothing, or for less: without verification all of these would be let in.
    let beyond = |options: &str, ca: &Path| {
        format!("postgres://pillion@{ELSEWHERE}:{port}/postgres?{options}sslrootcert={}", ca.display())
    };
    connect(beyond("", &trusted)).await.expect("it is the one that it says");
    for url in
        ["", "sslmode=prefer&", "sslmode=require&", "sslmode=disable&"].map(|mode| beyond(mode, &other))
    {
        let error = connect(url.clone()).await.map(drop).expect_err("nobody knows who that is");
        assert!(matches!(error, ConnectError::Unverified(_)), "{url}: {error:?}");
    }
}
