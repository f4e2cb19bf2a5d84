//! Policies and NodePools from files: YAML with any number of documents, JSON, Lists, `-` for standard input.

use std::collections::BTreeMap;
use std::io::Read;

use anyhow::{Context, bail};
use jiff::SignedDuration;
use noderotation_shared::feasibility::PoolFacts;
use noderotation_shared::governance::StoredPolicy;
use noderotation_shared::problem::{Problem, quoted};
use noderotation_shared::{duration, instant, keys};
use serde_json::Value;

/// Where an object stands.
#[derive(Clone, Debug)]
pub struct Place {
    /// The file as it was named.
    pub file: String,
    /// The document in it, from 1.
    pub document: usize,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} (document {})", self.file, self.document)
    }
}

/// A policy and where it stands.
pub struct PolicyInput {
    /// Where.
    pub place: Place,
    /// What was read.
    pub stored: StoredPolicy,
    /// The raw spec, for comparing selectors.
    pub spec: Value,
}

/// A NodePool and where it stands.
pub struct PoolInput {
    /// Where.
    pub place: Place,
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// `spec.replicas` is set.
    pub is_static: bool,
    /// What the findings need.
    pub facts: PoolFacts,
    /// What is wrong with the parts that concern us.
    pub problems: Vec<Problem>,
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
            let place = Place { file: file.clone(), document: n + 1 };
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
    fn add(&mut self, place: &Place, object: &Value) -> anyhow::Result<()> {
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
            ("karpenter.sh", "NodePool") => self.pools.push(pool(object, place)?),
            _ => self.others += 1,
        }
        Ok(())
    }
}

fn named(object: &Value, place: &Place) -> anyhow::Result<String> {
    let name = object.pointer("/metadata/name").and_then(Value::as_str).filter(|name| !name.is_empty());
    name.map(str::to_owned).with_context(|| format!("{place}: metadata.name is missing"))
}

fn pool(object: &Value, place: &Place) -> anyhow::Result<PoolInput> {
    let name = named(object, place)?;
    let mut problems = Vec::new();
    let mut field = |name: &str, never: bool| -> Option<SignedDuration> {
        let path = format!("spec.template.spec.{name}");
        let value = object.pointer(&format!("/spec/template/spec/{name}"))?;
        let text = value.as_str().unwrap_or_default();
        if never && text == "Never" {
            return None;
        }
        let read = duration::parse(text);
        if read.is_none() {
            problems.push(Problem::new(
                path,
                value,
                "must be a Go duration",
                if never { "720h or Never" } else { "1h" },
            ));
        }
        read
    };
    // Karpenter's own default is 720h
    let expire_after = match object.pointer("/spec/template/spec/expireAfter") {
        None => Some(SignedDuration::from_hours(720)),
        Some(_) => field("expireAfter", true),
    };
    let termination_grace_period = field("terminationGracePeriod", false);
    problems.extend(freeze_problem(object));
    problems.extend(template_problems(object));
    let labels = object.pointer("/metadata/labels").and_then(Value::as_object).into_iter().flatten();
    Ok(PoolInput {
        place: place.clone(),
        name,
        labels: labels.filter_map(|(k, v)| Some((k.clone(), v.as_str()?.to_owned()))).collect(),
        is_static: object.pointer("/spec/replicas").is_some_and(|r| !r.is_null()),
        facts: PoolFacts { expire_after, termination_grace_period, claims: 0 },
        problems,
    })
}

fn freeze_problem(object: &Value) -> Option<Problem> {
    let value = object.pointer("/metadata/annotations")?.get(keys::FREEZE)?;
    let text = value.as_str().unwrap_or_default();
    instant::parse(text).is_none().then(|| {
        Problem::new(
            format!("metadata.annotations[{}]", keys::FREEZE),
            quoted(text),
            "must be an RFC 3339 instant; a relative time would be renewed by every sync",
            "an instant such as 2026-12-26T00:00:00Z",
        )
    })
}

/// Our keys in a template would land on every new NodeClaim.
fn template_problems(object: &Value) -> Vec<Problem> {
    ["labels", "annotations"]
        .into_iter()
        .flat_map(|map| {
            let path = format!("spec.template.metadata.{map}");
            let keys = object.pointer(&format!("/spec/template/metadata/{map}")).and_then(Value::as_object);
            keys.into_iter().flatten().filter(|(key, _)| key.starts_with(keys::PREFIX)).map(move |(key, value)| {
                Problem::new(
                    format!("{path}[{key}]"),
                    value,
                    "would be copied to every new NodeClaim and Node, whose rotation it would falsify",
                    "nothing; put it on the NodePool or NodeClaim that it is meant for",
                )
            })
        })
        .collect()
}
