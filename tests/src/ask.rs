//! Requests to the API server as a given user, whose responses a test inspects, refused or not.

use noderotation_rig::Rig;
use noderotation_rig::cluster::{Reply, exchange};
use noderotation_shared::keys;
use serde_json::{Value, json};

use crate::product::NAMESPACE;

/// The path of the collection of RotationPolicies.
pub const POLICIES: &str = "/apis/noderotation.io/v1alpha1/rotationpolicies";
/// The path of the collection of NodePools.
pub const POOLS: &str = "/apis/karpenter.sh/v1/nodepools";
/// The path of the collection of NodeClaims.
pub const CLAIMS: &str = "/apis/karpenter.sh/v1/nodeclaims";

/// The content type of a JSON merge patch.
pub const MERGE: &str = "application/merge-patch+json";
/// The content type of a JSON patch.
pub const JSON: &str = "application/json-patch+json";
/// The content type of a strategic merge patch.
pub const STRATEGIC: &str = "application/strategic-merge-patch+json";
/// The content type of server-side apply.
pub const APPLY: &str = "application/apply-patch+yaml";

/// A user of the API server. No method fails: a response that does not come has the code 0.
#[derive(Clone)]
pub struct Asker(pub kube::Client);

impl Asker {
    /// The cluster administrator.
    pub fn admin(rig: &Rig) -> Self {
        Self(rig.client.clone())
    }

    /// Sends a request with a JSON body of the content type `content`.
    pub async fn ask(&self, method: &str, path: &str, content: &str, body: &Value) -> Reply {
        exchange(&self.0, method, path, &[("content-type", content)], body).await.unwrap_or_else(|error| Reply {
            code: 0,
            body: json!({"message": error.to_string()}),
            warnings: Vec::new(),
        })
    }

    /// Creates an object (POST).
    pub async fn create(&self, collection: &str, object: &Value) -> Reply {
        self.ask("POST", collection, "application/json", object).await
    }

    /// Replaces an object (PUT).
    pub async fn put(&self, path: &str, object: &Value) -> Reply {
        self.ask("PUT", path, "application/json", object).await
    }

    /// Sends a merge patch.
    pub async fn merge(&self, path: &str, patch: &Value) -> Reply {
        self.ask("PATCH", path, MERGE, patch).await
    }

    /// Applies an object server-side, with force, as a field manager; `dry_run` stores nothing.
    pub async fn apply(&self, path: &str, manager: &str, dry_run: bool, object: &Value) -> Reply {
        let dry_run = if dry_run { "&dryRun=All" } else { "" };
        self.ask("PATCH", &format!("{path}?fieldManager={manager}&force=true{dry_run}"), APPLY, object).await
    }

    /// Reads an object (GET).
    pub async fn get(&self, path: &str) -> Reply {
        self.ask("GET", path, "application/json", &Value::Null).await
    }

    /// Deletes an object (DELETE).
    pub async fn delete(&self, path: &str) -> Reply {
        self.ask("DELETE", path, "application/json", &json!({})).await
    }
}

/// Checks that `what` was done.
///
/// # Panics
///
/// If the code is neither 200 nor 201; the message names `what`.
#[track_caller]
pub fn done(what: &str, reply: &Reply) {
    assert!(matches!(reply.code, 200 | 201), "{what}: {}: {}", reply.code, reply.message());
}

/// A valid RotationPolicy that selects these labels.
pub fn policy(name: &str, labels: &Value) -> Value {
    json!({
        "apiVersion": "noderotation.io/v1alpha1", "kind": "RotationPolicy", "metadata": {"name": name},
        "spec": {
            "nodePoolSelector": {"matchLabels": labels},
            "maintenanceWindows": [{"timezone": "Asia/Tokyo", "days": ["Wed", "Sat"], "start": "02:00", "end": "06:00"}],
        },
    })
}

/// A NodePool with these labels, without findings under [`policy`].
pub fn pool(name: &str, labels: &Value) -> Value {
    json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name, "labels": labels},
        "spec": {"template": {"spec": {
            "expireAfter": "480h", "terminationGracePeriod": "1h",
            "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
            "requirements": [{"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}],
        }}},
    })
}

/// A NodeClaim of the NodePool `pool`.
pub fn claim(name: &str, pool: &str) -> Value {
    json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
        "metadata": {"name": name, "labels": {"karpenter.sh/nodepool": pool}},
        "spec": {
            "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
            "requirements": [{"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}],
        },
    })
}

/// A placeholder as the controller creates it, changed by these fields of its spec and of its container.
pub fn placeholder(spec: &Value, container: &Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "surge-x", "namespace": NAMESPACE, "labels": {keys::SURGE_FOR: "surge-x"}, "annotations": {keys::SURGE_FOR: "x"}},
        "spec": {
            "automountServiceAccountToken": false, "priorityClassName": "noderotation-placeholder", "preemptionPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "securityContext": {"runAsNonRoot": true, "runAsUser": 65535, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{
                "name": "pause", "image": "registry.k8s.io/pause:3.10",
                "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": true},
            }],
        },
    });
    for (key, value) in spec.as_object().into_iter().flatten() {
        pod["spec"][key] = value.clone();
    }
    for (key, value) in container.as_object().into_iter().flatten() {
        pod["spec"]["containers"][0][key] = value.clone();
    }
    pod
}
