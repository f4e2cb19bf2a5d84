//! The merge patches that a rotation sends: each carries the `resourceVersion` that its decision saw (§8).

use std::collections::BTreeMap;

use noderotation_shared::keys;
use noderotation_shared::kind::Kind;
use noderotation_shared::objects::{Meta, Node, NodeClaim};
use serde_json::{Value, json};

use crate::step::{Act, Announcement, Step, Write};
use crate::world::World;

/// A merge patch of annotations and, on a Node, of `spec.unschedulable`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patch {
    /// What is patched: a NodePool, a NodeClaim or a Node.
    pub kind: Kind,
    /// Its name.
    pub name: String,
    /// The observed `resourceVersion`. The API server answers 409 if the object has another one by now.
    pub version: String,
    /// Annotations to set (`Some`) or to remove (`None`).
    pub annotations: Annotated,
    /// The new `spec.unschedulable`; `None` leaves it as it is.
    pub unschedulable: Option<bool>,
}

/// Annotations to set (`Some`) or to remove (`None`), by key.
pub type Annotated = BTreeMap<&'static str, Option<String>>;

impl Patch {
    /// A patch of annotations.
    pub fn new(kind: Kind, meta: &Meta, annotations: impl IntoIterator<Item = (&'static str, Option<String>)>) -> Self {
        Self {
            kind,
            name: meta.name.to_string(),
            version: meta.version.to_string(),
            annotations: annotations.into_iter().collect(),
            unschedulable: None,
        }
    }

    /// A patch of a Node's annotations and of `spec.unschedulable`; `None` when it would change nothing.
    pub fn of_node(node: &Node, annotations: Annotated, unschedulable: Option<bool>) -> Option<Self> {
        let changes = !annotations.is_empty() || unschedulable.is_some();
        changes.then(|| Self { unschedulable, ..Self::new(Kind::Node, &node.meta, annotations) })
    }

    /// The request's body.
    pub fn body(&self) -> Value {
        let mut body = json!({"metadata": {"resourceVersion": self.version, "annotations": self.annotations}});
        if let (Some(unschedulable), Some(object)) = (self.unschedulable, body.as_object_mut()) {
            object.insert("spec".into(), json!({"unschedulable": unschedulable}));
        }
        body
    }
}

/// A step that sends one request and announces these once it has landed.
pub(crate) fn act(name: &'static str, write: Write, announce: Vec<Announcement>) -> Step {
    Step::Write(Box::new(Act { name, write, announce }))
}

/// A patch of the pool's annotations.
pub(crate) fn pool_patch(
    world: &World,
    annotations: impl IntoIterator<Item = (&'static str, Option<String>)>,
) -> Write {
    Write::Patch(Patch::new(Kind::NodePool, &world.pool.meta, annotations))
}

/// A patch of a claim's annotations.
pub(crate) fn claim_patch(
    claim: &NodeClaim,
    annotations: impl IntoIterator<Item = (&'static str, Option<String>)>,
) -> Write {
    Write::Patch(Patch::new(Kind::NodeClaim, &claim.meta, annotations))
}

/// Removes the anchor set: those of its keys that the pool bears.
pub(crate) fn cleared_anchor(world: &World) -> Vec<(&'static str, Option<String>)> {
    keys::ANCHOR_SET.into_iter().filter(|key| world.pool.meta.annotations.has(key)).map(|key| (key, None)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A null removes an annotation; the version makes the write conditional.
    #[test]
    fn the_body_is_a_merge_patch() {
        let meta = Meta { name: "n".into(), version: "7".into(), ..Meta::default() };
        let changes = [(keys::STATE, Some("pending".to_owned())), (keys::STARTED_AT, None)];
        let patch = Patch::new(Kind::NodeClaim, &meta, changes);
        let metadata = json!({"resourceVersion": "7", "annotations": {"noderotation.io/state": "pending", "noderotation.io/started-at": null}});
        assert_eq!(patch.body(), json!({"metadata": metadata}));
        let cordoned = Patch { unschedulable: Some(true), ..patch };
        assert_eq!(cordoned.body(), json!({"metadata": metadata, "spec": {"unschedulable": true}}));
    }

    #[test]
    fn a_node_is_patched_only_where_something_changes() {
        let node = Node::default();
        let cleared = Annotated::from([(keys::CORDONED, None)]);
        assert_eq!(Patch::of_node(&node, Annotated::new(), None), None);
        assert!(Patch::of_node(&node, cleared, None).is_some_and(|patch| patch.kind == Kind::Node));
        assert!(Patch::of_node(&node, Annotated::new(), Some(false)).is_some());
    }
}
