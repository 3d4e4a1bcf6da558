//! The loop that takes connections, one after the other, and never ends because of one of them.

use std::io;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::task::JoinSet;
use tracing::debug;

/// The pause after a connection that could not be taken: most often the process has too many files open.
const PAUSE: Duration = Duration::from_millis(100);

/// What connections come to.
pub trait Listener: Send + Sync {
    /// What a connection is read from and written to.
    type Stream: Send;
    /// The next one.
    fn next(&self) -> impl Future<Output = io::Result<Self::Stream>> + Send;
}

impl Listener for TcpListener {
    type Stream = TcpStream;
    async fn next(&self) -> io::Result<TcpStream> {
        self.accept().await.map(|(stream, _)| stream)
    }
}

impl Listener for UnixListener {
    type Stream = UnixStream;
    async fn next(&self) -> io::Result<UnixStream> {
        self.accept().await.map(|(stream, _)| stream)
    }
}

/// Takes connections for as long as it is awaited. `meet` says what is done with each (`None`: it is closed); it is done beside the
/// others, in `under_way`.
pub async fn take<L, F>(
    listener: &L,
    under_way: &mut JoinSet<()>,
    mut meet: impl FnMut(L::Stream) -> Option<F> + Send,
) where
    L: Listener,
    F: Future<Output = ()> + Send + 'static,
{
    loop {
        while under_way.try_join_next().is_some() {}
        match listener.next().await {
            Ok(stream) => {
                if let Some(met) = meet(stream) {
                    under_way.spawn(met);
                }
            }
            Err(error) => {
                debug!(%error, "a connection could not be taken");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    /// A listener that has no file number left every other time, and nothing more after that.
    struct Short(Mutex<u32>);

    impl Listener for Short {
        type Stream = u32;
        async fn next(&self) -> io::Result<u32> {
            let turn = {
                let mut turn = self.0.lock().unwrap();
                *turn += 1;
                *turn
            };
            match turn {
                7.. => std::future::pending().await,
                _ if turn % 2 == 0 => Err(io::Error::other("too many open files")),
                _ => Ok(turn),
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_cannot_be_taken_ends_nothing() {
        let (listener, mut under_way, mut met) = (Short(Mutex::new(0)), JoinSet::new(), Vec::new());
        let taking = take(&listener, &mut under_way, |turn| {
            met.push(turn);
            (turn != 3).then_some(async {})
        });
        assert!(tokio::time::timeout(Duration::from_secs(10), taking).await.is_err());
        assert_eq!(met, [1, 3, 5]);
    }
}
