//! Our own authority in a Secret, kept by every replica at once: each plans for itself, each write is conditional on what
//! its plan saw, and who loses a race goes on from what the winner wrote.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use noderotation_cluster::api::{Api, Outcome, ReadError};
use noderotation_cluster::backoff::backoff;
use noderotation_cluster::objects::Cached;
use noderotation_cluster::watch::{Change, EventHandler, Store};
use serde_json::{Map, Value, json};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::cert_resolver::CertResolver;
use crate::objects::{ConfigurationKind, Mutating, SecretObject, Validating, WebhookConfiguration};
use crate::plan::{Action, CertificateSettings, ObservedState, apply_action, plan};
use crate::secret_data::{RawSecretData, SecretData};

/// Clocks jump and sleeps drift: looked at again after this, whatever was planned.
const RESYNC_INTERVAL: Duration = Duration::from_secs(60);

/// Where things are.
#[derive(Clone, Debug)]
pub struct SecretRef {
    /// The Secret's namespace.
    pub namespace: String,
    /// The Secret's name.
    pub secret: String,
    /// Labels of the Secret.
    pub labels: Vec<(String, String)>,
}

#[derive(Default)]
struct ManagerState {
    secret: Store<SecretObject>,
    mutating: Store<WebhookConfiguration<Mutating>>,
    validating: Store<WebhookConfiguration<Validating>>,
}

impl ManagerState {
    fn is_synced(&self) -> bool {
        self.secret.is_initialized && self.mutating.is_initialized && self.validating.is_initialized
    }
}

/// Keeps Secret, certificate and `caBundle`.
pub struct CertificateManager {
    api: Api,
    secret_ref: SecretRef,
    settings: CertificateSettings,
    resolver: Arc<CertResolver>,
    caches: Mutex<ManagerState>,
    changed: Notify,
    last_good: Mutex<Option<SecretData>>,
    /// What every `caBundle` holds, and since when this process has seen it there.
    trusted: Mutex<Option<(String, Instant)>>,
}

/// What a look led to.
enum Requeue {
    /// Something was written: look again at once.
    Now,
    /// Look again after this, or when something changes.
    After(Duration),
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl CertificateManager {
    /// Nothing is done before [`CertificateManager::run`].
    pub fn new(
        api: Api,
        secret_ref: SecretRef,
        settings: CertificateSettings,
        resolver: Arc<CertResolver>,
    ) -> Arc<Self> {
        Arc::new(Self {
            api,
            secret_ref,
            settings,
            resolver,
            caches: Mutex::default(),
            changed: Notify::new(),
            last_good: Mutex::default(),
            trusted: Mutex::default(),
        })
    }

    /// Whether a certificate is served that every `caBundle` trusts.
    pub fn is_ready(&self) -> bool {
        self.resolver.not_after().is_some() && lock(&self.trusted).is_some()
    }

    /// Works for ever. Watches feed it as a [`EventHandler`] of the three kinds.
    pub async fn run(self: Arc<Self>) {
        let mut failures = 0;
        loop {
            let changed = self.changed.notified();
            let wait = match self.reconcile().await {
                Ok(Requeue::Now) => {
                    failures = 0;
                    continue;
                }
                Ok(Requeue::After(wait)) => {
                    failures = 0;
                    wait
                }
                Err(why) => {
                    let wait = backoff(failures).min(RESYNC_INTERVAL);
                    failures += 1;
                    tracing::warn!(why, retry_in = ?wait, "the webhook's certificate cannot be kept");
                    wait
                }
            };
            tokio::select! { () = changed => {} () = tokio::time::sleep(wait) => {} }
        }
    }

    async fn reconcile(&self) -> Result<Requeue, String> {
        if !lock(&self.caches).is_synced() {
            return Ok(Requeue::After(RESYNC_INTERVAL));
        }
        let secret = lock(&self.caches).secret.objects.get(self.secret_ref.secret.as_str()).cloned();
        let data = secret.as_ref().and_then(|secret| match SecretData::read(&secret.data) {
            Ok(data) => Some(data),
            Err(why) => {
                tracing::warn!(secret = self.secret_ref.secret, why, "the Secret cannot be used and is put right");
                None
            }
        });
        if let Some(data) = &data {
            self.serve(data)?;
        }
        let now = Timestamp::now();
        let last_good = lock(&self.last_good).clone();
        let trusted_for = data.as_ref().and_then(|data| self.trusted_for(&data.trusted()));
        let propagation = Duration::try_from(self.settings.propagation).unwrap_or_default();
        let observed = ObservedState {
            data: data.as_ref(),
            has_secret: secret.is_some(),
            last_good: last_good.as_ref(),
            is_trusted: trusted_for.is_some_and(|time| time >= propagation),
        };
        let action = plan(observed, &self.settings, now);
        if let Some(new) = apply_action(action, observed, &self.settings, now)? {
            return self.write(secret.as_deref(), &new, action).await;
        }
        let Some(trusted_for) = trusted_for else { return self.correct_ca_bundles().await };
        let Action::Keep(at) = action else { return Ok(Requeue::After(RESYNC_INTERVAL)) };
        let mut wait = Duration::try_from(at.duration_since(now)).unwrap_or_default();
        if let Some(left) = propagation.checked_sub(trusted_for).filter(|left| !left.is_zero()) {
            wait = wait.min(left);
        }
        Ok(Requeue::After(wait.clamp(Duration::from_millis(50), RESYNC_INTERVAL)))
    }

    /// For how long every `caBundle` has been seen to hold this; `None` while some does not.
    fn trusted_for(&self, trusted: &str) -> Option<Duration> {
        let is_everywhere = self.ca_bundle_patches(trusted).is_empty();
        let mut seen = lock(&self.trusted);
        if !is_everywhere {
            *seen = None;
        } else if seen.as_ref().is_none_or(|(observed, _)| observed != trusted) {
            *seen = Some((trusted.to_owned(), Instant::now()));
        }
        seen.as_ref().map(|(_, since)| since.elapsed())
    }

    fn serve(&self, data: &SecretData) -> Result<(), String> {
        let mut last_good = lock(&self.last_good);
        if last_good.as_ref().is_none_or(|good| good.leaf != data.leaf) {
            self.resolver.set(data.leaf.certified()?, data.leaf.certificate.not_after);
            tracing::info!(until = %data.leaf.certificate.not_after, "serves this certificate");
        }
        *last_good = Some(data.clone());
        Ok(())
    }

    fn secret_path(&self) -> String {
        format!("/api/v1/namespaces/{}/secrets", self.secret_ref.namespace)
    }

    async fn write(&self, old: Option<&SecretObject>, new: &SecretData, action: Action) -> Result<Requeue, String> {
        let outcome = match old {
            None => self.api.create(&self.secret_path(), &self.new_secret(&new.data())).await,
            Some(old) => {
                let path = format!("{}/{}", self.secret_path(), self.secret_ref.secret);
                self.api.patch(&path, &secret_patch(old, &new.data())).await
            }
        };
        match outcome {
            Outcome::Applied(text) => {
                tracing::info!(?action, secret = self.secret_ref.secret, "certificates changed");
                lock(&self.caches).secret.apply(SecretObject::read(&text)?);
                Ok(Requeue::Now)
            }
            // another replica was faster; its watch event comes
            Outcome::Conflict | Outcome::NotFound => Ok(Requeue::After(Duration::from_millis(500))),
            Outcome::Unknown(why) | Outcome::Rejected(why) | Outcome::Throttled(_, why) => {
                Err(format!("Secret {}/{}: {why}", self.secret_ref.namespace, self.secret_ref.secret))
            }
        }
    }

    fn new_secret(&self, data: &RawSecretData) -> Value {
        let labels: Map<String, Value> =
            self.secret_ref.labels.iter().map(|(key, value)| (key.clone(), value.as_str().into())).collect();
        json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
            "metadata": {"name": self.secret_ref.secret, "namespace": self.secret_ref.namespace, "labels": labels},
            "data": encoded(data),
        })
    }

    /// The configurations as they are seen whose `caBundle` is another: path and body of what puts each right.
    fn ca_bundle_patches(&self, trusted: &str) -> Vec<(String, Value)> {
        let caches = lock(&self.caches);
        let mut differing = Vec::new();
        differing.extend(caches.mutating.objects.values().filter_map(|c| ca_bundle_patch(c, trusted)));
        differing.extend(caches.validating.objects.values().filter_map(|c| ca_bundle_patch(c, trusted)));
        differing
    }

    /// By a Secret read live: a replica whose view is old must not put an old bundle back.
    async fn correct_ca_bundles(&self) -> Result<Requeue, String> {
        let path = format!("{}/{}", self.secret_path(), self.secret_ref.secret);
        let secret = match self.api.get(&path).await {
            Ok(text) => SecretObject::read(&text)?,
            Err(ReadError::NotFound) => return Ok(Requeue::After(Duration::from_millis(500))),
            Err(error) => return Err(format!("Secret {}: {error}", self.secret_ref.secret)),
        };
        let trusted = SecretData::read(&secret.data)?.trusted();
        for (path, body) in self.ca_bundle_patches(&trusted) {
            match self.api.patch(&path, &body).await {
                Outcome::Applied(text) => {
                    tracing::info!(configuration = path, "caBundle put right");
                    self.store_configuration(&path, &text)?;
                }
                Outcome::Conflict | Outcome::NotFound => return Ok(Requeue::After(Duration::from_millis(200))),
                Outcome::Unknown(why) | Outcome::Rejected(why) | Outcome::Throttled(_, why) => {
                    return Err(format!("caBundle of {path}: {why}"));
                }
            }
        }
        Ok(Requeue::After(Duration::from_millis(200)))
    }

    fn store_configuration(&self, path: &str, text: &str) -> Result<(), String> {
        let mut caches = lock(&self.caches);
        if path.starts_with(Mutating::COLLECTION) {
            caches.mutating.apply(Cached::read(text)?);
        } else {
            caches.validating.apply(Cached::read(text)?);
        }
        self.changed.notify_one();
        Ok(())
    }
}

fn encoded(data: &RawSecretData) -> Map<String, Value> {
    data.iter().map(|(key, value)| (key.clone(), STANDARD.encode(value).into())).collect()
}

/// What makes the Secret hold this and nothing else; labels and annotations of others stay.
fn secret_patch(old: &SecretObject, new: &RawSecretData) -> Value {
    let mut data = encoded(new);
    for key in old.data.keys().filter(|key| !new.contains_key(*key)) {
        data.insert(key.clone(), Value::Null);
    }
    json!({"metadata": {"resourceVersion": old.meta.version, "uid": old.meta.uid}, "data": data})
}

fn ca_bundle_patch<K: ConfigurationKind>(
    configuration: &WebhookConfiguration<K>,
    trusted: &str,
) -> Option<(String, Value)> {
    let webhooks = configuration.with_ca_bundle(trusted)?;
    let meta = &configuration.meta;
    let body = json!({"metadata": {"resourceVersion": meta.version, "uid": meta.uid}, "webhooks": webhooks});
    Some((format!("{}/{}", K::COLLECTION, meta.name), body))
}

macro_rules! event_handler {
    ($object:ty, $store:ident) => {
        impl EventHandler<$object> for CertificateManager {
            fn apply(&self, object: $object) {
                if let Change::Changed(_) = lock(&self.caches).$store.apply(object) {
                    self.changed.notify_one();
                }
            }

            fn delete(&self, object: &$object) {
                lock(&self.caches).$store.delete(&object.meta.name, &object.meta.uid);
                self.changed.notify_one();
            }

            fn init_done(&self, uids: &HashSet<Box<str>>) {
                lock(&self.caches).$store.init_done(uids);
                self.changed.notify_one();
            }
        }
    };
}

event_handler!(SecretObject, secret);
event_handler!(WebhookConfiguration<Mutating>, mutating);
event_handler!(WebhookConfiguration<Validating>, validating);
