//! The RotationPolicy resource, `noderotation.io/v1alpha1` (§3).
//!
//! The CustomResourceDefinition is generated from these types (`crd()`); what one object can show is enforced by its
//! schema and CEL rules (`api::schema`) and again by [`crate::policy::Policy::try_from`]. No rule may ever *error*: an
//! error blocks even the removal of a finalizer from an object that was stored before the rule.

mod schema;
mod structure;

pub use structure::{sound_parts, spec_schema, structural_problems};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, Time};
use kube_core::CustomResourceExt;
use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The API group.
pub const GROUP: &str = "noderotation.io";
/// The API version.
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
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].status"}"#,
    printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].reason"}"#,
    printcolumn = r#"{"name":"Candidates","type":"integer","jsonPath":".status.candidates"}"#,
    printcolumn = r#"{"name":"Opens","type":"string","jsonPath":".status.nextWindow.opens"}"#,
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
    /// Which NodePools; a standard label selector, `{}` is the catch-all. The policy with the most label-key
    /// constraints governs; two at the highest number govern nothing.
    #[schemars(schema_with = "schema::selector")]
    pub node_pool_selector: LabelSelector,
    /// `auto`: a node is due early enough to be offered minRotationChances windows before it expires. Or the age, a
    /// Go duration, at which it is due.
    #[serde(default = "defaults::auto")]
    #[schemars(schema_with = "schema::age_threshold")]
    pub age_threshold: String,
    /// How many windows each node shall be offered before it expires.
    #[serde(default = "defaults::two")]
    #[schemars(schema_with = "schema::chances")]
    pub min_rotation_chances: i32,
    /// When rotations may start: the union of these.
    #[schemars(schema_with = "schema::windows")]
    pub maintenance_windows: Vec<MaintenanceWindow>,
    /// Stretches of time during which no rotation starts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::exclusions")]
    pub exclusions: Vec<ExclusionSpec>,
    /// Holds every governed NodePool, like a freeze without end.
    #[serde(default)]
    pub suspend: bool,
    /// How replacement capacity is reserved.
    #[serde(default)]
    pub surge: SurgeSpec,
    /// Reserved; only `enabled: false` is accepted.
    #[serde(default)]
    pub pre_pull: PrePullSpec,
}

/// One recurring window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MaintenanceWindow {
    /// An IANA time zone name such as Asia/Tokyo.
    #[schemars(schema_with = "schema::zone")]
    pub timezone: String,
    /// The days on which the window opens.
    #[schemars(schema_with = "schema::days")]
    pub days: Vec<DayName>,
    /// `HH:MM`, 24-hour.
    #[schemars(schema_with = "schema::start")]
    pub start: String,
    /// `HH:MM` or `24:00`; earlier than start means the next day.
    #[schemars(schema_with = "schema::end")]
    pub end: String,
}

/// A day of the week.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs, reason = "the names say it")]
pub enum DayName {
    Mon,
    Tue,
    Wed,
    Thu,
    Fri,
    Sat,
    Sun,
}

/// One stretch of time without starts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExclusionSpec {
    /// What people call it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::exclusion_name")]
    pub name: Option<String>,
    /// An IANA time zone name such as Asia/Tokyo.
    #[schemars(schema_with = "schema::zone")]
    pub timezone: String,
    /// A date (2026-12-26) or a local date-time (2026-12-26T22:00).
    #[schemars(schema_with = "schema::moment")]
    pub from: String,
    /// A date, included in full, or a local date-time, excluded.
    #[schemars(schema_with = "schema::moment")]
    pub until: String,
}

/// How replacement capacity is reserved, and the pauses around a rotation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SurgeSpec {
    /// Nodes of a pool in rotation at a time; exactly 1 in v1alpha1.
    #[serde(default = "defaults::one")]
    #[schemars(schema_with = "schema::max_unavailable")]
    pub max_unavailable: i32,
    /// How long the replacement may take to become Ready before the attempt is rolled back.
    #[serde(default = "defaults::ready_timeout")]
    #[schemars(schema_with = "schema::ready_timeout")]
    pub ready_timeout: String,
    /// The pool's pause after a success.
    #[serde(default = "defaults::cooldown_after")]
    #[schemars(schema_with = "schema::cooldown_after")]
    pub cooldown_after: String,
    /// A node's pause after its first failure, doubled up to eightfold.
    #[serde(default = "defaults::retry_backoff")]
    #[schemars(schema_with = "schema::retry_backoff")]
    pub retry_backoff: String,
    /// The pool's pause after a failure; unset: the larger of 10m and cooldownAfter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::positive_duration")]
    pub failure_pause: Option<String>,
    /// How long a drain is expected to take; unset: the smaller of terminationGracePeriod and 10m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::positive_duration")]
    pub drain_estimate: Option<String>,
    /// How long provisioning is expected to take; unset: the smaller of readyTimeout and 5m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::positive_duration")]
    pub provisioning_estimate: Option<String>,
    /// What the replacement has in common with the old node.
    #[serde(default)]
    pub match_node_requirements: MatchNodeRequirements,
    /// Rotates without a surge when the deadline leaves no time for one.
    #[serde(default)]
    pub forceful_fallback: Switch,
    /// Reserves the old node's whole cpu and memory.
    #[serde(default)]
    pub whole_node_reservation: Switch,
    /// Hints the scheduler to the reserved node.
    #[serde(default)]
    pub nomination: Switch,
}

/// Label keys whose values the replacement shares with the old node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MatchNodeRequirements {
    /// Keys that must agree.
    #[serde(default = "defaults::required_keys")]
    #[schemars(schema_with = "schema::required_keys")]
    pub required: Vec<String>,
    /// Keys that should agree.
    #[serde(default)]
    #[schemars(schema_with = "schema::preferred_keys")]
    pub preferred: Vec<String>,
}

/// An opt-in.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Switch {
    /// Off unless set.
    #[serde(default)]
    pub enabled: bool,
}

/// Reserved for pulling images ahead.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PrePullSpec {
    /// Only `false` is accepted in v1alpha1.
    #[serde(default)]
    #[schemars(schema_with = "schema::pre_pull_enabled")]
    pub enabled: bool,
}

/// What the controller observed. Nothing decides from it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RotationPolicyStatus {
    /// The generation that was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The NodePools that this policy wins.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::name_set")]
    pub matched_node_pools: Vec<String>,
    /// Those of them with a rotation in flight.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::name_set")]
    pub rotating_node_pools: Vec<String>,
    /// NodeClaims that are eligible now, windows and pauses aside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub candidates: Option<i32>,
    /// The window that is open, or the next one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_window: Option<NextWindow>,
    /// `Ready` with reason Accepted, Invalid or Conflict.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}

/// One occurrence of the window; a window that never closes has neither end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NextWindow {
    /// When it opens or opened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opens: Option<Time>,
    /// When it closes.
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

/// The CustomResourceDefinition, as the chart ships it.
pub fn crd() -> CustomResourceDefinition {
    let mut crd = RotationPolicy::crd();
    for version in &mut crd.spec.versions {
        if let Some(schema) = version.schema.as_mut().and_then(|s| s.open_api_v3_schema.as_mut()) {
            schema::settle(schema);
        }
    }
    crd
}
