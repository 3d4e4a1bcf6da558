use super::*;
use crate::agents::Agents;
use crate::context::Settings;
use crate::scan::Scan;
use crate::testing::{NOW, at, hello, node};
use pillion_core::{ManualClock, NodeName};
use pillion_fake_slurm::{FakeSettings, FakeSlurm};
use pillion_memory_store::MemoryStore;
use pillion_slurm::{Node, NodeAvailability};
use std::sync::Arc;
use tonic::Code;

fn context() -> Context {
    let clock = Arc::new(ManualClock::new(at(NOW)));
    let slurm = Arc::new(FakeSlurm::new(FakeSettings::default(), Vec::new(), Vec::new(), at(NOW)));
    Context::new(clock, slurm, Arc::new(MemoryStore::new()), Arc::new(Agents::default()), Settings::default())
}

/// Slurm has n1, in the pool, at this address.
fn with_node(address: &str) -> Context {
    let context = context();
    let node = Node { address: address.to_owned(), ..node(NodeAvailability::Up) };
    let scan = Scan::new(at(NOW), Vec::new(), vec![node], &["shared".to_owned()], 0);
    context.board_mut().scan = Some(Arc::new(scan));
    context
}

fn peer(address: [u8; 4], identity: Identity) -> Peer {
    Peer { address: (address, 40_000).into(), identity }
}

fn agent(name: &str) -> Identity {
    Identity::Agent(NodeName::new(name))
}

async fn refused(context: &Context, peer: &Peer, node: &str) -> (Code, String) {
    let status = admit(context, Some(peer), &hello(node)).await.expect_err("it is refused");
    (status.code(), status.message().to_owned())
}

#[tokio::test]
async fn the_agent_of_a_pool_node_at_its_address_is_let_in() {
    let context = with_node("10.0.0.1");
    admit(&context, Some(&peer([10, 0, 0, 1], agent("n1"))), &hello("n1")).await.unwrap();
    assert!(context.refusals.all().is_empty());
}

#[tokio::test]
async fn an_invented_node_another_ones_name_and_a_user_are_refused() {
    let context = with_node("10.0.0.1");
    let (code, why) = refused(&context, &peer([10, 0, 0, 1], agent("n9")), "n9").await;
    assert!(code == Code::PermissionDenied && why.contains("no node of the pool"), "{why}");
    let (code, _) = refused(&context, &peer([10, 0, 0, 2], agent("n2")), "n1").await;
    assert_eq!(code, Code::PermissionDenied, "root of n2 says that it is n1");
    let user = Identity::User(pillion_core::UserId(1000));
    assert_eq!(refused(&context, &peer([10, 0, 0, 1], user), "n1").await.0, Code::PermissionDenied);
    let bare = admit(&context, None, &hello("n1")).await.expect_err("it came over no TCP");
    assert_eq!(bare.code(), Code::Unauthenticated);
    assert_eq!(context.refusals.all().len(), 3);
}

#[tokio::test]
async fn a_node_calls_from_its_own_address() {
    let context = with_node("10.0.0.1");
    let (code, why) = refused(&context, &peer([10, 0, 0, 2], agent("n1")), "n1").await;
    assert_eq!(code, Code::PermissionDenied);
    assert!(why.contains("10.0.0.2") && why.contains("10.0.0.1"), "{why}");
    let (code, why) = refused(&with_node("nowhere.invalid"), &peer([10, 0, 0, 1], agent("n1")), "n1").await;
    assert!(code == Code::Unavailable && why.contains("NodeAddr=nowhere.invalid"), "{why}");
    admit(&with_node("localhost"), Some(&peer([127, 0, 0, 1], agent("n1"))), &hello("n1")).await.unwrap();
}

#[test]
fn by_loopback_comes_only_the_node_that_is_this_machine() {
    let [here, own, other] = [[127, 0, 0, 1], [10, 0, 0, 1], [10, 0, 0, 2]].map(IpAddr::from);
    let is_own = |address| address == own;
    assert!(is_from(here, &[own], is_own) && is_from(own, &[own], is_own) && is_from(here, &[here], is_own));
    assert!(!is_from(here, &[other], is_own) && !is_from(other, &[own], is_own));
    assert!(super::is_own(here) && !super::is_own([203, 0, 113, 9].into()));
}

#[tokio::test(start_paused = true)]
async fn before_slurm_is_known_and_while_another_leads_agents_are_told_to_come_again() {
    let caller = peer([10, 0, 0, 1], agent("n1"));
    assert_eq!(refused(&context(), &caller, "n1").await.0, Code::Unavailable);
    let context = with_node("10.0.0.1");
    context.set_following(true);
    assert_eq!(
        refused(&context, &caller, "n1").await,
        (Code::Unavailable, another_leads().message().to_owned())
    );
    context.set_following(false);
    assert!(admit(&context, Some(&caller), &hello("n1")).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_second_agent_of_a_node_waits_for_the_first_and_gives_up_where_that_stays() {
    let context = with_node("10.0.0.1");
    let first = hello("n1");
    let second = AgentHello { journal_id: "k".into(), ..hello("n1") };
    let (stream, _inbox) = context.agents.connect(&first, at(NOW));
    assert_eq!(vacated(&context, &second).await.expect_err("it stays").code(), Code::Unavailable);
    let leaves = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        context.agents.disconnect(&stream);
    };
    let (waited, ()) = tokio::join!(vacated(&context, &second), leaves);
    waited.unwrap();
    let (_stream, _inbox) = context.agents.connect_vacant(&second, at(NOW)).expect("nobody is there");
    assert!(context.agents.connect_vacant(&first, at(NOW)).is_none(), "now the second is");
}

/// w1 is in an observed partition, n1 in the pool and in that one too.
#[tokio::test]
async fn who_observes_is_let_in_on_observed_nodes_and_nowhere_else() {
    let observing = |name: &str| AgentHello { observes: true, ..hello(name) };
    let why = async |context: &Context, hello: &AgentHello| {
        let peer = peer([10, 0, 0, 1], agent(hello.node.as_str()));
        admit(context, Some(&peer), hello).await.map_err(|status| status.message().to_owned())
    };
    let nothing = with_node("10.0.0.1");
    let refused = why(&nothing, &observing("w1")).await.unwrap_err();
    assert!(refused.contains("this scheduler observes no partition"), "{refused}");
    let mut context = with_node("10.0.0.1");
    context.settings.observed = vec!["gpu".to_owned()];
    let node =
        Node { name: NodeName::new("w1"), address: "10.0.0.1".to_owned(), ..node(NodeAvailability::Up) };
    let nodes = [(node.name.clone(), node)].into();
    let observed = crate::observe::seen::Observed { at: Some(at(NOW)), nodes, ..Default::default() };
    context.board_mut().observed = Arc::new(observed);
    assert_eq!(why(&context, &observing("w1")).await, Ok(()));
    for (hello, said) in [
        (observing("n1"), "its node is in the pool"),
        (observing("n9"), "it is no node of an observed partition (observe.partitions: gpu)"),
        (hello("w1"), "it is no node of the pool"),
    ] {
        let refused = why(&context, &hello).await.unwrap_err();
        assert!(refused.contains(said), "{refused}");
    }
}
