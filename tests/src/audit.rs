//! What the API server's audit log says of a rotation: who wrote what, when, in which order.

use jiff::Timestamp;
use noderotation_rig::Rig;
use serde_json::Value;

/// The user that the controller is.
pub const CONTROLLER: &str = "system:serviceaccount:noderotation:noderotation-controller";

/// One write.
#[derive(Clone, Debug)]
pub struct Write {
    /// When the API server received it.
    pub at: Timestamp,
    /// When it answered.
    pub answered: Timestamp,
    /// `create`, `patch`, `update`, `delete`, …
    pub verb: String,
    /// `nodeclaims`, `nodes/status`, …
    pub resource: String,
    /// The object's name.
    pub name: String,
    /// Who.
    pub user: String,
    /// The answer's code.
    pub code: u64,
    /// The request's body.
    pub body: Value,
}

/// All writes so far, oldest first.
pub fn writes(rig: &Rig) -> anyhow::Result<Vec<Write>> {
    Ok(rig.audit()?.iter().filter(|e| e["stage"] == "ResponseComplete").filter_map(read).collect())
}

fn read(event: &Value) -> Option<Write> {
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let target = &event["objectRef"];
    let sub = text(&target["subresource"]);
    let resource = text(&target["resource"]);
    Some(Write {
        at: event["requestReceivedTimestamp"].as_str()?.parse().ok()?,
        answered: event["stageTimestamp"].as_str()?.parse().ok()?,
        verb: text(&event["verb"]),
        resource: if sub.is_empty() { resource } else { format!("{resource}/{sub}") },
        name: text(&target["name"]),
        user: text(&event["user"]["username"]),
        code: event["responseStatus"]["code"].as_u64().unwrap_or_default(),
        body: event["requestObject"].clone(),
    })
}

/// The controller's own writes, leases and events aside.
pub fn own(rig: &Rig) -> anyhow::Result<Vec<Write>> {
    let mut own = writes(rig)?;
    own.retain(|w| w.user == CONTROLLER && w.resource != "events" && w.resource != "leases");
    Ok(own)
}

impl Write {
    /// What the body does to an annotation: `Some(None)` removes it.
    pub fn annotation(&self, key: &str) -> Option<Option<String>> {
        let value = self.body["metadata"]["annotations"].get(format!("noderotation.io/{key}"))?;
        Some(value.as_str().map(str::to_owned))
    }

    /// In a few words, for messages of failing tests.
    pub fn brief(&self) -> String {
        format!("{} {} {} {} → {}", self.at, self.verb, self.resource, self.name, self.code)
    }
}

/// The controller's writes to what it rotates: everything but events, leases and the policies' status.
pub fn rotation(rig: &Rig) -> anyhow::Result<Vec<Write>> {
    let mut own = own(rig)?;
    own.retain(|w| !w.resource.starts_with("rotationpolicies"));
    Ok(own)
}
