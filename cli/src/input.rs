//! Reads RotationPolicies and NodePools from files: YAML with any number of documents, JSON, and Lists; `-` is standard
//! input.

use std::io::{self, Read};
use std::sync::Arc;

use jiff::Timestamp;
use noderotation_shared::admission::ProposedNodePool;
use noderotation_shared::field_error::{FieldError, quoted};
use noderotation_shared::governance::ParsedPolicy;
use noderotation_shared::keys;
use noderotation_shared::kind::Kind;
use serde_json::Value;

/// Where an object was found.
#[derive(Clone, Debug)]
pub struct DocumentLocation {
    /// The file name as given on the command line.
    pub file: String,
    /// The number of the YAML document in the file, from 1.
    pub document: usize,
    /// The number of the object in a List, from 1; `None` outside one.
    pub item: Option<usize>,
}

impl std::fmt::Display for DocumentLocation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} (document {}", self.file, self.document)?;
        self.item.map_or(Ok(()), |item| write!(f, ", item {item}"))?;
        write!(f, ")")
    }
}

/// Why a file or a flag cannot be read. Invalid policies are not errors; their problems are reported as results.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// Standard input cannot be read, or is not UTF-8.
    #[error("standard input cannot be read")]
    Stdin(#[source] io::Error),
    /// The file does not exist, cannot be read, or is not UTF-8.
    #[error("{file} cannot be read")]
    File {
        /// The file name as given on the command line.
        file: String,
        /// The reason.
        source: io::Error,
    },
    /// A directory was given instead of a file.
    #[error("{0} is a directory; name files, for example {0}/*.yaml")]
    Directory(String),
    /// A document is not valid YAML or JSON.
    #[error("{place}")]
    Syntax {
        /// Where the document is.
        place: DocumentLocation,
        /// The parser's error.
        source: Box<serde_saphyr::Error>,
    },
    /// A document is not a Kubernetes object.
    #[error("{0}: not a Kubernetes object, because it has no kind")]
    NotAnObject(DocumentLocation),
    /// The value of a flag is not an instant.
    #[error("write an instant with its date, time and zone, such as 2026-12-20T00:00:00Z")]
    Instant,
    /// A RotationPolicy or NodePool has no name.
    #[error("{0}: metadata.name is missing")]
    NoName(DocumentLocation),
    /// Two documents hold a RotationPolicy, or a NodePool, of the same name.
    #[error("{second}: {} {name} is already in {first}; in a cluster it would replace that one, so remove or rename one of the two, or name its file only once", kind.name())]
    Duplicate {
        /// The kind of both objects.
        kind: Kind,
        /// The name of both objects.
        name: String,
        /// Where the first one is.
        first: DocumentLocation,
        /// Where the second one is.
        second: DocumentLocation,
    },
}

/// A RotationPolicy and where it was found.
pub struct PolicyInput {
    /// Where the policy was found.
    pub place: DocumentLocation,
    /// The parsed policy, valid or not.
    pub parsed: Arc<ParsedPolicy>,
    /// What is wrong outside its spec.
    pub problems: Vec<FieldError>,
}

/// A NodePool and where it was found.
pub struct PoolInput {
    /// Where the NodePool was found.
    pub place: DocumentLocation,
    /// The parsed NodePool, with its problems.
    pub proposed: Arc<ProposedNodePool>,
    /// What is wrong beside them.
    pub problems: Vec<FieldError>,
}

/// The objects of all files.
#[derive(Default)]
pub struct Input {
    /// The RotationPolicies, in the order of the files.
    pub policies: Vec<PolicyInput>,
    /// The NodePools, in the order of the files.
    pub pools: Vec<PoolInput>,
    /// The number of objects of other kinds, which are ignored.
    pub others: usize,
}

/// Reads the value of a flag as an instant.
pub fn parse_instant(text: &str) -> Result<Timestamp, InputError> {
    text.parse().map_err(|_| InputError::Instant)
}

/// Reads the objects of all files. A relative freeze is answered with the instant that it means at `now`.
pub fn read(files: &[String], now: Timestamp) -> Result<Input, InputError> {
    let mut input = Input::default();
    for file in files {
        let text = contents(file)?;
        for (n, document) in serde_saphyr::read::<_, Value>(&mut text.as_bytes()).enumerate() {
            let place = DocumentLocation { file: file.clone(), document: n + 1, item: None };
            let document = match document {
                Ok(document) => document,
                Err(source) => return Err(InputError::Syntax { place, source: Box::new(source) }),
            };
            input.add(&place, &document, now)?;
        }
    }
    Ok(input)
}

fn contents(file: &str) -> Result<String, InputError> {
    if file == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map_err(InputError::Stdin)?;
        return Ok(text);
    }
    if std::path::Path::new(file).is_dir() {
        return Err(InputError::Directory(file.to_owned()));
    }
    std::fs::read_to_string(file).map_err(|source| InputError::File { file: file.to_owned(), source })
}

impl Input {
    fn add(&mut self, place: &DocumentLocation, object: &Value, now: Timestamp) -> Result<(), InputError> {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let group = text("/apiVersion").split('/').next().unwrap_or_default();
        if object.is_null() {
            return Ok(());
        }
        if !object.is_object() || text("/kind").is_empty() {
            return Err(InputError::NotAnObject(place.clone()));
        }
        if text("/kind").ends_with("List")
            && let Some(items) = object.get("items").and_then(Value::as_array)
        {
            for (n, item) in items.iter().enumerate() {
                self.add(&DocumentLocation { item: Some(n + 1), ..place.clone() }, item, now)?;
            }
            return Ok(());
        }
        let is_a = |kind: Kind| group == kind.group() && text("/kind") == kind.name();
        if is_a(Kind::RotationPolicy) {
            let name = required_name(object, place)?;
            let earlier = self.policies.iter().find(|policy| *policy.parsed.name == *name);
            require_unique(Kind::RotationPolicy, &name, earlier.map(|policy| &policy.place), place)?;
            let spec = object.get("spec").cloned().unwrap_or(Value::Null);
            let parsed = Arc::new(ParsedPolicy::read(&name, &spec));
            let problems = manifest_problems(object, Kind::RotationPolicy);
            self.policies.push(PolicyInput { place: place.clone(), parsed, problems });
        } else if is_a(Kind::NodePool) {
            let name = required_name(object, place)?;
            let earlier = self.pools.iter().find(|pool| pool.proposed.name == name);
            require_unique(Kind::NodePool, &name, earlier.map(|pool| &pool.place), place)?;
            let proposed = Arc::new(ProposedNodePool::read(object, now));
            let problems = manifest_problems(object, Kind::NodePool).into_iter().chain(moved_field(object)).collect();
            self.pools.push(PoolInput { place: place.clone(), proposed, problems });
        } else {
            self.others += 1;
        }
        Ok(())
    }
}

/// What the API server would refuse before it looks at the spec: a version that it does not serve, and a name that no object
/// can have.
fn manifest_problems(object: &Value, kind: Kind) -> Vec<FieldError> {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (version, served) = (text("/apiVersion"), kind.api_version());
    let mut problems = Vec::new();
    if version != served {
        problems.push(FieldError::new("apiVersion", quoted(version), "is a version that is not served", served));
    }
    let name = text("/metadata/name");
    if !keys::is_object_name(name) {
        let why = "must consist of lower-case letters, digits, - and ., and begin and end with a letter or digit";
        let meant = name.to_ascii_lowercase().replace(|c: char| !c.is_ascii_alphanumeric() && c != '.', "-");
        let meant = meant.trim_matches(['-', '.']);
        let instead = if keys::is_object_name(meant) { meant } else { "a name such as api" };
        problems.push(FieldError::new("metadata.name", quoted(name), why, instead));
    }
    problems
}

/// Karpenter's v1beta1 had `expireAfter` elsewhere; there, v1 drops it, and the default holds.
fn moved_field(object: &Value) -> Option<FieldError> {
    let found = object.pointer("/spec/disruption/expireAfter")?;
    let why = "is no field of karpenter.sh/v1, which would drop it, so that nodes live for 720h";
    Some(FieldError::new("spec.disruption.expireAfter", found, why, "spec.template.spec.expireAfter"))
}

fn required_name(object: &Value, place: &DocumentLocation) -> Result<String, InputError> {
    let name = object.pointer("/metadata/name").and_then(Value::as_str).filter(|name| !name.is_empty());
    name.map(str::to_owned).ok_or_else(|| InputError::NoName(place.clone()))
}

/// An error if an object of this kind and name is already in `earlier`: in a cluster there would be only one of them, and
/// verdicts on both would be verdicts on a state that cannot be.
fn require_unique(
    kind: Kind,
    name: &str,
    earlier: Option<&DocumentLocation>,
    place: &DocumentLocation,
) -> Result<(), InputError> {
    match earlier {
        None => Ok(()),
        Some(first) => {
            Err(InputError::Duplicate { kind, name: name.to_owned(), first: first.clone(), second: place.clone() })
        }
    }
}
