//! What a pass noticed and no write tells: once when it begins and once for each change (§11, *deduplicated on
//! transition*).

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};

use noderotation_rotation::Decision;
use noderotation_rotation::reason::Reason;
use noderotation_rotation::world::World;
use noderotation_shared::feasibility::{Finding, Severity};
use noderotation_shared::governance::Ungoverned;
use tracing::{info, warn};

use crate::events::{About, Event, Recorder};

/// What was told about each pool last, by topic.
#[derive(Default)]
pub struct EventDedup(Mutex<HashMap<String, BTreeMap<String, String>>>);

/// The Event's reason of a note that has one, and whether it is about the claim.
fn reason(note: &Reason) -> Option<(&'static str, Option<&str>)> {
    Some(match note {
        Reason::Ungoverned(Ungoverned::Conflict(_) | Ungoverned::InvalidPolicy(_)) => ("PolicyConflict", None),
        Reason::StaticNodePool => ("StaticNodePool", None),
        Reason::FreezeUnreadable(_) => ("FreezeUnreadable", None),
        Reason::InsufficientHeadroom { .. } | Reason::HeadroomTight { .. } => ("InsufficientHeadroom", None),
        Reason::DrainStuck { .. } => ("DrainStuck", None),
        Reason::SurgeZoneConflict { claim, .. } => ("SurgeZoneConflict", Some(claim)),
        Reason::SurgeUnschedulable { claim, .. } => ("SurgeUnschedulable", Some(claim)),
        _ => return None,
    })
}

impl EventDedup {
    /// Tells what is new in a pass that ended.
    pub fn tell(&self, recorder: &Recorder, world: &World, decision: &Decision, findings: &[Finding]) {
        let mut now: BTreeMap<String, (String, Option<Event>)> = BTreeMap::new();
        let on_pool = |reason, note: &str| Event {
            about: About {
                kind: "NodePool",
                name: world.pool.meta.name.to_string(),
                uid: world.pool.meta.uid.to_string(),
            },
            reason,
            note: note.to_owned(),
        };
        let on_claim = |claim: &str, reason, note: &str| {
            let uid = world.claims.iter().find(|c| &*c.meta.name == claim).map(|c| c.meta.uid.to_string());
            Event {
                about: About { kind: "NodeClaim", name: claim.to_owned(), uid: uid.unwrap_or_default() },
                reason,
                note: note.to_owned(),
            }
        };
        for note in &decision.notes {
            let text = note.to_string();
            if let Some((reason, claim)) = reason(note) {
                let event = claim.map_or_else(|| on_pool(reason, &text), |claim| on_claim(claim, reason, &text));
                now.insert(reason.to_owned(), (text, Some(event)));
            }
        }
        for note in &decision.notes {
            if let Reason::Unreadable { object, key, .. } = note {
                now.insert(format!("unreadable {object} {key}"), (note.to_string(), None));
            }
        }
        for finding in findings {
            let event = (finding.severity() == Severity::Warn).then(|| on_pool(finding.code.name(), &finding.message));
            now.insert(finding.code.name().to_owned(), (finding.message.clone(), event));
        }
        for claim in &decision.counts.short_lead {
            let text = format!(
                "NodeClaim {claim} lives too short to be offered every wanted window; it is rotated at the first"
            );
            now.insert(format!("ShortLead/{claim}"), (text.clone(), Some(on_claim(claim, "ShortLead", &text))));
        }
        if decision.step.is_none()
            && world.pool.anchor().is_none()
            && decision.counts.eligible + decision.counts.in_backoff > 0
        {
            let reasons: Vec<String> = decision.notes.iter().map(ToString::to_string).collect();
            now.insert("no rotation candidate".into(), (format!("{} ({})", reasons.join("; "), decision.counts), None));
        }
        self.transition(recorder, &world.pool.meta.name, now);
    }

    fn transition(&self, recorder: &Recorder, pool: &str, now: BTreeMap<String, (String, Option<Event>)>) {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = told.entry(pool.to_owned()).or_default();
        for (topic, (text, event)) in &now {
            if before.get(topic) == Some(text) {
                continue;
            }
            match event {
                None if topic.starts_with("unreadable") => warn!(nodepool = pool, "{text}"),
                Some(event) => {
                    warn!(nodepool = pool, reason = event.reason, about = event.about.name, "{text}");
                    recorder.record(event.clone());
                }
                None => info!(nodepool = pool, reason = text, "{topic}"),
            }
        }
        *before = now.into_iter().map(|(topic, (text, _))| (topic, text)).collect();
        if before.is_empty() {
            told.remove(pool);
        }
    }

    /// The API server refused a write: told once per message.
    pub fn refused(&self, recorder: &Recorder, world: &World, step: &str, message: &str) {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = told.entry(world.pool.meta.name.to_string()).or_default();
        let text = format!("{step}: {message}");
        if before.get("WriteRefused") == Some(&text) {
            return;
        }
        before.insert("WriteRefused".into(), text.clone());
        warn!(nodepool = &*world.pool.meta.name, step, message, "write refused");
        let about =
            About { kind: "NodePool", name: world.pool.meta.name.to_string(), uid: world.pool.meta.uid.to_string() };
        recorder.record(Event { about, reason: "WriteRefused", note: format!("the API server refused {text}") });
    }

    /// The pool is gone.
    pub fn forget(&self, pool: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(pool);
    }
}

/// The first ten names, then a count (§11).
pub fn names(all: &[&String]) -> String {
    const MOST: usize = 10;
    let first = all.iter().take(MOST).map(|n| n.as_str()).collect::<Vec<_>>().join(", ");
    match all.len().saturating_sub(MOST) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}
