//! One kind's list and watch (§8).
//!
//! The initial state is streamed (`sendInitialEvents`), or paged where the server cannot stream; never one list, which
//! at 5,000 nodes is a body of 52 MB. A watch resumes from its last resourceVersion with bookmarks; 410 begins anew,
//! and the difference from the cache, vanished objects included, is told. Silence of 200 s ends the connection: it may
//! be dead without anybody having said so.

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
use crate::api::{Api, with_causes};
use crate::backoff::backoff;
use crate::metrics::ClientMetrics;
use crate::objects::{Cached, name_of};

/// No event and no bookmark for this long: reconnect.
const SILENCE: Duration = Duration::from_secs(200);

/// Objects in a page, where the initial state cannot be streamed.
const PAGE: usize = 200;

/// What to watch, or to list.
#[derive(Clone)]
pub struct ListWatch {
    path: String,
    /// Begins with `&` where there is one.
    selector: String,
}

impl ListWatch {
    /// Every object of a collection.
    pub fn all(path: impl Into<String>) -> Self {
        Self { path: path.into(), selector: String::new() }
    }

    /// Those that carry a label.
    pub fn labelled(path: impl Into<String>, label: &str) -> Self {
        Self { path: path.into(), selector: format!("&labelSelector={}", label.replace('/', "%2F")) }
    }

    /// The one object of this name, which need not be there.
    pub fn named(path: impl Into<String>, name: &str) -> Self {
        Self { path: path.into(), selector: format!("&fieldSelector=metadata.name%3D{name}") }
    }

    /// Reads all of it in pages, each object as text; gives the list's resourceVersion.
    pub async fn pages(&self, api: &Api, mut each: impl FnMut(&str)) -> Result<String, String> {
        #[derive(Deserialize)]
        struct Page {
            metadata: PageMeta,
            items: Option<Vec<Raw>>,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct PageMeta {
            resource_version: String,
            #[serde(default)]
            r#continue: String,
        }
        let mut next = String::new();
        loop {
            let path = format!("{}?limit={PAGE}{}{next}", self.path, self.selector);
            let text = api.get(&path).await.map_err(|e| e.to_string())?;
            let page: Page = serde_json::from_str(&text).map_err(|e| e.to_string())?;
            for raw in page.items.iter().flatten() {
                each(raw.0.get());
            }
            if page.metadata.r#continue.is_empty() {
                return Ok(page.metadata.resource_version);
            }
            next = format!("&continue={}", page.metadata.r#continue);
        }
    }
}

/// An object as text: it is read by its kind's own lenient reader.
#[derive(Clone)]
struct Raw(Box<RawValue>);

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Box::<RawValue>::deserialize(deserializer).map(Raw)
    }
}

/// Why a watch ended.
enum Ended {
    /// The server closed it, as it does every few minutes.
    Normally,
    /// The resourceVersion is too old: list again.
    Expired,
    /// The server cannot stream the initial state.
    CannotStream,
    /// Something failed.
    Failed(String),
}

/// Watches one kind for ever. Returns never; its panic ends the process.
pub async fn watch<K: Cached>(
    api: Api,
    list_watch: ListWatch,
    sink: Arc<dyn EventHandler<K>>,
    fresh: Arc<Freshness>,
    client_metrics: Arc<ClientMetrics>,
) {
    let mut watcher =
        Watcher { api, list_watch, sink, fresh, client_metrics, version: None, can_stream: true, reason: "start" };
    let mut failures = 0;
    loop {
        let began = Instant::now();
        match watcher.run().await {
            Ended::Normally => failures = 0,
            Ended::CannotStream => watcher.can_stream = false,
            Ended::Expired => {
                watcher.version = None;
                watcher.reason = "expired";
            }
            Ended::Failed(why) => {
                // a watch that held for a while began well
                failures = if began.elapsed() > Duration::from_secs(30) { 0 } else { failures + 1 };
                let wait = backoff(failures.min(5));
                tracing::warn!(resource = K::RESOURCE, error = why, retry_in = ?wait, "watch failed");
                tokio::time::sleep(wait).await;
            }
        }
    }
}

struct Watcher<K: Cached> {
    api: Api,
    list_watch: ListWatch,
    sink: Arc<dyn EventHandler<K>>,
    fresh: Arc<Freshness>,
    client_metrics: Arc<ClientMetrics>,
    version: Option<String>,
    can_stream: bool,
    reason: &'static str,
}

impl<K: Cached> Watcher<K> {
    async fn run(&mut self) -> Ended {
        if self.version.is_none()
            && !self.can_stream
            && let Err(ended) = self.list().await
        {
            return ended;
        }
        let streaming = self.version.is_none();
        if streaming {
            self.client_metrics.watch_list(K::RESOURCE, self.reason);
        }
        let mut seen = streaming.then(HashSet::new);
        let events = match self
            .api
            .client()
            .request_events::<Raw>(match self.request() {
                Ok(request) => request,
                Err(why) => return Ended::Failed(why),
            })
            .await
        {
            Ok(events) => events,
            Err(error) => return self.refusal(&error),
        };
        let mut events = std::pin::pin!(events);
        loop {
            let event = match tokio::time::timeout(SILENCE, events.next()).await {
                Err(_) => return Ended::Failed(format!("no event and no bookmark for {SILENCE:?}")),
                Ok(None) if seen.is_some() => {
                    return Ended::Failed("closed before the initial state was complete".into());
                }
                Ok(None) => return Ended::Normally,
                Ok(Some(Err(error))) => return Ended::Failed(with_causes(&error)),
                Ok(Some(Ok(event))) => event,
            };
            self.fresh.touch(K::RESOURCE);
            match event {
                WatchEvent::Added(raw) | WatchEvent::Modified(raw) => self.keep(raw.0.get(), &mut seen),
                WatchEvent::Deleted(raw) => self.drop(&raw),
                WatchEvent::Bookmark(mark) => {
                    self.version = match &seen {
                        // before the end of the initial state there is nothing to resume from
                        Some(_) if !mark.metadata.annotations.contains_key("k8s.io/initial-events-end") => continue,
                        _ => Some(mark.metadata.resource_version),
                    };
                    if let Some(uids) = seen.take() {
                        self.sink.init_done(&uids);
                    }
                }
                WatchEvent::Error(status) if status.code == 410 => return Ended::Expired,
                WatchEvent::Error(status) => return Ended::Failed(status.message),
            }
        }
    }

    fn keep(&mut self, json: &str, seen: &mut Option<HashSet<Box<str>>>) {
        match K::read(json) {
            Ok(object) => {
                match seen {
                    Some(uids) => {
                        uids.insert(object.meta().uid.clone());
                    }
                    None => self.version = Some(object.meta().version.to_string()),
                }
                self.sink.apply(object);
            }
            Err(error) => {
                let name = name_of(json);
                tracing::error!(resource = K::RESOURCE, name, error, "object cannot be read and is left out");
            }
        }
    }

    fn drop(&mut self, raw: &Raw) {
        if let Ok(object) = K::read(raw.0.get()) {
            self.version = Some(object.meta().version.to_string());
            self.sink.delete(&object);
        }
    }

    fn request(&self) -> Result<http::Request<Vec<u8>>, String> {
        let mut query = format!("watch=true&allowWatchBookmarks=true&timeoutSeconds=290{}", self.list_watch.selector);
        match &self.version {
            Some(version) => query.extend(["&resourceVersion=", version]),
            None => query.push_str("&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"),
        }
        let uri = format!("{}?{query}", self.list_watch.path);
        http::Request::get(uri).body(Vec::new()).map_err(|e| e.to_string())
    }

    fn refusal(&self, error: &kube::Error) -> Ended {
        match error {
            kube::Error::Api(status) if status.code == 410 => Ended::Expired,
            kube::Error::Api(status) if status.code == 422 && self.version.is_none() && self.can_stream => {
                Ended::CannotStream
            }
            kube::Error::Api(status) => Ended::Failed(format!("{}: {}", status.code, status.message)),
            other => Ended::Failed(with_causes(other)),
        }
    }

    /// The initial state in pages; a page that expires begins the list anew.
    async fn list(&mut self) -> Result<(), Ended> {
        self.client_metrics.watch_list(K::RESOURCE, self.reason);
        let mut seen = Some(HashSet::new());
        let (api, list_watch) = (self.api.clone(), self.list_watch.clone());
        let version = list_watch.pages(&api, |json| self.keep(json, &mut seen)).await.map_err(Ended::Failed)?;
        self.version = Some(version);
        self.fresh.touch(K::RESOURCE);
        self.sink.init_done(&seen.unwrap_or_default());
        Ok(())
    }
}
