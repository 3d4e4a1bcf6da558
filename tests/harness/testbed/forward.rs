//! Ports of the machine's loopback that lead into a testbed with a network of its own, each to the same port inside.
//!
//! A socket stays in the network in which it was made: the machine's listeners are made before the testbed's network is, and
//! a thread takes connections from them in the one and makes connections in the other. It ends with the outer process.

use crate::error::{HarnessError, Result, io_error, system_error};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::{Semaphore, oneshot};

/// How far apart the ports are that are tried for one, and how often.
const TRY_STEP: u16 = 100;
const TRIES: u16 = 10;
/// How many connections a port takes at once; who comes beyond waits.
const CONNECTIONS_MAX: usize = 64;
/// How long the inside may take to accept a connection.
const CONNECT_DEADLINE: Duration = Duration::from_secs(5);
/// After a connection could not be taken (no file number was left), the next is looked for so much later.
const BREATH: Duration = Duration::from_millis(200);

/// The forwards of one testbed; they end when this is dropped.
#[derive(Debug)]
pub(super) struct Forwards {
    ports: Vec<u16>,
    network: Option<mpsc::Sender<File>>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Forwards {
    /// Takes the ports of 127.0.0.1, or others where somebody has them. Before the testbed's network is made: afterwards
    /// listeners would be inside, and the kernel lets a process whose children get other numbers start no thread.
    ///
    /// # Errors
    /// Where no port is free.
    pub(super) fn open(wanted: &[u16]) -> Result<Self> {
        let listeners = wanted.iter().map(|port| listen(*port)).collect::<Result<Vec<_>>>()?;
        let address = |listener: &TcpListener| listener.local_addr().map(|address| address.port());
        let ports = listeners.iter().map(address).collect::<std::io::Result<_>>().map_err(loopback())?;
        let (network, networks) = mpsc::channel();
        let (stop, stopped) = oneshot::channel();
        let follow = move || {
            // Nobody sends one where the testbed was not made.
            if let Ok(network) = networks.recv()
                && let Err(error) = run(&network, listeners, stopped)
            {
                eprintln!("error: no forwards into the testbed: {}", pillion_core::report(&error));
            }
        };
        let thread = std::thread::Builder::new().name("forwards".into()).spawn(follow).map_err(loopback())?;
        Ok(Self { ports, network: Some(network), stop: Some(stop), thread: Some(thread) })
    }

    /// The ports, in the order in which they were asked for.
    pub(super) fn ports(&self) -> &[u16] {
        &self.ports
    }

    /// From now on connections lead into the network of the calling thread.
    ///
    /// # Errors
    /// Where the kernel does not name that network.
    pub(super) fn lead_here(&mut self) -> Result<()> {
        let path = Path::new("/proc/thread-self/ns/net");
        let network = File::open(path).map_err(io_error("open", path))?;
        let gone = || HarnessError::Refused("the thread of the forwards has ended".into());
        self.network.take().and_then(|sender| sender.send(network).ok()).ok_or_else(gone)
    }
}

impl Drop for Forwards {
    fn drop(&mut self) {
        drop((self.network.take(), self.stop.take()));
        if let Some(thread) = self.thread.take() {
            // It returns nothing, and its panic would have been printed.
            let _ = thread.join();
        }
    }
}

fn loopback() -> impl FnOnce(std::io::Error) -> HarnessError {
    io_error("listen on", Path::new("127.0.0.1"))
}

/// A listener on a port, or on one of some others where it is taken.
fn listen(wanted: u16) -> Result<TcpListener> {
    let tried = (0..TRIES).map_while(|step| wanted.checked_add(step * TRY_STEP));
    let mut refused = HarnessError::Refused(format!("there is no port {wanted}"));
    for port in tried {
        match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            Ok(listener) => return Ok(listener),
            Err(error) => refused = loopback()(error),
        }
    }
    Err(refused)
}

/// Follows into the network and serves until it is told to stop.
fn run(network: &File, listeners: Vec<TcpListener>, stopped: oneshot::Receiver<()>) -> Result<()> {
    move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))
        .map_err(system_error("follow into the testbed's network"))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(loopback())?;
    runtime.block_on(async {
        for listener in listeners {
            listener.set_nonblocking(true).map_err(loopback())?;
            tokio::spawn(serve(tokio::net::TcpListener::from_std(listener).map_err(loopback())?));
        }
        // An error says that the other end was dropped, which is how it is told.
        let _ = stopped.await;
        Ok(())
    })
}

/// Takes connections for as long as the runtime lives.
async fn serve(listener: tokio::net::TcpListener) {
    let Ok(inside) = listener.local_addr() else { return };
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    while let Ok(place) = Arc::clone(&places).acquire_owned().await {
        match listener.accept().await {
            Ok((outside, _)) => {
                tokio::spawn(async move {
                    pass(outside, inside).await;
                    drop(place);
                });
            }
            Err(_) => tokio::time::sleep(BREATH).await,
        }
    }
}

/// Passes bytes both ways until both sides have ended. What goes wrong ends the connection, which is all that either side
/// would see of it without a forward in between.
async fn pass(mut outside: tokio::net::TcpStream, inside: SocketAddr) {
    let connecting = tokio::net::TcpStream::connect(inside);
    if let Ok(Ok(mut inside)) = tokio::time::timeout(CONNECT_DEADLINE, connecting).await {
        let _ = tokio::io::copy_bidirectional(&mut outside, &mut inside).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpStream;

    fn somebodys() -> TcpListener {
        TcpListener::bind("127.0.0.1:0").unwrap()
    }

    #[test]
    fn a_port_that_somebody_has_is_not_taken_from_him() {
        let somebody = somebodys();
        let port = somebody.local_addr().unwrap().port();
        assert_ne!(listen(port).unwrap().local_addr().unwrap().port(), port);
    }

    #[test]
    fn where_no_testbed_comes_about_the_thread_and_the_ports_are_gone() {
        let free = somebodys().local_addr().unwrap().port();
        let forwards = Forwards::open(&[free]).unwrap();
        let address = (Ipv4Addr::LOCALHOST, forwards.ports()[0]);
        TcpStream::connect(address).unwrap();
        drop(forwards);
        assert!(TcpStream::connect(address).is_err());
    }
}
