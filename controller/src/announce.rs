//! The only place that tells what happened: metric, then log, then event, for a write that landed (§8, §11).

use noderotation_rotation::step::Announcement;
use noderotation_shared::objects::NodePool;
use noderotation_shared::{duration, instant};
use tracing::{info, warn};

use crate::events::{About, Event, Recorder};
use crate::metrics::Metrics;

/// Tells one announcement about a pool. `claim_uid` is the UID of the claim in rotation, where known.
#[allow(clippy::too_many_lines, reason = "a table: one row for each announcement")]
pub fn announce(metrics: &Metrics, recorder: &Recorder, pool: &NodePool, claim_uid: &str, told: &Announcement) {
    let nodepool = &*pool.meta.name;
    let on_pool = |reason, note: String| {
        let about = About { kind: "NodePool", name: nodepool.to_owned(), uid: pool.meta.uid.to_string() };
        recorder.record(Event { about, reason, note });
    };
    let on_claim = |claim: &str, reason, note: String| {
        let about = About { kind: "NodeClaim", name: claim.to_owned(), uid: claim_uid.to_owned() };
        recorder.record(Event { about, reason, note });
    };
    match told {
        Announcement::CandidateSelected { claim, node, deadline, age, policy } => {
            let deadline = deadline.map_or_else(|| "none".to_owned(), instant::format);
            info!(
                nodepool,
                nodeclaim = claim,
                node,
                deadline,
                age = duration::human(*age),
                policy,
                "rotation candidate selected"
            );
            on_pool(
                "RotationStarted",
                format!("rotating NodeClaim {claim} (node {node}, deadline {deadline}) by RotationPolicy {policy}"),
            );
        }
        Announcement::PlaceholderCreated { claim, placeholder, size } => {
            info!(nodepool, nodeclaim = claim, placeholder, size, "surge placeholder created");
        }
        Announcement::Clamped { claim, reason, message } => {
            if *reason == "SurgeClamped" {
                info!(nodepool, nodeclaim = claim, reason, message, "surge placeholder clamped");
            } else {
                warn!(nodepool, nodeclaim = claim, reason, message, "surge placeholder clamped");
            }
            on_claim(claim, reason, message.clone());
        }
        Announcement::SurgeReady { claim, host, path, surge_wait } => {
            let path = path.unwrap_or("unknown");
            info!(
                nodepool,
                nodeclaim = claim,
                host,
                surge_path = path,
                surge_wait = duration::format(*surge_wait),
                "surge node ready"
            );
        }
        Announcement::DrainStarted { claim, node, bound } => {
            let bound = bound.map_or_else(|| "none".to_owned(), duration::format);
            info!(nodepool, nodeclaim = claim, node, bound, "drain started");
        }
        Announcement::AttemptFailed { claim, reason, retry_count, next_attempt_at } => {
            metrics.completed(nodepool, "failure");
            let next = next_attempt_at.map_or_else(|| "never".to_owned(), instant::format);
            warn!(nodepool, nodeclaim = claim, reason, retry_count, next_attempt_at = next, "rotation attempt failed");
            on_claim(
                claim,
                "RotationFailed",
                format!("attempt {retry_count} failed: {reason}; next attempt at {next}"),
            );
        }
        Announcement::Expired { claim, phase } => {
            metrics.completed(nodepool, "expired");
            warn!(nodepool, nodeclaim = claim, phase, "rotation expired");
            on_pool(
                "RotationExpired",
                format!("NodeClaim {claim} was deleted by somebody else while its rotation was {phase}"),
            );
        }
        Announcement::Completed { claim, mode, surge_path, surge_wait, drain } => {
            metrics.completed(nodepool, "success");
            for (phase, length) in [("surge_wait", surge_wait), ("drain", drain)] {
                if let Some(length) = length {
                    metrics.phase(nodepool, phase, length.as_secs_f64());
                }
            }
            let text = |length: Option<jiff::SignedDuration>| length.map(duration::format);
            let total = match (surge_wait, drain) {
                (wait, Some(drain)) => Some(wait.unwrap_or_default().saturating_add(*drain)),
                _ => None,
            };
            info!(
                nodepool,
                nodeclaim = claim,
                mode,
                surge_path = surge_path.as_deref(),
                surge_wait = text(*surge_wait),
                drain = text(*drain),
                total = text(total),
                "rotation complete"
            );
            let took = total.map(|t| format!(" in {}", duration::human(t))).unwrap_or_default();
            on_pool("RotationCompleted", format!("rotated NodeClaim {claim}{took} ({mode})"));
        }
        Announcement::ForcefulFallback { claim, deadline } => {
            metrics.fallback(nodepool);
            let deadline = instant::format(*deadline);
            warn!(nodepool, nodeclaim = claim, deadline, "rotating without a surge");
            on_pool(
                "ForcefulFallback",
                format!("NodeClaim {claim} expires at {deadline}, too soon for a surge: it is drained without one"),
            );
        }
        Announcement::WindowMissed { opened_at, eligible, in_backoff } => {
            metrics.missed(nodepool);
            let opened_at = instant::format(*opened_at);
            warn!(nodepool, opened_at, eligible, in_backoff, "maintenance window closed with candidates unrotated");
            on_pool(
                "WindowMissed",
                format!(
                    "the window that opened at {opened_at} closed with {eligible} candidates unrotated and {in_backoff} in backoff"
                ),
            );
        }
        Announcement::GovernanceLost { claim, why } => {
            warn!(nodepool, nodeclaim = claim, why, "governance lost, rotation rolled back");
            on_pool("GovernanceLost", format!("the rotation of NodeClaim {claim} was rolled back: {why}"));
        }
        Announcement::Unfroze { node } => info!(nodepool, node, "unfroze"),
    }
}
