//! What the API server of another Kubernetes version would say of objects, with that version's own code and without that
//! server: `tools/validate`, built once for each of [`KUBERNETES_MINORS`].
//!
//! It validates CustomResourceDefinitions, custom resources and the kinds of `admissionregistration.k8s.io` as a server
//! does before it stores them, with the CEL of its version. It serves nothing: for that there is the rig.

use std::io::Write;
use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use serde::Deserialize;
use serde_json::{Value, json};

pub use crate::programs::KUBERNETES_MINORS;
use crate::programs::build_validators;

/// What one version says.
#[derive(Debug, Deserialize)]
pub struct Answer {
    /// Of each object of the manifest that it validates, in their order.
    pub manifest: Vec<Verdict>,
    /// Of each write of a custom resource, in their order: why it is refused; empty where it is accepted.
    pub policies: Vec<Vec<String>>,
}

/// What one version says of an object.
#[derive(Debug, Deserialize)]
pub struct Verdict {
    /// The object's kind.
    pub kind: String,
    /// The object's name.
    pub name: String,
    /// Why it is refused; empty where it is accepted.
    pub errors: Vec<String>,
}

/// A creation of a custom resource, to be validated.
pub fn creation(object: &Value) -> Value {
    json!({"new": object})
}

/// An update of a custom resource, to be validated. Both objects need a `metadata.resourceVersion`.
pub fn update(old: &Value, new: &Value) -> Value {
    json!({"old": old, "new": new})
}

/// What Kubernetes 1.`minor` says of a manifest of YAML documents, and of these writes of the custom resource that it
/// defines. Builds the validators if they are missing. An error where something cannot be read at all.
pub fn ask(minor: u32, manifest: &str, writes: &[Value]) -> anyhow::Result<Answer> {
    let program = build_validators()?.path(&format!("validate-1.{minor}"));
    let question = json!({"manifest": manifest, "policies": writes}).to_string();
    let mut child = Command::new(&program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("{} cannot be run", program.display()))?;
    // the program reads everything before it writes, so neither waits for the other; dropping stdin ends its input
    child.stdin.take().context("no standard input")?.write_all(question.as_bytes())?;
    let output = child.wait_with_output()?;
    if !output.status.success() {
        bail!("{}: {}", program.display(), String::from_utf8_lossy(&output.stderr));
    }
    serde_json::from_slice(&output.stdout).with_context(|| format!("{} answers no JSON", program.display()))
}
