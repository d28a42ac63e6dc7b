//! An encrypted connection that remembers why it failed. A controller's word about the certificate that was shown to it
//! comes behind the handshake, and what stands between us and the connection makes "connection closed" of it.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use orion_tls::why_of_io;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Why connections failed: the last one's reason.
#[derive(Clone, Default)]
pub struct Reason(Arc<Mutex<Option<String>>>);

impl Reason {
    pub fn take(&self) -> Option<String> {
        self.0.lock().expect("nothing panics under this lock").take()
    }

    /// Only what is about TLS: of the rest others say enough.
    fn note(&self, e: &io::Error) {
        if e.kind() == io::ErrorKind::InvalidData {
            *self.0.lock().expect("nothing panics under this lock") = Some(why_of_io(e));
        }
    }
}

pub struct Heard<S> {
    stream: S,
    reason: Reason,
}

impl<S: AsyncRead + Unpin> Heard<S> {
    pub fn new(stream: S, reason: Reason) -> Heard<S> {
        Heard { stream, reason }
    }

    fn noted<T>(&self, outcome: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if let Poll::Ready(Err(e)) = &outcome {
            self.reason.note(e);
        }
        outcome
    }

    /// Where nothing can be said any more there may be a word to be heard.
    fn noted_of_writing<T>(&mut self, cx: &mut Context<'_>, outcome: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if matches!(outcome, Poll::Ready(Err(_))) {
            let mut byte = [0];
            let heard = Pin::new(&mut self.stream).poll_read(cx, &mut ReadBuf::new(&mut byte));
            let _ = self.noted(heard);
        }
        self.noted(outcome)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Heard<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_read(cx, to);
        self.noted(outcome)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Heard<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write(cx, from);
        self.noted_of_writing(cx, outcome)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_flush(cx);
        self.noted_of_writing(cx, outcome)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.noted_of_writing(cx, outcome)
    }
}
