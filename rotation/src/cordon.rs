//! What a rotation does to Nodes (§8, *Nodes*): protection, cordon, and their undoing by our own markers, each in one
//! conditional patch.

use noderotation_shared::keys;
use noderotation_shared::objects::Node;

use crate::patch::{Annotated, Patch};

/// Protects a Node for a rotation (against consolidation and drift) and, for the old Node, cordons it. `None` when nothing is missing.
///
/// An operator's own `do-not-disrupt: "true"` is left unmarked and an operator's cordon is not adopted. Any other value of
/// `do-not-disrupt` does not hold a Node, so it is overwritten; the owned marker keeps it, and [`unprotect`] puts it back.
pub fn protect(node: &Node, claim: &str, cordon: bool) -> Option<Patch> {
    let annotations = &node.meta.annotations;
    let mut changes = Annotated::new();
    let mut unschedulable = None;
    if annotations.get(keys::SURGE_FOR) != Some(claim) {
        changes.insert(keys::SURGE_FOR, Some(claim.to_owned()));
    }
    if annotations.get(keys::DO_NOT_DISRUPT) != Some("true") {
        changes.insert(keys::DO_NOT_DISRUPT, Some("true".to_owned()));
        if !annotations.has(keys::DO_NOT_DISRUPT_OWNED) {
            // the marker keeps what an operator had written, so that it can be put back
            let before = annotations.get(keys::DO_NOT_DISRUPT).filter(|value| !value.trim().is_empty());
            changes.insert(keys::DO_NOT_DISRUPT_OWNED, Some(before.unwrap_or("true").to_owned()));
        }
    }
    if cordon && !node.unschedulable {
        unschedulable = Some(true);
        if annotations.get(keys::CORDONED) != Some("true") {
            changes.insert(keys::CORDONED, Some("true".to_owned()));
        }
    }
    Patch::of_node(node, changes, unschedulable)
}

/// Takes everything of ours off a Node. `None` when nothing of ours is there.
pub fn unprotect(node: &Node) -> Option<Patch> {
    let annotations = &node.meta.annotations;
    let mut changes = Annotated::new();
    let mut unschedulable = None;
    if annotations.has(keys::SURGE_FOR) {
        changes.insert(keys::SURGE_FOR, None);
    }
    if let Some(before) = annotations.get(keys::DO_NOT_DISRUPT_OWNED) {
        changes.insert(keys::DO_NOT_DISRUPT_OWNED, None);
        changes.insert(keys::DO_NOT_DISRUPT, Some(before.to_owned()).filter(|before| before != "true"));
    }
    if annotations.has(keys::CORDONED) {
        changes.insert(keys::CORDONED, None);
        unschedulable = Some(false);
    }
    Patch::of_node(node, changes, unschedulable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use noderotation_shared::objects::{Annotations, Meta};
    use proptest::prelude::*;

    fn node(annotations: &[(&str, &str)], unschedulable: bool) -> Node {
        Node {
            meta: Meta { annotations: Annotations::of(annotations.iter().copied()), ..Meta::default() },
            unschedulable,
            ..Node::default()
        }
    }

    /// What the API server makes of a patch.
    fn apply(node: &Node, patch: &Patch) -> Node {
        let changes = patch.annotations.iter().map(|(key, value)| (*key, value.as_deref()));
        let meta = Meta { annotations: node.meta.annotations.patched(changes), ..node.meta.clone() };
        Node { meta, unschedulable: patch.unschedulable.unwrap_or(node.unschedulable), ..node.clone() }
    }

    #[test]
    fn an_operators_protection_and_cordon_stay() {
        let before = node(&[(keys::DO_NOT_DISRUPT, "true")], true);
        let protected = apply(&before, &protect(&before, "c", true).unwrap());
        assert!(
            !protected.meta.annotations.has(keys::DO_NOT_DISRUPT_OWNED)
                && !protected.meta.annotations.has(keys::CORDONED)
        );
        assert_eq!(apply(&protected, &unprotect(&protected).unwrap()), before);
    }

    #[test]
    fn another_value_is_owned_and_put_back() {
        for value in ["false", "2h", "True"] {
            let before = node(&[(keys::DO_NOT_DISRUPT, value)], false);
            let protected = apply(&before, &protect(&before, "c", true).unwrap());
            assert_eq!(protected.meta.annotations.get(keys::DO_NOT_DISRUPT), Some("true"));
            assert_eq!(protected.meta.annotations.get(keys::DO_NOT_DISRUPT_OWNED), Some(value));
            assert!(protected.unschedulable && !protected.is_opted_out());
            assert_eq!(apply(&protected, &unprotect(&protected).unwrap()), before);
        }
    }

    proptest! {
        #[test]
        fn protecting_is_idempotent_and_undone(by_operator: bool, cordoned: bool, cordon: bool) {
            let annotations: &[(&str, &str)] = if by_operator { &[(keys::DO_NOT_DISRUPT, "true")] } else { &[] };
            let before = node(annotations, cordoned);
            let protected = apply(&before, &protect(&before, "c", cordon).unwrap());
            prop_assert_eq!(protect(&protected, "c", cordon), None);
            let after = apply(&protected, &unprotect(&protected).unwrap());
            prop_assert_eq!(unprotect(&after), None);
            prop_assert_eq!(after, before);
        }
    }
}
