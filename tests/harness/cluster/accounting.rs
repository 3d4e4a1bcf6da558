//! A private `MariaDB` with `slurmdbd` on it, for tests of accounts, QOS and limits.

use super::start::{as_system_user, find_program, give, give_folder};
use super::{Cluster, DAEMON_DEADLINE, files};
use crate::error::Result;
use crate::testbed::USERS;
use crate::wait::{Look, wait_for};
use std::net::TcpStream;

/// Starts both and returns the port of `slurmdbd`. `slurm.conf` is not there yet.
pub(super) fn start(cluster: &mut Cluster) -> Result<u16> {
    let database_port = database(cluster)?;
    let port = cluster.port("slurmdbd")?;
    let conf = cluster
        .layout
        .write("conf/slurmdbd.conf", files::slurmdbd_conf(&cluster.layout, port, database_port))?;
    give(&conf, "slurm", 0o600)?;
    // The clients below need a slurm.conf; the real one replaces it before slurmctld starts.
    let root = cluster.root().display();
    let first = format!(
        "ClusterName=pillion\nSlurmctldHost=localhost\nAuthType=auth/munge\nAuthInfo=socket={root}/munge/sock\n\
         AccountingStorageType=accounting_storage/slurmdbd\nAccountingStorageHost=127.0.0.1\nAccountingStoragePort={port}\n\
         AccountingStoragePass={root}/munge/sock\nSlurmUser=slurm\nNodeName=none\nPartitionName=none Nodes=none\n"
    );
    cluster.layout.write("conf/slurm.conf", first)?;
    let program = cluster.program("slurmdbd").arg("-D");
    cluster.start_daemon("slurmdbd", &program)?;
    wait_for("answer of slurmdbd", DAEMON_DEADLINE, || {
        cluster.daemon("slurmdbd")?.check_running()?;
        let output = cluster.program("sacctmgr").args(["-i", "add", "cluster", "pillion"]).output()?;
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        let known =
            cluster.program("sacctmgr").args(["-nP", "list", "cluster", "format=cluster"]).output()?;
        let is_known = String::from_utf8_lossy(&known.stdout).lines().any(|line| line == "pillion");
        Ok(if is_known { Look::Ready(()) } else { Look::NotYet(said) })
    })?;
    for arguments in associations() {
        cluster.program("sacctmgr").arg("-i").args(arguments).stdout()?;
    }
    Ok(port)
}

/// One account for research and one for teaching; everybody is in the first, carol in both.
fn associations() -> Vec<Vec<String>> {
    let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let mut all = vec![words("add account research"), words("add account teaching")];
    all.extend(USERS.iter().map(|user| words(&format!("add user {user} account=research"))));
    all.push(words("add user carol account=teaching"));
    all
}

fn database(cluster: &mut Cluster) -> Result<u16> {
    let folder = cluster.layout.path("mariadb");
    give_folder(&folder, "mysql", 0o700)?;
    let data = folder.join("data").display().to_string();
    // Its names for temporary tables are of process numbers, which two clusters have alike.
    let temporary = folder.join("tmp");
    give_folder(&temporary, "mysql", 0o700)?;
    let temporary = temporary.display().to_string();
    let install = find_program("mariadb-install-db", &["/usr/bin", "/usr/local/bin"])?;
    let install = cluster.program(&install.display().to_string()).args([
        "--no-defaults".to_owned(),
        format!("--datadir={data}"),
        "--auth-root-authentication-method=normal".to_owned(),
        "--skip-test-db".to_owned(),
    ]);
    let install = install.env("TMPDIR", &temporary);
    as_system_user(install, "mysql")?.stdout()?;
    // One statement a line: that is how the server reads it.
    let init = "CREATE DATABASE slurm_acct_db;\nCREATE USER slurm@'127.0.0.1' IDENTIFIED BY 'slurm';\n\
                GRANT ALL ON slurm_acct_db.* TO slurm@'127.0.0.1';\n";
    let init = cluster.layout.write("conf/mariadb.sql", init)?;
    let port = cluster.port("mariadb")?;
    let socket = folder.join("sock");
    let server = find_program("mariadbd", &["/usr/sbin", "/usr/bin", "/usr/libexec"])?;
    let server = cluster.program(&server.display().to_string()).args([
        "--no-defaults".to_owned(),
        format!("--datadir={data}"),
        format!("--socket={}", socket.display()),
        format!("--pid-file={}", folder.join("pid").display()),
        format!("--port={port}"),
        "--bind-address=127.0.0.1".to_owned(),
        "--skip-name-resolve".to_owned(),
        "--innodb-log-file-size=16M".to_owned(),
        "--innodb-flush-log-at-trx-commit=0".to_owned(),
        format!("--init-file={}", init.display()),
    ]);
    let server = server.env("TMPDIR", &temporary);
    cluster.start_daemon("mariadbd", &as_system_user(server, "mysql")?)?;
    // It listens only when it has run the statements above; slurmdbd would wait five seconds after a refusal.
    wait_for("answer of mariadbd", DAEMON_DEADLINE, || {
        cluster.daemon("mariadbd")?.check_running()?;
        let connected = TcpStream::connect(("127.0.0.1", port));
        Ok(connected.map_or_else(|error| Look::NotYet(error.to_string()), |_| Look::Ready(())))
    })?;
    Ok(port)
}
