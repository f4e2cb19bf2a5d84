//! What happened, as a list of facts: read from the changes of the objects, in the order of their resourceVersions, which all
//! kinds share. Names are replaced by the parts that objects play: the old NodeClaim and its Node, the surge claim and its
//! Node, the placeholder.

use std::collections::BTreeMap;

use noderotation_shared::keys;
use noderotation_shared::objects::{Annotations, Node, NodeClaim, NodePool, Placeholder};
use noderotation_shared::store::Stored;
use serde_json::Value;

/// A change of an object, as a watch shows it.
#[derive(Clone, Debug)]
pub enum Change {
    /// Of a NodePool.
    Pool(NodePool, bool),
    /// Of a NodeClaim.
    Claim(NodeClaim, bool),
    /// Of a Node.
    Node(Node, bool),
    /// Of a placeholder.
    Placeholder(Placeholder, bool),
}

impl Change {
    /// Its resourceVersion.
    pub fn version(&self) -> u64 {
        let meta = match self {
            Self::Pool(object, _) => object.meta(),
            Self::Claim(object, _) => object.meta(),
            Self::Node(object, _) => object.meta(),
            Self::Placeholder(object, _) => object.meta(),
        };
        meta.version.parse().unwrap()
    }
}

/// The parts that objects of one kind play, by UID, each with the last state of its object.
type Known<K> = BTreeMap<String, (String, K)>;

/// Remembers an object as it is now. Returns its part and what it was before; `None`: it is shown for the first time, and
/// `cast` gives it a part, told those of the others of its kind; `parts` are those of all.
fn meet<K: Stored>(
    parts: &mut BTreeMap<String, String>,
    known: &mut Known<K>,
    object: &K,
    cast: impl FnOnce(&[&String]) -> String,
) -> (String, Option<K>) {
    let uid = object.meta().uid.to_string();
    let part = match known.get(&uid) {
        Some((part, _)) => part.clone(),
        None => {
            let part = cast(&known.values().map(|(part, _)| part).collect::<Vec<_>>());
            parts.insert(object.meta().name.to_string(), part.clone());
            part
        }
    };
    let before = known.insert(uid, (part.clone(), object.clone()));
    (part, before.map(|(_, before)| before))
}

/// The parts that objects play, by kind, and the last state of each object.
pub struct Cast {
    old_claim: String,
    old_node: String,
    claims: Known<NodeClaim>,
    nodes: Known<Node>,
    placeholders: Known<Placeholder>,
    pool: NodePool,
    /// The parts of everything that was ever there, by name.
    pub parts: BTreeMap<String, String>,
}

impl Cast {
    /// A cast in which this claim and this Node are the old ones. What they were before is no fact.
    pub fn new(old_claim: &str, old_node: &str) -> Self {
        Self {
            old_claim: old_claim.to_owned(),
            old_node: old_node.to_owned(),
            claims: BTreeMap::new(),
            nodes: BTreeMap::new(),
            placeholders: BTreeMap::new(),
            pool: NodePool::default(),
            parts: BTreeMap::new(),
        }
    }

    /// The facts of these changes, in order.
    pub fn facts(&mut self, changes: &[Change]) -> Vec<String> {
        changes.iter().flat_map(|change| self.facts_of(change)).collect()
    }

    fn facts_of(&mut self, change: &Change) -> Vec<String> {
        match change {
            Change::Pool(pool, is_gone) => {
                let before = std::mem::replace(&mut self.pool, pool.clone());
                let mut facts = vec![annotated("NodePool", &before.meta.annotations, &pool.meta.annotations, None)];
                facts.push(is_gone.then(|| "NodePool is gone".to_owned()));
                facts.into_iter().flatten().collect()
            }
            Change::Claim(claim, is_gone) => self.of_claim(claim, *is_gone),
            Change::Node(node, is_gone) => self.of_node(node, *is_gone),
            Change::Placeholder(pod, is_gone) => self.of_placeholder(pod, *is_gone),
        }
    }

    fn of_claim(&mut self, claim: &NodeClaim, is_gone: bool) -> Vec<String> {
        let is_old = *claim.meta.name == *self.old_claim;
        let (part, before) = meet(&mut self.parts, &mut self.claims, claim, |known| part_of("claim", is_old, known));
        let is_new = before.is_none();
        if is_new && part == "old claim" {
            return Vec::new();
        }
        let before = before.unwrap_or_default();
        let now = |is: bool, what: &str| is.then(|| format!("{part} {what}"));
        [
            now(is_new, "is launched"),
            now(before.node.is_empty() && !claim.node.is_empty(), "has a Node"),
            now(!before.ready && claim.ready, "is Ready"),
            now(before.ready && !claim.ready, "is not Ready"),
            now(!before.disrupting && claim.disrupting, "is to be disrupted"),
            annotated(&part, &before.meta.annotations, &claim.meta.annotations, None),
            now(before.meta.deleted.is_none() && claim.meta.deleted.is_some(), "is being deleted"),
            now(is_gone, "is gone"),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    fn of_node(&mut self, node: &Node, is_gone: bool) -> Vec<String> {
        let is_old = *node.meta.name == *self.old_node;
        let (part, before) = meet(&mut self.parts, &mut self.nodes, node, |known| part_of("Node", is_old, known));
        let is_new = before.is_none();
        if is_new && part == "old Node" {
            return Vec::new();
        }
        let before = before.unwrap_or_default();
        let now = |is: bool, what: &str| is.then(|| format!("{part} {what}"));
        let cordon = (before.unschedulable != node.unschedulable).then_some(node.unschedulable);
        [
            now(is_new, "exists"),
            now(before.pool.is_empty() && !node.pool.is_empty(), "bears the label of its NodePool"),
            now(!before.ready && node.ready, "is Ready"),
            now(before.ready && !node.ready, "is not Ready"),
            now(!before.initialized && node.initialized, "is initialized"),
            annotated(&part, &before.meta.annotations, &node.meta.annotations, cordon),
            now(before.meta.deleted.is_none() && node.meta.deleted.is_some(), "is being deleted"),
            now(!before.disrupted && node.disrupted, "is tainted"),
            now(is_gone, "is gone"),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    fn of_placeholder(&mut self, pod: &Placeholder, is_gone: bool) -> Vec<String> {
        let (part, before) =
            meet(&mut self.parts, &mut self.placeholders, pod, |known| numbered("placeholder", known.len()));
        let is_new = before.is_none();
        let before = before.unwrap_or_default();
        let now = |is: bool, what: &str| is.then(|| format!("{part} {what}"));
        let host = self.parts.get(&*pod.node).cloned().unwrap_or_else(|| "an unknown Node".into());
        [
            now(is_new, "is created"),
            now(before.unschedulable.is_none() && pod.unschedulable.is_some(), "is unschedulable"),
            now(before.node.is_empty() && !pod.node.is_empty(), &format!("is bound to the {host}")),
            now(before.phase != pod.phase && !is_new, &format!("is {}", pod.phase)),
            now(before.meta.deleted.is_none() && pod.meta.deleted.is_some(), "is being deleted"),
            now(is_gone, "is gone"),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

/// The part of an object that is shown for the first time. There may be an old one; of the others the first is the surge. A
/// name may come again.
fn part_of(kind: &str, is_old: bool, known: &[&String]) -> String {
    let old = format!("old {kind}");
    if is_old && !known.contains(&&old) {
        return old;
    }
    numbered(&format!("surge {kind}"), known.iter().filter(|part| ***part != old).count())
}

/// The name of the part that comes after so many of its kind.
fn numbered(part: &str, before: usize) -> String {
    if before == 0 { part.to_owned() } else { format!("{part} {}", before + 1) }
}

/// The keys whose values are words of a state; of the others it only counts whether they are set.
const WORDS: [&str; 4] = [keys::STATE, keys::ACTIVE_ROTATION_STATE, keys::SURGE_PATH, keys::ROTATION_MODE];

/// What has become of annotations and, on a Node, of its cordon; `None`: nothing.
fn annotated(part: &str, before: &Annotations, after: &Annotations, cordon: Option<bool>) -> Option<String> {
    let changed = keys::ALL.iter().filter(|key| before.get(key.name) != after.get(key.name));
    let changes: BTreeMap<&str, Option<&str>> = changed.map(|key| (key.name, after.get(key.name))).collect();
    let text = spelled(&changes, cordon);
    (!text.is_empty()).then(|| format!("{part}: {text}"))
}

fn spelled(changes: &BTreeMap<&str, Option<&str>>, cordon: Option<bool>) -> String {
    let cordon = cordon.map(|is| if is { "cordoned" } else { "uncordoned" }.to_owned());
    let keys = changes.iter().map(|(key, value)| {
        let short = key.rsplit('/').next().unwrap_or(key);
        match value {
            Some(value) if WORDS.contains(key) => format!("{short}={value}"),
            Some(_) => format!("+{short}"),
            None => format!("-{short}"),
        }
    });
    keys.chain(cordon).collect::<Vec<_>>().join(" ")
}

/// A write of the controller, by its request: `patch NodePool +active-rotation`.
pub fn written(verb: &str, part: &str, body: &Value) -> String {
    let annotations = body["metadata"]["annotations"].as_object().filter(|_| verb == "patch");
    let changes: BTreeMap<&str, Option<&str>> =
        annotations.into_iter().flatten().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    let text = spelled(&changes, body["spec"]["unschedulable"].as_bool());
    if text.is_empty() { format!("{verb} {part}") } else { format!("{verb} {part}: {text}") }
}
