//! The life of a daemon with a client in it: it starts clean, drains while the client goes on, takes tenants again, and
//! ends without a trace. And clients of users who are not root, as jobs are.

use crate::bench::{Bench, Limits, Served};
use crate::kernels::Workload;
use crate::programs::until;
use crate::report::{Findings, Measured, table};
use crate::tenant::{Client, Fate, Tenant};
use pillion_core::UserId;
use pillion_device::MpsState;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

const WATCH: Duration = Duration::from_millis(700);
const PATIENCE: Duration = Duration::from_secs(5);
/// Two users of no name: nobody's files are theirs.
const USERS: [u32; 2] = [64_001, 64_002];

/// One thing that must hold.
type Check = (&'static str, Result<(), String>);

/// Starts, drains, goes on, drains and ends.
///
/// # Errors
/// A sentence: why there is no daemon or no client.
pub fn drains(bench: &mut Bench) -> Measured {
    let mut checks = vec![("nothing is there before", gone(bench))];
    bench.start()?;
    checks.push(("it is up, and nobody's", state_is(bench, MpsState::Up)));
    let client = bench.tenant(Workload::Compute, Limits::default());
    let mut client = match client {
        Ok(client) => client,
        Err(reason) => {
            bench.stop()?;
            return Err(reason);
        }
    };
    checks.push(("a client is let in", bench.has_client(&client)));
    checks.push(("it does not stop under a client", refused(&bench.stop_once())));
    checks.push(("but drains", state_is(bench, MpsState::Draining)));
    checks.push(("the client goes on", works(&mut client)));
    checks.push(("a new tenant ends the draining", bench.start()));
    checks.push(("and it is up", state_is(bench, MpsState::Up)));
    checks.push(("the client goes on still", works(&mut client)));
    checks.push(("it drains again", refused(&bench.stop_once())));
    client.leave();
    checks.push(("it ends when its client has left", bench.stop()));
    checks.push(("nothing is there afterwards", gone(bench)));
    Ok(verdicts(&checks).into())
}

fn refused(stopped: &Result<(), String>) -> Result<(), String> {
    if stopped.is_err() { Ok(()) } else { Err("it stopped".to_owned()) }
}

fn works(client: &mut Tenant) -> Result<(), String> {
    match client.watch(WATCH) {
        Fate::Works(_) => Ok(()),
        other => Err(format!("it {other}")),
    }
}

fn gone(bench: &mut Bench) -> Result<(), String> {
    match bench.status()? {
        Some(_) => Err("a daemon is known".to_owned()),
        None if bench.is_gone() => Ok(()),
        None => Err("its directory is there".to_owned()),
    }
}

fn state_is(bench: &mut Bench, expected: MpsState) -> Result<(), String> {
    match bench.status()? {
        Some(status) if status.state == expected => Ok(()),
        Some(status) => Err(format!("its state is {:?}", status.state)),
        None => Err("no daemon is known".to_owned()),
    }
}

/// Clients of other users under root's daemon: one user, then two at once where the daemon serves several.
///
/// # Errors
/// A sentence: why nothing can be tried.
pub fn other_users(bench: &mut Bench, directory: &Path) -> Measured {
    let program = program_for_all(directory)?;
    let client = |bench: &Bench, uid| Client {
        other_user: Some((uid, program.clone())),
        ..bench.client(Workload::Compute, Limits::cap(50))
    };
    let mut checks = Vec::new();
    let users = USERS.map(UserId).to_vec();
    bench.start_for(&Served { users: users.clone(), ..Served::default() })?;
    let first = Tenant::start(&client(bench, USERS[0]));
    checks.push(("a client that is not root's is let in", is_client(bench, first.as_ref())));
    checks.push(("the server is its user's", server_is(bench, UserId(USERS[0]))));
    checks.push(("terminate_client reaches it", terminates(bench, first.as_ref())));
    if let Ok(first) = first {
        first.leave();
    }
    checks.push(("the daemon ends", bench.stop()));
    let mut found = Findings::default();
    if let Err(reason) = bench.start_for(&Served { several_at_once: true, users, cap_default: None }) {
        found.skipped.push(format!("several users at once: {reason}"));
    } else {
        let both = USERS.map(|uid| Tenant::start(&client(bench, uid)));
        let names = ["several users: the first is let in", "several users: the second, too"];
        for (name, tenant) in names.into_iter().zip(&both) {
            checks.push((name, is_client(bench, tenant.as_ref())));
        }
        checks.push(("several users: the server is root's", server_is(bench, UserId(0))));
        both.into_iter().flatten().for_each(Tenant::leave);
        checks.push(("several users: the daemon ends", bench.stop()));
    }
    (found.text, found.apart) = verdicts(&checks);
    Ok(found)
}

/// A copy of this program that every user may run, beside the pipes.
/// A copy of this program that other users may run.
///
/// # Errors
/// A sentence.
pub(crate) fn program_for_all(directory: &Path) -> Result<PathBuf, String> {
    let copy = || {
        let (own, copy) = (std::env::current_exe()?, directory.join("client"));
        std::fs::copy(own, &copy)?;
        std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(0o755))?;
        Ok::<PathBuf, std::io::Error>(copy)
    };
    copy().map_err(|error| format!("no program that other users may run: {error}"))
}

fn is_client(bench: &mut Bench, tenant: Result<&Tenant, &String>) -> Result<(), String> {
    bench.has_client(tenant.map_err(Clone::clone)?)
}

fn terminates(bench: &mut Bench, tenant: Result<&Tenant, &String>) -> Result<(), String> {
    bench.terminate(tenant.map_err(Clone::clone)?.pid())
}

fn server_is(bench: &mut Bench, uid: UserId) -> Result<(), String> {
    let mut seen = None;
    let is_its = until(PATIENCE, || {
        seen = bench.status().ok().flatten().and_then(|status| status.server_uid);
        seen == Some(uid)
    });
    if is_its { Ok(()) } else { Err(format!("it is {seen:?}")) }
}

/// The checks in a table, and how many do not hold.
pub fn verdicts(checks: &[Check]) -> (String, usize) {
    let rows = checks.iter().map(|(what, result)| {
        let said = result.as_ref().err().map_or_else(|| "yes".to_owned(), |reason| format!("NO: {reason}"));
        vec![(*what).to_owned(), said]
    });
    let failed = checks.iter().filter(|(_, result)| result.is_err()).count();
    (table(&["what", "does it hold"], rows), failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_hold_is_counted() {
        let (text, failed) = verdicts(&[("one", Ok(())), ("two", Err("garbled".to_owned()))]);
        assert_eq!(failed, 1);
        assert!(text.ends_with("| one | yes |\n| two | NO: garbled |\n"), "{text}");
        assert!(refused(&Ok(())).is_err() && refused(&Err("in use".to_owned())).is_ok());
    }
}
