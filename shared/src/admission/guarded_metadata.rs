//! The part of an object's metadata that the guard judges.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::keys::{KARPENTER_NODEPOOL, PREFIX};

/// The most keys of ours that annotations or labels may have. There are about twenty.
const MOST_OWN_KEYS: usize = 1_000;

/// The `noderotation.io/` keys in an object's metadata, and the NodePool that the object belongs to.
///
/// It is read from any JSON text: what is not a map has no keys, and a value that is not a string is kept as its JSON text.
/// Whatever else the metadata holds is passed over without being kept, since Nodes can be large. An error where there are more
/// than a thousand keys of ours.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GuardedMetadata {
    /// The annotations whose key begins with `noderotation.io/`.
    pub annotations: BTreeMap<String, String>,
    /// The labels whose key begins with `noderotation.io/`.
    pub labels: BTreeMap<String, String>,
    /// The value of the label `karpenter.sh/nodepool`; `None` if the object does not have it.
    pub pool: Option<String>,
    /// Whether the object is being deleted, and only waits for its finalizers.
    pub is_being_deleted: bool,
}

impl<'de> Deserialize<'de> for GuardedMetadata {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Default, Deserialize)]
        #[serde(default, rename_all = "camelCase")]
        struct Raw {
            annotations: OwnKeys,
            labels: OwnKeys,
            deletion_timestamp: Option<IgnoredAny>,
        }
        let Raw { mut annotations, mut labels, deletion_timestamp } = Raw::deserialize(deserializer)?;
        annotations.0.remove(KARPENTER_NODEPOOL);
        let pool = labels.0.remove(KARPENTER_NODEPOOL);
        let is_being_deleted = deletion_timestamp.is_some();
        Ok(Self { annotations: annotations.0, labels: labels.0, pool, is_being_deleted })
    }
}

/// The keys of ours in a map of annotations or labels, and the label of the NodePool; what is not a map has none. A value that
/// is no string is kept as its JSON text.
#[derive(Debug, Default)]
struct OwnKeys(BTreeMap<String, String>);

impl<'de> Deserialize<'de> for OwnKeys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Keys;
        impl<'de> Visitor<'de> for Keys {
            type Value = OwnKeys;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<OwnKeys, A::Error> {
                let mut own = BTreeMap::new();
                while let Some(key) = map.next_key::<Cow<'de, str>>()? {
                    if key.starts_with(PREFIX) || key == KARPENTER_NODEPOOL {
                        let value: &RawValue = map.next_value()?;
                        let text = serde_json::from_str(value.get()).unwrap_or_else(|_| value.get().to_owned());
                        own.insert(key.into_owned(), text);
                    } else {
                        map.next_value::<IgnoredAny>()?;
                    }
                    if own.len() > MOST_OWN_KEYS {
                        return Err(A::Error::custom(format_args!("more than {MOST_OWN_KEYS} keys of {PREFIX}")));
                    }
                }
                Ok(OwnKeys(own))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<OwnKeys, A::Error> {
                while items.next_element::<IgnoredAny>()?.is_some() {}
                Ok(OwnKeys::default())
            }

            fn visit_unit<E>(self) -> Result<OwnKeys, E> {
                Ok(OwnKeys::default())
            }

            fn visit_bool<E>(self, _: bool) -> Result<OwnKeys, E> {
                Ok(OwnKeys::default())
            }

            fn visit_i64<E>(self, _: i64) -> Result<OwnKeys, E> {
                Ok(OwnKeys::default())
            }

            fn visit_u64<E>(self, _: u64) -> Result<OwnKeys, E> {
                Ok(OwnKeys::default())
            }

            fn visit_f64<E>(self, _: f64) -> Result<OwnKeys, E> {
                Ok(OwnKeys::default())
            }

            fn visit_str<E>(self, _: &str) -> Result<OwnKeys, E> {
                Ok(OwnKeys::default())
            }
        }
        deserializer.deserialize_any(Keys)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<GuardedMetadata, serde_json::Error> {
        serde_json::from_str(text)
    }

    #[test]
    fn what_is_ours_is_read_from_any_json() {
        let annotated = |value: &str| GuardedMetadata {
            annotations: BTreeMap::from([("noderotation.io/x".to_owned(), value.to_owned())]),
            ..GuardedMetadata::default()
        };
        let in_pool = GuardedMetadata { pool: Some("p".into()), ..GuardedMetadata::default() };
        for (text, expected) in [
            (r#"{"annotations":{"a":[{}],"noderotation.io/x":"1\u0041"}}"#, annotated("1A")),
            (r#"{"annotations":{"noderotation.io\/x":7}}"#, annotated("7")),
            (r#"{"annotations":{"noderotation.io/x":[ 1]}}"#, annotated("[ 1]")),
            (r#"{"labels":{"karpenter.sh/nodepool":"p"},"annotations":[1,{}],"finalizers":7}"#, in_pool),
            (r#"{"labels":null,"annotations":"noderotation.io/x"}"#, GuardedMetadata::default()),
            (r#"{"labels":-1.5,"annotations":true}"#, GuardedMetadata::default()),
            (r#"{"deletionTimestamp":null}"#, GuardedMetadata::default()),
            (r#"{"deletionTimestamp":0}"#, GuardedMetadata { is_being_deleted: true, ..GuardedMetadata::default() }),
        ] {
            assert_eq!(read(text).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn too_many_keys_of_ours_are_an_error() {
        let with = |count: usize| {
            let keys: String = (0..count).map(|i| format!(r#""noderotation.io/{i}":"","#)).collect();
            let others: String = (0..5_000).map(|i| format!(r#""other/{i}":"","#)).collect();
            read(&format!(r#"{{"annotations":{{{keys}{others}"a":""}}}}"#))
        };
        assert_eq!(with(1_000).unwrap().annotations.len(), 1_000);
        let error = with(1_001).unwrap_err().to_string();
        assert!(error.starts_with("more than 1000 keys of noderotation.io/"), "{error}");
    }
}
