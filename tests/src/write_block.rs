//! Write blocks: each lets the API server refuse one particular write of the controller, so that a rotation stops at exactly that
//! step until the test lifts the block. They are ValidatingAdmissionPolicies; the controller has no code for them.

use std::time::Duration;

use noderotation_rig::Rig;
use serde_json::json;

use crate::audit::CONTROLLER;

/// The block of one step of a rotation.
#[derive(Clone, Copy, Debug)]
pub struct WriteBlock {
    /// The name of the step, as in the metric `write_outcomes_total` (§11).
    pub step: &'static str,
    group: &'static str,
    resource: &'static str,
    operation: &'static str,
    /// A CEL expression over `object` and `oldObject` that is true for the write; `A` stands for the annotations of `object`.
    is_it: &'static str,
}

const NEW: &str = "object.?metadata.?annotations.orValue({})";

/// A block for each step after which a crash would leave a different state behind.
pub const WRITE_BLOCKS: [WriteBlock; 9] = [
    block("pending", "karpenter.sh", "nodeclaims", "UPDATE", "A[?'noderotation.io/state'].orValue('') == 'pending'"),
    block("protect", "", "nodes", "UPDATE", "A[?'noderotation.io/cordoned'].orValue('') == 'true'"),
    block("placeholder", "", "pods", "CREATE", "true"),
    block(
        "protect-host",
        "",
        "nodes",
        "UPDATE",
        "'noderotation.io/surge-for' in A && !('noderotation.io/cordoned' in A)",
    ),
    block("mirror", "karpenter.sh", "nodepools", "UPDATE", "'noderotation.io/draining-at' in A"),
    block("draining", "karpenter.sh", "nodeclaims", "UPDATE", "A[?'noderotation.io/state'].orValue('') == 'draining'"),
    block("drain-placeholder", "", "pods", "DELETE", "true"),
    block("delete-claim", "karpenter.sh", "nodeclaims", "DELETE", "true"),
    block("release", "karpenter.sh", "nodepools", "UPDATE", "!('noderotation.io/active-rotation' in A)"),
];

const fn block(
    step: &'static str,
    group: &'static str,
    resource: &'static str,
    operation: &'static str,
    is_it: &'static str,
) -> WriteBlock {
    WriteBlock { step, group, resource, operation, is_it }
}

impl WriteBlock {
    /// Puts the block up and waits until the API server enforces it.
    pub async fn put_up(&self, rig: &Rig) -> anyhow::Result<()> {
        let is_it = self.is_it.replace('A', NEW);
        rig.apply(&json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "write-block"},
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": {"resourceRules": [
                    {"apiGroups": [self.group], "apiVersions": ["*"], "operations": [self.operation], "resources": [self.resource]},
                    // for the probe, which tells when the API server enforces the block
                    {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]},
                ]},
                "validations": [{
                    "expression": format!(
                        "request.resource.resource == 'configmaps' ? object.metadata.name != 'write-block-probe' : request.userInfo.username != '{CONTROLLER}' || !({is_it})"
                    ),
                    "message": "blocked by the test",
                }],
            },
        }))?;
        rig.apply(&json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": "write-block"},
            "spec": {"policyName": "write-block", "validationActions": ["Deny"]},
        }))?;
        probe(rig, false).await
    }

    /// Lifts the block and waits until the API server no longer enforces it.
    pub async fn lift(&self, rig: &Rig) -> anyhow::Result<()> {
        rig.kubectl(&["delete", "validatingadmissionpolicybinding,validatingadmissionpolicy", "write-block"])?;
        probe(rig, true).await
    }
}

async fn probe(rig: &Rig, should_pass: bool) -> anyhow::Result<()> {
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "write-block-probe"}});
    rig.wait("the API server to enforce, or no longer enforce, the block", Duration::from_secs(60), async || {
        let (code, _) =
            rig.send("POST", "/api/v1/namespaces/default/configmaps?dryRun=All", "application/json", &body).await?;
        Ok(((code == 200) == should_pass).then_some(()))
    })
    .await
}
