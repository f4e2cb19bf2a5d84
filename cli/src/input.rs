//! Policies and NodePools from files: YAML with any number of documents, JSON, Lists, `-` for standard input.

use std::io::Read;

use anyhow::{Context, bail};
use noderotation_shared::admission::ProposedNodePool;
use noderotation_shared::governance::StoredPolicy;
use serde_json::Value;

/// Where an object stands.
#[derive(Clone, Debug)]
pub struct DocumentLocation {
    /// The file as it was named.
    pub file: String,
    /// The document in it, from 1.
    pub document: usize,
}

impl std::fmt::Display for DocumentLocation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} (document {})", self.file, self.document)
    }
}

/// A policy and where it stands.
pub struct PolicyInput {
    /// Where.
    pub place: DocumentLocation,
    /// What was read.
    pub stored: StoredPolicy,
    /// The raw spec, for comparing selectors.
    pub spec: Value,
}

/// A NodePool and where it stands.
pub struct PoolInput {
    /// Where.
    pub place: DocumentLocation,
    /// What was read.
    pub proposed: ProposedNodePool,
}

/// Everything that was read.
#[derive(Default)]
pub struct Input {
    /// The policies.
    pub policies: Vec<PolicyInput>,
    /// The NodePools.
    pub pools: Vec<PoolInput>,
    /// How many objects of other kinds were passed over.
    pub others: usize,
}

/// Reads all files.
pub fn read(files: &[String]) -> anyhow::Result<Input> {
    let mut input = Input::default();
    for file in files {
        let text = contents(file)?;
        for (n, document) in serde_saphyr::read::<_, Value>(&mut text.as_bytes()).enumerate() {
            let place = DocumentLocation { file: file.clone(), document: n + 1 };
            let document = document.map_err(|e| anyhow::anyhow!("{place}: {e}"))?;
            input.add(&place, &document)?;
        }
    }
    Ok(input)
}

fn contents(file: &str) -> anyhow::Result<String> {
    if file == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).context("standard input cannot be read")?;
        return Ok(text);
    }
    if std::path::Path::new(file).is_dir() {
        bail!("{file} is a folder: name files, for example {file}/*.yaml");
    }
    std::fs::read_to_string(file).with_context(|| format!("{file} cannot be read"))
}

impl Input {
    fn add(&mut self, place: &DocumentLocation, object: &Value) -> anyhow::Result<()> {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let group = text("/apiVersion").split('/').next().unwrap_or_default();
        if object.is_null() {
            return Ok(());
        }
        if !object.is_object() || text("/kind").is_empty() {
            bail!("{place}: not a Kubernetes object: there is no kind");
        }
        if text("/kind").ends_with("List") && object.get("items").is_some_and(Value::is_array) {
            for item in object["items"].as_array().into_iter().flatten() {
                self.add(place, item)?;
            }
            return Ok(());
        }
        match (group, text("/kind")) {
            ("noderotation.io", "RotationPolicy") => {
                let name = named(object, place)?;
                let spec = object.get("spec").cloned().unwrap_or(Value::Null);
                let stored = StoredPolicy::read(&name, None, &spec);
                self.policies.push(PolicyInput { place: place.clone(), stored, spec });
            }
            ("karpenter.sh", "NodePool") => {
                named(object, place)?;
                self.pools.push(PoolInput {
                    place: place.clone(),
                    proposed: ProposedNodePool::read(object, jiff::Timestamp::now()),
                });
            }
            _ => self.others += 1,
        }
        Ok(())
    }
}

fn named(object: &Value, place: &DocumentLocation) -> anyhow::Result<String> {
    let name = object.pointer("/metadata/name").and_then(Value::as_str).filter(|name| !name.is_empty());
    name.map(str::to_owned).with_context(|| format!("{place}: metadata.name is missing"))
}
