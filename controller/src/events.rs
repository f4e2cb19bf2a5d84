//! Kubernetes Events (§11): written beside the loops, never waited for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use jiff::Timestamp;
use serde_json::json;
use tokio::sync::mpsc;

use noderotation_cluster::api::{Api, Outcome};
use noderotation_rotation::event_reason::EventReason;
use noderotation_shared::kind::Kind;

/// One Event of `events.k8s.io/v1`.
#[derive(Clone, Debug)]
pub struct Event {
    /// The kind of the object that it is about.
    pub kind: Kind,
    /// The object's name.
    pub name: String,
    /// The object's UID; empty where it is not known.
    pub uid: String,
    /// Why.
    pub reason: EventReason,
    /// What happened, in a sentence.
    pub note: String,
}

/// Events about objects without a namespace live in this one.
const NAMESPACE: &str = "default";

/// The API server takes no longer note in an Event.
const NOTE_BYTES: usize = 1_024;

/// Takes Events from all loops. A full queue drops the newest rather than holding up a rotation.
#[derive(Clone)]
pub struct Recorder(mpsc::Sender<Event>);

impl Recorder {
    /// A recorder, and the end at which its Events are read.
    pub fn new() -> (Self, mpsc::Receiver<Event>) {
        let (sender, receiver) = mpsc::channel(256);
        (Self(sender), receiver)
    }

    /// Queues an Event to be written. Where the queue is full it is dropped with a warning.
    pub fn record(&self, event: Event) {
        if let Err(error) = self.0.try_send(event) {
            tracing::warn!(%error, "event dropped");
        }
    }
}

/// Writes Events one after another. Returns when every recorder was dropped.
pub async fn write(api: Api, mut events: mpsc::Receiver<Event>, instance: Arc<str>) {
    let count = AtomicU32::new(0);
    while let Some(event) = events.recv().await {
        let now = Timestamp::now();
        let n = count.fetch_add(1, Ordering::Relaxed);
        let head: String = event.name.chars().take(200).collect();
        let body = json!({
            "apiVersion": Kind::Event.api_version(),
            "kind": Kind::Event.name(),
            "metadata": {"name": format!("{head}.{:x}.{n:x}", now.as_nanosecond()), "namespace": NAMESPACE},
            "type": if event.reason.is_normal() { "Normal" } else { "Warning" },
            "reason": event.reason.word(),
            "action": "Rotate",
            "note": shortened(&event.note, NOTE_BYTES),
            "eventTime": micros(now),
            "regarding": {"apiVersion": event.kind.api_version(), "kind": event.kind.name(), "name": event.name, "uid": event.uid},
            "reportingController": "noderotation.io/controller",
            "reportingInstance": &*instance,
        });
        match api.create(Kind::Event, Some(NAMESPACE), &body).await {
            Outcome::Applied(_) => {}
            other => {
                tracing::warn!(reason = event.reason.word(), about = event.name, outcome = %other, "event not written");
            }
        }
    }
}

/// RFC 3339 with microseconds, as `eventTime` demands.
fn micros(at: Timestamp) -> String {
    format!("{at:.6}")
}

/// `text` cut at a character's boundary so that it has at most `bytes` bytes.
pub fn shortened(text: &str, bytes: usize) -> String {
    if text.len() <= bytes {
        return text.to_owned();
    }
    let end = (0..=bytes.saturating_sub('…'.len_utf8())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    format!("{}…", text.get(..end).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_cut_at_characters() {
        assert_eq!(shortened("äöü", 6), "äöü");
        assert_eq!(shortened("äöüß", 7), "äö…");
        assert!(shortened(&"界".repeat(1000), NOTE_BYTES).len() <= NOTE_BYTES);
    }

    #[test]
    fn event_time_has_microseconds() {
        let at: Timestamp = "2026-12-06T14:00:00.1234567Z".parse().unwrap();
        assert_eq!(micros(at), "2026-12-06T14:00:00.123456Z");
    }
}
