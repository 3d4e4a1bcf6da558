//! Both ends over real TCP and TLS, with the double of MUNGE.

use super::*;
use crate::claim::Exporter;
use crate::client::Door;
use crate::error::Denial;
use crate::limits::CONNECTIONS_PER_IDENTITY_MAX;
use crate::munge::double::{Double, Realm};
use pillion_config::{Auth, AuthMethod};
use pillion_core::{ManualClock, NodeName, UnixTime, UserId};
use tokio_rustls::TlsConnector;
use tokio_stream::StreamExt as _;

const SCHEDULER: u32 = 64030;

struct Site {
    realm: Arc<Realm>,
    clock: Arc<ManualClock>,
    munge: Arc<Double>,
    refusals: Arc<Refusals>,
    turned_away: Arc<TurnedAway>,
    gate: Arc<Gate>,
    address: SocketAddr,
    welcomed: ReceiverStream<io::Result<Welcomed>>,
    stop: CancellationToken,
}

impl Drop for Site {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn auth(method: AuthMethod) -> Auth {
    Auth { method: Some(method), scheduler_user: SCHEDULER.to_string(), ..Auth::default() }
}

fn agent(node: &str) -> Claimant {
    Claimant::Agent(NodeName::new(node))
}

impl Site {
    async fn with(settings: &Auth) -> Self {
        let (realm, clock) =
            (Arc::new(Realm::default()), Arc::new(ManualClock::new(UnixTime::from_epoch(1_795_000_000))));
        let munge = Arc::new(Double::new(&realm, SCHEDULER, clock.clone()));
        let (refusals, stop) = (Arc::new(Refusals::default()), CancellationToken::new());
        let prover = Arc::new(Prover::with_munge(settings, clock.clone(), munge.clone()));
        let turned_away = Arc::new(TurnedAway::default());
        let gate = Arc::new(Gate::new(prover, refusals.clone(), turned_away.clone()).unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let welcomed = Arc::clone(&gate).serve(listener, stop.clone());
        Self { realm, clock, munge, refusals, turned_away, gate, address, welcomed, stop }
    }

    fn door(&self, uid: u32, claimant: Claimant, address: SocketAddr, settings: &Auth) -> Door {
        let munge = Arc::new(Double::new(&self.realm, uid, self.clock.clone()));
        let prover = Arc::new(Prover::with_munge(settings, self.clock.clone(), munge));
        Door::new(address.ip().to_string(), address.port(), claimant, prover)
    }

    async fn enters(&mut self, uid: u32, claimant: Claimant) -> Result<Identity, AuthError> {
        let door = self.door(uid, claimant, self.address, &auth(AuthMethod::Munge));
        door.enter().await?;
        Ok(self.welcomed.next().await.unwrap().unwrap().info().identity.clone())
    }
}

#[tokio::test]
async fn agents_and_users_come_in_as_who_they_are() {
    let mut site = Site::with(&auth(AuthMethod::Munge)).await;
    assert_eq!(site.enters(0, agent("n1")).await, Ok(Identity::Agent(NodeName::new("n1"))));
    assert_eq!(site.enters(1000, Claimant::User).await, Ok(Identity::User(UserId(1000))));
    let refused = site.enters(1000, agent("n1")).await.unwrap_err();
    assert!(
        matches!(&refused, AuthError::Denied(Denial::Remote(why)) if why.contains("uid 1000")),
        "{refused}"
    );
    let noted = site.refusals.all();
    assert_eq!((noted.len(), noted[0].who.as_str(), noted[0].count), (1, "the agent of n1", 1));
}

#[tokio::test]
async fn with_munged_stopped_a_caller_is_told_to_come_again() {
    let mut site = Site::with(&auth(AuthMethod::Munge)).await;
    site.munge.stop(true);
    assert!(matches!(site.enters(0, agent("n1")).await, Err(AuthError::Unavailable(_))));
    assert!(matches!(site.enters(1000, Claimant::User).await, Err(AuthError::Unavailable(_))));
    site.munge.stop(false);
    assert!(site.enters(0, agent("n1")).await.is_ok() && site.enters(1000, Claimant::User).await.is_ok());
    site.refusals.forget("127.0.0.1".parse().unwrap(), &agent("n1"));
    assert!(site.refusals.all().is_empty(), "it came in, and nothing is left to tell");
}

/// Sits between an agent and the scheduler: TLS with each of them, and passes on what each of them says.
async fn relay(listener: TcpListener, scheduler: SocketAddr) -> (Exporter, Exporter, String) {
    let settings = auth(AuthMethod::Munge);
    let (stream, _) = listener.accept().await.unwrap();
    let own = TlsAcceptor::from(Arc::new(tls::server(&settings).unwrap()));
    let mut from_agent = own.accept(stream).await.unwrap();
    let connector = TlsConnector::from(Arc::new(tls::client(&settings, false).unwrap()));
    let stream = TcpStream::connect(scheduler).await.unwrap();
    let mut to_scheduler = connector.connect(tls::server_name("x", false).unwrap(), stream).await.unwrap();
    let exporters =
        [tls::exporter(from_agent.get_ref().1).unwrap(), tls::exporter(to_scheduler.get_ref().1).unwrap()];
    let claim = frame::receive(&mut from_agent).await.unwrap();
    frame::send(&mut to_scheduler, &claim).await.unwrap();
    let answer = frame::receive(&mut to_scheduler).await.unwrap();
    frame::send(&mut from_agent, &answer).await.unwrap();
    (exporters[0], exporters[1], answer)
}

#[tokio::test]
async fn a_relay_gets_neither_end_to_believe_it() {
    let site = Site::with(&auth(AuthMethod::Munge)).await;
    let between = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let door = site.door(0, agent("n1"), between.local_addr().unwrap(), &auth(AuthMethod::Munge));
    let (entered, (one, other, answer)) = tokio::join!(door.enter(), relay(between, site.address));
    assert!(one != other, "each connection has its own");
    assert!(answer.starts_with("denied\n") && answer.contains("another connection"), "{answer}");
    assert!(matches!(entered, Err(AuthError::Denied(_))));
}

#[tokio::test]
async fn a_fake_scheduler_that_welcomes_everybody_is_not_spoken_to() {
    let site = Site::with(&auth(AuthMethod::Munge)).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mallory = Double::new(&site.realm, 1000, site.clock.clone());
    let fake = async {
        let (stream, _) = listener.accept().await.unwrap();
        let own = TlsAcceptor::from(Arc::new(tls::server(&auth(AuthMethod::Munge)).unwrap()));
        let mut stream = own.accept(stream).await.unwrap();
        let exporter = tls::exporter(stream.get_ref().1).unwrap();
        frame::receive(&mut stream).await.unwrap();
        let proof = crate::munge::Munge::encode(&mallory, &agent("n1").answer_payload(&exporter), 0).unwrap();
        frame::send(&mut stream, &Answer::Welcome(proof).to_text()).await.unwrap();
    };
    let door = site.door(0, agent("n1"), address, &auth(AuthMethod::Munge));
    let (entered, ()) = tokio::join!(door.enter(), fake);
    let error = entered.unwrap_err();
    assert!(error.to_string().contains("does not prove to be the scheduler"), "{error}");
}

#[tokio::test]
async fn who_speaks_no_tls_or_no_claim_is_shut_out() {
    let site = Site::with(&auth(AuthMethod::Munge)).await;
    let mut plain = TcpStream::connect(site.address).await.unwrap();
    plain.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    let mut said = Vec::new();
    let _ = tokio::io::AsyncReadExt::read_to_end(&mut plain, &mut said).await;
    assert!(!said.windows(4).any(|bytes| bytes == b"HTTP"), "{said:?}");

    let connector = TlsConnector::from(Arc::new(tls::client(&auth(AuthMethod::Munge), false).unwrap()));
    let stream = TcpStream::connect(site.address).await.unwrap();
    let mut stream = connector.connect(tls::server_name("x", false).unwrap(), stream).await.unwrap();
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    assert!(frame::receive(&mut stream).await.is_err(), "no gRPC is read before the claim");
    assert!(site.refusals.all().is_empty());
}

/// Before anybody has said who he is: those who only hold connections, of the newcomer's own address or of another.
#[tokio::test]
async fn who_says_nothing_keeps_nobody_out() {
    let mut site = Site::with(&auth(AuthMethod::Munge)).await;
    let mut idle = Vec::new();
    for _ in 0..HANDSHAKES_MAX + 8 {
        idle.push(TcpStream::connect(site.address).await.unwrap());
    }
    assert!(site.enters(0, agent("n1")).await.is_ok(), "whoever comes gets a place");
    let unproven = site.turned_away.counts()[Cause::Unproven as usize];
    assert!(unproven.1 >= 8, "{unproven:?}");
}

/// After the proof: connections that are held open, and say nothing more.
#[tokio::test]
async fn one_user_does_not_take_all_the_connections() {
    let mut site = Site::with(&auth(AuthMethod::Munge)).await;
    let alice = site.door(1000, Claimant::User, site.address, &auth(AuthMethod::Munge));
    let mut held = Vec::new();
    for _ in 0..CONNECTIONS_PER_IDENTITY_MAX {
        held.push((alice.enter().await.unwrap(), site.welcomed.next().await.unwrap().unwrap()));
    }
    let why = alice.enter().await.expect_err("one too many");
    assert!(
        matches!(&why, AuthError::Unavailable(why) if why.contains("uid 1000 has 16 connections already")),
        "{why}"
    );
    assert_eq!(site.turned_away.counts()[Cause::Identity as usize], ("guest", 1));
    assert!(site.enters(1001, Claimant::User).await.is_ok() && site.enters(0, agent("n1")).await.is_ok());
    held.pop();
    assert!(alice.enter().await.is_ok(), "one of hers is over");
}

#[tokio::test]
async fn one_address_does_not_take_all_the_connections() {
    let mut site = Site::with(&auth(AuthMethod::Munge)).await;
    let mut held = Vec::new();
    for count in 0..CONNECTIONS_PER_ADDRESS_MAX {
        let uid = 1000 + u32::try_from(count / CONNECTIONS_PER_IDENTITY_MAX).unwrap();
        let door = site.door(uid, Claimant::User, site.address, &auth(AuthMethod::Munge));
        held.push((door.enter().await.unwrap(), site.welcomed.next().await.unwrap().unwrap()));
    }
    let why = site.enters(0, agent("n1")).await.unwrap_err();
    assert!(why.to_string().contains("127.0.0.1 has 256 connections already"), "{why}");
    assert_eq!(site.turned_away.counts()[Cause::Address as usize], ("address", 1));
    held.clear();
    assert!(site.enters(0, agent("n1")).await.is_ok());
}

/// A certificate of an authority for one DNS name.
fn issue(name: &str, issuer: &rcgen::Issuer<'_, rcgen::KeyPair>) -> (String, String) {
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
    (params.signed_by(&key, issuer).unwrap().pem(), key.serialize_pem())
}

#[tokio::test]
async fn certificates_of_the_site_prove_the_node_that_they_name_and_the_scheduler() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let authority = |name: &str| {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        (write(name, &pem), rcgen::Issuer::new(params, key))
    };
    let (ca_path, ca) = authority("ca.pem");
    let (other_path, other) = authority("other.pem");
    let settings =
        |of: &str, name: &str, issuer: &rcgen::Issuer<'_, rcgen::KeyPair>, trusts: &std::path::Path| {
            let (certificate, key) = issue(name, issuer);
            Auth {
                ca_path: Some(trusts.to_owned()),
                certificate_path: Some(write(&format!("{of}.pem"), &certificate)),
                private_key_path: Some(write(&format!("{of}-key.pem"), &key)),
                ..auth(AuthMethod::Mtls)
            }
        };
    let mut site = Site::with(&settings("scheduler", "localhost", &ca, &ca_path)).await;
    let address = site.address;
    let own = settings("n1", "n1", &ca, &ca_path);
    let door = |claimant, settings: &Auth, host: &str| {
        let munge = Arc::new(Double::new(&site.realm, 0, site.clock.clone()));
        let prover = Arc::new(Prover::with_munge(settings, site.clock.clone(), munge));
        Door::new(host, address.port(), claimant, prover)
    };
    let (n1, n2) = (door(agent("n1"), &own, "localhost"), door(agent("n2"), &own, "localhost"));
    let stranger = door(agent("n1"), &settings("stranger", "n1", &other, &ca_path), "localhost");
    let elsewhere = door(agent("n1"), &own, "127.0.0.1");
    let distrustful = door(agent("n1"), &settings("d", "n1", &ca, &other_path), "localhost");
    let bare = door(agent("n1"), &auth(AuthMethod::None), "localhost");

    n1.enter().await.unwrap();
    let peer = site.welcomed.next().await.unwrap().unwrap().info().clone();
    assert_eq!(peer.identity, Identity::Agent(NodeName::new("n1")));
    let why = n2.enter().await.unwrap_err().to_string();
    assert!(why.contains("has not the DNS name n2"), "{why}");
    for refused in [stranger, elsewhere, distrustful, bare] {
        assert!(refused.enter().await.is_err());
    }
    assert_eq!(
        site.enters(1000, Claimant::User).await,
        Ok(Identity::User(UserId(1000))),
        "users prove by MUNGE"
    );
}

#[tokio::test]
async fn without_a_method_whoever_comes_from_this_machine_is_an_agent_and_users_are_nobody() {
    let mut site = Site::with(&auth(AuthMethod::None)).await;
    let settings = auth(AuthMethod::None);
    for (claimant, identity) in
        [(agent("n1"), Identity::Agent(NodeName::new("n1"))), (Claimant::User, Identity::Nobody)]
    {
        site.door(1000, claimant, site.address, &settings).enter().await.unwrap();
        assert_eq!(site.welcomed.next().await.unwrap().unwrap().info().identity, identity);
    }
}

fn is_for_one_machine<T>(refused: &Result<T, AuthError>) -> bool {
    matches!(refused, Err(AuthError::Unavailable(why)) if why.contains("for one machine only"))
}

/// From another machine, for all that the scheduler sees. The configuration is refused before; this is the last door.
#[tokio::test]
async fn without_a_method_nobody_of_another_machine_is_let_in() {
    let settings = auth(AuthMethod::None);
    let site = Site::with(&settings).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let door = site.door(0, agent("n1"), listener.local_addr().unwrap(), &settings);
    let meeting = async {
        let (stream, _) = listener.accept().await.unwrap();
        site.gate.welcome(stream, ([192, 0, 2, 7], 40_000).into()).await
    };
    let (entered, welcomed) = tokio::join!(door.enter(), meeting);
    assert!(is_for_one_machine(&welcomed) && is_for_one_machine(&entered));
}

/// The same from the other end, which would take whoever answers there for the scheduler.
#[tokio::test]
async fn without_a_method_nobody_on_another_machine_is_taken_for_the_scheduler() {
    let settings = auth(AuthMethod::None);
    let site = Site::with(&settings).await;
    let elsewhere: SocketAddr = ([192, 0, 2, 7], 40_000).into();
    let stream = TcpStream::connect(site.address).await.unwrap();
    let door = site.door(0, agent("n1"), elsewhere, &settings);
    assert!(is_for_one_machine(&door.prove(stream, elsewhere).await));
}
