//! Asking the API server as somebody, and what it said.

use noderotation_rig::Rig;
use noderotation_rig::cluster::{Reply, exchange};
use serde_json::{Value, json};

/// The collection of RotationPolicies.
pub const POLICIES: &str = "/apis/noderotation.io/v1alpha1/rotationpolicies";
/// The collection of NodePools.
pub const POOLS: &str = "/apis/karpenter.sh/v1/nodepools";
/// The collection of NodeClaims.
pub const CLAIMS: &str = "/apis/karpenter.sh/v1/nodeclaims";

/// The content types of the four patches.
pub const MERGE: &str = "application/merge-patch+json";
/// JSON patch.
pub const JSON: &str = "application/json-patch+json";
/// Strategic merge patch.
pub const STRATEGIC: &str = "application/strategic-merge-patch+json";
/// Server-side apply.
pub const APPLY: &str = "application/apply-patch+yaml";

/// Somebody who asks.
#[derive(Clone)]
pub struct Asker(pub kube::Client);

impl Asker {
    /// The cluster's administrator.
    pub fn admin(rig: &Rig) -> Self {
        Self(rig.client.clone())
    }

    /// Any request.
    pub async fn ask(&self, method: &str, path: &str, content: &str, body: &Value) -> Reply {
        exchange(&self.0, method, path, &[("content-type", content)], body).await.unwrap_or_else(|error| Reply {
            code: 0,
            body: json!({"message": error.to_string()}),
            warnings: Vec::new(),
        })
    }

    /// Creates an object.
    pub async fn create(&self, collection: &str, object: &Value) -> Reply {
        self.ask("POST", collection, "application/json", object).await
    }

    /// Replaces an object.
    pub async fn put(&self, path: &str, object: &Value) -> Reply {
        self.ask("PUT", path, "application/json", object).await
    }

    /// A merge patch.
    pub async fn merge(&self, path: &str, patch: &Value) -> Reply {
        self.ask("PATCH", path, MERGE, patch).await
    }

    /// Server-side apply by a manager; `dry_run` stores nothing.
    pub async fn apply(&self, path: &str, manager: &str, dry_run: bool, object: &Value) -> Reply {
        let dry_run = if dry_run { "&dryRun=All" } else { "" };
        self.ask("PATCH", &format!("{path}?fieldManager={manager}&force=true{dry_run}"), APPLY, object).await
    }

    /// Reads an object.
    pub async fn get(&self, path: &str) -> Reply {
        self.ask("GET", path, "application/json", &Value::Null).await
    }

    /// Deletes an object.
    pub async fn delete(&self, path: &str) -> Reply {
        self.ask("DELETE", path, "application/json", &json!({})).await
    }
}

/// A policy that selects these labels, and is right.
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

/// A NodeClaim of a NodePool.
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
