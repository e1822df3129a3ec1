//! What a session speaks over: a byte stream, which may turn to TLS in the middle of the handshake.

pub use plexum_front::transport::{Transport, TransportError};

use crate::tls::TlsStart;

/// A stream that may be able to speak TLS.
#[allow(async_fn_in_trait)] // sessions live on one thread
pub trait StartTls: Transport {
    /// From now on everything goes through TLS; nobody else reads or writes meanwhile. Streams that cannot say `Tls`.
    /// # Errors
    /// Any error ends the stream.
    async fn start_tls(&self, start: &TlsStart) -> Result<(), TransportError> {
        let _ = start;
        Err(TransportError::Tls)
    }
}

impl<T: StartTls + ?Sized> StartTls for &T {
    async fn start_tls(&self, start: &TlsStart) -> Result<(), TransportError> {
        (**self).start_tls(start).await
    }
}
