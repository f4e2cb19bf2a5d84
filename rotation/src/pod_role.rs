//! What each Pod of a Node is to a rotation (§9.2, §9.5, §9.7).
//!
//! Labels and annotations are whatever the Pod's author writes, so none of them alone decides: a Pod that claims to need no
//! room is believed only where Karpenter believes it as well, and a placeholder is known by its namespace and its name.

use k8s_openapi::api::core::v1::{Pod, PodSpec};
use noderotation_shared::keys;

use crate::placeholder;

/// What a Pod is to a drain of its Node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It has succeeded or failed, and needs no room.
    Finished,
    /// The kubelet's own, from a file on the node: it comes and goes with the node.
    Static,
    /// One of ours.
    Placeholder,
    /// A DaemonSet's: the new node brings its own.
    Daemon,
    /// It demands this host by its name, so that it cannot move.
    Pinned,
    /// It must move.
    Moves,
}

/// What this Pod is to a drain of its Node; placeholders live in `namespace`.
pub fn role(pod: &Pod, namespace: &str) -> Role {
    if matches!(pod.status.as_ref().and_then(|s| s.phase.as_deref()), Some("Succeeded" | "Failed")) {
        Role::Finished
    } else if is_owned_by(pod, "Node") {
        Role::Static
    } else if is_placeholder(pod, namespace) {
        Role::Placeholder
    } else if is_owned_by(pod, "DaemonSet") {
        Role::Daemon
    } else if pod.spec.as_ref().is_some_and(is_pinned) {
        Role::Pinned
    } else {
        Role::Moves
    }
}

/// Whether it lives in our namespace and has the name that the placeholder of its NodeClaim has. A tenant can write our label
/// on a Pod of his own, but creates none there.
fn is_placeholder(pod: &Pod, namespace: &str) -> bool {
    let meta = &pod.metadata;
    let claim = meta.annotations.as_ref().and_then(|annotations| annotations.get(keys::SURGE_FOR));
    let is_labelled = meta.labels.as_ref().is_some_and(|labels| labels.contains_key(keys::SURGE_FOR));
    is_labelled
        && meta.namespace.as_deref() == Some(namespace)
        && claim.is_some_and(|claim| meta.name.as_deref() == Some(&*placeholder::name(claim)))
}

fn is_owned_by(pod: &Pod, kind: &str) -> bool {
    pod.metadata.owner_references.iter().flatten().any(|o| o.controller == Some(true) && o.kind == kind)
}

/// Whether the Pod demands one host by its name, so that it cannot move at all.
fn is_pinned(spec: &PodSpec) -> bool {
    if spec.node_selector.as_ref().is_some_and(|s| s.contains_key(keys::HOSTNAME)) {
        return true;
    }
    let required = spec
        .affinity
        .as_ref()
        .and_then(|a| a.node_affinity.as_ref())
        .and_then(|n| n.required_during_scheduling_ignored_during_execution.as_ref());
    let Some(required) = required else { return false };
    // terms are alternatives: pinned only if every one of them pins
    !required.node_selector_terms.is_empty()
        && required.node_selector_terms.iter().all(|term| {
            let by_label =
                term.match_expressions.iter().flatten().any(|e| e.key == keys::HOSTNAME && e.operator == "In");
            let by_name = term.match_fields.iter().flatten().any(|f| f.key == "metadata.name" && f.operator == "In");
            by_label || by_name
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn what_each_pod_is() {
        let role_of = |meta: Value, spec: Value, phase: &str| {
            let pod = json!({"metadata": meta, "spec": spec, "status": {"phase": phase}});
            role(&serde_json::from_value(pod).unwrap(), "noderotation")
        };
        let running = |meta: Value| role_of(meta, json!({"containers": []}), "Running");
        let owned_by = |kind: &str| json!({"ownerReferences": [{"apiVersion": "v1", "kind": kind, "name": "o", "uid": "u", "controller": true}]});
        assert_eq!(running(json!({})), Role::Moves);
        assert_eq!(role_of(json!({}), json!({"containers": []}), "Succeeded"), Role::Finished);
        assert_eq!(role_of(json!({}), json!({"containers": []}), "Failed"), Role::Finished);
        assert_eq!(running(owned_by("DaemonSet")), Role::Daemon);
        assert_eq!(running(owned_by("Node")), Role::Static);
        assert_eq!(running(owned_by("ReplicaSet")), Role::Moves);
        let pinned = json!({"containers": [], "nodeSelector": {"kubernetes.io/hostname": "h"}});
        assert_eq!(role_of(json!({}), pinned, "Running"), Role::Pinned);
        let by_label = |operator: &str| json!({"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": operator, "values": ["h"]}]});
        let by_name = json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["h"]}]});
        let not_by_name = json!({"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["h"]}]});
        let elsewhere = json!({"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]});
        for (terms, expected) in [
            (json!([by_label("In")]), Role::Pinned),
            (json!([by_name]), Role::Pinned),
            (json!([by_label("In"), by_name]), Role::Pinned),
            // terms are alternatives: by the other one it can move
            (json!([by_label("In"), elsewhere]), Role::Moves),
            (json!([elsewhere]), Role::Moves),
            (json!([by_label("NotIn")]), Role::Moves),
            (json!([not_by_name]), Role::Moves),
            (json!([]), Role::Moves),
        ] {
            let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}});
            let spec = json!({"containers": [], "affinity": {"nodeAffinity": required}});
            assert_eq!(role_of(json!({}), spec, "Running"), expected, "{terms}");
        }
        let mirror = json!({"annotations": {"kubernetes.io/config.mirror": "x"}});
        assert_eq!(
            running(mirror),
            Role::Moves,
            "whoever creates a Pod can write that; the kubelet names its Node as owner"
        );
    }

    #[test]
    fn a_placeholder_is_known_by_its_namespace_and_its_name() {
        let role_of = |namespace: &str, name: &str, claim: Option<&str>| {
            let labels = json!({"noderotation.io/surge-for": name});
            let mut meta = json!({"namespace": namespace, "name": name, "labels": labels});
            if let Some(claim) = claim {
                meta["annotations"] = json!({"noderotation.io/surge-for": claim});
            }
            let pod = json!({"metadata": meta, "spec": {"containers": []}, "status": {"phase": "Running"}});
            role(&serde_json::from_value(pod).unwrap(), "noderotation")
        };
        let name = placeholder::name("api-1");
        assert_eq!(role_of("noderotation", &name, Some("api-1")), Role::Placeholder);
        assert_eq!(role_of("shop", &name, Some("api-1")), Role::Moves, "of a tenant");
        assert_eq!(role_of("noderotation", "web-0", Some("api-1")), Role::Moves, "another name");
        assert_eq!(role_of("noderotation", &name, Some("api-2")), Role::Moves, "of another claim");
        assert_eq!(role_of("noderotation", &name, None), Role::Moves, "of no claim");
    }
}
