//! The HTTPS server: every request gets a bounded answer, whatever it sends.
//!
//! Limits: a body's size, the bytes of all bodies in flight (which bounds memory and concurrency alike), and time for the
//! handshake, the head, the body, and all of it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request as HttpRequest, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum_server::Handle;
use axum_server::tls_rustls::{RustlsAcceptor, RustlsConfig};
use http_body_util::{BodyExt, Limited};
use hyper_util::rt::TokioTimer;
use jiff::Timestamp;
use rustls::ServerConfig;
use rustls::server::{NoServerSessionStorage, ResolvesServerCert};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use crate::handlers::{Endpoint, Handlers};
use crate::metrics::Metrics;
use crate::request::{AdmissionRequest, Malformed};
use crate::response::AdmissionResponse;

/// Two objects of the largest size that etcd stores, and the rest of a review.
pub const LARGEST_BODY: usize = 4 * 1024 * 1024;

/// Bytes of all bodies in flight.
const IN_FLIGHT: usize = 8 * 1024 * 1024;

/// A small body takes this share of them, so that small ones are bounded in number, too.
const SMALLEST_SHARE: usize = 16 * 1024;

/// From the head of a request to its answer (§10).
const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// From the first byte of a connection to the head of its first request; from the first byte of a head to its end.
const HEAD_WITHIN: Duration = Duration::from_secs(5);

/// What the server needs.
pub struct Service {
    handlers: Handlers,
    metrics: Arc<Metrics>,
    body_budget: Semaphore,
}

impl Service {
    /// Over these handlers.
    pub fn new(handlers: Handlers, metrics: Arc<Metrics>) -> Arc<Self> {
        Arc::new(Self { handlers, metrics, body_budget: Semaphore::new(IN_FLIGHT) })
    }
}

/// One route per endpoint.
pub fn routes(service: Arc<Service>) -> Router {
    Endpoint::ALL
        .into_iter()
        .fold(Router::new(), |router, endpoint| {
            let answer = move |State(service): State<Arc<Service>>, request: HttpRequest| async move {
                answer(&service, endpoint, request).await
            };
            router.route(endpoint.path(), post(answer))
        })
        .with_state(service)
}

/// Serves until `handle` stops it. Certificates are asked for at each handshake.
pub async fn serve(
    listen: SocketAddr,
    routes: Router,
    certificates: Arc<dyn ResolvesServerCert>,
    handle: Handle<SocketAddr>,
) -> Result<(), String> {
    let mut config = ServerConfig::builder().with_no_client_auth().with_cert_resolver(certificates);
    // API servers keep connections and do not resume sessions; what they would need is not kept
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let listener = std::net::TcpListener::bind(listen).map_err(|e| {
        format!("--listen {listen} cannot be bound: {e}; name another address or end what listens there")
    })?;
    listener.set_nonblocking(true).map_err(|e| e.to_string())?;
    let acceptor = RustlsAcceptor::new(RustlsConfig::from_config(Arc::new(config))).handshake_timeout(HEAD_WITHIN);
    let mut server = axum_server::from_tcp(listener)
        .map_err(|e| e.to_string())?
        .acceptor(acceptor)
        .first_request_timeout(HEAD_WITHIN)
        .handle(handle);
    let http = server.http_builder();
    http.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_WITHIN).max_buf_size(64 * 1024);
    http.http2().timer(TokioTimer::new()).max_concurrent_streams(256).keep_alive_interval(Duration::from_secs(30));
    server.serve(routes.into_make_service()).await.map_err(|e| e.to_string())
}

async fn answer(service: &Service, endpoint: Endpoint, request: HttpRequest) -> Response {
    let began = Instant::now();
    match timeout(ANSWER_WITHIN, answer_in_time(service, endpoint, request, began)).await {
        Ok(Ok(response)) => response,
        Ok(Err(away)) => http_error_response(service, &away),
        Err(_) => {
            let why = format!("not read and answered within {ANSWER_WITHIN:?}");
            http_error_response(service, &HttpError(StatusCode::REQUEST_TIMEOUT, "slow", why))
        }
    }
}

/// Why a request is turned away: status, a word for metrics, a sentence.
struct HttpError(StatusCode, &'static str, String);

fn http_error_response(service: &Service, HttpError(status, word, why): &HttpError) -> Response {
    service.metrics.turned_away(word);
    tracing::debug!(%status, why, "turned away");
    (*status, format!("{why}\n")).into_response()
}

async fn answer_in_time(
    service: &Service,
    endpoint: Endpoint,
    request: HttpRequest,
    began: Instant,
) -> Result<Response, HttpError> {
    let is_json =
        request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).is_some_and(|kind| {
            kind.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/json")
        });
    let length = request.headers().get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    let share = budget_share(length)?;
    let _share = service
        .body_budget
        .acquire_many(share)
        .await
        .map_err(|_| HttpError(StatusCode::SERVICE_UNAVAILABLE, "stopping", "the webhook is stopping".into()))?;
    let body = read(request.into_body()).await?;
    let (uid, operation, response) = match AdmissionRequest::read(&body) {
        Err(Malformed::Unreadable(why)) => return Err(HttpError(StatusCode::BAD_REQUEST, "malformed", why)),
        Err(Malformed::Answerable { uid, why }) => (uid, String::new(), AdmissionResponse::bad(why)),
        Ok(request) if !is_json => {
            let why = "the content type is not application/json; send it as that";
            (request.uid.into_owned(), request.operation, AdmissionResponse::bad(why))
        }
        Ok(request) => {
            let response = service.handlers.handle(endpoint, &request, Timestamp::now());
            log(endpoint, &request, &response);
            (request.uid.into_owned(), request.operation, response)
        }
    };
    service.metrics.answered(endpoint, &operation, response.word(), began.elapsed());
    Ok(([(header::CONTENT_TYPE, "application/json")], response.body(&uid)).into_response())
}

fn budget_share(length: Option<usize>) -> Result<u32, HttpError> {
    let length = length.unwrap_or(LARGEST_BODY);
    if length > LARGEST_BODY {
        return Err(too_large());
    }
    Ok(u32::try_from(length.max(SMALLEST_SHARE)).unwrap_or(u32::MAX))
}

fn too_large() -> HttpError {
    let why = format!("the body is larger than {} MiB", LARGEST_BODY / 1024 / 1024);
    HttpError(StatusCode::PAYLOAD_TOO_LARGE, "large", why)
}

async fn read(body: Body) -> Result<axum::body::Bytes, HttpError> {
    match Limited::new(body, LARGEST_BODY).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => Err(too_large()),
        Err(error) => Err(HttpError(StatusCode::BAD_REQUEST, "broken", format!("the body broke off: {error}"))),
    }
}

fn log(endpoint: Endpoint, request: &AdmissionRequest<'_>, response: &AdmissionResponse) {
    let (name, user, dry_run) = (&request.name, &request.user_info.username, request.is_dry_run());
    match &response.rejection {
        Some(rejection) => {
            tracing::info!(endpoint = endpoint.path(), name, user, dry_run, why = rejection.message, "refused");
        }
        None if !response.audit.is_empty() => {
            tracing::warn!(endpoint = endpoint.path(), name, user, dry_run, why = ?response.audit, "let through");
        }
        None => tracing::debug!(endpoint = endpoint.path(), name, user, dry_run, "allowed"),
    }
}
