//! How large the placeholder must be (§9.2, §9.3), and where its volumes hold it (§9.1).
//!
//! Requests are counted as the scheduler counts them: containers and sidecars together, init containers one after
//! another beside the sidecars started before them, Pod-level requests instead where given, overhead on top.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as RawQuantity;
use noderotation_shared::quantity::{Quantity, Resources};

use crate::drainable::Obstacle;
use crate::event_reason::EventReason;
use crate::pod_role::Role;

/// What runs on a candidate's node, read on demand and dropped with the pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeLoad {
    /// The Node's labels.
    pub labels: BTreeMap<String, String>,
    /// The claim's `In` requirements, for labels that the Node lacks.
    pub requirements: BTreeMap<String, Vec<String>>,
    /// The claim's `status.allocatable`; `None` → no clamp.
    pub allocatable: Option<Resources>,
    /// Requests of the Pods that must move.
    pub moving: Resources,
    /// How many they are.
    pub pods: usize,
    /// Requests of the node's DaemonSet Pods.
    pub daemons: Resources,
    /// The zones that each bound volume of the moving Pods allows, with the volume's name.
    pub volume_zones: Vec<(String, Vec<String>)>,
    /// Why the drain would never end (§9.7); `None` where it would, or where the read was not to judge that.
    pub obstacle: Option<Obstacle>,
}

/// The Pod's requests as the scheduler counts them.
pub fn requests(pod: &Pod) -> Resources {
    let Some(spec) = &pod.spec else { return Resources::default() };
    let mut total = Resources::default();
    for container in &spec.containers {
        total.add(&container_requests(pod, container));
    }
    let mut sidecars = Resources::default();
    let mut starting = Resources::default();
    for init in spec.init_containers.iter().flatten() {
        let own = container_requests(pod, init);
        if init.restart_policy.as_deref() == Some("Always") {
            sidecars.add(&own);
            starting.raise(&sidecars);
        } else {
            let mut beside = sidecars.clone();
            beside.add(&own);
            starting.raise(&beside);
        }
    }
    total.add(&sidecars);
    total.raise(&starting);
    if let Some(pod_level) = spec.resources.as_ref().and_then(|r| r.requests.as_ref()) {
        total.0.extend(read(pod_level).0);
    }
    total.add(&spec.overhead.as_ref().map(read).unwrap_or_default());
    total
}

/// The larger of what the container asks for and what a resize has given it.
fn container_requests(pod: &Pod, container: &Container) -> Resources {
    let mut asked = container.resources.as_ref().and_then(|r| r.requests.as_ref()).map(read).unwrap_or_default();
    let status =
        pod.status.iter().flat_map(|s| s.container_statuses.iter().chain(s.init_container_statuses.iter()).flatten());
    let given = status.filter(|s| s.name == container.name).find_map(|s| s.resources.as_ref()?.requests.as_ref());
    if let Some(given) = given {
        asked.raise(&read(given));
    }
    asked
}

/// Quantities that can be read; the API server admits no others.
pub fn read(raw: &BTreeMap<String, RawQuantity>) -> Resources {
    raw.iter().filter_map(|(name, q)| Some((name.clone(), Quantity::parse(&q.0)?))).collect()
}

impl NodeLoad {
    /// Whether nothing has to move (§9.8): all that runs there comes and goes with the node.
    pub fn is_empty(&self) -> bool {
        self.pods == 0
    }

    /// Counts one Pod of the node. Returns the names of the volume claims that move with it.
    pub fn count(&mut self, pod: &Pod, role: Role) -> Vec<String> {
        match role {
            Role::Moves => {
                self.moving.add(&requests(pod));
                self.pods += 1;
                return volume_claims(pod);
            }
            Role::Daemon => self.daemons.add(&requests(pod)),
            Role::Finished | Role::Static | Role::Placeholder | Role::Pinned => {}
        }
        Vec::new()
    }
}

fn volume_claims(pod: &Pod) -> Vec<String> {
    let ephemeral = |volume: &k8s_openapi::api::core::v1::Volume| {
        let pod_name = pod.metadata.name.as_deref().unwrap_or_default();
        volume.ephemeral.as_ref().map(|_| format!("{pod_name}-{}", volume.name))
    };
    pod.spec
        .iter()
        .flat_map(|spec| spec.volumes.iter().flatten())
        .filter_map(|v| v.persistent_volume_claim.as_ref().map(|c| c.claim_name.clone()).or_else(|| ephemeral(v)))
        .collect()
}

/// The placeholder's requests, and what had to be said about them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Size {
    /// What it requests.
    pub requests: Resources,
    /// Reasons and messages: `SurgeClamped`, `SurgeClampBandExceeded`, `SurgeClampRefused`.
    pub clamps: Vec<(EventReason, String)>,
}

/// More than this share of a resource cut off is more than rounding and reserved amounts explain.
const BAND_PERCENT: i64 = 10;

/// Sizes the placeholder (§9.2); `whole_node` raises it to the limit (§9.3).
pub fn size(load: &NodeLoad, whole_node: bool) -> Size {
    let mut requests = load.moving.clone();
    let mut clamps = Vec::new();
    let Some(allocatable) = &load.allocatable else { return Size { requests, clamps } };
    if whole_node && load.pods > 0 {
        for name in ["cpu", "memory"].into_iter().chain(load.moving.0.keys().map(String::as_str)) {
            let limit = allocatable.get(name).minus(load.daemons.get(name));
            if limit.is_positive() {
                let entry = requests.0.entry(name.to_owned()).or_default();
                *entry = (*entry).max(limit);
            }
        }
    }
    for (name, wanted) in &mut requests.0 {
        let limit = allocatable.get(name).minus(load.daemons.get(name));
        if *wanted <= limit || !wanted.is_positive() {
            continue;
        }
        if !limit.is_positive() {
            clamps.push((
                EventReason::SurgeClampRefused,
                format!("{name}: the Pods request {wanted}, but nothing of the node's allocatable is left beside its DaemonSets; the full sum is kept"),
            ));
            continue;
        }
        let cut = wanted.minus(limit);
        let reason = if cut > wanted.percent(BAND_PERCENT) {
            EventReason::SurgeClampBandExceeded
        } else {
            EventReason::SurgeClamped
        };
        clamps.push((reason, format!("{name}: the Pods request {wanted}, the placeholder {limit}, all that the node can allocate beside its DaemonSets")));
        *wanted = limit;
    }
    Size { requests, clamps }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(spec: serde_json::Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).unwrap()
    }

    fn cpu(text: &str) -> serde_json::Value {
        json!({"requests": {"cpu": text}})
    }

    fn amounts(pairs: &[(&str, &str)]) -> Resources {
        pairs.iter().map(|(n, q)| ((*n).to_owned(), Quantity::parse(q).unwrap())).collect()
    }

    // Expected sums by hand after the scheduler's documented formula.
    #[test]
    fn requests_are_counted_as_the_scheduler_counts_them() {
        for (spec, want) in [
            (
                json!({"containers": [{"name": "a", "resources": cpu("500m")}, {"name": "b", "resources": cpu("250m")}]}),
                "750m",
            ),
            (
                json!({"containers": [{"name": "a", "resources": cpu("1")}], "initContainers": [{"name": "i", "resources": cpu("3")}]}),
                "3",
            ),
            (
                json!({"containers": [{"name": "a", "resources": cpu("1")}],
                    "initContainers": [{"name": "s", "restartPolicy": "Always", "resources": cpu("500m")}, {"name": "i", "resources": cpu("600m")}]}),
                "1500m",
            ),
            (
                json!({"containers": [{"name": "a", "resources": cpu("1")}],
                    "initContainers": [{"name": "i", "resources": cpu("2")}, {"name": "s", "restartPolicy": "Always", "resources": cpu("500m")}]}),
                "2",
            ),
            (json!({"containers": [{"name": "a", "resources": cpu("1")}], "overhead": {"cpu": "100m"}}), "1100m"),
            (json!({"containers": [{"name": "a", "resources": cpu("1")}], "resources": cpu("4")}), "4"),
            (json!({"containers": [{"name": "a"}]}), "0"),
        ] {
            assert_eq!(requests(&pod(spec.clone())).get("cpu"), Quantity::parse(want).unwrap(), "{spec}");
        }
    }

    #[test]
    fn the_sum_is_clamped_per_resource() {
        let load = NodeLoad {
            allocatable: Some(amounts(&[("cpu", "4"), ("memory", "8Gi")])),
            daemons: amounts(&[("cpu", "200m"), ("gpu", "1")]),
            moving: amounts(&[("cpu", "3900m"), ("memory", "10Gi"), ("gpu", "1")]),
            pods: 3,
            ..NodeLoad::default()
        };
        let sized = size(&load, false);
        assert_eq!(sized.requests, amounts(&[("cpu", "3800m"), ("memory", "8Gi"), ("gpu", "1")]));
        let reasons: Vec<_> = sized.clamps.iter().map(|(r, m)| (*r, m.split(':').next().unwrap())).collect();
        assert_eq!(
            reasons,
            [
                (EventReason::SurgeClamped, "cpu"),
                (EventReason::SurgeClampRefused, "gpu"),
                (EventReason::SurgeClampBandExceeded, "memory")
            ]
        );
    }

    #[test]
    fn whole_node_raises_and_never_lowers() {
        let mut load = NodeLoad {
            allocatable: Some(amounts(&[("cpu", "4"), ("memory", "8Gi"), ("pods", "20")])),
            daemons: amounts(&[("cpu", "1")]),
            moving: amounts(&[("cpu", "500m")]),
            pods: 1,
            ..NodeLoad::default()
        };
        assert_eq!(size(&load, true).requests, amounts(&[("cpu", "3"), ("memory", "8Gi")]));
        load.pods = 0;
        load.moving = Resources::default();
        assert_eq!(size(&load, true).requests, Resources::default());
    }

    #[test]
    fn what_a_resize_has_given_counts_where_it_is_more() {
        for (asked, given, of, want) in
            [("1", "2", "a", "2"), ("2", "1", "a", "2"), ("1", "2", "b", "1"), ("1", "2", "i", "1")]
        {
            let spec = json!({"containers": [{"name": "a", "resources": cpu(asked)}]});
            let status = json!({"containerStatuses": [{"name": of, "image": "i", "imageID": "i", "ready": true, "restartCount": 0, "resources": cpu(given)}]});
            let pod =
                serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec, "status": status})).unwrap();
            assert_eq!(requests(&pod).get("cpu"), Quantity::parse(want).unwrap(), "{asked} {given} {of}");
        }
    }

    /// Only what must move needs room; what each DaemonSet brings along is left out of the limit.
    #[test]
    fn each_role_is_counted_once_and_moving_volumes_are_named() {
        let volumes = json!([
            {"name": "data", "persistentVolumeClaim": {"claimName": "disk"}},
            {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}},
            {"name": "config", "configMap": {"name": "c"}},
        ]);
        let of =
            |amount: &str| pod(json!({"containers": [{"name": "a", "resources": cpu(amount)}], "volumes": volumes}));
        let mut load = NodeLoad::default();
        assert_eq!(load.count(&of("1"), Role::Moves), ["disk", "p-scratch"]);
        assert_eq!(load.count(&of("2"), Role::Moves).len(), 2);
        assert_eq!((load.pods, load.moving.get("cpu")), (2, Quantity::parse("3").unwrap()));
        assert_eq!(load.count(&of("500m"), Role::Daemon), [""; 0]);
        for role in [Role::Finished, Role::Static, Role::Placeholder, Role::Pinned] {
            assert_eq!(load.count(&of("8"), role), [""; 0], "{role:?}");
        }
        assert_eq!((load.pods, load.moving.get("cpu")), (2, Quantity::parse("3").unwrap()));
        assert_eq!(load.daemons.get("cpu"), Quantity::parse("500m").unwrap());
        assert_eq!(load.count(&serde_json::from_value(json!({"metadata": {}})).unwrap(), Role::Moves), [""; 0]);
    }

    /// A cut of exactly 10 % is within the band.
    #[test]
    fn the_band_of_a_cut() {
        for (wanted, cut) in [
            ("4", None),
            ("4100m", Some(EventReason::SurgeClamped)),
            ("4444m", Some(EventReason::SurgeClamped)),
            ("4445m", Some(EventReason::SurgeClampBandExceeded)),
            ("5", Some(EventReason::SurgeClampBandExceeded)),
        ] {
            let load = NodeLoad {
                allocatable: Some(amounts(&[("cpu", "4")])),
                moving: amounts(&[("cpu", wanted)]),
                pods: 1,
                ..NodeLoad::default()
            };
            let sized = size(&load, false);
            assert_eq!(sized.clamps.iter().map(|(reason, _)| *reason).next(), cut, "{wanted}");
            assert_eq!(sized.requests, amounts(&[("cpu", "4")]), "{wanted}");
        }
        let exact = NodeLoad {
            allocatable: Some(amounts(&[("cpu", "9")])),
            moving: amounts(&[("cpu", "10")]),
            pods: 1,
            ..NodeLoad::default()
        };
        assert_eq!(size(&exact, false).clamps.first().map(|(reason, _)| *reason), Some(EventReason::SurgeClamped));
        let unknown = NodeLoad { allocatable: None, ..exact };
        assert_eq!(size(&unknown, true), Size { requests: amounts(&[("cpu", "10")]), clamps: Vec::new() });
    }
}
