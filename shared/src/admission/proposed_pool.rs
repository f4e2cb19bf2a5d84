//! A NodePool as a user submits it, in an admission request or in a file.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::api::suggestion;
use crate::blocked::Situation;
use crate::feasibility::PoolFacts;
use crate::field_error::{FieldError, quoted};
use crate::objects::{Freeze, Lifetimes};
use crate::quantity::Resources;
use crate::{duration, instant, keys};

/// The fields of a submitted NodePool that rotation depends on, and what is wrong with them.
#[derive(Clone, Debug, PartialEq)]
pub struct ProposedNodePool {
    /// `metadata.name`; empty if there is none yet (`generateName`).
    pub name: String,
    /// `metadata.labels`, by which policies select the pool.
    pub labels: BTreeMap<String, String>,
    /// Whether `spec.replicas` is set: a static pool, which cannot be rotated.
    pub is_static: bool,
    /// The operator's freeze.
    pub freeze: Freeze,
    /// `spec.limits`, as far as it can be read.
    pub limits: Resources,
    /// `status.resources`: what its nodes take of the limits.
    pub usage: Resources,
    /// The input of the findings (§6); the number of claims is taken from `status.resources.nodes`, 0 if absent.
    pub facts: PoolFacts,
    /// The labels of the template, which new nodes bear. Policies do not select by them.
    pub template_labels: BTreeMap<String, String>,
    /// The `noderotation.io/` labels and annotations in the template, which Karpenter copies to every new NodeClaim.
    pub template: BTreeMap<String, String>,
    /// What is wrong: a `freeze` or a lifetime that cannot be read, `noderotation.io/` keys in the template.
    pub problems: Vec<FieldError>,
}

impl ProposedNodePool {
    /// Reads a NodePool from any JSON; what cannot be read becomes a problem. For a freeze such as `72h` the problem
    /// suggests the instant that lies so far after `now`.
    pub fn read(object: &Value, now: Timestamp) -> Self {
        let mut problems = Vec::new();
        let group = object.pointer("/spec/template/spec/nodeClassRef/group").and_then(Value::as_str);
        let defaults = Lifetimes::defaults(group);
        let is_set =
            |field: &str| object.pointer(&format!("/spec/template/spec/{field}")).is_some_and(|v| !v.is_null());
        let expire_after = if is_set("expireAfter") {
            lifetime(object, "expireAfter", true, &mut problems)
        } else {
            Some(defaults.expire_after)
        };
        let termination_grace_period = if is_set("terminationGracePeriod") {
            lifetime(object, "terminationGracePeriod", false, &mut problems)
        } else {
            defaults.termination_grace_period
        };
        problems.extend(freeze_problem(object, now));
        problems.extend(template_problems(object));
        Self {
            name: object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned(),
            labels: texts(object, "/metadata/labels"),
            is_static: object.pointer("/spec/replicas").is_some_and(|r| !r.is_null()),
            freeze: Freeze::read(object.pointer("/metadata/annotations").and_then(|a| a.get(keys::FREEZE)?.as_str())),
            limits: amounts(object, "/spec/limits"),
            usage: amounts(object, "/status/resources"),
            template_labels: texts(object, "/spec/template/metadata/labels"),
            facts: PoolFacts {
                expire_after,
                termination_grace_period,
                claims: nodes(object),
                is_auto_mode: defaults.is_auto_mode,
            },
            template: TEMPLATE_MAPS.iter().flat_map(|map| template_keys(object, map)).collect(),
            problems,
        }
    }
}

impl ProposedNodePool {
    /// What blocks it depends on, as if no rotation were in flight.
    pub(super) fn situation(&self) -> Situation<'_> {
        Situation {
            is_static: self.is_static,
            expires: self.facts.expire_after.is_some(),
            freeze: &self.freeze,
            limits: &self.limits,
            usage: Some(&self.usage),
        }
    }
}

/// The fields of a map that are texts.
fn texts(object: &Value, map: &str) -> BTreeMap<String, String> {
    let fields = object.pointer(map).and_then(Value::as_object).into_iter().flatten();
    fields.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

fn amounts(object: &Value, map: &str) -> Resources {
    Resources::from_json(object.pointer(map).and_then(Value::as_object).into_iter().flatten())
}

/// Karpenter's own rule for durations: `([0-9]+(s|m|h))+`.
fn is_whole(text: &str) -> bool {
    let is_unit = |c: char| matches!(c, 'h' | 'm' | 's');
    text.ends_with(is_unit)
        && text.split_terminator(is_unit).all(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}

fn lifetime(object: &Value, field: &str, may_be_never: bool, problems: &mut Vec<FieldError>) -> Option<SignedDuration> {
    let value = object.pointer(&format!("/spec/template/spec/{field}")).filter(|value| !value.is_null())?;
    let text = value.as_str().unwrap_or_default();
    if may_be_never && text == "Never" {
        return None;
    }
    let parsed = duration::parse(text).filter(|_| is_whole(text));
    if parsed.is_none() {
        let instead = suggestion::whole_seconds(text);
        let instead = instead.as_deref().unwrap_or(if may_be_never { "720h or Never" } else { "1h" });
        let why = "must be whole hours, minutes and seconds, as Karpenter takes them";
        problems.push(FieldError::new(format!("spec.template.spec.{field}"), value, why, instead));
    }
    parsed
}

/// A freeze that cannot be read freezes the pool for ever (§5.4), so it is refused.
fn freeze_problem(object: &Value, now: Timestamp) -> Option<FieldError> {
    let value = object.pointer("/metadata/annotations")?.get(keys::FREEZE)?;
    let text = value.as_str().unwrap_or_default();
    let meant = duration::parse(text).filter(SignedDuration::is_positive).map(|d| instant::plus(now, d));
    let instead = match meant {
        Some(until) => instant::format(until),
        None => "an instant such as 2026-12-26T00:00:00Z".into(),
    };
    instant::parse(text).is_none().then(|| {
        FieldError::new(
            format!("metadata.annotations[{}]", keys::FREEZE),
            quoted(text),
            "must be an RFC 3339 instant, since a GitOps sync would renew a relative time",
            instead,
        )
    })
}

/// The number of the pool's nodes, as Karpenter reports it in the status.
fn nodes(object: &Value) -> i64 {
    object.pointer("/status/resources/nodes").and_then(Value::as_str).and_then(|n| n.parse().ok()).unwrap_or_default()
}

const TEMPLATE_MAPS: [&str; 2] = ["labels", "annotations"];

/// The `noderotation.io/` keys in one map of the template.
fn template_keys<'a>(object: &'a Value, map: &str) -> impl Iterator<Item = (String, String)> + use<'a> {
    let fields = object.pointer(&format!("/spec/template/metadata/{map}")).and_then(Value::as_object);
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    fields
        .into_iter()
        .flatten()
        .filter(|(key, _)| key.starts_with(keys::PREFIX))
        .map(move |(key, value)| (key.clone(), text(value)))
}

/// Karpenter would copy `noderotation.io/` keys in the template to every new NodeClaim.
fn template_problems(object: &Value) -> Vec<FieldError> {
    let problems = |map: &'static str| {
        template_keys(object, map).map(move |(key, value)| {
            FieldError::new(
                format!("spec.template.metadata.{map}[{key}]"),
                quoted(&value),
                "would be copied to every new NodeClaim and Node and corrupt their rotation state",
                "the key on the NodePool or NodeClaim that it is meant for, not in the template",
            )
        })
    };
    TEMPLATE_MAPS.into_iter().flat_map(problems).collect()
}
