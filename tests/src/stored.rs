//! Objects as they were stored before a rule of the CRD existed: the state that such a rule's author has to reckon with.

use anyhow::ensure;
use noderotation_rig::Rig;
use serde_json::{Value, json};

use crate::ask::POLICIES;
use crate::world::PATIENCE;

/// The path of our CRD.
pub const CRD: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/rotationpolicies.noderotation.io";

/// Stores policies while the CRD has no rules, then puts the rules back. When it returns, the API server may not know the rules yet.
pub async fn store_before_the_rules(rig: &Rig, policies: &[Value]) -> anyhow::Result<()> {
    let rules = rig.get(CRD).await?["spec"].take();
    let mut lax = rules.clone();
    for version in lax["versions"].as_array_mut().into_iter().flatten() {
        if let Some(root) = version["schema"]["openAPIV3Schema"].as_object_mut() {
            root.remove("x-kubernetes-validations");
        }
        version["schema"]["openAPIV3Schema"]["properties"]["spec"] =
            json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    }
    replace_spec(rig, lax).await?;
    for policy in policies {
        rig.wait("the API server to store a bad policy", PATIENCE, async || {
            let (code, _) = rig.send("POST", POLICIES, "application/json", policy).await?;
            Ok((code == 201 || code == 200 || code == 409).then_some(()))
        })
        .await?;
    }
    replace_spec(rig, rules).await
}

/// Replaces the spec of our CRD.
pub async fn replace_spec(rig: &Rig, spec: Value) -> anyhow::Result<()> {
    let mut crd = rig.get(CRD).await?;
    crd["spec"] = spec;
    let (code, answer) = rig.send("PUT", CRD, "application/json", &crd).await?;
    ensure!(code == 200, "the CRD was not replaced: {answer}");
    Ok(())
}
