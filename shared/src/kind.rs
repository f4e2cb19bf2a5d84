//! The kinds of Kubernetes objects that our programs read or write: the only place that spells a group, a version or a
//! plural.

use std::fmt;

use crate::api;

/// A kind of object. What follows from it: its URL, the `resource` label in metrics, the `regarding` of an Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Karpenter's `NodePool`.
    NodePool,
    /// Karpenter's `NodeClaim`.
    NodeClaim,
    /// `Node`.
    Node,
    /// `Pod`.
    Pod,
    /// Our `RotationPolicy`.
    RotationPolicy,
    /// `Lease`, for leader election.
    Lease,
    /// `Event` of `events.k8s.io`, as we write it.
    Event,
    /// `Event` of the core group, whose field selectors find what Karpenter said about a Pod.
    CoreEvent,
    /// `Secret`, which holds the webhook's certificate.
    Secret,
    /// `Deployment`, scaled to zero before uninstalling.
    Deployment,
    /// `PersistentVolume`, for the zone that it is bound to.
    PersistentVolume,
    /// `PersistentVolumeClaim`, for its volume.
    PersistentVolumeClaim,
    /// `PodDisruptionBudget`, which may hold a drain for ever.
    PodDisruptionBudget,
    /// `CustomResourceDefinition`, to see whether ours is up to date.
    CustomResourceDefinition,
    /// `MutatingWebhookConfiguration`, whose `caBundle` is kept.
    MutatingWebhookConfiguration,
    /// `ValidatingWebhookConfiguration`, whose `caBundle` is kept.
    ValidatingWebhookConfiguration,
}

impl Kind {
    /// Kind, group (empty for the core group), version and plural.
    const fn spelling(self) -> (&'static str, &'static str, &'static str, &'static str) {
        const ADMISSION: &str = "admissionregistration.k8s.io";
        match self {
            Self::NodePool => ("NodePool", "karpenter.sh", "v1", "nodepools"),
            Self::NodeClaim => ("NodeClaim", "karpenter.sh", "v1", "nodeclaims"),
            Self::Node => ("Node", "", "v1", "nodes"),
            Self::Pod => ("Pod", "", "v1", "pods"),
            Self::RotationPolicy => ("RotationPolicy", api::GROUP, api::VERSION, "rotationpolicies"),
            Self::Lease => ("Lease", "coordination.k8s.io", "v1", "leases"),
            Self::Event => ("Event", "events.k8s.io", "v1", "events"),
            Self::CoreEvent => ("Event", "", "v1", "events"),
            Self::Secret => ("Secret", "", "v1", "secrets"),
            Self::Deployment => ("Deployment", "apps", "v1", "deployments"),
            Self::PersistentVolume => ("PersistentVolume", "", "v1", "persistentvolumes"),
            Self::PersistentVolumeClaim => ("PersistentVolumeClaim", "", "v1", "persistentvolumeclaims"),
            Self::PodDisruptionBudget => ("PodDisruptionBudget", "policy", "v1", "poddisruptionbudgets"),
            Self::CustomResourceDefinition => {
                ("CustomResourceDefinition", "apiextensions.k8s.io", "v1", "customresourcedefinitions")
            }
            Self::MutatingWebhookConfiguration => {
                ("MutatingWebhookConfiguration", ADMISSION, "v1", "mutatingwebhookconfigurations")
            }
            Self::ValidatingWebhookConfiguration => {
                ("ValidatingWebhookConfiguration", ADMISSION, "v1", "validatingwebhookconfigurations")
            }
        }
    }

    /// Its `kind`, for example `NodePool`.
    pub const fn name(self) -> &'static str {
        self.spelling().0
    }

    /// Its API group, for example `karpenter.sh`; empty for the core group.
    pub const fn group(self) -> &'static str {
        self.spelling().1
    }

    /// Its plural, for example `nodepools`: the `resource` of RBAC rules and of our metrics.
    pub const fn plural(self) -> &'static str {
        self.spelling().3
    }

    /// Its plural with its group, as RBAC and `kubectl get` take it: `nodepools.karpenter.sh`, `nodes`.
    pub fn resource(self) -> String {
        match self.spelling() {
            (_, "", _, plural) => plural.to_owned(),
            (_, group, _, plural) => format!("{plural}.{group}"),
        }
    }

    /// Its `apiVersion`, for example `karpenter.sh/v1`.
    pub fn api_version(self) -> String {
        match self.spelling() {
            (_, "", version, _) => version.to_owned(),
            (_, group, version, _) => format!("{group}/{version}"),
        }
    }

    /// The URL path of all objects of this kind, or of those in one namespace.
    pub fn collection(self, namespace: Option<&str>) -> String {
        let (_, group, version, plural) = self.spelling();
        let root = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
        match namespace {
            None => format!("{root}/{plural}"),
            Some(namespace) => format!("{root}/namespaces/{namespace}/{plural}"),
        }
    }

    /// A cluster-scoped object of this kind.
    pub const fn named(self, name: &str) -> ObjectRef<'_> {
        ObjectRef { kind: self, namespace: None, name }
    }

    /// A namespaced object of this kind.
    pub const fn in_namespace<'a>(self, namespace: &'a str, name: &'a str) -> ObjectRef<'a> {
        ObjectRef { kind: self, namespace: Some(namespace), name }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One object, by kind and name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectRef<'a> {
    /// Its kind.
    pub kind: Kind,
    /// Its namespace; `None` for a cluster-scoped kind.
    pub namespace: Option<&'a str>,
    /// `metadata.name`.
    pub name: &'a str,
}

impl fmt::Display for ObjectRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.namespace {
            None => write!(f, "{} {}", self.kind, self.name),
            Some(namespace) => write!(f, "{} {namespace}/{}", self.kind, self.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_those_of_the_api_server() {
        assert_eq!(Kind::Node.collection(None), "/api/v1/nodes");
        assert_eq!(Kind::Pod.collection(Some("ns")), "/api/v1/namespaces/ns/pods");
        assert_eq!(Kind::NodeClaim.collection(None), "/apis/karpenter.sh/v1/nodeclaims");
        assert_eq!(Kind::Lease.collection(Some("ns")), "/apis/coordination.k8s.io/v1/namespaces/ns/leases");
        assert_eq!(
            Kind::PodDisruptionBudget.collection(Some("ns")),
            "/apis/policy/v1/namespaces/ns/poddisruptionbudgets"
        );
        assert_eq!(Kind::RotationPolicy.api_version(), "noderotation.io/v1alpha1");
        assert_eq!(
            (Kind::Node.api_version(), Kind::NodePool.resource()),
            ("v1".into(), "nodepools.karpenter.sh".into())
        );
        assert_eq!(Kind::Secret.in_namespace("ns", "tls").to_string(), "Secret ns/tls");
    }
}
