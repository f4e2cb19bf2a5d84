//! Puts the program together: watches, certificate, server; and takes it apart again (§13 *Our own programs*).

use std::sync::Arc;
use std::time::Duration;

use axum_server::Handle;
use jiff::SignedDuration;
use noderotation_certs::objects::{Configuration, Kind, Mutating, SecretObject, Validating};
use noderotation_certs::own::{Own, Place};
use noderotation_certs::plan::Settings;
use noderotation_certs::{files, serving::Serving};
use noderotation_cluster::api::Api;
use noderotation_cluster::connect::connect;
use noderotation_cluster::objects::Kept;
use noderotation_cluster::watch::{Sink, Source, watch};
use noderotation_process::http::{Health, serve as serve_health};
use noderotation_process::parts::{Parts, describe, or_stopped, wait_for_signal};
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use crate::args::{Args, CertificateArg};
use crate::hooks::{Hooks, Rules};
use crate::metrics::Metrics;
use crate::serve::{Service, routes, serve};
use crate::view::{PolicyEntry, PoolObject, View};

/// Requests a second to the API server, and at once: certificates and bundles are few.
const RATE: (u16, u16) = (10, 20);

/// How long requests in flight may still take once the process stops.
const LAST_REQUESTS: Duration = Duration::from_secs(10);

/// Runs until a signal or the end of any part.
pub async fn run(args: Args) -> anyhow::Result<()> {
    args.check().map_err(anyhow::Error::msg)?;
    let view = Arc::new(View::default());
    let metrics = Arc::new(Metrics::new(view.fresh.clone()));
    let serving = Arc::new(Serving::default());
    let (page, shown) = (metrics.clone(), serving.clone());
    let health = Health::new(move || {
        page.certificate_expiry.set(shown.not_after().map_or(0.0, seconds));
        page.render()
    });
    let stop = CancellationToken::new();
    let mut parts = Parts::new();
    parts.spawn(serve_health("--health-listen", args.health_listen, health.clone()));
    let signals = stop.clone();
    parts.spawn(async move { wait_for_signal(signals).await });

    let agent = concat!("noderotation-webhook/", env!("CARGO_PKG_VERSION"));
    let client = connect(args.kubeconfig.as_deref(), agent).await.map_err(anyhow::Error::msg)?;
    let api = Api::new(client, RATE.0, RATE.1, metrics.traffic.clone());
    info!(version = env!("CARGO_PKG_VERSION"), namespace = args.namespace, "starting");
    let watches = Watches { api: &api, metrics: &metrics, view: &view };
    watches.start::<PolicyEntry, _>(&mut parts, Source::all(PolicyEntry::COLLECTION), view.clone());
    watches.start::<PoolObject, _>(&mut parts, Source::all(PoolObject::COLLECTION), view.clone());
    let own = keep_certificate(&args, &watches, &serving, &mut parts);

    let handle = Handle::new();
    let rules = Rules {
        controller: format!("system:serviceaccount:{}:{}", args.namespace, args.controller_account),
        default_zone: args.default_timezone.clone(),
        static_pools: args.static_pools.into(),
    };
    let service = Service::new(Hooks { view: view.clone(), rules }, metrics.clone());
    parts.spawn(serve(args.listen, routes(service), serving.clone(), handle.clone()));

    let complete = async {
        view.wait_synced().await;
        while !own.as_ref().map_or_else(|| serving.not_after().is_some(), |own| own.is_ready()) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let Some(()) = or_stopped(complete, &stop, &mut parts).await? else { return Ok(()) };
    health.set_ready(true);
    let (policies, nodepools) = view.with_ledger(noderotation_shared::admission::Ledger::sizes);
    info!(policies, nodepools, "ready");

    let ended = tokio::select! {
        () = stop.cancelled() => None,
        ended = parts.join_next() => Some(describe(ended)),
    };
    health.set_ready(false);
    if let Some(why) = ended {
        error!(why, "a part of the webhook ended, so it ends");
        anyhow::bail!(why);
    }
    shut_down(&handle, args.shutdown_delay, &mut parts).await
}

/// Not ready any more, but serving, until no API server sends anything; then what is in flight ends.
async fn shut_down(
    handle: &Handle<std::net::SocketAddr>,
    delay: SignedDuration,
    parts: &mut Parts,
) -> anyhow::Result<()> {
    info!(?delay, "stopping: serves on until the Service has forgotten this Pod");
    tokio::select! {
        () = tokio::time::sleep(Duration::try_from(delay).unwrap_or_default()) => {}
        ended = parts.join_next() => anyhow::bail!(describe(ended)),
    }
    handle.graceful_shutdown(Some(LAST_REQUESTS));
    let until = tokio::time::Instant::now() + LAST_REQUESTS;
    while handle.connection_count() > 0 && tokio::time::Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    info!("stopped");
    Ok(())
}

#[allow(clippy::cast_precision_loss, reason = "seconds since 1970")]
fn seconds(at: jiff::Timestamp) -> f64 {
    at.as_second() as f64
}

struct Watches<'a> {
    api: &'a Api,
    metrics: &'a Arc<Metrics>,
    view: &'a Arc<View>,
}

impl Watches<'_> {
    fn start<K: Kept, S: Sink<K> + 'static>(&self, parts: &mut Parts, source: Source, sink: Arc<S>) {
        let watch = watch::<K>(self.api.clone(), source, sink, self.view.fresh.clone(), self.metrics.traffic.clone());
        parts.spawn(async move {
            watch.await;
            Err(format!("the watch of {} ended", K::RESOURCE))
        });
    }
}

/// Starts what keeps the certificate.
fn keep_certificate(args: &Args, watches: &Watches<'_>, serving: &Arc<Serving>, parts: &mut Parts) -> Option<Arc<Own>> {
    if args.certificate == CertificateArg::Files {
        parts.spawn(files::keep(args.certificate_folder.clone(), serving.clone()));
        return None;
    }
    let place = Place {
        namespace: args.namespace.clone(),
        secret: args.secret.clone(),
        labels: vec![("app.kubernetes.io/managed-by".into(), "noderotation-webhook".into())],
    };
    let (service, namespace) = (&args.service, &args.namespace);
    let settings = Settings {
        names: vec![format!("{service}.{namespace}.svc"), format!("{service}.{namespace}.svc.cluster.local")],
        leaf: args.certificate_lifetime,
        authority: args.authority_lifetime,
        propagation: args.propagation,
    };
    let own = Own::new(watches.api.clone(), place, settings, serving.clone());
    let secrets = Source::named(format!("/api/v1/namespaces/{namespace}/secrets"), &args.secret);
    watches.start::<SecretObject, _>(parts, secrets, own.clone());
    let configurations = |collection: &str| Source::named(collection, &args.configurations);
    watches.start::<Configuration<Mutating>, _>(parts, configurations(Mutating::COLLECTION), own.clone());
    watches.start::<Configuration<Validating>, _>(parts, configurations(Validating::COLLECTION), own.clone());
    let keeper = own.clone();
    parts.spawn(async move {
        keeper.keep().await;
        Err("the certificate is kept no more".into())
    });
    Some(own)
}
