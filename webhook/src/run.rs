//! The start of the program (watches, certificate, server), and its shutdown (§13 *Our own programs*).

use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use noderotation_certs::manager::{CertificateManager, SecretRef};
use noderotation_certs::objects::{Mutating, SecretObject, Validating, WebhookConfiguration};
use noderotation_certs::plan::CertificateSettings;
use noderotation_certs::{cert_resolver::CertResolver, files};
use noderotation_cluster::api::Api;
use noderotation_cluster::client::connect;
use noderotation_cluster::objects::Cached;
use noderotation_cluster::watch::{EventHandler, ListWatch, reflect};
use noderotation_process::http::{Health, listen, serve as serve_health};
use noderotation_process::tasks::{Tasks, describe, or_stopped, wait_for_signal};
use noderotation_shared::objects::PolicyObject;
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use crate::Error;
use crate::args::{Args, CertificateArg};
use crate::caches::{Caches, PoolObject};
use crate::connections::Server;
use crate::handlers::{Handlers, VerdictOptions};
use crate::limits::Limits;
use crate::metrics::Metrics;
use crate::serve::{Service, routes};

/// Rate limit of our own requests to the API server: per second, and in a burst. Only certificates and caBundles are written.
const RATE: (u16, u16) = (10, 20);

/// Rate limit of live reads: per second, and in a burst. Apart from the other, so that no flood of reviews delays a certificate.
const LIVE_RATE: (u16, u16) = (50, 100);

/// How long requests in flight may still take once no new ones are accepted.
const LAST_REQUESTS: Duration = Duration::from_secs(10);

/// Runs until SIGTERM or SIGINT, or until a task ends that should run as long as the process.
pub async fn run(args: Args) -> anyhow::Result<()> {
    args.check()?;
    let caches = Arc::new(Caches::default());
    let metrics = Arc::new(Metrics::new(caches.fresh.clone()));
    let resolver = Arc::new(CertResolver::default());
    let (page, shown) = (metrics.clone(), resolver.clone());
    let health = Health::new(move || {
        page.certificate_expiry.set(shown.not_after().map_or(0.0, seconds));
        page.render()
    });
    let stop = CancellationToken::new();
    let mut tasks = Tasks::new();
    tasks.spawn(serve_health("--health-listen", args.health_listen, health.clone()));
    let signals = stop.clone();
    tasks.spawn(async move { wait_for_signal(signals).await });

    let agent = concat!("noderotation-webhook/", env!("CARGO_PKG_VERSION"));
    let client = connect(args.kubeconfig.as_deref(), agent).await?;
    let api = Api::new(client.clone(), RATE.0, RATE.1, metrics.client_metrics.clone());
    info!(version = noderotation_shared::zone::program_version(), namespace = args.namespace, "starting");
    let watches = Watches { api: &api, metrics: &metrics, caches: &caches };
    watches.start::<PolicyObject, _>(&mut tasks, ListWatch::all(), caches.clone());
    watches.start::<PoolObject, _>(&mut tasks, ListWatch::all(), caches.clone());
    let manager = start_certificate(&args, &watches, &resolver, &mut tasks);

    let options = VerdictOptions {
        controller: format!("system:serviceaccount:{}:{}", args.namespace, args.controller_account),
        default_zone: args.default_timezone.clone(),
        static_pools: args.static_pools.into(),
    };
    let limits = Limits::default();
    let live = Box::new(Api::new(client, LIVE_RATE.0, LIVE_RATE.1, metrics.client_metrics.clone()));
    let service = Service::new(Handlers { caches: caches.clone(), options }, live, metrics.clone(), limits);
    let server = Server::new(routes(service), limits);
    let listener = listen("--listen", args.listen).await?;
    let serving = server.clone().serve(listener, resolver.clone());
    tasks.spawn(async move {
        serving.await;
        Ok::<(), Error>(())
    });

    let ready = async {
        caches.wait_synced().await;
        while !manager.as_ref().map_or_else(|| resolver.not_after().is_some(), |manager| manager.is_ready()) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let Some(()) = or_stopped(ready, &stop, &mut tasks).await? else { return Ok(()) };
    health.set_ready(true);
    let (policies, nodepools) = caches.with_index(noderotation_shared::admission::PolicyIndex::sizes);
    info!(policies, nodepools, "ready");

    let ended = tokio::select! {
        () = stop.cancelled() => None,
        ended = tasks.join_next() => Some(describe(ended)),
    };
    health.set_ready(false);
    if let Some(why) = ended {
        error!(error = why, "a task of the webhook ended, so the process exits");
        anyhow::bail!(why);
    }
    shut_down(&server, args.shutdown_delay, &mut tasks).await
}

/// Serves on while no longer ready, until API servers send nothing more; then waits for the requests in flight.
async fn shut_down(server: &Server, delay: SignedDuration, tasks: &mut Tasks) -> anyhow::Result<()> {
    info!(?delay, "shutting down; still serving until this Pod is removed from the Service");
    tokio::select! {
        () = tokio::time::sleep(Duration::try_from(delay).unwrap_or_default()) => {}
        ended = tasks.join_next() => anyhow::bail!(describe(ended)),
    }
    server.close();
    let all = tokio::time::timeout(LAST_REQUESTS, server.closed()).await.is_ok();
    info!(all_requests_answered = all, "shut down");
    Ok(())
}

#[allow(clippy::cast_precision_loss, reason = "seconds since 1970 are exact in an f64")]
fn seconds(at: jiff::Timestamp) -> f64 {
    at.as_second() as f64
}

struct Watches<'a> {
    api: &'a Api,
    metrics: &'a Arc<Metrics>,
    caches: &'a Arc<Caches>,
}

impl Watches<'_> {
    fn start<K: Cached, S: EventHandler<K> + 'static>(
        &self,
        tasks: &mut Tasks,
        list_watch: ListWatch,
        handler: Arc<S>,
    ) {
        let watch = reflect::<K>(
            self.api.clone(),
            list_watch,
            handler,
            self.caches.fresh.clone(),
            self.metrics.client_metrics.clone(),
        );
        tasks.spawn(async move {
            watch.await;
            Err(Error::WatchEnded(K::KIND.plural()))
        });
    }
}

/// Starts the task that keeps the certificate. `None` where somebody else keeps it, in files.
fn start_certificate(
    args: &Args,
    watches: &Watches<'_>,
    resolver: &Arc<CertResolver>,
    tasks: &mut Tasks,
) -> Option<Arc<CertificateManager>> {
    if args.certificate == CertificateArg::Files {
        tasks.spawn(files::run(args.certificate_folder.clone(), resolver.clone()));
        return None;
    }
    let secret_ref = SecretRef {
        namespace: args.namespace.clone(),
        secret: args.secret.clone(),
        labels: vec![("app.kubernetes.io/managed-by".into(), "noderotation-webhook".into())],
    };
    let (service, namespace) = (&args.service, &args.namespace);
    let settings = CertificateSettings {
        names: vec![format!("{service}.{namespace}.svc"), format!("{service}.{namespace}.svc.cluster.local")],
        leaf: args.certificate_lifetime,
        authority: args.authority_lifetime,
        propagation: args.propagation,
    };
    let manager = CertificateManager::new(watches.api.clone(), secret_ref, settings, resolver.clone());
    let secrets = ListWatch::named(Some(namespace), &args.secret);
    watches.start::<SecretObject, _>(tasks, secrets, manager.clone());
    let configurations = || ListWatch::named(None, &args.configurations);
    watches.start::<WebhookConfiguration<Mutating>, _>(tasks, configurations(), manager.clone());
    watches.start::<WebhookConfiguration<Validating>, _>(tasks, configurations(), manager.clone());
    let runner = manager.clone();
    tasks.spawn(async move {
        runner.run().await;
        Err(Error::ManagerEnded)
    });
    Some(manager)
}

#[cfg(test)]
mod tests {
    #[test]
    fn instants_are_seconds_since_1970() {
        assert_eq!(super::seconds("2026-12-01T00:00:00Z".parse().unwrap()).to_bits(), 1_796_083_200_f64.to_bits());
    }
}
