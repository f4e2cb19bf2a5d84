//! The one way to the API server: rate limited, timed, counted; every answer is one of a few outcomes (§8).
//!
//! The client's own retries are off (`default_retry`): a retry is a decision, and decisions are made in the queue.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kube::core::Status;
use serde_json::Value;
use tokio::time::Instant;

use crate::metrics::ClientMetrics;

/// No single request may take longer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// What became of a write.
#[derive(Debug)]
pub enum Outcome {
    /// It landed; the object as it is now (`Null` where the server sends a mere status).
    Applied(String),
    /// 409: it is another version by now, or (create) it is there already.
    Conflict,
    /// 404.
    NotFound,
    /// Timeout, cut connection, 5xx: it may have landed.
    Unknown(String),
    /// 403, 422, denied by admission.
    Rejected(String),
    /// 429 or 503 before the request was looked at: it did not land.
    Throttled(Option<Duration>, String),
}

impl Outcome {
    /// For metrics.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Applied(_) => "applied",
            Self::Conflict => "conflict",
            Self::NotFound => "not_found",
            Self::Unknown(_) => "unknown",
            Self::Rejected(_) => "rejected",
            Self::Throttled(..) => "throttled",
        }
    }
}

/// Why a read failed.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// 404.
    #[error("not found")]
    NotFound,
    /// 401 or 403.
    #[error("forbidden: {0}")]
    Forbidden(String),
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

/// The API server.
#[derive(Clone)]
pub struct Api {
    client: kube::Client,
    bucket: Arc<Bucket>,
    client_metrics: Arc<ClientMetrics>,
}

/// The content type of merge patches.
const MERGE_PATCH: &str = "application/merge-patch+json";

impl Api {
    /// Over this client; `rate` requests a second, `burst` at once.
    pub fn new(client: kube::Client, rate: u16, burst: u16, client_metrics: Arc<ClientMetrics>) -> Self {
        Self { client, bucket: Arc::new(Bucket::new(rate, burst)), client_metrics }
    }

    /// The same server without the rate limit, for the lease.
    pub fn unlimited(&self) -> Self {
        Self { bucket: Arc::new(Bucket::new(u16::MAX, u16::MAX)), ..self.clone() }
    }

    /// The client, for watches.
    pub fn client(&self) -> &kube::Client {
        &self.client
    }

    /// Reads one object or list.
    pub async fn get(&self, path: &str) -> Result<String, ReadError> {
        match self.send("get", "GET", path, "", String::new()).await {
            Ok(text) => Ok(text),
            Err(Failure::Status(status)) => Err(match status.code {
                404 => ReadError::NotFound,
                401 | 403 => ReadError::Forbidden(status.message),
                _ => ReadError::Other(status.message),
            }),
            Err(Failure::Transport(why)) => Err(ReadError::Other(why)),
        }
    }

    /// Sends a merge patch that carries a resourceVersion.
    pub async fn patch(&self, path: &str, body: &Value) -> Outcome {
        outcome(self.send("patch", "PATCH", path, MERGE_PATCH, body.to_string()).await)
    }

    /// Creates an object.
    pub async fn create(&self, collection: &str, body: &Value) -> Outcome {
        outcome(self.send("create", "POST", collection, "application/json", body.to_string()).await)
    }

    /// Replaces an object that carries a resourceVersion.
    pub async fn replace(&self, path: &str, body: &Value) -> Outcome {
        outcome(self.send("update", "PUT", path, "application/json", body.to_string()).await)
    }

    /// Deletes an object with preconditions.
    pub async fn delete(&self, path: &str, uid: &str, version: Option<&str>) -> Outcome {
        let mut preconditions = serde_json::json!({"uid": uid});
        if let (Some(version), Some(object)) = (version, preconditions.as_object_mut()) {
            object.insert("resourceVersion".into(), version.into());
        }
        let body = serde_json::json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions});
        outcome(self.send("delete", "DELETE", path, "application/json", body.to_string()).await)
    }

    async fn send(
        &self,
        verb: &'static str,
        method: &str,
        path: &str,
        content: &str,
        body: String,
    ) -> Result<String, Failure> {
        self.bucket.take().await;
        let resource = resource_of(path);
        let mut request = http::Request::builder().method(method).uri(path);
        if !content.is_empty() {
            request = request.header(http::header::CONTENT_TYPE, content);
        }
        let request = request.body(body.into_bytes()).map_err(|e| Failure::Transport(e.to_string()))?;
        let answer = tokio::time::timeout(TIMEOUT, self.client.request_text(request)).await;
        let result = match answer {
            Err(_) => Err(Failure::Transport(format!("no answer within {TIMEOUT:?}"))),
            Ok(Ok(text)) => Ok(text),
            Ok(Err(kube::Error::Api(status))) => Err(Failure::Status(status)),
            Ok(Err(other)) => Err(Failure::Transport(with_causes(&other))),
        };
        let code = match &result {
            Ok(_) => 200,
            Err(Failure::Status(status)) => status.code,
            Err(Failure::Transport(_)) => 0,
        };
        self.client_metrics.api_request(verb, resource, code);
        result
    }
}

enum Failure {
    Status(Box<Status>),
    Transport(String),
}

fn outcome(result: Result<String, Failure>) -> Outcome {
    match result {
        Ok(text) => Outcome::Applied(text),
        Err(Failure::Transport(why)) => Outcome::Unknown(why),
        Err(Failure::Status(status)) => {
            let retry_after = status
                .details
                .as_ref()
                .map(|d| u64::from(d.retry_after_seconds))
                .filter(|seconds| *seconds > 0)
                .map(Duration::from_secs);
            match status.code {
                404 => Outcome::NotFound,
                409 => Outcome::Conflict,
                429 => Outcome::Throttled(retry_after, status.message),
                400..=499 => Outcome::Rejected(status.message),
                _ => Outcome::Unknown(status.message),
            }
        }
    }
}

/// An error with everything that caused it.
pub fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text.push_str(": ");
            text.push_str(&inner_text);
        }
        cause = inner.source();
    }
    text
}

/// The plural in a path, with its subresource: `nodes`, `rotationpolicies/status`.
fn resource_of(path: &str) -> &'static str {
    const KNOWN: [&str; 12] = [
        "rotationpolicies",
        "nodepools",
        "nodeclaims",
        "nodes",
        "pods",
        "events",
        "leases",
        "persistentvolumeclaims",
        "persistentvolumes",
        "secrets",
        "mutatingwebhookconfigurations",
        "validatingwebhookconfigurations",
    ];
    let path = path.split('?').next().unwrap_or_default();
    KNOWN.into_iter().find(|name| path.split('/').any(|part| part == *name)).unwrap_or("other")
}

/// A token bucket: `rate` tokens a second, `burst` at most.
struct Bucket {
    rate: f64,
    burst: f64,
    state: Mutex<(f64, Instant)>,
}

impl Bucket {
    fn new(rate: u16, burst: u16) -> Self {
        Self { rate: f64::from(rate), burst: f64::from(burst), state: Mutex::new((f64::from(burst), Instant::now())) }
    }

    /// Takes a token, waiting in line for it.
    async fn take(&self) {
        let wait = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            let now = Instant::now();
            let filled = (state.0 + now.duration_since(state.1).as_secs_f64() * self.rate).min(self.burst);
            *state = (filled - 1.0, now);
            (1.0 - filled).max(0.0) / self.rate
        };
        if wait > 0.0 {
            tokio::time::sleep(Duration::from_secs_f64(wait)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_bucket_lets_a_burst_through_and_then_the_rate() {
        let bucket = Bucket::new(20, 40);
        let began = Instant::now();
        for _ in 0..40 {
            bucket.take().await;
        }
        assert_eq!(began.elapsed(), Duration::ZERO);
        for _ in 0..20 {
            bucket.take().await;
        }
        assert!((0.99..1.05).contains(&began.elapsed().as_secs_f64()), "{:?}", began.elapsed());
    }

    #[test]
    fn answers_become_outcomes() {
        let answer = |code: u16| {
            let status = Status { code, message: "m".into(), ..Status::default() };
            outcome(Err(Failure::Status(Box::new(status)))).word()
        };
        let table = [
            (404, "not_found"),
            (409, "conflict"),
            (403, "rejected"),
            (422, "rejected"),
            (400, "rejected"),
            (429, "throttled"),
            (500, "unknown"),
            (503, "unknown"),
            (504, "unknown"),
        ];
        for (code, word) in table {
            assert_eq!(answer(code), word, "{code}");
        }
    }

    #[test]
    fn paths_have_resources() {
        assert_eq!(resource_of("/api/v1/namespaces/pods-ns/pods/x"), "pods");
        assert_eq!(resource_of("/apis/karpenter.sh/v1/nodeclaims/nodes"), "nodeclaims");
        assert_eq!(resource_of("/api/v1/pods?fieldSelector=spec.nodeName=x"), "pods");
    }
}
