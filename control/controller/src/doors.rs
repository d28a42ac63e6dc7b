//! Where others come in: each is encrypted if his first byte says so, and has to be if he comes from another machine.
//! Whoever is slow to agree on keys holds up nobody, and there are only so many of him.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::extract::connect_info::Connected;
use axum::serve::IncomingStream;
use orion_tls::handshake::FIRST_BYTE;
use orion_tls::identity::{self, Identity};
use orion_tls::revoked::Revoked;
use orion_tls::server::Server;
use orion_tls::why_of_io;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tonic::Status;
use tracing::{info, warn};

/// From accepting a connection to its keys.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// Who has not said how he speaks, or has no keys yet.
const STRANGERS_MAX: usize = 128;
const STRANGERS_OF_ONE_SOURCE_MAX: usize = 64;
/// Most likely there are no descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);
/// To whom speaks in the clear and may not.
const IN_THE_CLEAR: &str = "this controller is spoken to by TLS from other machines, and this came in the clear; give \
                            its CA (ORION_CA, --ca), or set controller.insecure: true where it runs\n";

/// Who may do what. Whoever has an operator's key may do everything.
#[derive(Clone, Copy)]
pub enum Role {
    Client,
    Server,
    Administrator,
}

/// What an operator has decided about who comes over a network.
#[derive(Default)]
pub struct Security {
    pub server: Option<Server>,
    pub wants_certificate: bool,
    pub revoked: Option<Arc<Revoked>>,
    /// Other machines may come in the clear.
    pub insecure: bool,
}

/// Who is at the other end of a connection.
#[derive(Debug, Clone)]
pub struct Caller {
    /// By his certificate, if he has shown one; why it says nobody's name.
    identity: Option<Result<Identity, String>>,
}

impl Security {
    /// Who he is if he has to show a certificate, and what he shows is enough for this.
    pub fn admit(&self, caller: Option<&Caller>, role: Role) -> Result<Option<Identity>, Status> {
        if !self.wants_certificate {
            return Ok(None);
        }
        let who = match caller.and_then(|caller| caller.identity.as_ref()) {
            Some(Ok(who)) => who,
            Some(Err(why)) => return Err(Status::unauthenticated(why.clone())),
            None => {
                return Err(Status::unauthenticated(
                    "this controller wants a certificate (controller.client_ca), and none was shown; set \
                     ORION_CERTIFICATE and ORION_KEY, or give --certificate and --key, and ORION_TLS=1 where it runs",
                ));
            }
        };
        if self.revoked.as_ref().is_some_and(|list| list.has(&who.fingerprint)) {
            let fingerprint = who.fingerprint;
            let text = format!("the certificate {who} is revoked (its fingerprint is {fingerprint})");
            return Err(Status::unauthenticated(text));
        }
        let needed = match role {
            Role::Client => identity::Role::Client,
            Role::Server => identity::Role::Node,
            Role::Administrator => identity::Role::Administrator,
        };
        if who.role != needed && who.role != identity::Role::Administrator {
            let needed = needed.word();
            let text = format!("the certificate {who} is not for this; it takes one of orion://{needed}/NAME");
            return Err(Status::permission_denied(text));
        }
        Ok(Some(who.clone()))
    }
}

impl Connected<IncomingStream<'_, Doors>> for Caller {
    fn connect_info(stream: IncomingStream<'_, Doors>) -> Caller {
        stream.remote_addr().clone()
    }
}

/// Those who have said how they speak.
pub struct Doors {
    ready: mpsc::Receiver<(Line, Caller)>,
}

impl Doors {
    pub fn open(listener: TcpListener, security: Arc<Security>) -> Doors {
        let (sender, ready) = mpsc::channel(STRANGERS_MAX);
        tokio::spawn(accept(listener, security, sender));
        Doors { ready }
    }
}

impl axum::serve::Listener for Doors {
    type Io = Line;
    type Addr = Caller;

    async fn accept(&mut self) -> (Line, Caller) {
        match self.ready.recv().await {
            Some(arrived) => arrived,
            // Nobody comes any more: the process ends.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<Caller> {
        // Nobody asks: a caller has no address, and this is no caller.
        Err(io::ErrorKind::Unsupported.into())
    }
}

async fn accept(listener: TcpListener, security: Arc<Security>, ready: mpsc::Sender<(Line, Caller)>) {
    let acceptor = security.server.as_ref().map(|server| {
        let mut config = (*server.config).clone();
        // What tools of others ask for.
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        TlsAcceptor::from(Arc::new(config))
    });
    let room = Arc::new(Room::default());
    loop {
        let (socket, address) = match listener.accept().await {
            Ok(arrived) => arrived,
            Err(e) => {
                warn!(error = %e, "accepting a connection failed");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Some(place) = Room::enter(&room, address.ip().to_canonical()) else { continue };
        let (acceptor, security, ready) = (acceptor.clone(), security.clone(), ready.clone());
        tokio::spawn(async move {
            let met = tokio::time::timeout(HANDSHAKE_TIMEOUT, meet(socket, address, acceptor, &security)).await;
            drop(place);
            match met {
                Ok(Ok(Some(arrived))) => drop(ready.send(arrived).await),
                Ok(Ok(None)) | Err(_) => {}
                Ok(Err(e)) => info!(%address, why = why_of_io(&e), "no keys were agreed on"),
            }
        });
    }
}

/// Nothing for who went without a word, or was sent away with one.
async fn meet(
    mut socket: TcpStream,
    address: SocketAddr,
    acceptor: Option<TlsAcceptor>,
    security: &Security,
) -> io::Result<Option<(Line, Caller)>> {
    // A short answer that waits for more to go with it waits 40 ms for its client's acknowledgement.
    socket.set_nodelay(true)?;
    let mut first = [0];
    if socket.peek(&mut first).await? == 0 {
        return Ok(None);
    }
    match acceptor {
        Some(acceptor) if first[0] == FIRST_BYTE => {
            let stream = match acceptor.accept(socket).into_fallible().await {
                Ok(stream) => stream,
                Err((e, socket)) => {
                    part(socket).await;
                    return Err(e);
                }
            };
            let shown = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
            let identity = shown.map(identity::of);
            Ok(Some((Line::Sealed(Box::new(stream)), Caller { identity })))
        }
        _ if security.insecure || address.ip().to_canonical().is_loopback() => {
            Ok(Some((Line::Clear(socket), Caller { identity: None })))
        }
        _ => {
            let bytes = IN_THE_CLEAR.len();
            let answer = format!(
                "HTTP/1.1 426 Upgrade Required\r\nUpgrade: TLS/1.3\r\nConnection: close\r\nContent-Length: \
                 {bytes}\r\n\r\n{IN_THE_CLEAR}"
            );
            socket.write_all(answer.as_bytes()).await?;
            part(socket).await;
            Ok(None)
        }
    }
}

/// Who was told why he goes hears it only if what he says meanwhile is taken.
async fn part(mut socket: TcpStream) {
    let _ = socket.shutdown().await;
    let mut unheard = [0; 4096];
    while socket.read(&mut unheard).await.is_ok_and(|n| n > 0) {}
}

/// How many strangers there are of each source.
#[derive(Default)]
struct Room(Mutex<HashMap<IpAddr, usize>>);

struct Place {
    room: Arc<Room>,
    source: IpAddr,
}

impl Room {
    /// Nothing if there are too many already. Their time is short, so who comes again soon finds room.
    fn enter(room: &Arc<Room>, source: IpAddr) -> Option<Place> {
        let mut counts = room.0.lock().expect("nothing panics under this lock");
        let (all, of_it) = (counts.values().sum::<usize>(), counts.get(&source).copied().unwrap_or(0));
        if all >= STRANGERS_MAX || of_it >= STRANGERS_OF_ONE_SOURCE_MAX {
            return None;
        }
        *counts.entry(source).or_default() += 1;
        Some(Place { room: Arc::clone(room), source })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.room.0.lock().expect("nothing panics under this lock");
        if let Some(count) = counts.get_mut(&self.source) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.source);
            }
        }
    }
}

pub enum Line {
    Clear(TcpStream),
    Sealed(Box<TlsStream<TcpStream>>),
}

impl AsyncRead for Line {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Line::Clear(socket) => Pin::new(socket).poll_read(cx, to),
            Line::Sealed(stream) => Pin::new(stream).poll_read(cx, to),
        }
    }
}

impl AsyncWrite for Line {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Line::Clear(socket) => Pin::new(socket).poll_write(cx, from),
            Line::Sealed(stream) => Pin::new(stream).poll_write(cx, from),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Line::Clear(socket) => Pin::new(socket).poll_flush(cx),
            Line::Sealed(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Line::Clear(socket) => Pin::new(socket).poll_shutdown(cx),
            Line::Sealed(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_source_takes_half_of_the_room_at_most() {
        let room = Arc::new(Room::default());
        let of = |number: u8| IpAddr::from([10, 0, 0, number]);
        let mut places: Vec<Place> = (0..200).filter_map(|_| Room::enter(&room, of(1))).collect();
        assert_eq!(places.len(), STRANGERS_OF_ONE_SOURCE_MAX);
        places.extend((0..200).filter_map(|_| Room::enter(&room, of(2))));
        assert_eq!(places.len(), STRANGERS_MAX);
        assert!(Room::enter(&room, of(3)).is_none());
        places.pop();
        assert!(Room::enter(&room, of(3)).is_some());
        drop(places);
        assert!(room.0.lock().unwrap().is_empty());
    }
}
