//! What is done to an API server, in words that the real one and the simulated one both understand.

use std::collections::BTreeMap;

use noderotation_rotation::patch::Patch;
use noderotation_rotation::placeholder;
use noderotation_rotation::size::NodeLoad;
use noderotation_rotation::step::Write;
use noderotation_rotation::world::Settings;
use noderotation_shared::kind::Kind;
use noderotation_shared::objects::{Meta, NodePool};
use noderotation_shared::policy::Policy;
use noderotation_shared::quantity::{Quantity, Resources};
use noderotation_tests::{ask, world};
use serde_json::{Value, json};

/// One case: what is done to the objects of one name, and what the controller relies on.
pub struct Case {
    /// What it is about.
    pub name: &'static str,
    /// What is done, in order.
    pub script: &'static [Op],
    /// What each request of the controller is answered, as [`crate::transcript::short`] writes it.
    pub answers: &'static [&'static str],
    /// What watches tell of it all, in the order of resourceVersions.
    pub events: &'static [&'static str],
}

/// One operation. The objects of a case have one name; there is one of each kind at most.
#[derive(Clone, Copy, Debug)]
pub enum Op {
    /// An administrator, or Karpenter, creates the object; a NodeClaim bears Karpenter's finalizer.
    Apply(Kind),
    /// Somebody changes an annotation that the controller does not look at.
    Touch(Kind),
    /// Somebody deletes the object.
    Remove(Kind),
    /// Karpenter takes its finalizer off the NodeClaim.
    Finalize,
    /// The scheduler binds the placeholder to the Node.
    Bind,
    /// The controller patches annotations and, on a Node, `spec.unschedulable`.
    Patch(Kind, Seen, &'static [(&'static str, Option<&'static str>)], Option<bool>),
    /// The controller creates the placeholder.
    Create,
    /// The controller deletes the placeholder of a UID.
    DeletePlaceholder(Seen),
    /// The controller deletes the NodeClaim of a UID and, where given, of a resourceVersion.
    DeleteClaim(Seen, Option<Seen>),
    /// The controller creates its Lease, or replaces the one that it has seen.
    PutLease(Option<Seen>),
    /// The controller watches a kind from a beginning, up to what has happened so far.
    Watch(Kind, Beginning),
}

/// Which of the UIDs or resourceVersions of an object a request carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// The newest.
    Newest,
    /// The first that there was.
    First,
    /// One that no object ever had.
    Never,
}

/// Where a watch begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beginning {
    /// With the initial state, streamed.
    InitialState,
    /// At the bookmark that ended the last initial state.
    Bookmark,
    /// At a resourceVersion of the object.
    Version(Seen),
    /// At a resourceVersion that the server no longer remembers.
    Forgotten,
}

/// The UIDs and resourceVersions that a side has seen of a case's objects.
#[derive(Default)]
pub struct Memory {
    /// The name of the case's objects.
    pub name: String,
    seen: BTreeMap<Kind, Vec<(String, String)>>,
}

impl Memory {
    /// An empty one, for the case of this number.
    pub fn of_case(number: usize) -> Self {
        Self { name: format!("case-{number}"), seen: BTreeMap::new() }
    }

    /// The name of the case's object of a kind.
    pub fn name_of(&self, kind: Kind) -> String {
        match kind {
            Kind::Pod => placeholder::name(&self.name),
            Kind::Lease => noderotation_controller::leader::NAME.to_owned(),
            _ => self.name.clone(),
        }
    }

    /// A request was answered with this object.
    pub fn saw(&mut self, kind: Kind, uid: &str, version: &str) {
        self.seen.entry(kind).or_default().push((uid.to_owned(), version.to_owned()));
    }

    fn which(&self, kind: Kind, which: Seen) -> (String, String) {
        let seen = self.seen.get(&kind).map(Vec::as_slice).unwrap_or_default();
        let found = match which {
            Seen::Newest => seen.last(),
            Seen::First => seen.first(),
            Seen::Never => None,
        };
        found.cloned().unwrap_or_else(|| ("00000000-0000-4000-8000-000000000000".into(), "1".into()))
    }

    /// A UID of the case's object.
    pub fn uid(&self, kind: Kind, which: Seen) -> String {
        self.which(kind, which).0
    }

    /// A resourceVersion of the case's object.
    pub fn version(&self, kind: Kind, which: Seen) -> String {
        self.which(kind, which).1
    }

    /// The product's own value for a write of the controller; `None` for any other operation.
    pub fn write(&self, op: &Op) -> Option<Write> {
        Some(match op {
            Op::Patch(kind, seen, annotations, unschedulable) => {
                let meta = Meta {
                    name: self.name_of(*kind).into(),
                    version: self.version(*kind, *seen).into(),
                    ..Meta::default()
                };
                let annotations = annotations.iter().map(|(key, value)| (*key, value.map(str::to_owned)));
                Write::Patch(Patch { unschedulable: *unschedulable, ..Patch::new(*kind, &meta, annotations) })
            }
            Op::Create => Write::CreatePlaceholder(Box::new(self.placeholder())),
            Op::DeletePlaceholder(seen) => {
                Write::DeletePlaceholder { name: self.name_of(Kind::Pod), uid: self.uid(Kind::Pod, *seen) }
            }
            Op::DeleteClaim(uid, version) => Write::DeleteClaim {
                name: self.name_of(Kind::NodeClaim),
                uid: self.uid(Kind::NodeClaim, *uid),
                version: version.map(|seen| self.version(Kind::NodeClaim, seen)),
            },
            _ => return None,
        })
    }

    /// The placeholder for the case's NodeClaim, as the product makes it.
    fn placeholder(&self) -> Value {
        let policy = Policy::from_json(&world::policy("conformance")["spec"]).unwrap();
        let pool = NodePool { meta: Meta { name: "conformance".into(), ..Meta::default() }, ..NodePool::default() };
        let requests = Resources([("cpu".to_owned(), Quantity::whole(1))].into());
        placeholder::pod(&placeholder::Plan {
            claim: &self.name,
            pool: &pool,
            surge: &policy.surge,
            load: &NodeLoad::default(),
            requests: &requests,
            avoid: &[],
            bound: jiff::SignedDuration::from_hours(1),
            settings: &Settings {
                namespace: noderotation_tests::product::NAMESPACE.into(),
                priority_class: "noderotation-placeholder".into(),
                image: "pause".into(),
                ..Settings::default()
            },
        })
        .unwrap()
    }

    /// The object of a kind as an administrator, or Karpenter, creates it.
    pub fn object(&self, kind: Kind) -> Value {
        object(kind, &self.name)
    }
}

/// An object of a kind as an administrator, or Karpenter, creates it.
pub fn object(kind: Kind, name: &str) -> Value {
    match kind {
        Kind::NodePool => ask::pool(name, &json!({})),
        Kind::NodeClaim => {
            let mut claim = ask::claim(name, "conformance");
            claim["metadata"]["finalizers"] = json!(["karpenter.sh/termination"]);
            // where it is missing the CRD sets a default
            claim["spec"]["expireAfter"] = "480h".into();
            claim
        }
        Kind::Node => json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "labels": {"karpenter.sh/nodepool": "conformance", "kubernetes.io/hostname": name}},
        }),
        _ => panic!("no case creates a {kind} by hand"),
    }
}
