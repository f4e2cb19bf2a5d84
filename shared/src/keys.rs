//! The registry of annotation and label keys (§15): who owns each, what carries it, how its value reads.
//!
//! This is the only place that spells a key.

use crate::{duration, instant};

/// The prefix of every key of ours.
pub const PREFIX: &str = "noderotation.io/";

/// The kind of object that carries a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// A Karpenter NodePool.
    NodePool,
    /// The NodeClaim that is rotated.
    NodeClaim,
    /// A node that the rotation froze.
    Node,
    /// The placeholder Pod.
    Placeholder,
    /// A workload Pod.
    WorkloadPod,
}

/// Who may set a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// Only the controller; the guard (§10) refuses everyone else.
    Controller,
    /// The operator; open to everyone with the right to write the object, the value is checked.
    Operator,
    /// Karpenter's key, which we set and remove under our own marker.
    Karpenter,
}

/// How a value reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// The name of a NodeClaim.
    ClaimName,
    /// RFC 3339, whole seconds, UTC when we write it.
    Instant,
    /// A Go duration.
    Duration,
    /// A whole number from 1.
    Count,
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// Free text.
    Text,
    /// A JSON object.
    Json,
}

impl Format {
    /// Whether a value can be read.
    pub fn reads(self, value: &str) -> bool {
        match self {
            Self::ClaimName | Self::Text => !value.trim().is_empty(),
            Self::Instant => instant::parse(value).is_some(),
            Self::Duration => duration::parse(value).is_some(),
            Self::Count => value.parse::<i64>().is_ok_and(|n| n >= 1),
            Self::OneOf(words) => words.contains(&value),
            Self::Json => serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(value).is_ok(),
        }
    }
}

/// What is known of a key; `None` for a stranger's.
pub fn find(name: &str) -> Option<&'static Key> {
    ALL.iter().find(|key| key.name == name)
}

/// One key with everything that is known of it.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// The full key.
    pub name: &'static str,
    /// Where it may stand.
    pub on: &'static [Carrier],
    /// Who may set it.
    pub owner: Owner,
    /// How its value reads.
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
    /// The anchor and serial gate: the NodeClaim in rotation.
    ACTIVE_ROTATION = "noderotation.io/active-rotation" on [NodePool] by Controller as Format::ClaimName;
    /// `draining` once the rotation left `pending`; decides success or expired.
    ACTIVE_ROTATION_STATE = "noderotation.io/active-rotation-state" on [NodePool] by Controller as Format::OneOf(&["draining"]);
    /// Start of the drain.
    DRAINING_AT = "noderotation.io/draining-at" on [NodePool] by Controller as Format::Instant;
    /// How long the surge took.
    SURGE_WAIT = "noderotation.io/surge-wait" on [NodePool] by Controller as Format::Duration;
    /// Whether the capacity was provisioned for us or absorbed by an older node.
    SURGE_PATH = "noderotation.io/surge-path" on [NodePool] by Controller as Format::OneOf(&["provisioned", "absorbed"]);
    /// Set in the surge-less fallback.
    ROTATION_MODE = "noderotation.io/rotation-mode" on [NodePool] by Controller as Format::OneOf(&["forceful-fallback"]);
    /// Identity of the observed occurrence.
    WINDOW_OPENED_AT = "noderotation.io/window-opened-at" on [NodePool] by Controller as Format::Instant;
    /// Gate A runs from here.
    LAST_ROTATION_AT = "noderotation.io/last-rotation-at" on [NodePool] by Controller as Format::Instant;
    /// Gate B runs from here.
    LAST_FAILURE_AT = "noderotation.io/last-failure-at" on [NodePool] by Controller as Format::Instant;
    /// The operator's hold.
    FREEZE = "noderotation.io/freeze" on [NodePool] by Operator as Format::Instant;
    /// Where the rotation of a claim is.
    STATE = "noderotation.io/state" on [NodeClaim] by Controller as Format::OneOf(&["pending", "draining", "failed", "expired"]);
    /// `readyTimeout` runs from here.
    STARTED_AT = "noderotation.io/started-at" on [NodeClaim] by Controller as Format::Instant;
    /// The backoff runs from here.
    FAILED_AT = "noderotation.io/failed-at" on [NodeClaim] by Controller as Format::Instant;
    /// Escalates the backoff.
    RETRY_COUNT = "noderotation.io/retry-count" on [NodeClaim] by Controller as Format::Count;
    /// The NodeClaim that the placeholder induced.
    SURGE_CLAIM = "noderotation.io/surge-claim" on [NodeClaim] by Controller as Format::ClaimName;
    /// Pairs placeholder and frozen nodes with the rotation.
    SURGE_FOR = "noderotation.io/surge-for" on [Placeholder, Node] by Controller as Format::ClaimName;
    /// Marks that `karpenter.sh/do-not-disrupt` is ours.
    DO_NOT_DISRUPT_OWNED = "noderotation.io/do-not-disrupt-owned" on [Node] by Controller as Format::OneOf(&["true"]);
    /// Marks that `spec.unschedulable` is ours.
    CORDONED = "noderotation.io/cordoned" on [Node] by Controller as Format::OneOf(&["true"]);
    /// The operator's request to rotate a claim.
    ROTATE = "noderotation.io/rotate" on [NodeClaim] by Operator as Format::OneOf(&["now", "next-window"]);
    /// Lets one guarded write pass.
    BREAK_GLASS = "noderotation.io/break-glass" on [NodePool, NodeClaim, Node, Placeholder] by Operator as Format::Text;
    /// Our scheduling hint.
    NOMINATION = "noderotation.io/nomination" on [WorkloadPod] by Controller as Format::Json;
    /// Karpenter's own protection.
    DO_NOT_DISRUPT = "karpenter.sh/do-not-disrupt" on [Node, Placeholder] by Karpenter as Format::OneOf(&["true"]);
}

/// The anchor set: always cleared together, leftovers removed when the anchor is written (§8).
pub const ANCHOR_SET: [&str; 6] =
    [ACTIVE_ROTATION, ACTIVE_ROTATION_STATE, DRAINING_AT, SURGE_WAIT, SURGE_PATH, ROTATION_MODE];

/// Karpenter's label on nodes and NodeClaims that names their NodePool.
pub const KARPENTER_NODEPOOL: &str = "karpenter.sh/nodepool";
/// Karpenter's label on nodes that are fully initialized.
pub const KARPENTER_INITIALIZED: &str = "karpenter.sh/initialized";
/// Karpenter's taint on nodes that it is about to remove.
pub const KARPENTER_DISRUPTED: &str = "karpenter.sh/disrupted";
/// The label by which Karpenter and the scheduler know a host.
pub const HOSTNAME: &str = "kubernetes.io/hostname";
/// The zone of a node.
pub const ZONE: &str = "topology.kubernetes.io/zone";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_unique_and_ours_bear_the_prefix() {
        for (i, key) in ALL.iter().enumerate() {
            assert!(ALL.iter().skip(i + 1).all(|other| other.name != key.name), "{}", key.name);
            assert_eq!(key.name.starts_with(PREFIX), key.owner != Owner::Karpenter, "{}", key.name);
        }
        assert_eq!(ALL.len(), 22);
    }

    #[test]
    fn values_read_as_their_format_says() {
        for (key, good, bad) in [
            (ACTIVE_ROTATION, "api-1", ""),
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
    fn operators_keys_are_three() {
        let open: Vec<_> = ALL.iter().filter(|k| k.owner == Owner::Operator).map(|k| k.name).collect();
        assert_eq!(open, [FREEZE, ROTATE, BREAK_GLASS]);
    }
}
