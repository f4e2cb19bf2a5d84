//! The guard: who may change annotations and labels under `noderotation.io/` (§10).

use std::collections::BTreeMap;

use super::{GuardedMetadata, messages};
use crate::field_error::quoted;
use crate::keys::{self, Carrier};

/// The user who sent the admission request.
#[derive(Clone, Copy, Debug)]
pub struct Requester<'a> {
    /// `userInfo.username`.
    pub name: &'a str,
    /// `userInfo.uid`; empty for an impersonated service account.
    pub uid: &'a str,
    /// The user name of the controller's service account: `system:serviceaccount:<namespace>:<name>`.
    pub controller: &'a str,
}

impl Requester<'_> {
    /// Whether the controller itself asks, with its own token. Whoever impersonates it is an ordinary user.
    fn is_controller(&self) -> bool {
        self.name == self.controller && !self.uid.is_empty()
    }
}

/// The object whose keys change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target<'a> {
    /// The object's kind.
    pub carrier: Carrier,
    /// Whether the object is being created.
    pub is_new: bool,
    /// The `noderotation.io/` keys in the template of the NodePool that a NodeClaim or Node belongs to; `None` if the
    /// NodePool is unknown.
    pub template: Option<&'a BTreeMap<String, String>>,
}

impl Target<'_> {
    /// Whether only the controller may write `key` here.
    fn guards(&self, key: &str) -> bool {
        let is_restored = self.is_new && self.carrier == Carrier::NodePool && REMEMBERED.contains(&key);
        is_guarded(self.carrier, key) && !is_restored
    }

    /// Whether the change only copies a key from the NodePool's template. Karpenter copies the template's keys to every
    /// new NodeClaim and later to its Node; if they were refused there, no node could ever join.
    fn is_copied_from_template(&self, change: &KeyChange<'_>) -> bool {
        let may_be_copied = match self.carrier {
            Carrier::NodeClaim => self.is_new,
            Carrier::Node => change.old.is_none(),
            _ => false,
        };
        may_be_copied
            && change.new.is_some()
            && self.template.and_then(|t| t.get(change.key)).map(String::as_str) == change.new
    }
}

/// The guard's answer to a change of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GuardVerdict {
    /// No guarded key changes, or the controller itself changes them.
    Allowed,
    /// Guarded keys change and the change is let through, with a warning and audit annotations.
    LetThrough {
        /// The warning that the user sees.
        warning: String,
        /// The audit annotations, as pairs of key and value.
        audit: Vec<(&'static str, String)>,
    },
    /// The change is refused, with the message that the user sees.
    Refused(String),
}

/// The operator's keys: whoever may write the object may change them. Other handlers check their values.
pub const OPEN: [&str; 3] = [keys::FREEZE, keys::ROTATE, keys::BREAK_GLASS];

/// What a NodePool remembers of rotations that are over: it holds back the next start at most. A new NodePool may have it,
/// so that a backup can be restored; nothing of a rotation in flight may come that way.
pub const REMEMBERED: [&str; 3] = [keys::LAST_ROTATION_AT, keys::LAST_FAILURE_AT, keys::WINDOW_OPENED_AT];

/// Keys that have a meaning on a NodeClaim only. Karpenter copies a claim's annotations to its Node when the Node
/// registers; if they were guarded on Nodes, the Node could not join.
pub const COPIED_TO_NODES: [&str; 5] =
    [keys::STATE, keys::STARTED_AT, keys::FAILED_AT, keys::RETRY_COUNT, keys::SURGE_CLAIM];

/// Whether only the controller may change `key` on an object of this kind.
pub fn is_guarded(carrier: Carrier, key: &str) -> bool {
    key.starts_with(keys::PREFIX)
        && !OPEN.contains(&key)
        && match carrier {
            Carrier::Node => !COPIED_TO_NODES.contains(&key),
            Carrier::Placeholder | Carrier::WorkloadPod => key != keys::NOMINATION,
            Carrier::NodePool | Carrier::NodeClaim => true,
        }
}

/// One guarded key that changes.
struct KeyChange<'a> {
    map: &'static str,
    key: &'a str,
    old: Option<&'a str>,
    new: Option<&'a str>,
}

/// Judges a change of an object's `noderotation.io/` keys from `old` to `new` (§10). For a creation `old` is empty.
pub fn judge_guarded(
    target: Target<'_>,
    old: &GuardedMetadata,
    new: &GuardedMetadata,
    requester: Requester<'_>,
) -> GuardVerdict {
    let changes = changes(target, old, new);
    if changes.is_empty() || requester.is_controller() {
        return GuardVerdict::Allowed;
    }
    let names = messages::list(changes.iter().map(|c| c.key));
    if let Some(reason) = break_glass_reason(old, new) {
        return GuardVerdict::LetThrough {
            warning: format!("{}: allows this change of {names}: {reason}", keys::BREAK_GLASS),
            audit: vec![("break-glass", reason.to_owned()), ("keys", names)],
        };
    }
    let all_removed = changes.iter().all(|c| c.new.is_none());
    if target.carrier == Carrier::NodePool && all_removed && !old.annotations.contains_key(keys::ACTIVE_ROTATION) {
        return GuardVerdict::LetThrough {
            warning: format!(
                "{names}: removed; no rotation is in flight, so at most one pause between rotations is skipped"
            ),
            audit: vec![("removed", names)],
        };
    }
    if changes.iter().all(|change| target.is_copied_from_template(change)) {
        return GuardVerdict::LetThrough {
            warning: format!(
                "{names}: copied from the NodePool's spec.template.metadata, where it corrupts the rotation state of every new node; remove it from the template"
            ),
            audit: vec![("from-template", names)],
        };
    }
    GuardVerdict::Refused(refusal(&changes, requester))
}

fn changes<'a>(target: Target<'_>, old: &'a GuardedMetadata, new: &'a GuardedMetadata) -> Vec<KeyChange<'a>> {
    let mut changes = Vec::new();
    for (map, old, new) in [("annotations", &old.annotations, &new.annotations), ("labels", &old.labels, &new.labels)] {
        let mut keys: Vec<&String> = old.keys().chain(new.keys().filter(|key| !old.contains_key(*key))).collect();
        keys.sort_unstable();
        for key in keys.into_iter().filter(|key| target.guards(key)) {
            let (old, new) = (old.get(key).map(String::as_str), new.get(key).map(String::as_str));
            if old != new {
                changes.push(KeyChange { map, key, old, new });
            }
        }
    }
    changes
}

/// The break-glass reason, if this write sets or changes it. One that was there before does not allow anything.
fn break_glass_reason<'a>(old: &GuardedMetadata, new: &'a GuardedMetadata) -> Option<&'a str> {
    let reason = new.annotations.get(keys::BREAK_GLASS).filter(|reason| !reason.trim().is_empty())?;
    (old.annotations.get(keys::BREAK_GLASS) != Some(reason)).then_some(reason)
}

fn refusal(changes: &[KeyChange<'_>], requester: Requester<'_>) -> String {
    let short = |value: &str| messages::cut(&quoted(value), 80);
    let line = |c: &KeyChange<'_>| {
        let change = match (c.old, c.new) {
            (None, Some(new)) => format!("would be added with value {}", short(new)),
            (Some(old), None) => format!("would be removed (its value is {})", short(old)),
            (Some(old), Some(new)) => format!("would be changed from {} to {}", short(old), short(new)),
            (None, None) => "does not change".into(),
        };
        format!("metadata.{}[{}]: {change}", c.map, messages::cut(c.key, 120))
    };
    let mut lines: Vec<String> = changes.iter().take(10).map(line).collect();
    if changes.len() > 10 {
        lines.push(format!("and {} more keys under {}", changes.len() - 10, keys::PREFIX));
    }
    let text = lines.join("\n");
    let impersonated = if requester.name == requester.controller { ", impersonated" } else { "" };
    format!(
        "{text}\nthese keys hold the state of a rotation, and only {} may change them (you are {}{impersonated}); leave them unchanged, or, to change them anyway, set the annotation {}: \"<reason>\" in the same request",
        requester.controller,
        messages::cut(requester.name, 120),
        keys::BREAK_GLASS
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn metadata(of: &Value) -> GuardedMetadata {
        serde_json::from_str(&of.to_string()).unwrap()
    }

    const CONTROLLER: &str = "system:serviceaccount:noderotation:noderotation-controller";

    fn judge(carrier: Carrier, old: &Value, new: &Value, name: &str, uid: &str) -> GuardVerdict {
        let target = Target { carrier, is_new: false, template: None };
        let requester = Requester { name, uid, controller: CONTROLLER };
        let annotated = |annotations: &Value| metadata(&json!({"annotations": annotations}));
        judge_guarded(target, &annotated(old), &annotated(new), requester)
    }

    fn outcome(verdict: &GuardVerdict) -> &'static str {
        match verdict {
            GuardVerdict::Allowed => "allowed",
            GuardVerdict::LetThrough { .. } => "let through",
            GuardVerdict::Refused(_) => "refused",
        }
    }

    #[test]
    fn who_may_change_what() {
        let state = json!({"noderotation.io/state": "pending"});
        let none = json!({});
        let glass = json!({"noderotation.io/break-glass": "incident 7"});
        let both = json!({"noderotation.io/break-glass": "incident 7", "noderotation.io/state": "failed"});
        let open =
            json!({"noderotation.io/freeze": "2026-12-26T00:00:00Z", "noderotation.io/rotate": "now", "other": "x"});
        let anchor = json!({"noderotation.io/active-rotation": "a", "noderotation.io/window-opened-at": "t"});
        let history = json!({"noderotation.io/last-rotation-at": "2026-11-01T00:00:00Z"});
        let hint = json!({"noderotation.io/nomination": "{}"});
        use Carrier::{Node, NodeClaim, NodePool, Placeholder};
        let table = [
            (NodeClaim, &none, &state, "admin", "", "refused"),
            (NodeClaim, &state, &none, "admin", "", "refused"),
            (NodeClaim, &state, &state, "admin", "", "allowed"),
            (NodeClaim, &none, &state, CONTROLLER, "uid", "allowed"),
            (NodeClaim, &none, &state, CONTROLLER, "", "refused"),
            (NodeClaim, &none, &open, "admin", "", "allowed"),
            (NodeClaim, &none, &glass, "admin", "", "allowed"),
            (NodeClaim, &none, &both, "admin", "", "let through"),
            (NodeClaim, &glass, &both, "admin", "", "refused"),
            (NodeClaim, &both, &none, "admin", "", "refused"),
            (NodePool, &anchor, &none, "admin", "", "refused"),
            (NodePool, &history, &none, "admin", "", "let through"),
            (NodePool, &history, &anchor, "admin", "", "refused"),
            (Node, &none, &state, "karpenter", "", "allowed"),
            (Node, &none, &anchor, "karpenter", "", "refused"),
            (Placeholder, &none, &hint, "admin", "", "allowed"),
            (Placeholder, &none, &state, "admin", "", "refused"),
        ];
        for (carrier, old, new, name, uid, expected) in table {
            assert_eq!(outcome(&judge(carrier, old, new, name, uid)), expected, "{carrier:?} {old} {new} {name}");
        }
    }

    #[test]
    fn a_new_node_pool_may_remember_but_not_be_in_rotation() {
        let created = |carrier, key: &str| {
            let target = Target { carrier, is_new: true, template: None };
            let requester = Requester { name: "velero", uid: "u", controller: CONTROLLER };
            let new = metadata(&json!({"annotations": {key: "2026-11-01T00:00:00Z"}}));
            outcome(&judge_guarded(target, &GuardedMetadata::default(), &new, requester))
        };
        for key in REMEMBERED {
            assert_eq!(created(Carrier::NodePool, key), "allowed", "{key}");
            assert_eq!(created(Carrier::NodeClaim, key), "refused", "{key}");
        }
        for key in [keys::ACTIVE_ROTATION, keys::ACTIVE_ROTATION_STATE, keys::DRAINING_AT] {
            assert_eq!(created(Carrier::NodePool, key), "refused", "{key}");
        }
    }

    #[test]
    fn every_controller_key_is_guarded() {
        for key in keys::ALL.iter().filter(|key| key.owner == keys::Owner::Controller) {
            for carrier in key.on.iter().filter(|carrier| **carrier != Carrier::WorkloadPod) {
                assert!(is_guarded(*carrier, key.name), "{} on {carrier:?}", key.name);
            }
        }
        for key in keys::ALL.iter().filter(|key| key.owner != keys::Owner::Controller) {
            assert!(!is_guarded(Carrier::NodePool, key.name), "{}", key.name);
        }
        let on_claims_only = keys::ALL
            .iter()
            .filter(|key| key.on == [Carrier::NodeClaim] && key.owner == keys::Owner::Controller)
            .map(|key| key.name);
        assert_eq!(on_claims_only.collect::<Vec<_>>(), COPIED_TO_NODES);
    }

    #[test]
    fn a_claim_of_a_pool_with_our_keys_in_its_template_can_still_be_made() {
        let template = BTreeMap::from([("noderotation.io/state".to_owned(), "expired".to_owned())]);
        let target = Target { carrier: Carrier::NodeClaim, is_new: true, template: Some(&template) };
        let requester = Requester { name: "karpenter", uid: "u", controller: CONTROLLER };
        let claim = |value: &str| metadata(&json!({"annotations": {"noderotation.io/state": value}}));
        assert_eq!(
            outcome(&judge_guarded(target, &GuardedMetadata::default(), &claim("expired"), requester)),
            "let through"
        );
        assert_eq!(
            outcome(&judge_guarded(target, &GuardedMetadata::default(), &claim("failed"), requester)),
            "refused"
        );
        let node = Target { carrier: Carrier::Node, is_new: false, ..target };
        let labelled = |value: &str| metadata(&json!({"labels": {"noderotation.io/team": value}}));
        let template = BTreeMap::from([("noderotation.io/team".to_owned(), "a".to_owned())]);
        let node = Target { template: Some(&template), ..node };
        assert_eq!(
            outcome(&judge_guarded(node, &GuardedMetadata::default(), &labelled("a"), requester)),
            "let through"
        );
        assert_eq!(outcome(&judge_guarded(node, &GuardedMetadata::default(), &labelled("b"), requester)), "refused");
        assert_eq!(outcome(&judge_guarded(node, &labelled("b"), &labelled("a"), requester)), "refused");
        assert_eq!(outcome(&judge_guarded(node, &labelled("a"), &GuardedMetadata::default(), requester)), "refused");
        let later = Target { is_new: false, ..target };
        assert_eq!(
            outcome(&judge_guarded(later, &GuardedMetadata::default(), &claim("expired"), requester)),
            "refused"
        );
    }
}
