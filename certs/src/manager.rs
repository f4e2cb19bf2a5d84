//! Keeps CA and leaf certificate in a Secret, and the CA in every `caBundle`.
//!
//! Every replica does so, without a leader: each plans for itself from what it observes, each write is conditional on the
//! version that the plan saw, and the replica that loses a race goes on from what the winner wrote.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use noderotation_cluster::api::{Api, Outcome};
use noderotation_cluster::backoff::backoff;
use noderotation_cluster::error::with_causes;
use noderotation_cluster::objects::Cached;
use noderotation_cluster::watch::{Change, EventHandler, Store};
use noderotation_shared::kind::{Kind, ObjectRef};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::Error;
use crate::cert_resolver::CertResolver;
use crate::objects::{ConfigurationKind, Mutating, SecretObject, Validating, WebhookConfiguration};
use crate::plan::{Action, CertificateSettings, ObservedState, apply_action, plan};
use crate::secret_data::{Certificate, RawSecretData, SecretData};

/// Reconciled at least this often: clocks jump and sleeps drift, whatever was planned.
const RESYNC_INTERVAL: Duration = Duration::from_secs(60);

/// The delay before the next attempt after another replica has won a race for the Secret. Its watch event usually comes
/// sooner.
const SECRET_CONFLICT_DELAY: Duration = Duration::from_millis(500);

/// The delay before `caBundle` is compared again after it was corrected, or after another replica corrected it.
const CA_BUNDLE_DELAY: Duration = Duration::from_millis(200);

/// Which Secret holds CA and leaf certificate, and what it is labelled with when it is created.
#[derive(Clone, Debug)]
pub struct SecretRef {
    /// The namespace of the Secret.
    pub namespace: String,
    /// The name of the Secret.
    pub secret: String,
    /// Labels for a Secret that this process creates; those of an existing one are left alone.
    pub labels: Vec<(String, String)>,
}

#[derive(Default)]
struct ManagerCaches {
    secret: Store<SecretObject>,
    mutating: Store<WebhookConfiguration<Mutating>>,
    validating: Store<WebhookConfiguration<Validating>>,
}

impl ManagerCaches {
    fn is_synced(&self) -> bool {
        self.secret.is_initialized && self.mutating.is_initialized && self.validating.is_initialized
    }
}

/// Keeps the Secret, the certificate that is served and every `caBundle` in line with each other. Give it to three watches
/// as their [`EventHandler`], then call [`CertificateManager::run`].
pub struct CertificateManager {
    api: Api,
    secret_ref: SecretRef,
    settings: CertificateSettings,
    resolver: Arc<CertResolver>,
    caches: Mutex<ManagerCaches>,
    changed: Notify,
    /// The last usable content of the Secret: what a Secret that was deleted or spoilt is restored from.
    last_good: Mutex<Option<SecretData>>,
    /// The PEM text that every `caBundle` holds, and since when this process has observed it there.
    trusted: Mutex<Option<(String, Instant)>>,
}

/// When to reconcile next.
enum Requeue {
    /// At once: something was written.
    Now,
    /// After this delay, or as soon as a watched object changes.
    After(Duration),
}

impl CertificateManager {
    /// Reads and writes nothing before [`CertificateManager::run`].
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

    /// Whether a certificate is served whose CA is in every `caBundle`, so that API servers can call the webhook.
    pub fn is_ready(&self) -> bool {
        self.resolver.not_after().is_some() && self.trusted.lock().is_some()
    }

    /// Reconciles whenever a watched object changes or something is due, until the task is dropped. Failures are logged
    /// and retried with a growing delay.
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
                Err(error) => {
                    let wait = backoff(failures).min(RESYNC_INTERVAL);
                    failures += 1;
                    let error = with_causes(&error);
                    tracing::warn!(error, retry_in = ?wait, "the webhook's certificate could not be reconciled");
                    wait
                }
            };
            tokio::select! { () = changed => {} () = tokio::time::sleep(wait) => {} }
        }
    }

    async fn reconcile(&self) -> Result<Requeue, Error> {
        if !self.caches.lock().is_synced() {
            return Ok(Requeue::After(RESYNC_INTERVAL));
        }
        let secret = self.caches.lock().secret.objects.get(self.secret_ref.secret.as_str()).cloned();
        let data = secret.as_ref().and_then(|secret| match SecretData::read(&secret.data) {
            Ok(data) => Some(data),
            Err(error) => {
                let error = with_causes(&error);
                tracing::warn!(
                    secret = self.secret_ref.secret,
                    error,
                    "the Secret is unusable and will be overwritten"
                );
                None
            }
        });
        let now = Timestamp::now();
        match &data {
            Some(data) if data.is_usable_at(now) => self.serve(data)?,
            Some(data) => {
                let Certificate { not_before, not_after, .. } = &data.leaf.certificate;
                let secret = &self.secret_ref.secret;
                tracing::warn!(secret, %not_before, %not_after, %now, "the certificate in the Secret, or its CA, is not valid now and will be replaced; if it is of the future, the clock of this Pod's node or of another replica's is wrong");
            }
            None => {}
        }
        let last_good = self.last_good.lock().clone();
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

    /// For how long every `caBundle` has been observed to hold this PEM text; `None` while one differs.
    fn trusted_for(&self, trusted: &str) -> Option<Duration> {
        let is_everywhere = self.ca_bundle_patches(trusted).is_empty();
        let mut observed = self.trusted.lock();
        if !is_everywhere {
            *observed = None;
        } else if observed.as_ref().is_none_or(|(before, _)| before != trusted) {
            *observed = Some((trusted.to_owned(), Instant::now()));
        }
        observed.as_ref().map(|(_, since)| since.elapsed())
    }

    fn serve(&self, data: &SecretData) -> Result<(), Error> {
        let mut last_good = self.last_good.lock();
        if last_good.as_ref().is_none_or(|good| good.leaf != data.leaf) {
            self.resolver.set(data.leaf.certified()?, data.leaf.certificate.not_after);
            tracing::info!(not_after = %data.leaf.certificate.not_after, "serving a new certificate");
        }
        *last_good = Some(data.clone());
        Ok(())
    }

    fn target(&self) -> ObjectRef<'_> {
        Kind::Secret.in_namespace(&self.secret_ref.namespace, &self.secret_ref.secret)
    }

    fn read_secret(&self, json: &str) -> Result<SecretObject, Error> {
        SecretObject::read(json).map_err(|error| Error::Unreadable { object: self.target().to_string(), source: error })
    }

    async fn write(&self, old: Option<&SecretObject>, new: &SecretData, action: Action) -> Result<Requeue, Error> {
        let outcome = match old {
            None => {
                let namespace = Some(&*self.secret_ref.namespace);
                self.api.create(Kind::Secret, namespace, &self.new_secret(&new.data())).await
            }
            Some(old) => self.api.patch(self.target(), &secret_patch(old, &new.data())).await,
        };
        match outcome {
            Outcome::Applied(text) => {
                tracing::info!(?action, secret = self.secret_ref.secret, "wrote new certificates to the Secret");
                self.caches.lock().secret.apply(self.read_secret(&text)?);
                Ok(Requeue::Now)
            }
            // another replica was faster
            Outcome::Conflict | Outcome::NotFound => Ok(Requeue::After(SECRET_CONFLICT_DELAY)),
            Outcome::Unknown(source) | Outcome::Rejected(source) | Outcome::Throttled(source) => {
                Err(Error::Write { object: self.target().to_string(), source })
            }
        }
    }

    fn new_secret(&self, data: &RawSecretData) -> Value {
        let labels: Map<String, Value> =
            self.secret_ref.labels.iter().map(|(key, value)| (key.clone(), value.as_str().into())).collect();
        json!({
            "apiVersion": Kind::Secret.api_version(), "kind": Kind::Secret.name(), "type": "kubernetes.io/tls",
            "metadata": {"name": self.secret_ref.secret, "namespace": self.secret_ref.namespace, "labels": labels},
            "data": encoded(data),
        })
    }

    /// Kind, name and merge patch of every webhook configuration in the cache whose `caBundle` differs.
    fn ca_bundle_patches(&self, trusted: &str) -> Vec<(Kind, Box<str>, Value)> {
        let caches = self.caches.lock();
        let mut patches = Vec::new();
        patches.extend(caches.mutating.objects.values().filter_map(|c| ca_bundle_patch(c, trusted)));
        patches.extend(caches.validating.objects.values().filter_map(|c| ca_bundle_patch(c, trusted)));
        patches
    }

    /// Writes the CAs of the Secret into every `caBundle` that differs. The Secret is read live, not from the cache: a
    /// replica whose cache is stale must not restore an old bundle.
    async fn correct_ca_bundles(&self) -> Result<Requeue, Error> {
        let secret = match self.api.get(self.target()).await {
            Ok(text) => self.read_secret(&text)?,
            Err(error) if error.is_not_found() => return Ok(Requeue::After(SECRET_CONFLICT_DELAY)),
            Err(source) => return Err(Error::Read { object: self.target().to_string(), source }),
        };
        let trusted = SecretData::read(&secret.data)?.trusted();
        for (kind, name, body) in self.ca_bundle_patches(&trusted) {
            let target = kind.named(&name);
            match self.api.patch(target, &body).await {
                Outcome::Applied(text) => {
                    tracing::info!(configuration = %target, "corrected caBundle");
                    self.store_configuration(target, &text)?;
                }
                Outcome::Conflict | Outcome::NotFound => return Ok(Requeue::After(CA_BUNDLE_DELAY)),
                Outcome::Unknown(source) | Outcome::Rejected(source) | Outcome::Throttled(source) => {
                    return Err(Error::Write { object: format!("caBundle of {target}"), source });
                }
            }
        }
        Ok(Requeue::After(CA_BUNDLE_DELAY))
    }

    fn store_configuration(&self, target: ObjectRef<'_>, json: &str) -> Result<(), Error> {
        let unreadable = |source| Error::Unreadable { object: target.to_string(), source };
        let mut caches = self.caches.lock();
        if target.kind == Mutating::KIND {
            caches.mutating.apply(Cached::read(json).map_err(unreadable)?);
        } else {
            caches.validating.apply(Cached::read(json).map_err(unreadable)?);
        }
        self.changed.notify_one();
        Ok(())
    }
}

fn encoded(data: &RawSecretData) -> Map<String, Value> {
    data.iter().map(|(key, value)| (key.clone(), STANDARD.encode(value).into())).collect()
}

/// A merge patch after which the Secret's data is exactly `new`; metadata of others is left alone.
fn secret_patch(old: &SecretObject, new: &RawSecretData) -> Value {
    let mut data = encoded(new);
    for key in old.data.keys().filter(|key| !new.contains_key(*key)) {
        data.insert(key.clone(), Value::Null);
    }
    json!({"metadata": {"resourceVersion": old.meta.version, "uid": old.meta.uid}, "data": data})
}

/// Path and merge patch that make every `caBundle` of the configuration `trusted`; `None` where each is so already.
fn ca_bundle_patch<K: ConfigurationKind>(
    configuration: &WebhookConfiguration<K>,
    trusted: &str,
) -> Option<(Kind, Box<str>, Value)> {
    let webhooks = configuration.with_ca_bundle(trusted)?;
    let meta = &configuration.meta;
    let body = json!({"metadata": {"resourceVersion": meta.version, "uid": meta.uid}, "webhooks": webhooks});
    Some((K::KIND, meta.name.clone(), body))
}

macro_rules! event_handler {
    ($object:ty, $store:ident) => {
        impl EventHandler<$object> for CertificateManager {
            fn apply(&self, object: $object) {
                if let Change::Changed(_) = self.caches.lock().$store.apply(object) {
                    self.changed.notify_one();
                }
            }

            fn delete(&self, object: &$object) {
                self.caches.lock().$store.delete(object);
                self.changed.notify_one();
            }

            fn init_done(&self, uids: &HashSet<Box<str>>) {
                self.caches.lock().$store.init_done(uids);
                self.changed.notify_one();
            }
        }
    };
}

event_handler!(SecretObject, secret);
event_handler!(WebhookConfiguration<Mutating>, mutating);
event_handler!(WebhookConfiguration<Validating>, validating);
