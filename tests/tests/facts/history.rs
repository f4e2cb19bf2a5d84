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

/// The parts that objects play, by kind and UID, and the last state of each object.
pub struct Cast {
    old_claim: String,
    old_node: String,
    claims: BTreeMap<String, (String, NodeClaim)>,
    nodes: BTreeMap<String, (String, Node)>,
    placeholders: BTreeMap<String, (String, Placeholder)>,
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

    /// The part of an object that is shown for the first time. There may be an old one; of the others the first is `new`. A
    /// name may come again.
    fn part(&mut self, name: &str, is_old: bool, kind: &str, known: &[String]) -> String {
        let old = format!("old {kind}");
        let part = match known.iter().filter(|part| **part != old).count() {
            _ if is_old && !known.contains(&old) => old,
            0 => format!("surge {kind}"),
            n => format!("surge {kind} {}", n + 1),
        };
        self.parts.insert(name.to_owned(), part.clone());
        part
    }

    fn of_claim(&mut self, claim: &NodeClaim, is_gone: bool) -> Vec<String> {
        let (name, uid) = (claim.meta.name.to_string(), claim.meta.uid.to_string());
        let known = self.claims.get(&uid).cloned();
        let (part, before) = known.clone().unwrap_or_else(|| {
            let parts: Vec<String> = self.claims.values().map(|(part, _)| part.clone()).collect();
            (self.part(&name, name == self.old_claim, "claim", &parts), NodeClaim::default())
        });
        self.claims.insert(uid, (part.clone(), claim.clone()));
        let is_new = known.is_none() && part != "old claim";
        if known.is_none() && !is_new {
            return Vec::new();
        }
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
        let (name, uid) = (node.meta.name.to_string(), node.meta.uid.to_string());
        let known = self.nodes.get(&uid).cloned();
        let (part, before) = known.clone().unwrap_or_else(|| {
            let parts: Vec<String> = self.nodes.values().map(|(part, _)| part.clone()).collect();
            (self.part(&name, name == self.old_node, "Node", &parts), Node::default())
        });
        self.nodes.insert(uid, (part.clone(), node.clone()));
        let is_new = known.is_none() && part != "old Node";
        if known.is_none() && !is_new {
            return Vec::new();
        }
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
        let (name, uid) = (pod.meta.name.to_string(), pod.meta.uid.to_string());
        let known = self.placeholders.get(&uid).cloned();
        let (part, before) = known.clone().unwrap_or_else(|| {
            let part = match self.placeholders.len() {
                0 => "placeholder".to_owned(),
                n => format!("placeholder {}", n + 1),
            };
            self.parts.insert(name, part.clone());
            (part, Placeholder::default())
        });
        self.placeholders.insert(uid, (part.clone(), pod.clone()));
        let now = |is: bool, what: &str| is.then(|| format!("{part} {what}"));
        let host = self.parts.get(&*pod.node).cloned().unwrap_or_else(|| "an unknown Node".into());
        [
            now(known.is_none(), "is created"),
            now(before.unschedulable.is_none() && pod.unschedulable.is_some(), "is unschedulable"),
            now(before.node.is_empty() && !pod.node.is_empty(), &format!("is bound to the {host}")),
            now(before.phase != pod.phase && known.is_some(), &format!("is {}", pod.phase)),
            now(before.meta.deleted.is_none() && pod.meta.deleted.is_some(), "is being deleted"),
            now(is_gone, "is gone"),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
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
