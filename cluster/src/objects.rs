//! From the API server's JSON to the slim values of `noderotation_shared::objects`: only what is read is kept.
//!
//! Lenient: a field of an unexpected shape is as good as absent, and an object that cannot be read at all is reported
//! by name and never stops a watch.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use noderotation_shared::kind::Kind;
use noderotation_shared::objects::{
    Annotations, Lifetimes, Meta, Node, NodeClaim, NodePool, Placeholder, PolicyObject, Requirement, Taint,
};
use noderotation_shared::quantity::Resources;
use noderotation_shared::store::Stored;
use noderotation_shared::{duration, keys};
use serde::Deserialize;
use serde_json::Value;

/// An object that a program keeps a slim copy of, and how that copy is parsed.
pub trait Cached: Stored + Send + Sync + 'static {
    /// Its kind, by which it is listed, watched and counted.
    const KIND: Kind;

    /// Parses one object from the API server's JSON.
    fn read(json: &str) -> Result<Self, serde_json::Error>;
}

/// The metadata that is kept. Everything else is skipped while parsing.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawMeta {
    name: String,
    uid: String,
    resource_version: String,
    creation_timestamp: Option<Timestamp>,
    deletion_timestamp: Option<Timestamp>,
    generation: Option<i64>,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
}

impl RawMeta {
    fn slim(&self) -> Meta {
        Meta {
            name: self.name.as_str().into(),
            uid: self.uid.as_str().into(),
            version: self.resource_version.as_str().into(),
            created: self.creation_timestamp.unwrap_or(Timestamp::UNIX_EPOCH),
            deleted: self.deletion_timestamp,
            annotations: Annotations::of(self.annotations.iter().map(|(k, v)| (k.as_str(), v.as_str()))),
        }
    }

    fn label(&self, key: &str) -> Box<str> {
        self.labels.get(key).map(|v| v.as_str().into()).unwrap_or_default()
    }
}

/// The metadata of an object of any kind.
pub fn identity(json: &str) -> Result<Meta, serde_json::Error> {
    #[derive(Deserialize)]
    struct Raw {
        metadata: RawMeta,
    }
    serde_json::from_str(json).map(|raw: Raw| raw.metadata.slim())
}

/// The name of an object that its own reader could not parse, for the log.
pub fn name_of(json: &str) -> String {
    #[derive(Deserialize)]
    struct Named {
        #[serde(default)]
        metadata: Value,
    }
    let named: Option<Named> = serde_json::from_str(json).ok();
    named
        .and_then(|n| Some(n.metadata.get("name")?.as_str()?.to_owned()))
        .unwrap_or_else(|| "an object without a name".into())
}

#[derive(Deserialize)]
struct RawCondition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    message: String,
}

fn is_true(conditions: &[RawCondition], kind: &str) -> bool {
    conditions.iter().any(|c| c.kind == kind && c.status == "True")
}

/// `expireAfter`: a Go duration, or `Never`. A value that cannot be read counts as `Never`, which rotates nothing.
fn lifetime(text: Option<&str>) -> Option<SignedDuration> {
    text.filter(|t| *t != "Never").and_then(duration::parse)
}

impl Cached for Node {
    const KIND: Kind = Kind::Node;

    fn read(json: &str) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        struct Raw {
            metadata: RawMeta,
            #[serde(default)]
            spec: Spec,
            #[serde(default)]
            status: Status,
        }
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Spec {
            unschedulable: bool,
            taints: Vec<RawTaint>,
        }
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Status {
            conditions: Vec<RawCondition>,
        }
        let raw: Raw = serde_json::from_str(json)?;
        // what the condition Ready, spec.unschedulable and Karpenter tell otherwise, and sooner
        let told = [keys::KARPENTER_DISRUPTED, keys::UNSCHEDULABLE, keys::NOT_READY, keys::UNREACHABLE];
        let keeps_away = |t: &RawTaint| matches!(&*t.effect, "NoSchedule" | "NoExecute") && !told.contains(&&*t.key);
        Ok(Self {
            taints: raw.spec.taints.iter().filter(|t| keeps_away(t)).map(RawTaint::taint).collect(),
            pool: raw.metadata.label(keys::KARPENTER_NODEPOOL),
            hostname: raw.metadata.label(keys::HOSTNAME),
            ready: is_true(&raw.status.conditions, "Ready"),
            initialized: &*raw.metadata.label(keys::KARPENTER_INITIALIZED) == "true",
            unschedulable: raw.spec.unschedulable,
            disrupted: raw.spec.taints.iter().any(|t| t.key == keys::KARPENTER_DISRUPTED),
            meta: raw.metadata.slim(),
        })
    }
}

#[derive(Deserialize)]
struct RawTaint {
    key: String,
    #[serde(default)]
    value: String,
    #[serde(default)]
    effect: String,
}

impl RawTaint {
    fn taint(&self) -> Taint {
        Taint { key: self.key.clone(), value: self.value.clone(), effect: self.effect.clone() }
    }
}

#[derive(Deserialize)]
struct RawRequirement {
    key: String,
    #[serde(default)]
    operator: String,
    #[serde(default)]
    values: Vec<String>,
}

impl Cached for NodeClaim {
    const KIND: Kind = Kind::NodeClaim;

    fn read(json: &str) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        struct Raw {
            metadata: RawMeta,
            #[serde(default)]
            spec: Spec,
            #[serde(default)]
            status: Status,
        }
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        struct Spec {
            expire_after: Option<String>,
            termination_grace_period: Option<String>,
        }
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        struct Status {
            node_name: String,
            capacity: BTreeMap<String, Value>,
            conditions: Vec<RawCondition>,
        }
        let raw: Raw = serde_json::from_str(json)?;
        Ok(Self {
            pool: raw.metadata.label(keys::KARPENTER_NODEPOOL),
            expire_after: lifetime(raw.spec.expire_after.as_deref()),
            termination_grace_period: raw.spec.termination_grace_period.as_deref().and_then(duration::parse),
            node: raw.status.node_name.into(),
            ready: is_true(&raw.status.conditions, "Ready"),
            disrupting: is_true(&raw.status.conditions, "DisruptionReason"),
            capacity: Arc::new(Resources::from_json(&raw.status.capacity)),
            meta: raw.metadata.slim(),
        })
    }
}

impl Cached for NodePool {
    const KIND: Kind = Kind::NodePool;

    fn read(json: &str) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        struct Raw {
            metadata: RawMeta,
            #[serde(default)]
            spec: Spec,
        }
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Spec {
            replicas: Option<Value>,
            limits: BTreeMap<String, Value>,
            template: Template,
        }
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Template {
            metadata: TemplateMeta,
            spec: TemplateSpec,
        }
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct NodeClassRef {
            group: Option<String>,
        }
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct TemplateMeta {
            labels: BTreeMap<String, String>,
        }
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        struct TemplateSpec {
            expire_after: Option<String>,
            termination_grace_period: Option<String>,
            node_class_ref: NodeClassRef,
            taints: Vec<RawTaint>,
            requirements: Vec<RawRequirement>,
        }
        let raw: Raw = serde_json::from_str(json)?;
        let defaults = Lifetimes::defaults(raw.spec.template.spec.node_class_ref.group.as_deref());
        let Template { metadata: TemplateMeta { labels: template_labels }, spec: template } = raw.spec.template;
        Ok(Self {
            template_labels,
            meta: raw.metadata.slim(),
            labels: raw.metadata.labels,
            is_static: raw.spec.replicas.is_some(),
            limits: Resources::from_json(&raw.spec.limits),
            expire_after: match template.expire_after.as_deref() {
                None => Some(defaults.expire_after),
                text => lifetime(text),
            },
            termination_grace_period: match template.termination_grace_period.as_deref() {
                None => defaults.termination_grace_period,
                Some(text) => duration::parse(text),
            },
            is_auto_mode: defaults.is_auto_mode,
            taints: template.taints.iter().map(RawTaint::taint).collect(),
            requirements: template
                .requirements
                .into_iter()
                .map(|r| Requirement { key: r.key, operator: r.operator, values: r.values })
                .collect(),
        })
    }
}

impl Cached for Placeholder {
    const KIND: Kind = Kind::Pod;

    fn read(json: &str) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        struct Raw {
            metadata: RawMeta,
            #[serde(default)]
            spec: Spec,
            #[serde(default)]
            status: Status,
        }
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        struct Spec {
            node_name: String,
        }
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Status {
            phase: String,
            conditions: Vec<RawCondition>,
        }
        let raw: Raw = serde_json::from_str(json)?;
        let unschedulable =
            |c: &&RawCondition| c.kind == "PodScheduled" && c.status == "False" && c.reason == "Unschedulable";
        Ok(Self {
            meta: raw.metadata.slim(),
            pool: raw.metadata.label(keys::KARPENTER_NODEPOOL),
            node: raw.spec.node_name.into(),
            phase: raw.status.phase.into(),
            unschedulable: raw.status.conditions.iter().find(unschedulable).map(|c| c.message.as_str().into()),
        })
    }
}

impl Cached for PolicyObject {
    const KIND: Kind = Kind::RotationPolicy;

    fn read(json: &str) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        struct Raw {
            metadata: RawMeta,
            #[serde(default)]
            spec: Value,
            #[serde(default)]
            status: Value,
        }
        let raw: Raw = serde_json::from_str(json)?;
        Ok(Self::new(raw.metadata.slim(), raw.metadata.generation, &raw.spec, raw.status))
    }
}

#[cfg(test)]
mod tests {
    use noderotation_shared::quantity::Quantity;

    use super::*;

    #[test]
    fn a_claim_keeps_what_is_read() {
        let claim = NodeClaim::read(
            r#"{"metadata":{"name":"api-1","uid":"u","resourceVersion":"7","creationTimestamp":"2026-11-01T00:00:00Z",
                "labels":{"karpenter.sh/nodepool":"api"},"annotations":{"noderotation.io/state":"pending","other":"x"}},
                "spec":{"expireAfter":"336h","terminationGracePeriod":"1h"},
                "status":{"nodeName":"n1","capacity":{"cpu":"4","pods":110},"conditions":[{"type":"Ready","status":"True"}]}}"#,
        )
        .unwrap();
        assert_eq!((&*claim.pool, &*claim.node, claim.ready), ("api", "n1", true));
        assert_eq!(claim.expire_after, Some(SignedDuration::from_hours(336)));
        assert_eq!(claim.capacity.get("pods"), Quantity::whole(110));
        assert_eq!(claim.meta.annotations.get(keys::STATE), Some("pending"));
        assert!(!claim.meta.annotations.has("other"));
    }

    #[test]
    fn a_node_keeps_what_is_read() {
        let node = |spec: &str, status: &str| {
            let labels = r#""labels":{"karpenter.sh/nodepool":"api","kubernetes.io/hostname":"h","karpenter.sh/initialized":"true"}"#;
            Node::read(&format!(r#"{{"metadata":{{"name":"n1","uid":"u",{labels}}},"spec":{spec},"status":{status}}}"#))
                .unwrap()
        };
        let ready = r#"{"conditions":[{"type":"DiskPressure","status":"True"},{"type":"Ready","status":"True"}]}"#;
        let plain = node("{}", ready);
        assert_eq!((&*plain.pool, &*plain.hostname, plain.initialized, plain.ready), ("api", "h", true, true));
        assert!(!plain.unschedulable && !plain.disrupted && plain.taints.is_empty());
        assert!(!node("{}", r#"{"conditions":[{"type":"Ready","status":"Unknown"}]}"#).ready);
        let taint = |key: &str| format!(r#"{{"taints":[{{"key":"{key}","effect":"NoSchedule"}}]}}"#);
        assert!(node(&taint("karpenter.sh/disrupted"), ready).disrupted);
        assert!(!node(&taint("spot-itn"), ready).disrupted);
        let taints = [
            ("node.kubernetes.io/unschedulable", "NoSchedule"),
            ("node.kubernetes.io/not-ready", "NoSchedule"),
            ("node.kubernetes.io/unreachable", "NoExecute"),
            ("karpenter.sh/disrupted", "NoSchedule"),
            ("spot-itn", "NoSchedule"),
            ("rather-not", "PreferNoSchedule"),
            ("out-of-service", "NoExecute"),
        ]
        .map(|(key, effect)| format!(r#"{{"key":"{key}","value":"v","effect":"{effect}"}}"#))
        .join(",");
        let tainted = node(&format!(r#"{{"unschedulable":true,"taints":[{taints}]}}"#), ready);
        assert!(tainted.unschedulable && tainted.disrupted);
        let kept: Vec<String> = tainted.taints.iter().map(ToString::to_string).collect();
        assert_eq!(
            kept,
            ["spot-itn=v:NoSchedule", "out-of-service=v:NoExecute"],
            "the others are told otherwise, or keep nobody away"
        );
    }

    #[test]
    fn a_pool_keeps_what_is_read() {
        let pool = NodePool::read(
            r#"{"metadata":{"name":"api","uid":"u","labels":{"w":"api"},"annotations":{"noderotation.io/freeze":"x"}},
                "spec":{"limits":{"cpu":"8","nodes":3},"template":{"metadata":{"labels":{"t":"x"}},"spec":{
                    "expireAfter":"336h","terminationGracePeriod":"1h","taints":[{"key":"team","effect":"NoSchedule"}],
                    "startupTaints":[{"key":"cni","effect":"NoSchedule"}],
                    "requirements":[{"key":"kubernetes.io/arch","operator":"In","values":["arm64"]}]}}}}"#,
        )
        .unwrap();
        assert_eq!((pool.labels["w"].as_str(), pool.template_labels["t"].as_str()), ("api", "x"));
        assert_eq!((pool.limits.get("cpu"), pool.limits.get("nodes")), (Quantity::whole(8), Quantity::whole(3)));
        assert_eq!(pool.expire_after, Some(SignedDuration::from_hours(336)));
        assert_eq!(pool.termination_grace_period, Some(SignedDuration::from_hours(1)));
        assert_eq!(pool.taints.iter().map(ToString::to_string).collect::<Vec<_>>(), ["team:NoSchedule"]);
        let Some(Requirement { key, operator, values }) = pool.requirements.first() else { panic!("no requirement") };
        assert_eq!(
            (key.as_str(), operator.as_str(), values.as_slice()),
            ("kubernetes.io/arch", "In", &["arm64".to_owned()][..])
        );
        assert!(!pool.is_static && pool.meta.annotations.has(keys::FREEZE));
        let fixed = NodePool::read(r#"{"metadata":{"name":"f"},"spec":{"replicas":0}}"#).unwrap();
        assert!(fixed.is_static && fixed.limits.0.is_empty());
        assert_eq!(fixed.expire_after, Some(SignedDuration::from_hours(720)), "Karpenter's own default");
        assert!(fixed.termination_grace_period.is_none() && !fixed.is_auto_mode);
        let auto = r#"{"metadata":{"name":"n"},"spec":{"template":{"spec":{"nodeClassRef":{"group":"eks.amazonaws.com","kind":"NodeClass","name":"default"}}}}}"#;
        let auto = NodePool::read(auto).unwrap();
        assert_eq!(auto.expire_after, Some(SignedDuration::from_hours(336)));
        assert_eq!((auto.termination_grace_period, auto.is_auto_mode), (Some(SignedDuration::from_hours(24)), true));
        let never = r#"{"metadata":{"name":"n"},"spec":{"template":{"spec":{"expireAfter":"Never"}}}}"#;
        assert_eq!(NodePool::read(never).unwrap().expire_after, None);
    }

    #[test]
    fn a_placeholder_keeps_what_is_read() {
        let placeholder = |status: &str| {
            Placeholder::read(&format!(
                r#"{{"metadata":{{"name":"surge-x","uid":"u","labels":{{"karpenter.sh/nodepool":"api"}},"annotations":{{"noderotation.io/surge-for":"x"}}}},
                    "spec":{{"nodeName":"n1"}},"status":{status}}}"#
            ))
            .unwrap()
        };
        let running = placeholder(r#"{"phase":"Running"}"#);
        assert_eq!((&*running.pool, &*running.node, &*running.phase, running.claim()), ("api", "n1", "Running", "x"));
        assert_eq!(running.unschedulable, None);
        let condition = |status: &str, reason: &str| {
            format!(
                r#"{{"conditions":[{{"type":"PodScheduled","status":"{status}","reason":"{reason}","message":"no node fits"}}]}}"#
            )
        };
        assert_eq!(placeholder(&condition("False", "Unschedulable")).unschedulable.as_deref(), Some("no node fits"));
        assert_eq!(placeholder(&condition("True", "Unschedulable")).unschedulable, None);
    }

    #[test]
    fn a_malformed_policy_is_kept_with_its_problems() {
        let policy = PolicyObject::read(
            r#"{"metadata":{"name":"p"},"spec":{"nodePoolSelector":{},"maintenanceWindows":"Mon"}}"#,
        );
        assert!(policy.unwrap().parsed.verdict.is_err());
        let policy = PolicyObject::read(r#"{"metadata":{"name":"p"}}"#).unwrap();
        assert!(policy.parsed.verdict.is_err() && policy.parsed.selector.is_none());
    }

    #[test]
    fn an_object_of_any_kind_has_an_identity() {
        let meta = identity(
            r#"{"kind":"Secret","data":7,"metadata":{"name":"s","namespace":"ns","uid":"u","resourceVersion":"12",
                "creationTimestamp":"2026-11-01T00:00:00Z","deletionTimestamp":"2026-11-02T00:00:00Z",
                "annotations":{"noderotation.io/freeze":"x","other":"y"}}}"#,
        )
        .unwrap();
        assert_eq!((&*meta.name, &*meta.uid, &*meta.version), ("s", "u", "12"));
        let [created, deleted] = ["2026-11-01T00:00:00Z", "2026-11-02T00:00:00Z"].map(|at| at.parse().unwrap());
        assert_eq!((meta.created, meta.deleted), (created, Some(deleted)));
        assert_eq!((meta.annotations.get(keys::FREEZE), meta.annotations.has("other")), (Some("x"), false));
        assert!(identity("{}").is_err(), "no metadata");
    }

    #[test]
    fn what_cannot_be_read_has_a_name() {
        assert_eq!(name_of(r#"{"metadata":{"name":"x","labels":7}}"#), "x");
        assert!(Node::read(r#"{"metadata":{"name":"x","labels":7}}"#).is_err());
    }
}
