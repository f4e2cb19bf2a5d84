//! The API server in memory: resourceVersions, 409, 404, UID preconditions, merge patches, finalizers, and a log of what
//! changed, from which watches are fed.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use noderotation_rotation::pass::ApiObject;
use noderotation_rotation::placeholder;
use noderotation_rotation::step::{Patch, Write};
use noderotation_shared::instant::whole_seconds;
use noderotation_shared::keys;
use noderotation_shared::kind::Kind;
use noderotation_shared::objects::{Annotations, Meta, Node, NodeClaim, NodePool, Placeholder, PolicyObject};

/// A change that watches tell of.
#[derive(Clone, Debug)]
pub enum Change {
    /// A NodePool was applied, or (`true`) deleted.
    Pool(NodePool, bool),
    /// A NodeClaim, likewise.
    Claim(NodeClaim, bool),
    /// A Node, likewise.
    Node(Node, bool),
    /// A placeholder, likewise.
    Placeholder(Placeholder, bool),
    /// A RotationPolicy, likewise.
    Policy(PolicyObject, bool),
}

/// Why a request did not do what it asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// 409.
    Conflict,
    /// 404.
    NotFound,
}

/// A workload Pod.
#[derive(Clone, Debug)]
pub struct WorkPod {
    /// The Node that it runs on; `None` while it is Pending.
    pub node: Option<Box<str>>,
    /// Requested CPU, in thousandths.
    pub cpu: i64,
}

/// Everything that is stored.
#[derive(Clone, Debug, Default)]
pub struct Cluster {
    /// NodePools by name.
    pub pools: BTreeMap<Box<str>, NodePool>,
    /// NodeClaims by name.
    pub claims: BTreeMap<Box<str>, NodeClaim>,
    /// Nodes by name.
    pub nodes: BTreeMap<Box<str>, Node>,
    /// Placeholders by Pod name.
    pub placeholders: BTreeMap<Box<str>, Placeholder>,
    /// Policies by name.
    pub policies: BTreeMap<Box<str>, PolicyObject>,
    /// Workload Pods by name.
    pub pods: BTreeMap<Box<str>, WorkPod>,
    /// What changed, in order.
    pub log: Vec<Change>,
    version: u64,
    uids: u64,
}

impl Cluster {
    /// Metadata of a new object.
    pub fn new_meta(&mut self, name: &str, now: Timestamp) -> Meta {
        self.version += 1;
        self.uids += 1;
        Meta {
            name: name.into(),
            uid: format!("uid-{}", self.uids).into(),
            version: self.version.to_string().into(),
            created: whole_seconds(now),
            ..Meta::default()
        }
    }

    fn next_version(&mut self) -> Box<str> {
        self.version += 1;
        self.version.to_string().into()
    }

    /// Stores a pool as somebody changed it.
    pub fn put_pool(&mut self, mut pool: NodePool) {
        pool.meta.version = self.next_version();
        self.log.push(Change::Pool(pool.clone(), false));
        self.pools.insert(pool.meta.name.clone(), pool);
    }

    /// Stores a claim as somebody changed it.
    pub fn put_claim(&mut self, mut claim: NodeClaim) {
        claim.meta.version = self.next_version();
        self.log.push(Change::Claim(claim.clone(), false));
        self.claims.insert(claim.meta.name.clone(), claim);
    }

    /// Stores a Node as somebody changed it.
    pub fn put_node(&mut self, mut node: Node) {
        node.meta.version = self.next_version();
        self.log.push(Change::Node(node.clone(), false));
        self.nodes.insert(node.meta.name.clone(), node);
    }

    /// Stores a placeholder as somebody changed it.
    pub fn put_placeholder(&mut self, mut pod: Placeholder) {
        pod.meta.version = self.next_version();
        self.log.push(Change::Placeholder(pod.clone(), false));
        self.placeholders.insert(pod.meta.name.clone(), pod);
    }

    /// Stores a policy as somebody changed it.
    pub fn put_policy(&mut self, mut policy: PolicyObject) {
        policy.meta.version = self.next_version();
        self.log.push(Change::Policy(policy.clone(), false));
        self.policies.insert(policy.meta.name.clone(), policy);
    }

    /// Changes a claim's metadata or status.
    pub fn change_claim(&mut self, name: &str, change: impl FnOnce(&mut NodeClaim)) {
        if let Some(mut claim) = self.claims.get(name).cloned() {
            change(&mut claim);
            self.put_claim(claim);
        }
    }

    /// Changes a Node.
    pub fn change_node(&mut self, name: &str, change: impl FnOnce(&mut Node)) {
        if let Some(mut node) = self.nodes.get(name).cloned() {
            change(&mut node);
            self.put_node(node);
        }
    }

    /// Changes a NodePool.
    pub fn change_pool(&mut self, name: &str, change: impl FnOnce(&mut NodePool)) {
        if let Some(mut pool) = self.pools.get(name).cloned() {
            change(&mut pool);
            self.put_pool(pool);
        }
    }

    /// Changes a placeholder.
    pub fn change_placeholder(&mut self, name: &str, change: impl FnOnce(&mut Placeholder)) {
        if let Some(mut pod) = self.placeholders.get(name).cloned() {
            change(&mut pod);
            self.put_placeholder(pod);
        }
    }

    /// Marks a claim as being deleted; Karpenter's finalizer holds it.
    pub fn delete_claim(&mut self, name: &str, now: Timestamp) {
        self.change_claim(name, |claim| claim.meta.deleted = claim.meta.deleted.or(Some(whole_seconds(now))));
    }

    /// The claim's finalizer is gone, and so is the claim.
    pub fn remove_claim(&mut self, name: &str) {
        if let Some(mut claim) = self.claims.remove(name) {
            claim.meta.version = self.next_version();
            self.log.push(Change::Claim(claim, true));
        }
    }

    /// A Node is gone; its Pods are Pending again, a placeholder on it is gone with it.
    pub fn remove_node(&mut self, name: &str) {
        if let Some(mut node) = self.nodes.remove(name) {
            node.meta.version = self.next_version();
            self.log.push(Change::Node(node, true));
        }
        for pod in self.pods.values_mut().filter(|pod| pod.node.as_deref() == Some(name)) {
            pod.node = None;
        }
        let gone: Vec<_> =
            self.placeholders.values().filter(|p| &*p.node == name).map(|p| p.meta.name.clone()).collect();
        for name in gone {
            self.remove_placeholder(&name);
        }
    }

    /// A placeholder is gone.
    pub fn remove_placeholder(&mut self, name: &str) {
        if let Some(mut pod) = self.placeholders.remove(name) {
            pod.meta.version = self.next_version();
            self.log.push(Change::Placeholder(pod, true));
        }
    }

    /// Performs a write of the controller as the API server would.
    pub fn write(&mut self, write: &Write, now: Timestamp) -> Result<Option<ApiObject>, Refused> {
        match write {
            Write::Patch(patch) => self.patch(patch).map(Some),
            Write::CreatePlaceholder(pod) => {
                let text = |pointer: &str| pod.pointer(pointer).and_then(|v| v.as_str()).unwrap_or_default().to_owned();
                let name = text("/metadata/name");
                if self.placeholders.contains_key(name.as_str()) {
                    return Err(Refused::Conflict);
                }
                let claim = pod.pointer("/metadata/annotations").and_then(|a| a.get(keys::SURGE_FOR)?.as_str());
                let mut meta = self.new_meta(&name, now);
                meta.annotations = Annotations::of(claim.map(|claim| (keys::SURGE_FOR, claim)));
                let pool = pod.pointer("/metadata/labels").and_then(|l| l.get(keys::KARPENTER_NODEPOOL)?.as_str());
                let created = Placeholder {
                    meta,
                    pool: pool.unwrap_or_default().into(),
                    phase: "Pending".into(),
                    ..Placeholder::default()
                };
                debug_assert_eq!(name, placeholder::name(claim.unwrap_or_default()));
                self.put_placeholder(created);
                Ok(self.placeholders.get(name.as_str()).cloned().map(ApiObject::Placeholder))
            }
            Write::DeletePlaceholder { name, uid } => {
                let pod = self.placeholders.get(name.as_str()).ok_or(Refused::NotFound)?;
                if *pod.meta.uid != **uid {
                    return Err(Refused::Conflict);
                }
                self.remove_placeholder(name);
                Ok(None)
            }
            Write::DeleteClaim { name, uid, version } => {
                let claim = self.claims.get(name.as_str()).ok_or(Refused::NotFound)?;
                let is_same = *claim.meta.uid == **uid && version.as_ref().is_none_or(|v| **v == *claim.meta.version);
                if !is_same {
                    return Err(Refused::Conflict);
                }
                self.delete_claim(name, now);
                Ok(self.claims.get(name.as_str()).cloned().map(ApiObject::NodeClaim))
            }
        }
    }

    fn patch(&mut self, patch: &Patch) -> Result<ApiObject, Refused> {
        let name = patch.name.as_str();
        let checked = |meta: &Meta| if *meta.version == *patch.version { Ok(()) } else { Err(Refused::Conflict) };
        match patch.kind {
            Kind::NodePool => {
                let mut pool = self.pools.get(name).cloned().ok_or(Refused::NotFound)?;
                checked(&pool.meta)?;
                pool.meta.annotations = merged(&pool.meta.annotations, patch);
                self.put_pool(pool);
                self.pools.get(name).cloned().map(ApiObject::NodePool).ok_or(Refused::NotFound)
            }
            Kind::NodeClaim => {
                let mut claim = self.claims.get(name).cloned().ok_or(Refused::NotFound)?;
                checked(&claim.meta)?;
                claim.meta.annotations = merged(&claim.meta.annotations, patch);
                self.put_claim(claim);
                self.claims.get(name).cloned().map(ApiObject::NodeClaim).ok_or(Refused::NotFound)
            }
            _ => {
                let mut node = self.nodes.get(name).cloned().ok_or(Refused::NotFound)?;
                checked(&node.meta)?;
                node.meta.annotations = merged(&node.meta.annotations, patch);
                node.unschedulable = patch.unschedulable.unwrap_or(node.unschedulable);
                self.put_node(node);
                self.nodes.get(name).cloned().map(ApiObject::Node).ok_or(Refused::NotFound)
            }
        }
    }

    /// CPU requested by what runs on a Node, in thousandths; the placeholder aside.
    pub fn used_cpu(&self, node: &str) -> i64 {
        self.pods.values().filter(|pod| pod.node.as_deref() == Some(node)).map(|pod| pod.cpu).sum()
    }
}

/// What a merge patch makes of annotations.
pub fn merged(annotations: &Annotations, patch: &Patch) -> Annotations {
    let mut all: BTreeMap<&str, Arc<str>> =
        keys::ALL.iter().filter_map(|key| Some((key.name, annotations.get(key.name)?.into()))).collect();
    for (key, value) in &patch.annotations {
        match value {
            Some(value) => all.insert(key, value.as_str().into()),
            None => all.remove(key),
        };
    }
    Annotations::of(all.iter().map(|(key, value)| (*key, &**value)))
}

/// `annotations` with one of them set (`Some`) or removed (`None`).
pub fn with(annotations: &Annotations, key: &'static str, value: Option<&str>) -> Annotations {
    let patch = Patch::new(Kind::Node, &Meta::default(), [(key, value.map(str::to_owned))]);
    merged(annotations, &patch)
}
