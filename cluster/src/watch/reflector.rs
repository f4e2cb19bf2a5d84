//! Lists and watches one kind, for as long as the process lives (§8).
//!
//! The initial state is streamed (`sendInitialEvents`), or listed page by page where the server cannot stream. A watch
//! resumes from its last resourceVersion with bookmarks. After 410 it begins anew, and what vanished meanwhile is told.
//! Silence of 200 s ends the connection, since it may be dead without either side having noticed.

use std::sync::Arc;

use futures::StreamExt;
use kube::core::WatchEvent;
use noderotation_shared::watch_cursor::{Open, SILENCE, WatchCursor, WatchEnd};
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

/// How a watch ended, and a sentence for the log where it is a failure.
type Ended = (WatchEnd, Option<String>);

/// Keeps `handler` informed about one kind. Never returns; a panic in it ends the process.
pub async fn reflect<K: Cached>(
    api: Api,
    list_watch: ListWatch,
    handler: Arc<dyn EventHandler<K>>,
    fresh: Arc<Freshness>,
    client_metrics: Arc<ClientMetrics>,
) {
    let cursor = WatchCursor::default();
    let mut reflector = Reflector { api, list_watch, handler, fresh, client_metrics, cursor, reason: "start" };
    loop {
        let began = Instant::now();
        let (end, failure) = reflector.watch_once().await;
        if end == WatchEnd::Expired {
            reflector.reason = "expired";
        }
        let Some(failures) = reflector.cursor.ended(end, began.elapsed()) else { continue };
        let wait = backoff(failures);
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
    cursor: WatchCursor,
    /// Why the next initial state is asked for, for the metric.
    reason: &'static str,
}

impl<K: Cached> Reflector<K> {
    async fn watch_once(&mut self) -> Ended {
        let mut open = self.cursor.open();
        if !matches!(open, Open::From(_)) {
            self.client_metrics.watch_list(K::KIND.plural(), self.reason);
        }
        if open == Open::List {
            if let Err(error) = self.list().await {
                return if error.code() == Some(410) { (WatchEnd::Expired, None) } else { failed(with_causes(&error)) };
            }
            open = self.cursor.open();
        }
        let from = if let Open::From(version) = &open { Some(version.as_str()) } else { None };
        let (namespace, selectors) = (self.list_watch.namespace.as_deref(), &self.list_watch.selectors);
        let events = match self.api.watch::<Raw>(K::KIND, namespace, selectors, from).await {
            Ok(events) => events,
            Err(error) => return not_opened(&error, &open),
        };
        let mut events = std::pin::pin!(events);
        loop {
            let event = match tokio::time::timeout(SILENCE, events.next()).await {
                Err(_) => return failed(format!("no event and no bookmark for {SILENCE:?}")),
                Ok(None) if self.cursor.is_initial() => {
                    return (WatchEnd::Closed, Some("closed before the initial state was complete".into()));
                }
                Ok(None) => return (WatchEnd::Closed, None),
                Ok(Some(Err(error))) => return failed(with_causes(&error)),
                Ok(Some(Ok(event))) => event,
            };
            self.fresh.touch(K::KIND);
            match event {
                WatchEvent::Added(raw) | WatchEvent::Modified(raw) => self.applied(raw.parse()),
                WatchEvent::Deleted(raw) => self.deleted(&raw),
                WatchEvent::Bookmark(mark) => {
                    let ends_initial = mark.metadata.annotations.contains_key("k8s.io/initial-events-end");
                    if let Some(uids) = self.cursor.bookmark(mark.metadata.resource_version, ends_initial) {
                        self.handler.init_done(&uids);
                    }
                }
                WatchEvent::Error(status) if status.code == 410 => return (WatchEnd::Expired, None),
                WatchEvent::Error(status) => return failed(status.message),
            }
        }
    }

    /// A new or changed object.
    fn applied(&mut self, object: Result<K, Unparsed>) {
        match object {
            Ok(object) => {
                self.cursor.applied(object.meta());
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

    fn deleted(&mut self, raw: &Raw) {
        if let Ok(object) = raw.parse::<K>() {
            self.cursor.deleted(object.meta());
            self.handler.delete(&object);
        }
    }

    /// Lists the initial state page by page.
    async fn list(&mut self) -> Result<(), Error> {
        let (api, list_watch) = (self.api.clone(), self.list_watch.clone());
        let version = list_watch.list(&api, |object| self.applied(object)).await?;
        self.fresh.touch(K::KIND);
        let uids = self.cursor.listed(version);
        self.handler.init_done(&uids);
        Ok(())
    }
}

fn failed(why: String) -> Ended {
    (WatchEnd::Failed, Some(why))
}

fn not_opened(error: &Error, open: &Open) -> Ended {
    match error.code() {
        Some(410) => (WatchEnd::Expired, None),
        Some(422) if *open == Open::Stream => (WatchEnd::CannotStream, None),
        Some(code) => failed(format!("{code}: {}", with_causes(error))),
        None => failed(with_causes(error)),
    }
}
