//! What an API server has answered and told, so that two of them can be compared: UIDs are numbered in the order of their
//! first appearance and resourceVersions by their rank, since their values are each server's own.

use std::collections::BTreeSet;
use std::fmt::Debug;

use jiff::Timestamp;
use noderotation_rotation::pass::ApiObject;
use noderotation_shared::keys;
use noderotation_shared::kind::Kind;
use noderotation_shared::objects::{Annotations, Meta};
use noderotation_shared::store::Stored;

/// An object as it was shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sight {
    /// Its UID.
    pub uid: String,
    /// Its resourceVersion.
    pub version: u64,
    /// Whether it has a deletionTimestamp.
    pub is_deleting: bool,
    /// Everything that the controller reads of it, its name, UID, version and times aside.
    pub fields: String,
}

impl Sight {
    /// What an object of the product's caches shows.
    pub fn of<K: Stored + Debug>(object: &K) -> Self {
        let meta = object.meta().clone();
        let mut bare = object.clone();
        let annotations: std::collections::BTreeMap<&str, &str> =
            keys::ALL.iter().filter_map(|key| Some((key.name, meta.annotations.get(key.name)?))).collect();
        *bare.meta_mut() =
            Meta { annotations: Annotations::of(annotations), created: Timestamp::UNIX_EPOCH, ..Meta::default() };
        Self {
            uid: meta.uid.to_string(),
            version: meta.version.parse().unwrap(),
            is_deleting: meta.deleted.is_some(),
            fields: format!("{bare:?}"),
        }
    }

    /// What the object in an answer shows.
    pub fn of_answer(object: &ApiObject) -> Self {
        match object {
            ApiObject::NodePool(object) => Self::of(object),
            ApiObject::NodeClaim(object) => Self::of(object),
            ApiObject::Node(object) => Self::of(object),
            ApiObject::Placeholder(object) => Self::of(object),
        }
    }
}

/// One line of what a server has said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// A request of the controller was answered: the outcome, and the object where the answer holds it.
    Answer(String, Option<Sight>),
    /// A watch has shown this object; whether as gone.
    Shown(Kind, bool, Sight),
    /// Something else that is worth a line.
    Note(String),
}

/// What one side has said in a case.
#[derive(Clone, Debug, Default)]
pub struct Transcript {
    /// What the controller's requests were answered, in order.
    pub answers: Vec<Line>,
    /// What watches told of the case's objects, kind by kind in order; the kinds merged by resourceVersion.
    pub events: Vec<Line>,
}

impl Transcript {
    /// The same lines with numbers instead of UIDs and ranks instead of resourceVersions.
    fn normalised(&self) -> Self {
        let sights = || self.events.iter().chain(&self.answers).filter_map(sight);
        let versions: BTreeSet<u64> = sights().map(|sight| sight.version).collect();
        let mut uids: Vec<&str> = Vec::new();
        for sight in sights() {
            if !uids.contains(&sight.uid.as_str()) {
                uids.push(&sight.uid);
            }
        }
        let normal = |sight: &Sight| Sight {
            uid: format!("uid {}", uids.iter().position(|uid| *uid == sight.uid).unwrap() + 1),
            version: versions.range(..=sight.version).count().try_into().unwrap(),
            ..sight.clone()
        };
        let line = |line: &Line| match line {
            Line::Answer(outcome, object) => Line::Answer(outcome.clone(), object.as_ref().map(normal)),
            Line::Shown(kind, is_gone, object) => Line::Shown(*kind, *is_gone, normal(object)),
            Line::Note(text) => Line::Note(text.clone()),
        };
        Self { answers: self.answers.iter().map(line).collect(), events: self.events.iter().map(line).collect() }
    }

    /// The answers and the events in full.
    pub fn full(&self) -> Vec<String> {
        let normal = self.normalised();
        normal.answers.iter().chain(&normal.events).map(|line| format!("{line:?}")).collect()
    }

    /// The answers, each in a few words.
    pub fn short_answers(&self) -> Vec<String> {
        self.normalised().answers.iter().map(short).collect()
    }

    /// The events, each in a few words.
    pub fn short_events(&self) -> Vec<String> {
        self.normalised().events.iter().map(short).collect()
    }
}

fn sight(line: &Line) -> Option<&Sight> {
    match line {
        Line::Answer(_, object) => object.as_ref(),
        Line::Shown(_, _, object) => Some(object),
        Line::Note(_) => None,
    }
}

/// A line in a few words: `applied @2`, `NodeClaim @3 deleting`, `Node gone @4`. `@2` is the second resourceVersion of the
/// case.
pub fn short(line: &Line) -> String {
    let at = |sight: &Sight| format!(" @{}{}", sight.version, if sight.is_deleting { " deleting" } else { "" });
    match line {
        Line::Answer(outcome, object) => format!("{outcome}{}", object.as_ref().map(at).unwrap_or_default()),
        Line::Shown(kind, is_gone, object) => format!("{kind}{}{}", if *is_gone { " gone" } else { "" }, at(object)),
        Line::Note(text) => text.clone(),
    }
}
