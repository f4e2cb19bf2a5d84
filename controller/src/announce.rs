//! The only place that tells anything: what happened, for a write that has landed, as metric, log line and Event; and what
//! a pass noticed (§8, §11).

use noderotation_rotation::announcement::{Announcement, ClaimId};
use noderotation_rotation::event_dedup::Notice;
use noderotation_rotation::event_reason::EventReason;
use noderotation_shared::keys::ROTATE;
use noderotation_shared::kind::Kind;
use noderotation_shared::objects::{NodePool, SurgePath};
use noderotation_shared::selection::CANCEL;
use noderotation_shared::{duration, instant};
use tracing::{info, warn};

use crate::events::{Event, Recorder};
use crate::metrics::Metrics;

/// Tells one notice of a pass over `pool`.
pub fn tell(recorder: &Recorder, pool: &str, notice: &Notice) {
    let Notice { topic, text, is_warning, event } = notice;
    if let Some(about) = event {
        warn!(nodepool = pool, reason = about.reason.word(), about = about.name, "{text}");
        recorder.record(Event {
            kind: about.kind,
            name: about.name.clone(),
            uid: about.uid.clone(),
            reason: about.reason,
            note: text.clone(),
        });
    } else if *is_warning {
        warn!(nodepool = pool, "{text}");
    } else {
        info!(nodepool = pool, reason = text, "{topic}");
    }
}

/// Announces what a landed write did to `pool`.
#[allow(clippy::too_many_lines, reason = "a table: one row for each announcement")]
pub fn announce(metrics: &Metrics, recorder: &Recorder, pool: &NodePool, announcement: &Announcement) {
    let nodepool = &*pool.meta.name;
    let on_pool = |reason, note: String| {
        let (name, uid) = (nodepool.to_owned(), pool.meta.uid.to_string());
        recorder.record(Event { kind: Kind::NodePool, name, uid, reason, note });
    };
    let on_claim = |claim: &ClaimId, reason, note: String| {
        let (name, uid) = (claim.name.clone(), claim.uid.clone());
        recorder.record(Event { kind: Kind::NodeClaim, name, uid, reason, note });
    };
    match announcement {
        Announcement::CandidateSelected { claim, node, deadline, age, policy } => {
            let deadline = deadline.map_or_else(|| "none".to_owned(), instant::format);
            info!(
                nodepool,
                nodeclaim = claim.name,
                node,
                deadline,
                age = duration::human(*age),
                policy,
                "rotation candidate selected"
            );
            on_pool(
                EventReason::RotationStarted,
                format!("rotating NodeClaim {claim} (node {node}, deadline {deadline}) by RotationPolicy {policy}"),
            );
        }
        Announcement::Cordoned { node, claim, policy, until, is_again } => {
            let until = instant::format(*until);
            let stop = format!("to call this off: kubectl annotate nodeclaim {claim} {ROTATE}={CANCEL} --overwrite");
            let on_node = |reason, note: String| {
                let (name, uid) = (node.name.clone(), node.uid.clone());
                recorder.record(Event { kind: Kind::Node, name, uid, reason, note });
            };
            if *is_again {
                warn!(
                    nodepool,
                    nodeclaim = claim.name,
                    node = node.name,
                    "somebody has uncordoned the node of a pending rotation; cordoned again"
                );
                on_node(
                    EventReason::CordonRestored,
                    format!(
                        "cordoned again: somebody has uncordoned it while its rotation is pending, and Pods that come now would have to move soon; {stop}"
                    ),
                );
            } else {
                info!(nodepool, nodeclaim = claim.name, node = node.name, until, "cordoned");
                on_node(
                    EventReason::Cordoned,
                    format!(
                        "cordoned for its rotation by RotationPolicy {policy}: it drains once its replacement is ready, and is uncordoned if there is none at {until}; {stop}"
                    ),
                );
            }
        }
        Announcement::NothingToCallOff { claim } => {
            info!(nodepool, nodeclaim = claim.name, "nothing to call off");
            on_claim(
                claim,
                EventReason::RequestNotMet,
                format!(
                    "no rotation of NodeClaim {claim} is pending, so {ROTATE}: {CANCEL} had nothing to call off, and was removed"
                ),
            );
        }
        Announcement::PlaceholderCreated { claim, placeholder, size } => {
            info!(nodepool, nodeclaim = claim.name, placeholder, size, "surge placeholder created");
        }
        Announcement::Clamped { claim, reason, message } => {
            let word = reason.word();
            if reason.is_normal() {
                info!(nodepool, nodeclaim = claim.name, reason = word, message, "surge placeholder clamped");
            } else {
                warn!(nodepool, nodeclaim = claim.name, reason = word, message, "surge placeholder clamped");
            }
            on_claim(claim, *reason, message.clone());
        }
        Announcement::SurgeReady { claim, host, path, surge_wait } => {
            let path = path.map_or("unknown", SurgePath::word);
            info!(
                nodepool,
                nodeclaim = claim.name,
                host,
                surge_path = path,
                surge_wait = duration::format(*surge_wait),
                "surge node ready"
            );
        }
        Announcement::NothingToMove { claim, node } => {
            info!(nodepool, nodeclaim = claim.name, node, "nothing has to move: no replacement is reserved");
        }
        Announcement::DrainStarted { claim, node, bound } => {
            let bound = bound.map_or_else(|| "none".to_owned(), duration::format);
            info!(nodepool, nodeclaim = claim.name, node, bound, "drain started");
        }
        Announcement::AttemptFailed { claim, reason, retry_count, next_attempt_at } => {
            metrics.completed(nodepool, "failure");
            let next = next_attempt_at.map_or_else(|| "unknown".to_owned(), instant::format);
            warn!(
                nodepool,
                nodeclaim = claim.name,
                reason,
                retry_count,
                next_attempt_at = next,
                "rotation attempt failed"
            );
            on_claim(
                claim,
                EventReason::RotationFailed,
                format!("attempt {retry_count} failed: {reason}; next attempt at {next}"),
            );
        }
        Announcement::Expired { claim, phase } => {
            metrics.completed(nodepool, "expired");
            warn!(nodepool, nodeclaim = claim.name, phase, "rotation expired");
            on_pool(
                EventReason::RotationExpired,
                format!("NodeClaim {claim} was deleted by somebody else while its rotation was {phase}"),
            );
        }
        Announcement::Completed { claim, mode, surge_path, surge_wait, drain } => {
            metrics.completed(nodepool, "success");
            let mode = mode.word();
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
                nodeclaim = claim.name,
                mode,
                surge_path = surge_path.map(SurgePath::word),
                surge_wait = text(*surge_wait),
                drain = text(*drain),
                total = text(total),
                "rotation complete"
            );
            let took = total.map(|t| format!(" in {}", duration::human(t))).unwrap_or_default();
            let how = if *surge_path == Some(SurgePath::Empty) { "nothing had to move" } else { mode };
            on_pool(EventReason::RotationCompleted, format!("rotated NodeClaim {claim}{took} ({how})"));
        }
        Announcement::ForcefulFallback { claim, deadline } => {
            metrics.fallback(nodepool);
            let deadline = instant::format(*deadline);
            warn!(nodepool, nodeclaim = claim.name, deadline, "rotating without a surge");
            on_pool(
                EventReason::ForcefulFallback,
                format!("NodeClaim {claim} expires at {deadline}, too soon for a surge: it is drained without one"),
            );
        }
        Announcement::WindowMissed { opened_at, eligible, in_backoff } => {
            metrics.missed(nodepool);
            let opened_at = instant::format(*opened_at);
            warn!(nodepool, opened_at, eligible, in_backoff, "maintenance window closed with candidates unrotated");
            on_pool(
                EventReason::WindowMissed,
                format!(
                    "the window that opened at {opened_at} closed with {eligible} candidates unrotated and {in_backoff} in backoff"
                ),
            );
        }
        Announcement::GovernanceLost { claim, why } => {
            warn!(nodepool, nodeclaim = claim.name, why, "governance lost, rotation rolled back");
            on_pool(EventReason::GovernanceLost, format!("the rotation of NodeClaim {claim} was rolled back: {why}"));
        }
        Announcement::Unprotected { node } => info!(nodepool, node, "unfroze"),
        Announcement::Uncordoned { node } => info!(nodepool, node, "uncordoned"),
        Announcement::OrphanedPlaceholderDeleted { claim, placeholder } => {
            info!(nodepool, nodeclaim = claim, placeholder, "orphaned placeholder deleted");
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use noderotation_shared::objects::{Meta, RotationMode};

    use super::*;

    /// The Event of a completed rotation: how long it took, as far as that is known, and how.
    #[test]
    fn a_completed_rotation_says_how_long_it_took_and_how() {
        let pool = NodePool { meta: Meta { name: "api".into(), ..Meta::default() }, ..NodePool::default() };
        let told = |mode, surge_path, surge_wait: Option<i64>, drain: Option<i64>| {
            let (recorder, mut events) = Recorder::new();
            let seconds = |length: Option<i64>| length.map(SignedDuration::from_secs);
            let claim = ClaimId::gone("old");
            let (surge_wait, drain) = (seconds(surge_wait), seconds(drain));
            let completed = Announcement::Completed { claim, mode, surge_path, surge_wait, drain };
            announce(&Metrics::new(), &recorder, &pool, &completed);
            events.try_recv().unwrap().note
        };
        let (surge, fallback) = (RotationMode::Surge, RotationMode::ForcefulFallback);
        let provisioned = Some(SurgePath::Provisioned);
        assert_eq!(told(surge, provisioned, Some(60), Some(30)), "rotated NodeClaim old in 1m30s (surge)");
        assert_eq!(told(surge, provisioned, Some(60), None), "rotated NodeClaim old (surge)");
        assert_eq!(told(fallback, None, None, Some(30)), "rotated NodeClaim old in 30s (forceful-fallback)");
        assert_eq!(
            told(surge, Some(SurgePath::Empty), None, Some(30)),
            "rotated NodeClaim old in 30s (nothing had to move)"
        );
    }
}
