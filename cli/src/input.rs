//! The RotationPolicies and NodePools of files: which they are, and what is wrong with them outside their spec.

use std::sync::Arc;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use noderotation_shared::admission::ProposedNodePool;
use noderotation_shared::field_error::FieldError;
use noderotation_shared::governance::ParsedPolicy;
use noderotation_shared::kind::Kind;
use serde_json::Value;

use crate::documents::{self, DocumentError, DocumentLocation};
use crate::files::{self, FileError};
use crate::manifest;

/// Why a file or a flag cannot be read. Invalid policies are not errors; their problems are reported as results.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// A file cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// A document cannot be read.
    #[error(transparent)]
    Document(Box<DocumentError>),
    /// A document is not a Kubernetes object.
    #[error("{0}: not a Kubernetes object, because it has no kind; leave the file out, or write apiVersion and kind")]
    NotAnObject(DocumentLocation),
    /// The value of a flag is not an instant.
    #[error(
        "write an instant with its date, time and zone, such as 2026-12-20T00:00:00Z, or a date, such as 2026-12-20, for its begin in UTC"
    )]
    Instant,
    /// A RotationPolicy or NodePool has no name.
    #[error("{0}: metadata.name is missing")]
    NoName(DocumentLocation),
    /// Two documents hold a RotationPolicy, or a NodePool, of the same name.
    #[error("{second}: {} {name} stands twice, first in {first}; in a cluster it would replace that one, so remove or rename one of the two, or name its file only once", kind.name())]
    Duplicate {
        /// The kind of both objects.
        kind: Kind,
        /// The name of both objects.
        name: String,
        /// Where the first one is.
        first: Box<DocumentLocation>,
        /// Where the second one is.
        second: Box<DocumentLocation>,
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
    /// Files that were passed over: what lies beside manifests and is none.
    pub passed_over: Vec<String>,
}

/// Everything that keeps the files from being read; each names its place.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.iter().map(|error| format!("{error:#}")).collect::<Vec<_>>().join("\nerror: "))]
pub struct InputErrors(Vec<anyhow::Error>);

/// Reads the value of a flag as an instant.
pub fn parse_instant(text: &str) -> Result<Timestamp, InputError> {
    let of_day = |day: Date| day.to_zoned(TimeZone::UTC).ok().map(|midnight| midnight.timestamp());
    text.parse().ok().or_else(|| text.parse().ok().and_then(of_day)).ok_or(InputError::Instant)
}

/// Reads the objects of all files, and of those in folders; with `recursive` also of the folders below. A relative freeze is
/// answered with the instant that it means at `now`. Every problem is reported, not the first one alone.
pub fn read(files: &[String], recursive: bool, now: Timestamp) -> Result<Input, InputErrors> {
    let (mut input, mut errors) = (Input::default(), Vec::new());
    let files = files::expand(files, recursive).unwrap_or_else(|error| {
        errors.push(error.into());
        Vec::new()
    });
    for file in files {
        let text = match files::text(&file) {
            Ok(text) => text,
            Err(error) => {
                errors.push(error.into());
                continue;
            }
        };
        for document in documents::split(&file, &text) {
            let objects = match document {
                Ok((place, object)) => unfold(place, object),
                Err(error) => {
                    errors.push(InputError::Document(Box::new(error)).into());
                    continue;
                }
            };
            for (place, object) in objects {
                match input.add(&place, &object, now) {
                    Err(InputError::NotAnObject(_)) if files::lies_beside_manifests(&file) => {
                        if input.passed_over.last() != Some(&file) {
                            input.passed_over.push(file.clone());
                        }
                    }
                    added => errors.extend(added.err().map(Into::into)),
                }
            }
        }
    }
    if errors.is_empty() { Ok(input) } else { Err(InputErrors(errors)) }
}

/// The items of a List, each with its number; any other object as it is.
fn unfold(place: DocumentLocation, mut object: Value) -> Vec<(DocumentLocation, Value)> {
    let is_list = object.get("kind").and_then(Value::as_str).is_some_and(|kind| kind.ends_with("List"));
    match object.get_mut("items") {
        Some(Value::Array(items)) if is_list => {
            let items = std::mem::take(items).into_iter().enumerate();
            items.flat_map(|(n, item)| unfold(DocumentLocation { item: Some(n + 1), ..place.clone() }, item)).collect()
        }
        _ => vec![(place, object)],
    }
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
        let is_a = |kind: Kind| group == kind.group() && text("/kind") == kind.name();
        if is_a(Kind::RotationPolicy) {
            let name = required_name(object, place)?;
            let earlier = self.policies.iter().find(|policy| *policy.parsed.name == *name);
            require_unique(Kind::RotationPolicy, &name, earlier.map(|policy| &policy.place), place)?;
            let spec = object.get("spec").cloned().unwrap_or(Value::Null);
            let parsed = Arc::new(ParsedPolicy::read(&name, &spec));
            let problems = manifest::of_any(object, Kind::RotationPolicy);
            self.policies.push(PolicyInput { place: place.clone(), parsed, problems });
        } else if is_a(Kind::NodePool) {
            let name = required_name(object, place)?;
            let earlier = self.pools.iter().find(|pool| pool.proposed.name == name);
            require_unique(Kind::NodePool, &name, earlier.map(|pool| &pool.place), place)?;
            let proposed = Arc::new(ProposedNodePool::read(object, now));
            let problems = manifest::of_pool(object);
            self.pools.push(PoolInput { place: place.clone(), proposed, problems });
        } else {
            self.others += 1;
        }
        Ok(())
    }
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
        Some(first) => Err(InputError::Duplicate {
            kind,
            name: name.to_owned(),
            first: Box::new(first.clone()),
            second: Box::new(place.clone()),
        }),
    }
}
