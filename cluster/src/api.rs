//! The one way to the API server: rate limited, timed, counted; the answer to every write is one of a few outcomes (§8).
//!
//! The client's own retries are off (`default_retry`): whether and when to retry is decided in the work queue.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Limited};
use kube::client::Body;
use kube::core::params::{
    DeleteParams, GetParams, ListParams, Patch, PatchParams, PostParams, Preconditions, WatchParams,
};
use kube::core::{Request, Status, WatchEvent};
use noderotation_shared::kind::{Kind, ObjectRef};
use parking_lot::Mutex;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::{Instant, timeout};

use crate::error::{Error, with_causes};
use crate::metrics::ClientMetrics;

/// No single request takes longer; a watch only until its first byte.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// No answer that we ask for is larger: a page of 200 Nodes with everything that kubelets write has 3 MiB.
const LARGEST_ANSWER: usize = 64 * 1024 * 1024;

/// Objects in one page of a list. A list without a limit is one body: 52 MB at 5,000 Nodes.
const PAGE: u32 = 200;

/// What became of a write.
#[derive(Debug)]
pub enum Outcome {
    /// It landed. The text is the object as it is now; a deletion may answer with a mere `Status`.
    Applied(String),
    /// 409: the object has another version by now, or (create) exists already.
    Conflict,
    /// 404: there is no such object.
    NotFound,
    /// No answer, a broken connection, or 5xx: it may have landed.
    Unknown(Error),
    /// 403, 422, another refusal, or an admission webhook that does not answer: it did not land and would not the next time.
    Rejected(Error),
    /// 429: it did not land; the error says how long to wait, if the server did.
    Throttled(Error),
}

impl Outcome {
    /// The `outcome` label of `write_outcomes_total` (§11).
    pub fn label(&self) -> &'static str {
        match self {
            Self::Applied(_) => "applied",
            Self::Conflict => "conflict",
            Self::NotFound => "not_found",
            Self::Unknown(_) => "unknown",
            Self::Rejected(_) => "rejected",
            Self::Throttled(_) => "throttled",
        }
    }
}

/// For log lines: the label, and the error where there is one.
impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(error) | Self::Rejected(error) | Self::Throttled(error) => {
                write!(f, "{}: {}", self.label(), with_causes(error))
            }
            Self::Applied(_) | Self::Conflict | Self::NotFound => f.write_str(self.label()),
        }
    }
}

impl From<Result<String, Error>> for Outcome {
    fn from(result: Result<String, Error>) -> Self {
        match result {
            Ok(text) => Self::Applied(text),
            Err(error) => match error.code() {
                Some(404) => Self::NotFound,
                Some(409) => Self::Conflict,
                Some(429) => Self::Throttled(error),
                Some(400..=499) => Self::Rejected(error),
                _ if error.is_of_admission() => Self::Rejected(error),
                _ if matches!(error, Error::Request(_)) => Self::Rejected(error), // it was never sent
                _ => Self::Unknown(error),
            },
        }
    }
}

/// The API server.
#[derive(Clone)]
pub struct Api {
    client: kube::Client,
    bucket: Arc<TokenBucket>,
    client_metrics: Arc<ClientMetrics>,
}

impl Api {
    /// Requests go through this client, at most `rate` a second and `burst` at once.
    pub fn new(client: kube::Client, rate: u16, burst: u16, client_metrics: Arc<ClientMetrics>) -> Self {
        Self { client, bucket: Arc::new(TokenBucket::new(rate, burst)), client_metrics }
    }

    /// The same server without the rate limit, for the lease.
    pub fn unlimited(&self) -> Self {
        Self { bucket: Arc::new(TokenBucket::new(u16::MAX, u16::MAX)), ..self.clone() }
    }

    /// Reads one object, live.
    pub async fn get(&self, object: ObjectRef<'_>) -> Result<String, Error> {
        let request = collection(object.kind, object.namespace).get(object.name, &GetParams::default())?;
        self.send("get", object.kind.plural(), request).await
    }

    /// Reads one object, live, and parses it.
    pub async fn read<T: DeserializeOwned>(&self, object: ObjectRef<'_>) -> Result<T, Error> {
        let text = self.get(object).await?;
        serde_json::from_str(&text).map_err(|source| Error::Parse { kind: object.kind, source })
    }

    /// Lists a kind page by page and hands over each object as it is parsed. Returns the list's `resourceVersion`.
    pub async fn list<T: DeserializeOwned>(
        &self,
        kind: Kind,
        namespace: Option<&str>,
        selectors: &Selectors,
        mut each: impl FnMut(T),
    ) -> Result<String, Error> {
        #[derive(Deserialize)]
        struct Page<T> {
            #[serde(default)]
            metadata: PageMeta,
            items: Option<Vec<T>>,
        }
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        struct PageMeta {
            resource_version: String,
            r#continue: String,
        }
        let mut params = selectors.list().limit(PAGE);
        loop {
            let request = collection(kind, namespace).list(&params)?;
            let text = self.send("list", kind.plural(), request).await?;
            let page: Page<T> = serde_json::from_str(&text).map_err(|source| Error::Parse { kind, source })?;
            page.items.into_iter().flatten().for_each(&mut each);
            if page.metadata.r#continue.is_empty() {
                return Ok(page.metadata.resource_version);
            }
            params = selectors.list().limit(PAGE).continue_token(&page.metadata.r#continue);
        }
    }

    /// Asks whether this account may list a kind: one object at most is read.
    pub async fn probe(&self, kind: Kind) -> Result<(), Error> {
        let request = collection(kind, None).list(&ListParams::default().limit(1))?;
        self.send("list", kind.plural(), request).await.map(|_| ())
    }

    /// Opens a watch. With `version` it goes on from there; without, the server streams the initial state first.
    pub async fn watch<T: Clone + DeserializeOwned>(
        &self,
        kind: Kind,
        namespace: Option<&str>,
        selectors: &Selectors,
        version: Option<&str>,
    ) -> Result<impl futures::Stream<Item = Result<WatchEvent<T>, kube::Error>> + use<T>, Error> {
        let mut params = selectors.watch().timeout(290);
        params.bookmarks = true;
        if version.is_none() {
            params = params.initial_events();
        }
        let request = collection(kind, namespace).watch(&params, version.unwrap_or_default())?;
        self.bucket.take().await;
        // a server that accepts the connection and sends nothing must be noticed
        let opened = timeout(REQUEST_TIMEOUT, self.client.request_events::<T>(request)).await;
        let result = match opened {
            Err(_) => Err(Error::Timeout(REQUEST_TIMEOUT)),
            Ok(Err(kube::Error::Api(status))) => Err(Error::Status { retry_after: told_to_wait(&status), status }),
            Ok(other) => other.map_err(Error::Transport),
        };
        let code = result.as_ref().map_or_else(|error| error.code().unwrap_or(0), |_| 200);
        self.client_metrics.api_request("watch", kind.plural(), code);
        result
    }

    /// Sends a merge patch. It must carry the `resourceVersion` that its author saw.
    pub async fn patch(&self, object: ObjectRef<'_>, body: &Value) -> Outcome {
        let request =
            collection(object.kind, object.namespace).patch(object.name, &PatchParams::default(), &Patch::Merge(body));
        self.write("patch", object.kind.plural(), request).await
    }

    /// Asks what would become of a merge patch. Nothing is stored.
    pub async fn try_patch(&self, object: ObjectRef<'_>, body: &Value) -> Outcome {
        let params = PatchParams { dry_run: true, ..PatchParams::default() };
        let request = collection(object.kind, object.namespace).patch(object.name, &params, &Patch::Merge(body));
        self.write("patch", object.kind.plural(), request).await
    }

    /// Sends a merge patch to the status subresource of a RotationPolicy.
    pub async fn patch_policy_status(&self, name: &str, body: &Value) -> Outcome {
        let collection = collection(Kind::RotationPolicy, None);
        let request = collection.patch_subresource("status", name, &PatchParams::default(), &Patch::Merge(body));
        self.write("patch", "rotationpolicies/status", request).await
    }

    /// Creates an object.
    pub async fn create(&self, kind: Kind, namespace: Option<&str>, body: &Value) -> Outcome {
        let request = collection(kind, namespace).create(&PostParams::default(), body.to_string().into_bytes());
        self.write("create", kind.plural(), request).await
    }

    /// Replaces an object. The body must carry the `resourceVersion` that its author saw.
    pub async fn replace(&self, object: ObjectRef<'_>, body: &Value) -> Outcome {
        let body = body.to_string().into_bytes();
        let request = collection(object.kind, object.namespace).replace(object.name, &PostParams::default(), body);
        self.write("update", object.kind.plural(), request).await
    }

    /// Deletes an object if it still has this UID and, where given, this `resourceVersion`.
    pub async fn delete(&self, object: ObjectRef<'_>, uid: &str, version: Option<&str>) -> Outcome {
        let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: version.map(str::to_owned) };
        let params = DeleteParams::default().preconditions(preconditions);
        let request = collection(object.kind, object.namespace).delete(object.name, &params);
        self.write("delete", object.kind.plural(), request).await
    }

    async fn write(
        &self,
        verb: &'static str,
        resource: &'static str,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Outcome {
        match request {
            Ok(request) => self.send(verb, resource, request).await.into(),
            Err(error) => Err(Error::from(error)).into(),
        }
    }

    async fn send(
        &self,
        verb: &'static str,
        resource: &'static str,
        request: http::Request<Vec<u8>>,
    ) -> Result<String, Error> {
        self.bucket.take().await;
        let answer = timeout(REQUEST_TIMEOUT, self.exchange(request)).await;
        let result = answer.unwrap_or(Err(Error::Timeout(REQUEST_TIMEOUT)));
        let code = result.as_ref().map_or_else(|error| error.code().unwrap_or(0), |_| 200);
        self.client_metrics.api_request(verb, resource, code);
        result
    }

    /// One request and its whole answer. `kube::Client::request_text` would hide the `Retry-After` header.
    async fn exchange(&self, request: http::Request<Vec<u8>>) -> Result<String, Error> {
        let answer = self.client.send(request.map(Body::from)).await.map_err(Error::Transport)?;
        let (head, body) = answer.into_parts();
        let bytes = Limited::new(body, LARGEST_ANSWER).collect().await.map_err(|e| Error::Body(e.to_string()))?;
        let text = String::from_utf8(bytes.to_bytes().into()).map_err(|e| Error::Body(e.to_string()))?;
        if head.status.is_success() {
            return Ok(text);
        }
        let code = head.status.as_u16();
        // a proxy in between answers with text of its own
        let parsed = serde_json::from_str::<Status>(&text).ok().filter(|status| status.code == code);
        let status =
            parsed.unwrap_or_else(|| Status { code, message: text.chars().take(200).collect(), ..Status::default() });
        let header = head.headers.get(http::header::RETRY_AFTER).and_then(|v| v.to_str().ok()?.parse().ok());
        let retry_after = header.map(Duration::from_secs).or_else(|| told_to_wait(&status));
        Err(Error::Status { status: Box::new(status), retry_after })
    }
}

fn collection(kind: Kind, namespace: Option<&str>) -> Request {
    Request::new(kind.collection(namespace))
}

fn told_to_wait(status: &Status) -> Option<Duration> {
    let seconds = status.details.as_ref().map(|details| details.retry_after_seconds)?;
    (seconds > 0).then(|| Duration::from_secs(seconds.into()))
}

/// Which objects of a kind to list or to watch; by default all.
#[derive(Clone, Debug, Default)]
pub struct Selectors {
    /// A label selector, for example `noderotation.io/surge-for`.
    pub labels: Option<String>,
    /// A field selector, for example `spec.nodeName=a`.
    pub fields: Option<String>,
}

impl Selectors {
    /// The objects that carry a label, whatever its value.
    pub fn labelled(key: &str) -> Self {
        Self { labels: Some(key.to_owned()), fields: None }
    }

    /// The objects whose fields match.
    pub fn fields(selector: impl Into<String>) -> Self {
        Self { labels: None, fields: Some(selector.into()) }
    }

    fn list(&self) -> ListParams {
        ListParams { label_selector: self.labels.clone(), field_selector: self.fields.clone(), ..ListParams::default() }
    }

    fn watch(&self) -> WatchParams {
        WatchParams {
            label_selector: self.labels.clone(),
            field_selector: self.fields.clone(),
            ..WatchParams::default()
        }
    }
}

/// A token bucket: `rate` tokens a second, at most `burst` at once.
struct TokenBucket {
    rate: f64,
    burst: f64,
    /// Tokens (negative: owed to those who wait) at an instant.
    level: Mutex<(f64, Instant)>,
}

impl TokenBucket {
    fn new(rate: u16, burst: u16) -> Self {
        Self { rate: f64::from(rate), burst: f64::from(burst), level: Mutex::new((f64::from(burst), Instant::now())) }
    }

    /// Takes a token, waiting in line for it.
    async fn take(&self) {
        let wait = {
            let mut level = self.level.lock();
            let now = Instant::now();
            let filled = (level.0 + now.duration_since(level.1).as_secs_f64() * self.rate).min(self.burst);
            *level = (filled - 1.0, now);
            (1.0 - filled).max(0.0) / self.rate
        };
        if wait > 0.0 {
            tokio::time::sleep(Duration::from_secs_f64(wait)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_bucket_lets_a_burst_through_and_then_the_rate() {
        let bucket = TokenBucket::new(20, 40);
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

    #[tokio::test(start_paused = true)]
    async fn who_finds_the_bucket_empty_waits_in_line() {
        let bucket = TokenBucket::new(20, 1);
        let began = Instant::now();
        let taken = async || {
            bucket.take().await;
            began.elapsed().as_millis()
        };
        let all = futures::join!(taken(), taken(), taken(), taken());
        // the clock of tokio has ticks of a millisecond
        for (at, due) in [all.0, all.1, all.2, all.3].into_iter().zip([0, 50, 100, 150]) {
            assert!((due..=due + 1).contains(&at), "{all:?}");
        }
    }

    /// Between two ticks of the clock, where any sleep would last until the next one.
    #[tokio::test(start_paused = true)]
    async fn a_token_that_is_there_is_taken_without_a_sleep() {
        let bucket = TokenBucket::new(20, 1);
        tokio::time::advance(Duration::from_micros(300)).await;
        assert_eq!(bucket.take().now_or_never(), Some(()));
        assert_eq!(bucket.take().now_or_never(), None, "there was only one");
    }

    #[test]
    fn answers_become_outcomes() {
        let answer = |code: u16| {
            let status = Box::new(Status { code, message: "m".into(), ..Status::default() });
            Outcome::from(Err(Error::Status { status, retry_after: None })).label()
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
        for (code, label) in table {
            assert_eq!(answer(code), label, "{code}");
        }
        assert_eq!(Outcome::from(Err(Error::Timeout(REQUEST_TIMEOUT))).label(), "unknown");
    }
}
