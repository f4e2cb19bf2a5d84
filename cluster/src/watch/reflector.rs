//! Lists and watches one kind, for as long as the process lives (§8).
//!
//! The initial state is streamed (`sendInitialEvents`), or listed page by page where the server cannot stream. A watch
//! resumes from its last resourceVersion with bookmarks. After 410 it begins anew, and what vanished meanwhile is told.
//! Silence of 200 s ends the connection, since it may be dead without either side having noticed.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use kube::core::WatchEvent;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::EventHandler;
use super::fresh::Freshness;
use crate::api::{Api, Selectors};
use crate::backoff::backoff;
use crate::error::{Error, with_causes};
use crate::metrics::ClientMetrics;
use crate::objects::{Cached, name_of};

/// Without an event or a bookmark for this long, the reflector reconnects.
const SILENCE: Duration = Duration::from_secs(200);

/// A watch that ended sooner than this did not go well, however it ended.
const SHORT: Duration = Duration::from_secs(10);

/// Which objects a reflector lists and watches.
#[derive(Clone, Debug, Default)]
pub struct ListWatch {
    namespace: Option<String>,
    selectors: Selectors,
}

impl ListWatch {
    /// Every object of a cluster-scoped kind.
    pub fn all() -> Self {
        Self::default()
    }

    /// The one object of this name, which need not exist; in a namespace where the kind has one.
    pub fn named(namespace: Option<&str>, name: &str) -> Self {
        Self { namespace: namespace.map(str::to_owned), selectors: Selectors::fields(format!("metadata.name={name}")) }
    }

    /// The objects of a namespace that carry a label.
    pub fn labelled(namespace: &str, label: &str) -> Self {
        Self { namespace: Some(namespace.to_owned()), selectors: Selectors::labelled(label) }
    }

    /// Lists them page by page; an object that cannot be parsed is passed to `each` as well. Returns the list's version.
    pub async fn list<K: Cached>(&self, api: &Api, mut each: impl FnMut(Result<K, Unparsed>)) -> Result<String, Error> {
        api.list(K::KIND, self.namespace.as_deref(), &self.selectors, |raw: Raw| each(raw.parse())).await
    }
}

/// An object that its kind's reader does not understand.
#[derive(Debug, thiserror::Error)]
#[error("{name}: {source}")]
pub struct Unparsed {
    /// Its name, as far as it has one.
    pub name: String,
    source: serde_json::Error,
}

/// An object as text. Each kind's own lenient reader parses it, so that one malformed object never stops a watch.
#[derive(Clone)]
struct Raw(Box<RawValue>);

impl Raw {
    fn parse<K: Cached>(&self) -> Result<K, Unparsed> {
        K::read(self.0.get()).map_err(|source| Unparsed { name: name_of(self.0.get()), source })
    }
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Box::<RawValue>::deserialize(deserializer).map(Raw)
    }
}

/// Why a watch ended.
enum Ended {
    /// The server closed it, as it does every few minutes.
    Normally,
    /// 410: the resourceVersion is too old, so list again.
    Expired,
    /// The server cannot stream the initial state.
    CannotStream,
    /// Something failed; the sentence goes into the log.
    Failed(String),
}

/// Keeps `handler` informed about one kind. Never returns; a panic in it ends the process.
pub async fn reflect<K: Cached>(
    api: Api,
    list_watch: ListWatch,
    handler: Arc<dyn EventHandler<K>>,
    fresh: Arc<Freshness>,
    client_metrics: Arc<ClientMetrics>,
) {
    let mut reflector =
        Reflector { api, list_watch, handler, fresh, client_metrics, version: None, can_stream: true, reason: "start" };
    // watches in a row that ended too soon
    let mut short = 0u32;
    loop {
        let began = Instant::now();
        let ended = reflector.watch_once().await;
        short = if began.elapsed() < SHORT { short + 1 } else { 0 };
        let failure = match ended {
            Ended::Normally => None,
            Ended::CannotStream => {
                reflector.can_stream = false;
                None
            }
            Ended::Expired => {
                reflector.version = None;
                reflector.reason = "expired";
                None
            }
            Ended::Failed(why) => Some(why),
        };
        // a first 410 or an early close is ordinary; a server that goes on like that is not asked without pause
        let wait = match (&failure, short) {
            (None, 0 | 1) => continue,
            (None, n) => backoff((n - 2).min(5)),
            (Some(_), n) => backoff(n.saturating_sub(1).min(5)),
        };
        let error = failure.unwrap_or_else(|| "the watch ended at once".into());
        tracing::warn!(resource = K::KIND.plural(), error, retry_in = ?wait, "watch failed");
        tokio::time::sleep(wait).await;
    }
}

struct Reflector<K: Cached> {
    api: Api,
    list_watch: ListWatch,
    handler: Arc<dyn EventHandler<K>>,
    fresh: Arc<Freshness>,
    client_metrics: Arc<ClientMetrics>,
    /// From where the next watch resumes; `None` until the initial state is complete.
    version: Option<String>,
    can_stream: bool,
    /// Why the next list happens, for the metric.
    reason: &'static str,
}

impl<K: Cached> Reflector<K> {
    async fn watch_once(&mut self) -> Ended {
        if self.version.is_none()
            && !self.can_stream
            && let Err(error) = self.list().await
        {
            return if error.code() == Some(410) { Ended::Expired } else { Ended::Failed(with_causes(&error)) };
        }
        let is_streaming = self.version.is_none();
        if is_streaming {
            self.client_metrics.watch_list(K::KIND.plural(), self.reason);
        }
        // the UIDs of the initial state, while it is streamed
        let mut initial = is_streaming.then(HashSet::new);
        let (namespace, selectors) = (self.list_watch.namespace.as_deref(), &self.list_watch.selectors);
        let events = match self.api.watch::<Raw>(K::KIND, namespace, selectors, self.version.as_deref()).await {
            Ok(events) => events,
            Err(error) => return self.not_opened(&error),
        };
        let mut events = std::pin::pin!(events);
        loop {
            let event = match tokio::time::timeout(SILENCE, events.next()).await {
                Err(_) => return Ended::Failed(format!("no event and no bookmark for {SILENCE:?}")),
                Ok(None) if initial.is_some() => {
                    return Ended::Failed("closed before the initial state was complete".into());
                }
                Ok(None) => return Ended::Normally,
                Ok(Some(Err(error))) => return Ended::Failed(with_causes(&error)),
                Ok(Some(Ok(event))) => event,
            };
            self.fresh.touch(K::KIND);
            match event {
                WatchEvent::Added(raw) | WatchEvent::Modified(raw) => self.applied(raw.parse(), &mut initial),
                WatchEvent::Deleted(raw) => self.deleted(&raw, initial.is_some()),
                WatchEvent::Bookmark(mark) => {
                    if initial.is_some() && !mark.metadata.annotations.contains_key("k8s.io/initial-events-end") {
                        continue; // before the end of the initial state there is nothing to resume from
                    }
                    self.version = Some(mark.metadata.resource_version);
                    if let Some(uids) = initial.take() {
                        self.handler.init_done(&uids);
                    }
                }
                WatchEvent::Error(status) if status.code == 410 => return Ended::Expired,
                WatchEvent::Error(status) => return Ended::Failed(status.message),
            }
        }
    }

    /// A new or changed object. Its version counts only once the initial state is complete: from a cut one nothing can
    /// be resumed.
    fn applied(&mut self, object: Result<K, Unparsed>, initial: &mut Option<HashSet<Box<str>>>) {
        match object {
            Ok(object) => {
                match initial {
                    Some(uids) => {
                        uids.insert(object.meta().uid.clone());
                    }
                    None => self.version = Some(object.meta().version.to_string()),
                }
                self.handler.apply(object);
            }
            Err(Unparsed { name, source }) => {
                tracing::error!(
                    resource = K::KIND.plural(),
                    name,
                    error = %source,
                    "an object cannot be parsed and is ignored"
                );
            }
        }
    }

    fn deleted(&mut self, raw: &Raw, is_streaming: bool) {
        if let Ok(object) = raw.parse::<K>() {
            if !is_streaming {
                self.version = Some(object.meta().version.to_string());
            }
            self.handler.delete(&object);
        }
    }

    fn not_opened(&self, error: &Error) -> Ended {
        match error.code() {
            Some(410) => Ended::Expired,
            Some(422) if self.version.is_none() && self.can_stream => Ended::CannotStream,
            Some(code) => Ended::Failed(format!("{code}: {}", with_causes(error))),
            None => Ended::Failed(with_causes(error)),
        }
    }

    /// Lists the initial state page by page.
    async fn list(&mut self) -> Result<(), Error> {
        self.client_metrics.watch_list(K::KIND.plural(), self.reason);
        let mut initial = Some(HashSet::new());
        let (api, list_watch) = (self.api.clone(), self.list_watch.clone());
        let version = list_watch.list(&api, |object| self.applied(object, &mut initial)).await?;
        self.version = Some(version);
        self.fresh.touch(K::KIND);
        self.handler.init_done(&initial.unwrap_or_default());
        Ok(())
    }
}
