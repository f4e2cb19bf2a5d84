//! The API server in memory: resourceVersions, 409, 404, UID preconditions, merge patches, finalizers, a Lease, and for
//! each kind a log of what changed, from which watches are fed.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use jiff::Timestamp;
use noderotation_rotation::lease::Lease;
use noderotation_rotation::pass::ApiObject;
use noderotation_rotation::step::{Patch, Write};
use noderotation_shared::instant::whole_seconds;
use noderotation_shared::keys;
use noderotation_shared::kind::Kind;
use noderotation_shared::objects::{Annotations, Meta, Node, NodeClaim, NodePool, Placeholder, PolicyObject};
use noderotation_shared::store::Stored;
use serde_json::Value;

/// The counter of resourceVersions, which all kinds share.
#[derive(Clone, Debug, Default)]
struct Versions(Rc<Cell<u64>>);

impl Versions {
    fn next(&self) -> u64 {
        self.0.set(self.0.get() + 1);
        self.0.get()
    }
}

/// A change that watches tell of.
#[derive(Clone, Debug)]
pub struct Logged<K> {
    /// Its resourceVersion.
    pub version: u64,
    /// The object; where it is gone, its last state, with the version of the deletion.
    pub object: Arc<K>,
    /// Whether the object is gone.
    pub is_gone: bool,
}

/// The objects of one kind.
#[derive(Clone, Debug)]
pub struct Table<K> {
    objects: BTreeMap<Box<str>, Arc<K>>,
    /// What changed, in order.
    pub log: Vec<Logged<K>>,
    /// The newest resourceVersion of a change that no watch can ask for any more.
    forgotten: u64,
    versions: Versions,
}

impl<K: Stored> Table<K> {
    fn new(versions: &Versions) -> Self {
        Self { objects: BTreeMap::new(), log: Vec::new(), forgotten: 0, versions: versions.clone() }
    }

    /// An object by name.
    pub fn get(&self, name: &str) -> Option<&Arc<K>> {
        self.objects.get(name)
    }

    /// Every object, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<K>> {
        self.objects.values()
    }

    /// The names of all objects.
    pub fn names(&self) -> Vec<Box<str>> {
        self.objects.keys().cloned().collect()
    }

    /// Stores an object with the next resourceVersion.
    pub fn put(&mut self, mut object: K) {
        let version = self.versions.next();
        object.meta_mut().version = version.to_string().into();
        let object = Arc::new(object);
        self.log.push(Logged { version, object: object.clone(), is_gone: false });
        self.objects.insert(object.meta().name.clone(), object);
    }

    /// Changes an object; nothing is stored where nothing changes.
    pub fn change(&mut self, name: &str, change: impl FnOnce(&mut K)) {
        let Some(stored) = self.objects.get(name) else { return };
        let mut changed = K::clone(stored);
        change(&mut changed);
        if changed != **stored {
            self.put(changed);
        }
    }

    /// Somebody writes a field that nobody here looks at: only the resourceVersion is new.
    pub fn touch(&mut self, name: &str) {
        if let Some(stored) = self.objects.get(name) {
            self.put(K::clone(stored));
        }
    }

    /// Removes an object.
    pub fn remove(&mut self, name: &str) {
        if let Some(object) = self.objects.remove(name) {
            let version = self.versions.next();
            let mut last = K::clone(&object);
            last.meta_mut().version = version.to_string().into();
            self.log.push(Logged { version, object: Arc::new(last), is_gone: true });
        }
    }

    /// What a watch from this resourceVersion delivers; `None`: 410, since some of it is forgotten.
    pub fn changes_since(&self, version: u64) -> Option<&[Logged<K>]> {
        let place = self.log.partition_point(|logged| logged.version <= version);
        (version >= self.forgotten).then(|| self.log.get(place..).unwrap_or_default())
    }

    /// The server forgets what has changed up to this resourceVersion, as it does after some minutes. Watches that are open
    /// go on.
    pub fn forget_changes(&mut self, until: u64) {
        self.forgotten = self.forgotten.max(until);
    }

    /// A conditional change, as a merge patch with `metadata.resourceVersion` is.
    fn patch(&mut self, patch: &Patch, change: impl FnOnce(&mut K)) -> Result<K, Refused> {
        let stored = self.objects.get(patch.name.as_str()).ok_or(Refused::NotFound)?;
        if *stored.meta().version != *patch.version {
            return Err(Refused::Conflict);
        }
        self.change(&patch.name, |object| {
            let changes = patch.annotations.iter().map(|(key, value)| (*key, value.as_deref()));
            object.meta_mut().annotations = object.meta().annotations.patched(changes);
            change(object);
        });
        self.objects.get(patch.name.as_str()).map(|object| K::clone(object)).ok_or(Refused::NotFound)
    }
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
    /// The NodePool that it selects.
    pub pool: Box<str>,
    /// The Node that it runs on; `None` while it is Pending.
    pub node: Option<Box<str>>,
    /// Requested CPU, in thousandths.
    pub cpu: i64,
    /// Since when it bears `karpenter.sh/do-not-disrupt: "true"`.
    pub protected_since: Option<Timestamp>,
}

/// Everything that is stored.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// NodePools.
    pub pools: Table<NodePool>,
    /// NodeClaims.
    pub claims: Table<NodeClaim>,
    /// Nodes.
    pub nodes: Table<Node>,
    /// Placeholders.
    pub placeholders: Table<Placeholder>,
    /// RotationPolicies.
    pub policies: Table<PolicyObject>,
    /// Workload Pods by name; nobody watches them.
    pub pods: BTreeMap<Box<str>, WorkPod>,
    /// CPU that each placeholder requests, in thousandths, by Pod name.
    pub reserved_cpu: BTreeMap<Box<str>, i64>,
    /// The controller's Lease.
    pub lease: Option<Lease>,
    versions: Versions,
    uids: u64,
}

impl Default for Cluster {
    fn default() -> Self {
        let versions = Versions::default();
        Self {
            pools: Table::new(&versions),
            claims: Table::new(&versions),
            nodes: Table::new(&versions),
            placeholders: Table::new(&versions),
            policies: Table::new(&versions),
            pods: BTreeMap::new(),
            reserved_cpu: BTreeMap::new(),
            lease: None,
            versions,
            uids: 0,
        }
    }
}

impl Cluster {
    /// Metadata of a new object.
    pub fn new_meta(&mut self, name: &str, now: Timestamp) -> Meta {
        self.uids += 1;
        Meta {
            name: name.into(),
            uid: format!("uid-{}", self.uids).into(),
            created: whole_seconds(now),
            ..Meta::default()
        }
    }

    /// The newest resourceVersion.
    pub fn version(&self) -> u64 {
        self.versions.0.get()
    }

    /// Creates or replaces the Lease: `version` is the precondition, `None` demands that there is none.
    pub fn put_lease(
        &mut self,
        holder: &str,
        duration: std::time::Duration,
        version: Option<&str>,
    ) -> Result<(), Refused> {
        if self.lease.as_ref().map(|lease| lease.version.as_str()) != version {
            return Err(Refused::Conflict);
        }
        let version = self.versions.next().to_string();
        self.lease = Some(Lease { holder: holder.to_owned(), version, duration: Some(duration) });
        Ok(())
    }

    /// Marks a claim as being deleted; Karpenter's finalizer holds it.
    pub fn delete_claim(&mut self, name: &str, now: Timestamp) {
        self.claims.change(name, |claim| claim.meta.deleted = claim.meta.deleted.or(Some(whole_seconds(now))));
    }

    /// A Node is gone, and what was left on it.
    pub fn remove_node(&mut self, name: &str, now: Timestamp) {
        self.nodes.remove(name);
        self.release_pods(name, now);
    }

    /// Nothing runs on a Node any more: its Pods are Pending again, a placeholder on it is gone.
    pub fn release_pods(&mut self, node: &str, now: Timestamp) {
        for pod in self.pods.values_mut().filter(|pod| pod.node.as_deref() == Some(node)) {
            pod.node = None;
        }
        let gone: Vec<_> = self.placeholders_on(node).map(|p| p.meta.name.clone()).collect();
        for name in gone {
            self.remove_placeholder(&name, now);
        }
    }

    /// A placeholder is gone. A deletion of a Pod without a grace period is two changes: its deletionTimestamp, and its end.
    pub fn remove_placeholder(&mut self, name: &str, now: Timestamp) {
        self.placeholders.change(name, |pod| pod.meta.deleted = Some(whole_seconds(now)));
        self.placeholders.remove(name);
        self.reserved_cpu.remove(name);
    }

    /// Performs a write of the controller as the API server would.
    pub fn write(&mut self, write: &Write, now: Timestamp) -> Result<Option<ApiObject>, Refused> {
        match write {
            Write::Patch(patch) => self.patch(patch).map(Some),
            Write::CreatePlaceholder(pod) => self.create_placeholder(pod, now).map(Some),
            Write::DeletePlaceholder { name, uid } => {
                let pod = self.placeholders.get(name).ok_or(Refused::NotFound)?;
                if *pod.meta.uid != **uid {
                    return Err(Refused::Conflict);
                }
                self.remove_placeholder(name, now);
                Ok(None)
            }
            Write::DeleteClaim { name, uid, version } => {
                let claim = self.claims.get(name).ok_or(Refused::NotFound)?;
                let is_same = *claim.meta.uid == **uid && version.as_ref().is_none_or(|v| **v == *claim.meta.version);
                if !is_same {
                    return Err(Refused::Conflict);
                }
                self.delete_claim(name, now);
                Ok(self.claims.get(name).map(|claim| ApiObject::NodeClaim(NodeClaim::clone(claim))))
            }
        }
    }

    fn create_placeholder(&mut self, pod: &Value, now: Timestamp) -> Result<ApiObject, Refused> {
        let text = |pointer: &str| pod.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let name = text("/metadata/name");
        if self.placeholders.get(&name).is_some() {
            return Err(Refused::Conflict);
        }
        let pool = pod.pointer("/metadata/labels").and_then(|l| l.get(keys::KARPENTER_NODEPOOL)?.as_str());
        let mut meta = self.new_meta(&name, now);
        let annotations = pod.pointer("/metadata/annotations").and_then(Value::as_object).into_iter().flatten();
        meta.annotations =
            Annotations::of(annotations.filter_map(|(key, value)| Some((key.as_str(), value.as_str()?))));
        self.reserved_cpu.insert(name.as_str().into(), requested_cpu(pod));
        self.placeholders.put(Placeholder {
            meta,
            pool: pool.unwrap_or_default().into(),
            phase: "Pending".into(),
            ..Placeholder::default()
        });
        self.placeholders.get(&name).map(|p| ApiObject::Placeholder(Placeholder::clone(p))).ok_or(Refused::NotFound)
    }

    fn patch(&mut self, patch: &Patch) -> Result<ApiObject, Refused> {
        match patch.kind {
            Kind::NodePool => self.pools.patch(patch, |_| ()).map(ApiObject::NodePool),
            Kind::NodeClaim => self.claims.patch(patch, |_| ()).map(ApiObject::NodeClaim),
            _ => {
                let cordon = |node: &mut Node| node.unschedulable = patch.unschedulable.unwrap_or(node.unschedulable);
                self.nodes.patch(patch, cordon).map(ApiObject::Node)
            }
        }
    }

    /// The workload Pods on a Node, with their names.
    pub fn pods_on<'a>(&'a self, node: &'a str) -> impl Iterator<Item = (&'a str, &'a WorkPod)> {
        let pods = self.pods.iter().filter(move |(_, pod)| pod.node.as_deref() == Some(node));
        pods.map(|(name, pod)| (&**name, pod))
    }

    /// The placeholders on a Node; of no Node, those that are not bound.
    pub fn placeholders_on<'a>(&'a self, node: &'a str) -> impl Iterator<Item = &'a Arc<Placeholder>> {
        self.placeholders.iter().filter(move |placeholder| *placeholder.node == *node)
    }

    /// The API server forgets what has changed until now, as it does after some minutes: who resumes from an earlier version is
    /// answered with 410.
    pub fn forget_changes(&mut self) {
        let until = self.version();
        self.pools.forget_changes(until);
        self.claims.forget_changes(until);
        self.nodes.forget_changes(until);
        self.placeholders.forget_changes(until);
        self.policies.forget_changes(until);
    }

    /// CPU requested by what runs on a Node, in thousandths; placeholders aside.
    pub fn used_cpu(&self, node: &str) -> i64 {
        self.pods_on(node).map(|(_, pod)| pod.cpu).sum()
    }

    /// A Pod on this Node that a drain without a grace period would wait for, for ever.
    pub fn protected_pod<'a>(&'a self, node: &'a str) -> Option<(&'a str, Timestamp)> {
        self.pods_on(node).find_map(|(name, pod)| Some((name, pod.protected_since?)))
    }

    /// CPU that placeholders reserve on a Node, in thousandths.
    pub fn reserved_on(&self, node: &str) -> i64 {
        self.placeholders_on(node).filter_map(|p| self.reserved_cpu.get(&p.meta.name)).sum()
    }
}

/// CPU that a Pod requests, in thousandths.
fn requested_cpu(pod: &Value) -> i64 {
    let text = pod.pointer("/spec/containers/0/resources/requests/cpu").and_then(Value::as_str).unwrap_or("0");
    let (number, unit) = text.strip_suffix('m').map_or((text, 1_000), |number| (number, 1));
    number.parse::<i64>().unwrap_or(0).saturating_mul(unit)
}

/// `annotations` with one of them set (`Some`) or removed (`None`).
pub fn with(annotations: &Annotations, key: &'static str, value: Option<&str>) -> Annotations {
    annotations.patched([(key, value)])
}
