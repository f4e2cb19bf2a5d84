//! Gates: each lets the API server refuse one particular write of the controller, so that a rotation stops at exactly that
//! step until the test opens the gate. They are ValidatingAdmissionPolicies; the controller has no code for them.

use std::time::Duration;

use noderotation_rig::Rig;
use serde_json::json;

use crate::audit::CONTROLLER;

/// A gate for one step of a rotation.
#[derive(Clone, Copy, Debug)]
pub struct Gate {
    /// The name of the step, as in the metric `write_outcomes_total` (§11).
    pub step: &'static str,
    group: &'static str,
    resource: &'static str,
    operation: &'static str,
    /// A CEL expression over `object` and `oldObject` that is true for the write; `A` stands for the annotations of `object`.
    is_it: &'static str,
}

const NEW: &str = "object.?metadata.?annotations.orValue({})";

/// A gate for each step after which a crash would leave a different state behind.
pub const GATES: [Gate; 9] = [
    gate("pending", "karpenter.sh", "nodeclaims", "UPDATE", "A[?'noderotation.io/state'].orValue('') == 'pending'"),
    gate("freeze", "", "nodes", "UPDATE", "A[?'noderotation.io/cordoned'].orValue('') == 'true'"),
    gate("placeholder", "", "pods", "CREATE", "true"),
    gate(
        "freeze-host",
        "",
        "nodes",
        "UPDATE",
        "'noderotation.io/surge-for' in A && !('noderotation.io/cordoned' in A)",
    ),
    gate("mirror", "karpenter.sh", "nodepools", "UPDATE", "'noderotation.io/draining-at' in A"),
    gate("draining", "karpenter.sh", "nodeclaims", "UPDATE", "A[?'noderotation.io/state'].orValue('') == 'draining'"),
    gate("drain-placeholder", "", "pods", "DELETE", "true"),
    gate("delete-claim", "karpenter.sh", "nodeclaims", "DELETE", "true"),
    gate("release", "karpenter.sh", "nodepools", "UPDATE", "!('noderotation.io/active-rotation' in A)"),
];

const fn gate(
    step: &'static str,
    group: &'static str,
    resource: &'static str,
    operation: &'static str,
    is_it: &'static str,
) -> Gate {
    Gate { step, group, resource, operation, is_it }
}

impl Gate {
    /// Shuts the gate and waits until the API server enforces it.
    pub async fn shut(&self, rig: &Rig) -> anyhow::Result<()> {
        let is_it = self.is_it.replace('A', NEW);
        rig.apply(&json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "gate"},
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": {"resourceRules": [
                    {"apiGroups": [self.group], "apiVersions": ["*"], "operations": [self.operation], "resources": [self.resource]},
                    // for the probe, which tells when the API server enforces the gate
                    {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]},
                ]},
                "validations": [{
                    "expression": format!(
                        "request.resource.resource == 'configmaps' ? object.metadata.name != 'gate-probe' : request.userInfo.username != '{CONTROLLER}' || !({is_it})"
                    ),
                    "message": "the gate is shut",
                }],
            },
        }))?;
        rig.apply(&json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": "gate"},
            "spec": {"policyName": "gate", "validationActions": ["Deny"]},
        }))?;
        probe(rig, false).await
    }

    /// Opens the gate and waits until the API server no longer enforces it.
    pub async fn open(&self, rig: &Rig) -> anyhow::Result<()> {
        rig.kubectl(&["delete", "validatingadmissionpolicybinding,validatingadmissionpolicy", "gate"])?;
        probe(rig, true).await
    }
}

async fn probe(rig: &Rig, should_pass: bool) -> anyhow::Result<()> {
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "gate-probe"}});
    rig.wait("the API server to enforce, or no longer enforce, the gate", Duration::from_secs(60), async || {
        let (code, _) =
            rig.send("POST", "/api/v1/namespaces/default/configmaps?dryRun=All", "application/json", &body).await?;
        Ok(((code == 200) == should_pass).then_some(()))
    })
    .await
}
