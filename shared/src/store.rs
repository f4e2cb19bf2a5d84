//! One kind's objects by name; an older version never replaces a newer one.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use crate::objects::Meta;

/// An object of which a slim copy is kept.
pub trait Stored: Clone + PartialEq {
    /// Its identity, version and annotations.
    fn meta(&self) -> &Meta;
    /// The same, mutable.
    fn meta_mut(&mut self) -> &mut Meta;
    /// Whether two versions of an object differ in nothing that is kept of it, its `resourceVersion` aside.
    fn is_same(&self, other: &Self) -> bool {
        let mut other = other.clone();
        other.meta_mut().version.clone_from(&self.meta().version);
        *self == other
    }
}

/// A cache of one kind.
pub struct Store<K> {
    /// The objects, by name.
    pub objects: BTreeMap<Box<str>, Arc<K>>,
    /// UIDs of objects that are known to be gone before the watch has said so, or that vanished between two watches: what
    /// else is heard of them is old.
    gone: HashSet<Box<str>>,
    /// The highest resourceVersion of a deletion that the watch has delivered. It had delivered everything before it, too.
    last_deletion: u64,
    /// Whether the initial state is complete.
    pub is_initialized: bool,
}

impl<K> Default for Store<K> {
    fn default() -> Self {
        Self { objects: BTreeMap::new(), gone: HashSet::new(), last_deletion: 0, is_initialized: false }
    }
}

/// What an object that was applied means for the cache.
pub enum Change<K> {
    /// It is older than what is cached, or was deleted by us: the cache stays as it is.
    Outdated,
    /// Only its `resourceVersion` is new.
    OnlyVersion,
    /// It is new, or differs from the object that it replaces.
    Changed(Option<Arc<K>>),
}

impl<K: Stored> Store<K> {
    /// Caches an object, unless something newer is known of it or of its name: a newer version, or that it is gone.
    ///
    /// Answers to requests and events of a watch overtake one another: the answer to a deletion may come after the event
    /// that tells of it, and the object must not come back with it.
    pub fn apply(&mut self, object: K) -> Change<K> {
        let meta = object.meta();
        if self.gone.contains(&meta.uid) {
            return Change::Outdated;
        }
        let name = meta.name.clone();
        match self.objects.get(&name) {
            None if number(&meta.version).is_some_and(|version| version <= self.last_deletion) => Change::Outdated,
            Some(cached) if !is_newer(&meta.version, &cached.meta().version) => Change::Outdated,
            Some(cached) if cached.is_same(&object) => {
                self.objects.insert(name, Arc::new(object));
                Change::OnlyVersion
            }
            _ => Change::Changed(self.objects.insert(name, Arc::new(object))),
        }
    }

    /// The watch tells that an object was deleted; this is its last state. Returns what was cached of it.
    pub fn delete(&mut self, object: &K) -> Option<Arc<K>> {
        let meta = object.meta();
        self.gone.remove(&meta.uid);
        self.last_deletion = self.last_deletion.max(number(&meta.version).unwrap_or(0));
        let is_cached = self.objects.get(&meta.name).is_some_and(|cached| cached.meta().uid == meta.uid);
        if is_cached { self.objects.remove(&meta.name) } else { None }
    }

    /// The API server has answered that there is no object of this name. Returns what was cached of it.
    pub fn forget(&mut self, name: &str) -> Option<Arc<K>> {
        let forgotten = self.objects.remove(name)?;
        self.gone.insert(forgotten.meta().uid.clone());
        Some(forgotten)
    }

    /// The object of this name and UID is gone, by our own request.
    pub fn deleted_by_us(&mut self, name: &str, uid: &str) {
        self.objects.remove(name);
        self.gone.insert(uid.into());
    }

    /// The initial state is complete: removes and returns the objects whose UID is not among `uids`.
    pub fn init_done(&mut self, uids: &HashSet<Box<str>>) -> Vec<Arc<K>> {
        self.is_initialized = true;
        let vanished: Vec<_> = self.objects.values().filter(|o| !uids.contains(&o.meta().uid)).cloned().collect();
        for object in &vanished {
            self.objects.remove(&object.meta().name);
        }
        // no watch will tell of their deletion; whatever was gone before has left no request under way by now
        self.gone = vanished.iter().map(|object| object.meta().uid.clone()).collect();
        vanished
    }
}

/// A resourceVersion as a number; `None` where the server has another notion of it.
fn number(version: &str) -> Option<u64> {
    version.parse().ok()
}

/// resourceVersions of one kind are ordered whole numbers. One that is not a number replaces any other.
fn is_newer(version: &str, than: &str) -> bool {
    match (number(version), number(than)) {
        (Some(version), Some(than)) => version > than,
        _ => version != than,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::Node;

    fn node(name: &str, uid: &str, version: &str) -> Node {
        let meta = Meta { name: name.into(), uid: uid.into(), version: version.into(), ..Meta::default() };
        Node { meta, ..Node::default() }
    }

    fn names(store: &Store<Node>) -> Vec<String> {
        store.objects.values().map(|node| format!("{}@{}", node.meta.uid, node.meta.version)).collect()
    }

    #[test]
    fn an_answer_that_comes_after_the_deletion_does_not_bring_the_object_back() {
        let mut store = Store::default();
        store.apply(node("n", "u", "10"));
        assert!(store.delete(&node("n", "u", "12")).is_some());
        assert!(
            matches!(store.apply(node("n", "u", "11")), Change::Outdated),
            "the answer to a patch, or to the deletion"
        );
        assert!(matches!(store.apply(node("m", "v", "9")), Change::Outdated), "a read that was sent long before");
        assert_eq!(names(&store), [""; 0]);
        store.apply(node("n", "u2", "13")); // the name again, another object
        assert!(matches!(store.apply(node("n", "u", "11")), Change::Outdated));
        assert!(store.delete(&node("n", "u", "12")).is_none(), "told once more");
        assert_eq!(names(&store), ["u2@13"]);
    }

    #[test]
    fn an_initial_state_may_come_in_any_order() {
        let mut store = Store::default();
        for (name, version) in [("c", "30"), ("a", "10"), ("b", "20")] {
            store.apply(node(name, name, version));
        }
        assert!(store.init_done(&HashSet::from(["a".into(), "b".into(), "c".into()])).is_empty());
        assert_eq!(names(&store), ["a@10", "b@20", "c@30"]);
    }

    #[test]
    fn what_is_known_to_be_gone_stays_gone() {
        let mut store = Store::default();
        store.apply(node("n", "u", "10"));
        assert!(store.forget("n").is_some() && store.forget("n").is_none());
        assert!(matches!(store.apply(node("n", "u", "11")), Change::Outdated), "an event that was under way");
        store.delete(&node("n", "u", "12"));
        assert!(store.gone.is_empty(), "nothing is kept of what the watch has told");
        store.apply(node("m", "v", "13"));
        store.deleted_by_us("m", "v");
        assert!(matches!(store.apply(node("m", "v", "14")), Change::Outdated));
        store.apply(node("o", "w", "15"));
        assert_eq!(store.init_done(&HashSet::new()).len(), 1, "vanished while no watch was open");
        assert!(matches!(store.apply(node("o", "w", "15")), Change::Outdated));
        assert_eq!(store.gone.len(), 1);
    }

    #[test]
    fn a_version_that_is_no_number_replaces_any_other() {
        let mut store = Store::default();
        store.apply(node("n", "u", "x"));
        store.apply(node("n", "u", "w"));
        assert_eq!(names(&store), ["u@w"]);
        store.delete(&node("n", "u", "v"));
        store.apply(node("n", "u2", "t"));
        assert_eq!(names(&store), ["u2@t"]);
    }
}
