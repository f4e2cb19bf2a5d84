//! The placeholder Pod (§9.1): what reserves the replacement's capacity.

use std::collections::{BTreeMap, BTreeSet};

use jiff::SignedDuration;
use noderotation_shared::keys;
use noderotation_shared::policy::Surge;
use noderotation_shared::quantity::Resources;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::size::NodeLoad;
use crate::world::Settings;
use noderotation_shared::objects::{NodePool, Requirement};

/// Hostnames of due nodes that the soft exclusion names at most.
const EXCLUDED_HOSTS: usize = 50;

/// The Pod's name and the value of its `surge-for` label: at most 63 characters, the same for the same claim.
pub fn name(claim: &str) -> String {
    let head: String = claim.chars().take(40).map(|c| if c == '.' { '-' } else { c }).collect();
    let digest = Sha256::digest(claim.as_bytes());
    let hex: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("surge-{}-{hex}", head.trim_end_matches('-'))
}

/// When an Event `Nominated` about a placeholder was written, and the NodeClaim that it names: Karpenter's
/// `Pod should schedule on: nodeclaim/NAME, node/NAME`. A hint, since others can write such an Event as well. `None` where it
/// names nothing that could be a NodeClaim.
pub fn nominated_by(event: &Value) -> Option<(String, String)> {
    let text = event.get("message")?.as_str()?;
    let name =
        text.split("nodeclaim/").nth(1)?.split([',', ' ', '\n']).next().filter(|name| keys::is_object_name(name))?;
    // Events of the group events.k8s.io have no lastTimestamp
    let instants = ["/lastTimestamp", "/eventTime", "/metadata/creationTimestamp"];
    let at = instants.into_iter().find_map(|instant| event.pointer(instant)?.as_str())?;
    Some((at.to_owned(), name.to_owned()))
}

/// What a placeholder is made from.
pub struct Plan<'a> {
    /// The candidate's name.
    pub claim: &'a str,
    /// Its pool.
    pub pool: &'a NodePool,
    /// The policy's surge settings.
    pub surge: &'a Surge,
    /// What runs on the candidate's node.
    pub load: &'a NodeLoad,
    /// The size, clamped.
    pub requests: &'a Resources,
    /// Hostname labels of the candidate's and of due nodes.
    pub avoid: &'a [String],
    /// `t_rot`.
    pub bound: SignedDuration,
    /// Namespace, class, image.
    pub settings: &'a Settings,
}

/// Two volumes, or a volume and the node, are bound to different zones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneConflict(pub String);

/// The zones in which the replacement may be: the candidate's where the policy requires it, narrowed by bound volumes.
/// `None` where nothing holds it.
pub fn zones(surge: &Surge, load: &NodeLoad, pool: &NodePool) -> Result<Option<BTreeSet<String>>, ZoneConflict> {
    let own: Option<BTreeSet<String>> = surge
        .required
        .iter()
        .any(|key| key == keys::ZONE)
        .then(|| values_of(keys::ZONE, load, pool))
        .flatten()
        .map(|values| values.into_iter().collect());
    let mut allowed = own.map(|zones| (zones, "the node".to_owned()));
    for (volume, zones) in &load.volume_zones {
        let zones: BTreeSet<String> = zones.iter().cloned().collect();
        allowed = Some(match allowed {
            None => (zones, format!("volume {volume}")),
            Some((so_far, by)) => {
                let both: BTreeSet<String> = so_far.intersection(&zones).cloned().collect();
                if both.is_empty() {
                    let list = |zones: &BTreeSet<String>| zones.iter().cloned().collect::<Vec<_>>().join(", ");
                    return Err(ZoneConflict(format!(
                        "volume {volume} is bound to zone {} while {by} demands {}: no one node can hold both",
                        list(&zones),
                        list(&so_far)
                    )));
                }
                (both, by)
            }
        });
    }
    Ok(allowed.map(|(zones, _)| zones))
}

/// The candidate's values of a key: the Node's label first, else the claim's `In` requirement; narrowed to what the
/// pool allows. `None` when there is none, or the pool no longer offers any of them.
fn values_of(key: &str, load: &NodeLoad, pool: &NodePool) -> Option<Vec<String>> {
    let values =
        load.labels.get(key).map(|value| vec![value.clone()]).or_else(|| load.requirements.get(key).cloned())?;
    let allowed: Vec<String> = values
        .into_iter()
        .filter(|value| pool.requirements.iter().filter(|r| r.key == key).all(|r| allows(r, value)))
        .collect();
    (!allowed.is_empty()).then_some(allowed)
}

/// Whether a requirement lets a value through; one that cannot be read does not.
fn allows(requirement: &Requirement, value: &str) -> bool {
    let number = |text: &str| text.parse::<i64>().ok();
    let compare =
        |holds: fn(i64, i64) -> bool| match (number(value), requirement.values.first().and_then(|v| number(v))) {
            (Some(value), Some(bound)) => holds(value, bound),
            _ => false,
        };
    match requirement.operator.as_str() {
        "In" => requirement.values.iter().any(|v| v == value),
        "NotIn" => !requirement.values.iter().any(|v| v == value),
        "Exists" => true,
        "Gt" => compare(|a, b| a > b),
        "Lt" => compare(|a, b| a < b),
        "Gte" => compare(|a, b| a >= b),
        "Lte" => compare(|a, b| a <= b),
        _ => false,
    }
}

/// The Pod, ready to be created.
pub fn pod(plan: &Plan<'_>) -> Result<Value, ZoneConflict> {
    let name = name(plan.claim);
    let zones = zones(plan.surge, plan.load, plan.pool)?;
    // what decides comes last, over anything of the same name
    let mut labels = plan.settings.labels.clone();
    labels.insert(keys::SURGE_FOR.to_owned(), name.clone());
    if plan.pool.meta.name.len() <= 63 {
        labels.insert(keys::KARPENTER_NODEPOOL.to_owned(), plan.pool.meta.name.to_string());
    }
    let mut annotations = plan.settings.annotations.clone();
    annotations.insert(keys::SURGE_FOR.to_owned(), plan.claim.to_owned());
    annotations.insert(keys::DO_NOT_DISRUPT.to_owned(), "true".to_owned());
    let pull_secrets: Vec<Value> = plan.settings.pull_secrets.iter().map(|name| json!({"name": name})).collect();
    let requests: BTreeMap<&str, String> =
        plan.requests.0.iter().filter(|(_, q)| q.is_positive()).map(|(n, q)| (n.as_str(), q.to_string())).collect();
    // extended resources must be limited to the same amount; cpu and memory need no limit
    let limits: BTreeMap<&str, &String> =
        requests.iter().filter(|(n, _)| n.contains('/') || n.starts_with("hugepages-")).map(|(n, q)| (*n, q)).collect();
    Ok(json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": plan.settings.namespace,
            "labels": labels,
            "annotations": annotations,
        },
        "spec": {
            "activeDeadlineSeconds": plan.bound.as_secs().clamp(1, i64::from(i32::MAX)),
            "affinity": {"nodeAffinity": affinity(plan, zones)},
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
            "containers": [{
                "name": "pause",
                "image": plan.settings.image,
                "resources": {"requests": requests, "limits": limits},
                "securityContext": {
                    "allowPrivilegeEscalation": false,
                    "capabilities": {"drop": ["ALL"]},
                    "readOnlyRootFilesystem": true,
                },
            }],
            "imagePullSecrets": pull_secrets,
            "preemptionPolicy": "Never",
            "priorityClassName": plan.settings.priority_class,
            "restartPolicy": "Always",
            "securityContext": {"runAsNonRoot": true, "runAsUser": 65535, "runAsGroup": 65535, "seccompProfile": {"type": "RuntimeDefault"}},
            "terminationGracePeriodSeconds": 0,
            "tolerations": tolerations(plan.pool),
        },
    }))
}

fn affinity(plan: &Plan<'_>, zones: Option<BTreeSet<String>>) -> Value {
    let is_in = |key: &str, values: &[String]| json!({"key": key, "operator": "In", "values": values});
    let mut required = vec![is_in(keys::KARPENTER_NODEPOOL, &[plan.pool.meta.name.to_string()])];
    for key in plan.surge.required.iter().filter(|key| *key != keys::ZONE && is_usable(key)) {
        if let Some(values) = values_of(key, plan.load, plan.pool) {
            required.push(is_in(key, &values));
        }
    }
    if let Some(zones) = zones {
        required.push(is_in(keys::ZONE, &zones.into_iter().collect::<Vec<_>>()));
    }
    let mut preferred: Vec<Value> = plan
        .surge
        .preferred
        .iter()
        .filter(|key| is_usable(key))
        .filter_map(|key| Some(json!({"weight": 1, "preference": {"matchExpressions": [is_in(key, &values_of(key, plan.load, plan.pool)?)]}})))
        .collect();
    let avoid: Vec<&String> = plan.avoid.iter().take(EXCLUDED_HOSTS).collect();
    if !avoid.is_empty() {
        // Preferred only: Karpenter provisions for no Pod that requires something of a hostname.
        let expression = json!({"key": keys::HOSTNAME, "operator": "NotIn", "values": avoid});
        preferred.push(json!({"weight": 100, "preference": {"matchExpressions": [expression]}}));
    }
    json!({
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": required}]},
        "preferredDuringSchedulingIgnoredDuringExecution": preferred,
    })
}

/// A hostname can never agree with another node's, and the pool's own label stands there already.
fn is_usable(key: &str) -> bool {
    key != keys::HOSTNAME && key != keys::KARPENTER_NODEPOOL
}

/// Exactly the pool template's taints.
fn tolerations(pool: &NodePool) -> Vec<Value> {
    pool.taints
        .iter()
        .map(|t| json!({"key": t.key, "operator": "Equal", "value": t.value, "effect": t.effect}))
        .collect()
}

#[cfg(test)]
mod tests {
    use noderotation_shared::objects::Taint;

    use super::*;

    // Texts as Karpenter writes them, and as somebody else might.
    #[test]
    fn the_nominated_claim_is_a_name_or_nothing() {
        let event = |message: &str| json!({"message": message, "lastTimestamp": "2026-12-04T18:00:00Z"});
        let named = |message: &str| nominated_by(&event(message)).map(|(_, name)| name);
        assert_eq!(named("Pod should schedule on: nodeclaim/api-x7k2p").as_deref(), Some("api-x7k2p"));
        assert_eq!(
            named("Pod should schedule on: nodeclaim/api-x7k2p, node/ip-10-0-0-1").as_deref(),
            Some("api-x7k2p")
        );
        for nothing in ["", "nodeclaim/", "nodeclaim/../../api/v1", "nodeclaim/A", "node/ip-10-0-0-1"] {
            assert_eq!(named(nothing), None, "{nothing}");
        }
        let message = "nodeclaim/a";
        let at = |event: Value| nominated_by(&event).map(|(at, _)| at);
        let (micro, created) = ("2026-12-04T18:00:00.000001Z", json!({"creationTimestamp": "2026-12-04T18:00:01Z"}));
        let newer = json!({"message": message, "lastTimestamp": null, "eventTime": micro, "metadata": created});
        assert_eq!(at(newer).as_deref(), Some(micro));
        let bare = json!({"message": message, "lastTimestamp": null, "eventTime": null, "metadata": created});
        assert_eq!(at(bare).as_deref(), Some("2026-12-04T18:00:01Z"));
    }

    #[test]
    fn names_are_label_values_and_differ() {
        let long = "a.very.long.nodeclaim.name.that.goes.on.and.on.without.an.end-x7k2p";
        for claim in ["api-x7k2p", long, "a", &"n".repeat(253), "abcdefghijklmnopqrstuvwxyzabcdefghijklm.-z"] {
            let name = name(claim);
            assert!(name.len() <= 63 && noderotation_shared::policy::is_label_value(&name), "{name}");
            assert!(!name.contains('.') && !name.contains("--"), "{name}");
        }
        // the digest was computed with sha256sum
        assert_eq!(name("api-x7k2p"), format!("surge-api-x7k2p-{}", "60653f841c2aa725"));
    }

    #[test]
    fn requirements_narrow() {
        let r = |operator: &str, values: &[&str]| Requirement {
            key: "k".into(),
            operator: operator.into(),
            values: values.iter().map(|v| (*v).to_owned()).collect(),
        };
        for (requirement, value, allowed) in [
            (r("In", &["a", "b"]), "a", true),
            (r("In", &["a", "b"]), "c", false),
            (r("NotIn", &["a"]), "a", false),
            (r("NotIn", &["a"]), "b", true),
            (r("Exists", &[]), "x", true),
            (r("DoesNotExist", &[]), "x", false),
            (r("Gt", &["4"]), "5", true),
            (r("Gt", &["4"]), "4", false),
            (r("Gte", &["4"]), "4", true),
            (r("Lt", &["4"]), "3", true),
            (r("Lt", &["4"]), "4", false),
            (r("Lte", &["4"]), "4", true),
            (r("Lte", &["4"]), "5", false),
            (r("Gte", &["4"]), "3", false),
            (r("Gt", &["four"]), "5", false),
            (r("Fits", &["4"]), "4", false),
        ] {
            assert_eq!(allows(&requirement, value), allowed, "{requirement:?} {value}");
        }
    }

    fn surge(required: &[&str]) -> Surge {
        let spec = serde_json::json!({
            "nodePoolSelector": {},
            "maintenanceWindows": [{"timezone": "UTC", "days": ["Mon"], "start": "01:00", "end": "02:00"}],
            "surge": {"matchNodeRequirements": {"required": required}},
        });
        noderotation_shared::policy::Policy::from_json(&spec).unwrap().surge
    }

    #[test]
    fn what_the_flags_add_never_takes_the_place_of_what_decides() {
        let text = |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let settings = Settings {
            pull_secrets: vec!["pull".into()],
            labels: text(&[("team", "a"), (keys::SURGE_FOR, "x")]),
            annotations: text(&[("mesh", "off"), (keys::DO_NOT_DISRUPT, "false")]),
            ..Settings::default()
        };
        let pod = pod(&Plan {
            claim: "c",
            pool: &NodePool::default(),
            surge: &surge(&[]),
            load: &NodeLoad::default(),
            requests: &Resources::default(),
            avoid: &[],
            bound: SignedDuration::from_hours(1),
            settings: &settings,
        })
        .unwrap();
        let (labels, annotations) = (&pod["metadata"]["labels"], &pod["metadata"]["annotations"]);
        assert_eq!((&labels["team"], &labels[keys::SURGE_FOR]), (&json!("a"), &json!(name("c"))));
        assert_eq!(annotations, &json!({"mesh": "off", keys::SURGE_FOR: "c", keys::DO_NOT_DISRUPT: "true"}));
        assert_eq!(pod["spec"]["imagePullSecrets"], json!([{"name": "pull"}]));
    }

    /// Every field of §9.1 and §9.2, written by hand: what Karpenter and the scheduler read decides where the new node is.
    #[test]
    #[expect(clippy::too_many_lines, reason = "one Pod, all its fields")]
    fn the_pod_is_what_the_specification_says() {
        let label = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let load = NodeLoad {
            labels: BTreeMap::from([
                label(keys::ZONE, "a"),
                label(keys::HOSTNAME, "old"),
                label(keys::KARPENTER_NODEPOOL, "api"),
                label("size", "2"),
                label("disk", "ssd"),
            ]),
            requirements: BTreeMap::from([("family".to_owned(), vec!["c7".to_owned(), "m7".to_owned()])]),
            ..NodeLoad::default()
        };
        let requirement = |key: &str, values: &[&str]| Requirement {
            key: key.into(),
            operator: "In".into(),
            values: values.iter().map(|v| (*v).to_owned()).collect(),
        };
        let mut pool = NodePool {
            // of another key: it narrows nothing but its own
            requirements: vec![requirement("family", &["m7", "r7"]), requirement("disk", &["hdd"])],
            taints: vec![Taint { key: "team".into(), value: "a".into(), effect: "NoSchedule".into() }],
            ..NodePool::default()
        };
        pool.meta.name = "api".into();
        let spec = json!({
            "nodePoolSelector": {},
            "maintenanceWindows": [{"timezone": "UTC", "days": ["Mon"], "start": "01:00", "end": "02:00"}],
            "surge": {"matchNodeRequirements": {
                // a hostname and the pool's label are never copied; the pool no longer offers `ssd`; `absent` is on no node
                "required": [keys::ZONE, keys::HOSTNAME, keys::KARPENTER_NODEPOOL, "family", "disk", "absent"],
                "preferred": ["size", keys::HOSTNAME, "absent"],
            }},
        });
        let surge = noderotation_shared::policy::Policy::from_json(&spec).unwrap().surge;
        let amount =
            |name: &str, text: &str| (name.to_owned(), noderotation_shared::quantity::Quantity::parse(text).unwrap());
        let requests: Resources = [
            amount("cpu", "1500m"),
            amount("memory", "2Gi"),
            amount("example.com/gpu", "1"),
            amount("hugepages-2Mi", "4Mi"),
            amount("ephemeral-storage", "0"),
        ]
        .into_iter()
        .collect();
        let avoid: Vec<String> = (0..EXCLUDED_HOSTS + 5).map(|n| format!("host-{n}")).collect();
        let settings = Settings {
            namespace: "ns".into(),
            priority_class: "low".into(),
            image: "pause:1".into(),
            ..Settings::default()
        };
        let plan = |pool: &NodePool, avoid: &[String], bound: SignedDuration| {
            let plan = Plan {
                claim: "c",
                pool,
                surge: &surge,
                load: &load,
                requests: &requests,
                avoid,
                bound,
                settings: &settings,
            };
            pod(&plan).unwrap()
        };
        let made = plan(&pool, &avoid, SignedDuration::from_secs(4_500));
        let name = "surge-c-2e7d2c03a9507ae2";
        let is_in = |key: &str, values: &[&str]| json!({"key": key, "operator": "In", "values": values});
        let (required, preferred) = (
            json!([
                is_in("karpenter.sh/nodepool", &["api"]),
                is_in("family", &["m7"]),
                is_in("topology.kubernetes.io/zone", &["a"])
            ]),
            json!([
                {"weight": 1, "preference": {"matchExpressions": [is_in("size", &["2"])]}},
                {"weight": 100, "preference": {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "NotIn", "values": avoid[..EXCLUDED_HOSTS]}]}},
            ]),
        );
        let expected = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": name, "namespace": "ns",
                "labels": {"noderotation.io/surge-for": name, "karpenter.sh/nodepool": "api"},
                "annotations": {"noderotation.io/surge-for": "c", "karpenter.sh/do-not-disrupt": "true"},
            },
            "spec": {
                "activeDeadlineSeconds": 4_500,
                "affinity": {"nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": required}]},
                    "preferredDuringSchedulingIgnoredDuringExecution": preferred,
                }},
                "automountServiceAccountToken": false, "enableServiceLinks": false,
                "containers": [{
                    "name": "pause", "image": "pause:1",
                    "resources": {
                        "requests": {"cpu": "1500m", "memory": "2Gi", "example.com/gpu": "1", "hugepages-2Mi": "4Mi"},
                        "limits": {"example.com/gpu": "1", "hugepages-2Mi": "4Mi"},
                    },
                    "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": true},
                }],
                "imagePullSecrets": [], "preemptionPolicy": "Never", "priorityClassName": "low", "restartPolicy": "Always",
                "securityContext": {"runAsNonRoot": true, "runAsUser": 65535, "runAsGroup": 65535, "seccompProfile": {"type": "RuntimeDefault"}},
                "terminationGracePeriodSeconds": 0,
                "tolerations": [{"key": "team", "operator": "Equal", "value": "a", "effect": "NoSchedule"}],
            },
        });
        assert_eq!(made, expected);

        // a Pod needs a second at least, and 2³¹−1 at most; a label has 63 characters at most
        for (bound, seconds) in [(0, 1), (i64::from(i32::MAX) + 1, i64::from(i32::MAX))] {
            let made = plan(&pool, &[], SignedDuration::from_secs(bound));
            assert_eq!(made["spec"]["activeDeadlineSeconds"], seconds);
            let preferred =
                &made["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"];
            assert_eq!(preferred.as_array().map(Vec::len), Some(1), "nothing to avoid");
        }
        for (length, is_label) in [(63, true), (64, false)] {
            pool.meta.name = "p".repeat(length).into();
            let made = plan(&pool, &[], SignedDuration::from_secs(60));
            assert_eq!(made["metadata"]["labels"].get(keys::KARPENTER_NODEPOOL).is_some(), is_label);
        }
    }

    #[test]
    fn volumes_hold_the_zone() {
        let zone = |zone: &str| BTreeMap::from([(keys::ZONE.to_owned(), zone.to_owned())]);
        let volume = |name: &str, zones: &[&str]| (name.to_owned(), zones.iter().map(|z| (*z).to_owned()).collect());
        let mut load =
            NodeLoad { labels: zone("a"), volume_zones: vec![volume("v1", &["a", "b"])], ..NodeLoad::default() };
        let pool = NodePool::default();
        let set = |zones: &[&str]| Some(zones.iter().map(|z| (*z).to_owned()).collect::<BTreeSet<_>>());
        assert_eq!(zones(&surge(&[keys::ZONE]), &load, &pool), Ok(set(&["a"])));
        assert_eq!(zones(&surge(&[]), &load, &pool), Ok(set(&["a", "b"])));
        load.volume_zones.push(volume("v2", &["c"]));
        assert!(zones(&surge(&[keys::ZONE]), &load, &pool).unwrap_err().0.contains("volume v2 is bound to zone c"));
        assert!(zones(&surge(&[]), &load, &pool).unwrap_err().0.contains("volume v1 demands a, b"));
    }
}
