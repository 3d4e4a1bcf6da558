//! One text at a time over the connection, before gRPC begins: its length in two bytes, then itself.

use crate::error::{AuthError, Denial};
use crate::limits::FRAME_BYTES_MAX;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// Sends a frame: the length in two bytes, then so much text.
pub(crate) async fn send(stream: &mut (impl AsyncWrite + Unpin), text: &str) -> Result<(), AuthError> {
    let length = u16::try_from(text.len()).ok().filter(|length| usize::from(*length) <= FRAME_BYTES_MAX);
    let length = length.ok_or_else(|| AuthError::Unavailable("the proof is too long".to_owned()))?;
    let mut bytes = length.to_be_bytes().to_vec();
    bytes.extend_from_slice(text.as_bytes());
    stream.write_all(&bytes).await.map_err(broken)?;
    stream.flush().await.map_err(broken)
}

/// Waits for one.
pub(crate) async fn receive(stream: &mut (impl AsyncRead + Unpin)) -> Result<String, AuthError> {
    let length = usize::from(stream.read_u16().await.map_err(broken)?);
    if length > FRAME_BYTES_MAX {
        return Err(AuthError::Denied(Denial::Malformed));
    }
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes).await.map_err(broken)?;
    String::from_utf8(bytes).map_err(|_| AuthError::Denied(Denial::Malformed))
}

#[expect(clippy::needless_pass_by_value, reason = "the shape that map_err takes")]
fn broken(error: std::io::Error) -> AuthError {
    AuthError::Unreachable(format!("the connection broke before both ends were known: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_text_arrives_as_it_was_sent_and_a_long_one_is_refused_by_its_length() {
        let (mut one, mut other) = tokio::io::duplex(2 * FRAME_BYTES_MAX);
        send(&mut one, "claim\nproof").await.unwrap();
        assert_eq!(receive(&mut other).await.unwrap(), "claim\nproof");
        assert!(send(&mut one, &"x".repeat(FRAME_BYTES_MAX + 1)).await.is_err());
        one.write_u16(u16::MAX).await.unwrap();
        assert_eq!(receive(&mut other).await, Err(AuthError::Denied(Denial::Malformed)));
        drop(one);
        assert!(matches!(receive(&mut other).await, Err(AuthError::Unreachable(_))));
    }
}
