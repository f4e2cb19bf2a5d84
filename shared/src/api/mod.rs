//! The RotationPolicy resource, `noderotation.io/v1alpha1` (§3).
//!
//! [`crd`] generates the CustomResourceDefinition from these types. Everything that can be validated by looking at one
//! object is enforced twice: by the schema and CEL rules (`api::schema`) and by [`crate::policy::Policy::try_from`].
//! No rule may lock an object that was stored before the rule existed: see `api::schema`.

mod schema;
pub mod served;
mod structure;
pub(crate) mod suggestion;

pub use structure::{spec_schema, structural_problems, valid_parts};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, Time};
use kube_core::CustomResourceExt;
use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The API group of RotationPolicy.
pub const GROUP: &str = "noderotation.io";
/// The API version of RotationPolicy.
pub const VERSION: &str = "v1alpha1";

/// When and how the nodes of the selected NodePools are rotated.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "noderotation.io",
    version = "v1alpha1",
    kind = "RotationPolicy",
    plural = "rotationpolicies",
    singular = "rotationpolicy",
    shortname = "rotpol",
    status = "RotationPolicyStatus",
    derive = "PartialEq",
    doc = "When and how the nodes of the selected NodePools are rotated.",
    printcolumn = r#"{"name":"Pools","type":"integer","jsonPath":".status.matchedNodePools"}"#,
    printcolumn = r#"{"name":"Rotating","type":"integer","jsonPath":".status.rotatingNodePools"}"#,
    printcolumn = r#"{"name":"Blocked","type":"integer","jsonPath":".status.blockedNodePools"}"#,
    printcolumn = r#"{"name":"Window","type":"string","jsonPath":".status.window"}"#,
    printcolumn = r#"{"name":"Ready","type":"string","priority":1,"jsonPath":".status.conditions[?(@.type==\"Ready\")].status"}"#,
    printcolumn = r#"{"name":"Reason","type":"string","priority":1,"jsonPath":".status.conditions[?(@.type==\"Ready\")].reason"}"#,
    printcolumn = r#"{"name":"Candidates","type":"integer","priority":1,"jsonPath":".status.candidates"}"#,
    printcolumn = r#"{"name":"Opens","type":"string","priority":1,"jsonPath":".status.nextWindow.opens"}"#,
    printcolumn = r#"{"name":"Closes","type":"string","priority":1,"jsonPath":".status.nextWindow.closes"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#,
    crates(
        kube_core = "::kube_core",
        k8s_openapi = "::k8s_openapi",
        schemars = "::schemars",
        serde = "::serde",
        serde_json = "::serde_json"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct RotationPolicySpec {
    /// Selects the NodePools by label; `{}` selects all. Of several policies the one with the most label-key constraints
    /// governs; if two have the same highest number, neither governs. Example: {matchLabels: {workload: api}}.
    #[schemars(schema_with = "schema::selector")]
    pub node_pool_selector: LabelSelector,
    /// The age at which a node is due for rotation, as a Go duration. `auto` means: early enough for
    /// minRotationChances windows before the node expires. Example: 240h. Default: auto.
    #[serde(default = "defaults::auto")]
    #[schemars(schema_with = "schema::age_threshold")]
    pub age_threshold: String,
    /// The number of windows that every node is offered before it expires; 1 or more. Example: 3. Default: 2.
    #[serde(default = "defaults::two")]
    #[schemars(schema_with = "schema::chances")]
    pub min_rotation_chances: i32,
    /// The windows in which rotations may start; they may overlap. Example: [{timezone: Asia/Tokyo, days: [Wed, Sat], start:
    /// "02:00", end: "06:00"}].
    #[schemars(schema_with = "schema::windows")]
    pub maintenance_windows: Vec<MaintenanceWindow>,
    /// Periods in which no rotation starts, such as holidays. Example: [{timezone: Asia/Tokyo, from: 2026-12-26, until:
    /// 2027-01-04}]. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::exclusions")]
    pub exclusions: Vec<ExclusionSpec>,
    /// Stops rotations in every governed NodePool, like a freeze without an end. Example: true. Default: false.
    #[serde(default)]
    pub suspend: bool,
    /// How replacement capacity is reserved, and the pauses around a rotation. Example: {readyTimeout: 20m}. Default: the
    /// defaults of its fields.
    #[serde(default)]
    pub surge: SurgeSpec,
    /// Reserved for a later version; only `enabled: false` is accepted. Example: {enabled: false}. Default: off.
    #[serde(default)]
    pub pre_pull: PrePullSpec,
}

/// A weekly recurring window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MaintenanceWindow {
    /// The IANA name of the time zone. Example: Asia/Tokyo.
    #[schemars(schema_with = "schema::zone")]
    pub timezone: String,
    /// The days on which the window opens. Example: [Wed, Sat].
    #[schemars(schema_with = "schema::days")]
    pub days: Vec<DayName>,
    /// The time at which the window opens: `HH:MM`, 24-hour clock. Example: "02:00".
    #[schemars(schema_with = "schema::start")]
    pub start: String,
    /// The time at which the window closes: `HH:MM`, 24-hour clock, or `24:00`. If it is earlier than start, the window
    /// closes on the next day. Example: "06:00".
    #[schemars(schema_with = "schema::end")]
    pub end: String,
}

/// A day of the week.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DayName {
    /// Monday.
    Mon,
    /// Tuesday.
    Tue,
    /// Wednesday.
    Wed,
    /// Thursday.
    Thu,
    /// Friday.
    Fri,
    /// Saturday.
    Sat,
    /// Sunday.
    Sun,
}

/// A period in which no rotation starts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExclusionSpec {
    /// A name for display. Example: year-end. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::exclusion_name")]
    pub name: Option<String>,
    /// The IANA name of the time zone. Example: Asia/Tokyo.
    #[schemars(schema_with = "schema::zone")]
    pub timezone: String,
    /// The beginning: a date or a local date-time. Example: 2026-12-26, or 2026-12-26T22:00.
    #[schemars(schema_with = "schema::moment")]
    pub from: String,
    /// The end: a date, which is included in full, or a local date-time. Example: 2027-01-04.
    #[schemars(schema_with = "schema::moment")]
    pub until: String,
}

/// How replacement capacity is reserved, and the pauses around a rotation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SurgeSpec {
    /// The number of nodes of a NodePool that are rotated at the same time; must be 1 in v1alpha1. Example: 1. Default: 1.
    #[serde(default = "defaults::one")]
    #[schemars(schema_with = "schema::max_unavailable")]
    pub max_unavailable: i32,
    /// How long the replacement may take to become Ready; then the attempt is rolled back. Example: 20m. Default: 15m.
    #[serde(default = "defaults::ready_timeout")]
    #[schemars(schema_with = "schema::ready_timeout")]
    pub ready_timeout: String,
    /// The pause of a NodePool after a successful rotation; may be 0s. Example: 30m. Default: 10m.
    #[serde(default = "defaults::cooldown_after")]
    #[schemars(schema_with = "schema::cooldown_after")]
    pub cooldown_after: String,
    /// The pause before a failed node is tried again; it doubles with every failure, up to eight times this value.
    /// Example: 1h. Default: 30m.
    #[serde(default = "defaults::retry_backoff")]
    #[schemars(schema_with = "schema::retry_backoff")]
    pub retry_backoff: String,
    /// The pause of a NodePool after a failed rotation. Example: 30m. Default: 10m or cooldownAfter, whichever is longer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::positive_duration")]
    pub failure_pause: Option<String>,
    /// How long a drain is expected to take. Example: 20m. Default: 10m or terminationGracePeriod, whichever is shorter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::positive_duration")]
    pub drain_estimate: Option<String>,
    /// How long provisioning a node is expected to take. Example: 3m. Default: 5m or readyTimeout, whichever is shorter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::positive_duration")]
    pub provisioning_estimate: Option<String>,
    /// The labels that the replacement shares with the old node. Example: {preferred: [node.kubernetes.io/instance-type]}.
    /// Default: the defaults of its fields.
    #[serde(default)]
    pub match_node_requirements: MatchNodeRequirements,
    /// Rotates a node without a surge if too little time for a surge is left before it expires. Example: {enabled: true}.
    /// Default: off.
    #[serde(default)]
    pub forceful_fallback: Switch,
    /// Reserves the cpu and memory of the whole old node, not only what its Pods request. Example: {enabled: true}. Default:
    /// off.
    #[serde(default)]
    pub whole_node_reservation: Switch,
    /// Nominates the reserved node to the scheduler for the evicted Pods; this version does not do it yet. Example: {enabled:
    /// true}. Default: off.
    #[serde(default)]
    pub nomination: Switch,
}

/// Label keys whose values the replacement shares with the old node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MatchNodeRequirements {
    /// Label keys whose values must be the same. Example: [topology.kubernetes.io/zone, kubernetes.io/arch]. Default: topology.kubernetes.io/zone,
    /// kubernetes.io/arch, karpenter.sh/capacity-type.
    #[serde(default = "defaults::required_keys")]
    #[schemars(schema_with = "schema::required_keys")]
    pub required: Vec<String>,
    /// Label keys whose values should be the same if possible. Example: [node.kubernetes.io/instance-type]. Default: none.
    #[serde(default)]
    #[schemars(schema_with = "schema::preferred_keys")]
    pub preferred: Vec<String>,
}

/// An optional feature.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Switch {
    /// Whether the feature is on. Example: true. Default: false.
    #[serde(default)]
    pub enabled: bool,
}

/// Reserved for pulling images before a rotation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PrePullSpec {
    /// Only `false` is accepted in v1alpha1. Example: false. Default: false.
    #[serde(default)]
    #[schemars(schema_with = "schema::pre_pull_enabled")]
    pub enabled: bool,
}

/// What the controller observed. Informational only: no decision depends on it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RotationPolicyStatus {
    /// The metadata.generation that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The number of NodePools that this policy governs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub matched_node_pools: Option<i32>,
    /// The number of governed NodePools with a rotation in flight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotating_node_pools: Option<i32>,
    /// The number of NodePools that something keeps from being rotated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked_node_pools: Option<i32>,
    /// The number of NodeClaims that are eligible for rotation now, regardless of windows and pauses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub candidates: Option<i32>,
    /// The window that is open, or the next one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_window: Option<NextWindow>,
    /// `open`, or when the window opens next: `in 3d`, `in 5h`, `in less than 2h`; `never`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<String>,
    /// The NodePools that this policy governs, or is meant to; the blocked ones first, 100 at most.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::node_pools")]
    pub node_pools: Vec<NodePoolStatus>,
    /// The condition `Ready`: True with reason Accepted; False with Invalid, Conflict, or the reason that keeps a NodePool from
    /// being rotated.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}

/// What the controller observed of one NodePool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodePoolStatus {
    /// The NodePool's name.
    pub name: String,
    /// `Rotating`: a rotation is in flight. `Blocked`: something keeps the pool from being rotated. `Waiting`: neither.
    pub state: String,
    /// What keeps the pool from being rotated, such as NeverDue.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::name_set")]
    pub blocked_by: Vec<String>,
    /// Since when something does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked_since: Option<Time>,
    /// What does not fit together between the policy and the pool, such as TGPUnset.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::name_set")]
    pub findings: Vec<String>,
    /// The number of NodeClaims that are due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due: Option<i32>,
    /// When the next rotation can start; in the past, or now, if one can start at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_start: Option<Time>,
    /// The first instant at which Karpenter ends a node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_deadline: Option<Time>,
    /// The NodeClaims that come due next, 10 at most.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::upcoming")]
    pub upcoming: Vec<UpcomingRotation>,
}

/// When one NodeClaim is to be rotated.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpcomingRotation {
    /// The NodeClaim's name.
    pub node_claim: String,
    /// Its Node's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// When it comes due, or came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due: Option<Time>,
    /// When the first window opens, or opened, in which it is due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<Time>,
    /// When Karpenter ends it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Time>,
}

/// One occurrence of the maintenance windows; both fields are absent if the windows never close.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NextWindow {
    /// When the occurrence opens or opened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opens: Option<Time>,
    /// When the occurrence closes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closes: Option<Time>,
}

/// The defaults of §3 that the schema writes into the object.
mod defaults {
    pub fn auto() -> String {
        "auto".into()
    }
    pub fn one() -> i32 {
        1
    }
    pub fn two() -> i32 {
        2
    }
    pub fn ready_timeout() -> String {
        "15m".into()
    }
    pub fn cooldown_after() -> String {
        "10m".into()
    }
    pub fn retry_backoff() -> String {
        "30m".into()
    }
    pub fn required_keys() -> Vec<String> {
        [crate::keys::ZONE, "kubernetes.io/arch", "karpenter.sh/capacity-type"].map(Into::into).into()
    }
}

impl Default for SurgeSpec {
    fn default() -> Self {
        Self {
            max_unavailable: defaults::one(),
            ready_timeout: defaults::ready_timeout(),
            cooldown_after: defaults::cooldown_after(),
            retry_backoff: defaults::retry_backoff(),
            failure_pause: None,
            drain_estimate: None,
            provisioning_estimate: None,
            match_node_requirements: MatchNodeRequirements::default(),
            forceful_fallback: Switch::default(),
            whole_node_reservation: Switch::default(),
            nomination: Switch::default(),
        }
    }
}

impl Default for MatchNodeRequirements {
    fn default() -> Self {
        Self { required: defaults::required_keys(), preferred: Vec::new() }
    }
}

/// Generates the CustomResourceDefinition that the chart ships.
pub fn crd() -> CustomResourceDefinition {
    let mut crd = RotationPolicy::crd();
    for version in &mut crd.spec.versions {
        if let Some(schema) = version.schema.as_mut().and_then(|s| s.open_api_v3_schema.as_mut()) {
            schema::finish(schema);
            schema::require_spec(schema);
        }
    }
    crd
}
