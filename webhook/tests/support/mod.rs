//! Policies, NodePools and reviews, as the API server sends them.
#![allow(dead_code, reason = "each test file uses only some of these")]

use std::sync::Arc;

use noderotation_cluster::error::Error;
use noderotation_cluster::objects::Cached;
use noderotation_cluster::watch::EventHandler;
use noderotation_shared::kind::Kind;
use noderotation_shared::objects::PolicyObject;
use noderotation_webhook::caches::{Caches, PoolObject};
use noderotation_webhook::handlers::{Endpoint, Handlers, VerdictOptions};
use noderotation_webhook::live::{BoxFuture, LiveReader};
use serde_json::{Value, json};

/// The user name of the controller.
pub const CONTROLLER: &str = "system:serviceaccount:noderotation:noderotation-controller";

/// A valid RotationPolicy that selects these labels.
pub fn policy(name: &str, labels: &Value) -> Value {
    json!({
        "apiVersion": "noderotation.io/v1alpha1", "kind": "RotationPolicy",
        "metadata": {"name": name, "uid": format!("uid-{name}"), "resourceVersion": "1", "generation": 1},
        "spec": {
            "nodePoolSelector": {"matchLabels": labels},
            "maintenanceWindows": [{"timezone": "Asia/Tokyo", "days": ["Wed", "Sat"], "start": "02:00", "end": "06:00"}],
        },
    })
}

/// A NodePool with these labels, without findings under [`policy`].
pub fn pool(name: &str, labels: &Value) -> Value {
    json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool",
        "metadata": {"name": name, "uid": format!("uid-{name}"), "resourceVersion": "1", "labels": labels},
        "spec": {"template": {"spec": {"expireAfter": "480h", "terminationGracePeriod": "1h"}}},
        "status": {"resources": {"nodes": "3"}},
    })
}

/// Handlers over caches that hold these objects.
pub fn handlers(policies: &[Value], pools: &[Value], options: VerdictOptions) -> Handlers {
    let caches = Arc::new(Caches::default());
    for policy in policies {
        caches.apply(PolicyObject::read(&policy.to_string()).unwrap());
    }
    for pool in pools {
        caches.apply(PoolObject::read(&pool.to_string()).unwrap());
    }
    Handlers { caches, options }
}

/// The options of an installation with default values.
pub fn options() -> VerdictOptions {
    VerdictOptions { controller: CONTROLLER.into(), ..VerdictOptions::default() }
}

/// An API server that has nothing else than the caches know.
pub struct Nothing;

impl LiveReader for Nothing {
    fn read<'a>(&'a self, _: Kind, _: &'a str) -> BoxFuture<'a, Result<Option<String>, Error>> {
        Box::pin(async { Ok(None) })
    }
}

/// A review as the API server sends it; null stands for an absent object.
pub fn review(resource: &str, operation: &str, object: &Value, old: &Value) -> Value {
    let named = if object.is_null() { old } else { object };
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "resource": {"group": "", "version": "v1", "resource": resource},
            "operation": operation, "name": named["metadata"]["name"].as_str().unwrap_or_default(),
            "userInfo": {"username": "jane@example.com", "groups": ["system:masters"]},
            "object": object, "oldObject": old, "dryRun": false, "options": null,
        },
    })
}

/// The resource that the chart sends to an endpoint.
pub fn resource_of(endpoint: Endpoint) -> &'static str {
    match endpoint {
        Endpoint::MutatePolicy | Endpoint::ValidatePolicy => "rotationpolicies",
        Endpoint::ValidatePool => "nodepools",
        Endpoint::ValidateClaim => "nodeclaims",
        Endpoint::Guard => "nodepools",
    }
}
