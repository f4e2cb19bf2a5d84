//! A real API server under the script: the controller's requests are the product's own, with the identity and the rights of
//! its service account.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::pin::pin;
use std::sync::Arc;

use futures::StreamExt;
use kube::core::WatchEvent;
use noderotation_cluster::api::{Api, Outcome, Selectors};
use noderotation_cluster::objects::{Cached, identity};
use noderotation_controller::apply::apply;
use noderotation_controller::queue::Queue;
use noderotation_controller::watch::Caches;
use noderotation_rig::{Options, Rig};
use noderotation_shared::keys;
use noderotation_shared::kind::Kind;
use noderotation_shared::objects::{Node, NodeClaim, NodePool, Placeholder};
use noderotation_tests::Product;
use noderotation_tests::product::NAMESPACE;
use noderotation_tests::world::PATIENCE;
use serde_json::{Value, json};

use crate::script::{self, Beginning, Memory, Op};
use crate::transcript::{Line, Sight, Transcript};

/// The kinds that are watched.
const WATCHED: [Kind; 4] = [Kind::NodePool, Kind::NodeClaim, Kind::Node, Kind::Pod];

/// etcd and an API server with Karpenter's CRDs and the chart. Nothing else runs, so that nobody else writes.
pub struct Real {
    product: Product,
    api: Api,
    memory: Memory,
    /// For each kind, from where its events belong to the case.
    began: BTreeMap<Kind, String>,
    bookmark: String,
    marks: u32,
}

impl Real {
    /// Boots it.
    pub async fn start() -> Self {
        let rig = Rig::start(Options { bare: true, ..Options::default() }).await.unwrap();
        rig.install_karpenter_kinds().unwrap();
        let product = Product::install_bare(rig).unwrap();
        // Pods need it, and nobody runs who would create it
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": NAMESPACE}});
        product.rig.apply(&account).unwrap();
        let api = Api::new(product.controller_client().await.unwrap(), 1000, 1000, Arc::default());
        let mut real =
            Self { product, api, memory: Memory::default(), began: BTreeMap::new(), bookmark: String::new(), marks: 0 };
        for kind in WATCHED {
            let (_, version) = real.mark(kind).await;
            real.began.insert(kind, version);
        }
        real
    }

    /// Performs a case.
    pub async fn play(&mut self, number: usize, script: &[Op]) -> Transcript {
        self.memory = Memory::of_case(number);
        let mut transcript = Transcript::default();
        for op in script {
            transcript.answers.extend(self.perform(op).await);
        }
        for kind in WATCHED {
            let began = self.began.get(&kind).cloned().unwrap();
            let (lines, version) = self.shown_since(kind, &began).await;
            transcript.events.extend(lines);
            self.began.insert(kind, version);
        }
        transcript.events.sort_by_key(|line| if let Line::Shown(_, _, sight) = line { sight.version } else { 0 });
        if self.product.rig.try_get(&self.path(Kind::Lease)).await.unwrap().is_some() {
            self.remove(Kind::Lease).await;
        }
        transcript
    }

    async fn perform(&mut self, op: &Op) -> Vec<Line> {
        if let Some(write) = self.memory.write(op) {
            let outcome = apply(&self.api, NAMESPACE, &write).await;
            let Outcome::Applied(text) = &outcome else { return vec![refusal(&outcome)] };
            let caches = Caches::new(Arc::new(Queue::default()), Arc::default());
            let sight = caches.take_in(&write, text).as_ref().map(Sight::of_answer);
            if let Some(sight) = &sight {
                self.memory.saw(write.target().0, &sight.uid, &sight.version.to_string());
            }
            return vec![Line::Answer(outcome.label().into(), sight)];
        }
        match op {
            Op::Apply(kind) => {
                let object = self.memory.object(*kind);
                let answer = self.send("POST", &collection(*kind), "application/json", &object).await;
                self.remember(*kind, &answer);
            }
            Op::Touch(kind) => self.merge(*kind, &annotated(&self.memory.name)).await,
            Op::Finalize => self.merge(Kind::NodeClaim, &json!({"metadata": {"finalizers": null}})).await,
            Op::Remove(kind) => self.remove(*kind).await,
            Op::Bind => {
                let target = json!({"apiVersion": "v1", "kind": "Node", "name": self.memory.name});
                let name = self.memory.name_of(Kind::Pod);
                let binding =
                    json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target});
                self.send("POST", &format!("{}/binding", self.path(Kind::Pod)), "application/json", &binding).await;
                let pod = self.product.rig.get(&self.path(Kind::Pod)).await.unwrap();
                self.remember(Kind::Pod, &pod);
            }
            Op::PutLease(seen) => {
                let version = seen.map(|seen| self.memory.version(Kind::Lease, seen));
                return vec![self.put_lease(version).await];
            }
            Op::Watch(kind, from) => return self.watch(*kind, *from).await,
            other => panic!("not understood: {other:?}"),
        }
        Vec::new()
    }

    fn path(&self, kind: Kind) -> String {
        format!("{}/{}", collection(kind), self.memory.name_of(kind))
    }

    /// A request of the administrator, which must succeed.
    async fn send(&self, method: &str, path: &str, content: &str, body: &Value) -> Value {
        let (code, answer) = self.product.rig.send(method, path, content, body).await.unwrap();
        assert_eq!(code, 200, "{method} {path}: {answer}");
        answer
    }

    async fn merge(&mut self, kind: Kind, patch: &Value) {
        let answer = self.send("PATCH", &self.path(kind), "application/merge-patch+json", patch).await;
        self.remember(kind, &answer);
    }

    async fn remove(&self, kind: Kind) {
        self.send("DELETE", &self.path(kind), "application/json", &json!({})).await;
    }

    fn remember(&mut self, kind: Kind, object: &Value) {
        let meta = identity(&object.to_string()).unwrap();
        self.memory.saw(kind, &meta.uid, &meta.version);
    }

    /// As `noderotation_controller::leader` sends it: what was read, with another `spec`.
    async fn put_lease(&mut self, version: Option<String>) -> Line {
        let name = self.memory.name_of(Kind::Lease);
        let mut metadata = json!({"name": name, "namespace": NAMESPACE});
        if let Some(version) = &version {
            metadata["resourceVersion"] = version.as_str().into();
            metadata["uid"] = self.memory.uid(Kind::Lease, script::Seen::Newest).into();
        }
        let spec = json!({"holderIdentity": "conformance", "leaseDurationSeconds": 15});
        let body =
            json!({"apiVersion": Kind::Lease.api_version(), "kind": "Lease", "metadata": metadata, "spec": spec});
        let outcome = match &version {
            None => self.api.create(Kind::Lease, Some(NAMESPACE), &body).await,
            Some(_) => {
                // each renewal has another time
                let mut body = body;
                body["spec"]["renewTime"] = format!("{:.6}", jiff::Timestamp::now()).into();
                self.api.replace(Kind::Lease.in_namespace(NAMESPACE, &name), &body).await
            }
        };
        let Outcome::Applied(text) = &outcome else { return refusal(&outcome) };
        let meta = identity(text).unwrap();
        self.memory.saw(Kind::Lease, &meta.uid, &meta.version);
        let number = |version: &str| version.parse::<u64>().unwrap();
        let has_moved = version.is_none_or(|before| number(&meta.version) > number(&before));
        Line::Note(format!("applied, newer: {has_moved}"))
    }

    async fn watch(&mut self, kind: Kind, from: Beginning) -> Vec<Line> {
        let version = match from {
            Beginning::InitialState => return self.initial_state(kind).await,
            Beginning::Bookmark => self.bookmark.clone(),
            Beginning::Version(seen) => self.memory.version(kind, seen),
            Beginning::Forgotten => "1".to_owned(),
        };
        self.shown_since(kind, &version).await.0
    }

    /// A streamed initial state, up to the bookmark that ends it.
    async fn initial_state(&mut self, kind: Kind) -> Vec<Line> {
        let mut events = pin!(open(&self.api, kind, None).await.unwrap());
        let mut lines = Vec::new();
        loop {
            let event = tokio::time::timeout(PATIENCE, events.next()).await.unwrap().unwrap().unwrap();
            match event {
                WatchEvent::Bookmark(mark) => {
                    let is_end = mark.metadata.annotations.contains_key("k8s.io/initial-events-end");
                    lines.push(Line::Note(
                        if is_end { "bookmark: the initial state is complete" } else { "bookmark" }.into(),
                    ));
                    self.bookmark = mark.metadata.resource_version;
                    if is_end {
                        return lines;
                    }
                }
                other => lines.extend(self.shown(kind, &other)),
            }
        }
    }

    /// What a watch from a resourceVersion tells of the case's object up to now, and the version of now.
    async fn shown_since(&mut self, kind: Kind, version: &str) -> (Vec<Line>, String) {
        let (end, end_version) = self.mark(kind).await;
        let mut lines = Vec::new();
        let events = match open(&self.api, kind, Some(version)).await {
            Ok(events) => events,
            Err(error) => return (vec![Line::Note(format!("{}", error.code().unwrap()))], end_version),
        };
        let mut events = pin!(events);
        loop {
            match tokio::time::timeout(PATIENCE, events.next()).await.unwrap().unwrap().unwrap() {
                WatchEvent::Bookmark(_) => {}
                WatchEvent::Error(status) => {
                    lines.push(Line::Note(status.code.to_string()));
                    return (lines, end_version);
                }
                WatchEvent::Added(object) | WatchEvent::Modified(object) if object["metadata"]["name"] == *end => {
                    return (lines, end_version);
                }
                other => lines.extend(self.shown(kind, &other)),
            }
        }
    }

    fn shown(&self, kind: Kind, event: &WatchEvent<Value>) -> Option<Line> {
        let (object, is_gone) = match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => (object, false),
            WatchEvent::Deleted(object) => (object, true),
            other => panic!("{other:?}"),
        };
        let sight = match kind {
            Kind::NodePool => read::<NodePool>(object),
            Kind::NodeClaim => read::<NodeClaim>(object),
            Kind::Node => read::<Node>(object),
            _ => read::<Placeholder>(object),
        };
        (object["metadata"]["name"] == *self.memory.name_of(kind)).then_some(Line::Shown(kind, is_gone, sight))
    }

    /// Creates an object whose event tells that a watch has delivered everything before it; its name and version.
    async fn mark(&mut self, kind: Kind) -> (String, String) {
        self.marks += 1;
        let name = format!("mark-{}", self.marks);
        let body = if kind == Kind::Pod {
            json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {keys::SURGE_FOR: name}},
                "spec": {"containers": [{"name": "pause", "image": "pause"}]},
            })
        } else {
            script::object(kind, &name)
        };
        let answer = self.send("POST", &collection(kind), "application/json", &body).await;
        (name, answer["metadata"]["resourceVersion"].as_str().unwrap().to_owned())
    }
}

/// An annotation that nobody here looks at.
fn annotated(value: &str) -> Value {
    json!({"metadata": {"annotations": {"example.com/touched": value}}})
}

fn collection(kind: Kind) -> String {
    kind.collection(matches!(kind, Kind::Pod | Kind::Lease).then_some(NAMESPACE))
}

/// A watch as the controller opens it.
async fn open(
    api: &Api,
    kind: Kind,
    version: Option<&str>,
) -> Result<
    impl futures::Stream<Item = Result<WatchEvent<Value>, kube::Error>> + use<>,
    noderotation_cluster::error::Error,
> {
    let (namespace, selectors) = match kind {
        Kind::Pod => (Some(NAMESPACE), Selectors::labelled(keys::SURGE_FOR)),
        _ => (None, Selectors::default()),
    };
    api.watch::<Value>(kind, namespace, &selectors, version).await
}

fn read<K: Cached + Debug>(object: &Value) -> Sight {
    Sight::of(&K::read(&object.to_string()).unwrap())
}

fn refusal(outcome: &Outcome) -> Line {
    Line::Answer(outcome.label().into(), None)
}
