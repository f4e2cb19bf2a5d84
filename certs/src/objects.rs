//! The Secret and the webhook configurations, reduced to the fields that are read.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use noderotation_cluster::objects::{Cached, identity};
use noderotation_shared::kind::Kind;
use noderotation_shared::objects::Meta;
use noderotation_shared::store::Stored;
use serde::Deserialize;
use serde_json::Value;

use crate::secret_data::RawSecretData;

/// The Secret of CA and leaf certificate.
#[derive(Clone, PartialEq)]
pub struct SecretObject {
    /// Name, UID and `resourceVersion`.
    pub meta: Meta,
    /// `data`, decoded from base64. An entry that is not base64 is left out, so it counts as missing.
    pub data: RawSecretData,
}

impl Cached for SecretObject {
    const KIND: Kind = Kind::Secret;

    fn read(json: &str) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        struct Raw {
            #[serde(default)]
            data: Value,
        }
        let raw: Raw = serde_json::from_str(json)?;
        let decoded = |text: &Value| STANDARD.decode(text.as_str()?).ok();
        let data = raw.data.as_object().into_iter().flatten().filter_map(|(k, v)| Some((k.clone(), decoded(v)?)));
        Ok(Self { meta: identity(json)?, data: data.collect() })
    }
}

impl Stored for SecretObject {
    fn meta(&self) -> &Meta {
        &self.meta
    }

    fn meta_mut(&mut self) -> &mut Meta {
        &mut self.meta
    }
}

/// One of the two kinds of webhook configuration, at compile time.
pub trait ConfigurationKind: Clone + PartialEq + Send + Sync + 'static {
    /// Its kind.
    const KIND: Kind;
}

/// `MutatingWebhookConfiguration`.
#[derive(Clone, PartialEq)]
pub struct Mutating;

/// `ValidatingWebhookConfiguration`.
#[derive(Clone, PartialEq)]
pub struct Validating;

impl ConfigurationKind for Mutating {
    const KIND: Kind = Kind::MutatingWebhookConfiguration;
}

impl ConfigurationKind for Validating {
    const KIND: Kind = Kind::ValidatingWebhookConfiguration;
}

/// A `MutatingWebhookConfiguration` or `ValidatingWebhookConfiguration`.
#[derive(Clone, PartialEq)]
pub struct WebhookConfiguration<K: ConfigurationKind> {
    /// Name, UID and `resourceVersion`.
    pub meta: Meta,
    /// `webhooks`, with every field that others wrote; null where there are none.
    pub webhooks: Value,
    kind: std::marker::PhantomData<K>,
}

impl<K: ConfigurationKind> WebhookConfiguration<K> {
    /// `webhooks` with this PEM text as every `caBundle`; `None` where it is so already.
    pub fn with_ca_bundle(&self, trusted: &str) -> Option<Value> {
        let bundle = Value::from(STANDARD.encode(trusted));
        let mut webhooks = self.webhooks.clone();
        for entry in webhooks.as_array_mut()? {
            if let Some(client) = entry.get_mut("clientConfig").and_then(Value::as_object_mut) {
                client.insert("caBundle".into(), bundle.clone());
            }
        }
        (webhooks != self.webhooks).then_some(webhooks)
    }
}

impl<K: ConfigurationKind> Cached for WebhookConfiguration<K> {
    const KIND: Kind = K::KIND;

    fn read(json: &str) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        struct Raw {
            #[serde(default)]
            webhooks: Value,
        }
        let raw: Raw = serde_json::from_str(json)?;
        Ok(Self { meta: identity(json)?, webhooks: raw.webhooks, kind: std::marker::PhantomData })
    }
}

impl<K: ConfigurationKind> Stored for WebhookConfiguration<K> {
    fn meta(&self) -> &Meta {
        &self.meta
    }

    fn meta_mut(&mut self) -> &mut Meta {
        &mut self.meta
    }
}

#[cfg(test)]
mod tests {
    use noderotation_shared::store::{Change, Store};
    use serde_json::json;

    use super::*;

    fn secret(version: &str, text: &str) -> SecretObject {
        let metadata = json!({"name": "s", "namespace": "ns", "uid": "u", "resourceVersion": version});
        SecretObject::read(&json!({"metadata": metadata, "data": {"k": text}}).to_string()).unwrap()
    }

    fn configuration(version: &str, webhooks: &Value) -> WebhookConfiguration<Mutating> {
        let metadata = json!({"name": "c", "uid": "u", "resourceVersion": version});
        Cached::read(&json!({"metadata": metadata, "webhooks": webhooks}).to_string()).unwrap()
    }

    /// A cache wakes nobody where only the `resourceVersion` is new.
    fn means<K: Stored>(objects: impl IntoIterator<Item = K>) -> Vec<&'static str> {
        let mut store = Store::default();
        let word = |change: Change<K>| match change {
            Change::Outdated => "outdated",
            Change::OnlyVersion => "only version",
            Change::Changed(_) => "changed",
        };
        objects.into_iter().map(|object| word(store.apply(object))).collect()
    }

    #[test]
    fn a_new_version_of_the_same_content_is_no_change() {
        let expected = ["changed", "only version", "changed", "outdated"];
        assert_eq!(
            means([("5", "eA=="), ("7", "eA=="), ("9", "eQ=="), ("8", "eA==")].map(|(v, k)| secret(v, k))),
            expected
        );
        let (a, b) = (json!([{"name": "a"}]), json!([{"name": "b"}]));
        assert_eq!(means([("5", &a), ("7", &a), ("9", &b), ("8", &a)].map(|(v, w)| configuration(v, w))), expected);
        assert_eq!(configuration("5", &a).meta().name, "c".into());
    }

    #[test]
    fn data_is_decoded_and_what_is_not_base64_is_left_out() {
        let read = secret("1", "aGVsbG8=");
        assert_eq!(&*read.meta().name, "s");
        assert_eq!(read.data, RawSecretData::from([("k".into(), b"hello".to_vec())]));
        assert!(secret("1", "?").data.is_empty());
    }

    #[test]
    fn every_ca_bundle_is_replaced_and_nothing_else() {
        let own = json!({"name": "a", "clientConfig": {"service": {"name": "w"}}, "timeoutSeconds": 10});
        let by_url = json!({"name": "b", "clientConfig": {"url": "https://w", "caBundle": "b2xk"}});
        let bare = json!({"name": "c"});
        let replaced = json!([
            {"name": "a", "clientConfig": {"service": {"name": "w"}, "caBundle": "bmV3"}, "timeoutSeconds": 10},
            {"name": "b", "clientConfig": {"url": "https://w", "caBundle": "bmV3"}},
            {"name": "c"},
        ]);
        assert_eq!(configuration("1", &json!([own, by_url, bare])).with_ca_bundle("new"), Some(replaced.clone()));
        assert_eq!(configuration("1", &replaced).with_ca_bundle("new"), None);
        assert_eq!(configuration("1", &Value::Null).with_ca_bundle("new"), None);
    }
}
