//! The writes of a rotation as the API server's audit log has them: who wrote what, when, in which order.

use std::collections::BTreeSet;

use jiff::Timestamp;
use noderotation_rig::Rig;
use serde_json::Value;

/// The user name of the controller.
pub const CONTROLLER: &str = "system:serviceaccount:noderotation:noderotation-controller";

/// One write request.
#[derive(Clone, Debug)]
pub struct Write {
    /// When the API server received it.
    pub at: Timestamp,
    /// When the API server answered it.
    pub answered: Timestamp,
    /// The verb: `create`, `patch`, `update`, `delete` or `deletecollection`.
    pub verb: String,
    /// The plural of the resource, with the subresource: `nodeclaims`, `nodes/status`.
    pub resource: String,
    /// The name of the object; empty where the API server generated it.
    pub name: String,
    /// The user name of the author.
    pub user: String,
    /// The HTTP status of the response.
    pub code: u64,
    /// The body of the request; null where the audit policy leaves it out.
    pub body: Value,
}

/// All writes so far but dry runs, and those of leases, which are renewed all the time; oldest first. An error where the rig
/// keeps no audit log.
pub fn writes(rig: &Rig) -> anyhow::Result<Vec<Write>> {
    let is_left_out = |event: &Value| {
        matches!(event["verb"].as_str(), Some("get" | "list" | "watch"))
            || event["objectRef"]["resource"] == "leases"
            || event["requestURI"].as_str().is_some_and(|uri| uri.contains("dryRun=All"))
    };
    let events = rig.audit()?;
    let answered = events.iter().filter(|e| e["stage"] == "ResponseComplete" && !is_left_out(e));
    Ok(answered.filter_map(read).collect())
}

/// Every right that a user has made use of so far.
pub fn used_rights(rig: &Rig, user: &str) -> anyhow::Result<BTreeSet<Right>> {
    let of_user =
        |event: &&Value| event["user"]["username"] == user && event["responseStatus"]["code"].as_u64() != Some(403);
    let right = |event: &Value| Right {
        verb: text(&event["verb"]),
        group: text(&event["objectRef"]["apiGroup"]),
        resource: resource(&event["objectRef"]),
    };
    Ok(rig.audit()?.iter().filter(of_user).map(right).collect())
}

/// Something that RBAC grants.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Right {
    /// `get`, `list`, `watch`, `create`, `patch`, `update` or `delete`.
    pub verb: String,
    /// The API group; empty for core objects.
    pub group: String,
    /// The plural of the resource, with the subresource.
    pub resource: String,
}

/// The rights that this role or cluster role lists.
pub fn listed_rights(role: &Value) -> BTreeSet<Right> {
    let texts = |v: &Value| v.as_array().into_iter().flatten().map(text).collect::<Vec<_>>();
    let of_rule = |rule: &Value| {
        let (groups, resources, verbs) = (texts(&rule["apiGroups"]), texts(&rule["resources"]), texts(&rule["verbs"]));
        let places = groups.iter().flat_map(|group| resources.iter().map(move |resource| (group, resource)));
        let right = |(group, resource): (&String, &String), verb: &String| Right {
            verb: verb.clone(),
            group: group.clone(),
            resource: resource.clone(),
        };
        places.flat_map(|place| verbs.iter().map(move |verb| right(place, verb))).collect::<Vec<_>>()
    };
    role["rules"].as_array().into_iter().flatten().flat_map(of_rule).collect()
}

fn text(v: &Value) -> String {
    v.as_str().unwrap_or_default().to_owned()
}

/// The plural of what a request is about, with the subresource.
fn resource(target: &Value) -> String {
    let (resource, sub) = (text(&target["resource"]), text(&target["subresource"]));
    if sub.is_empty() { resource } else { format!("{resource}/{sub}") }
}

fn read(event: &Value) -> Option<Write> {
    let target = &event["objectRef"];
    Some(Write {
        at: event["requestReceivedTimestamp"].as_str()?.parse().ok()?,
        answered: event["stageTimestamp"].as_str()?.parse().ok()?,
        verb: text(&event["verb"]),
        resource: resource(target),
        name: text(&target["name"]),
        user: text(&event["user"]["username"]),
        code: event["responseStatus"]["code"].as_u64().unwrap_or_default(),
        body: event["requestObject"].clone(),
    })
}

/// The writes of the controller so far, without those of events.
pub fn own(rig: &Rig) -> anyhow::Result<Vec<Write>> {
    let mut own = writes(rig)?;
    own.retain(|w| w.user == CONTROLLER && w.resource != "events");
    Ok(own)
}

impl Write {
    /// What the write does to the annotation `noderotation.io/<key>`: `None` nothing, `Some(None)` remove it, `Some(Some(_))`
    /// set it.
    pub fn annotation(&self, key: &str) -> Option<Option<String>> {
        let value = self.body["metadata"]["annotations"].get(format!("noderotation.io/{key}"))?;
        Some(value.as_str().map(str::to_owned))
    }

    /// The write on one line, for the messages of failing tests.
    pub fn brief(&self) -> String {
        format!("{} {} {} {} → {}", self.at, self.verb, self.resource, self.name, self.code)
    }
}

/// The writes of the controller so far to what it rotates: without those of events and the status of policies.
pub fn rotation(rig: &Rig) -> anyhow::Result<Vec<Write>> {
    let mut own = own(rig)?;
    own.retain(|w| !w.resource.starts_with("rotationpolicies"));
    Ok(own)
}
