use super::*;
use crate::munge::double::{Double, Realm};
use crate::new_key_file;
use pillion_core::{ManualClock, NodeName, UnixTime};
use std::path::Path;

const SCHEDULER: u32 = 64030;
const EXPORTER: Exporter = Exporter([5; 32]);
fn start() -> UnixTime {
    UnixTime::from_epoch(1_795_000_000)
}

fn auth(method: AuthMethod) -> Auth {
    Auth { method: Some(method), scheduler_user: SCHEDULER.to_string(), ..Auth::default() }
}

fn agent(node: &str) -> Claimant {
    Claimant::Agent(NodeName::new(node))
}

/// Two machines with one MUNGE key and clocks of their own.
struct World {
    realm: Arc<Realm>,
    node_clock: Arc<ManualClock>,
    scheduler_munge: Arc<Double>,
    scheduler: Prover,
}

impl World {
    fn new() -> Self {
        let (realm, clock) = (Arc::new(Realm::default()), Arc::new(ManualClock::new(start())));
        let scheduler_munge = Arc::new(Double::new(&realm, SCHEDULER, clock.clone()));
        let scheduler = Prover::with_munge(&auth(AuthMethod::Munge), clock, scheduler_munge.clone());
        Self { realm, node_clock: Arc::new(ManualClock::new(start())), scheduler_munge, scheduler }
    }

    /// A program of this user on the node.
    fn of(&self, uid: u32) -> Prover {
        let munge = Double::new(&self.realm, uid, self.node_clock.clone());
        Prover::with_munge(&auth(AuthMethod::Munge), self.node_clock.clone(), Arc::new(munge))
    }

    fn judge(&self, claim: &Claim) -> Result<Identity, AuthError> {
        self.scheduler.judge(claim, &EXPORTER, None).map(|judged| judged.identity)
    }
}

fn denial<T>(result: Result<T, AuthError>) -> Denial {
    match result {
        Err(AuthError::Denied(denial)) => denial,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it was believed"),
    }
}

#[test]
fn both_ends_prove_by_munge_who_they_are() {
    let world = World::new();
    let node = world.of(0);
    let claim = node.claim(&agent("n1"), &EXPORTER).unwrap();
    let judged = world.scheduler.judge(&claim, &EXPORTER, None).unwrap();
    assert_eq!(judged.identity, Identity::Agent(NodeName::new("n1")));
    let proof = world.scheduler.answer(&claim, &judged, &EXPORTER).unwrap();
    assert_eq!(node.check_answer(&claim, &EXPORTER, &proof), Ok(()));

    let alice = world.of(1000);
    let claim = alice.claim(&Claimant::User, &EXPORTER).unwrap();
    let judged = world.scheduler.judge(&claim, &EXPORTER, None).unwrap();
    assert_eq!(judged.identity, Identity::User(UserId(1000)));
    let proof = world.scheduler.answer(&claim, &judged, &EXPORTER).unwrap();
    assert_eq!(denial(world.of(1001).check_answer(&claim, &EXPORTER, &proof)), Denial::NotForUs);
    assert_eq!(alice.check_answer(&claim, &EXPORTER, &proof), Ok(()));
}

#[test]
fn a_user_cannot_say_that_he_is_an_agent_or_the_scheduler() {
    let world = World::new();
    let claim = world.of(1000).claim(&agent("n1"), &EXPORTER).unwrap();
    assert_eq!(denial(world.judge(&claim)), Denial::WrongUser { found: 1000, wanted: 0 });

    // A fake scheduler of his: it can read no claim, and its answer is not the scheduler's.
    let node = world.of(0);
    let claim = node.claim(&agent("n1"), &EXPORTER).unwrap();
    let fake = world.of(1000);
    assert_eq!(denial(fake.judge(&claim, &EXPORTER, None)), Denial::NotForUs);
    let proof = fake.munge.encode(&agent("n1").answer_payload(&EXPORTER), 0).unwrap();
    let found = denial(node.check_answer(&claim, &EXPORTER, &proof));
    assert_eq!(found, Denial::WrongUser { found: 1000, wanted: SCHEDULER });
}

#[test]
fn a_relay_and_a_replay_fail() {
    let world = World::new();
    let claim = world.of(0).claim(&agent("n1"), &Exporter([6; 32])).unwrap();
    assert_eq!(denial(world.judge(&claim)), Denial::OtherConnection);
    let claim = world.of(0).claim(&agent("n1"), &EXPORTER).unwrap();
    world.judge(&claim).unwrap();
    assert_eq!(denial(world.judge(&claim)), Denial::Replayed);
}

#[test]
fn a_credential_ends_after_a_minute_and_a_clock_that_is_off_is_named() {
    for offset in [-400_i64, 400] {
        let world = World::new();
        let seconds = f64::from(i32::try_from(offset).unwrap());
        world.node_clock.set(UnixTime::from_seconds(start().seconds() + seconds));
        let claim = world.of(0).claim(&agent("n1"), &EXPORTER).unwrap();
        let said = denial(world.judge(&claim)).to_string();
        let side = if offset < 0 { "400 s behind" } else { "400 s ahead of" };
        assert!(said.contains(side), "{said}");
    }
}

/// A minute by the clock of whoever reads it, in either direction, and no second more.
#[test]
fn a_credential_of_a_minute_ago_is_taken_and_one_of_a_minute_and_a_second_is_not() {
    for (offset, is_good) in [(-59_i32, true), (-61, false), (59, true), (61, false)] {
        let world = World::new();
        world.node_clock.set(UnixTime::from_seconds(start().seconds() + f64::from(offset)));
        let claim = world.of(0).claim(&agent("n1"), &EXPORTER).unwrap();
        let judged = world.judge(&claim);
        let is_late = matches!(judged, Err(AuthError::Denied(Denial::Clock { .. })));
        assert!(if is_good { judged.is_ok() } else { is_late }, "{offset} s: {judged:?}");
    }
}

#[test]
fn without_munged_nobody_is_denied() {
    let world = World::new();
    let node = world.of(0);
    let claim = node.claim(&agent("n1"), &EXPORTER).unwrap();
    world.scheduler_munge.stop(true);
    assert!(matches!(world.judge(&claim), Err(AuthError::Unavailable(_))));
    world.scheduler_munge.stop(false);
    assert!(world.judge(&claim).is_ok());
}

#[test]
fn who_the_scheduler_runs_as_must_be_known() {
    let world = World::new();
    let settings = Auth { scheduler_user: "nobody-of-that-name".into(), ..auth(AuthMethod::Munge) };
    let munge = Arc::new(Double::new(&world.realm, 0, world.node_clock.clone()));
    let node = Prover::with_munge(&settings, world.node_clock.clone(), munge);
    let error = node.claim(&agent("n1"), &EXPORTER).unwrap_err();
    assert!(matches!(&error, AuthError::Unavailable(why) if why.contains("auth.scheduler_user")), "{error}");
}

fn keyed(path: &Path, clock: &Arc<ManualClock>) -> Prover {
    let settings = Auth { key_path: path.to_owned(), ..auth(AuthMethod::Key) };
    let munge = Arc::new(Double::new(&Arc::new(Realm::default()), 0, clock.clone()));
    Prover::with_munge(&settings, clock.clone(), munge)
}

fn write_key(path: &Path, text: &str) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
}

#[test]
fn both_ends_prove_by_key_also_while_it_is_rotated_and_a_stranger_does_not() {
    let folder = tempfile::tempdir().unwrap();
    let (ours, theirs) = (folder.path().join("scheduler.key"), folder.path().join("node.key"));
    let clock = Arc::new(ManualClock::new(start()));
    let (scheduler, node) = (keyed(&ours, &clock), keyed(&theirs, &clock));
    let meet = || {
        let claim = node.claim(&agent("n1"), &EXPORTER)?;
        let judged = scheduler.judge(&claim, &EXPORTER, None)?;
        let proof = scheduler.answer(&claim, &judged, &EXPORTER)?;
        node.check_answer(&claim, &EXPORTER, &proof)
    };
    assert!(matches!(meet(), Err(AuthError::Unavailable(_))), "no key is there yet");
    let old = new_key_file(&[1; 32], None, clock.now()).unwrap();
    write_key(&ours, &old);
    write_key(&theirs, &old);
    assert_eq!(meet(), Ok(()));

    let rotated = new_key_file(&[2; 32], Some(&old), clock.now()).unwrap();
    write_key(&ours, &rotated);
    assert_eq!(meet(), Ok(()), "the node still has the old key");
    clock.set(clock.now() + crate::KEY_OVERLAP);
    assert!(matches!(denial(meet()), Denial::BadProof(_)), "the day is over");
    write_key(&theirs, &rotated);
    assert_eq!(meet(), Ok(()));

    write_key(&theirs, &new_key_file(&[3; 32], None, clock.now()).unwrap());
    assert!(matches!(denial(meet()), Denial::BadProof(_)));
    let reflected = scheduler.claim(&agent("n1"), &EXPORTER).unwrap();
    let found = scheduler.check_answer(&reflected, &EXPORTER, &reflected.proof);
    assert!(matches!(denial(found), Denial::BadProof(_)), "its own claim, sent back");
}

#[test]
fn a_key_proves_no_user_and_munge_does_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("auth.key");
    let text = new_key_file(&[1; 32], None, start()).unwrap();
    write_key(&path, &text);
    let world = World::new();
    let settings = Auth { key_path: path, ..auth(AuthMethod::Key) };
    let scheduler = Prover::with_munge(&settings, world.node_clock.clone(), world.scheduler_munge.clone());
    let code = Keys::parse(&text, start()).unwrap().code(&Claimant::User.payload(&EXPORTER));
    let claim = Claim { method: Method::Key, claimant: Claimant::User, proof: code };
    assert!(matches!(denial(scheduler.judge(&claim, &EXPORTER, None)), Denial::OtherMethod { .. }));
    let claim = world.of(1000).claim(&Claimant::User, &EXPORTER).unwrap();
    assert_eq!(scheduler.judge(&claim, &EXPORTER, None).unwrap().identity, Identity::User(UserId(1000)));
}

#[test]
fn another_method_is_denied_where_it_was_chosen_and_unavailable_where_munged_may_come_back() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::new(start()));
    let claim = |method| Claim { method, claimant: agent("n1"), proof: String::new() };
    let with = |settings: Auth| {
        let munge = Arc::new(Double::new(&Arc::new(Realm::default()), SCHEDULER, clock.clone()));
        Prover::with_munge(&settings, clock.clone(), munge)
    };
    for method in [Method::None, Method::Key, Method::Mtls] {
        let found = with(auth(AuthMethod::Munge)).judge(&claim(method), &EXPORTER, None);
        assert!(matches!(denial(found), Denial::OtherMethod { .. }));
    }
    let socket = folder.path().join("munge.sock");
    let by_default = with(Auth { method: None, munge_socket: socket.clone(), ..auth(AuthMethod::Munge) });
    assert_eq!(by_default.method(), Method::Key);
    let found = by_default.judge(&claim(Method::Munge), &EXPORTER, None);
    assert!(matches!(found, Err(AuthError::Unavailable(_))), "munged was stopped, and its socket is gone");
    std::fs::write(socket, "").unwrap();
    assert_eq!(by_default.method(), Method::Munge);
}
