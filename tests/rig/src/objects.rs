//! Builders of the objects that tests create: NodePools, workloads, budgets.

use serde_json::{Value, json};

use crate::Rig;

/// Builds a NodePool; start with [`node_pool`].
#[derive(Clone, Debug)]
pub struct NodePool(Value);

/// A NodePool of on-demand nodes with two cores. It has the label `pool: <name>`, its nodes have `rig/pool: <name>`, which the
/// Pods of [`deployment`] and [`stateful_set`] require.
pub fn node_pool(name: &str) -> NodePool {
    NodePool(json!({
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name, "labels": {"pool": name}},
        "spec": {
            "template": {
                "metadata": {"labels": {"rig/pool": name}},
                "spec": {
                    "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
                    "requirements": [
                        {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]},
                        {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
                        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
                    ],
                    "expireAfter": "720h",
                    "terminationGracePeriod": "1h",
                },
            },
            "limits": {"cpu": "100"},
            "disruption": {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "Never"},
        },
    }))
}

impl NodePool {
    fn template(&mut self, field: &str, value: Value) {
        self.0["spec"]["template"]["spec"][field] = value;
    }

    /// Sets `expireAfter` (default 720h).
    pub fn expire_after(mut self, text: &str) -> Self {
        self.template("expireAfter", text.into());
        self
    }

    /// Sets `terminationGracePeriod` (default 1h); `None` removes it.
    pub fn grace(mut self, text: Option<&str>) -> Self {
        match (text, self.0["spec"]["template"]["spec"].as_object_mut()) {
            (Some(text), _) => self.template("terminationGracePeriod", text.into()),
            // the API server refuses a null
            (None, fields) => {
                fields.and_then(|fields| fields.remove("terminationGracePeriod"));
            }
        }
        self
    }

    /// Sets `limits` (default 100 cores).
    pub fn limits(mut self, limits: Value) -> Self {
        self.0["spec"]["limits"] = limits;
        self
    }

    /// Adds a label to its nodes.
    pub fn node_label(mut self, key: &str, value: &str) -> Self {
        self.0["spec"]["template"]["metadata"]["labels"][key] = value.into();
        self
    }

    /// Makes it a static NodePool of this many nodes. Without an instance type kwok's provider can launch none of them, since
    /// such a claim requests nothing.
    pub fn replicas(mut self, nodes: u32) -> Self {
        let instance_type =
            json!({"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["rig-small"]});
        if let Some(requirements) = self.0["spec"]["template"]["spec"]["requirements"].as_array_mut() {
            requirements.push(instance_type);
        }
        self.0["spec"]["replicas"] = nodes.into();
        self.limits(json!({"nodes": nodes.to_string()}))
    }

    /// Adds a label to the NodePool itself, by which a RotationPolicy can select it.
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.0["metadata"]["labels"][key] = value.into();
        self
    }

    /// Applies it, and the KWOKNodeClass that it refers to.
    pub fn apply(self, rig: &Rig) -> anyhow::Result<()> {
        rig.apply(&json!({
            "apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass",
            "metadata": {"name": "default"}, "spec": {"nodeRegistrationDelay": "2s"},
        }))?;
        rig.apply(&self.0)
    }
}

/// Builds a Deployment or StatefulSet in the namespace `default`; start with [`deployment`] or [`stateful_set`].
#[derive(Clone, Debug)]
pub struct Workload {
    name: String,
    pool: String,
    kind: &'static str,
    replicas: u32,
    cpu: String,
    grace_seconds: u32,
    uses_grace: bool,
}

/// A Deployment whose Pods run on nodes of `pool`.
pub fn deployment(name: &str, pool: &str, replicas: u32) -> Workload {
    Workload {
        name: name.into(),
        pool: pool.into(),
        kind: "Deployment",
        replicas,
        cpu: "100m".into(),
        grace_seconds: 1,
        uses_grace: false,
    }
}

/// A StatefulSet whose Pods run on nodes of `pool`.
pub fn stateful_set(name: &str, pool: &str, replicas: u32) -> Workload {
    Workload { kind: "StatefulSet", ..deployment(name, pool, replicas) }
}

impl Workload {
    /// Sets the CPU request of each Pod (default 100m). With 1200m only one fits on a node.
    pub fn cpu(mut self, cpu: &str) -> Self {
        self.cpu = cpu.into();
        self
    }

    /// Lets each Pod take this many seconds to terminate; by default Pods terminate at once.
    pub fn slow(mut self, seconds: u32) -> Self {
        self.grace_seconds = seconds;
        self.uses_grace = true;
        self
    }

    /// Applies it.
    pub fn apply(&self, rig: &Rig) -> anyhow::Result<()> {
        let labels = json!({"app": self.name});
        let annotations = if self.uses_grace { json!({"rig/uses-grace": "true"}) } else { json!({}) };
        let mut spec = json!({
            "replicas": self.replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels, "annotations": annotations},
                "spec": {
                    "nodeSelector": {"rig/pool": self.pool},
                    "terminationGracePeriodSeconds": self.grace_seconds,
                    "containers": [{"name": "app", "image": "app", "resources": {"requests": {"cpu": self.cpu, "memory": "64Mi"}}}],
                },
            },
        });
        if self.kind == "StatefulSet" {
            spec["serviceName"] = self.name.clone().into();
            spec["podManagementPolicy"] = "Parallel".into();
        }
        rig.apply(&json!({
            "apiVersion": "apps/v1", "kind": self.kind,
            "metadata": {"name": self.name, "namespace": "default"}, "spec": spec,
        }))
    }
}

/// Applies a PodDisruptionBudget for the Pods of the workload `app`; `spec` lacks only the selector.
pub fn budget(rig: &Rig, app: &str, spec: &Value) -> anyhow::Result<()> {
    let mut spec = spec.clone();
    spec["selector"] = json!({"matchLabels": {"app": app}});
    rig.apply(&json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": app, "namespace": "default"}, "spec": spec,
    }))
}

/// Applies the node `rig-system`, which belongs to no NodePool and has the taint and the label `rig/system=true`: the place
/// for the Pods of what is under test.
pub fn system_node(rig: &Rig) -> anyhow::Result<()> {
    let amounts = json!({"cpu": "32", "memory": "64Gi", "pods": "110"});
    rig.apply(&json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": "rig-system",
            "labels": {"kubernetes.io/hostname": "rig-system", "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64", "rig/system": "true"},
            "annotations": {"kwok.x-k8s.io/node": "fake"},
        },
        "spec": {"taints": [{"key": "rig/system", "value": "true", "effect": "NoSchedule"}]},
    }))?;
    let status = json!({"status": {"allocatable": amounts, "capacity": amounts}}).to_string();
    rig.kubectl(&["patch", "node", "rig-system", "--subresource=status", "--type=merge", "-p", &status]).map(|_| ())
}
