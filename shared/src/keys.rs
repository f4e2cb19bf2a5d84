//! The registry of annotation and label keys (§15): who may set each key, on which objects, and the format of its value.
//!
//! Keys are spelled here and nowhere else.

use crate::objects::{RotationMode, SurgePath};
use crate::selection::{RotateRequest, RotationState};
use crate::{duration, instant};

/// The prefix of every key that belongs to this project.
pub const PREFIX: &str = "noderotation.io/";

/// A kind of object on which a key may be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// A Karpenter NodePool.
    NodePool,
    /// A Karpenter NodeClaim.
    NodeClaim,
    /// A core Node.
    Node,
    /// A placeholder Pod of the controller.
    Placeholder,
    /// A Pod of a workload.
    WorkloadPod,
}

/// Who may set a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// Only the controller; the webhook's guard (§10) refuses everyone else.
    Controller,
    /// The operator: everyone who may write the object. The webhook validates the value.
    Operator,
    /// Everyone, because it is Karpenter's key. The controller marks where it has set it.
    Karpenter,
}

/// The format of a key's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// The name of a NodeClaim.
    ClaimName,
    /// An RFC 3339 instant; the controller writes UTC and whole seconds.
    Instant,
    /// A Go duration such as `4m5s`.
    Duration,
    /// A whole number, 1 or more.
    Count,
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// Any text that is not blank.
    Text,
    /// A JSON object.
    Json,
}

impl Format {
    /// Whether `value` has this format.
    pub fn reads(self, value: &str) -> bool {
        match self {
            Self::ClaimName => is_object_name(value),
            Self::Text => !value.trim().is_empty(),
            Self::Instant => instant::parse(value).is_some(),
            Self::Duration => duration::parse(value).is_some(),
            Self::Count => value.parse::<i64>().is_ok_and(|n| n >= 1),
            Self::OneOf(words) => words.contains(&value),
            Self::Json => serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(value).is_ok(),
        }
    }
}

/// Whether a Kubernetes object can have this name: a DNS subdomain of at most 253 characters (RFC 1123). Anything else must
/// not be put into a URL.
pub fn is_object_name(name: &str) -> bool {
    let is_alphanumeric = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_label = |label: &str| {
        label.starts_with(is_alphanumeric)
            && label.ends_with(is_alphanumeric)
            && label.chars().all(|c| is_alphanumeric(c) || c == '-')
    };
    name.len() <= 253 && name.split('.').all(is_label)
}

/// The registry's entry for a key; `None` if the key is not in the registry.
pub fn find(name: &str) -> Option<&'static Key> {
    ALL.iter().find(|key| key.name == name)
}

/// An entry of the registry.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// The full key, with its prefix.
    pub name: &'static str,
    /// The kinds of objects on which it may be set.
    pub on: &'static [Carrier],
    /// Who may set the key.
    pub owner: Owner,
    /// The format of the value.
    pub format: Format,
}

macro_rules! keys {
    ($($(#[$doc:meta])* $ident:ident = $name:literal on [$($on:ident),+] by $owner:ident as $format:expr;)+) => {
        $($(#[$doc])* pub const $ident: &str = $name;)+
        /// Every key, in the order of §15.
        pub const ALL: &[Key] = &[
            $(Key { name: $name, on: &[$(Carrier::$on),+], owner: Owner::$owner, format: $format },)+
        ];
    };
}

keys! {
    /// The anchor: the name of the NodeClaim in rotation. While it is set, no other rotation of the pool starts.
    ACTIVE_ROTATION = "noderotation.io/active-rotation" on [NodePool] by Controller as Format::ClaimName;
    /// `draining` as soon as the rotation has left `pending`; `expired` once its claim was found to be taken. Decides what a
    /// vanished claim means, and that it is told once.
    ACTIVE_ROTATION_STATE = "noderotation.io/active-rotation-state" on [NodePool] by Controller as Format::OneOf(&[RotationState::Draining.word(), RotationState::Expired.word()]);
    /// When the drain started.
    DRAINING_AT = "noderotation.io/draining-at" on [NodePool] by Controller as Format::Instant;
    /// How long it took until the replacement was Ready.
    SURGE_WAIT = "noderotation.io/surge-wait" on [NodePool] by Controller as Format::Duration;
    /// Whether the placeholder runs on a newly provisioned node or on an existing one that had room.
    SURGE_PATH = "noderotation.io/surge-path" on [NodePool] by Controller as Format::OneOf(&SurgePath::WORDS);
    /// Set if the rotation runs without a surge (§9.6).
    ROTATION_MODE = "noderotation.io/rotation-mode" on [NodePool] by Controller as Format::OneOf(&[RotationMode::ForcefulFallback.word()]);
    /// When the controller first saw the current occurrence of the window open; absent outside an occurrence.
    WINDOW_OPENED_AT = "noderotation.io/window-opened-at" on [NodePool] by Controller as Format::Instant;
    /// When the last rotation succeeded. `cooldownAfter` (gate A) counts from here.
    LAST_ROTATION_AT = "noderotation.io/last-rotation-at" on [NodePool] by Controller as Format::Instant;
    /// When the last rotation failed. `failurePause` (gate B) counts from here.
    LAST_FAILURE_AT = "noderotation.io/last-failure-at" on [NodePool] by Controller as Format::Instant;
    /// Until when the operator freezes the NodePool (§5.4).
    FREEZE = "noderotation.io/freeze" on [NodePool] by Operator as Format::Instant;
    /// The state of the claim's rotation ([`RotationState`]).
    STATE = "noderotation.io/state" on [NodeClaim] by Controller as Format::OneOf(&RotationState::WORDS);
    /// When the attempt started. `readyTimeout` counts from here.
    STARTED_AT = "noderotation.io/started-at" on [NodeClaim] by Controller as Format::Instant;
    /// When the last attempt failed. The backoff counts from here.
    FAILED_AT = "noderotation.io/failed-at" on [NodeClaim] by Controller as Format::Instant;
    /// How many attempts have failed. The backoff grows with it.
    RETRY_COUNT = "noderotation.io/retry-count" on [NodeClaim] by Controller as Format::Count;
    /// The NodeClaim that Karpenter created for the placeholder.
    SURGE_CLAIM = "noderotation.io/surge-claim" on [NodeClaim] by Controller as Format::ClaimName;
    /// The NodeClaim in whose rotation the placeholder or Node takes part.
    SURGE_FOR = "noderotation.io/surge-for" on [Placeholder, Node] by Controller as Format::ClaimName;
    /// Marks that the controller has set `karpenter.sh/do-not-disrupt`.
    DO_NOT_DISRUPT_OWNED = "noderotation.io/do-not-disrupt-owned" on [Node] by Controller as Format::Text;
    /// Marks that the controller has cordoned the Node (`spec.unschedulable`).
    CORDONED = "noderotation.io/cordoned" on [Node] by Controller as Format::OneOf(&["true"]);
    /// The operator's request to rotate a claim.
    ROTATE = "noderotation.io/rotate" on [NodeClaim] by Operator as Format::OneOf(&RotateRequest::WORDS);
    /// The reason for a change of guarded keys by hand; the write that sets it is allowed (§10).
    BREAK_GLASS = "noderotation.io/break-glass" on [NodePool, NodeClaim, Node, Placeholder] by Operator as Format::Text;
    /// The controller's scheduling hint (§12).
    NOMINATION = "noderotation.io/nomination" on [WorkloadPod] by Controller as Format::Json;
    /// Tells Karpenter not to disrupt the Node or the Pod's Node.
    DO_NOT_DISRUPT = "karpenter.sh/do-not-disrupt" on [Node, Placeholder] by Karpenter as Format::OneOf(&["true"]);
}

/// The keys that describe the rotation in flight on a NodePool. They are cleared together, and writing the anchor removes
/// what is left of an earlier rotation (§8).
pub const ANCHOR_SET: [&str; 6] =
    [ACTIVE_ROTATION, ACTIVE_ROTATION_STATE, DRAINING_AT, SURGE_WAIT, SURGE_PATH, ROTATION_MODE];

/// Karpenter's label on Nodes and NodeClaims with the name of their NodePool.
pub const KARPENTER_NODEPOOL: &str = "karpenter.sh/nodepool";
/// Karpenter's label on Nodes that are fully initialized.
pub const KARPENTER_INITIALIZED: &str = "karpenter.sh/initialized";
/// Karpenter's taint on Nodes that it is about to remove.
pub const KARPENTER_DISRUPTED: &str = "karpenter.sh/disrupted";
/// The well-known taint of a Node that is cordoned.
pub const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
/// The well-known taint of a Node whose condition Ready is False.
pub const NOT_READY: &str = "node.kubernetes.io/not-ready";
/// The well-known taint of a Node whose condition Ready is Unknown.
pub const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
/// The well-known label with a Node's host name, which need not be the Node's name.
pub const HOSTNAME: &str = "kubernetes.io/hostname";
/// The well-known label with a Node's zone.
pub const ZONE: &str = "topology.kubernetes.io/zone";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_unique_and_own_keys_have_the_prefix() {
        for (i, key) in ALL.iter().enumerate() {
            assert!(ALL.iter().skip(i + 1).all(|other| other.name != key.name), "{}", key.name);
            assert_eq!(key.name.starts_with(PREFIX), key.owner != Owner::Karpenter, "{}", key.name);
        }
        assert_eq!(ALL.len(), 22);
    }

    #[test]
    fn values_are_checked_by_format() {
        for (key, good, bad) in [
            (ACTIVE_ROTATION, "api-1", ""),
            (ACTIVE_ROTATION, "api.v2-1", "api/../kube"),
            (SURGE_CLAIM, "0a", "A"),
            (DRAINING_AT, "2026-12-06T14:00:00Z", "yesterday"),
            (SURGE_WAIT, "4m5s", "4 minutes"),
            (RETRY_COUNT, "3", "0"),
            (STATE, "pending", "Pending"),
            (ROTATE, "next-window", "later"),
            (BREAK_GLASS, "incident 7", " "),
            (NOMINATION, "{}", "[]"),
        ] {
            let format = find(key).unwrap().format;
            assert!(format.reads(good) && !format.reads(bad), "{key}");
        }
        assert!(find("example.com/other").is_none());
    }

    #[test]
    fn the_operator_owns_three_keys() {
        let open: Vec<_> = ALL.iter().filter(|k| k.owner == Owner::Operator).map(|k| k.name).collect();
        assert_eq!(open, [FREEZE, ROTATE, BREAK_GLASS]);
    }
}
