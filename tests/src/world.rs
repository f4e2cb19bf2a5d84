//! What tests, demonstration and benches do with the NodePools, workloads and policies of a cluster: create, read, wait.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use noderotation_rig::Rig;
use serde_json::{Value, json};

/// How long tests wait for anything that takes at most one rotation. It bounds a failure and measures nothing.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// A RotationPolicy with the name of a NodePool. It selects `pool=<name>`, its window is always open, its pauses are short.
pub fn policy(pool: &str) -> Value {
    json!({
        "apiVersion": "noderotation.io/v1alpha1",
        "kind": "RotationPolicy",
        "metadata": {"name": pool},
        "spec": {
            "nodePoolSelector": {"matchLabels": {"pool": pool}},
            "maintenanceWindows": [{
                "timezone": "UTC", "days": ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"], "start": "00:00", "end": "24:00",
            }],
            "surge": {"readyTimeout": "2m", "cooldownAfter": "1s", "failurePause": "5s", "retryBackoff": "10s"},
        },
    })
}

/// `maintenanceWindows` with a daily window in UTC that opens at the minute of `open` and lasts `minutes`.
pub fn window(open: Timestamp, minutes: i64) -> Value {
    let clock = |at: Timestamp| at.to_zoned(jiff::tz::TimeZone::UTC).strftime("%H:%M").to_string();
    let close = open + SignedDuration::from_mins(minutes);
    json!([{
        "timezone": "UTC", "days": ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"], "start": clock(open), "end": clock(close),
    }])
}

/// The value of an annotation; `None` where the object lacks it.
pub fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object["metadata"]["annotations"].get(key)?.as_str()
}

/// The name of an object.
pub fn name(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

/// The status of a condition (`True`, `False`, `Unknown`); `None` where the object lacks it.
pub fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a str> {
    object["status"]["conditions"].as_array()?.iter().find(|c| c["type"] == kind)?["status"].as_str()
}

/// The NodeClaims of a NodePool, oldest first.
pub async fn claims(rig: &Rig, pool: &str) -> anyhow::Result<Vec<Value>> {
    let mut claims =
        rig.list(&format!("/apis/karpenter.sh/v1/nodeclaims?labelSelector=karpenter.sh%2Fnodepool%3D{pool}")).await?;
    claims.sort_by_key(|c| (c["metadata"]["creationTimestamp"].to_string(), name(c)));
    Ok(claims)
}

/// The nodes of a NodePool.
pub async fn nodes(rig: &Rig, pool: &str) -> anyhow::Result<Vec<Value>> {
    rig.list(&format!("/api/v1/nodes?labelSelector=karpenter.sh%2Fnodepool%3D{pool}")).await
}

/// Reads a NodePool.
pub async fn pool(rig: &Rig, name: &str) -> anyhow::Result<Value> {
    rig.get(&format!("/apis/karpenter.sh/v1/nodepools/{name}")).await
}

/// The Pods with the label `app=<app>` in the namespace `default`.
pub async fn pods(rig: &Rig, app: &str) -> anyhow::Result<Vec<Value>> {
    rig.list(&format!("/api/v1/namespaces/default/pods?labelSelector=app%3D{app}")).await
}

/// The placeholder Pods of all rotations (§9.1).
pub async fn placeholders(rig: &Rig) -> anyhow::Result<Vec<Value>> {
    rig.list("/api/v1/namespaces/noderotation/pods?labelSelector=noderotation.io%2Fsurge-for").await
}

/// Waits until all replicas of a workload run on Ready, initialized nodes; its Pods.
pub async fn settled(rig: &Rig, app: &str, replicas: usize) -> anyhow::Result<Vec<Value>> {
    rig.wait(&format!("{replicas} Pods of {app} to run"), PATIENCE, async || {
        let pods = pods(rig, app).await?;
        let running =
            pods.iter().filter(|p| p["status"]["phase"] == "Running" && p["metadata"]["deletionTimestamp"].is_null());
        if pods.len() != replicas || running.count() != replicas {
            return Ok(None);
        }
        let nodes = rig.list("/api/v1/nodes").await?;
        let ready = pods.iter().all(|p| {
            nodes.iter().any(|n| {
                n["metadata"]["name"] == p["spec"]["nodeName"]
                    && condition(n, "Ready") == Some("True")
                    && n["metadata"]["labels"]["karpenter.sh/initialized"] == "true"
            })
        });
        Ok(ready.then_some(pods))
    })
    .await
}

/// Requests the rotation of a NodeClaim: `next-window` or `now`.
pub async fn request(rig: &Rig, claim: &str, how: &str) -> anyhow::Result<()> {
    let path = format!("/apis/karpenter.sh/v1/nodeclaims/{claim}");
    rig.merge(&path, json!({"metadata": {"annotations": {"noderotation.io/rotate": how}}})).await.map(|_| ())
}

/// Waits until a NodeClaim is gone and its NodePool no longer names an active rotation.
pub async fn rotated(rig: &Rig, pool_name: &str, claim: &str) -> anyhow::Result<()> {
    rig.wait(&format!("NodeClaim {claim} to be rotated"), PATIENCE, async || {
        let gone = rig.try_get(&format!("/apis/karpenter.sh/v1/nodeclaims/{claim}")).await?.is_none();
        let released = annotation(&pool(rig, pool_name).await?, "noderotation.io/active-rotation").is_none();
        Ok((gone && released).then_some(()))
    })
    .await
}

/// Waits until the rotation of a NodeClaim is in a state (`pending`, `draining`); the NodeClaim.
pub async fn in_state(rig: &Rig, pool_name: &str, claim: &str, state: &str) -> anyhow::Result<Value> {
    rig.wait(&format!("NodeClaim {claim} to be {state}"), PATIENCE, async || {
        let path = format!("/apis/karpenter.sh/v1/nodeclaims/{claim}");
        let object = rig.get(&path).await?;
        let anchored = annotation(&pool(rig, pool_name).await?, "noderotation.io/active-rotation") == Some(claim);
        Ok((anchored && annotation(&object, "noderotation.io/state") == Some(state)).then_some(object))
    })
    .await
}

/// Waits until an attempt to rotate a NodeClaim has failed; the NodeClaim.
pub async fn failed(rig: &Rig, claim: &str) -> anyhow::Result<Value> {
    rig.wait(&format!("the rotation of NodeClaim {claim} to fail"), PATIENCE, async || {
        let claim = rig.get(&format!("/apis/karpenter.sh/v1/nodeclaims/{claim}")).await?;
        Ok((annotation(&claim, "noderotation.io/state") == Some("failed")).then_some(claim))
    })
    .await
}

/// The notes of the controller's Events with this reason that regard an object.
pub async fn events(rig: &Rig, reason: &str, about: &str) -> anyhow::Result<Vec<String>> {
    let events = rig.list("/apis/events.k8s.io/v1/events").await?;
    let of = |e: &&Value| {
        e["reason"] == reason
            && e["regarding"]["name"] == about
            && e["reportingController"] == "noderotation.io/controller"
    };
    Ok(events.iter().filter(of).map(|e| e["note"].as_str().unwrap_or_default().to_owned()).collect())
}

/// Waits for an Event as in [`events`]; its note.
pub async fn event(rig: &Rig, reason: &str, about: &str) -> anyhow::Result<String> {
    rig.wait(&format!("event {reason} on {about}"), PATIENCE, async || Ok(events(rig, reason, about).await?.pop()))
        .await
}
