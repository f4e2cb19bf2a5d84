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
