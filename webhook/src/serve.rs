//! The HTTPS server. Whatever a client sends, it gets a response of bounded size within bounded time.
//!
//! Limited are the size of a body, the bytes of all bodies in flight (and thereby memory and concurrency), and the time for
//! the TLS handshake, for the head of a request, and for everything from there to the response.

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
use noderotation_cluster::error::with_causes;
use rustls::ServerConfig;
use rustls::server::{NoServerSessionStorage, ResolvesServerCert};
use strum::VariantArray;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use crate::Error;
use crate::handlers::{Endpoint, Handlers};
use crate::metrics::Metrics;
use crate::request::{AdmissionRequest, Malformed};
use crate::response::AdmissionResponse;

/// The largest body, in bytes: a review with two objects of the largest size that etcd stores.
pub const LARGEST_BODY: usize = 4 * 1024 * 1024;

/// The bytes of all bodies in flight together; further requests wait.
const IN_FLIGHT: usize = 8 * 1024 * 1024;

/// The least that a body takes of [`IN_FLIGHT`], in bytes: it bounds the number of small requests as well.
const SMALLEST_SHARE: usize = 16 * 1024;

/// The time from the head of a request to its response (§10: within 1 s).
const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// The time for the TLS handshake, for the head of the first request of a connection, and for any head once it has begun.
const HEAD_WITHIN: Duration = Duration::from_secs(5);

/// What every request needs: the handlers, the metrics, and its share of the memory for bodies.
pub struct Service {
    handlers: Handlers,
    metrics: Arc<Metrics>,
    body_budget: Semaphore,
}

impl Service {
    /// A service with the whole budget for bodies.
    pub fn new(handlers: Handlers, metrics: Arc<Metrics>) -> Arc<Self> {
        Arc::new(Self { handlers, metrics, body_budget: Semaphore::new(IN_FLIGHT) })
    }
}

/// The routes of all endpoints; anything else gets 404 or 405.
pub fn routes(service: Arc<Service>) -> Router {
    Endpoint::VARIANTS
        .iter()
        .fold(Router::new(), |router, &endpoint| {
            let answer = move |State(service): State<Arc<Service>>, request: HttpRequest| async move {
                answer(&service, endpoint, request).await
            };
            router.route(endpoint.path(), post(answer))
        })
        .with_state(service)
}

/// Serves on `listen` until `handle` stops it. `certificates` is asked at each TLS handshake.
pub async fn serve(
    listen: SocketAddr,
    routes: Router,
    certificates: Arc<dyn ResolvesServerCert>,
    handle: Handle<SocketAddr>,
) -> Result<(), Error> {
    let mut config = ServerConfig::builder().with_no_client_auth().with_cert_resolver(certificates);
    // API servers keep their connections instead of resuming sessions, so session state would only cost memory
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let bind = |source| Error::Bind { address: listen, source };
    let listener = std::net::TcpListener::bind(listen).map_err(bind)?;
    listener.set_nonblocking(true).map_err(bind)?;
    let acceptor = RustlsAcceptor::new(RustlsConfig::from_config(Arc::new(config))).handshake_timeout(HEAD_WITHIN);
    let mut server = axum_server::from_tcp(listener)
        .map_err(bind)?
        .acceptor(acceptor)
        .first_request_timeout(HEAD_WITHIN)
        .handle(handle);
    let http = server.http_builder();
    http.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_WITHIN).max_buf_size(64 * 1024);
    http.http2().timer(TokioTimer::new()).max_concurrent_streams(256).keep_alive_interval(Duration::from_secs(30));
    server.serve(routes.into_make_service()).await.map_err(Error::Serve)
}

async fn answer(service: &Service, endpoint: Endpoint, request: HttpRequest) -> Response {
    let began = Instant::now();
    let response = timeout(ANSWER_WITHIN, answer_in_time(service, endpoint, request, began)).await;
    match response.unwrap_or_else(|_| Err(HttpError::slow())) {
        Ok(response) => response,
        Err(HttpError { status, reason, message }) => {
            service.metrics.turned_away(reason);
            tracing::debug!(%status, reason = message, "turned an HTTP request away before judging it");
            (status, format!("{message}\n")).into_response()
        }
    }
}

/// Why an HTTP request is turned away before an endpoint judges it, as the label of the metric `admission_turned_away_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum TurnedAway {
    /// The body ended early.
    Broken,
    /// The body is larger than [`LARGEST_BODY`].
    Large,
    /// The body is not a review, and its UID cannot be read.
    Malformed,
    /// The request took longer than a second, or found no room for its body within it.
    Slow,
    /// The process is shutting down.
    Stopping,
}

/// An HTTP response that is no review.
struct HttpError {
    status: StatusCode,
    reason: TurnedAway,
    message: String,
}

impl HttpError {
    fn slow() -> Self {
        let message = format!("the request was not read and answered within {ANSWER_WITHIN:?}");
        Self { status: StatusCode::REQUEST_TIMEOUT, reason: TurnedAway::Slow, message }
    }

    fn too_large() -> Self {
        let message = format!("the body is larger than {} MiB", LARGEST_BODY / 1024 / 1024);
        Self { status: StatusCode::PAYLOAD_TOO_LARGE, reason: TurnedAway::Large, message }
    }

    fn malformed(reason: TurnedAway, message: String) -> Self {
        Self { status: StatusCode::BAD_REQUEST, reason, message }
    }

    fn stopping() -> Self {
        let message = "the webhook is shutting down".into();
        Self { status: StatusCode::SERVICE_UNAVAILABLE, reason: TurnedAway::Stopping, message }
    }
}

async fn answer_in_time(
    service: &Service,
    endpoint: Endpoint,
    request: HttpRequest,
    began: Instant,
) -> Result<Response, HttpError> {
    let is_json =
        request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).is_some_and(|value| {
            value.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/json")
        });
    let length = request.headers().get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    let _share = service.body_budget.acquire_many(budget_share(length)?).await.map_err(|_| HttpError::stopping())?;
    let body = read(request.into_body()).await?;
    let (uid, operation, response) = match AdmissionRequest::read(&body) {
        Err(Malformed::Unreadable(error)) => {
            return Err(HttpError::malformed(TurnedAway::Malformed, with_causes(&error)));
        }
        Err(Malformed::Answerable { uid, error }) => (uid, String::new(), AdmissionResponse::bad(&error)),
        Ok(request) if !is_json => {
            (request.uid.into_owned(), request.operation, AdmissionResponse::bad(&Error::ContentType))
        }
        Ok(request) => {
            let response = service.handlers.handle(endpoint, &request, Timestamp::now());
            log(endpoint, &request, &response);
            (request.uid.into_owned(), request.operation, response)
        }
    };
    service.metrics.answered(endpoint, &operation, response.verdict(), began.elapsed());
    Ok(([(header::CONTENT_TYPE, "application/json")], response.body(&uid)).into_response())
}

/// The bytes of the budget that a body of this length takes; a length that was not announced counts as the largest.
fn budget_share(length: Option<usize>) -> Result<u32, HttpError> {
    let length = length.unwrap_or(LARGEST_BODY);
    if length > LARGEST_BODY {
        return Err(HttpError::too_large());
    }
    Ok(u32::try_from(length.max(SMALLEST_SHARE)).unwrap_or(u32::MAX))
}

async fn read(body: Body) -> Result<axum::body::Bytes, HttpError> {
    match Limited::new(body, LARGEST_BODY).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => Err(HttpError::too_large()),
        Err(error) => {
            let message = format!("the body ended early: {}", with_causes(&*error));
            Err(HttpError::malformed(TurnedAway::Broken, message))
        }
    }
}

fn log(endpoint: Endpoint, request: &AdmissionRequest<'_>, response: &AdmissionResponse) {
    let (endpoint, name, user, dry_run) =
        (endpoint.path(), &request.name, &request.user_info.username, request.is_dry_run());
    match &response.rejection {
        Some(rejection) => {
            tracing::info!(endpoint, name, user, dry_run, reason = rejection.message, "refused a request");
        }
        None if !response.audit.is_empty() => {
            tracing::warn!(endpoint, name, user, dry_run, audit = ?response.audit, "allowed a change of guarded keys");
        }
        None => tracing::debug!(endpoint, name, user, dry_run, "allowed a request"),
    }
}
