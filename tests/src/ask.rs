//! Requests to the API server as a given user, whose responses a test inspects, refused or not.

use noderotation_rig::Rig;
use noderotation_rig::cluster::{Reply, exchange};
use serde_json::{Value, json};

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
