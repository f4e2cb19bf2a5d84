//! Fills a bare API server with Nodes, NodeClaims and Pods of the size that real ones have.

use futures::StreamExt;
use kube::Client;
use noderotation_rig::Rig;
use serde_json::{Value, json};

/// The number of NodePools, over which the nodes are spread evenly.
pub const POOLS: usize = 20;

/// The number of requests in flight.
const CONCURRENCY: usize = 32;

/// Creates the NodePools, then `nodes` nodes with their NodeClaims, then `pods` Pods on them.
pub async fn fill(rig: &Rig, nodes: usize, pods: usize) -> anyhow::Result<()> {
    // no controller creates it on a bare rig, and Pods are refused without it
    rig.apply(
        &json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": "default"}}),
    )?;
    for n in 0..POOLS {
        noderotation_rig::objects::node_pool(&format!("pool-{n}")).apply(rig)?;
    }
    each(rig, (0..nodes).collect(), |client, i| async move { node_and_claim(&client, i).await }).await?;
    each(rig, (0..pods).collect(), move |client, i| async move {
        post(&client, "/api/v1/namespaces/default/pods", &pod(i, nodes)).await
    })
    .await
}

async fn each<F, R>(rig: &Rig, all: Vec<usize>, work: F) -> anyhow::Result<()>
where
    F: Fn(Client, usize) -> R,
    R: Future<Output = anyhow::Result<()>>,
{
    let mut running = futures::stream::iter(all).map(|i| work(rig.client.clone(), i)).buffer_unordered(CONCURRENCY);
    while let Some(result) = running.next().await {
        result?;
    }
    Ok(())
}

async fn send(client: &Client, method: &str, path: &str, content: &str, body: &Value) -> anyhow::Result<()> {
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", content)
        .body(body.to_string().into_bytes())?;
    client.request_text(request).await?;
    Ok(())
}

async fn post(client: &Client, path: &str, body: &Value) -> anyhow::Result<()> {
    send(client, "POST", path, "application/json", body).await
}

fn node_name(i: usize) -> String {
    format!("ip-10-{}-{}-{}.internal", i / 65536, i / 256 % 256, i % 256)
}

async fn node_and_claim(client: &Client, i: usize) -> anyhow::Result<()> {
    let (name, pool) = (node_name(i), format!("pool-{}", i % POOLS));
    let labels = json!({
        "karpenter.sh/nodepool": pool, "karpenter.sh/capacity-type": "on-demand", "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux",
        "topology.kubernetes.io/zone": "zone-a", "node.kubernetes.io/instance-type": "m5.large", "kubernetes.io/hostname": name,
        "karpenter.sh/initialized": "true", "karpenter.sh/registered": "true",
    });
    let conditions: Vec<Value> = ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"]
        .map(|t| json!({
            "type": t, "status": if t == "Ready" { "True" } else { "False" }, "reason": "KubeletReady", "message": "kubelet is posting ready status",
            "lastHeartbeatTime": "2026-11-29T00:00:00Z", "lastTransitionTime": "2026-11-29T00:00:00Z",
        }))
        .into();
    let capacity = json!({"cpu": "8", "memory": "32Gi", "pods": "110", "ephemeral-storage": "100Gi"});
    let images: Vec<Value> = (0..25)
        .map(|k| json!({"names": [format!("registry.example/app-{k}@sha256:{}", "a".repeat(64)), format!("registry.example/app-{k}:v1")], "sizeBytes": 123_456_789}))
        .collect();
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "spec": {"providerID": format!("kwok://{name}")},
        "status": {
            "capacity": capacity, "allocatable": capacity, "conditions": conditions, "images": images,
            "addresses": [{"type": "InternalIP", "address": format!("10.{}.{}.{}", i / 65536, i / 256 % 256, i % 256)}],
            "nodeInfo": {
                "machineID": format!("ec2{}", "0".repeat(29)), "systemUUID": "u".repeat(36), "bootID": "b".repeat(36), "kernelVersion": "6.1.0",
                "osImage": "Bottlerocket OS", "containerRuntimeVersion": "containerd://2.0", "kubeletVersion": "v1.36.3", "kubeProxyVersion": "",
                "operatingSystem": "linux", "architecture": "amd64",
            },
        },
    });
    post(client, "/api/v1/nodes", &node).await?;
    let claim = format!("pool-{}-{i:05x}", i % POOLS);
    let body = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
        "metadata": {
            "name": claim, "labels": labels, "finalizers": ["karpenter.sh/termination"],
            "annotations": {"karpenter.sh/nodepool-hash": "1", "karpenter.sh/nodepool-hash-version": "v3"},
        },
        "spec": {
            "expireAfter": "336h", "terminationGracePeriod": "1h",
            "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
            "requirements": [{"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}],
        },
    });
    post(client, "/apis/karpenter.sh/v1/nodeclaims", &body).await?;
    let status = json!({"status": {
        "nodeName": name, "providerID": format!("kwok://{name}"), "capacity": capacity, "allocatable": capacity,
        "conditions": [{"type": "Ready", "status": "True", "reason": "Ready", "message": "", "lastTransitionTime": "2026-11-29T00:00:00Z"}],
    }});
    send(
        client,
        "PATCH",
        &format!("/apis/karpenter.sh/v1/nodeclaims/{claim}/status"),
        "application/merge-patch+json",
        &status,
    )
    .await
}

fn pod(i: usize, nodes: usize) -> Value {
    let settings: Vec<Value> =
        (0..20).map(|k| json!({"name": format!("SETTING_{k}"), "value": "v".repeat(24)})).collect();
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": format!("app-{}-7d9f8b6c5-{i:05x}", i / 10), "namespace": "default",
            "labels": {"app": format!("app-{}", i / 10), "pod-template-hash": "7d9f8b6c5"}, "annotations": {"checksum/config": "c".repeat(64)},
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": format!("app-{}-7d9f8b6c5", i / 10),
                "uid": format!("{i:08x}-0000-0000-0000-000000000000"), "controller": true,
            }],
        },
        "spec": {
            "nodeName": node_name(i % nodes),
            "containers": [
                {
                    "name": "app", "image": format!("registry.example/app@sha256:{}", "a".repeat(64)), "env": settings,
                    "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"memory": "1Gi"}}, "ports": [{"containerPort": 8080}],
                    "readinessProbe": {"httpGet": {"path": "/healthz", "port": 8080}}, "volumeMounts": [{"name": "cfg", "mountPath": "/cfg"}],
                },
                {
                    "name": "sidecar", "image": format!("registry.example/mesh@sha256:{}", "b".repeat(64)), "env": settings[..8],
                    "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}},
                },
            ],
            "volumes": [{"name": "cfg", "configMap": {"name": "cfg"}}],
            "tolerations": [{"key": "a", "operator": "Exists"}],
        },
    })
}
