//! The open connections, and the server that accepts them. A client that keeps a connection without using it, or that sends
//! the head of a request slowly, is disconnected; where there are too many connections, the peer that has most loses one.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use parking_lot::Mutex;
use rustls::ServerConfig;
use rustls::server::{NoServerSessionStorage, ResolvesServerCert};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::limits::Limits;

/// The bytes of a request's head, and of a body that hyper holds before we take it. An API server's head has about 500.
const LARGEST_HEAD: usize = 16 * 1024;

/// The pause after the kernel could not accept a connection, as where no file descriptor is left.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// The address of the client, among the extensions of each request.
#[derive(Clone, Copy, Debug)]
pub struct Peer(pub IpAddr);

/// What a connection is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The client has begun a TLS handshake or the head of a request.
    Arriving,
    /// A request is being read, judged or answered, which has limits of its own.
    Answering,
    /// There is no request.
    Idle,
}

/// The phase of a connection, and since when.
type Progress = watch::Sender<(Phase, Instant)>;

fn enter(progress: &Progress, phase: Phase) {
    progress.send_replace((phase, Instant::now()));
}

/// Serves over TLS until it is told to close. `certificates` is asked at each handshake.
pub struct Server {
    routes: Router,
    limits: Limits,
    open: Arc<OpenConnections>,
    tasks: TaskTracker,
    closing: CancellationToken,
}

impl Server {
    /// A server of these routes.
    pub fn new(routes: Router, limits: Limits) -> Arc<Self> {
        let open = Arc::new(OpenConnections { most: limits.connections, table: Mutex::default() });
        Arc::new(Self { routes, limits, open, tasks: TaskTracker::new(), closing: CancellationToken::new() })
    }

    /// Accepts connections until [`Server::close`].
    pub async fn serve(self: Arc<Self>, listener: TcpListener, certificates: Arc<dyn ResolvesServerCert>) {
        let tls = acceptor(certificates);
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = self.closing.cancelled() => return,
            };
            match accepted {
                Ok((stream, peer)) => self.accept(stream, peer.ip().to_canonical(), tls.clone()),
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    sleep(ACCEPT_AGAIN).await;
                }
            }
        }
    }

    fn accept(self: &Arc<Self>, stream: TcpStream, peer: IpAddr, tls: TlsAcceptor) {
        let (progress, phase) = watch::channel((Phase::Arriving, Instant::now()));
        let Some(place) = self.open.admit(peer, phase) else { return };
        let server = self.clone();
        self.tasks.spawn(async move {
            let connection = async {
                // the API server's requests are small and wait for their response
                let _ = stream.set_nodelay(true);
                if let Ok(Ok(stream)) = timeout(server.limits.head, tls.accept(stream)).await {
                    let closing = server.closing.clone();
                    serve_connection(stream, peer, server.routes.clone(), server.limits, progress, closing).await;
                }
            };
            tokio::select! { () = connection => {} () = place.given_away.cancelled() => {} }
        });
    }

    /// Accepts nothing more, and lets each connection finish the request that it has begun.
    pub fn close(&self) {
        self.closing.cancel();
        self.tasks.close();
    }

    /// Waits until the last connection has ended, after [`Server::close`].
    pub async fn closed(&self) {
        self.tasks.wait().await;
    }
}

fn acceptor(certificates: Arc<dyn ResolvesServerCert>) -> TlsAcceptor {
    let mut config = ServerConfig::builder().with_no_client_auth().with_cert_resolver(certificates);
    // API servers keep their connections instead of resuming sessions, so session state would only cost memory
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    // Without h2: the API server asks webhooks for http/1.1 only, since HTTP/2 would send all requests to one replica
    // (`NextProtos` in apiserver's `util/webhook/client.go`), and one connection could carry hundreds of requests of others.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    TlsAcceptor::from(Arc::new(config))
}

/// Serves the requests of one connection, until the client or a limit ends it, or the server closes.
async fn serve_connection<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    peer: IpAddr,
    routes: Router,
    limits: Limits,
    progress: Progress,
    closing: CancellationToken,
) {
    let progress = Arc::new(progress);
    enter(&progress, Phase::Idle);
    let routes = TowerToHyperService::new(routes);
    let answering = progress.clone();
    let service = service_fn(move |mut request: Request<Incoming>| {
        enter(&answering, Phase::Answering);
        request.extensions_mut().insert(Peer(peer));
        let (answer, progress) = (routes.call(request), answering.clone());
        async move {
            let response = answer.await;
            enter(&progress, Phase::Idle);
            response
        }
    });
    let phase = progress.subscribe();
    let stream = TokioIo::new(Noticing { stream, progress });
    // its own limit of a head counts the time before the first byte as well, so it cannot tell slow from idle
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(None)
        .max_buf_size(LARGEST_HEAD)
        .serve_connection(stream, service);
    let mut connection = pin!(connection);
    tokio::select! {
        _ = connection.as_mut() => return,
        phase = overstayed(phase, limits) => if phase == Phase::Arriving { return },
        () = closing.cancelled() => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = timeout(limits.head, connection).await;
}

/// Waits until the connection has been in a phase for longer than it may be.
async fn overstayed(mut phase: watch::Receiver<(Phase, Instant)>, limits: Limits) -> Phase {
    loop {
        let (current, since) = *phase.borrow_and_update();
        let over = async {
            match current {
                Phase::Arriving => sleep_until(since + limits.head).await,
                Phase::Idle => sleep_until(since + limits.idle).await,
                Phase::Answering => std::future::pending().await,
            }
        };
        tokio::select! { () = over => return current, _ = phase.changed() => {} }
    }
}

/// A stream that notices when the head of a request begins.
struct Noticing<S> {
    stream: S,
    progress: Arc<Progress>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Noticing<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if buffer.filled().len() > before {
            self.progress.send_if_modified(|progress| {
                let begins = progress.0 == Phase::Idle;
                if begins {
                    *progress = (Phase::Arriving, Instant::now());
                }
                begins
            });
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Noticing<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// All open connections.
struct OpenConnections {
    most: usize,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    next: u64,
    open: BTreeMap<u64, Open>,
}

struct Open {
    peer: IpAddr,
    phase: watch::Receiver<(Phase, Instant)>,
    given_away: CancellationToken,
}

/// The place of a connection in the table, until it is dropped.
struct Place {
    connections: Arc<OpenConnections>,
    id: u64,
    /// Cancelled when the place is given to another connection.
    given_away: CancellationToken,
}

impl OpenConnections {
    /// A place for a connection of this peer. Where there is none left, it takes one of the peer that has most; `None` where that
    /// peer's are all in use.
    fn admit(self: &Arc<Self>, peer: IpAddr, phase: watch::Receiver<(Phase, Instant)>) -> Option<Place> {
        let mut table = self.table.lock();
        if table.open.len() >= self.most {
            let victim = table.dispensable()?;
            table.open.remove(&victim)?.given_away.cancel();
        }
        let id = table.next;
        table.next += 1;
        let given_away = CancellationToken::new();
        table.open.insert(id, Open { peer, phase, given_away: given_away.clone() });
        Some(Place { connections: self.clone(), id, given_away })
    }
}

impl Table {
    /// Of the connections of the peer that has most: the one that has been idle, or about to say something, for longest.
    fn dispensable(&self) -> Option<u64> {
        let mut count: HashMap<IpAddr, usize> = HashMap::new();
        for open in self.open.values() {
            *count.entry(open.peer).or_default() += 1;
        }
        let (busiest, _) = count.into_iter().max_by_key(|(peer, count)| (*count, *peer))?;
        let phases =
            self.open.iter().filter(|(_, open)| open.peer == busiest).map(|(id, open)| (*open.phase.borrow(), id));
        phases
            .filter(|((phase, _), _)| *phase != Phase::Answering)
            .min_by_key(|((_, since), _)| *since)
            .map(|(_, id)| *id)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.connections.table.lock().open.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use axum::routing::post;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    use super::*;

    /// A connection as a client sees it; time passes only where everybody waits. With the program's own limits.
    fn connect() -> DuplexStream {
        let (client, server) = duplex(64 * 1024);
        let routes = Router::new().route("/", post(async |body: String| body));
        let (progress, _) = watch::channel((Phase::Arriving, Instant::now()));
        let (peer, limits) = (IpAddr::from([10, 0, 0, 1]), Limits::default());
        tokio::spawn(serve_connection(server, peer, routes, limits, progress, CancellationToken::new()));
        client
    }

    const HEAD: &str = "POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n";

    async fn response(client: &mut DuplexStream) -> String {
        let mut text = Vec::new();
        while !text.ends_with(b"ok") {
            match client.read_buf(&mut text).await {
                Ok(read) if read > 0 => {}
                closed => return format!("{closed:?} after {}", String::from_utf8_lossy(&text)),
            }
        }
        String::from_utf8_lossy(&text).split("\r\n").next().unwrap_or_default().to_owned()
    }

    async fn ask(client: &mut DuplexStream) -> String {
        if let Err(error) = client.write_all(format!("{HEAD}ok").as_bytes()).await {
            return error.to_string();
        }
        response(client).await
    }

    /// Waits until the server closes the connection; how long that took.
    async fn closed(client: &mut DuplexStream) -> Duration {
        let waiting = Instant::now();
        assert!(matches!(client.read(&mut [0; 16]).await, Ok(0) | Err(_)));
        waiting.elapsed()
    }

    /// An API server keeps an idle connection for 90 s: whatever the pause between two writes, none of them fails.
    #[tokio::test(start_paused = true)]
    async fn writes_with_any_pause_between_them_are_answered() {
        let pauses =
            [0, 499, 500, 501, 999, 1_000, 1_001, 4_999, 5_000, 5_001, 30_000, 60_000, 89_999, 90_000, 90_001, 119_000];
        // on one connection, and each on a connection that was opened long before its first request
        let mut kept = connect();
        for pause in pauses.map(Duration::from_millis) {
            sleep(pause).await;
            assert_eq!(ask(&mut kept).await, "HTTP/1.1 200 OK", "after {pause:?}");
            let mut unused = connect();
            sleep(pause).await;
            assert_eq!(ask(&mut unused).await, "HTTP/1.1 200 OK", "{pause:?} after it was opened");
            assert_eq!(ask(&mut kept).await, "HTTP/1.1 200 OK", "{pause:?} later");
        }
        assert_eq!(closed(&mut kept).await.as_secs(), 120);
    }

    /// The time for a head counts from its first byte, however long the connection was idle before, and not for a body.
    #[tokio::test(start_paused = true)]
    async fn a_head_may_be_slow_but_not_for_ever() {
        let mut client = connect();
        for idle in [0, 10, 115] {
            sleep(Duration::from_secs(idle)).await;
            for piece in [HEAD.get(..20).unwrap(), HEAD.get(20..).unwrap()] {
                client.write_all(piece.as_bytes()).await.unwrap();
                sleep(Duration::from_secs(4)).await;
            }
            sleep(Duration::from_secs(10)).await;
            client.write_all(b"ok").await.unwrap();
            assert_eq!(response(&mut client).await, "HTTP/1.1 200 OK", "{idle} s idle");
        }
        sleep(Duration::from_secs(60)).await;
        client.write_all(b"POST / HT").await.unwrap();
        assert_eq!(closed(&mut client).await.as_secs(), 5);
    }

    #[tokio::test]
    async fn the_peer_that_has_most_connections_gives_one_away() {
        let open = Arc::new(OpenConnections { most: 4, table: Mutex::default() });
        let connection = |n: u8, phase: Phase| {
            let (progress, phase) = watch::channel((phase, Instant::now()));
            let place = open.admit(IpAddr::from([10, 0, 0, n]), phase);
            place.map(|place| (place, progress))
        };
        let api_server = connection(1, Phase::Idle).unwrap();
        let (busy, idle, young) = (
            connection(2, Phase::Answering).unwrap(),
            connection(2, Phase::Idle).unwrap(),
            connection(2, Phase::Arriving).unwrap(),
        );
        let next = connection(1, Phase::Arriving).unwrap();
        assert!(idle.0.given_away.is_cancelled() && !busy.0.given_away.is_cancelled());
        drop(idle);
        assert_eq!(open.table.lock().open.len(), 4, "its place was given away already");
        // both peers have two now; those of the other are kept as long as it has not more
        let another = connection(2, Phase::Answering).unwrap();
        assert!(young.0.given_away.is_cancelled() && !api_server.0.given_away.is_cancelled());
        drop((young, next));
        let last = connection(2, Phase::Answering).unwrap();
        assert!(connection(3, Phase::Arriving).is_none(), "nobody who is being answered is disconnected");
        drop((api_server, busy, another, last));
        assert!(open.table.lock().open.is_empty());
    }

    #[tokio::test]
    async fn a_peer_with_one_connection_keeps_it_beside_one_with_many() {
        let open = Arc::new(OpenConnections { most: 4, table: Mutex::default() });
        let idle = |n: u8| {
            let (progress, phase) = watch::channel((Phase::Idle, Instant::now()));
            (open.admit(IpAddr::from([10, 0, 0, n]), phase).unwrap(), progress)
        };
        let (single, many) = (idle(9), [idle(1), idle(1), idle(1)]);
        let _next = idle(5);
        assert!(!single.0.given_away.is_cancelled());
        assert_eq!(many.map(|connection| connection.0.given_away.is_cancelled()), [true, false, false], "the oldest");
    }
}
