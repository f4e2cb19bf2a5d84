//! The endpoints over HTTP. Whatever a client sends, it gets a response of bounded size within bounded time.
//!
//! Limited are the size of a body, the large bodies in memory, the time for a body and for everything from the head of a request
//! to its response. Judging takes turns between clients, so that none has to wait for all the requests of another.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request as HttpRequest, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use jiff::Timestamp;
use strum::VariantArray;
use tokio::task::yield_now;
use tokio::time::{Instant, timeout};

use crate::Error;
use crate::body::{BodyError, Room};
use crate::connections::Peer;
use crate::handlers::{Endpoint, Handlers};
use crate::limits::Limits;
use crate::live::{LiveReader, settle};
use crate::metrics::Metrics;
use crate::request::{AdmissionRequest, Malformed};
use crate::response::AdmissionResponse;
use crate::turns::Turns;

/// What every request needs: the handlers, the metrics, room for its body and its turn to be judged.
pub struct Service {
    handlers: Handlers,
    live: Box<dyn LiveReader>,
    metrics: Arc<Metrics>,
    limits: Limits,
    room: Room,
    turns: Turns,
}

impl Service {
    /// A service that reads what its caches may not know yet through `live`.
    pub fn new(handlers: Handlers, live: Box<dyn LiveReader>, metrics: Arc<Metrics>, limits: Limits) -> Arc<Self> {
        Arc::new(Self { handlers, live, metrics, limits, room: Room::default(), turns: Turns::new(1) })
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

async fn answer(service: &Service, endpoint: Endpoint, request: HttpRequest) -> Response {
    let began = Instant::now();
    let response = timeout(service.limits.answer, answer_in_time(service, endpoint, request, began)).await;
    match response.unwrap_or_else(|_| Err(HttpError::slow(&service.limits))) {
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
    /// The body is larger than [`LARGEST_BODY`](crate::body::LARGEST_BODY).
    Large,
    /// The body is not a review, and its UID cannot be read.
    Malformed,
    /// The body, or the answer, took longer than its [`Limits`].
    Slow,
}

/// An HTTP response that is no review.
struct HttpError {
    status: StatusCode,
    reason: TurnedAway,
    message: String,
}

impl HttpError {
    fn slow(limits: &Limits) -> Self {
        let message = format!("the request was not read and answered within {:?}", limits.answer);
        Self { status: StatusCode::REQUEST_TIMEOUT, reason: TurnedAway::Slow, message }
    }

    fn malformed(error: &Error) -> Self {
        Self { status: StatusCode::BAD_REQUEST, reason: TurnedAway::Malformed, message: error.told() }
    }
}

impl From<BodyError> for HttpError {
    fn from(error: BodyError) -> Self {
        let (status, reason) = match error {
            BodyError::Large => (StatusCode::PAYLOAD_TOO_LARGE, TurnedAway::Large),
            BodyError::Slow(_) => (StatusCode::REQUEST_TIMEOUT, TurnedAway::Slow),
            BodyError::Broken(_) => (StatusCode::BAD_REQUEST, TurnedAway::Broken),
        };
        Self { status, reason, message: error.to_string() }
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
    let peer = request.extensions().get().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |Peer(address)| *address);
    let body = service.room.read(request.into_body(), length, peer, &service.limits).await?;

    let mut turn = service.turns.take(peer).await;
    let (uid, operation, response) = match AdmissionRequest::read(&body.bytes) {
        Err(Malformed::Unreadable(error)) => return Err(HttpError::malformed(&error)),
        Err(Malformed::Answerable { uid, error }) => (uid, String::new(), AdmissionResponse::bad(&error)),
        Ok(request) if !is_json => {
            (request.uid.into_owned(), request.operation, AdmissionResponse::bad(&Error::ContentType))
        }
        Ok(request) => {
            if let Some(concern) = service.handlers.unsettled(endpoint, &request, Timestamp::now()) {
                drop(turn); // it is not for waiting
                settle(&service.handlers.caches, &concern, &*service.live).await;
                turn = service.turns.take(peer).await;
            }
            let response = service.handlers.handle(endpoint, &request, Timestamp::now());
            log(endpoint, &request, &response);
            (request.uid.into_owned(), request.operation, response)
        }
    };
    // the requests of others arrive, before it is decided whose turn is next
    yield_now().await;
    drop(turn);
    service.metrics.answered(endpoint, &operation, response.verdict(), began.elapsed());
    Ok(([(header::CONTENT_TYPE, "application/json")], response.body(&uid)).into_response())
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

#[cfg(test)]
mod tests {
    use std::io::Write;

    use parking_lot::Mutex;

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// What the log says of an answer, at the level that is set by default.
    fn logged(response: &AdmissionResponse) -> String {
        let review = r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","name":"api","dryRun":true,"userInfo":{"username":"jane"}}}"#;
        let request = AdmissionRequest::read(review.as_bytes()).unwrap();
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(move || writer.clone())
            .with_max_level(tracing::Level::INFO)
            .with_ansi(false)
            .without_time()
            .with_target(false)
            .finish();
        tracing::subscriber::with_default(subscriber, || log(Endpoint::Guard, &request, response));
        String::from_utf8(lines.0.lock().clone()).unwrap()
    }

    /// Who was refused, and who has broken the glass, can be read in the log; what is ordinary only at a lower level.
    #[test]
    fn refusals_and_broken_glass_are_logged() {
        let about = r#"endpoint="/guard/annotations" name="api" user="jane" dry_run=true"#;
        let refused = logged(&AdmissionResponse::forbidden("no"));
        assert_eq!(refused, format!(" INFO refused a request {about} reason=\"no\"\n"));
        let audit = [("break-glass".to_owned(), "x".to_owned())].into();
        let broken = logged(&AdmissionResponse { audit, ..AdmissionResponse::allowed() });
        assert_eq!(
            broken,
            format!(" WARN allowed a change of guarded keys {about} audit={{\"break-glass\": \"x\"}}\n")
        );
        assert_eq!(logged(&AdmissionResponse::allowed()), "");
    }
}
