//! What was admitted a moment ago. Two policies of one `kubectl apply` arrive a few milliseconds apart, before the watch
//! reports the first (§10).
//!
//! It is a hint and no more: whoever reaches the webhook can send a review of something that nobody stores. So nothing is judged
//! by what is remembered here. Where it could matter to a verdict, the object is read live first.

use std::collections::BTreeMap;
use std::time::Duration;

use noderotation_shared::admission::ProposedNodePool;
use noderotation_shared::governance::ParsedPolicy;
use noderotation_shared::keys::is_object_name;
use noderotation_shared::kind::Kind;
use noderotation_shared::policy::PoolSelector;
use tokio::time::Instant;

/// How long an admitted object is remembered, unless the watch reports it sooner.
pub const REMEMBERED: Duration = Duration::from_secs(3);

/// How long it may take until the API server has stored what was admitted.
pub const STORED_WITHIN: Duration = Duration::from_millis(50);

/// The most objects that are remembered at a time; beyond, the oldest is forgotten.
pub const MOST: usize = 64;

/// The most versions that are remembered of one object, and the most bytes of the labels of one; beyond, it could be anything.
const MOST_VERSIONS: usize = 2;
const MOST_BYTES: usize = 4 * 1024;

/// What of an object decides whether it matters to a verdict.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Version<'a> {
    /// The selector of a policy.
    Selector(&'a PoolSelector),
    /// The labels of a NodePool.
    Labels(&'a BTreeMap<String, String>),
    /// It is not known, or too much to be kept.
    Anything,
}

impl<'a> Version<'a> {
    /// Of a policy. One without a readable selector selects nothing, but the next version may.
    pub fn of_policy(policy: &'a ParsedPolicy) -> Self {
        policy.selector.as_ref().map_or(Self::Anything, Self::Selector)
    }

    /// Of a NodePool.
    pub fn of_pool(pool: &'a ProposedNodePool) -> Self {
        Self::Labels(&pool.labels)
    }
}

/// A version that is kept.
enum Kept {
    Selector(PoolSelector),
    Labels(BTreeMap<String, String>),
    Anything,
}

impl Kept {
    fn of(version: Version<'_>) -> Self {
        let bytes = |labels: &BTreeMap<String, String>| labels.iter().map(|(k, v)| k.len() + v.len()).sum::<usize>();
        match version {
            Version::Selector(selector) if selector.bytes() <= MOST_BYTES => Self::Selector(selector.clone()),
            Version::Labels(labels) if bytes(labels) <= MOST_BYTES => Self::Labels(labels.clone()),
            _ => Self::Anything,
        }
    }

    fn version(&self) -> Version<'_> {
        match self {
            Self::Selector(selector) => Version::Selector(selector),
            Self::Labels(labels) => Version::Labels(labels),
            Self::Anything => Version::Anything,
        }
    }
}

/// What a review judges, reduced to what tells which other objects matter to the verdict.
#[derive(Clone, Debug, Default)]
pub struct Concern {
    /// The name of the policy under review, which is judged by the review and not by what is stored.
    pub policy: Option<String>,
    /// The selectors of that policy before and after the change. Every NodePool matters that one of them selects, and every
    /// policy that selects one of these or, being as specific, could tie with it one day.
    pub selectors: Vec<PoolSelector>,
    /// The labels of the NodePool under review before and after the change: every policy that selects them matters.
    pub labels: Vec<BTreeMap<String, String>>,
    /// The name of a NodePool that matters itself.
    pub pool: Option<String>,
}

impl Concern {
    /// Whether an object of this kind and name matters to the verdict where this is a version of it. `selects_own` says whether a
    /// selector selects a NodePool that one of [`Concern::selectors`] selects.
    fn regards(
        &self,
        kind: Kind,
        name: &str,
        version: Version<'_>,
        selects_own: impl Fn(&PoolSelector) -> bool,
    ) -> bool {
        let named = |concerned: &Option<String>| concerned.as_deref() == Some(name);
        match (kind, version) {
            (Kind::RotationPolicy, _) if named(&self.policy) => false,
            (Kind::NodePool, _) if named(&self.pool) => true,
            (Kind::RotationPolicy, Version::Selector(selector)) => {
                let matters = |own: &PoolSelector| {
                    own.could_share_a_pool_with(selector)
                        && (own.specificity() == selector.specificity() || selects_own(selector))
                };
                self.selectors.iter().any(matters) || self.labels.iter().any(|labels| selector.matches(labels))
            }
            (Kind::NodePool, Version::Labels(labels)) => self.selectors.iter().any(|own| own.matches(labels)),
            (Kind::RotationPolicy, _) => !self.selectors.is_empty() || !self.labels.is_empty(),
            (Kind::NodePool, _) => !self.selectors.is_empty(),
            _ => false,
        }
    }
}

/// What was admitted, by kind and name.
#[derive(Default)]
pub struct Admitted(BTreeMap<(Kind, String), Entry>);

struct Entry {
    versions: Vec<Kept>,
    since: Instant,
}

impl Admitted {
    /// Remembers an object that most likely will be stored. One whose name is yet to be generated, or can be none, is not: it
    /// could not be read.
    pub fn remember(&mut self, kind: Kind, name: &str, version: Version<'_>) {
        if !is_object_name(name) {
            return;
        }
        let key = (kind, name.to_owned());
        if self.0.len() >= MOST
            && !self.0.contains_key(&key)
            && let Some(oldest) = self.0.iter().min_by_key(|(_, entry)| entry.since).map(|(key, _)| key.clone())
        {
            self.0.remove(&oldest);
        }
        let entry = self.0.entry(key).or_insert_with(|| Entry { versions: Vec::new(), since: Instant::now() });
        entry.since = Instant::now();
        if entry.versions.iter().any(|kept| kept.version() == version) {
            return;
        }
        if entry.versions.len() >= MOST_VERSIONS {
            entry.versions.clear();
            entry.versions.push(Kept::Anything);
        } else {
            entry.versions.push(Kept::of(version));
        }
    }

    /// Forgets an object: what is stored of it is known.
    pub fn forget(&mut self, kind: Kind, name: &str) {
        self.0.remove(&(kind, name.to_owned()));
    }

    /// Forgets an object of which the API server has shown nothing new, unless it may still be on the way.
    pub fn give_up(&mut self, kind: Kind, name: &str) {
        let key = (kind, name.to_owned());
        if self.0.get(&key).is_some_and(|entry| entry.since.elapsed() >= STORED_WITHIN) {
            self.0.remove(&key);
        }
    }

    /// Forgets objects that no watch has reported in time.
    pub fn expire(&mut self) {
        self.0.retain(|_, entry| entry.since.elapsed() < REMEMBERED);
    }

    /// Whether nothing is remembered.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The objects of which one version, or what `stored` knows of it, matters to a verdict; the youngest first. `selects_own`
    /// says of the NodePools that are stored whether a selector selects one that the policy under review selects.
    pub fn that_matter<'a>(
        &self,
        concern: &Concern,
        stored: impl Fn(Kind, &str) -> Option<Version<'a>>,
        selects_own: impl Fn(&PoolSelector) -> bool,
    ) -> Vec<(Kind, String)> {
        let pools = self.0.values().flat_map(|entry| &entry.versions).filter_map(|kept| match kept {
            Kept::Labels(labels) => Some(labels),
            _ => None,
        });
        let own: Vec<_> = pools.filter(|labels| concern.selectors.iter().any(|own| own.matches(labels))).collect();
        let selects_own =
            |selector: &PoolSelector| selects_own(selector) || own.iter().any(|labels| selector.matches(labels));
        let mut matter: Vec<_> = self
            .0
            .iter()
            .filter(|((kind, name), entry)| {
                let kept = entry.versions.iter().map(Kept::version);
                kept.chain(stored(*kind, name)).any(|version| concern.regards(*kind, name, version, selects_own))
            })
            .collect();
        matter.sort_by_key(|(_, entry)| std::cmp::Reverse(entry.since));
        matter.into_iter().map(|(key, _)| key.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use noderotation_shared::governance::ParsedPolicy;
    use serde_json::{Value, json};

    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn selector(selector: &Value) -> PoolSelector {
        ParsedPolicy::selector_of(&json!({"nodePoolSelector": selector})).unwrap()
    }

    fn own() -> Concern {
        Concern { selectors: vec![selector(&json!({"matchLabels": {"w": "api"}}))], ..Concern::default() }
    }

    fn that_matter(admitted: &Admitted, concern: &Concern) -> Vec<String> {
        let matter = admitted.that_matter(concern, |_, _| None, |_| false);
        matter.into_iter().map(|(_, name)| name).collect()
    }

    /// 4 KiB of keys and values are kept, and are known not to matter; one byte more could be anything.
    #[test]
    fn what_is_too_large_to_be_kept_could_be_anything() {
        let pool_with = |bytes: usize| {
            let mut admitted = Admitted::default();
            let labels = labels(&[("k", &"x".repeat(bytes - 1))]);
            admitted.remember(Kind::NodePool, "large", Version::Labels(&labels));
            that_matter(&admitted, &own()).len()
        };
        assert_eq!((pool_with(4_096), pool_with(4_097)), (0, 1));
        let policy_with = |key: &str| {
            let mut admitted = Admitted::default();
            let values: Vec<String> = (0..64).map(|n| format!("{n:0>63}")).collect();
            let large = selector(&json!({"matchExpressions": [
                {"key": key, "operator": "In", "values": values}, {"key": "w", "operator": "In", "values": ["b"]},
            ]}));
            admitted.remember(Kind::RotationPolicy, "large", Version::Selector(&large));
            (large.bytes(), that_matter(&admitted, &own()).len())
        };
        // 64 × 63 bytes of values, the key, and two for `w: b`
        let (kept, too_large) = ("k".repeat(62), "k".repeat(63));
        assert_eq!((policy_with(&kept), policy_with(&too_large)), ((4_096, 0), (4_097, 1)));
    }

    #[test]
    fn what_could_be_anything_matters_to_whatever_it_could_be_of() {
        let none = |_: &PoolSelector| false;
        let regards = |concern: &Concern, kind, name: &str| concern.regards(kind, name, Version::Anything, none);
        let of_pool = Concern { labels: vec![labels(&[("w", "api")])], ..Concern::default() };
        let named = Concern { pool: Some("api".into()), ..Concern::default() };
        let of_policy = Concern { policy: Some("own".into()), ..own() };
        for (concern, policy, pool, other_pool) in
            [(&own(), true, true, true), (&of_pool, true, false, false), (&named, false, true, false)]
        {
            assert_eq!(regards(concern, Kind::RotationPolicy, "p"), policy, "{concern:?}");
            assert_eq!(regards(concern, Kind::NodePool, "api"), pool, "{concern:?}");
            assert_eq!(regards(concern, Kind::NodePool, "web"), other_pool, "{concern:?}");
        }
        assert!(!regards(&of_policy, Kind::RotationPolicy, "own"), "the review itself says what it is");
    }

    /// A more specific policy wins the NodePools that both select: it matters where there is one, stored or not.
    #[test]
    fn a_more_specific_policy_matters_where_a_pool_that_was_admitted_has_both() {
        let mut admitted = Admitted::default();
        let special = selector(&json!({"matchLabels": {"w": "api", "team": "a"}}));
        admitted.remember(Kind::RotationPolicy, "special", Version::Selector(&special));
        assert_eq!(that_matter(&admitted, &own()), [""; 0]);
        let both = labels(&[("w", "api"), ("team", "a")]);
        admitted.remember(Kind::NodePool, "new", Version::Labels(&both));
        let mut matter = that_matter(&admitted, &own());
        matter.sort();
        assert_eq!(matter, ["new", "special"]);
    }
}
