//! Where others come in: each is encrypted if his first byte says so, and has to be if he comes from another machine.
//! Whoever is slow to agree on keys, to ask or to read holds up nobody, and there are only so many of him.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::ConnectInfo;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use orion_proto::few::Few;
use orion_tls::handshake::FIRST_BYTE;
use orion_tls::identity::{self, Identity};
use orion_tls::revoked::Revoked;
use orion_tls::server::Server;
use orion_tls::why_of_io;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tonic::Status;
use tower::ServiceExt;
use tracing::{info, warn};

use crate::claims::{Claims, SESSION};
use crate::load::{Bodies, Load};
use crate::room::{Place, Room, Source, Stage};

/// From accepting a connection to its keys.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// From the keys to the first request, and over HTTP/1 between two. Over HTTP/2 it is asked whether he is still there.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// How often it is looked whether somebody has been slow for too long.
const LOOK: Duration = Duration::from_secs(10);
/// Of the head of a request.
const HEAD_BYTES_MAX: usize = 32 << 10;
/// What is kept of an answer beside the socket's own buffers.
const SENDING_BYTES_MAX: usize = 64 << 10;
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
    pub claims: Arc<Claims>,
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

/// Serves whoever comes, as long as somebody polls it.
pub async fn serve(listener: TcpListener, security: Arc<Security>, router: Router, connections_max: usize) {
    let acceptor = security.server.as_ref().map(|server| {
        let mut config = (*server.config).clone();
        // What tools of others ask for.
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        TlsAcceptor::from(Arc::new(config))
    });
    let (room, load, few) = (Room::of(connections_max), Arc::new(Load::default()), Arc::new(Few::default()));
    loop {
        let (socket, address) = match listener.accept().await {
            Ok(arrived) => arrived,
            Err(e) => {
                warn!(error = %e, "accepting a connection failed");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let source = Source::of(address.ip());
        let (place, goes) = Room::enter(&room, source);
        let (acceptor, security, router) = (acceptor.clone(), security.clone(), router.clone());
        let (bodies, few) = (Bodies::of(&load, source), Arc::clone(&few));
        let served = async move {
            let met = tokio::time::timeout(HANDSHAKE_TIMEOUT, meet(socket, address, acceptor, &security)).await;
            match met {
                Ok(Ok(Some((line, caller)))) => talk(line, caller, place, &bodies, router).await,
                Ok(Ok(None)) | Err(_) => {}
                Ok(Err(e)) => {
                    if let Some(unsaid) = few.says() {
                        info!(%address, why = why_of_io(&e), unsaid, "no keys were agreed on");
                    }
                }
            }
        };
        tokio::spawn(async move {
            tokio::select! {
                () = served => {}
                _ = goes => {}
            }
        });
    }
}

/// With one who has said how he speaks, until he goes, or is slower than anybody has to be.
async fn talk(line: Line, caller: Caller, mut place: Place, bodies: &Arc<Bodies>, router: Router) {
    place.reaches(Stage::Silent);
    let (came, has_asked, place) = (Instant::now(), Arc::new(AtomicBool::new(false)), Mutex::new(place));
    let (asks, theirs) = (Arc::clone(&has_asked), Arc::clone(bodies));
    let service = service_fn(move |request: axum::http::Request<_>| {
        if !asks.swap(true, Ordering::Relaxed) {
            place.lock().expect("nothing panics under this lock").reaches(Stage::Asked);
        }
        let mut request = theirs.coming::<hyper::body::Incoming>(request);
        request.extensions_mut().insert(ConnectInfo(caller.clone()));
        let (router, theirs) = (router.clone(), Arc::clone(&theirs));
        let is_word = request.uri().path().ends_with(SESSION);
        let mut answer: Pin<Box<dyn Future<Output = _> + Send>> = Box::pin(router.oneshot(request));
        if is_word {
            // Who says that goes at once, and with his connection what is done for it, perhaps before it has begun.
            let task = tokio::spawn(answer);
            let failed = |_| Ok(StatusCode::INTERNAL_SERVER_ERROR.into_response());
            answer = Box::pin(async move { task.await.unwrap_or_else(failed) });
        }
        async move { Ok::<_, Infallible>(theirs.going(answer.await?)) }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(SILENCE_MAX).max_buf_size(HEAD_BYTES_MAX);
    builder.http2().timer(TokioTimer::new()).keep_alive_interval(SILENCE_MAX).max_send_buf_size(SENDING_BYTES_MAX);
    let served = builder.serve_connection(TokioIo::new(line), service);
    let mut served = pin!(served);
    loop {
        tokio::select! {
            // Why a connection ended is told to who is at its other end.
            _ = served.as_mut() => return,
            () = tokio::time::sleep(LOOK) => {
                let now = Instant::now();
                let is_silent = !has_asked.load(Ordering::Relaxed) && now >= came + SILENCE_MAX;
                if is_silent || bodies.are_late(now) {
                    return;
                }
            }
        }
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
            Ok(Some((Line::Sealed(Box::new(stream)), Caller { identity, claims: Arc::default() })))
        }
        _ if security.insecure || address.ip().to_canonical().is_loopback() => {
            Ok(Some((Line::Clear(socket), Caller { identity: None, claims: Arc::default() })))
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
