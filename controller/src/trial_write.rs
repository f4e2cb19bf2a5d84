//! Before the first pass of a leader: would the API server take its writes? A second release of the chart, or one that was left
//! behind, has a guard that lets only its own controller through (§8, *Preflight*).

use jiff::Timestamp;
use noderotation_cluster::api::{Api, Outcome};
use noderotation_cluster::error::with_causes;
use noderotation_rotation::event_reason::EventReason;
use noderotation_shared::kind::Kind;
use noderotation_shared::{instant, keys};
use serde_json::json;

use crate::events::{Event, Recorder};
use crate::watch::Caches;

/// Sends a dry run of what every rotation begins with: an annotation of ours on a NodePool. Nothing is stored. A refusal is told in
/// the log and by an Event on that NodePool; the passes go on all the same, and tell what becomes of them.
pub async fn try_write(api: &Api, caches: &Caches, recorder: &Recorder) {
    let Some(pool) = caches.lock().pools().into_iter().next() else { return };
    let (name, uid) = (pool.meta.name.to_string(), pool.meta.uid.to_string());
    let now = instant::format(Timestamp::now());
    let body = json!({"metadata": {"annotations": {keys::WINDOW_OPENED_AT: now}}});
    let Outcome::Rejected(error) = api.try_patch(Kind::NodePool.named(&name), &body).await else { return };
    let error = with_causes(&error);
    let hint = if error.contains("denied") { RELEASE } else { "" };
    tracing::error!(nodepool = name, error, "a trial write was refused, so that nothing can be rotated{hint}");
    let note = format!("a trial write was refused, so that nothing can be rotated: {error}{hint}");
    recorder.record(Event { kind: Kind::NodePool, name, uid, reason: EventReason::WriteRefused, note });
}

/// Admission has denied it, as the guard of another release does.
const RELEASE: &str = "; is a second release of the chart installed, or was one left behind?";
