//! The condition `Ready` of a policy (§3): True only where every NodePool that it is meant for goes on.

use std::collections::BTreeMap;
use std::sync::Arc;

use noderotation_rotation::report::PoolReport;
use noderotation_shared::admission::messages;
use noderotation_shared::blocked::{Blocked, BlockedReason};
use noderotation_shared::objects::{NodePool, PolicyObject};
use serde_json::{Value, json};

use super::rows::condition_word;
use crate::events::shortened;

/// The API server takes no longer message in a condition.
const MESSAGE_BYTES: usize = 32_768;

/// The condition, without its `lastTransitionTime`.
pub fn ready(policy: &PolicyObject, pools: &[Arc<NodePool>], concerned: &[&PoolReport]) -> Value {
    let (is_ready, reason, message) = judge(policy, pools, concerned);
    json!({
        "type": "Ready",
        "status": if is_ready { "True" } else { "False" },
        "reason": reason,
        "message": shortened(&message, MESSAGE_BYTES),
        "observedGeneration": policy.generation,
    })
}

fn judge(policy: &PolicyObject, pools: &[Arc<NodePool>], concerned: &[&PoolReport]) -> (bool, &'static str, String) {
    if let Err(problems) = &policy.parsed.verdict {
        return (false, "Invalid", problems.to_string());
    }
    if concerned.is_empty() {
        let selects = |pool: &&Arc<NodePool>| policy.parsed.selector.as_ref().is_some_and(|s| s.matches(&pool.labels));
        let selected: Vec<&str> = pools.iter().filter(selects).map(|pool| &*pool.meta.name).collect();
        if selected.is_empty() {
            let message = "selects no NodePool by its metadata.labels, so nothing is rotated by it";
            return (false, BlockedReason::Unselected.word(), message.into());
        }
        return (true, "Accepted", format!("more specific policies govern {}", messages::pools(&selected)));
    }
    let blocked = || concerned.iter().flat_map(|report| report.blocked.iter().map(move |blocked| (blocked, *report)));
    // what an operator has wanted comes last
    let worst = blocked().map(|(blocked, _)| blocked.reason()).min_by_key(|reason| (reason.is_wanted(), *reason));
    let Some(worst) = worst else { return (true, "Accepted", String::new()) };
    let mut texts: BTreeMap<(bool, BlockedReason, String), Vec<&str>> = BTreeMap::new();
    for (blocked, report) in blocked() {
        let key = (blocked.reason().is_wanted(), blocked.reason(), Blocked::to_string(blocked));
        texts.entry(key).or_default().push(&report.pool);
    }
    let sentences = texts.into_iter().map(|((_, _, text), pools)| format!("{}: {text}", messages::pools(&pools)));
    let going: Vec<&str> = concerned.iter().filter(|r| r.blocked.is_empty()).map(|r| r.pool.as_str()).collect();
    let goes_on = (!going.is_empty())
        .then(|| format!("{} {} on", messages::pools(&going), if going.len() == 1 { "goes" } else { "go" }));
    (false, condition_word(worst), sentences.chain(goes_on).collect::<Vec<_>>().join("; "))
}
