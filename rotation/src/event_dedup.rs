//! What a pass noticed and no write announces: told when it begins, and again when it changes (§11).

use std::collections::{BTreeMap, HashMap};

use noderotation_shared::blocked::BlockedReason;
use noderotation_shared::kind::Kind;

use crate::announcement::{ClaimId, NodeId};
use crate::event_reason::EventReason;
use crate::reason::Reason;
use crate::report::PoolReport;

/// Something to tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// What it is about. A later notice of the same topic with the same text is not told again; of a finding, or of what
    /// blocks a pool or a drain, neither is one with another text.
    pub topic: String,
    /// The sentence.
    pub text: String,
    /// Whether it is worth a warning in the log.
    pub is_warning: bool,
    /// The Event that tells it; `None`: the log alone does.
    pub event: Option<EventAbout>,
}

impl Notice {
    /// What makes it another notice of the same topic. Findings, and what blocks a pool or a drain, stand for as long as they
    /// hold: that a number in their text changes, as with every new node, is no news.
    fn identity(&self) -> &str {
        let stands = self.event.as_ref().is_some_and(|about| {
            matches!(about.reason, EventReason::Finding(_) | EventReason::Blocked(_) | EventReason::DrainBlocked)
        });
        if stands { "" } else { &self.text }
    }
}

/// Which Event tells a notice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventAbout {
    /// The Event's reason (§11).
    pub reason: EventReason,
    /// The kind of the object that it is about: a NodePool, a NodeClaim or a Node.
    pub kind: Kind,
    /// The object's name.
    pub name: String,
    /// The object's UID; may be empty.
    pub uid: String,
}

/// What was told last, by NodePool and topic.
#[derive(Debug, Default)]
pub struct EventDedup(HashMap<String, BTreeMap<String, String>>);

impl EventDedup {
    /// The notices of a pass that were not told yet. What the pass no longer noticed may be told again later.
    pub fn transition(&mut self, pool: &str, noticed: Vec<Notice>) -> Vec<Notice> {
        let before = self.0.remove(pool).unwrap_or_default();
        let told = |notice: &Notice| (notice.topic.clone(), notice.identity().to_owned());
        let now: BTreeMap<_, _> = noticed.iter().map(told).collect();
        if !now.is_empty() {
            self.0.insert(pool.to_owned(), now);
        }
        let is_new = |notice: &Notice| before.get(&notice.topic).is_none_or(|told| told != notice.identity());
        noticed.into_iter().filter(is_new).collect()
    }

    /// Whether this notice, which belongs to no finished pass, was not told yet.
    pub fn is_new(&mut self, pool: &str, topic: &str, text: &str) -> bool {
        let told = self.0.entry(pool.to_owned()).or_default().insert(topic.to_owned(), text.to_owned());
        told.as_deref() != Some(text)
    }

    /// Takes a topic of a NodePool, which stands, for told: an earlier process told it.
    pub fn seed(&mut self, pool: String, topic: String) {
        self.0.entry(pool).or_default().insert(topic, String::new());
    }

    /// Forgets a NodePool that is gone.
    pub fn forget(&mut self, pool: &str) {
        self.0.remove(pool);
    }
}

/// What a pass noticed. `uid` is the NodePool's.
pub fn notices(report: &PoolReport, uid: &str, claim_uid: impl Fn(&str) -> String) -> Vec<Notice> {
    let pool = || (Kind::NodePool, report.pool.clone(), uid.to_owned());
    let warning =
        |topic: String, text: String, event: Option<EventAbout>| Notice { topic, text, is_warning: true, event };
    let about = |reason, (kind, name, uid)| EventAbout { reason, kind, name, uid };
    let mut noticed = Vec::new();
    for reason in &report.reasons {
        let text = reason.to_string();
        match told_as(reason) {
            Told::Event { reason: event, claim: None } => {
                noticed.push(warning(reason.name().to_owned(), text, Some(about(event, pool()))));
            }
            Told::Event { reason: event, claim: Some(claim) } => {
                let regarding = (Kind::NodeClaim, claim.name.clone(), claim.uid.clone());
                let topic = format!("{}/{}", reason.name(), claim.name);
                noticed.push(warning(topic, text, Some(about(event, regarding))));
            }
            Told::Drain { claim, node, hold } => {
                let (claim, node) = ((claim.name.clone(), claim.uid.clone()), (node.name.clone(), node.uid.clone()));
                let everywhere = [pool(), (Kind::NodeClaim, claim.0, claim.1), (Kind::Node, node.0, node.1)];
                for regarding in everywhere {
                    let topic = format!("{}/{}/{hold}", reason.name(), regarding.0);
                    let event = about(EventReason::DrainBlocked, regarding);
                    noticed.push(warning(topic, text.clone(), Some(event)));
                }
            }
            Told::Log { topic } => noticed.push(warning(topic, text, None)),
            Told::Not => {}
        }
    }
    for blocked in report.blocked.iter().filter(|blocked| blocked.reason() != BlockedReason::FatalFinding) {
        let reason = EventReason::Blocked(blocked.reason());
        let notice = warning(reason.to_string(), blocked.to_string(), Some(about(reason, pool())));
        noticed.push(Notice { is_warning: !reason.is_normal(), ..notice });
    }
    for finding in &report.findings {
        let reason = EventReason::Finding(finding.code);
        noticed.push(warning(reason.to_string(), finding.message.clone(), Some(about(reason, pool()))));
    }
    for claim in &report.counts.short_lead {
        let text = format!(
            "NodeClaim {claim} expires too soon to be offered all windows of minRotationChances; it is rotated in the first one"
        );
        let regarding = (Kind::NodeClaim, claim.clone(), claim_uid(claim));
        let reason = EventReason::ShortLead;
        noticed.push(warning(format!("{reason}/{claim}"), text, Some(about(reason, regarding))));
    }
    noticed.extend(no_candidate(report));
    noticed
}

/// Why no rotation starts.
fn no_candidate(report: &PoolReport) -> Option<Notice> {
    let is_waiting = !report.in_progress && report.governance.is_ok();
    let reasons: Vec<String> = report.reasons.iter().map(ToString::to_string).collect();
    is_waiting.then(|| Notice {
        topic: "no rotation candidate".into(),
        text: format!("{} ({})", reasons.join("; "), report.counts),
        is_warning: false,
        event: None,
    })
}

/// How a reason is told.
enum Told<'a> {
    Event {
        reason: EventReason,
        claim: Option<&'a ClaimId>,
    },
    /// On the NodePool, the NodeClaim and the Node; `hold` says which Pod, and what keeps it.
    Drain {
        claim: &'a ClaimId,
        node: &'a NodeId,
        hold: String,
    },
    Log {
        topic: String,
    },
    Not,
}

fn told_as(reason: &Reason) -> Told<'_> {
    let on_pool = |reason| Told::Event { reason, claim: None };
    let on_claim = |reason, claim| Told::Event { reason, claim: Some(claim) };
    match reason {
        Reason::InsufficientHeadroom { .. } | Reason::HeadroomTight { .. } => {
            on_pool(EventReason::InsufficientHeadroom)
        }
        Reason::DrainStuck { .. } => on_pool(EventReason::DrainStuck),
        Reason::DrainBlocked { claim, node, pod, code, .. } => {
            Told::Drain { claim, node, hold: format!("{pod} {}", <&str>::from(code)) }
        }
        Reason::SurgeZoneConflict { claim, .. } => on_claim(EventReason::SurgeZoneConflict, claim),
        Reason::Undrainable { claim, .. } => on_claim(EventReason::Undrainable, claim),
        Reason::BudgetsUnreadable { claim, .. } => on_claim(EventReason::BudgetsUnreadable, claim),
        Reason::RequestNotMet { claim, .. } | Reason::NotCalledOff { claim, .. } => {
            on_claim(EventReason::RequestNotMet, claim)
        }
        Reason::SurgeUnschedulable { claim, .. } => on_claim(EventReason::SurgeUnschedulable, claim),
        Reason::MalformedAnnotation { object, key, .. } => Told::Log { topic: format!("malformed {object} {key}") },
        Reason::NotReaped { .. } | Reason::ForeignAnchor { .. } => Told::Log { topic: reason.name().to_owned() },
        _ => Told::Not,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notice(topic: EventReason, text: &str) -> Notice {
        Notice { topic: topic.to_string(), text: text.into(), is_warning: true, event: None }
    }

    #[test]
    fn a_notice_is_told_when_it_begins_when_it_changes_and_when_it_comes_back() {
        let mut dedup = EventDedup::default();
        let short = || vec![notice(EventReason::InsufficientHeadroom, "1 of 4 cpu is left")];
        assert_eq!(dedup.transition("api", short()), short());
        assert_eq!(dedup.transition("api", short()), [], "told twice");
        assert_eq!(dedup.transition("web", short()), short(), "what is told of one NodePool says nothing of another");
        let changed = vec![
            notice(EventReason::InsufficientHeadroom, "2 of 4 cpu are left"),
            notice(EventReason::DrainStuck, "since 1h"),
        ];
        assert_eq!(dedup.transition("api", changed.clone()), changed);
        assert_eq!(dedup.transition("api", changed[1..].to_vec()), []);
        assert_eq!(dedup.transition("api", changed.clone()), changed[..1], "it was gone in between");
        dedup.forget("api");
        assert_eq!(dedup.transition("api", changed.clone()), changed);
    }

    #[test]
    fn what_belongs_to_no_finished_pass_is_told_once_until_one_finishes() {
        let mut dedup = EventDedup::default();
        let refused = EventReason::WriteRefused.word();
        assert!(dedup.is_new("api", refused, "freeze: forbidden"));
        assert!(!dedup.is_new("api", refused, "freeze: forbidden"));
        assert!(dedup.is_new("api", refused, "anchor: forbidden"));
        assert_eq!(dedup.transition("api", Vec::new()), []);
        assert!(dedup.is_new("api", refused, "anchor: forbidden"));
    }
}
