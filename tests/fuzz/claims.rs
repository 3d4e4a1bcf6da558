//! What somebody says of himself before he is known, what a scheduler answers him, and files of keys. Whoever is believed is who
//! made the proof, for the role and the node that it was made for.

use crate::fuzz;
use crate::values::{bytes_like, text_like};
use pillion_auth::munge::Munge as _;
use pillion_auth::munge::double::{Double, Realm};
use pillion_auth::{Answer, Claim, Claimant, Exporter, Identity, Keys, Prover};
use pillion_config::{Auth, AuthMethod};
use pillion_core::{Clock, ManualClock, NodeName, UnixTime, UserId};
use std::sync::Arc;

const SCHEDULER: u32 = 64_030;
const EXPORTER: Exporter = Exporter([5; 32]);
/// Of the connection of somebody who passes on what was said on another one.
const ELSEWHERE: Exporter = Exporter([6; 32]);
const KEY: &str = "# pillion-auth-key 1\n\
    0101010101010101010101010101010101010101010101010101010101010101\n\
    0202020202020202020202020202020202020202020202020202020202020202 until=1795086400\n";

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::new(UnixTime::from_epoch(1_795_000_000)))
}

fn prover(method: AuthMethod, realm: &Arc<Realm>) -> Prover {
    let auth = Auth { method: Some(method), scheduler_user: SCHEDULER.to_string(), ..Auth::default() };
    let munge = Arc::new(Double::new(realm, SCHEDULER, clock()));
    Prover::with_munge(&auth, clock() as Arc<dyn Clock>, munge)
}

/// Two that are known: root's agent of n1, and user 1000. Their credentials are `MUNGE:0:` and `MUNGE:1:`.
fn realm() -> Arc<Realm> {
    let realm = Arc::new(Realm::default());
    let agent = Claimant::Agent(NodeName::new("n1"));
    for (uid, claimant) in [(0, agent), (1000, Claimant::User)] {
        let made = Double::new(&realm, uid, clock()).encode(&claimant.payload(&EXPORTER), SCHEDULER);
        assert!(made.is_ok());
    }
    realm
}

#[test]
fn claims() {
    let long = format!("pillion1 munge agent {}\nMUNGE:0:", "n".repeat(300));
    let examples = [
        "pillion1 munge agent n1\nMUNGE:0:",
        "pillion1 munge user -\nMUNGE:1:",
        "pillion1 munge agent n2\nMUNGE:0:",
        "pillion1 munge agent n1\nMUNGE:1:",
        "pillion1 key agent n1\n0123456789abcdef",
        "pillion1 mtls agent n1\n",
        "pillion1 none user -\n",
        long.as_str(),
    ];
    fuzz("claims", &text_like(&examples), |text| {
        let Ok(claim) = Claim::parse(&text) else { return };
        let payload = claim.claimant.payload(&EXPORTER);
        assert_eq!(payload.split(' ').count(), 4, "one reading only: {payload:?}");
        assert!(payload.len() < 340 && payload.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' '));
        for method in [AuthMethod::Munge, AuthMethod::Mtls] {
            assert!(prover(method, &realm()).judge(&claim, &ELSEWHERE, None).is_err(), "relayed: {text:?}");
            let Ok(judged) = prover(method, &realm()).judge(&claim, &EXPORTER, None) else { continue };
            let (made, identity) = if claim.claimant == Claimant::User {
                ("MUNGE:1:", Identity::User(UserId(1000)))
            } else {
                ("MUNGE:0:", Identity::Agent(NodeName::new("n1")))
            };
            assert_eq!((claim.proof.as_str(), judged.identity), (made, identity), "{text:?}");
        }
    });
}

#[test]
fn answers() {
    let examples = ["welcome\nMUNGE:0:", "welcome\n", "away\nMUNGE does not answer", "denied\nit is no node"];
    fuzz("answers", &text_like(&examples), |text| {
        let claim = Claim {
            method: pillion_auth::Method::Munge,
            claimant: Claimant::User,
            proof: "MUNGE:1:".to_owned(),
        };
        match Answer::parse(&text) {
            Ok(Answer::Welcome(proof)) => {
                let checked = prover(AuthMethod::Munge, &realm()).check_answer(&claim, &EXPORTER, &proof);
                assert!(checked.is_err(), "no scheduler has answered: {text:?}");
            }
            Ok(Answer::Unavailable(why) | Answer::Denied(why)) => {
                assert!(!why.contains(['\n', '\u{1b}']), "{why:?}");
            }
            Err(_) => {}
        }
    });
}

#[test]
fn keys() {
    let now = clock().now();
    let own = Keys::parse(KEY, now).unwrap();
    let code = own.code("pillion1 agent n1 00");
    let files = text_like(&[KEY, "# pillion-auth-key 1\n\n", "0101 until=-1\n"]);
    fuzz("keys", &(files, bytes_like(vec![code.clone().into_bytes()])), |(text, said)| {
        let _ = Keys::parse(&text, now);
        let said = String::from_utf8_lossy(&said).into_owned();
        let is_taken = own.made_with("pillion1 agent n1 00", &said).is_some();
        assert_eq!(is_taken, said.eq_ignore_ascii_case(&code), "{said}");
        assert!(own.made_with("pillion1 agent n2 00", &said).is_none(), "{said}");
    });
}
