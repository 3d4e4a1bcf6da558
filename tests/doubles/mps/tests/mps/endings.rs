//! Two hundred cancels and time limits at random moments: whoever leaves through the daemon before SIGKILL takes nobody along, as with the
//! real one, and who is killed at work does. Drawn from a seed; the daemons and the clients are processes.

use crate::node::{Client, Node, connected, is_root, kill, runs, until};
use pillion_device::mps::MpsDaemons;
use pillion_device::simulated::Phase;
use pillion_device::{MpsControl as _, MpsPlace};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use std::time::Duration;

const ROUNDS: u32 = 200;
const MILLISECONDS_MAX: u64 = 12;

/// Two who stay, on a device on which one that is killed at work ends everybody.
struct Scene {
    node: Node,
    daemons: MpsDaemons,
    stay: [Client; 2],
}

impl Scene {
    fn start() -> Self {
        let node = Node::harsh();
        let mut daemons = node.daemons();
        daemons.prepare(&MpsPlace::device(0), &node.settings(0)).unwrap();
        let stay = [node.client(0, &[]), node.client(0, &[])];
        connected(&mut daemons, 0, &stay.each_ref().map(Client::pid));
        Self { node, daemons, stay }
    }

    fn all_work(&mut self) -> bool {
        self.stay.iter_mut().all(|client| client.progress().phase == Phase::Running)
    }

    /// As an agent does: whoever is a client now is asked for by name, and whoever has gone meanwhile is as good.
    fn end_through_daemon(&mut self, pid: u32) {
        let status = self.daemons.status(&MpsPlace::device(0)).unwrap().expect("a daemon");
        assert!(status.client_pids.contains(&pid), "who works is a client: {status:?}");
        let _ = self.daemons.terminate_client(&MpsPlace::device(0), pid);
    }
}

/// The moment is what is drawn: nothing is waited for.
fn at_random(chance: &mut StdRng) {
    std::thread::sleep(Duration::from_millis(chance.random_range(0..MILLISECONDS_MAX)));
}

#[test]
fn no_neighbour_dies_of_two_hundred_who_leave_through_the_daemon() {
    if !is_root() {
        return;
    }
    let mut scene = Scene::start();
    let mut chance = StdRng::seed_from_u64(17);
    for round in 0..ROUNDS {
        let victims: Vec<Client> =
            (0..chance.random_range(1..=2)).map(|_| scene.node.client(0, &[])).collect();
        at_random(&mut chance);
        for victim in &victims {
            scene.end_through_daemon(victim.pid());
            // Cancelled at its time limit: it is ordered twice.
            if chance.random_bool(0.2) {
                let _ = scene.daemons.terminate_client(&MpsPlace::device(0), victim.pid());
            }
            at_random(&mut chance);
            kill(victim.pid());
        }
        let pids: Vec<u32> = victims.iter().map(Client::pid).collect();
        until("their end", || pids.iter().all(|pid| !runs(*pid)));
        drop(victims);
        assert!(scene.all_work(), "round {round}");
    }
    assert_eq!(scene.daemons.notices(), [], "none of it was a fault");
}

#[test]
fn one_that_is_killed_at_work_takes_all_along() {
    if !is_root() {
        return;
    }
    let mut scene = Scene::start();
    let victim = scene.node.client(0, &[]);
    kill(victim.pid());
    until("the end of all", || !scene.all_work());
}
