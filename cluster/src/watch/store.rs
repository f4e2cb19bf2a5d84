//! One kind's objects by name, never an older one over a newer one.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use crate::objects::Cached;

/// A cache of one kind.
pub struct Store<K> {
    /// Them.
    pub objects: BTreeMap<Box<str>, Arc<K>>,
    /// Deleted by us; older news of them is ignored until the watch confirms.
    pub gone: HashSet<Box<str>>,
    /// The first list is complete.
    pub is_initialized: bool,
}

impl<K> Default for Store<K> {
    fn default() -> Self {
        Self { objects: BTreeMap::new(), gone: HashSet::new(), is_initialized: false }
    }
}

/// What a change was.
pub enum Change<K> {
    /// Older than what is known.
    None,
    /// Only its version differs.
    Same,
    /// New, or different from this.
    Changed(Option<Arc<K>>),
}

impl<K: Cached> Store<K> {
    /// Keeps an object unless a newer one, or its deletion by us, is known.
    pub fn apply(&mut self, object: K) -> Change<K> {
        if self.gone.contains(&object.meta().uid) {
            return Change::None;
        }
        let name = object.meta().name.clone();
        if let Some(known) = self.objects.get(&name) {
            let same_object = known.meta().uid == object.meta().uid;
            if same_object && !is_newer(&object.meta().version, &known.meta().version) {
                return Change::None;
            }
            if known.is_same(&object) {
                self.objects.insert(name, Arc::new(object));
                return Change::Same;
            }
        }
        Change::Changed(self.objects.insert(name, Arc::new(object)))
    }

    /// Removes the object of this name if it is the one of this UID.
    pub fn delete(&mut self, name: &str, uid: &str) -> Option<Arc<K>> {
        self.gone.remove(uid);
        if self.objects.get(name).is_some_and(|known| &*known.meta().uid == uid) {
            self.objects.remove(name)
        } else {
            None
        }
    }

    /// The initial state is complete; gives what it did not hold.
    pub fn init_done(&mut self, uids: &HashSet<Box<str>>) -> Vec<Arc<K>> {
        self.is_initialized = true;
        self.gone.clear();
        let vanished: Vec<_> = self.objects.values().filter(|o| !uids.contains(&o.meta().uid)).cloned().collect();
        for object in &vanished {
            self.objects.remove(&object.meta().name);
        }
        vanished
    }
}

/// resourceVersions of one kind are ordered whole numbers.
fn is_newer(version: &str, than: &str) -> bool {
    match (version.parse::<u64>(), than.parse::<u64>()) {
        (Ok(version), Ok(than)) => version > than,
        _ => version != than,
    }
}
