//! A connection with what it holds: its place, and who is at its other end.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tonic::transport::server::Connected;

/// A connection for gRPC. Its place is given back when it is over.
pub struct Held<S, I, P> {
    stream: S,
    info: I,
    _place: P,
}

impl<S, I, P> Held<S, I, P> {
    /// With who is there, and its place.
    pub const fn new(stream: S, info: I, place: P) -> Self {
        Self { stream, info, _place: place }
    }

    /// Who is at the other end.
    pub const fn info(&self) -> &I {
        &self.info
    }
}

impl<S, I: Clone + Send + Sync + 'static, P> Connected for Held<S, I, P> {
    type ConnectInfo = I;
    fn connect_info(&self) -> I {
        self.info.clone()
    }
}

impl<S: AsyncRead + Unpin, I: Unpin, P: Unpin> AsyncRead for Held<S, I, P> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin, I: Unpin, P: Unpin> AsyncWrite for Held<S, I, P> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
