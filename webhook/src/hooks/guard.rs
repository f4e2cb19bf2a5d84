//! The guard of our keys (§10).

use noderotation_shared::admission::{Marked, MarksVerdict, Requester, Target, judge_marks};
use noderotation_shared::keys::Carrier;

use super::Rules;
use crate::answer::Answer;
use crate::review::Request;
use crate::view::View;

/// Judges a change of keys of ours on a NodePool, NodeClaim, Node or Pod; a Binding writes to its Pod.
pub fn guard(view: &View, rules: &Rules, request: &Request<'_>) -> Result<Answer, String> {
    let carrier = match request.resource.resource.as_str() {
        "nodepools" => Carrier::NodePool,
        "nodeclaims" => Carrier::NodeClaim,
        "nodes" => Carrier::Node,
        "pods" | "bindings" => Carrier::Placeholder,
        other => return Err(format!("request.resource: found {other:?}, which the guard does not know")),
    };
    if !matches!(request.operation.as_str(), "CREATE" | "UPDATE") {
        return Ok(Answer::allowed());
    }
    let (new, old) = request.metadata()?;
    if new.get("deletionTimestamp").is_some_and(|at| !at.is_null()) {
        return Ok(Answer::allowed());
    }
    let (new, old) = (Marked::read(&new), Marked::read(&old));
    let is_new = request.operation == "CREATE";
    let may_have_template = matches!(carrier, Carrier::NodeClaim | Carrier::Node);
    let pool = new.pool.as_deref().filter(|_| may_have_template).and_then(|name| view.pool(name));
    let target = Target { carrier, is_new, template: pool.as_ref().map(|pool| &pool.template) };
    let requester =
        Requester { name: &request.user_info.username, uid: &request.user_info.uid, controller: &rules.controller };
    Ok(match judge_marks(target, &old, &new, requester) {
        MarksVerdict::Allowed => Answer::allowed(),
        MarksVerdict::Refused(message) => Answer::forbidden(message),
        MarksVerdict::LetThrough { warning, audit } => Answer {
            warnings: vec![warning],
            audit: audit.into_iter().map(|(key, value)| (key.to_owned(), value)).collect(),
            ..Answer::allowed()
        },
    })
}
