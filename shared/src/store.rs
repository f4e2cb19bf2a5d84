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
    /// UIDs of objects that we deleted. What the watch still says about them is old.
    pub deleted: HashSet<Box<str>>,
    /// Whether the initial state is complete.
    pub is_initialized: bool,
}

impl<K> Default for Store<K> {
    fn default() -> Self {
        Self { objects: BTreeMap::new(), deleted: HashSet::new(), is_initialized: false }
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
    /// Caches an object, unless a newer version of it is cached already or we have deleted it.
    pub fn apply(&mut self, object: K) -> Change<K> {
        if self.deleted.contains(&object.meta().uid) {
            return Change::Outdated;
        }
        let name = object.meta().name.clone();
        if let Some(cached) = self.objects.get(&name) {
            let same_object = cached.meta().uid == object.meta().uid;
            if same_object && !is_newer(&object.meta().version, &cached.meta().version) {
                return Change::Outdated;
            }
            if cached.is_same(&object) {
                self.objects.insert(name, Arc::new(object));
                return Change::OnlyVersion;
            }
        }
        Change::Changed(self.objects.insert(name, Arc::new(object)))
    }

    /// Removes the object of this name if it is the one with this UID. Returns it.
    pub fn delete(&mut self, name: &str, uid: &str) -> Option<Arc<K>> {
        self.deleted.remove(uid);
        if self.objects.get(name).is_some_and(|cached| &*cached.meta().uid == uid) {
            self.objects.remove(name)
        } else {
            None
        }
    }

    /// The initial state is complete: removes and returns the objects whose UID is not among `uids`.
    pub fn init_done(&mut self, uids: &HashSet<Box<str>>) -> Vec<Arc<K>> {
        self.is_initialized = true;
        self.deleted.clear();
        let vanished: Vec<_> = self.objects.values().filter(|o| !uids.contains(&o.meta().uid)).cloned().collect();
        for object in &vanished {
            self.objects.remove(&object.meta().name);
        }
        vanished
    }
}

/// resourceVersions of one kind are ordered whole numbers. One that is not a number replaces any other.
fn is_newer(version: &str, than: &str) -> bool {
    match (version.parse::<u64>(), than.parse::<u64>()) {
        (Ok(version), Ok(than)) => version > than,
        _ => version != than,
    }
}
