//! Sends one write, and takes the object in its answer into the caches, so that the next decision sees it (§8).

use noderotation_cluster::api::{Api, Outcome};
use noderotation_cluster::objects::Cached;
use noderotation_cluster::watch::EventHandler;
use noderotation_rotation::pass::ApiObject;
use noderotation_rotation::step::Write;
use noderotation_shared::kind::Kind;
use noderotation_shared::objects::{Node, NodeClaim, NodePool, Placeholder};

use crate::watch::Caches;

/// Sends a write; `namespace` is where placeholders live.
pub async fn apply(api: &Api, namespace: &str, write: &Write) -> Outcome {
    match write {
        Write::Patch(patch) => api.patch(patch.kind.named(&patch.name), &patch.body()).await,
        Write::CreatePlaceholder(pod) => api.create(Kind::Pod, Some(namespace), pod).await,
        Write::DeletePlaceholder { name, uid } => api.delete(Kind::Pod.in_namespace(namespace, name), uid, None).await,
        Write::DeleteClaim { name, uid, version } => {
            api.delete(Kind::NodeClaim.named(name), uid, version.as_deref()).await
        }
    }
}

impl Caches {
    /// Caches the object in the answer to a write that has landed. `None` where the answer does not hold the object.
    pub fn take_in(&self, write: &Write, answer: &str) -> Option<ApiObject> {
        if let Write::DeletePlaceholder { name, uid } = write {
            // without a grace period it is gone with the answer
            self.lock().placeholder_deleted(name, uid);
            return None;
        }
        let (kind, name) = write.target();
        match kind {
            Kind::NodePool => self.cached::<NodePool>(name, answer).map(ApiObject::NodePool),
            Kind::NodeClaim => self.cached::<NodeClaim>(name, answer).map(ApiObject::NodeClaim),
            Kind::Node => self.cached::<Node>(name, answer).map(ApiObject::Node),
            _ => self.cached::<Placeholder>(name, answer).map(ApiObject::Placeholder),
        }
    }

    /// A deletion may be answered with a mere `Status`, which has no name.
    fn cached<K: Cached>(&self, name: &str, answer: &str) -> Option<K>
    where
        Self: EventHandler<K>,
    {
        let object = K::read(answer).ok().filter(|object| *object.meta().name == *name)?;
        self.apply(object.clone());
        Some(object)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// The next pass begins with what the last one has written, whatever the watch tells.
    #[test]
    fn the_answer_to_a_write_is_cached_where_it_holds_the_object() {
        let caches = Caches::new(Arc::default(), Arc::default());
        let pool = |name: &str, version: u32| {
            format!(r#"{{"metadata":{{"name":"{name}","uid":"u","resourceVersion":"{version}"}},"spec":{{}}}}"#)
        };
        caches.apply(NodePool::read(&pool("api", 1)).unwrap());
        let known = NodePool::read(&pool("api", 1)).unwrap();
        let patch = Write::Patch(noderotation_rotation::patch::Patch::new(Kind::NodePool, &known.meta, []));
        let version = |caches: &Caches| caches.lock().pool("api").unwrap().meta.version.to_string();
        for other in [r#"{"kind":"Status","status":"Success"}"#.to_owned(), pool("web", 2), String::new()] {
            assert!(caches.take_in(&patch, &other).is_none(), "{other}");
            assert_eq!(version(&caches), "1", "{other}");
        }
        let Some(ApiObject::NodePool(taken)) = caches.take_in(&patch, &pool("api", 2)) else { panic!("not taken in") };
        assert_eq!((&*taken.meta.version, version(&caches).as_str()), ("2", "2"));
    }
}
