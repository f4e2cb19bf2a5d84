//! What each kind's watch events do to the caches and their indices, and which NodePools they trigger (§8, *Triggers*).

use std::collections::{BTreeSet, HashMap, HashSet};

use noderotation_shared::keys;
use noderotation_shared::objects::{Node, NodeClaim, NodePool, Placeholder};

use super::caches::{CacheState, Caches};
use noderotation_cluster::objects::PolicyObject;
use noderotation_cluster::watch::{Change, EventHandler};

pub(super) fn unindex(index: &mut HashMap<Box<str>, BTreeSet<Box<str>>>, key: &str, name: &str) {
    if let Some(names) = index.get_mut(key) {
        names.remove(name);
        if names.is_empty() {
            index.remove(key);
        }
    }
}

pub(super) fn unindex_node(c: &mut CacheState, node: &Node) {
    unindex(&mut c.nodes_of, &node.pool, &node.meta.name);
    if let Some(claim) = node.meta.annotations.get(keys::SURGE_FOR) {
        unindex(&mut c.frozen_for, claim, &node.meta.name);
    }
}

fn index_node(c: &mut CacheState, node: &Node) {
    if !node.pool.is_empty() {
        c.nodes_of.entry(node.pool.clone()).or_default().insert(node.meta.name.clone());
    }
    if let Some(claim) = node.meta.annotations.get(keys::SURGE_FOR) {
        c.frozen_for.entry(claim.into()).or_default().insert(node.meta.name.clone());
    }
}

impl EventHandler<NodePool> for Caches {
    fn apply(&self, pool: NodePool) {
        let name = pool.meta.name.clone();
        let change = self.lock().pools.apply(pool);
        if let Change::Changed(_) = change {
            self.trigger([&*name]);
            self.changed.notify_one();
        }
    }

    fn delete(&self, pool: &NodePool) {
        if self.lock().pools.delete(&pool.meta.name, &pool.meta.uid).is_some() {
            self.trigger([&*pool.meta.name]);
            self.changed.notify_one();
        }
    }

    fn init_done(&self, uids: &HashSet<Box<str>>) {
        let vanished = self.lock().pools.init_done(uids);
        self.trigger(vanished.iter().map(|pool| &*pool.meta.name));
        self.changed.notify_one();
        self.synced.notify_waiters();
    }
}

impl EventHandler<NodeClaim> for Caches {
    fn apply(&self, claim: NodeClaim) {
        let (name, pool) = (claim.meta.name.clone(), claim.pool.clone());
        let mut c = self.lock();
        let Change::Changed(old) = c.claims.apply(claim) else { return };
        if let Some(old) = old.as_ref().filter(|old| old.pool != pool) {
            unindex(&mut c.claims_of, &old.pool, &name);
        }
        if !pool.is_empty() {
            c.claims_of.entry(pool.clone()).or_default().insert(name);
        }
        drop(c);
        self.trigger([&*pool, old.as_ref().map_or("", |old| &*old.pool)]);
        self.changed.notify_one();
    }

    fn delete(&self, claim: &NodeClaim) {
        let mut c = self.lock();
        let removed = c.claims.delete(&claim.meta.name, &claim.meta.uid);
        if removed.is_some() {
            unindex(&mut c.claims_of, &claim.pool, &claim.meta.name);
        }
        drop(c);
        // also where it was removed already: the release of the anchor may wait for it
        self.trigger([&*claim.pool]);
        self.changed.notify_one();
    }

    fn init_done(&self, uids: &HashSet<Box<str>>) {
        let mut c = self.lock();
        let vanished = c.claims.init_done(uids);
        for claim in &vanished {
            unindex(&mut c.claims_of, &claim.pool, &claim.meta.name);
        }
        drop(c);
        self.trigger(vanished.iter().map(|claim| &*claim.pool));
        self.changed.notify_one();
        self.synced.notify_waiters();
    }
}

impl Caches {
    /// The pools that a node concerns: its own, and that of the rotation it is frozen for.
    fn pools_of_node(&self, node: &Node) -> [Box<str>; 2] {
        let frozen_for = node.meta.annotations.get(keys::SURGE_FOR).and_then(|claim| self.claim(claim));
        [node.pool.clone(), frozen_for.map(|claim| claim.pool.clone()).unwrap_or_default()]
    }

    fn trigger_node(&self, node: &Node) {
        let pools = self.pools_of_node(node);
        self.trigger(pools.iter().map(|pool| &**pool));
    }
}

impl EventHandler<Node> for Caches {
    fn apply(&self, node: Node) {
        let mut c = self.lock();
        let copy = node.clone();
        let Change::Changed(old) = c.nodes.apply(node) else { return };
        if let Some(old) = &old {
            unindex_node(&mut c, old);
        }
        index_node(&mut c, &copy);
        drop(c);
        self.trigger_node(&copy);
        if let Some(old) = old {
            self.trigger_node(&old);
        }
    }

    fn delete(&self, node: &Node) {
        let mut c = self.lock();
        let removed = c.nodes.delete(&node.meta.name, &node.meta.uid);
        if let Some(removed) = &removed {
            unindex_node(&mut c, removed);
        }
        drop(c);
        self.trigger_node(node);
    }

    fn init_done(&self, uids: &HashSet<Box<str>>) {
        let mut c = self.lock();
        let vanished = c.nodes.init_done(uids);
        for node in &vanished {
            unindex_node(&mut c, node);
        }
        drop(c);
        for node in &vanished {
            self.trigger_node(node);
        }
        self.synced.notify_waiters();
    }
}

impl Caches {
    fn trigger_placeholder(&self, placeholder: &Placeholder) {
        // by its label, since its claim may be gone; by its claim, since a long name leaves no label
        let of_claim = self.claim(placeholder.claim()).map(|claim| claim.pool.clone()).unwrap_or_default();
        self.trigger([&*placeholder.pool, &*of_claim]);
    }
}

impl EventHandler<Placeholder> for Caches {
    fn apply(&self, placeholder: Placeholder) {
        let copy = placeholder.clone();
        let change = self.lock().placeholders.apply(placeholder);
        if let Change::Changed(_) = change {
            self.trigger_placeholder(&copy);
        }
    }

    fn delete(&self, placeholder: &Placeholder) {
        self.lock().placeholders.delete(&placeholder.meta.name, &placeholder.meta.uid);
        self.trigger_placeholder(placeholder);
    }

    fn init_done(&self, uids: &HashSet<Box<str>>) {
        let vanished = self.lock().placeholders.init_done(uids);
        for placeholder in &vanished {
            self.trigger_placeholder(placeholder);
        }
        self.synced.notify_waiters();
    }
}

impl EventHandler<PolicyObject> for Caches {
    fn apply(&self, policy: PolicyObject) {
        let change = self.lock().policies.apply(policy);
        if let Change::Changed(_) = change {
            self.trigger_all(); // any change can alter which policy wins any pool
        }
    }

    fn delete(&self, policy: &PolicyObject) {
        let mut c = self.lock();
        let removed = c.policies.delete(&policy.meta.name, &policy.meta.uid).is_some();
        c.cadences.remove(&policy.meta.name);
        drop(c);
        if removed {
            self.trigger_all();
        }
    }

    fn init_done(&self, uids: &HashSet<Box<str>>) {
        let mut c = self.lock();
        let vanished = c.policies.init_done(uids);
        for policy in &vanished {
            c.cadences.remove(&policy.meta.name);
        }
        drop(c);
        if !vanished.is_empty() {
            self.trigger_all();
        }
        self.synced.notify_waiters();
    }
}
